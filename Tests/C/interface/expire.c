/* Expire instead of remove: an entry that was expired, by its key or by a tag, is stale from then on, is kept for
 * its stale period, and never becomes fresh again. On the test's own clock. */
#include "afterwards.h"
#include "check.h"
#include "faults.h"
#include "files.h"
#include "kill_at.h"

enum { segment = 128 << 10, large = 200000, carried = 64, many_tags = 2000 };

static int64_t clock_ms = 1700000000000;
static unsigned char bytes[large];

static int64_t read_clock(void *context) {
    return *(int64_t *)context;
}

static shale_cache *open_at(const char *directory, uint64_t capacity, uint32_t shards) {
    return require_open(directory, (shale_options){.capacity = capacity,
                                                   .shards = shards,
                                                   .segment_size = segment,
                                                   .compression = SHALE_COMPRESSION_NONE,
                                                   .flags = SHALE_OPEN_NO_SYNC,
                                                   .now_ms = read_clock,
                                                   .now_context = &clock_ms});
}

typedef struct {
    int64_t max_age_ms, stale_ms;
    const char *tag, *other_tag;
    uint32_t flags;
    uint64_t version;
    size_t size; /* 0: 8 */
} entry;

static shale_status put(shale_cache *cache, const char *key, entry e) {
    shale_bytes tags[2] = {{e.tag, e.tag ? strlen(e.tag) : 0}, {e.other_tag, e.other_tag ? strlen(e.other_tag) : 0}};
    shale_set_options options = {.struct_size = sizeof options,
                                 .flags = e.flags,
                                 .max_age_ms = e.max_age_ms,
                                 .stale_ms = e.stale_ms,
                                 .version = e.version,
                                 .meta = "meta",
                                 .meta_size = 4,
                                 .tags = tags,
                                 .tag_count = (size_t)(e.tag != NULL) + (e.other_tag != NULL)};
    return shale_set(cache, key, strlen(key), bytes, e.size ? e.size : 8, &options);
}

static shale_status expire(shale_cache *cache, const char *key) {
    return shale_expire(cache, key, strlen(key));
}
static shale_status expire_tag(shale_cache *cache, const char *tag) {
    return shale_invalidate_with(cache, tag, strlen(tag), SHALE_INVALIDATE_EXPIRE);
}

/* Everything that a get says of an entry, by itself and by a cursor; a plain get finds fresh entries only. */
static void check_entry(shale_cache *cache, const char *key, shale_status expected, int64_t expires_ms, size_t size,
                        int line) {
    shale_value value = SHALE_VALUE_INIT, name = SHALE_VALUE_INIT;
    unsigned failures = check_failures;
    CHECK_STATUS(expected == SHALE_OK ? SHALE_OK : SHALE_MISS, get_text(cache, key, SHALE_GET_PEEK, &value));
    CHECK_STATUS(expected, get_text(cache, key, SHALE_GET_PEEK | SHALE_GET_STALE, &value));
    if (expected != SHALE_MISS) {
        CHECK_BYTES(&value, bytes, size);
        CHECK_EQUAL(4, value.meta_size);
        CHECK_EQUAL(expires_ms, value.expires_ms);
        CHECK_EQUAL(expected == SHALE_STALE, value.flags & SHALE_VALUE_STALE);
    }
    CHECK_STATUS(expected, get_text(cache, key, SHALE_GET_PEEK | SHALE_GET_STALE | SHALE_GET_INFO, &value));
    shale_cursor *cursor = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    shale_status found = SHALE_MISS, status;
    while ((status = shale_cursor_next(cursor, SHALE_GET_STALE | SHALE_GET_INFO, &name, &value)) != SHALE_END)
        if (name.size == strlen(key) && memcmp(name.data, key, name.size) == 0)
            found = status;
    CHECK_STATUS(expected, found);
    shale_cursor_close(cursor);
    shale_value_free(&name);
    shale_value_free(&value);
    if (check_failures != failures)
        fprintf(stderr, "  %s, asked for in line %d\n", key, line);
}
#define IS_FRESH(key, expires) check_entry(cache, key, SHALE_OK, expires, 8, __LINE__)
#define IS_STALE(key, expires) check_entry(cache, key, SHALE_STALE, expires, 8, __LINE__)
#define IS_GONE(key) check_entry(cache, key, SHALE_MISS, 0, 0, __LINE__)

static uint64_t version_of(shale_cache *cache, const char *key) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_ANSWER(get_text(cache, key, SHALE_GET_PEEK | SHALE_GET_STALE, &value));
    uint64_t version = value.version;
    shale_value_free(&value);
    return version;
}

static const char *numbered(const char *name, unsigned n) {
    static char text[2][24];
    static int turn;
    turn = !turn;
    snprintf(text[turn], sizeof text[turn], "%s%u", name, n);
    return text[turn];
}

/* Both ways: the key "key", which has the tag "tag". */
static shale_status expire_either(shale_cache *cache, bool by_tag) {
    return by_tag ? expire_tag(cache, "tag") : expire(cache, "key");
}

/* MARK: Ages */

static void test_ages(bool by_tag) {
    const int64_t start = clock_ms;
    const entry forever = {.max_age_ms = SHALE_NEVER, .stale_ms = 1000, .tag = "tag"},
                aged = {.max_age_ms = 5000, .stale_ms = 1000, .tag = "tag"},
                plain = {.max_age_ms = 5000, .stale_ms = SHALE_NONE, .tag = "tag"},
                kept = {.max_age_ms = SHALE_NEVER, .stale_ms = SHALE_NEVER, .tag = "tag"};
    shale_cache *cache = open_at(NULL, 4 << 20, 1);
    CHECK_STATUS(by_tag ? SHALE_OK : SHALE_MISS, expire_either(cache, by_tag));

    CHECK_STATUS(SHALE_OK, put(cache, "key", forever));
    CHECK_STATUS(SHALE_OK, put(cache, "other", (entry){.stale_ms = 1000, .tag = "another"}));
    uint64_t version = version_of(cache, "key");
    IS_FRESH("key", SHALE_NEVER);
    clock_ms = start + 100;
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    IS_STALE("key", start + 100);
    CHECK_EQUAL(version, version_of(cache, "key"));
    IS_FRESH("other", SHALE_NEVER);
    clock_ms = start + 1099;
    IS_STALE("key", start + 100);
    clock_ms = start + 1100;
    IS_GONE("key");
    CHECK_STATUS(by_tag ? SHALE_OK : SHALE_MISS, expire_either(cache, by_tag));

    /* Its own age ends before: it does not change. */
    CHECK_STATUS(SHALE_OK, put(cache, "key", aged));
    clock_ms += 5500;
    IS_STALE("key", start + 6100);
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    IS_STALE("key", start + 6100);
    clock_ms += 499;
    IS_STALE("key", start + 6100);
    clock_ms += 1;
    IS_GONE("key");

    /* A stale period counts from the expiry, not from the age. */
    CHECK_STATUS(SHALE_OK, put(cache, "key", aged));
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    IS_STALE("key", clock_ms);
    clock_ms += 999;
    IS_STALE("key", clock_ms - 999);
    clock_ms += 1;
    IS_GONE("key");

    /* No stale period: dead at once, whatever the clock says. */
    CHECK_STATUS(SHALE_OK, put(cache, "key", plain));
    clock_ms += 10;
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    IS_GONE("key");
    clock_ms -= 5;
    IS_GONE("key");
    CHECK_STATUS(SHALE_OK, put(cache, "key", (entry){.tag = "tag"}));
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    IS_GONE("key");
    CHECK_STATUS(SHALE_OK, put(cache, "key", kept));
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    clock_ms += INT64_C(1000000000);
    IS_STALE("key", clock_ms - 1000000000);

    /* A set, and another expiry. */
    CHECK_STATUS(SHALE_OK, put(cache, "key", forever));
    IS_FRESH("key", SHALE_NEVER);
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    IS_STALE("key", clock_ms);
    clock_ms += 600;
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    clock_ms += 399;
    if (by_tag)
        IS_STALE("key", clock_ms - 399);
    else
        IS_STALE("key", clock_ms - 999);
    clock_ms += 1;
    if (!by_tag)
        IS_GONE("key");
    clock_ms += 600;
    IS_GONE("key");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}
static void test_ages_by_key(void) {
    test_ages(false);
}
static void test_ages_by_tag(void) {
    test_ages(true);
}

/* A reader with another clock: a tag's expiry counts all the same, and an entry without a stale period is dead. */
static void test_clock_behind(void) {
    shale_cache *cache = open_at(NULL, 4 << 20, 1);
    CHECK_STATUS(SHALE_OK, put(cache, "key", (entry){.stale_ms = 1000, .tag = "tag"}));
    CHECK_STATUS(SHALE_OK, put(cache, "aged", (entry){.max_age_ms = 1000, .stale_ms = 1000, .tag = "tag"}));
    CHECK_STATUS(SHALE_OK, put(cache, "plain", (entry){.tag = "tag"}));
    CHECK_STATUS(SHALE_OK, expire_tag(cache, "tag"));
    clock_ms -= 50;
    IS_STALE("key", clock_ms + 50);
    IS_STALE("aged", clock_ms + 50);
    IS_GONE("plain");
    CHECK_STATUS(SHALE_CONFLICT, put(cache, "key", (entry){.flags = SHALE_SET_IF_PRESENT}));
    CHECK_STATUS(SHALE_OK, put(cache, "key", (entry){.flags = SHALE_SET_IF_ABSENT}));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* MARK: Tags */

static void test_tags(void) {
    shale_cache *cache = open_at(NULL, 4 << 20, 4);
    const int64_t start = clock_ms;
    CHECK_STATUS(SHALE_OK, put(cache, "one", (entry){.stale_ms = 1000, .tag = "a", .other_tag = "b"}));
    CHECK_STATUS(SHALE_OK, put(cache, "two", (entry){.stale_ms = 1000, .tag = "b", .other_tag = "c"}));
    CHECK_STATUS(SHALE_OK, expire_tag(cache, "a"));
    IS_STALE("one", start);
    IS_FRESH("two", SHALE_NEVER);
    clock_ms += 100;
    CHECK_STATUS(SHALE_OK, expire_tag(cache, "b"));
    /* The first of its tags' expiries counts. */
    IS_STALE("one", start);
    IS_STALE("two", start + 100);
    /* A set after the expiry stores another value. */
    CHECK_STATUS(SHALE_OK, put(cache, "two", (entry){.stale_ms = 1000, .tag = "b", .other_tag = "c"}));
    IS_FRESH("two", SHALE_NEVER);
    /* An invalidation removes expired entries, and an earlier one does not. */
    CHECK_STATUS(SHALE_OK, shale_invalidate_with(cache, "a", 1, 0));
    IS_GONE("one");
    CHECK_STATUS(SHALE_OK, put(cache, "one", (entry){.stale_ms = 1000, .tag = "a"}));
    IS_FRESH("one", SHALE_NEVER);
    CHECK_STATUS(SHALE_OK, expire_tag(cache, "a"));
    IS_STALE("one", clock_ms);
    CHECK_STATUS(SHALE_OK, put(cache, "one", (entry){.stale_ms = 1000, .tag = "a"}));
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "a", 1));
    IS_GONE("one");
    CHECK_STATUS(SHALE_E_INVALID, shale_invalidate_with(cache, "a", 1, 2));
    CHECK_STATUS(SHALE_E_INVALID, shale_invalidate_with(cache, "a", 1, SHALE_INVALIDATE_EXPIRE | 4));
    CHECK_STATUS(SHALE_E_INVALID, shale_invalidate_with(cache, "", 0, SHALE_INVALIDATE_EXPIRE));
    CHECK_STATUS(SHALE_E_INVALID, shale_invalidate_with(cache, NULL, 1, SHALE_INVALIDATE_EXPIRE));
    CHECK_STATUS(SHALE_E_INVALID, shale_expire(cache, "", 0));
    CHECK_EQUAL(5, stats_of(cache).invalidations);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* Entries that tags have made stale stay stale, however many tags are changed after them, as far as a generation
 * carries tags over: entries beyond that are removed. None becomes fresh again. */
static void test_many_tags(unsigned stale) {
    char *directory = path_to(stale > carried ? "too many stale" : "many tags");
    shale_cache *cache = open_at(directory, 4 << 20, 1);
    CHECK_STATUS(SHALE_OK, put(cache, "fresh", (entry){.stale_ms = SHALE_NEVER, .tag = "another"}));
    CHECK_STATUS(SHALE_OK, put(cache, "by key", (entry){.stale_ms = SHALE_NEVER, .tag = "another"}));
    CHECK_STATUS(SHALE_OK, expire(cache, "by key"));
    for (unsigned i = 0; i < stale; i++) {
        CHECK_STATUS(SHALE_OK, put(cache, numbered("k", i), (entry){.stale_ms = SHALE_NEVER, .tag = numbered("s", i)}));
        CHECK_STATUS(SHALE_OK, expire_tag(cache, numbered("s", i)));
    }
    for (unsigned i = 0; i < many_tags; i++)
        CHECK_STATUS(SHALE_OK, i % 2 ? expire_tag(cache, numbered("t", i)) : shale_invalidate(cache, &i, sizeof i));
    uint64_t expirations = stats_of(cache).expirations, left = 0;
    CHECK_EQUAL(0, stats_of(cache).evictions); /* not evicted for space */
    for (unsigned i = 0; i < stale; i++) {
        shale_value value = SHALE_VALUE_INIT;
        shale_status status = get_text(cache, numbered("k", i), SHALE_GET_PEEK | SHALE_GET_STALE, &value);
        CHECK_EITHER(SHALE_STALE, SHALE_MISS, status);
        left += status == SHALE_STALE;
        shale_value_free(&value);
    }
    CHECK_EQUAL(stale, left + expirations);
    CHECK_EQUAL(stale > carried ? carried : stale, left);
    IS_FRESH("fresh", SHALE_NEVER);
    IS_STALE("by key", clock_ms);
    check_afterwards(cache, directory, "many tags");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    for (int is_rebuilt = 0; is_rebuilt < 2; is_rebuilt++) {
        if (is_rebuilt)
            remove_index(directory);
        cache = open_at(directory, 4 << 20, 1);
        shale_value value = SHALE_VALUE_INIT;
        for (unsigned i = 0; i < stale; i++)
            CHECK_STATUS(SHALE_MISS, get_text(cache, numbered("k", i), 0, &value));
        shale_value_free(&value);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    free(directory);
}

static void test_some_stale_tags(void) {
    test_many_tags(20);
}
static void test_too_many_stale_tags(void) {
    test_many_tags(carried + 36);
}

/* Entries that a tag has ended stay so, however far a sweep for another generation of tags has come, and the last of
 * its expiries counts, whichever generations have them. */
static void test_generations(void) {
    enum { others = 300, most = 250, step = 7 };
    shale_cache *cache = open_at(NULL, 16 << 20, 1);
    unsigned next = 0;
    for (unsigned i = 0; i < others; i++)
        CHECK_STATUS(SHALE_OK, put(cache, numbered("o", i), (entry){.stale_ms = SHALE_NEVER, .tag = "another"}));
    for (unsigned count = 0; count < most; count += step) {
        const entry tagged = {.max_age_ms = SHALE_NEVER, .stale_ms = SHALE_NEVER, .tag = "unknown", .other_tag = "tag"};
        const int64_t then = clock_ms;
        CHECK_STATUS(SHALE_OK, put(cache, "key", tagged));
        CHECK_STATUS(SHALE_OK, put(cache, "touched", (entry){.stale_ms = SHALE_NEVER, .tag = "of touched"}));
        CHECK_STATUS(SHALE_OK, put(cache, "invalidated", (entry){.stale_ms = SHALE_NEVER, .tag = "gone"}));
        CHECK_STATUS(SHALE_OK, shale_touch(cache, "touched", 7, SHALE_NEVER));
        CHECK_STATUS(SHALE_OK, expire_tag(cache, "tag"));
        CHECK_STATUS(SHALE_OK, expire_tag(cache, "of touched"));
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "gone", 4));
        for (unsigned end = next + count; next < end; next++)
            CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &next, sizeof next));
        clock_ms += 100;
        IS_STALE("key", then);
        IS_STALE("touched", then);
        IS_GONE("invalidated");
        CHECK_STATUS(SHALE_OK, put(cache, "invalidated", (entry){.stale_ms = SHALE_NEVER, .tag = "gone"}));
        CHECK_STATUS(SHALE_OK, expire_tag(cache, "tag"));
        CHECK_STATUS(SHALE_OK, expire_tag(cache, "of touched"));
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "gone", 4));
        IS_STALE("key", clock_ms);
        IS_STALE("touched", clock_ms);
        IS_GONE("invalidated");
        CHECK_STATUS(SHALE_OK, put(cache, "key", tagged));
        IS_FRESH("key", SHALE_NEVER);
    }
    CHECK_EQUAL(0, stats_of(cache).evictions);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static uint64_t stores;
static void count_store(const void *at UNUSED) {
    stores++;
}

/* The most stores of any one of these invalidations. */
static uint64_t most_stores(shale_cache *cache, unsigned count) {
    static unsigned next;
    uint64_t most = 0;
    shim_faults.store = count_store;
    for (unsigned end = next + count; next < end; next++) {
        stores = 0;
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &next, sizeof next));
        most = stores > most ? stores : most;
    }
    shim_faults.store = NULL;
    return most;
}

static void put_many(shale_cache *cache) {
    for (unsigned i = 0; i < 20000; i++)
        CHECK_STATUS(SHALE_OK, put(cache, numbered("k", i), (entry){.tag = "another"}));
}

/* No invalidation waits for a sweep of the whole table. A table sweeps while it grows, as far as a set's share
 * allows, so the first invalidations after that have less left to sweep than later ones may have, however full the
 * generation was when the growth began. */
static void test_pace_after(unsigned before) {
    shale_cache *cache = open_at(NULL, 64 << 20, 1);
    (void)most_stores(cache, before);
    put_many(cache);
    uint64_t after_growth = most_stores(cache, 20), later = most_stores(cache, 3000);
    if (!CHECK(after_growth <= 350) | !CHECK(later <= 500))
        fprintf(stderr, "  %" PRIu64 " stores after the table has grown, %" PRIu64 " later\n", after_growth, later);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void test_pace(void) {
    for (unsigned before = 50; before <= 300; before += 50)
        test_pace_after(before);
}

/* A purge frees the tags that no entry needs. */
static void test_purged(void) {
    shale_cache *cache = open_at(NULL, 4 << 20, 1);
    uint64_t purged;
    const int64_t then = clock_ms;
    CHECK_STATUS(SHALE_OK, put(cache, "short", (entry){.stale_ms = 1000, .tag = "short"}));
    CHECK_STATUS(SHALE_OK, put(cache, "long", (entry){.stale_ms = 5000, .tag = "long"}));
    CHECK_STATUS(SHALE_OK, expire_tag(cache, "short"));
    CHECK_STATUS(SHALE_OK, expire_tag(cache, "long"));
    clock_ms += 2000;
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(SHALE_OK, shale_purge(cache, &purged));
        CHECK_EQUAL(i == 0, purged);
        CHECK_EQUAL(1, stats_of(cache).entries);
        IS_STALE("long", then);
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* MARK: Touch */

static void test_touch(bool by_tag) {
    shale_cache *cache = open_at(NULL, 4 << 20, 1);
    uint32_t pinned = SHALE_SET_PINNED;
    for (int round = 0; round < 3; round++) {
        size_t size = round == 2 ? large : 8;
        CHECK_STATUS(SHALE_OK, put(cache, "key",
                                   (entry){.stale_ms = 1000, .tag = "tag", .flags = round ? pinned : 0, .size = size}));
        CHECK_STATUS(SHALE_OK, put(cache, "beside", (entry){.stale_ms = 1000, .tag = "tag"}));
        if (round == 1)
            CHECK_STATUS(SHALE_OK, shale_touch(cache, "key", 3, 7000));
        uint64_t version = version_of(cache, "key");
        CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
        check_entry(cache, "key", SHALE_STALE, clock_ms, size, __LINE__);
        clock_ms += 10;
        CHECK_STATUS(SHALE_OK, shale_touch(cache, "key", 3, 500));
        check_entry(cache, "key", SHALE_OK, clock_ms + 500, size, __LINE__);
        /* An entry that a tag has made stale gets a new version, and keeps its value. */
        CHECK((version_of(cache, "key") != version) == by_tag);
        if (by_tag)
            IS_STALE("beside", clock_ms - 10);
        else
            IS_FRESH("beside", SHALE_NEVER);
        clock_ms += 500;
        check_entry(cache, "key", SHALE_STALE, clock_ms, size, __LINE__);
        CHECK_STATUS(SHALE_OK, shale_touch(cache, "key", 3, SHALE_NEVER));
        check_entry(cache, "key", SHALE_OK, SHALE_NEVER, size, __LINE__);
        CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
        check_entry(cache, "key", SHALE_STALE, clock_ms, size, __LINE__);
        clock_ms += 1000;
        IS_GONE("key");
        CHECK_STATUS(SHALE_MISS, shale_touch(cache, "key", 3, 500));
        shale_value value = SHALE_VALUE_INIT;
        shale_report report = {.struct_size = sizeof report};
        CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
        CHECK_EQUAL(0, report.corrupt_records);
        shale_value_free(&value);
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}
static void test_touch_by_key(void) {
    test_touch(false);
}
static void test_touch_by_tag(void) {
    test_touch(true);
}

/* MARK: Effects on other calls */

static void test_others(bool by_tag) {
    shale_cache *cache = open_at(NULL, 4 << 20, 1);
    const entry kept = {.stale_ms = 1000, .tag = "tag"};
    /* Conditions, increments, removals. */
    CHECK_STATUS(SHALE_OK, put(cache, "key", kept));
    uint64_t version = version_of(cache, "key");
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    CHECK_STATUS(SHALE_CONFLICT, put(cache, "key", (entry){.flags = SHALE_SET_IF_PRESENT}));
    CHECK_STATUS(SHALE_OK, put(cache, "key", (entry){.flags = SHALE_SET_IF_VERSION, .version = version}));
    CHECK_STATUS(SHALE_OK, put(cache, "key", kept));
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    CHECK_STATUS(SHALE_OK, put(cache, "key", (entry){.flags = SHALE_SET_IF_ABSENT}));
    CHECK_STATUS(SHALE_OK, put(cache, "key", kept));
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    int64_t number = 0;
    CHECK_STATUS(SHALE_OK, shale_increment(cache, "key", 3, 1, 10, &number));
    CHECK_EQUAL(11, number);
    CHECK_STATUS(SHALE_OK, put(cache, "key", kept));
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    CHECK_STATUS(SHALE_OK, shale_remove(cache, "key", 3, 0));
    IS_GONE("key");

    /* Leases: one caller loads, and the others get the stale value. */
    CHECK_STATUS(SHALE_OK, put(cache, "key", kept));
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    shale_value value = SHALE_VALUE_INIT;
    shale_lease_options lease = {.struct_size = sizeof lease, .flags = SHALE_GET_STALE};
    uint64_t first = 0, second = 0;
    CHECK_STATUS(SHALE_STALE, shale_lease(cache, "key", 3, &lease, &value, &first));
    CHECK(first != 0 && value.size == 8);
    CHECK_STATUS(SHALE_STALE, shale_lease(cache, "key", 3, &lease, &value, &second));
    CHECK_EQUAL(0, second);
    /* An expiry is a change for a load that is under way, also a second expiry. */
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    entry fenced = {.flags = SHALE_SET_IF_UNCHANGED, .version = first, .tag = "tag", .stale_ms = 1000};
    CHECK_STATUS(SHALE_CONFLICT, put(cache, "key", fenced));
    IS_STALE("key", clock_ms);
    CHECK_STATUS(SHALE_OK, shale_release(cache, "key", 3, first));
    CHECK_STATUS(SHALE_STALE, shale_lease(cache, "key", 3, &lease, &value, &first));
    fenced.version = first;
    CHECK_STATUS(SHALE_OK, put(cache, "key", fenced));
    IS_FRESH("key", SHALE_NEVER);
    CHECK_STATUS(SHALE_OK, shale_release(cache, "key", 3, first));

    /* A purge leaves it until its stale period is over. */
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    uint64_t purged = 0;
    clock_ms += 999;
    CHECK_STATUS(SHALE_OK, shale_purge(cache, &purged));
    CHECK_EQUAL(0, purged);
    IS_STALE("key", clock_ms - 999);
    clock_ms += 70000; /* (a slot's expiry counts units of 64 seconds) */
    CHECK_STATUS(SHALE_OK, shale_purge(cache, &purged));
    CHECK_EQUAL(1, purged);
    CHECK_EQUAL(0, stats_of(cache).entries);

    /* Nor does an eviction remove a pinned one before its stale period is over. */
    CHECK_STATUS(SHALE_OK, put(cache, "key", (entry){.stale_ms = 1000, .tag = "tag", .flags = SHALE_SET_PINNED}));
    CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
    uint64_t evicted = 0;
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, &evicted));
    CHECK_EQUAL(0, evicted);
    IS_STALE("key", clock_ms);
    clock_ms += 70000;
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, &evicted));
    CHECK_EQUAL(0, stats_of(cache).entries);
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}
static void test_others_by_key(void) {
    test_others(false);
}
static void test_others_by_tag(void) {
    test_others(true);
}

/* MARK: Persistence */

enum { keys = 60, filler = 3000 };

/* (All are pinned: others may be evicted.) */
static entry lasting(unsigned i) {
    return (entry){.stale_ms = i % 5 == 4 ? SHALE_NONE : 100000,
                   .tag = i % 2 ? "odd" : "even",
                   .flags = SHALE_SET_PINNED,
                   .size = i % 20 == 1 ? large : 8};
}

static void check_lasting(shale_cache *cache, int64_t expired, const char *when) {
    unsigned failures = check_failures;
    for (unsigned i = 0; i < keys; i++) {
        entry e = lasting(i);
        shale_value value = SHALE_VALUE_INIT;
        const char *key = numbered("key", i);
        CHECK_STATUS(SHALE_MISS, get_text(cache, key, SHALE_GET_PEEK, &value));
        shale_status status = get_text(cache, key, SHALE_GET_PEEK | SHALE_GET_STALE, &value);
        CHECK_STATUS(e.stale_ms == SHALE_NONE ? SHALE_MISS : SHALE_STALE, status);
        if (status == SHALE_STALE) {
            CHECK_BYTES(&value, bytes, e.size);
            CHECK_EQUAL(expired, value.expires_ms);
        }
        shale_value_free(&value);
    }
    if (check_failures != failures)
        fprintf(stderr, "  %s\n", when);
}

/* By a tag, then by their keys: reopened, cleaned, replayed; with what a touch had changed before. */
static void test_expiry_persists(uint32_t shards) {
    char *directory = path_to(numbered("lasts", shards));
    shale_cache *cache = open_at(directory, 16 << 20, shards);
    for (unsigned i = 0; i < keys; i++) {
        CHECK_STATUS(SHALE_OK, put(cache, numbered("key", i), lasting(i)));
        if (i % 4 == 0)
            CHECK_STATUS(SHALE_OK, shale_touch(cache, numbered("key", i), strlen(numbered("key", i)), 5000000));
    }
    const int64_t expired = clock_ms += 10;
    CHECK_STATUS(SHALE_OK, expire_tag(cache, "odd"));
    for (unsigned i = 0; i < keys; i += 2)
        CHECK_STATUS(SHALE_OK, expire(cache, numbered("key", i)));
    clock_ms += 10;
    check_lasting(cache, expired, "expired");
    for (int round = 0; round < 4; round++) {
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        if (round % 2)
            remove_index(directory);
        cache = open_at(directory, 16 << 20, shards);
        check_lasting(cache, expired, round % 2 ? "with a new index" : "opened again");
        /* The tail passes all entries, and the expiries too. */
        for (unsigned i = 0; i < filler && round == 1; i++)
            CHECK_STATUS(SHALE_OK, put(cache, numbered("filler", i % 500), (entry){.size = 9000}));
        CHECK(round != 1 || stats_of(cache).cleaned_bytes > 0);
    }
    check_lasting(cache, expired, "at the end");
    check_afterwards(cache, directory, "expiries that last");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

/* An evicted entry that is expired does not become fresh with another index. */
static void test_evicted(bool by_tag) {
    char *directory = path_to(by_tag ? "evicted tag" : "evicted key");
    shale_cache *cache = open_at(directory, 4 << 20, 1);
    CHECK_STATUS(SHALE_OK, put(cache, "key", (entry){.stale_ms = 1000, .tag = "tag"}));
    uint64_t evicted = 0;
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, &evicted));
    CHECK_EQUAL(1, evicted);
    CHECK_STATUS(by_tag ? SHALE_OK : SHALE_MISS, expire_either(cache, by_tag));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_index(directory);
    cache = open_at(directory, 4 << 20, 1);
    if (by_tag)
        IS_STALE("key", clock_ms);
    else
        IS_GONE("key");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}
static void test_evicted_key(void) {
    test_evicted(false);
}
static void test_evicted_tag(void) {
    test_evicted(true);
}

/* MARK: Killed at any store */

/* `again`: the tag was expired before, at another time, with an entry set since. */
static void test_killed(bool by_tag, bool again) {
    char *directory = path_to(numbered(by_tag ? "killed tag" : "killed key", again));
    bool was_killed = true;
    const int64_t start = clock_ms += 1000000;
    unsigned happened = 0, did_not = 0;
    for (long store = 1; was_killed; store++) {
        clock_ms = start;
        remove_tree(directory);
        shale_cache *cache = open_at(directory, 1 << 20, 1);
        CHECK_STATUS(SHALE_OK, put(cache, "older", (entry){.stale_ms = 1000, .tag = "tag"}));
        if (again) {
            CHECK_STATUS(SHALE_OK, expire_tag(cache, "tag"));
            clock_ms += 600;
        }
        CHECK_STATUS(SHALE_OK, put(cache, "key", (entry){.stale_ms = 1000, .tag = "tag"}));
        shale_value value = SHALE_VALUE_INIT;
        CHECK_STATUS(SHALE_MISS, get_text(cache, "absent", SHALE_GET_TOKEN, &value));
        uint64_t token = value.version;
        pid_t child = fork();
        if (child == 0) {
            stores_left = store;
            shim_faults.store = before_store;
            (void)expire_either(cache, by_tag);
            _exit(0);
        }
        REQUIRE(child > 0);
        was_killed = wait_for(child) == killed_at_store;
        for (int look = 0; look < 3; look++) {
            if (look == 1) /* settles unfinished work */
                CHECK_STATUS(SHALE_MISS, shale_remove(cache, "nothing", 7, 0));
            if (look == 2) {
                CHECK_STATUS(SHALE_OK, shale_close(cache));
                remove_index(directory);
                cache = open_at(directory, 1 << 20, 1);
            }
            static bool is_stale;
            bool was_stale = is_stale;
            is_stale = get_text(cache, "key", SHALE_GET_PEEK, &value) == SHALE_MISS;
            if (look == 0)
                *(is_stale ? &happened : &did_not) += 1;
            else
                CHECK_EQUAL(was_stale, is_stale);
            CHECK(is_stale || was_killed);
            if (is_stale)
                IS_STALE("key", clock_ms);
            else
                IS_FRESH("key", SHALE_NEVER);
            /* Until the next process locks the shard, readers may have the new time with the old expiry
             * (recovery.md, "A process is killed"). */
            if (again && look > 0)
                IS_STALE("older", is_stale && by_tag ? clock_ms : start);
            if (look == 1) {
                entry fenced = {.flags = SHALE_SET_IF_UNCHANGED, .version = token, .tag = "tag"};
                shale_status status = put(cache, by_tag ? "absent" : "key", fenced);
                CHECK(status == SHALE_CONFLICT || (status == SHALE_OK && by_tag && !is_stale) ||
                      (status == SHALE_OK && !by_tag && !is_stale));
                if (status == SHALE_OK && !by_tag)
                    break; /* (It was set.) */
            }
        }
        if (shale_get(cache, "key", 3, SHALE_GET_PEEK, &value) == SHALE_OK)
            CHECK_STATUS(SHALE_OK, expire_either(cache, by_tag));
        check_account(directory, "killed");
        shale_value_free(&value);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    CHECK(happened > 1 && did_not > 5);
    free(directory);
}

/* MARK: Fences */

/* A load that finds its old value unchanged renews it, unless it was expired meanwhile. */
static void test_fenced_touch(void) {
    shale_cache *cache = open_at(NULL, 4 << 20, 1);
    shale_value value = SHALE_VALUE_INIT;
    for (int change = 0; change < 7; change++)
        for (int age = 0; age < 2; age++) {
            CHECK_STATUS(SHALE_OK, put(cache, "key",
                                       (entry){.max_age_ms = age ? SHALE_NONE : 10, .stale_ms = 10000, .tag = "tag"}));
            clock_ms += 20;
            shale_lease_options options = {.struct_size = sizeof options, .flags = SHALE_GET_STALE};
            uint64_t lease = 0;
            CHECK_STATUS(SHALE_STALE, shale_lease(cache, "key", 3, &options, &value, &lease));
            CHECK(lease != 0);
            switch (change) {
            case 0: break;
            case 1: CHECK_STATUS(SHALE_OK, expire(cache, "key")); break;
            case 2: CHECK_STATUS(SHALE_OK, expire_tag(cache, "tag")); break;
            case 3: CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3)); break;
            case 4: CHECK_STATUS(SHALE_OK, shale_remove(cache, "key", 3, 0)); break;
            case 5: CHECK_STATUS(SHALE_OK, expire_tag(cache, "another")); break;
            case 6: CHECK_STATUS(SHALE_OK, put(cache, "key", (entry){.stale_ms = 10000})); break;
            }
            shale_status expected = change == 0 || change == 5   ? SHALE_OK
                                    : change == 3 || change == 4 ? SHALE_MISS
                                                                 : SHALE_CONFLICT;
            CHECK_STATUS(expected, shale_touch_unchanged(cache, "key", 3, 500, lease));
            check_entry(cache, "key",
                        expected == SHALE_OK || change == 6 ? SHALE_OK
                        : expected == SHALE_MISS            ? SHALE_MISS
                                                            : SHALE_STALE,
                        expected == SHALE_OK ? clock_ms + 500
                        : change == 6        ? SHALE_NEVER
                                             : clock_ms - (age ? 20 : 10),
                        8, __LINE__);
            CHECK_ANSWER(shale_release(cache, "key", 3, lease));
            if (expected == SHALE_OK)
                CHECK_STATUS(SHALE_CONFLICT, shale_touch_unchanged(cache, "key", 3, 500, 0));
        }
    CHECK_STATUS(SHALE_E_INVALID, shale_touch_unchanged(cache, "key", 3, -7, 1));
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void test_fences(void) {
    shale_cache *cache = open_at(NULL, 4 << 20, 1);
    for (int is_there = 0; is_there < 2; is_there++)
        for (int how = 0; how < 4; how++) {
            CHECK_STATUS(SHALE_OK, shale_clear(cache));
            if (is_there)
                CHECK_STATUS(SHALE_OK, put(cache, "key", (entry){.max_age_ms = SHALE_NONE, .stale_ms = 1000}));
            shale_value value = SHALE_VALUE_INIT;
            CHECK_STATUS(SHALE_MISS, get_text(cache, "key", SHALE_GET_TOKEN, &value));
            entry fenced = {.flags = SHALE_SET_IF_UNCHANGED, .version = value.version, .tag = "tag"};
            if (how == 0)
                CHECK_STATUS(SHALE_MISS, expire(cache, "another"));
            else if (how == 1)
                CHECK_STATUS(is_there ? SHALE_OK : SHALE_MISS, expire(cache, "key"));
            else
                CHECK_STATUS(SHALE_OK, expire_tag(cache, how == 2 ? "tag" : "another"));
            CHECK_STATUS(how == 1 || how == 2 ? SHALE_CONFLICT : SHALE_OK, put(cache, "key", fenced));
            shale_value_free(&value);
        }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* Cleaning copies no entry that a tag has expired once its stale period is over. */
static void test_not_copied(void) {
    enum { count = 200, size = 1000 };
    shale_cache *cache = open_at(NULL, 4 << 20, 1);
    for (unsigned n = 0; n < count; n++)
        CHECK_STATUS(SHALE_OK, put(cache, numbered("gone", n), (entry){.stale_ms = 1000, .tag = "tag", .size = size}));
    CHECK_STATUS(SHALE_OK, expire_tag(cache, "tag"));
    clock_ms += 2000;
    uint64_t before = stats_of(cache).expirations;
    for (int i = 0; i < 1000; i++)
        CHECK_STATUS(SHALE_OK, put(cache, "key", (entry){.size = 10 * size}));
    CHECK_EQUAL(before + count, stats_of(cache).expirations);
    CHECK_EQUAL(1, stats_of(cache).entries);
    CHECK(stats_of(cache).cleaned_bytes < count * size);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

int main(void) {
    watch(patience);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 31 + i / 256);
    RUN(test_ages_by_key);
    RUN(test_ages_by_tag);
    RUN(test_clock_behind);
    RUN(test_tags);
    RUN(test_some_stale_tags);
    RUN(test_too_many_stale_tags);
    RUN(test_generations);
    RUN(test_pace);
    RUN(test_purged);
    RUN(test_not_copied);
    RUN(test_touch_by_key);
    RUN(test_touch_by_tag);
    RUN(test_others_by_key);
    RUN(test_others_by_tag);
    RUN(test_evicted_key);
    RUN(test_evicted_tag);
    RUN(test_fences);
    RUN(test_fenced_touch);
    test_expiry_persists(1);
    test_expiry_persists(4);
    test_killed(false, false);
    test_killed(true, false);
    test_killed(true, true);
    return finish();
}
