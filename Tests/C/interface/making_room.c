/* Which entries make room for a call, and which do not: the touched entry stays, and keeps its place in the order of
 * use; expired pinned entries make room, and so does a value that readers use all the time; a large value finds a
 * number under which its parts fit into many small shards; the only entry is found although others replace it. And the
 * counters of that, after kills too. */
#include "check.h"
#include "faults.h"
#include "files.h"
#include "kill_at.h"

#include <pthread.h>
#include <stdatomic.h>

enum { capacity = 1 << 20, most_meta = 65535 };

static int64_t clock_ms = 1700000000000;
static int32_t policy;
static unsigned char bytes[16 << 20], meta[most_meta];

static int64_t read_clock(void *context UNUSED) {
    return clock_ms;
}

static shale_cache *open_at(const char *directory, uint64_t size, uint32_t shards, uint64_t max_entries) {
    return require_open(directory, (shale_options){.capacity = size,
                                                   .shards = shards,
                                                   .segment_size = 128 << 10,
                                                   .max_entries = max_entries,
                                                   .eviction = policy,
                                                   .compression = SHALE_COMPRESSION_NONE,
                                                   .flags = SHALE_OPEN_NO_SYNC,
                                                   .now_ms = read_clock});
}

static shale_status put(shale_cache *cache, const char *key, size_t size, shale_set_options how) {
    how.struct_size = sizeof how;
    how.meta = meta;
    return shale_set(cache, key, strlen(key), bytes, size, &how);
}

static shale_status look(shale_cache *cache, const char *key, uint32_t flags) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = get_text(cache, key, flags, &value);
    shale_value_free(&value);
    return status;
}

static const shale_set_options plain, pinned = {.flags = SHALE_SET_PINNED};

static const char *name(char kind, unsigned n) {
    static char text[16];
    snprintf(text, sizeof text, "%c%06u", kind, n);
    return text;
}

/* Smaller and smaller ones, until nothing more can be pinned; returns how many there are. */
static unsigned pin_all(shale_cache *cache, shale_set_options how, size_t least) {
    unsigned count = 0;
    for (size_t size = 8000; size >= least; size /= 2)
        while (put(cache, name('p', count), size, how) == SHALE_OK)
            count++;
    return count;
}

static void test_touched_entries_stay(void) {
    shale_cache *cache = open_at(NULL, capacity, 1, 0);
    pin_all(cache, pinned, 8);
    /* The largest that fits beside them. */
    static char own[50000];
    memset(own, 'o', sizeof own - 1);
    shale_set_options how = {.meta_size = most_meta / 8 * 8};
    while (how.meta_size > 0 && put(cache, own, 8000, how) != SHALE_OK)
        how.meta_size -= 8;
    CHECK(how.meta_size > 0);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(SHALE_E_FULL, shale_touch(cache, own, strlen(own), SHALE_NEVER));
        CHECK_STATUS(SHALE_OK, look(cache, own, SHALE_GET_PEEK));
    }
    CHECK_EQUAL(0, stats_of(cache).evictions);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static unsigned oldest(shale_cache *cache, unsigned from) {
    while (look(cache, name('k', from), SHALE_GET_PEEK) != SHALE_OK)
        from++;
    return from;
}

/* In a full cache the least recently used entry is touched, which may evict the next one: it is still the next
 * victim. */
static void test_a_touch_is_no_use(void) {
    shale_cache *cache = open_at(NULL, capacity, 1, 0);
    unsigned count = 0, made_room = 0;
    for (int round = 0; round < 40; round++) {
        uint64_t before = stats_of(cache).evictions, evicted = 0;
        /* (Of all sizes, so that an eviction now and then frees less than a touch takes.) */
        for (; stats_of(cache).evictions == before; count++)
            CHECK_STATUS(SHALE_OK, put(cache, name('k', count), 100 + count * 37 % 300, plain));
        before = stats_of(cache).evictions;
        unsigned first = oldest(cache, 0);
        CHECK_STATUS(SHALE_OK, shale_touch(cache, name('k', first), 7, SHALE_NEVER));
        made_room += stats_of(cache).evictions > before;
        unsigned second = oldest(cache, first + 1);
        CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, &evicted));
        CHECK_STATUS(SHALE_MISS, look(cache, name('k', first), SHALE_GET_PEEK));
        CHECK_STATUS(SHALE_OK, look(cache, name('k', second), SHALE_GET_PEEK));
    }
    CHECK(made_room > 0);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void test_a_pinned_entry_is_touched_again(void) {
    shale_cache *cache = open_at(NULL, capacity, 1, 0);
    unsigned count = pin_all(cache, pinned, 64), touched = 0;
    CHECK_STATUS(SHALE_OK, shale_remove(cache, name('p', count - 1), 7, 0));
    while (touched < count && shale_touch(cache, name('p', touched), 7, SHALE_NEVER) == SHALE_OK)
        touched++;
    CHECK(touched > 0 && touched < count);
    for (unsigned i = 0; i < touched; i++)
        CHECK_STATUS(SHALE_OK, shale_touch(cache, name('p', i), 7, SHALE_NEVER));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void test_dead_pins(bool by_tag) {
    shale_cache *cache = open_at(NULL, capacity, 1, 0);
    shale_bytes tag = {"tag", 3};
    shale_set_options how = {
        .flags = SHALE_SET_PINNED, .max_age_ms = by_tag ? SHALE_NEVER : 1000, .tags = &tag, .tag_count = 1};
    unsigned count = 0;
    while (put(cache, name('p', count), 8000, how) == SHALE_OK)
        count++;
    if (by_tag)
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3));
    else
        clock_ms += 1000000;
    shale_set_options large = {.meta_size = 60000};
    for (int i = 0; i < 3; i++)
        CHECK_STATUS(SHALE_OK, put(cache, "large", 8000, large));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static shale_cache *watched;
static unsigned looks, misses;
static void look_at_own(const void *at UNUSED) {
    shim_faults.store = NULL;
    looks++;
    misses += look(watched, "own", SHALE_GET_PEEK) != SHALE_OK;
    shim_faults.store = look_at_own;
}

/* The only entry beside pinned ones is set again: its bytes count as free, and it stays until then. So no read
 * misses it before any store of a set, and none is an eviction. */
static void test_own_is_not_evicted(void) {
    watched = open_at(NULL, capacity, 1, 0);
    shale_set_options how = {.meta_size = 30000};
    CHECK_STATUS(SHALE_OK, put(watched, "own", 16000, how));
    CHECK(pin_all(watched, pinned, 1000) > 20);
    /* (There is no room for another one like it.) */
    CHECK_STATUS(SHALE_OK, put(watched, "own", 16000, how));
    /* (With the CLOCK policy it may have been evicted for pinned entries.) */
    uint64_t before = stats_of(watched).evictions;
    CHECK(before == 0 || policy != SHALE_EVICTION_LRU);
    shim_faults.store = look_at_own;
    for (int i = 0; i < 100; i++)
        CHECK_STATUS(SHALE_OK, put(watched, "own", 16000, how));
    shim_faults.store = NULL;
    CHECK(looks > 1000);
    CHECK_EQUAL(0, misses);
    looks = misses = 0;
    CHECK_EQUAL(before, stats_of(watched).evictions);
    CHECK_STATUS(SHALE_OK, put(watched, "other", 16000, how));
    /* (With the CLOCK policy both may fit.) */
    CHECK_EQUAL(before + (policy == SHALE_EVICTION_LRU), stats_of(watched).evictions);
    CHECK_STATUS(SHALE_OK, shale_close(watched));
}

static _Atomic bool stops;
static void *read_on(void *cache) {
    while (!atomic_load(&stops))
        (void)look(cache, "other", SHALE_GET_INFO);
    return NULL;
}

/* Two entries beside pinned ones, of which readers use one all the time: it is evicted for the other all the same. */
static void test_beside_readers(void) {
    shale_cache *cache = open_at(NULL, capacity, 1, 0);
    while (put(cache, name('p', (unsigned)stats_of(cache).entries), 8000, pinned) == SHALE_OK) {
    }
    uint64_t live = stats_of(cache).live_bytes;
    /* (The live limit of such a shard: 480 KiB, with LRU.) */
    size_t each = ((480u << 10) - live) / 2 - 300;
    shale_set_options how = {.meta_size = each - 1000};
    pthread_t threads[2];
    atomic_store(&stops, false);
    for (int i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, read_on, cache) == 0);
    for (int i = 0; i < 1500; i++) {
        CHECK_STATUS(SHALE_OK, put(cache, "other", 1000, how));
        CHECK_STATUS(SHALE_OK, put(cache, "own", 1000, how));
        CHECK_STATUS(SHALE_OK, put(cache, "own", 6000, how));
    }
    atomic_store(&stops, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* A quarter of the capacity, in shards of few segments. */
static void test_many_small_shards(void) {
    for (uint32_t shards = 16; shards <= 64; shards *= 2) {
        uint64_t size = (uint64_t)shards * 7 * (128 << 10) + (1 << 20);
        shale_cache *cache = open_at(NULL, size, shards, 0);
        for (int i = 0; i < 10; i++) {
            memcpy(bytes, &i, sizeof i);
            CHECK_STATUS(SHALE_OK, put(cache, "key", size / 4, plain));
            CHECK_STATUS(SHALE_OK, look(cache, "key", SHALE_GET_PEEK));
        }
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
}

/* Values of many sizes, between which and beside which others are pinned. */
static unsigned pin_between_others(shale_cache *cache, unsigned most) {
    unsigned i = 0;
    for (; i < most && put(cache, name('p', i), 8000, pinned) == SHALE_OK; i++)
        (void)put(cache, name('f', i), i * 37 % 9000, plain);
    return i;
}

/* Also when pinned entries leave so little room that the cleaner could keep no other: a set that fails leaves the
 * value that it was to replace. */
static void test_large_beside_pins(void) {
    unsigned refused = 0, stored = 0;
    for (unsigned pins = 50; pins < 150; pins += 3)
        for (size_t size = 60000; size < 400000; size += 66000) {
            policy = policy_of(size / 66000);
            shale_cache *cache = open_at(NULL, 2 << 20, 1, 0);
            CHECK(pin_between_others(cache, pins) >= 50);
            size_t own = pins % 2 ? 59 : 100000;
            if (put(cache, "own", own, plain) != SHALE_OK) {
                own = 59;
                CHECK_STATUS(SHALE_OK, put(cache, "own", own, plain));
            }
            shale_set_options present = {.flags = SHALE_SET_IF_PRESENT};
            shale_status status = put(cache, "own", size, present);
            shale_value value = SHALE_VALUE_INIT;
            CHECK_STATUS(SHALE_OK, get_text(cache, "own", 0, &value));
            if (status == SHALE_OK ? !CHECK_EQUAL(size, value.size) | !++stored
                                   : !CHECK_STATUS(SHALE_E_FULL, status) | !CHECK_EQUAL(own, value.size) | !++refused)
                fprintf(stderr, "  %u pins, a value of %zu bytes\n", pins, size);
            shale_value_free(&value);
            CHECK_STATUS(SHALE_OK, shale_close(cache));
        }
    CHECK(refused > 10 && stored > 10);
}

/* A set that is killed before any of its stores counts if it happened, and so does the eviction that it needs. */
static void test_counts_after_kills(uint64_t max_entries) {
    bool was_killed = true;
    for (long store = 1; was_killed; store++) {
        char *directory = path_to("counts");
        shale_cache *cache = open_at(directory, capacity, 1, max_entries);
        for (unsigned i = 0; i < 4; i++)
            CHECK_STATUS(SHALE_OK, put(cache, name('a', i), 100, plain));
        shale_stats before = stats_of(cache);
        pid_t child = fork();
        if (child == 0) {
            stores_left = store;
            shim_faults.store = before_store;
            (void)put(cache, "new", 100, plain);
            _exit(0);
        }
        REQUIRE(child > 0);
        was_killed = wait_for(child) == killed_at_store;
        unsigned lost = 0;
        for (unsigned i = 0; i < 4; i++)
            lost += look(cache, name('a', i), SHALE_GET_PEEK) != SHALE_OK;
        bool is_there = look(cache, "new", SHALE_GET_PEEK) == SHALE_OK;
        CHECK_STATUS(SHALE_MISS, shale_remove(cache, "absent", 6, 0)); /* recovers */
        CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
        shale_stats after = stats_of(cache);
        if (!CHECK_EQUAL(is_there, after.sets - before.sets) | !CHECK_EQUAL(lost, after.evictions - before.evictions))
            fprintf(stderr, "  killed before store %ld\n", store);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(directory);
        free(directory);
    }
}

static int replays;
static void count_replays(enum shim_event event, const void *at UNUSED) {
    replays += event == SHIM_REPLAYED;
}

/* Entries over the limit that come back with a new index are evicted uncounted; invalidated ones do not come back. */
static void test_counts_after_a_rebuild(void) {
    char *directory = path_to("rebuilt");
    pid_t child = fork();
    if (child == 0) {
        shale_cache *cache = open_at(directory, 4 << 20, 1, 10);
        shale_bytes tag = {"tag", 3};
        shale_set_options how = {.flags = SHALE_SET_PINNED, .tags = &tag, .tag_count = 1};
        for (unsigned i = 0; i < 10; i++)
            CHECK_STATUS(SHALE_OK, put(cache, name('a', i), 1, how));
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3));
        for (unsigned i = 0; i < 5; i++)
            CHECK_STATUS(SHALE_OK, put(cache, name('b', i), 1, pinned));
        _exit(check_failures != 0);
    }
    REQUIRE(child > 0 && wait_for(child) == 0);
    remove_index(directory);
    shim_faults.event = count_replays;
    for (int round = 0; round < 3; round++) {
        replays = 0;
        shale_cache *cache = open_at(directory, 0, 0, 0);
        CHECK_EQUAL(round == 0, replays);
        CHECK_EQUAL(0, stats_of(cache).evictions);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    shim_faults.event = NULL;
    remove_tree(directory);

    shale_cache *cache = open_at(directory, 4 << 20, 1, 10);
    for (unsigned i = 0; i < 30; i++)
        CHECK_STATUS(SHALE_OK, put(cache, name('c', i), 1, plain));
    CHECK_EQUAL(20, stats_of(cache).evictions);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_index(directory);
    cache = open_at(directory, 0, 0, 0);
    CHECK_EQUAL(10, stats_of(cache).entries);
    CHECK_EQUAL(0, stats_of(cache).evictions);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

/* In a cache where nothing was ever stored, and in one with a log in only one of the shards. */
static void test_nothing_to_evict(void) {
    shale_cache *cache = open_at(NULL, 8 << 20, 4, 0);
    for (uint64_t entries = 0; entries < 2; entries++) {
        uint64_t evicted = 9;
        if (entries > 0)
            CHECK_STATUS(SHALE_OK, put(cache, "one", 1, plain));
        CHECK_STATUS(SHALE_OK, shale_evict(cache, 3, &evicted));
        CHECK_EQUAL(entries, evicted);
        CHECK_STATUS(SHALE_OK, shale_clear(cache));
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static shale_cache *shared;
static unsigned others;
static uint32_t draw;
static void set_another(enum shim_event event, const void *at UNUSED) {
    static bool is_setting;
    if (event != SHIM_PAUSED || is_setting)
        return;
    draw = draw * 1664525 + 1013904223;
    if (draw >> 30 == 0)
        return;
    is_setting = true;
    char key[16];
    snprintf(key, sizeof key, "other %u", others++);
    CHECK_STATUS(SHALE_OK, put(shared, key, 1, plain));
    is_setting = false;
}

/* At most pauses of a set that searches for the only entry, another set replaces that entry, in another place. */
static void test_an_entry_that_others_replace(void) {
    shared = open_at(NULL, capacity, 1, 1);
    others = draw = 0;
    shim_faults.event = set_another;
    for (unsigned i = 0; i < 2000; i++) {
        char key[16];
        snprintf(key, sizeof key, "%u", i);
        CHECK_STATUS(SHALE_OK, put(shared, key, 1, plain));
    }
    shim_faults.event = NULL;
    CHECK(others > 0);
    CHECK_EQUAL(1, stats_of(shared).entries);
    CHECK_STATUS(SHALE_OK, shale_close(shared));
}

int main(void) {
    watch(patience);
    prefer_memory();
    for (uint64_t round = 0; round < 2; round++) {
        policy = policy_of(round);
        /* With the CLOCK policy pins leave room, and the order is another. */
        if (policy == SHALE_EVICTION_LRU) {
            RUN(test_touched_entries_stay);
            RUN(test_a_touch_is_no_use);
            RUN(test_an_entry_that_others_replace);
        }
        RUN(test_a_pinned_entry_is_touched_again);
        test_dead_pins(false);
        test_dead_pins(true);
        RUN(test_own_is_not_evicted);
        RUN(test_beside_readers);
        RUN(test_many_small_shards);
        test_counts_after_kills(0);
        test_counts_after_kills(4);
        RUN(test_counts_after_a_rebuild);
        RUN(test_nothing_to_evict);
    }
    RUN(test_large_beside_pins);
    return finish();
}
