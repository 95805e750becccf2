/* Writers of large values that are killed, or stopped for long, take no space
 * from the others: neither while these stay attached, nor from whoever opens the
 * cache later. And a writer that goes on after that loses nothing. */
#include "afterwards.h"
#include "excuses.h"
#include "faults.h"
#include "pattern.h"

#include <stdatomic.h>

enum { capacity = 16 << 20, large = 3 << 20, most = capacity / 4, small = 300, keys = 80000, writers = 12 };

static unsigned char bytes[most];
static char *directory;
static struct {
    _Atomic long long uptime_ahead;
} *shared;

static shale_cache *open_it(void) {
    return require_open(directory, (shale_options){.capacity = capacity, .shards = 2, .flags = SHALE_OPEN_NO_SYNC});
}

static shale_status put_with(shale_cache *cache, uint64_t key, size_t size, uint32_t flags) {
    pattern_fill(bytes, key, 1, size);
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED | flags};
    return shale_set(cache, &key, sizeof key, bytes, size, &options);
}
static shale_status put(shale_cache *cache, uint64_t key, size_t size) {
    return put_with(cache, key, size, 0);
}

static bool is_there(shale_cache *cache, uint64_t key, size_t size) {
    shale_value value = SHALE_VALUE_INIT;
    uint64_t version = 0;
    bool holds = CHECK_STATUS(SHALE_OK, shale_get(cache, &key, sizeof key, 0, &value)) &&
                 CHECK_EQUAL(size, value.size) && CHECK(!pattern_check(value.data, value.size, key, &version));
    shale_value_free(&value);
    return holds;
}

/* As many small entries as find room, twice over. */
static uint64_t fill(shale_cache *cache) {
    for (uint64_t key = 0; key < keys; key++)
        REQUIRE_STATUS(SHALE_OK, put(cache, key, small));
    return stats_of(cache).entries;
}

static int signal_sent;
static long strike(const char *name) {
    static int locks;
    /* Most parts are stored, not all, and no lock is held. */
    if (strcmp(name, "mutex_lock") == 0 && ++locks == 150) {
        kill(getpid(), signal_sent);
        shim_faults.uptime_ahead = atomic_load(&shared->uptime_ahead);
    }
    return 0;
}

/* A process that is struck in the middle of a large set; it opens the cache itself. */
static pid_t begin_writer(uint64_t key, int signal, uint32_t flags) {
    pid_t child = fork();
    if (child == 0) {
        begin_child(60);
        die_with_parent();
        shale_cache *cache = open_it();
        signal_sent = signal;
        shim_faults.call = strike;
        CHECK_STATUS(SHALE_OK, put_with(cache, key, large, flags));
        shim_faults.call = NULL;
        is_there(cache, key, large);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        _exit(check_failures != 0);
    }
    return child;
}

static void kill_writers(uint32_t flags) {
    for (uint64_t i = 0; i < writers; i++)
        CHECK_EQUAL(128 + SIGKILL, wait_for(begin_writer(1000000 + i, SIGKILL, flags)));
}

static uint64_t usual;

static void beside_others(void) {
    remove_tree(directory);
    shale_cache *cache = open_it();
    kill_writers(0);
    CHECK_STATUS(SHALE_OK, put(cache, 1, most));
    is_there(cache, 1, most);
    CHECK(fill(cache) >= usual - usual / 50);
    check_afterwards(cache, directory, "beside killed writers");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* Parts of values that were to be pinned are nobody's victims: they go where nothing else makes room. */
static void pinned_beside_others(void) {
    for (size_t size = large; size <= most; size += most - large) {
        remove_tree(directory);
        shale_cache *cache = open_it();
        uint64_t left = 0;
        for (uint64_t i = 0; left < 8 << 20 && i < 100; i++) {
            CHECK_EQUAL(128 + SIGKILL, wait_for(begin_writer(1000000 + i, SIGKILL, SHALE_SET_PINNED)));
            CHECK_EQUAL(0, stats_of(cache).entries);
            left = stats_of(cache).live_bytes;
        }
        CHECK(left >= 8 << 20);
        for (int i = 0; i < 5; i++)
            CHECK_STATUS(SHALE_OK, put_with(cache, 1, size, i < 3 ? 0 : SHALE_SET_PINNED));
        is_there(cache, 1, size);
        check_afterwards(cache, directory, "beside killed writers of pinned values");
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
}

static void alone(void) {
    remove_tree(directory);
    CHECK_STATUS(SHALE_OK, shale_close(open_it()));
    kill_writers(0);
    shale_cache *cache = open_it();
    CHECK_EQUAL(0, stats_of(cache).live_bytes);
    CHECK_STATUS(SHALE_OK, put(cache, 1, most));
    is_there(cache, 1, most);
    check_afterwards(cache, directory, "after killed writers");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* `knows`: the writer notices that it was given up before its manifest, or only afterwards that parts are gone. */
static void stopped(bool knows) {
    remove_tree(directory);
    shale_cache *cache = open_it();
    pid_t writer = begin_writer(1000000, SIGSTOP, 0);
    int status = 0;
    REQUIRE(waitpid(writer, &status, WUNTRACED) == writer && WIFSTOPPED(status));
    uint64_t kept = stats_of(cache).live_bytes;
    CHECK(kept > large / 2);
    CHECK(fill(cache) < usual - usual / 50); /* for 30 seconds its parts stay */
    shim_faults.uptime_ahead = 31000;
    CHECK(fill(cache) >= usual - usual / 50);
    atomic_store(&shared->uptime_ahead, knows ? 31000 : 0);
    kill(writer, SIGCONT);
    CHECK_EQUAL(0, wait_for(writer));
    is_there(cache, 1000000, large);
    shim_faults.uptime_ahead = 0;
    check_afterwards(cache, directory, "after a stopped writer");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}
static void stopped_and_knows(void) {
    stopped(true);
}
static void stopped_and_does_not_know(void) {
    stopped(false);
}

/* Seventy other large sets, one after the other, begin and end while one is under way. */
static shale_cache *busy;
static uint64_t left_beside;
static int locks_left;
static long interrupt(const char *name) {
    if (strcmp(name, "mutex_lock") != 0 || --locks_left != 0)
        return 0;
    static unsigned char others[300 << 10], own[sizeof bytes];
    shim_faults.call = NULL;
    memcpy(own, bytes, sizeof bytes);
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED};
    for (uint64_t key = 2000000; key < 2000070; key++)
        CHECK_STATUS(SHALE_OK, shale_set(busy, &key, sizeof key, others, sizeof others, &options));
    left_beside = fill(busy);
    memcpy(bytes, own, sizeof bytes);
    return 0;
}

static int forced;
static void note_forced(enum shim_event event, const void *at UNUSED) {
    forced += event == SHIM_FORCED;
}

/* True where its parts stayed. */
static bool is_kept_beside_many_others(void) {
    remove_tree(directory);
    busy = open_it();
    locks_left = 150;
    forced = 0;
    shim_faults.event = note_forced;
    shim_faults.call = interrupt;
    CHECK_STATUS(SHALE_OK, put(busy, 1000000, large));
    shim_faults.call = NULL;
    shim_faults.event = NULL;
    bool is_kept = left_beside < usual - usual / 50;
    CHECK(left_beside > 0 && (is_kept || forced > 0));
    is_there(busy, 1000000, large);
    check_afterwards(busy, directory, "beside many others");
    CHECK_STATUS(SHALE_OK, shale_close(busy));
    return is_kept;
}

/* Where the cleaner has no room, the contents of the tail segment go first: limits.md, "Order, counts and eviction".
 * Now and then a part is among that, the others go with it, and the set stores them again. */
static void beside_many_others(void) {
    int rounds = 0;
    begin_excuses();
    do
        count_look();
    while (!is_kept_beside_many_others() && excused(0, "parts that were forced out") && ++rounds < 10);
    CHECK(rounds < 10);
    print_excuses();
}

/* Another sets the same key when its manifest is stored, and the call is not over. */
static long overtake(const char *name) {
    static unsigned char others[300 << 10];
    uint64_t key = 1000000;
    shale_value value = SHALE_VALUE_INIT;
    if (strcmp(name, "mutex_lock") != 0)
        return 0;
    shim_faults.call = NULL;
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED};
    if (shale_get(busy, &key, sizeof key, SHALE_GET_INFO | SHALE_GET_PEEK, &value) == SHALE_OK)
        CHECK_STATUS(SHALE_OK, shale_set(busy, &key, sizeof key, others, sizeof others, &options));
    else
        shim_faults.call = overtake;
    shale_value_free(&value);
    return 0;
}

static void overtaken(void) {
    remove_tree(directory);
    busy = open_it();
    shim_faults.call = overtake;
    CHECK_STATUS(SHALE_OK, put(busy, 1000000, large));
    CHECK(!shim_faults.call);
    CHECK(stats_of(busy).live_bytes < 400 << 10); /* nothing of what was replaced is left */
    check_afterwards(busy, directory, "overtaken");
    CHECK_STATUS(SHALE_OK, shale_close(busy));
}

int main(void) {
    watch(120);
    prefer_memory();
    directory = path_to("large_writers");
    shared = shared_memory(sizeof *shared);
    shale_cache *cache = open_it();
    usual = fill(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    RUN(beside_others);
    RUN(pinned_beside_others);
    RUN(alone);
    RUN(stopped_and_knows);
    RUN(stopped_and_does_not_know);
    RUN(beside_many_others);
    RUN(overtaken);
    remove_tree(directory);
    free(directory);
    return finish();
}
