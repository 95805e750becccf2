/* SHALE_EVICTION_CLOCK: entries that were used since they were written, or last kept, stay; the others are evicted,
 * the oldest first. */
#include "check.h"
#include "files.h"
#include "pattern.h"

enum { capacity = 8 << 20, size = 1000, large = 60000, most_uses = 3 };

static unsigned char bytes[large];
static uint64_t next_filler;
static int64_t clock_ms = 1700000000000;

static int64_t read_clock(void *context) {
    return *(int64_t *)context;
}

static shale_cache *open_with(const char *directory, uint64_t max_entries) {
    return require_open(directory, (shale_options){.capacity = capacity,
                                                   .max_entries = max_entries,
                                                   .eviction = SHALE_EVICTION_CLOCK,
                                                   .compression = SHALE_COMPRESSION_NONE,
                                                   .flags = SHALE_OPEN_NO_SYNC,
                                                   .now_ms = read_clock,
                                                   .now_context = &clock_ms});
}

static void put_value(shale_cache *cache, const char *key, size_t length, const shale_set_options *options) {
    REQUIRE_STATUS(SHALE_OK, shale_set(cache, key, strlen(key), bytes, length, options));
}
static void put(shale_cache *cache, const char *key) {
    put_value(cache, key, size, NULL);
}

/* Reads without a use. */
static bool is_there(shale_cache *cache, const char *key) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = shale_get(cache, key, strlen(key), SHALE_GET_PEEK, &value);
    CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
    shale_value_free(&value);
    return status == SHALE_OK;
}

static void use(shale_cache *cache, const char *key, int times) {
    shale_value value = SHALE_VALUE_INIT;
    for (int i = 0; i < times; i++)
        CHECK_STATUS(SHALE_OK, shale_get(cache, key, strlen(key), 0, &value));
    shale_value_free(&value);
}

/* An entry that is never used. */
static void fill(shale_cache *cache) {
    char key[32];
    snprintf(key, sizeof key, "filler %" PRIu64, next_filler++);
    put(cache, key);
}

/* Until all earlier records have come to the tail once. */
static void lap(shale_cache *cache) {
    put(cache, "marker");
    for (int i = 0; is_there(cache, "marker"); i++) {
        REQUIRE(i < 4 * capacity / size);
        fill(cache);
    }
}

static void keeps_what_is_used(uint64_t max_entries) {
    shale_cache *cache = open_with(NULL, max_entries);
    for (int i = 0; i < 2 * capacity / size; i++)
        fill(cache);
    char keys[most_uses + 3][16];
    for (int uses = 0; uses <= most_uses + 2; uses++) {
        snprintf(keys[uses], sizeof keys[uses], "%d uses", uses);
        put(cache, keys[uses]);
        use(cache, keys[uses], uses);
    }
    for (int laps = 1; laps <= most_uses + 1; laps++) {
        lap(cache);
        for (int uses = 0; uses <= most_uses + 2; uses++) {
            int kept = uses < most_uses ? uses : most_uses;
            if (!CHECK_EQUAL(laps <= kept, is_there(cache, keys[uses])))
                fprintf(stderr, "  after %d laps, %s\n", laps, keys[uses]);
        }
    }
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(SHALE_EVICTION_CLOCK, stats.eviction);
    CHECK(max_entries == 0 || stats.entries <= max_entries);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
}
static void in_a_full_log(void) {
    keeps_what_is_used(0);
}
static void below_a_limit_of_entries(void) {
    keeps_what_is_used(1000);
}

/* The first evicted entries are unused ones, too. */
static void when_it_is_full_for_the_first_time(void) {
    enum { used = 100 };
    for (int64_t mebibytes = 1; mebibytes <= 16; mebibytes *= 2) {
        shale_cache *cache = require_open(NULL, (shale_options){.capacity = (uint64_t)mebibytes << 20,
                                                                .eviction = SHALE_EVICTION_CLOCK,
                                                                .compression = SHALE_COMPRESSION_NONE});
        char key[32];
        for (int i = 0; i < used; i++) {
            snprintf(key, sizeof key, "used %d", i);
            put(cache, key);
            use(cache, key, most_uses);
        }
        while (stats_of(cache).evictions < 100)
            fill(cache);
        for (int i = 0; i < used; i++) {
            snprintf(key, sizeof key, "used %d", i);
            CHECK(is_there(cache, key));
        }
        REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    }
}

/* A limit of entries leaves nothing dead behind it: the log stays as small as its live entries. */
static void a_limit_of_entries_keeps_the_log_small(void) {
    shale_cache *cache = open_with(NULL, 1000);
    for (int i = 0; i < 20000; i++)
        fill(cache);
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(1000, stats.entries);
    CHECK_EQUAL(19000, stats.evictions);
    CHECK(stats.data_bytes < 3 << 20);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
}

/* A set of a present key is a use of it. */
static void a_set_is_a_use(void) {
    shale_cache *cache = open_with(NULL, 0);
    for (int i = 0; i < 2 * capacity / size; i++)
        fill(cache);
    put(cache, "once");
    put(cache, "twice");
    put(cache, "twice");
    lap(cache);
    CHECK(!is_there(cache, "once"));
    CHECK(is_there(cache, "twice"));
    lap(cache);
    CHECK(!is_there(cache, "twice"));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
}

/* Replaced values leave holes in the log. While a tenth of it is dead, cleaning is enough. */
static void replacing_evicts_nothing(void) {
    shale_cache *cache = open_with(NULL, 0);
    enum { keys = capacity / 10 * 8 / (size + 80) };
    random_source source = {1};
    char key[32];
    for (int i = 0; i < keys * 8; i++) {
        snprintf(key, sizeof key, "key %d", i < keys ? i : (int)random_below(&source, keys));
        put(cache, key);
    }
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(0, stats.evictions);
    CHECK_EQUAL(keys, stats.entries);
    CHECK(stats.cleaned_bytes > capacity);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
}

/* Pinned entries stay, used or not, and expired ones leave by their age. */
static void pins_and_ages(void) {
    shale_cache *cache = open_with(NULL, 0);
    put_value(cache, "pinned", size,
              &(shale_set_options){.struct_size = sizeof(shale_set_options), .flags = SHALE_SET_PINNED});
    put_value(cache, "short", size, &(shale_set_options){.struct_size = sizeof(shale_set_options), .max_age_ms = 1000});
    use(cache, "short", most_uses);
    clock_ms += 2000;
    for (int i = 0; i < 3; i++)
        lap(cache);
    CHECK(is_there(cache, "pinned"));
    CHECK_EQUAL(1, stats_of(cache).expirations);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
}

/* The parts of a large value stay and are evicted with it. */
static void large_values(void) {
    shale_cache *cache = open_with(NULL, 0);
    for (int i = 0; i < 2 * capacity / size; i++)
        fill(cache);
    put_value(cache, "used", large, NULL);
    put_value(cache, "unused", large, NULL);
    use(cache, "used", 1);
    lap(cache);
    CHECK(is_there(cache, "used"));
    CHECK(!is_there(cache, "unused"));
    lap(cache);
    CHECK(!is_there(cache, "used"));
    /* No part is left of either. */
    for (int i = 0; i < 2; i++)
        lap(cache);
    shale_stats stats = stats_of(cache);
    CHECK(stats.raw_bytes == stats.entries * size);
    CHECK(stats.live_bytes < stats.entries * (size + 100));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
}

/* The disk has more entries than the directory ever holds, and nearly all are live. */
static void fills_the_capacity(void) {
    shale_cache *cache = open_with(NULL, 0);
    for (int i = 0; i < 8 * capacity / size; i++)
        fill(cache);
    shale_stats stats = stats_of(cache);
    CHECK(stats.data_bytes + stats.index_bytes <= capacity);
    CHECK(stats.live_bytes > capacity / 100 * 80);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
}

static void belongs_to_the_cache(void) {
    char *directory = path_to("kept");
    shale_options options = {.struct_size = sizeof options, .capacity = 4 << 20};
    shale_cache *cache = NULL;
    options.eviction = 2;
    CHECK_STATUS(SHALE_E_INVALID, shale_open(directory, &options, &cache));
    CHECK(strstr(shale_last_error(), "SHALE_EVICTION"));
    options.eviction = SHALE_EVICTION_CLOCK;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    put(cache, "key");
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    for (int i = 0; i < 3; i++) { /* by default; with another capacity; as it was made */
        options.eviction = i == 2 ? SHALE_EVICTION_CLOCK : SHALE_EVICTION_LRU;
        options.capacity = i == 1 ? 8 << 20 : 0;
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
        CHECK_EQUAL(SHALE_EVICTION_CLOCK, stats_of(cache).eviction);
        CHECK(is_there(cache, "key"));
        REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    }
    free(directory);

    directory = path_to("lru");
    options = (shale_options){.struct_size = sizeof options, .capacity = 4 << 20};
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    CHECK_EQUAL(SHALE_EVICTION_LRU, stats_of(cache).eviction);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    options.eviction = SHALE_EVICTION_CLOCK;
    CHECK_STATUS(SHALE_E_INVALID, shale_open(directory, &options, &cache));
    CHECK(strstr(shale_last_error(), directory) && strstr(shale_last_error(), "LRU"));
    free(directory);
}

int main(void) {
    RUN(in_a_full_log);
    RUN(below_a_limit_of_entries);
    RUN(when_it_is_full_for_the_first_time);
    RUN(a_limit_of_entries_keeps_the_log_small);
    RUN(a_set_is_a_use);
    RUN(replacing_evicts_nothing);
    RUN(pins_and_ages);
    RUN(large_values);
    RUN(fills_the_capacity);
    RUN(belongs_to_the_cache);
    return finish();
}
