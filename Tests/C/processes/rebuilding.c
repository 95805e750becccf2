/* An index is rebuilt while others use the cache. The process that opens it first is stopped in the middle of one
 * shard: later processes wait for that shard alone, rebuild those whose turn has not come, and find the same
 * contents as in a cache that one process opened. The threads that rebuild shards in parallel get no signals, and
 * end with the opening.
 *
 * rebuilding */
#include "check.h"
#include "faults.h"
#include "files.h"
#include "layout.h"
#include "pattern.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

enum { shards = 4, keys = 400, removed = 10, large_keys = 8, large_size = 600000 };

static shale_options options = {.struct_size = sizeof options,
                                .capacity = 16 << 20,
                                .shards = shards,
                                .segment_size = 128 << 10,
                                .flags = SHALE_OPEN_NO_SYNC};
static const shale_options read_only = {.struct_size = sizeof read_only, .flags = SHALE_OPEN_READ_ONLY};

static char *directory;
static uint64_t secret;
static shale_stats filled; /* of the life in which all entries were set */
static atomic_bool *is_waiting; /* a process that waits for the shard */

/* The distance between the numbers of one life and those of another. */
static unsigned long long same_random(void) {
    return 88172645463325252u;
}

static uint64_t shard_of(const char *key) {
    return (XXH3_64bits_withSeed(key, strlen(key), secret) >> 32) * shards >> 32;
}

static const char *name_of(unsigned i) {
    static char name[32];
    snprintf(name, sizeof name, "key %u", i);
    return name;
}

static uint64_t word_of_index(uint64_t offset) {
    uint64_t word = 0;
    int fd = open_file(directory, "shale.index", O_RDONLY);
    CHECK_EQUAL(8, pread(fd, &word, 8, (off_t)offset));
    close(fd);
    return word;
}

/* ---- the contents ---- */

static unsigned char bytes[large_size];

static void set_large(shale_cache *cache, unsigned i, uint64_t version) {
    char name[32];
    snprintf(name, sizeof name, "large %u", i);
    pattern_fill(bytes, i, version, large_size);
    shale_set_options how = {.struct_size = sizeof how, .flags = SHALE_SET_UNCOMPRESSED};
    CHECK_STATUS(SHALE_OK, shale_set(cache, name, strlen(name), bytes, large_size, &how));
}

static void check_large(shale_cache *cache, unsigned i, uint64_t version) {
    static shale_value value = SHALE_VALUE_INIT;
    char name[32];
    uint64_t found = 0;
    snprintf(name, sizeof name, "large %u", i);
    CHECK_STATUS(SHALE_OK, get_text(cache, name, 0, &value));
    CHECK(pattern_check(value.data, value.size, i, &found) == NULL && found == version);
}

/* Small values, some of them removed. Large ones that are spread over the shards and were replaced, if `is_spread`. */
static void fill(bool is_spread) {
    directory = path_to("cache");
    shale_cache *cache = require_open(directory, options);
    int fd = open_file(directory, "shale.data", O_RDONLY);
    CHECK_EQUAL(8, pread(fd, &secret, 8, 24));
    close(fd);
    for (unsigned i = 0; i < keys; i++)
        CHECK_STATUS(SHALE_OK, set_text(cache, name_of(i), name_of(i), NULL));
    for (unsigned i = 0; i < keys; i += removed)
        CHECK_STATUS(SHALE_OK, shale_remove(cache, name_of(i), strlen(name_of(i)), 0));
    for (unsigned version = 1; is_spread && version <= 2; version++)
        for (unsigned i = 0; i < large_keys; i++)
            set_large(cache, i, version);
    filled = stats_of(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void check_key(shale_cache *cache, unsigned i) {
    static shale_value value = SHALE_VALUE_INIT;
    shale_status status = get_text(cache, name_of(i), 0, &value);
    CHECK_STATUS(i % removed ? SHALE_OK : SHALE_MISS, status);
    CHECK(status != SHALE_OK || holds_text(&value, name_of(i)));
}

static void check_keys_beside(shale_cache *cache, uint64_t shard) {
    for (unsigned i = 0; i < keys; i++)
        if (shard_of(name_of(i)) != shard)
            check_key(cache, i);
}

static unsigned key_in(uint64_t shard) {
    unsigned i = 1;
    while (shard_of(name_of(i)) != shard || i % removed == 0)
        i++;
    return i;
}

static void remove_cache(void) {
    remove_tree(directory);
    free(directory);
}

/* ---- a stopped process ---- */

static unsigned replays, stop_at;

static void stop_in_replay(enum shim_event event, const void *at UNUSED) {
    if (event == SHIM_REPLAYED && ++replays == stop_at)
        raise(SIGSTOP);
}

/* Opens the cache without an index, and is stopped in the n-th shard. */
static pid_t start_opening(unsigned n) {
    remove_index(directory);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        die_with_parent();
        stop_at = n;
        shim_faults.event = stop_in_replay;
        shale_cache *cache = require_open(directory, options);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        _exit(check_failures != 0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    return child;
}

static bool waits_here;
/* The locks that a reader takes while the shard is held: at most this many before it waits. */
static atomic_uint *locks;

static long note_wait(const char *name) {
    if (strcmp(name, "lock_try") == 0) {
        atomic_fetch_add(locks, 1);
        atomic_store(is_waiting, true);
    }
    return 0;
}
int nanosleep(const struct timespec *time, struct timespec *left) {
    if (waits_here)
        atomic_store(is_waiting, true);
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left) == 0 ? 0 : -1;
}

/* A reader of entries in the held shard waits until `child` continues, or is killed. */
static void check_waiting(shale_cache *cache, pid_t child, int signal_number, void (*look)(shale_cache *, unsigned),
                          unsigned i) {
    atomic_store(is_waiting, false);
    atomic_store(locks, 0);
    pid_t reader = fork();
    if (reader == 0) {
        begin_child(patience);
        die_with_parent();
        waits_here = true;
        shim_faults.call = note_wait;
        look(cache, i);
        _exit(check_failures != 0);
    }
    bool has_answered = false;
    while (!has_answered && !atomic_load(is_waiting)) {
        has_answered = !is_alive(reader);
        sleep_us(100);
    }
    /* Time enough for a reader that does not wait: it would take more locks, and answer. */
    for (int i = 0; i < 100; i++)
        sleep_us(1000);
    CHECK(!has_answered && is_alive(reader) && atomic_load(locks) <= 2);
    kill(child, signal_number);
    CHECK_EQUAL(signal_number == SIGCONT ? 0 : 128 + signal_number, wait_for(child));
    CHECK_EQUAL(0, wait_for(reader));
}

static void test_others_go_on(int signal_number) {
    fill(false);
    options.capacity = 0;
    /* A life whose numbers are far above those that the next index begins with. */
    remove_index(directory);
    shale_cache *cache = require_open(directory, options);
    uint64_t newest = 0;
    static shale_value value = SHALE_VALUE_INIT;
    /* (The last ones in the shard that is held when a later number is drawn.) */
    for (unsigned i = 0; i < 2 * keys; i++)
        if (i % keys % removed && (i < keys || shard_of(name_of(i % keys)) == 1)) {
            CHECK_STATUS(SHALE_OK, set_text(cache, name_of(i % keys), name_of(i % keys), NULL));
            CHECK_STATUS(SHALE_OK, get_text(cache, name_of(i % keys), 0, &value));
            newest = value.version > newest ? value.version : newest;
        }
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    pid_t child = start_opening(2);
    cache = require_open(directory, options);
    shale_cache *reading = require_open(directory, read_only);
    check_key(reading, key_in(0)); /* it was ready; this handle rebuilds none */
    unsigned own = key_in(3); /* whose turn has not come */
    CHECK_STATUS(SHALE_OK, set_text(cache, name_of(own), name_of(own), NULL));
    CHECK_STATUS(SHALE_OK, get_text(cache, name_of(own), 0, &value));
    CHECK(value.version > newest);
    check_keys_beside(cache, 1);
    check_keys_beside(reading, 1);

    /* No dictionary is made as long as some log may name one of its number. */
    for (int round = 0; round < 2; round++) {
        for (unsigned n = 0; n < 4000; n++) {
            char name[32], text[200];
            snprintf(name, sizeof name, "text %u", n);
            snprintf(
                text, sizeof text,
                "{\"identifier\": %u, \"name\": \"user %u\", \"address\": \"%u Example Street\", \"roles\": [\"reader\"]}",
                n, n * 7, n * 31);
            if (shard_of(name) != 1)
                CHECK_STATUS(SHALE_OK, set_text(cache, name, text, NULL));
        }
        CHECK((word_of_index(index_dictionary_words) != 0) == round);
        if (round == 0)
            check_waiting(signal_number == SIGCONT ? reading : cache, child, signal_number, check_key, key_in(1));
    }
    check_keys_beside(cache, shards);
    check_keys_beside(reading, shards);
    CHECK_STATUS(SHALE_OK, shale_close(reading));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_cache();
}

/* Their opener was killed, and no process has opened the cache since: the next one continues the rebuild. */
static void test_killed_alone(void) {
    fill(true);
    pid_t child = start_opening(3);
    kill(child, SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
    shale_cache *reading = require_open(directory, read_only);
    check_keys_beside(reading, shards);
    CHECK_STATUS(SHALE_OK, shale_close(reading));
    shale_cache *cache = require_open(directory, options);
    CHECK_EQUAL(shards, stats_of(cache).rebuilds); /* those that were ready are not made again */
    check_keys_beside(cache, shards);
    for (unsigned i = 0; i < large_keys; i++)
        check_large(cache, i, 2);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_cache();
}

/* ---- large values, whose parts are in all shards ---- */

static void test_parts_wait_for_manifests(int signal_number) {
    fill(true);
    pid_t child = start_opening(3);
    shale_cache *cache = require_open(directory, options);
    check_waiting(cache, child, signal_number, check_key, key_in(0));
    for (unsigned i = 0; i < large_keys; i++)
        check_large(cache, i, 2);
    check_keys_beside(cache, shards);
    /* Replaced values take no room. */
    shale_stats found = stats_of(cache);
    CHECK_EQUAL(filled.entries, found.entries);
    CHECK_EQUAL(filled.live_bytes, found.live_bytes);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_cache();
}

/* ---- threads ---- */

static pthread_t opener;
static atomic_uint others, here;
static bool waits_for_others;

/* The first shard of the opener's own thread ends when another thread has begun one. */
static void meet(enum shim_event event, const void *at UNUSED) {
    if (event != SHIM_REPLAYED)
        return;
    if (pthread_equal(pthread_self(), opener)) {
        here++;
        while (waits_for_others && others == 0)
            sched_yield();
        return;
    }
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    CHECK(sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGCHLD) == 1);
    others++;
    while (here == 0)
        sched_yield();
}

static unsigned threads_of_process(void) {
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    REQUIRE(tasks != NULL);
    for (const struct dirent *task; (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* (A thread that was joined may be listed for a moment yet.) */
static void check_threads(unsigned expected) {
    while (threads_of_process() != expected)
        sleep_us(1000);
}

static bool threads_fail, reads_fail;

static long fail_calls(const char *name) {
    if (threads_fail && strcmp(name, "thread") == 0)
        return -EAGAIN;
    return reads_fail && here + others > 0 && strcmp(name, "pread") == 0 ? -EIO : 0;
}

static void test_threads(void) {
    fill(true);
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    opener = pthread_self();
    shim_faults.may_start_threads = true;
    shim_faults.call = fail_calls;
    shim_faults.event = meet;
    unsigned before = threads_of_process();
    for (int round = 0; round < 2; round++) {
        threads_fail = round == 1;
        waits_for_others = !threads_fail && CPU_COUNT(&set) > 1;
        others = here = 0;
        remove_index(directory);
        shale_cache *cache = require_open(directory, options);
        check_threads(before);
        CHECK_EQUAL(shards, others + here);
        CHECK(waits_for_others ? others > 0 : others == 0);
        check_keys_beside(cache, shards);
        for (unsigned i = 0; i < large_keys; i++)
            check_large(cache, i, 2);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }

    /* A failure in any thread fails the opening, with its reason; the next opening continues. */
    threads_fail = false, reads_fail = true;
    shim_faults.event = meet, waits_for_others = false;
    others = here = 0;
    remove_index(directory);
    shale_cache *cache = NULL;
    CHECK_STATUS(SHALE_E_IO, shale_open(directory, &options, &cache));
    CHECK(strstr(shale_last_error(), "read") != NULL && shale_last_errno() == EIO);
    check_threads(before);
    reads_fail = false;
    cache = require_open(directory, options);
    check_keys_beside(cache, shards);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shim_faults.may_start_threads = false;
    shim_faults.call = NULL;
    shim_faults.event = NULL;
    remove_cache();
}

int main(void) {
    watch(patience);
    is_waiting = shared_memory(sizeof *is_waiting);
    locks = shared_memory(sizeof *locks);
    shim_faults.random = same_random;
    shale_options whole = options;
    test_others_go_on(SIGCONT);
    options = whole;
    test_others_go_on(SIGKILL);
    options = whole;
    test_killed_alone();
    test_parts_wait_for_manifests(SIGCONT);
    test_parts_wait_for_manifests(SIGKILL);
    test_threads();
    return finish();
}
