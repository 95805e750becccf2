/* Dead pinned entries (expired, or with an invalidated tag) count as absent: they make room in the shards of their
 * parts too, in a rebuild and for a smaller capacity; and they cost no other pinned entry its place. A long pinned
 * value that was removed no longer counts. */
#include "check.h"
#include "faults.h"
#include "files.h"

enum { segment = 128 << 10, most_meta = 65535 };

static int64_t clock_ms;
static unsigned char bytes[4 << 20], meta[most_meta];
static char *directory;
static shale_cache *cache;
static uint64_t capacity;
static uint32_t shards;
static int32_t policy;

static const shale_bytes tag = {"tag", 3};
static const shale_set_options plain, pinned = {.flags = SHALE_SET_PINNED};
static const shale_set_options ageing = {.flags = SHALE_SET_PINNED, .max_age_ms = 1000};
static const shale_set_options tagged = {.flags = SHALE_SET_PINNED, .tags = &tag, .tag_count = 1};

static int64_t read_clock(void *context UNUSED) {
    return clock_ms;
}

/* The cache's secret decides where a key belongs: each cache has another one, and every run the same ones. */
static random_source secrets;
static unsigned long long next_secret(void) {
    return random_next(&secrets);
}

static shale_status try_open(uint64_t size) {
    shale_options options = {.struct_size = sizeof options,
                             .capacity = size,
                             .shards = shards,
                             .segment_size = segment,
                             .eviction = policy,
                             .compression = SHALE_COMPRESSION_NONE,
                             .flags = SHALE_OPEN_NO_SYNC,
                             .now_ms = read_clock};
    return shale_open(directory, &options, &cache);
}

static void start_over(uint64_t size, uint32_t shard_count) {
    remove_tree(directory);
    capacity = size;
    shards = shard_count;
    clock_ms = 1700000000000;
    REQUIRE_STATUS(SHALE_OK, try_open(capacity));
}

static void end(void) {
    CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void rebuild_index(void) {
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_index(directory);
    REQUIRE_STATUS(SHALE_OK, try_open(capacity));
}

static const char *name(char kind, unsigned n) {
    static char text[16];
    snprintf(text, sizeof text, "%c%06u", kind, n);
    return text;
}

static shale_status put(const char *key, size_t size, shale_set_options how) {
    how.struct_size = sizeof how;
    how.meta = meta;
    return shale_set(cache, key, strlen(key), bytes, size, &how);
}

static unsigned put_all(char kind, unsigned most, size_t size, shale_set_options how) {
    unsigned count = 0;
    while (count < most && put(name(kind, count), size, how) == SHALE_OK)
        count++;
    return count;
}

/* How many are present, each of them whole. */
static unsigned count_of(char kind, unsigned most, size_t size) {
    unsigned found = 0;
    for (unsigned i = 0; i < most; i++) {
        shale_value value = SHALE_VALUE_INIT;
        if (get_text(cache, name(kind, i), SHALE_GET_PEEK, &value) == SHALE_OK)
            found += CHECK_BYTES(&value, bytes, size);
        shale_value_free(&value);
    }
    return found;
}

static void purge(void) {
    CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
}

/* Expires all that has an age, invalidates all that has a tag. */
static void let_go(void) {
    clock_ms += 1000000;
    CHECK_ANSWER(shale_invalidate(cache, tag.data, tag.size));
}

/* ---- in a rebuild --------------------------------------------------------------------------------------------------- */

enum { generation = 12000, touched = generation / 500 };

/* With one that will be touched after a number of sets. */
static void pin_generation(char kind, char touched_kind, shale_set_options how) {
    static const shale_set_options longer = {.flags = SHALE_SET_PINNED, .max_age_ms = 200000};
    for (unsigned i = 0; i < generation; i++) {
        CHECK_STATUS(SHALE_OK, put(name(kind, i), 1, how));
        if (i % (generation / touched) == 0)
            CHECK_STATUS(SHALE_OK, put(name(touched_kind, i / (generation / touched)), 1, longer));
    }
}

/* The log still has as many dead pinned entries as the index has room for. Some of the live ones had an age that is
 * over, which a touch later in the log prolonged: they were set before and between the others. */
static void test_as_many_in_the_log(shale_set_options how) {
    start_over(2000000, 1);
    pin_generation('a', 's', how);
    clock_ms += 100000;
    CHECK_ANSWER(shale_invalidate(cache, tag.data, tag.size));
    purge();
    CHECK_EQUAL(0, count_of('a', generation, 1));
    pin_generation('b', 't', pinned);
    for (unsigned i = 0; i < touched; i++) {
        CHECK_STATUS(SHALE_OK, shale_touch(cache, name('s', i), 7, SHALE_NEVER));
        CHECK_STATUS(SHALE_OK, shale_touch(cache, name('t', i), 7, SHALE_NEVER));
    }
    clock_ms += 1000000;
    for (int round = 0; round < 2; round++) {
        CHECK_EQUAL(generation, count_of('b', generation, 1));
        CHECK_EQUAL(touched, count_of('s', touched, 1));
        CHECK_EQUAL(touched, count_of('t', touched, 1));
        CHECK_EQUAL(generation + 2 * touched, stats_of(cache).entries);
        rebuild_index();
    }
    CHECK_EQUAL(0, stats_of(cache).evictions);
    end();
}

/* What worked before the rebuild works at once after it. */
static void check_sets(const char *when) {
    for (unsigned i = 0; i < 12; i++)
        if (!CHECK_STATUS(SHALE_OK, put(name('z', i), 1, plain)))
            fprintf(stderr, "  %s\n", when);
}

/* Generations of pinned entries of many sizes, of which only the last is live. */
static void test_first_set_after_it(void) {
    random_source source = {26};
    for (unsigned round = 0; round < 24; round++) {
        policy = policy_of(round / 2);
        start_over((1 + round % 2) * ((1u << 20) + random_below(&source, 3000000)), 1 + round % 2);
        unsigned number = 0, stored = 0;
        for (int generation = 0; generation < 3; generation++) {
            for (int refused = 0; refused < 30;) {
                shale_set_options how = generation < 2 ? ageing : pinned;
                how.meta_size = random_below(&source, 9) == 0 ? 20000 * random_below(&source, 4) : 0;
                size_t size = round % 3 == 2 && random_below(&source, 6) == 0 ? 100000 : random_below(&source, 16000);
                shale_status status = put(name('p', number++), size, how);
                *(status == SHALE_OK ? &stored : (unsigned *)&refused) += 1;
            }
            if (generation < 2) {
                let_go();
                purge();
                CHECK_EQUAL(0, stats_of(cache).entries);
            }
        }
        CHECK(stored > 30);
        uint64_t entries = stats_of(cache).entries;
        check_sets("before the rebuild");
        rebuild_index();
        check_sets("after the rebuild");
        CHECK_EQUAL(entries + 12, stats_of(cache).entries);
        end();
    }
}

/* ---- parts in the other shard
 * ---------------------------------------------------------------------------------------- */

static void test_parts_elsewhere(shale_set_options how, bool with_rebuild) {
    random_source source = {80};
    unsigned small = 0;
    for (unsigned round = 0; round < 40; round++) {
        policy = policy_of(round / 2);
        start_over(4 << 20, 2);
        CHECK_STATUS(SHALE_OK, put("L1", 800000, how));
        CHECK_STATUS(SHALE_OK, put("L2", 800000, how));
        if (with_rebuild) {
            /* They are dead, and in the log beside the entries that replaced them. */
            let_go();
            purge();
            for (unsigned i = (unsigned)random_below(&source, 180) + 40; i > 0; i--)
                small += put(name('s', i), 10000, pinned) == SHALE_OK;
            check_sets("before the rebuild");
            rebuild_index();
        } else {
            /* One shard, or both, can pin nothing more. */
            for (unsigned i = 0, refused = 0; refused < (round % 2 ? 40 : 1); i++) {
                bool is_stored = put(name('s', i), 10000, pinned) == SHALE_OK;
                small += is_stored;
                refused += !is_stored;
            }
            let_go();
            for (unsigned i = 0; i < 12; i++)
                CHECK_STATUS(SHALE_OK, put(name('y', i), 10000, pinned));
        }
        check_sets("when they are dead");
        end();
    }
    CHECK(small > 40 * 20);
}

static void test_large_pins(shale_set_options how, uint32_t shard_count) {
    for (unsigned round = 0; round < 4; round++) {
        policy = policy_of(round);
        start_over(4 << 20, shard_count);
        unsigned count = put_all('p', 100, 300000, how);
        CHECK(count > 3 && count < 100);
        CHECK_STATUS(SHALE_E_FULL, put("large", 1000000, plain));
        let_go();
        CHECK_EQUAL(0, count_of('p', count, 300000));
        for (size_t size = 1000000; size > 20000; size -= size / 3)
            for (unsigned i = 0; i < 3; i++)
                CHECK_STATUS(SHALE_OK, put(name('n', i), size, plain));
        end();
    }
}

/* ---- the longest one ------------------------------------------------------------------------------------------------- */

enum { no_long_one, removed, aged, invalidated, there };

/* Pinned entries of one length, and a longer one that may be dead. */
static void pin_with_longer(int longer) {
    start_over(6 << 20, 1);
    CHECK_EQUAL(100, put_all('k', 100, 15000, pinned));
    if (longer == no_long_one)
        return;
    shale_set_options how = longer == aged ? ageing : longer == invalidated ? tagged : pinned;
    how.meta_size = 60000;
    CHECK_STATUS(SHALE_OK, put("long", 1, how));
    if (longer == removed)
        CHECK_STATUS(SHALE_OK, shale_remove(cache, "long", 4, 0));
    else if (longer != there)
        let_go();
}

static uint64_t entries_beside(int longer) {
    pin_with_longer(longer);
    for (unsigned i = 0; i < 8000; i++)
        CHECK_STATUS(SHALE_OK, put(name('u', i), 1000, plain));
    uint64_t entries = stats_of(cache).entries;
    CHECK_EQUAL(100, count_of('k', 100, 15000));
    end();
    return entries;
}

static uint64_t least_capacity(int longer) {
    pin_with_longer(longer);
    uint64_t least = capacity;
    shale_status status = shale_close(cache);
    for (uint64_t size = capacity; status == SHALE_OK && size > 1 << 20; size -= 64 << 10) {
        status = try_open(size);
        if (status != SHALE_OK)
            break;
        least = size;
        CHECK_EQUAL(100, count_of('k', 100, 15000));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    CHECK_STATUS(SHALE_E_FULL, status);
    return least;
}

static void test_longest(int32_t with) {
    policy = with;
    uint64_t entries = entries_beside(no_long_one), least = least_capacity(no_long_one);
    /* (The CLOCK policy's entries leave with the segment that they are in.) */
    uint64_t off_by = policy == SHALE_EVICTION_LRU ? entries / 100 : segment / 1000;
    for (int longer = removed; longer <= invalidated; longer++) {
        uint64_t beside = entries_beside(longer);
        check_that(beside >= entries - off_by, __FILE__, __LINE__, "as many fit",
                   ": %" PRIu64 " entries, without it %" PRIu64, beside, entries);
        CHECK_EQUAL(least, least_capacity(longer));
    }
    CHECK(entries_beside(there) < entries - entries / 20);
    CHECK(least_capacity(there) > least + (256 << 10));
}

/* A capacity without room for the pinned entries. */
static void test_shrink(shale_set_options how, uint32_t shard_count, size_t size) {
    start_over(4 << 20, shard_count);
    CHECK(put_all('p', 10000, size, how) > 3);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    REQUIRE_STATUS(SHALE_E_FULL, try_open(2 << 20));
    REQUIRE_STATUS(SHALE_OK, try_open(0));
    let_go();
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    REQUIRE_STATUS(SHALE_OK, try_open(2 << 20));
    CHECK_EQUAL(0, count_of('p', 400, size));
    end();
}

/* ---- set again ------------------------------------------------------------------------------------------------------- */

/* A dead entry counts no more, and no less, than a removed one. */
/* Repeated attempts to pin without room walk over the table once; expiries and invalidations since then are noticed
 * all the same. */
static int searches;
static void count_searches(enum shim_event event, const void *at UNUSED) {
    searches += event == SHIM_SOUGHT;
}
static unsigned pin_on(shale_set_options how) {
    unsigned i = 0;
    while (i < 10000 && put(name('m', i), 5000, how) == SHALE_OK)
        i++;
    return i;
}
static void test_refused_again(void) {
    shim_faults.event = count_searches;
    for (int by_tag = 0; by_tag <= 1; by_tag++) {
        start_over(2 << 20, 1);
        CHECK(pin_on(by_tag ? tagged : ageing) > 100);
        searches = 0;
        for (int i = 0; i < 100; i++)
            CHECK_STATUS(SHALE_E_FULL, put("another", 5000, pinned));
        CHECK_EQUAL(0, searches);
        clock_ms += 100;
        for (int i = 0; i < 100; i++)
            CHECK_STATUS(SHALE_E_FULL, put("another", 5000, pinned));
        CHECK_EQUAL(1, searches);
        if (by_tag)
            CHECK_STATUS(SHALE_OK, shale_invalidate(cache, tag.data, tag.size));
        else
            clock_ms += 1000;
        CHECK_STATUS(SHALE_OK, put("another", 5000, pinned));
        CHECK_EQUAL(2, searches);
        end();
    }
    shim_faults.event = NULL;
}

static void test_set_again(void) {
    unsigned stored = 0, refused = 0;
    for (size_t more = 0; more < 40000; more += 2500) {
        policy = policy_of(more / 2500);
        shale_status status[3];
        for (int how = removed; how <= invalidated; how++) {
            shale_set_options longest = pinned, own = how == invalidated ? tagged : ageing;
            start_over(2 << 20, 1);
            longest.meta_size = most_meta;
            CHECK_STATUS(SHALE_OK, put("longest", 16, longest));
            own.meta_size = 30000;
            CHECK_STATUS(SHALE_OK, put("own", 10000, own));
            CHECK(put_all('p', 10000, 1000, pinned) > 300);
            if (how == removed)
                CHECK_STATUS(SHALE_OK, shale_remove(cache, "own", 3, 0));
            else
                let_go();
            own.meta_size += more < 35000 ? more : 35000;
            own.max_age_ms = 0;
            status[how - removed] = put("own", 10000 + (more < 35000 ? 0 : more - 35000), own);
            check_sets("when it was set again");
            end();
        }
        *(status[0] == SHALE_OK ? &stored : &refused) += 1;
        CHECK_EQUAL(status[0], status[1]);
        CHECK_EQUAL(status[0], status[2]);
    }
    CHECK(stored > 0 && refused > 5);
}

int main(void) {
    watch(patience);
    prefer_memory();
    memset(bytes, 7, sizeof bytes);
    directory = path_to("dead_pins");
    shim_faults.random = next_secret;
    test_as_many_in_the_log(ageing);
    policy = SHALE_EVICTION_CLOCK;
    test_as_many_in_the_log(tagged);
    RUN(test_first_set_after_it);
    for (int by_tag = 0; by_tag < 2; by_tag++) {
        shale_set_options how = by_tag ? tagged : ageing;
        test_parts_elsewhere(how, false);
        test_parts_elsewhere(how, true);
        test_large_pins(how, 1);
        test_large_pins(how, 2);
    }
    test_longest(SHALE_EVICTION_LRU);
    test_longest(SHALE_EVICTION_CLOCK);
    RUN(test_refused_again);
    RUN(test_set_again);
    for (uint64_t round = 0; round < 2; round++) {
        policy = policy_of(round);
        test_shrink(ageing, 1, 10000);
        test_shrink(tagged, 1, 10000);
        test_shrink(ageing, 2, 300000);
        test_shrink(tagged, 2, 300000);
    }
    free(directory);
    return finish();
}
