/* A kill keeps the index. A process is killed at stores and system calls of every kind of change (aimed.h); the next
 * process that locks its shard
 *
 *   - rebuilds nothing, and touches at most 128 KiB of both files, however large the cache is (a clear, a sweep of
 *     tags and new ranks for all stamps are finished instead, and left out here);
 *   - keeps all contents but the struck call's own, each whole or not at all;
 *   - keeps the order of use: entries are evicted as if there had been no kill.
 *
 * recovery [places of each call, 150; 0: all] [seed] */
#include "afterwards.h"
#include "aimed.h"

#include <ucontext.h>

enum { page_size = 4096, most_touched = (128 << 10) / page_size, ordered_keys = 48, most_ranges = 4 };

/* Touched pages: all pages of the cache's files are protected until a signal's handler has noted the access. */

static struct {
    struct {
        char *from, *to;
    } ranges[most_ranges];
    int range_count;
    size_t touched;
} watched;

static void on_touch(int number UNUSED, siginfo_t *info, void *context UNUSED) {
    char *at = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(page_size - 1));
    for (int i = 0; i < watched.range_count; i++)
        if (at >= watched.ranges[i].from && at < watched.ranges[i].to) {
            watched.touched++;
            mprotect(at, page_size, PROT_READ | PROT_WRITE);
            return;
        }
    _exit(99);
}

static void add_range(char *from, char *to, bool is_writable UNUSED) {
    REQUIRE(watched.range_count < most_ranges);
    watched.ranges[watched.range_count].from = from;
    watched.ranges[watched.range_count++].to = to;
}

static void watch_pages(void) {
    each_mapping(add_range);
    REQUIRE(watched.range_count >= 2);
    struct sigaction action = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    for (int i = 0; i < watched.range_count; i++)
        REQUIRE(mprotect(watched.ranges[i].from, (size_t)(watched.ranges[i].to - watched.ranges[i].from), PROT_NONE) ==
                0);
}

/* Pages that the next process to lock the shard touches. */
static size_t pages_of_recovery(shale_cache *cache) {
    size_t *count = shared_memory(sizeof *count);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        watch_pages();
        /* Locks the shard, and reads nothing but its leases. */
        CHECK_STATUS(SHALE_MISS, shale_release(cache, "absent", 8, 1));
        *count = watched.touched;
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    size_t touched = *count;
    munmap(count, sizeof *count);
    return touched;
}

/* The cache: 64 MiB, one shard, 100,000 entries before those that the calls use; full, so that a set evicts, or not.
 * In the order of their use: the ordered keys come last. */

enum { fillers = 100000 };

static shale_cache *open_large(void) {
    return require_open(
        aimed_directory,
        (shale_options){.capacity = 64 << 20, .shards = 1, .segment_size = segment_size, .flags = SHALE_OPEN_NO_SYNC});
}

static void fill(shale_cache *cache) {
    for (uint64_t i = 0; i < fillers; i++) {
        uint64_t key = 1000000 + i;
        REQUIRE_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, &key, sizeof key, NULL));
    }
    prepare_base(cache);
}

static void evict_one(shale_cache *cache) {
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, NULL));
}

static const struct {
    const char *name;
    void (*act)(shale_cache *cache);
} calls[] = {
    {"set", set_new},
    {"replace", set_again},
    {"pin", set_pinned},
    {"remove", remove_one},
    {"touch", touch_one},
    {"increment", increment_one},
    {"invalidate", invalidate_one},
    {"evict", evict_one},
    {"roll", write_on},
};
enum { call_count = sizeof calls / sizeof *calls };

static uint64_t entries_of(shale_cache *cache) {
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(0, stats.rebuilds);
    CHECK_EQUAL(0, stats.corrupt_records);
    return stats.entries;
}

static size_t most_pages;

/* True if the kill was delivered. */
static bool strike_large(int call, uint64_t n, shale_cache *cache) {
    put(cache, 20, small, 0); /* expired or removed */
    put(cache, 31, small, 0);
    uint64_t before = entries_of(cache);
    situation s = {.name = calls[call].name, .act = calls[call].act};
    int code = wait_for(start_child(&s, n, SIGKILL, cache));
    CHECK(code == 128 + SIGKILL || code == 0);
    size_t touched = pages_of_recovery(cache);
    if (touched > most_pages)
        most_pages = touched;
    bool holds = CHECK(touched <= most_touched) & check_keys(cache, &s, n, "recovered", NULL);
    /* At most what the call itself adds or removes: nothing comes back, nothing is lost. */
    uint64_t after = entries_of(cache), most = 32;
    holds &= CHECK(after <= before + most && before <= after + most);
    if (!holds)
        fprintf(stderr, "  %s, event %" PRIu64 ", %zu pages\n", s.name, n, touched);
    for (uint64_t key = 0; key < shared->ledger.keys; key++) {
        shale_value value = SHALE_VALUE_INIT;
        const char *fault;
        shared->ledger.completed[key] = shared->ledger.intended[key] = look(cache, key, &value, &fault);
        shale_value_free(&value);
    }
    return code != 0;
}

/* Order of use, in a small cache: set in one order, used in another. */

static int order[ordered_keys]; /* the keys, the least recently used first */
static uint64_t prepared_version[most_keys];

static void prepare_order(shale_cache *cache) {
    for (uint64_t key = 0; key < ordered_keys; key++)
        put(cache, counters + key, small, 0);
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t i = 0; i < ordered_keys; i++) {
        uint64_t key = counters + i * 29 % ordered_keys;
        CHECK_STATUS(SHALE_OK, shale_get(cache, &key, sizeof key, 0, &value));
        order[i] = (int)key;
    }
    shale_value_free(&value);
}
static void set_ordered(shale_cache *cache) {
    put(cache, counters + 20, 3000, 0);
}
static void remove_ordered(shale_cache *cache) {
    take(cache, counters + 20);
}
static void touch_ordered(shale_cache *cache) {
    touch(cache, counters + 20, 3600000);
}
static void add_ordered(shale_cache *cache) {
    put(cache, 300, small, 0);
}

static const situation ordered[] = {
    {.name = "order, set", .max_entries = 1000, .prepare = prepare_order, .act = set_ordered},
    {.name = "order, remove", .max_entries = 1000, .prepare = prepare_order, .act = remove_ordered},
    {.name = "order, touch", .max_entries = 1000, .prepare = prepare_order, .act = touch_ordered},
    {.name = "order, new key", .max_entries = 1000, .prepare = prepare_order, .act = add_ordered},
    {.name = "order, evict", .max_entries = 1000, .prepare = prepare_order, .act = evict_one},
    {.name = "order, roll", .max_entries = 1000, .prepare = prepare_order, .act = write_on},
};
enum { ordered_count = sizeof ordered / sizeof *ordered };

/* Evicts one after the other: all are evicted in the order of use. The key that the call sets again has its old
 * place with its old value, and is the newest with its new one. */
static bool check_order(shale_cache *cache, const situation *s, uint64_t n) {
    shale_value value = SHALE_VALUE_INIT;
    bool stays[ordered_keys], holds = true;
    int missing = 0;
    const char *fault;
    for (int i = 0; i < ordered_keys; i++) {
        uint64_t key = (uint64_t)order[i], found = look(cache, key, &value, &fault);
        stays[i] = found != 0 && found == prepared_version[key];
        missing += !found && !(s->act == remove_ordered && key == counters + 20);
    }
    /* (Evicted by the call itself: the first.) */
    holds &= CHECK(missing == 0 || (s->act == evict_one && missing == 1 && !stays[0]));
    for (int i = 0; i < ordered_keys && holds; i++) {
        if (!stays[i])
            continue;
        uint64_t evicted = 0;
        CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, &evicted));
        holds &= CHECK_EQUAL(1, evicted) & CHECK_EQUAL(0, look(cache, (uint64_t)order[i], &value, &fault));
        for (int j = i + 1; j < ordered_keys && holds; j++)
            holds &= CHECK(!stays[j] || look(cache, (uint64_t)order[j], &value, &fault) != 0);
    }
    if (!holds)
        fprintf(stderr, "  %s, event %" PRIu64 "\n", s->name, n);
    shale_value_free(&value);
    return holds;
}

static bool strike_order(const situation *s, uint64_t n) {
    shale_cache *cache = NULL;
    prepare(s);
    memcpy(prepared_version, shared->ledger.completed, sizeof prepared_version);
    REQUIRE_STATUS(SHALE_OK, try_open(s, true, &cache));
    int code = wait_for(start_child(s, n, SIGKILL, cache));
    CHECK(code == 128 + SIGKILL || code == 0);
    check_order(cache, s, n);
    entries_of(cache);
    check_afterwards(cache, aimed_directory, s->name);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return code != 0;
}

int main(int argument_count, char **arguments) {
    uint64_t places = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 150, struck = 0;
    uint64_t seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL);
    random_source source = {seed};
    aimed_begin();
    watch(600);
    memset(shared, 0, sizeof *shared);
    shale_cache *cache = open_large();
    fill(cache);
    for (int i = 0; i < call_count && check_failures == 0; i++) {
        strike_large(i, 0, cache);
        uint64_t count = atomic_load(&shared->events), tries = places && places < count ? places : count;
        for (uint64_t k = 0; k < tries && check_failures == 0; k++) {
            uint64_t from = 1 + k * count / tries, to = 1 + (k + 1) * count / tries;
            struck += strike_large(i, from + random_below(&source, to - from), cache);
        }
    }
    check_afterwards(cache, aimed_directory, "after kills");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    for (int i = 0; i < ordered_count && check_failures == 0; i++) {
        strike_order(&ordered[i], 0);
        uint64_t count = atomic_load(&shared->events), tries = places && places < count ? places : count;
        for (uint64_t k = 0; k < tries && check_failures == 0; k++)
            struck += strike_order(&ordered[i], 1 + k * count / tries);
    }
    CHECK(struck > 100);
    printf("%" PRIu64 " kills; recovery touched %zu pages at most, seed %" PRIu64 "\n", struck, most_pages, seed);
    if (check_failures)
        fprintf(stderr, "again: recovery %" PRIu64 " %" PRIu64 "\n", places, seed);
    remove_tree(aimed_directory);
    munmap(shared, sizeof *shared);
    free(aimed_directory);
    return finish();
}
