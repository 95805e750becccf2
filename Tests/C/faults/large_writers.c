/* Writers of large values that are killed, or stopped for long, take no space from other processes, whether these
 * stay attached or open the cache later; and a writer that continues after that loses nothing. Two hundred write at
 * once. If the list has no room for a writer, it waits until one ends, or is given up; a dead writer's place it gets
 * at once. */
#include "afterwards.h"
#include "tolerances.h"
#include "faults.h"
#include "files.h"
#include "layout.h"
#include "pattern.h"

#include <pthread.h>
#include <sched.h>
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

/* Twice as many small entries as find room. */
static uint64_t fill(shale_cache *cache) {
    for (uint64_t key = 0; key < keys; key++)
        REQUIRE_STATUS(SHALE_OK, put(cache, key, small));
    return stats_of(cache).entries;
}

static int signal_sent;
static long strike(const char *name) {
    static int locks;
    /* Most parts are stored, not all, and no lock is held. */
    if (strcmp(name, "lock_try") == 0 && ++locks == 185) {
        kill(getpid(), signal_sent);
        shim_faults.uptime_ahead = atomic_load(&shared->uptime_ahead);
    }
    return 0;
}

/* A process that is struck in the middle of a large set; it opens the cache itself. */
static pid_t begin_writer(uint64_t key, int signal, uint32_t flags) {
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
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

static unsigned looks; /* at processes */
static long count_looks(const char *name) {
    looks += strcmp(name, "owner_has_ended") == 0;
    return 0;
}

static void beside_others(void) {
    remove_tree(directory);
    shale_cache *cache = open_it();
    kill_writers(0);
    looks = 0;
    shim_faults.call = count_looks;
    CHECK_STATUS(SHALE_OK, put(cache, 1, most));
    is_there(cache, 1, most);
    CHECK(fill(cache) >= usual - usual / 50);
    shim_faults.call = NULL;
    CHECK(looks > 0 && looks <= writers); /* not for each of their parts */
    check_afterwards(cache, directory, "beside killed writers");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* Parts of values that were to be pinned are never evicted: they are freed when nothing else makes room. */
static void pinned_beside_others(void) {
    for (size_t size = large; size <= most; size += most - large) {
        remove_tree(directory);
        shale_cache *cache = open_it();
        /* Fills so much that a large value finds no room beside it. */
        const uint64_t enough = 8 << 20;
        uint64_t left = 0;
        for (uint64_t i = 0; left < enough && i < 100; i++) {
            CHECK_EQUAL(128 + SIGKILL, wait_for(begin_writer(1000000 + i, SIGKILL, SHALE_SET_PINNED)));
            CHECK_EQUAL(0, stats_of(cache).entries);
            left = stats_of(cache).live_bytes;
        }
        CHECK(left >= enough);
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

/* `knows`: the writer notices before its manifest that it was given up, or only afterwards that parts are missing. */
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
    if (strcmp(name, "lock_try") != 0 || --locks_left != 0)
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

/* True if its parts stayed. */
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

/* A cleaner without room frees the contents of the tail segment first: limits.md, "Order, counts and eviction". If a
 * part is among them, the value's other parts are freed too, and the set stores them again. */
static void beside_many_others(void) {
    int rounds = 0;
    begin_tolerances();
    do
        count_look();
    while (!is_kept_beside_many_others() && tolerated(0, "parts that were forced out") && ++rounds < 10);
    CHECK(rounds < 10);
    print_tolerances();
}

/* Another process sets the same key when its manifest is stored, and the call has not returned. */
static long overtake(const char *name) {
    static unsigned char others[300 << 10];
    uint64_t key = 1000000;
    shale_value value = SHALE_VALUE_INIT;
    if (strcmp(name, "lock_try") != 0)
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
    CHECK(stats_of(busy).live_bytes < 400 << 10); /* nothing of the replaced value is left */
    check_afterwards(busy, directory, "overtaken");
    CHECK_STATUS(SHALE_OK, shale_close(busy));
}

/* ---- as many as the list holds, and more ---- */

static _Atomic unsigned sleeps;
static void (*at_sleep)(void);

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left) {
    sleeps++;
    if (at_sleep)
        at_sleep();
    return __real_nanosleep(time, left);
}

/* Each thread stops in the middle of its set until the given number have. */
enum { threads = 200 };
static _Atomic unsigned begun, awaited;
static long meet(const char *name) {
    static _Thread_local unsigned locks;
    if (strcmp(name, "lock_try") == 0 && ++locks == 2) {
        begun++;
        while (begun < awaited)
            sched_yield();
    }
    return 0;
}

static size_t size_of_each;
static void *write_one(void *key) {
    static const unsigned char zeros[100 << 10];
    CHECK_STATUS(SHALE_OK, shale_set(busy, key, sizeof(uint64_t), zeros, size_of_each, NULL));
    return NULL;
}

static void write_all(unsigned meeting) {
    pthread_t all[threads];
    static uint64_t names[threads];
    begun = sleeps = 0;
    awaited = meeting;
    shim_faults.call = meet;
    for (uint64_t i = 0; i < threads; i++) {
        names[i] = i;
        REQUIRE(pthread_create(&all[i], NULL, write_one, &names[i]) == 0);
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    shim_faults.call = NULL;
}

static void two_hundred_at_once(void) {
    remove_tree(directory);
    busy = require_open(directory, (shale_options){.capacity = 64 << 20, .flags = SHALE_OPEN_NO_SYNC});
    size_of_each = 100 << 10;
    write_all(threads);
    CHECK_EQUAL(threads, stats_of(busy).entries);
    CHECK_EQUAL(0, sleeps);
    check_afterwards(busy, directory, "two hundred at once");
    CHECK_STATUS(SHALE_OK, shale_close(busy));
}

/* The smallest cache lists 64. */
static void more_than_are_listed(void) {
    remove_tree(directory);
    busy = require_open(directory, (shale_options){.capacity = 1 << 20, .flags = SHALE_OPEN_NO_SYNC});
    size_of_each = 20 << 10;
    write_all(64);
    CHECK_EQUAL(threads, stats_of(busy).entries);
    CHECK(sleeps > 0);
    check_afterwards(busy, directory, "more than are listed");
    CHECK_STATUS(SHALE_OK, shale_close(busy));
}

static mapped_file index_file;
static layout where;

static uint64_t cell_word(uint64_t i, size_t word) {
    return word_at(index_file.bytes + index_head_bytes + where.writers + i * writer_cell + word);
}
static void set_cell_word(uint64_t i, size_t word, uint64_t value) {
    memcpy(index_file.bytes + index_head_bytes + where.writers + i * writer_cell + word, &value, sizeof value);
}
static uint64_t cells(void) {
    return (where.fences - where.writers) / writer_cell;
}

/* Of an owner, which may be silent for that long. */
static void fill_cells(uint64_t owner, int64_t silent_ms) {
    uint64_t end = (uint64_t)(monotonic_ms() + shim_faults.uptime_ahead + silent_ms);
    for (uint64_t i = 0; i < cells(); i++) {
        set_cell_word(i, 8, owner << 34 | (end & ((UINT64_C(1) << 34) - 1)));
        set_cell_word(i, 0, (UINT64_C(1) << 40) + i);
    }
}

/* A second passes. */
static void renew_cells(void) {
    shim_faults.uptime_ahead += 1000;
    for (uint64_t i = 0; i < cells(); i++)
        set_cell_word(i, 8, cell_word(i, 8) + 1000);
}
static void end_some(void) {
    renew_cells();
    if (sleeps == 3)
        for (uint64_t i = 0; i < cells(); i += 16)
            set_cell_word(i, 0, 0);
}
static void let_time_pass(void) {
    shim_faults.uptime_ahead += 1000;
}

static void among_cells_of_others(void) {
    remove_tree(directory);
    shale_cache *cache = require_open(directory, (shale_options){.capacity = 1 << 20, .flags = SHALE_OPEN_NO_SYNC});
    mapped_file data = map_file(directory, "shale.data");
    where = layout_of(data.bytes);
    unmap_file(&data);
    index_file = map_file(directory, "shale.index");
    CHECK_EQUAL(64, cells());
    const size_t size = 100 << 10;

    const uint64_t own = word_at(index_file.bytes + index_owners), dead = own + 1;
    fill_cells(dead, 30000);
    sleeps = 0;
    CHECK_STATUS(SHALE_OK, put(cache, 1, size));
    CHECK_EQUAL(0, sleeps);

    fill_cells(own, 30000);
    at_sleep = renew_cells;
    CHECK_STATUS(SHALE_E_BUSY, put(cache, 2, size));
    CHECK(sleeps >= 10 && strstr(shale_last_error(), "large values"));
    for (uint64_t i = 0; i < cells(); i++)
        CHECK_EQUAL((UINT64_C(1) << 40) + i, cell_word(i, 0)); /* all are still listed */

    sleeps = 0;
    at_sleep = end_some;
    CHECK_STATUS(SHALE_OK, put(cache, 2, size));
    CHECK_EQUAL(3, sleeps);

    /* Silent from now on. */
    sleeps = 0;
    at_sleep = let_time_pass;
    fill_cells(own, 5000);
    CHECK_STATUS(SHALE_OK, put(cache, 3, size));
    CHECK(sleeps > 0 && sleeps <= 5);
    at_sleep = NULL;
    shim_faults.uptime_ahead = 0;
    for (uint64_t i = 0; i < cells(); i++)
        set_cell_word(i, 0, 0);
    for (uint64_t key = 1; key <= 3; key++)
        is_there(cache, key, size);
    unmap_file(&index_file);
    check_afterwards(cache, directory, "among others");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

int main(void) {
    watch(patience);
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
    RUN(two_hundred_at_once);
    RUN(more_than_are_listed);
    RUN(among_cells_of_others);
    remove_tree(directory);
    free(directory);
    return finish();
}
