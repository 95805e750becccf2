/* Ages, on the test's own clock: fresh, stale, dead, touched. */
#include "check.h"

static int64_t clock_ms;

static int64_t read_clock(void *context) {
    return *(int64_t *)context;
}

static shale_cache *open_at(const char *directory, int64_t max_age_ms, int64_t stale_ms) {
    return require_open(directory, (shale_options){.capacity = 4 << 20,
                                                   .max_age_ms = max_age_ms,
                                                   .stale_ms = stale_ms,
                                                   .now_ms = read_clock,
                                                   .now_context = &clock_ms});
}

/* All entries are pinned, so none may be evicted; expired ones make room all the same. */
static void test_expired_pins_make_room(void) {
    clock_ms = 1700000000000;
    shale_options options = {.struct_size = sizeof options,
                             .capacity = 1 << 20,
                             .max_entries = 8,
                             .now_ms = read_clock,
                             .now_context = &clock_ms};
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(NULL, &options, &cache));
    shale_set_options pinned = {.struct_size = sizeof pinned, .flags = SHALE_SET_PINNED, .max_age_ms = 1000};
    for (int i = 0; i < 8; i++) {
        char key[16];
        snprintf(key, sizeof key, "pinned %d", i);
        CHECK_STATUS(SHALE_OK, set_text(cache, key, key, &pinned));
    }
    for (int i = 0; i < 10; i++)
        CHECK_STATUS(SHALE_E_FULL, set_text(cache, "new", "x", NULL));
    clock_ms += 3600 * 1000;
    CHECK_STATUS(SHALE_OK, set_text(cache, "new", "x", NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static shale_status set_aged(shale_cache *cache, const char *key, int64_t max_age_ms, int64_t stale_ms) {
    shale_set_options options = {.struct_size = sizeof options, .max_age_ms = max_age_ms, .stale_ms = stale_ms};
    return set_text(cache, key, key, &options);
}

#define CHECK_AGE(expected, key, flags, at)                                                                            \
    (clock_ms = (at), CHECK_STATUS(expected, get_text(cache, key, flags, &value)))

static void test_fresh_stale_dead(void) {
    const int64_t start = clock_ms = 1700000000123;
    shale_cache *cache = open_at(NULL, 0, 0);
    shale_value value = SHALE_VALUE_INIT;

    CHECK_STATUS(SHALE_OK, set_aged(cache, "plain", 0, 0));
    CHECK_STATUS(SHALE_OK, set_aged(cache, "aged", 1000, 0));
    CHECK_STATUS(SHALE_OK, set_aged(cache, "kept", 1000, 500));
    CHECK_STATUS(SHALE_OK, set_aged(cache, "never", SHALE_NEVER, 0));
    CHECK_STATUS(SHALE_OK, set_aged(cache, "forever stale", 1000, SHALE_NEVER));

    CHECK_AGE(SHALE_OK, "kept", 0, start);
    CHECK_EQUAL(start, value.created_ms);
    CHECK_EQUAL(start + 1000, value.expires_ms);
    CHECK_AGE(SHALE_OK, "aged", 0, start + 999);
    CHECK_AGE(SHALE_OK, "aged", SHALE_GET_STALE, start + 999);
    CHECK_EQUAL(0, value.flags);
    CHECK_AGE(SHALE_MISS, "aged", 0, start + 1001);
    CHECK_AGE(SHALE_MISS, "aged", SHALE_GET_STALE, start + 1001);
    CHECK_AGE(SHALE_OK, "kept", 0, start + 999);
    CHECK_AGE(SHALE_MISS, "kept", 0, start + 1001);
    CHECK_EQUAL(0, value.size);
    CHECK_AGE(SHALE_STALE, "kept", SHALE_GET_STALE, start + 1001);
    CHECK_TEXT(&value, "kept");
    CHECK_EQUAL(SHALE_VALUE_STALE, value.flags);
    CHECK_AGE(SHALE_STALE, "kept", SHALE_GET_STALE, start + 1499);
    CHECK_AGE(SHALE_MISS, "kept", SHALE_GET_STALE, start + 1501);
    CHECK_AGE(SHALE_STALE, "forever stale", SHALE_GET_STALE, start + 1000000000);
    CHECK_AGE(SHALE_OK, "plain", 0, start + 1000000000000);
    CHECK_EQUAL(SHALE_NEVER, value.expires_ms);
    CHECK_AGE(SHALE_OK, "never", 0, start + 1000000000000);
    CHECK_EQUAL(SHALE_NEVER, value.expires_ms);
    shale_value_free(&value);
    shale_close(cache);
}

static void test_defaults_and_none(void) {
    const int64_t start = clock_ms = 1700000000000;
    shale_cache *cache = open_at(NULL, 1000, 500);
    shale_value value = SHALE_VALUE_INIT;

    CHECK_STATUS(SHALE_OK, set_text(cache, "default", "default", NULL));
    CHECK_STATUS(SHALE_OK, set_aged(cache, "own", 100, 0));
    CHECK_STATUS(SHALE_OK, set_aged(cache, "not kept", 0, SHALE_NONE));
    CHECK_STATUS(SHALE_OK, set_aged(cache, "never", SHALE_NEVER, 0));
    CHECK_STATUS(SHALE_OK, set_aged(cache, "stale at once", SHALE_NONE, 0));
    CHECK_STATUS(SHALE_OK, set_aged(cache, "dead at once", SHALE_NONE, SHALE_NONE));

    CHECK_AGE(SHALE_MISS, "stale at once", 0, start);
    CHECK_AGE(SHALE_STALE, "stale at once", SHALE_GET_STALE, start);
    CHECK_AGE(SHALE_STALE, "stale at once", SHALE_GET_STALE, start + 499);
    CHECK_AGE(SHALE_MISS, "stale at once", SHALE_GET_STALE, start + 501);
    CHECK_AGE(SHALE_MISS, "dead at once", SHALE_GET_STALE, start);
    CHECK_AGE(SHALE_STALE, "own", SHALE_GET_STALE, start + 101);
    CHECK_AGE(SHALE_MISS, "own", SHALE_GET_STALE, start + 601);
    CHECK_AGE(SHALE_OK, "default", 0, start + 999);
    CHECK_AGE(SHALE_STALE, "default", SHALE_GET_STALE, start + 1001);
    CHECK_AGE(SHALE_MISS, "not kept", SHALE_GET_STALE, start + 1001);
    CHECK_AGE(SHALE_MISS, "default", SHALE_GET_STALE, start + 1501);
    CHECK_AGE(SHALE_OK, "never", 0, start + 1501);
    shale_value_free(&value);
    shale_close(cache);
}

static void test_conditions_follow_ages(void) {
    const int64_t start = clock_ms = 1700000000000;
    shale_cache *cache = open_at(NULL, 0, 0);
    shale_value value = SHALE_VALUE_INIT;
    uint64_t made = 0;
    shale_set_options kept = {.struct_size = sizeof kept, .max_age_ms = 1000, .stale_ms = 1000, .new_version = &made};
    shale_set_options absent = {.struct_size = sizeof absent, .flags = SHALE_SET_IF_ABSENT};
    shale_set_options present = {.struct_size = sizeof present, .flags = SHALE_SET_IF_PRESENT};
    shale_set_options version = {.struct_size = sizeof version, .flags = SHALE_SET_IF_VERSION};

    /* A stale entry is not present, but has its version. */
    CHECK_STATUS(SHALE_OK, set_text(cache, "a", "1", &kept));
    version.version = made;
    CHECK_STATUS(SHALE_OK, set_text(cache, "b", "1", &kept));
    CHECK_STATUS(SHALE_CONFLICT, set_text(cache, "b", "2", &absent));
    clock_ms = start + 1500;
    CHECK_STATUS(SHALE_CONFLICT, set_text(cache, "a", "2", &present));
    CHECK_STATUS(SHALE_OK, set_text(cache, "a", "2", &version));
    CHECK_STATUS(SHALE_OK, set_text(cache, "b", "2", &absent));
    CHECK_STATUS(SHALE_OK, get_text(cache, "a", 0, &value));
    CHECK_TEXT(&value, "2");

    /* A dead entry has none. */
    CHECK_STATUS(SHALE_OK, set_text(cache, "c", "1", &kept));
    version.version = made;
    clock_ms += 2001;
    CHECK_STATUS(SHALE_CONFLICT, set_text(cache, "c", "2", &version));
    CHECK_STATUS(SHALE_MISS, shale_remove(cache, "c", 1, 0));
    shale_value_free(&value);
    shale_close(cache);
}

static void test_touch(void) {
    const int64_t start = clock_ms = 1700000000000;
    char *directory = path_to("touch");
    shale_cache *cache = open_at(directory, 0, 1000);
    shale_value value = SHALE_VALUE_INIT;

    CHECK_STATUS(SHALE_MISS, shale_touch(cache, "missing", 7, 1000));
    shale_set_options options = {.struct_size = sizeof options, .max_age_ms = 1000, .meta = "m", .meta_size = 1};
    CHECK_STATUS(SHALE_OK, set_text(cache, "a", "value of a", &options));
    CHECK_STATUS(SHALE_OK, set_text(cache, "b", "value of b", &options));
    CHECK_STATUS(SHALE_OK, set_text(cache, "c", "value of c", &options));
    CHECK_STATUS(SHALE_OK, get_text(cache, "a", 0, &value));
    uint64_t version = value.version;

    clock_ms = start + 700;
    CHECK_STATUS(SHALE_OK, shale_touch(cache, "a", 1, 1001));
    CHECK_STATUS(SHALE_OK, get_text(cache, "a", 0, &value));
    CHECK_TEXT(&value, "value of a");
    CHECK(value.meta_size == 1 && *(char *)value.meta == 'm');
    CHECK_EQUAL(version, value.version);
    CHECK_EQUAL(start + 1701, value.expires_ms);
    CHECK_AGE(SHALE_OK, "a", 0, start + 1700);
    CHECK_AGE(SHALE_STALE, "a", SHALE_GET_STALE, start + 1702);

    clock_ms = start + 1500; /* stale: fresh again */
    CHECK_STATUS(SHALE_MISS, get_text(cache, "b", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_touch(cache, "b", 1, 0));
    CHECK_STATUS(SHALE_OK, get_text(cache, "b", 0, &value));
    CHECK_EQUAL(SHALE_NEVER, value.expires_ms);
    clock_ms = start + 2001; /* dead */
    CHECK_STATUS(SHALE_MISS, shale_touch(cache, "c", 1, 0));

    /* The new ages persist after a reopening, and after a second touch. */
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    cache = open_at(directory, 0, 0);
    CHECK_AGE(SHALE_OK, "a", 0, start + 1700);
    CHECK_TEXT(&value, "value of a");
    CHECK_EQUAL(version, value.version);
    CHECK_AGE(SHALE_MISS, "a", 0, start + 1702);
    CHECK_AGE(SHALE_STALE, "a", SHALE_GET_STALE, start + 1702);
    CHECK_STATUS(SHALE_OK, shale_touch(cache, "a", 1, 10));
    CHECK_AGE(SHALE_OK, "a", 0, start + 1711);
    CHECK_AGE(SHALE_MISS, "a", 0, start + 1713);
    CHECK_AGE(SHALE_OK, "b", 0, start + 100000);
    CHECK_STATUS(SHALE_OK, shale_touch(cache, "b", 1, SHALE_NONE));
    CHECK_AGE(SHALE_MISS, "b", 0, start + 100000);
    shale_value_free(&value);
    shale_close(cache);
    free(directory);
}

static void test_touched_entries_survive_cleaning(void) {
    /* Touches of a few entries, while the log goes round several times. */
    const int64_t start = clock_ms = 1700000000000;
    shale_cache *cache = open_at(NULL, 0, 0);
    shale_value value = SHALE_VALUE_INIT;
    random_source source = {7};
    char data[2000];
    for (size_t at = 0; at < sizeof data; at++)
        data[at] = (char)random_next(&source);
    shale_set_options pinned = {.struct_size = sizeof pinned, .flags = SHALE_SET_PINNED, .max_age_ms = 10};
    for (uint32_t i = 0; i < 100; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, data + i, 500, &pinned));
    for (uint32_t i = 0; i < 100; i++)
        CHECK_STATUS(SHALE_OK, shale_touch(cache, &i, sizeof i, 5000 + i));
    for (uint32_t n = 1000; n < 13000; n++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &n, sizeof n, data, sizeof data, NULL));
    for (uint32_t i = 0; i < 100; i++) {
        clock_ms = start + 4999 + i;
        CHECK_STATUS(SHALE_OK, shale_get(cache, &i, sizeof i, 0, &value));
        CHECK_BYTES(&value, data + i, 500);
        CHECK_EQUAL(start + 5000 + i, value.expires_ms);
        clock_ms = start + 5001 + i;
        CHECK_STATUS(SHALE_MISS, shale_get(cache, &i, sizeof i, 0, &value));
    }
    shale_value_free(&value);
    shale_close(cache);
}

static void test_purge(void) {
    const int64_t start = clock_ms = 1700000000000;
    shale_cache *cache = open_at(NULL, 0, 0);
    uint64_t purged = 99;
    char key[20];
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "%d", i);
        CHECK_STATUS(SHALE_OK, set_aged(cache, key, i < 100 ? 1000 : i < 200 ? 100000000 : SHALE_NEVER, 500));
    }
    CHECK_STATUS(SHALE_OK, shale_purge(cache, &purged));
    CHECK_EQUAL(0, purged);
    clock_ms = start + 1400; /* stale, but kept */
    CHECK_STATUS(SHALE_OK, shale_purge(cache, &purged));
    CHECK_EQUAL(0, purged);
    clock_ms = start + 1501;
    CHECK_STATUS(SHALE_OK, shale_purge(cache, &purged));
    CHECK_EQUAL(100, purged);
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(200, stats.entries);
    CHECK_EQUAL(100, stats.expirations);
    clock_ms = start + 200000000;
    CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
    stats = stats_of(cache);
    CHECK_EQUAL(100, stats.entries);
    CHECK_STATUS(SHALE_E_INVALID, shale_purge(NULL, NULL));
    shale_close(cache);
}

static void test_default_ages_belong_to_the_cache(void) {
    const int64_t start = clock_ms = 1700000000000;
    char *directory = path_to("defaults");
    shale_cache *cache = open_at(directory, 1000, 500);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    cache = open_at(directory, 0, 0);
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    CHECK_AGE(SHALE_OK, "key", 0, start + 999);
    CHECK_AGE(SHALE_STALE, "key", SHALE_GET_STALE, start + 1499);
    CHECK_AGE(SHALE_MISS, "key", SHALE_GET_STALE, start + 1501);
    shale_value_free(&value);
    shale_close(cache);
    free(directory);
}

static void test_ages_out_of_range(void) {
    shale_cache *cache = NULL;
    shale_options options = {.struct_size = sizeof options, .capacity = 4 << 20, .max_age_ms = -2};
    CHECK_STATUS(SHALE_E_INVALID, shale_open(NULL, &options, &cache));
    options.max_age_ms = 0;
    options.stale_ms = INT64_MIN;
    CHECK_STATUS(SHALE_E_INVALID, shale_open(NULL, &options, &cache));

    /* Ages whose end no clock reaches. */
    clock_ms = 1700000000000;
    cache = open_at(NULL, 0, 0);
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, set_aged(cache, "long", SHALE_NEVER - 1, SHALE_NEVER - 1));
    CHECK_STATUS(SHALE_OK, get_text(cache, "long", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_touch(cache, "long", 4, SHALE_NEVER - 1));
    CHECK_STATUS(SHALE_OK, get_text(cache, "long", 0, &value));
    shale_value_free(&value);
    shale_close(cache);
}

/* A reader has found an entry and asks for the time. While it does, the entry changes, and time goes on: the key's
 * new entry is fresh. (Only the clock lets a test without hooks run inside a read.) */
static struct {
    shale_cache *cache;
    void (*change)(shale_cache *cache);
    int64_t then;
} during_read;

static int64_t read_clock_in_read(void *context UNUSED) {
    void (*change)(shale_cache *) = during_read.change;
    if (change) {
        during_read.change = NULL;
        change(during_read.cache);
        clock_ms = during_read.then;
    }
    return clock_ms;
}

static void replace_plain(shale_cache *cache) {
    clock_ms += 900;
    CHECK_STATUS(SHALE_OK, set_aged(cache, "key", 1000, 0));
}

static void replace_touched(shale_cache *cache) {
    replace_plain(cache);
    CHECK_STATUS(SHALE_OK, shale_touch(cache, "key", 3, 1000));
}

static void touch_only(shale_cache *cache) {
    clock_ms += 900;
    CHECK_STATUS(SHALE_OK, shale_touch(cache, "key", 3, 1000));
}

static void invalidate_and_replace(shale_cache *cache) {
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3));
    CHECK_STATUS(SHALE_OK, set_aged(cache, "key", 5000, 0));
}

static void test_replaced_while_it_is_read(void) {
    static void (*const changes[])(shale_cache *) = {replace_plain, replace_touched, touch_only,
                                                     invalidate_and_replace};
    shale_bytes tag = {"tag", 3};
    shale_options options = {.struct_size = sizeof options, .capacity = 4 << 20, .now_ms = read_clock_in_read};
    for (int n = 0; n < 4 * 2 * 2 * 2; n++) {
        bool is_touched = n & 1, is_kept = n & 2, asks_stale = n & 4;
        const int64_t start = clock_ms = 1700000000000;
        shale_cache *cache = NULL;
        shale_value value = SHALE_VALUE_INIT;
        REQUIRE_STATUS(SHALE_OK, shale_open(NULL, &options, &cache));
        shale_set_options old = {.struct_size = sizeof old,
                                 .max_age_ms = 1000,
                                 .stale_ms = is_kept ? 1000 : 0,
                                 .tags = &tag,
                                 .tag_count = 1};
        CHECK_STATUS(SHALE_OK, set_text(cache, "key", "old", &old));
        if (is_touched)
            CHECK_STATUS(SHALE_OK, shale_touch(cache, "key", 3, 1000));
        during_read.cache = cache;
        during_read.then = start + (changes[n / 8] == invalidate_and_replace ? 500 : 1500); /* dead by its tag alone */
        during_read.change = changes[n / 8];
        CHECK_STATUS(SHALE_OK, get_text(cache, "key", asks_stale ? SHALE_GET_STALE : 0, &value));
        CHECK(!during_read.change && holds_text(&value, changes[n / 8] == touch_only ? "old" : "key"));
        shale_value_free(&value);
        shale_close(cache);
    }
}

/* A reader has found an entry whose tag is then invalidated, with so many others that the table of tags is emptied
 * before the reader looks up the tag. */
static void invalidate_many(shale_cache *cache) {
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3));
    for (int i = 0; i < 400; i++)
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &i, sizeof i));
}

static void invalidate_and_purge(shale_cache *cache) {
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3));
    CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
}

static void test_tags_emptied(void (*change)(shale_cache *)) {
    shale_bytes tag = {"tag", 3};
    shale_options options = {.struct_size = sizeof options, .capacity = 4 << 20, .now_ms = read_clock_in_read};
    shale_set_options tagged = {.struct_size = sizeof tagged, .max_age_ms = 1000, .tags = &tag, .tag_count = 1};
    shale_cache *cache = NULL;
    shale_value value = SHALE_VALUE_INIT;
    during_read.then = clock_ms = 1700000000000;
    REQUIRE_STATUS(SHALE_OK, shale_open(NULL, &options, &cache));
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "old", &tagged));
    during_read.cache = cache;
    during_read.change = change;
    CHECK_STATUS(SHALE_MISS, get_text(cache, "key", 0, &value));
    CHECK(!during_read.change);
    shale_value_free(&value);
    shale_close(cache);
}

static void test_tags_emptied_while_it_is_read(void) {
    test_tags_emptied(invalidate_many);
    test_tags_emptied(invalidate_and_purge);
}

int main(void) {
    watch(patience);
    RUN(test_expired_pins_make_room);
    RUN(test_fresh_stale_dead);
    RUN(test_defaults_and_none);
    RUN(test_conditions_follow_ages);
    RUN(test_touch);
    RUN(test_touched_entries_survive_cleaning);
    RUN(test_purge);
    RUN(test_default_ages_belong_to_the_cache);
    RUN(test_ages_out_of_range);
    RUN(test_replaced_while_it_is_read);
    RUN(test_tags_emptied_while_it_is_read);
    return finish();
}
