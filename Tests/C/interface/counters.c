/* The counters of misses, loads and evictions in shale_stats: each event is counted once, as shale.h says. */
#include "check.h"
#include "files.h"

enum { minute = 60000, large = 300000 };

static int64_t now = 1700000000000;
static unsigned char bytes[large];

static int64_t clock_ms(void *context) {
    (void)context;
    return now;
}

static shale_cache *open_at(const char *directory, uint64_t capacity, uint32_t shards, uint64_t max_entries) {
    return require_open(directory, (shale_options){.capacity = capacity,
                                                   .shards = shards,
                                                   .max_entries = max_entries,
                                                   .compression = SHALE_COMPRESSION_NONE,
                                                   .flags = SHALE_OPEN_NO_SYNC,
                                                   .now_ms = clock_ms});
}

static shale_status put(shale_cache *cache, const char *key, size_t size, int64_t age, int64_t stale, const char *tag) {
    shale_bytes tags = {tag, tag ? strlen(tag) : 0};
    shale_set_options options = {
        .struct_size = sizeof options, .max_age_ms = age, .stale_ms = stale, .tags = &tags, .tag_count = tag != NULL};
    return shale_set(cache, key, strlen(key), bytes, size, &options);
}

/* MARK: Misses */

typedef enum { absent, expired, invalidated, damaged, reasons } reason;
static const char *const reason_names[] = {"absent", "expired", "invalidated", "damaged"};
static const uint32_t reason_flags[] = {0, SHALE_VALUE_EXPIRED, SHALE_VALUE_INVALIDATED, SHALE_VALUE_DAMAGED};

typedef struct {
    uint64_t hits, stale_hits, misses, by_reason[reasons], leases, conflicts;
} counts;

static counts counts_of(shale_cache *cache) {
    shale_stats s = stats_of(cache);
    return (counts){s.hits,   s.stale_hits,
                    s.misses, {s.misses_absent, s.misses_expired, s.misses_invalidated, s.misses_damaged},
                    s.leases, s.conflicts};
}

/* The ways to ask: each counts the key once. */
typedef enum { by_get, by_info, by_token, by_batch, by_lease, by_waiting_lease, ways } way;
static const char *const way_names[] = {"get", "info", "token", "batch", "lease", "waiting lease"};

/* The answer; `flags` gets the value's flags. */
static shale_status ask(shale_cache *cache, const char *key, way how, uint32_t stale, uint32_t *flags) {
    shale_value value = SHALE_VALUE_INIT;
    shale_bytes keys = {key, strlen(key)};
    shale_lease_options options = {.struct_size = sizeof options, .flags = stale, .wait_ms = how == by_waiting_lease};
    shale_status status = SHALE_OK;
    uint64_t lease = 0;
    switch (how) {
    case by_info: status = get_text(cache, key, stale | SHALE_GET_INFO, &value); break;
    case by_token: status = get_text(cache, key, stale | SHALE_GET_TOKEN, &value); break;
    case by_batch: CHECK_STATUS(SHALE_OK, shale_get_many(cache, 1, &keys, stale, &value, &status)); break;
    case by_lease:
    case by_waiting_lease: status = shale_lease(cache, key, strlen(key), &options, &value, &lease); break;
    default: status = get_text(cache, key, stale, &value); break;
    }
    if (lease)
        CHECK_STATUS(SHALE_OK, shale_release(cache, key, strlen(key), lease));
    *flags = value.flags;
    shale_value_free(&value);
    return status;
}

/* Asks once, and checks which counters that has changed. */
static void expect_miss(shale_cache *cache, const char *key, way how, uint32_t stale, reason why) {
    counts before = counts_of(cache);
    uint32_t flags = ~0u;
    shale_status status = ask(cache, key, how, stale, &flags);
    counts after = counts_of(cache);
    bool is_so = status == SHALE_MISS && flags == reason_flags[why] && after.misses == before.misses + 1 &&
                 after.hits == before.hits && after.stale_hits == before.stale_hits;
    for (int i = 0; i < reasons; i++)
        is_so = is_so && after.by_reason[i] == before.by_reason[i] + (i == (int)why);
    check_that(is_so, __FILE__, __LINE__, key, ": a %s is not counted once as %s", way_names[how], reason_names[why]);
}

/* In each way, also with stale values allowed, if that makes no difference. */
static void expect_misses(shale_cache *cache, const char *key, bool even_stale, reason why) {
    for (way how = 0; how < ways; how++) {
        expect_miss(cache, key, how, 0, why);
        if (even_stale)
            expect_miss(cache, key, how, SHALE_GET_STALE, why);
    }
}

static void test_misses(uint32_t shards, size_t size) {
    shale_cache *cache = open_at(NULL, 16 << 20, shards, 0);
    CHECK_STATUS(SHALE_OK, put(cache, "short", size, minute, SHALE_NONE, NULL));
    CHECK_STATUS(SHALE_OK, put(cache, "kept", size, minute, minute, NULL));
    CHECK_STATUS(SHALE_OK, put(cache, "tagged", size, SHALE_NEVER, SHALE_NONE, "tag"));
    CHECK_STATUS(SHALE_OK, put(cache, "tagged and short", size, minute, SHALE_NONE, "tag"));
    CHECK_STATUS(SHALE_OK, put(cache, "there", size, SHALE_NEVER, SHALE_NONE, NULL));
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3));
    expect_misses(cache, "absent", true, absent);
    expect_misses(cache, "tagged", true, invalidated);
    now += minute;
    expect_misses(cache, "short", true, expired);
    /* An entry that is both counts as the first that is checked. */
    expect_misses(cache, "tagged and short", true, expired);
    /* Past its age and kept: a miss for callers that do not accept stale values, and none for those that do. */
    expect_misses(cache, "kept", false, expired);
    for (way how = 0; how < ways; how++) {
        uint32_t flags;
        counts before = counts_of(cache);
        CHECK_STATUS(SHALE_STALE, ask(cache, "kept", how, SHALE_GET_STALE, &flags));
        CHECK_EQUAL(SHALE_VALUE_STALE, flags);
        CHECK_STATUS(SHALE_OK, ask(cache, "there", how, 0, &flags));
        CHECK_EQUAL(0, flags);
        counts after = counts_of(cache);
        CHECK(after.misses == before.misses && after.stale_hits == before.stale_hits + 1 &&
              after.hits == before.hits + 1);
    }
    now += minute;
    expect_misses(cache, "kept", true, expired);
    /* A peek is not counted. */
    counts before = counts_of(cache);
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_MISS, get_text(cache, "absent", SHALE_GET_PEEK, &value));
    CHECK_EQUAL(0, value.flags);
    CHECK_STATUS(SHALE_MISS, get_text(cache, "short", SHALE_GET_PEEK, &value));
    CHECK_EQUAL(SHALE_VALUE_EXPIRED, value.flags);
    counts after = counts_of(cache);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    /* A swept entry leaves no reason. */
    CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
    expect_misses(cache, "short", true, absent);
    shale_value_free(&value);
    shale_close(cache);
}

static void test_small(void) {
    test_misses(1, 100);
}
static void test_large(void) {
    test_misses(1, large);
    test_misses(4, large);
}

/* Changes a byte of the value that begins with these bytes, in every place in the file. */
static void damage(const char *directory, const unsigned char *start, size_t size, size_t at) {
    mapped_file data = map_file(directory, "shale.data");
    unsigned char *found = memmem(data.bytes, data.size, start, size);
    REQUIRE(found != NULL);
    found[at] ^= 1;
    unmap_file(&data);
}

static void test_damaged(void) {
    char *directory = path_to("damaged");
    shale_cache *cache = open_at(directory, 16 << 20, 1, 0);
    for (way how = 0; how < ways; how++)
        for (int is_large = 0; is_large < 2; is_large++) {
            /* (A read of the description alone checks no parts, and no body that has no meta.) */
            if (how == by_info && is_large)
                continue;
            shale_set_options options = {.struct_size = sizeof options, .meta = "meta", .meta_size = 4};
            unsigned char value[200000];
            random_source source = {how * 2 + (unsigned)is_large};
            for (size_t i = 0; i < sizeof value; i++)
                value[i] = (unsigned char)random_next(&source);
            size_t size = is_large ? sizeof value : 1000;
            CHECK_STATUS(SHALE_OK, shale_set(cache, "damaged", 7, value, size, &options));
            damage(directory, value, 64, 500);
            expect_miss(cache, "damaged", how, 0, damaged);
            /* After that it is absent. */
            expect_miss(cache, "damaged", how, 0, absent);
        }
    shale_close(cache);
    free(directory);
}

static void test_read_only(void) {
    char *directory = path_to("read only");
    shale_cache *cache = open_at(directory, 16 << 20, 1, 0);
    CHECK_STATUS(SHALE_OK, put(cache, "short", 100, minute, SHALE_NONE, NULL));
    now += minute;
    shale_options options = {.struct_size = sizeof options, .flags = SHALE_OPEN_READ_ONLY, .now_ms = clock_ms};
    shale_cache *reader = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &reader));
    counts before = counts_of(cache);
    uint32_t flags;
    CHECK_STATUS(SHALE_MISS, ask(reader, "short", by_get, 0, &flags));
    CHECK_EQUAL(SHALE_VALUE_EXPIRED, flags); /* returned, and not counted */
    counts after = counts_of(cache);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    shale_close(reader);
    shale_close(cache);
    free(directory);
}

/* MARK: Loads */

static uint64_t lease_of(shale_cache *cache, const char *key, shale_status expected) {
    shale_value value = SHALE_VALUE_INIT;
    uint64_t lease = 0;
    CHECK_STATUS(expected, shale_lease(cache, key, strlen(key), NULL, &value, &lease));
    shale_value_free(&value);
    return lease;
}

static shale_status put_fenced(shale_cache *cache, const char *key, size_t size, uint32_t flags, uint64_t token) {
    shale_set_options options = {.struct_size = sizeof options, .flags = flags, .version = token};
    return shale_set(cache, key, strlen(key), bytes, size, &options);
}

static void test_loads(void) {
    shale_cache *cache = open_at(NULL, 16 << 20, 1, 0);
    uint64_t lease = lease_of(cache, "key", SHALE_MISS);
    CHECK(lease != 0);
    CHECK_EQUAL(1, counts_of(cache).leases);
    /* A caller without a lease has not begun a load; renewing a lease begins no other load. */
    CHECK_EQUAL(0, lease_of(cache, "key", SHALE_MISS));
    CHECK_STATUS(SHALE_OK, shale_renew(cache, "key", 3, lease, 0));
    CHECK_EQUAL(1, counts_of(cache).leases);
    CHECK_STATUS(SHALE_OK, put_fenced(cache, "key", 10, SHALE_SET_IF_UNCHANGED, lease));
    CHECK_STATUS(SHALE_OK, shale_release(cache, "key", 3, lease));
    CHECK_EQUAL(0, lease_of(cache, "key", SHALE_OK));
    CHECK_EQUAL(1, counts_of(cache).leases);
    CHECK(lease_of(cache, "other", SHALE_MISS) != 0);
    CHECK_EQUAL(2, counts_of(cache).leases);
    CHECK_EQUAL(0, counts_of(cache).conflicts);

    /* A small value, a large one that is refused at once, and one whose key changes while its parts are stored are
     * one conflict each; refusals by other conditions are none. */
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "key", 10, SHALE_SET_IF_UNCHANGED, lease));
    CHECK_EQUAL(1, counts_of(cache).conflicts);
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "key", large, SHALE_SET_IF_UNCHANGED, lease));
    CHECK_EQUAL(2, counts_of(cache).conflicts);
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "key", 10, SHALE_SET_IF_ABSENT, 0));
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "key", large, SHALE_SET_IF_ABSENT, 0));
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "key", 10, SHALE_SET_IF_VERSION, lease));
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "absent", 10, SHALE_SET_IF_PRESENT, 0));
    CHECK_EQUAL(2, counts_of(cache).conflicts);
    shale_close(cache);
}

static uint64_t token_of(shale_cache *cache, const char *key) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_MISS, get_text(cache, key, SHALE_GET_TOKEN, &value));
    uint64_t token = value.version;
    shale_value_free(&value);
    return token;
}

/* Each refused set is counted under one reason. */
typedef struct {
    uint64_t key, tag, line, floor;
} refusals;

static void check_refused(shale_cache *cache, const char *key, uint64_t token, refusals *r, uint64_t *expected,
                          int line) {
    static const char *const names[] = {"tag", "other"};
    shale_bytes tags[] = {{names[0], 3}, {names[1], 5}};
    shale_set_options options = {
        .struct_size = sizeof options, .flags = SHALE_SET_IF_UNCHANGED, .version = token, .tags = tags, .tag_count = 2};
    unsigned failures = check_failures;
    ++*expected;
    CHECK_STATUS(SHALE_CONFLICT, shale_set(cache, key, strlen(key), bytes, 10, &options));
    shale_stats s = stats_of(cache);
    CHECK_EQUAL(r->key, s.conflicts_key);
    CHECK_EQUAL(r->tag, s.conflicts_tag);
    CHECK_EQUAL(r->line, s.conflicts_overflow);
    CHECK_EQUAL(r->floor, s.conflicts_reset);
    CHECK_EQUAL(r->key + r->tag + r->line + r->floor, s.conflicts);
    if (check_failures != failures)
        fprintf(stderr, "  refused in line %d\n", line);
}
#define IS_REFUSED(key, token, field) check_refused(cache, key, token, &r, &r.field, __LINE__)

static void test_reasons_of_conflicts(void) {
    shale_cache *cache = open_at(NULL, 16 << 20, 1, 0);
    refusals r = {0};
    IS_REFUSED("key", 1, floor); /* no token was drawn yet */
    uint64_t token = token_of(cache, "key");
    CHECK_STATUS(SHALE_OK, put(cache, "key", 10, SHALE_NEVER, SHALE_NONE, NULL));
    IS_REFUSED("key", token, key);
    CHECK_STATUS(SHALE_OK, shale_remove(cache, "key", 3, 0));
    IS_REFUSED("key", token, key);
    token = token_of(cache, "key");
    CHECK_STATUS(SHALE_OK, put(cache, "key", 10, SHALE_NEVER, SHALE_NONE, NULL));
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, NULL));
    IS_REFUSED("key", token, key);
    token = token_of(cache, "key");
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "other", 5));
    IS_REFUSED("key", token, tag);
    /* More other keys change than the cache records; the key's own comes last, the tag's are still recorded. */
    token = token_of(cache, "key");
    for (uint64_t i = 0; i < 200000; i++)
        CHECK_STATUS(SHALE_MISS, shale_remove(cache, &i, sizeof i, 0));
    IS_REFUSED("key", token, line);
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "other", 5));
    IS_REFUSED("key", token, tag);
    CHECK_STATUS(SHALE_MISS, shale_remove(cache, "key", 3, 0));
    IS_REFUSED("key", token, key);
    CHECK_STATUS(SHALE_OK, shale_clear(cache));
    IS_REFUSED("key", token, floor);
    IS_REFUSED("key", UINT64_MAX, floor);
    shale_close(cache);
}

/* MARK: Evicted entries */

static const char *name(unsigned n) {
    static char text[16];
    snprintf(text, sizeof text, "n%07u", n);
    return text;
}

static bool is_about(uint64_t expected, uint64_t got, uint64_t off_by) {
    return got + off_by >= expected && got <= expected + off_by;
}

/* A full cache, in which each entry is used once, after a quarter of its life: ages are known exactly, idle times to
 * a thirty-second, whatever the rate of uses is. `pause`: of the clock, after each set. */
static void check_evicted(unsigned entries, int64_t pause, bool in_bursts) {
    shale_cache *cache = open_at(NULL, 64 << 20, 1, entries);
    shale_value value = SHALE_VALUE_INIT;
    unsigned quarter = entries / 4;
    uint64_t age = 0, idle = 0;
    int64_t *set_at = calloc(8 * (size_t)entries, sizeof *set_at),
            *used_at = calloc(8 * (size_t)entries, sizeof *used_at);
    REQUIRE(set_at && used_at);
    for (unsigned n = 0; n < 8 * entries; n++) {
        now += in_bursts ? n / quarter % 2 ? 2 * pause : 0 : pause;
        set_at[n] = used_at[n] = now;
        CHECK_STATUS(SHALE_OK, put(cache, name(n), 10, 0, 0, NULL));
        if (n >= quarter) {
            CHECK_STATUS(SHALE_OK, get_text(cache, name(n - quarter), 0, &value));
            used_at[n - quarter] = now;
        }
    }
    shale_stats stats = stats_of(cache);
    /* In the order of their last use, which is that of their sets. */
    for (unsigned n = 0; n < 7 * entries; n++)
        CHECK_STATUS(SHALE_MISS, get_text(cache, name(n), SHALE_GET_PEEK, &value));
    CHECK_EQUAL(7 * entries, stats.evictions);
    CHECK_EQUAL(stats.evictions, stats.evicted_timed);
    /* Each was evicted when the entry came that took its place. */
    for (unsigned n = 0; n < 7 * entries; n++) {
        age += (uint64_t)(set_at[n + entries] - set_at[n]);
        idle += (uint64_t)(set_at[n + entries] - used_at[n]);
    }
    CHECK_EQUAL(age, stats.evicted_age_ms);
    /* At a steady rate the error is close to zero. */
    uint64_t off_by = age / (in_bursts ? 32 : 512);
    check_that(is_about(idle, stats.evicted_idle_ms, off_by), __FILE__, __LINE__, "idle",
               ": %u entries, %d ms%s: %llu, expected %llu", entries, (int)pause, in_bursts ? " in bursts" : "",
               (unsigned long long)stats.evicted_idle_ms, (unsigned long long)idle);
    shale_value_free(&value);
    shale_close(cache);
    free(set_at);
    free(used_at);
}

static void test_evicted(void) {
    check_evicted(1000, 100, false);
    check_evicted(1000, 100, true);
    check_evicted(20000, 3, false);
    check_evicted(20000, 3, true);
}

/* The first moment is noted with the first change, and the later ones suffice however long nothing is evicted. */
static void test_first_eviction(void) {
    shale_cache *cache = open_at(NULL, 64 << 20, 1, 0);
    for (unsigned n = 0; n < 50000; n++) {
        now += 10;
        CHECK_STATUS(SHALE_OK, put(cache, name(n), 10, 0, 0, NULL));
    }
    uint64_t evicted = 0;
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 1000, &evicted));
    CHECK_EQUAL(1000, evicted);
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(1000, stats.evicted_timed);
    /* From the first set to now, less the time before each. None was used since. */
    uint64_t age = 1000 * 499990 - 10 * 999 * 1000 / 2;
    CHECK_EQUAL(age, stats.evicted_age_ms);
    CHECK(is_about(age, stats.evicted_idle_ms, age / 512));
    shale_value value = SHALE_VALUE_INIT;
    for (unsigned n = 1000; n < 50000; n++)
        CHECK_STATUS(SHALE_OK, get_text(cache, name(n), 0, &value));
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 1000, &evicted));
    CHECK_EQUAL(1000, evicted);
    uint64_t before = stats.evicted_idle_ms;
    stats = stats_of(cache);
    CHECK_EQUAL(2000, stats.evicted_timed);
    /* All reads were at one moment, without a change in between: they count as if they had come since the last
     * change. */
    CHECK(stats.evicted_idle_ms - before <= 1000 * 500000 / 32);
    shale_value_free(&value);
    shale_close(cache);
}

/* A set is a use: an entry's idle time is never longer than its age, although a steady rate would say so. */
static void test_idle_within_age(void) {
    shale_cache *cache = open_at(NULL, 16 << 20, 1, 0);
    for (unsigned n = 0; n < 100; n++)
        CHECK_STATUS(SHALE_OK, put(cache, name(n), 10, 0, 0, NULL));
    now += 60 * minute;
    for (unsigned n = 100; n < 110; n++)
        CHECK_STATUS(SHALE_OK, put(cache, name(n), 10, 0, 0, NULL));
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 100, NULL));
    shale_stats before = stats_of(cache);
    CHECK_EQUAL(100 * 60 * minute, before.evicted_age_ms);
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 10, NULL));
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(110, stats.evicted_timed);
    CHECK_EQUAL(before.evicted_age_ms, stats.evicted_age_ms);
    CHECK_EQUAL(before.evicted_idle_ms, stats.evicted_idle_ms);
    shale_close(cache);
}

/* A clock that goes back gives no times below zero, and a rebuilt index has no known moments. */
static void test_clocks(void) {
    char *directory = path_to("clocks");
    shale_cache *cache = open_at(directory, 16 << 20, 1, 0);
    for (unsigned n = 0; n < 100; n++)
        CHECK_STATUS(SHALE_OK, put(cache, name(n), 10, 0, 0, NULL));
    now -= 10 * minute;
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 50, NULL));
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(50, stats.evicted_timed);
    CHECK_EQUAL(0, stats.evicted_age_ms);
    CHECK_EQUAL(0, stats.evicted_idle_ms);
    shale_close(cache);
    remove_index(directory);
    cache = open_at(directory, 0, 0, 0);
    now += 20 * minute;
    CHECK_STATUS(SHALE_OK, put(cache, "new", 10, 0, 0, NULL)); /* the first moment that is known */
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 40, NULL));
    stats = stats_of(cache);
    CHECK_EQUAL(40, stats.evictions);
    CHECK_EQUAL(0, stats.evicted_timed);
    shale_close(cache);
    free(directory);
}

int main(void) {
    watch(patience);
    random_source source = {1};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)random_next(&source);
    RUN(test_small);
    RUN(test_large);
    RUN(test_damaged);
    RUN(test_read_only);
    RUN(test_loads);
    RUN(test_reasons_of_conflicts);
    RUN(test_evicted);
    RUN(test_first_eviction);
    RUN(test_idle_within_age);
    RUN(test_clocks);
    return finish();
}
