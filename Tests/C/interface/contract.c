/* Tests what the header says of arguments, of what calls count, and of what they refuse. */
#include "check.h"
#include "files.h"

static const shale_options small = {.struct_size = sizeof small, .capacity = 4 << 20, .flags = SHALE_OPEN_NO_SYNC};

static int64_t now = 1000000;
static int64_t clock_ms(void *context UNUSED) {
    return now;
}

static void expect_said(const char *words) {
    check_that(strstr(shale_last_error(), words) != NULL, __FILE__, __LINE__, words, ": not in \"%s\"",
               shale_last_error());
}

static void test_reserved_fields(void) {
    shale_options options = small;
    shale_cache *cache = NULL;
    options.reserved = 1;
    CHECK_STATUS(SHALE_E_INVALID, shale_open(NULL, &options, &cache));
    expect_said("reserved");
    options.struct_size = offsetof(shale_options, eviction); /* a caller that does not know the field has not set it */
    CHECK_STATUS(SHALE_OK, shale_open(NULL, &options, &cache));
    shale_stats stats = {.struct_size = sizeof stats, .reserved = 1}; /* need not be zeroed */
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    CHECK_EQUAL(0, stats.reserved);
    shale_report report = {.struct_size = sizeof report, .reserved = 1};
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.reserved);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* Zeroed values, as Go, Rust and ctypes make them, work like SHALE_VALUE_INIT. */
static void test_zeroed_values(void) {
    shale_cache *cache = require_open(NULL, small);
    shale_value value, key;
    shale_cursor *cursor = NULL;
    uint64_t lease = 0;
    memset(&value, 0, sizeof value);
    memset(&key, 0, sizeof key);
    shale_value_free(&value);
    CHECK_STATUS(SHALE_MISS, get_text(cache, "key", 0, &value));
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    for (int i = 0; i < 2; i++) { /* then with the buffer that it has grown */
        CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
        CHECK_TEXT(&value, "value");
        CHECK_STATUS(SHALE_OK, shale_get_many(cache, 1, &(shale_bytes){"key", 3}, 0, &value, NULL));
        CHECK_TEXT(&value, "value");
        CHECK_STATUS(SHALE_OK, shale_lease(cache, "key", 3, NULL, &value, &lease));
        CHECK_TEXT(&value, "value");
        CHECK(value.stored_size > 0);
        REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
        CHECK_STATUS(SHALE_OK, shale_cursor_next(cursor, 0, &key, &value));
        CHECK_TEXT(&key, "key");
        CHECK_TEXT(&value, "value");
        shale_cursor_close(cursor);
        shale_value_free(&key);
        shale_value_free(&value);
        CHECK(value.data == NULL && value.capacity == 0);
    }
    value.struct_size = sizeof value - 1;
    CHECK_STATUS(SHALE_E_INVALID, get_text(cache, "key", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void test_a_value_as_key_and_value(void) {
    shale_cache *cache = require_open(NULL, small);
    shale_value value = SHALE_VALUE_INIT;
    shale_cursor *cursor = NULL;
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    CHECK_STATUS(SHALE_E_INVALID, shale_cursor_next(cursor, 0, &value, &value));
    expect_said("same object");
    CHECK_STATUS(SHALE_OK, shale_cursor_next(cursor, 0, &value, NULL)); /* the cursor has not moved on */
    CHECK_TEXT(&value, "key");
    CHECK_STATUS(SHALE_END, shale_cursor_next(cursor, 0, NULL, NULL));
    shale_cursor_close(cursor);
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* An entry limit below the number of pinned entries is refused, as a capacity is, and the attempt evicts nothing. */
static void test_entry_limit_below_pins(uint32_t shards) {
    enum { pinned = 40, others = 100 };
    char *directory = path_to(shards == 1 ? "limit" : "limits");
    shale_options options = small;
    options.shards = shards;
    options.segment_size = 128 << 10;
    options.now_ms = clock_ms;
    shale_cache *cache = require_open(directory, options);
    shale_set_options how = {.struct_size = sizeof how, .flags = SHALE_SET_PINNED};
    for (uint32_t i = 0; i < pinned + others; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, "value", 5, i < pinned ? &how : NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    /* The same with another capacity: none fits, one has room, one takes a new index. */
    static const uint64_t capacities[] = {0, (4 << 20) - 4096, 8 << 20, 64 << 20};
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        options.max_entries = pinned / 2;
        options.capacity = capacities[i];
        CHECK_STATUS(SHALE_E_FULL, shale_open(directory, &options, &cache));
        expect_said("max_entries");
        expect_said(directory);
        options.max_entries = options.capacity = 0;
        cache = require_open(directory, options);
        CHECK_EQUAL(0, stats_of(cache).max_entries);
        CHECK_EQUAL(pinned + others, stats_of(cache).entries);
        CHECK_EQUAL(0, stats_of(cache).evictions);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    /* Dead pinned entries do not count. */
    cache = require_open(directory, options);
    how.max_age_ms = 1;
    for (uint32_t i = 0; i < pinned; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, "value", 5, i % 10 ? &how : NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    now += 60 * 60 * 1000;
    options.max_entries = pinned / 2;
    cache = require_open(directory, options);
    CHECK(stats_of(cache).entries <= pinned / 2);
    CHECK_EQUAL(pinned / 2, stats_of(cache).max_entries);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}
static void test_entry_limits_below_pins(void) {
    test_entry_limit_below_pins(1);
    test_entry_limit_below_pins(4);
}

/* A stale number does not count: the sum starts again, with the default age and without tags and meta. */
static void test_increment_of_a_stale_entry(void) {
    shale_options options = small;
    options.now_ms = clock_ms;
    shale_cache *cache = require_open(NULL, options);
    shale_value value = SHALE_VALUE_INIT;
    shale_set_options how = {
        .struct_size = sizeof how, .max_age_ms = 1000, .stale_ms = SHALE_NEVER, .meta = "meta", .meta_size = 4};
    int64_t number = 5;
    CHECK_STATUS(SHALE_OK, shale_set(cache, "n", 1, &number, sizeof number, &how));
    CHECK_STATUS(SHALE_OK, shale_increment(cache, "n", 1, 1, 100, &number));
    CHECK_EQUAL(6, number);
    now += 1000;
    CHECK_STATUS(SHALE_STALE, get_text(cache, "n", SHALE_GET_STALE, &value));
    CHECK_STATUS(SHALE_OK, shale_increment(cache, "n", 1, 1, 100, &number));
    CHECK_EQUAL(101, number);
    CHECK_STATUS(SHALE_OK, get_text(cache, "n", 0, &value));
    CHECK(value.meta_size == 0 && value.expires_ms == SHALE_NEVER);
    /* Of any kind. */
    CHECK_STATUS(SHALE_OK, shale_set(cache, "n", 1, "text", 4, &how));
    CHECK_STATUS(SHALE_E_INVALID, shale_increment(cache, "n", 1, 1, 100, &number));
    now += 1000;
    CHECK_STATUS(SHALE_OK, shale_increment(cache, "n", 1, 1, 100, &number));
    CHECK_EQUAL(101, number);
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* A large value that comes back from the log without some of its parts, because others needed their room, is an
 * absent key: nothing was damaged. */
static void test_damage_is_damage_alone(void) {
    static unsigned char large[1 << 20], other[20000];
    random_source source = {1};
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (unsigned char)random_next(&source);
    memcpy(other, large, sizeof other);
    unsigned lacking = 0;
    char *directory = path_to("lacking");
    for (uint32_t rounds = 100; rounds < 260; rounds += 8) {
        shale_options options = small;
        options.segment_size = 128 << 10;
        shale_cache *cache = require_open(directory, options);
        CHECK_STATUS(SHALE_OK, shale_set(cache, "large", 5, large, sizeof large, NULL));
        CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, NULL));
        for (uint32_t i = 0; i < rounds; i++) {
            uint32_t key = i % 50;
            CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, other, sizeof other, NULL));
        }
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_index(directory);
        cache = require_open(directory, options);
        shale_value value = SHALE_VALUE_INIT;
        bool is_known = get_text(cache, "large", SHALE_GET_INFO | SHALE_GET_PEEK, &value) == SHALE_OK;
        shale_status status = get_text(cache, "large", 0, &value);
        if (status == SHALE_MISS)
            CHECK_EQUAL(0, value.flags);
        else
            CHECK(CHECK_STATUS(SHALE_OK, status) && holds_bytes(&value, large, sizeof large));
        lacking += is_known && status == SHALE_MISS;
        shale_stats stats = stats_of(cache);
        CHECK_EQUAL(status == SHALE_MISS, stats.misses_absent);
        CHECK_EQUAL(0, stats.misses_damaged);
        CHECK_EQUAL(0, stats.corrupt_records);
        shale_value_free(&value);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(directory);
    }
    CHECK(lacking > 0);
    printf("%u values that lacked a part\n", lacking);
    free(directory);
}

int main(void) {
    watch(patience);
    RUN(test_reserved_fields);
    RUN(test_zeroed_values);
    RUN(test_a_value_as_key_and_value);
    RUN(test_entry_limits_below_pins);
    RUN(test_increment_of_a_stale_entry);
    RUN(test_damage_is_damage_alone);
    return finish();
}
