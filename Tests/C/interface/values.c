/* Storing, reading and removing: single calls and batches. */
#include "check.h"

static shale_cache *open_memory(void) {
    return require_open(NULL, (shale_options){.capacity = 16 << 20});
}

static void test_bytes_come_back(void) {
    shale_cache *cache = open_memory();
    shale_value value = SHALE_VALUE_INIT;
    static const char key[] = "a\0key", data[] = "\0\1\2 with \0 zeroes \xff";

    CHECK_STATUS(SHALE_MISS, shale_get(cache, key, sizeof key, 0, &value));
    CHECK_STATUS(SHALE_OK, shale_set(cache, key, sizeof key, data, sizeof data, NULL));
    CHECK_STATUS(SHALE_OK, shale_get(cache, key, sizeof key, 0, &value));
    CHECK_BYTES(&value, data, sizeof data);
    CHECK_EQUAL(0, value.meta_size);
    CHECK_EQUAL(0, value.flags);
    CHECK_EQUAL(SHALE_NEVER, value.expires_ms);
    CHECK(value.created_ms > 0);
    CHECK(value.version > 0);

    /* A key with the same beginning is another key. */
    CHECK_STATUS(SHALE_MISS, shale_get(cache, key, sizeof key - 1, 0, &value));
    CHECK_EQUAL(0, value.size);
    CHECK_EQUAL(0, value.meta_size);

    CHECK_STATUS(SHALE_OK, shale_set(cache, key, sizeof key, "new", 3, NULL));
    CHECK_STATUS(SHALE_OK, shale_get(cache, key, sizeof key, 0, &value));
    CHECK_TEXT(&value, "new");

    CHECK_STATUS(SHALE_OK, shale_set(cache, "empty", 5, NULL, 0, NULL));
    CHECK_STATUS(SHALE_OK, shale_get(cache, "empty", 5, 0, &value));
    CHECK_EQUAL(0, value.size);

    shale_value_free(&value);
    CHECK(value.data == NULL && value.capacity == 0 && value.size == 0);
    CHECK_EQUAL(sizeof value, value.struct_size);
    shale_value_free(&value);
    shale_value_free(NULL);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void test_the_value_buffer_is_reused(void) {
    shale_cache *cache = open_memory();
    shale_value value = SHALE_VALUE_INIT;
    char data[3000];
    memset(data, 'x', sizeof data);
    CHECK_STATUS(SHALE_OK, shale_set(cache, "large", 5, data, sizeof data, NULL));
    CHECK_STATUS(SHALE_OK, set_text(cache, "small", "small", NULL));

    CHECK_STATUS(SHALE_OK, get_text(cache, "large", 0, &value));
    void *buffer = value.data;
    size_t capacity = value.capacity;
    CHECK(capacity >= sizeof data);
    CHECK_STATUS(SHALE_OK, get_text(cache, "small", 0, &value));
    CHECK_TEXT(&value, "small");
    CHECK_STATUS(SHALE_MISS, get_text(cache, "missing", 0, &value));
    CHECK_EQUAL(0, value.size);
    CHECK_STATUS(SHALE_OK, get_text(cache, "large", 0, &value));
    CHECK_BYTES(&value, data, sizeof data);
    CHECK(value.data == buffer && value.capacity == capacity);

    shale_value_free(&value);
    shale_close(cache);
}

static void test_sizes_up_to_the_limits(void) {
    shale_cache *cache = open_memory();
    shale_value value = SHALE_VALUE_INIT;
    random_source source = {1};
    const size_t limit = (16 << 20) / 4;
    unsigned char *data = malloc(limit + 1);
    for (size_t at = 0; at <= limit; at++)
        data[at] = (unsigned char)random_next(&source); /* does not compress */

    char *key = malloc(SHALE_MAX_KEY_SIZE + 1);
    memset(key, 'k', SHALE_MAX_KEY_SIZE + 1);
    CHECK_STATUS(SHALE_OK, shale_set(cache, key, SHALE_MAX_KEY_SIZE, "long", 4, NULL));
    CHECK_STATUS(SHALE_OK, shale_get(cache, key, SHALE_MAX_KEY_SIZE, 0, &value));
    CHECK_TEXT(&value, "long");
    CHECK_STATUS(SHALE_MISS, shale_get(cache, key, SHALE_MAX_KEY_SIZE - 1, 0, &value));
    CHECK_STATUS(SHALE_E_TOO_LARGE, shale_set(cache, key, SHALE_MAX_KEY_SIZE + 1, "longer", 6, NULL));

    static const size_t sizes[] = {1, 7, 8, 9, 63, 64, 65, 100, 4095, 4096, 65536, 131072, 200000, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_STATUS(SHALE_OK, shale_set(cache, &sizes[i], sizeof *sizes, data + i, sizes[i], NULL));
        CHECK_STATUS(SHALE_OK, shale_get(cache, &sizes[i], sizeof *sizes, 0, &value));
        CHECK_BYTES(&value, data + i, sizes[i]);
    }
    CHECK_STATUS(SHALE_OK, shale_set(cache, "quarter", 7, data, limit, NULL));
    CHECK_STATUS(SHALE_OK, shale_get(cache, "quarter", 7, 0, &value));
    CHECK_BYTES(&value, data, limit);

    /* A set that fails leaves the key as it was. */
    CHECK_STATUS(SHALE_E_TOO_LARGE, shale_set(cache, "quarter", 7, data, limit + 1, NULL));
    CHECK_STATUS(SHALE_OK, shale_get(cache, "quarter", 7, 0, &value));
    CHECK_BYTES(&value, data, limit);

    /* Large over small and small over large. */
    CHECK_STATUS(SHALE_OK, shale_set(cache, "quarter", 7, "small", 5, NULL));
    CHECK_STATUS(SHALE_OK, shale_get(cache, "quarter", 7, 0, &value));
    CHECK_TEXT(&value, "small");
    CHECK_STATUS(SHALE_OK, shale_set(cache, "quarter", 7, data + 1, limit / 2, NULL));
    CHECK_STATUS(SHALE_OK, shale_get(cache, "quarter", 7, 0, &value));
    CHECK_BYTES(&value, data + 1, limit / 2);
    CHECK_STATUS(SHALE_OK, shale_remove(cache, "quarter", 7, 0));
    CHECK_STATUS(SHALE_MISS, shale_get(cache, "quarter", 7, 0, &value));

    free(key);
    free(data);
    shale_value_free(&value);
    shale_close(cache);
}

static void test_arguments_out_of_range(void) {
    shale_cache *cache = open_memory();
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));

    CHECK_STATUS(SHALE_E_INVALID, shale_set(NULL, "key", 3, "value", 5, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_set(cache, NULL, 3, "value", 5, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_set(cache, "key", 0, "value", 5, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_set(cache, NULL, 0, "value", 5, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_set(cache, "key", 3, NULL, 5, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_get(NULL, "key", 3, 0, &value));
    CHECK_STATUS(SHALE_E_INVALID, shale_get(cache, "key", 0, 0, &value));
    CHECK_STATUS(SHALE_E_INVALID, shale_get(cache, NULL, 3, 0, &value));
    CHECK_STATUS(SHALE_E_INVALID, shale_get(cache, "key", 3, 0, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_remove(NULL, "key", 3, 0));
    CHECK_STATUS(SHALE_E_INVALID, shale_remove(cache, "key", 0, 0));
    CHECK_STATUS(SHALE_E_INVALID, shale_remove_many(cache, 1, NULL, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_touch(NULL, "key", 3, 0));
    CHECK_STATUS(SHALE_E_INVALID, shale_touch(cache, "key", 0, 0));
    CHECK_STATUS(SHALE_E_INVALID, shale_touch(cache, "key", 3, -2));
    CHECK_STATUS(SHALE_E_INVALID, shale_increment(NULL, "key", 3, 1, 0, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_increment(cache, "key", 0, 1, 0, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_get_many(cache, 1, NULL, 0, &value, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_set_many(cache, 1, NULL, NULL, NULL, NULL));
    CHECK(shale_last_error()[0] != 0);
    shale_value too_short = {.struct_size = sizeof too_short - 1};
    shale_set_options none = {0};
    shale_stats stats = {0};
    CHECK_STATUS(SHALE_E_INVALID, get_text(cache, "key", 0, &too_short));
    CHECK_STATUS(SHALE_E_INVALID, set_text(cache, "key", "other", &none));
    CHECK_STATUS(SHALE_E_INVALID, shale_get_stats(cache, &stats));

    shale_set_options options = {.struct_size = sizeof options, .max_age_ms = -2};
    CHECK_STATUS(SHALE_E_INVALID, set_text(cache, "key", "other", &options));
    options = (shale_set_options){.struct_size = sizeof options, .stale_ms = -2};
    CHECK_STATUS(SHALE_E_INVALID, set_text(cache, "key", "other", &options));
    options = (shale_set_options){.struct_size = sizeof options, .meta = NULL, .meta_size = 3};
    CHECK_STATUS(SHALE_E_INVALID, set_text(cache, "key", "other", &options));
    options = (shale_set_options){.struct_size = sizeof options, .tags = NULL, .tag_count = 1};
    CHECK_STATUS(SHALE_E_INVALID, set_text(cache, "key", "other", &options));
    shale_bytes tags[9];
    for (int i = 0; i < 9; i++)
        tags[i] = (shale_bytes){"tag", 3};
    options = (shale_set_options){.struct_size = sizeof options, .tags = tags, .tag_count = 9};
    CHECK_STATUS(SHALE_E_INVALID, set_text(cache, "key", "other", &options));
    tags[1].size = 0;
    options.tag_count = 2;
    CHECK_STATUS(SHALE_E_INVALID, set_text(cache, "key", "other", &options));

    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_TEXT(&value, "value");
    shale_value_free(&value);
    shale_close(cache);
}

static void test_meta(void) {
    shale_cache *cache = open_memory();
    shale_value value = SHALE_VALUE_INIT;
    char meta[SHALE_MAX_META_SIZE];
    for (size_t at = 0; at < sizeof meta; at++)
        meta[at] = (char)(at * 7);
    shale_set_options options = {.struct_size = sizeof options, .meta = "etag", .meta_size = 4};
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", &options));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_TEXT(&value, "value");
    CHECK(value.meta_size == 4 && memcmp(value.meta, "etag", 4) == 0);

    options.meta = meta;
    options.meta_size = sizeof meta;
    CHECK_STATUS(SHALE_OK, shale_set(cache, "key", 3, NULL, 0, &options));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_EQUAL(0, value.size);
    CHECK(value.meta_size == sizeof meta && memcmp(value.meta, meta, sizeof meta) == 0);
    options.meta_size++;
    CHECK(set_text(cache, "key", "value", &options) < 0);

    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_EQUAL(0, value.meta_size);
    shale_value_free(&value);
    shale_close(cache);
}

static void test_conditions(void) {
    shale_cache *cache = open_memory();
    shale_value value = SHALE_VALUE_INIT;
    uint64_t first = 0, second = 0, ignored = 0;
    shale_set_options absent = {.struct_size = sizeof absent, .flags = SHALE_SET_IF_ABSENT, .new_version = &first};
    shale_set_options present = {.struct_size = sizeof present, .flags = SHALE_SET_IF_PRESENT, .new_version = &second};
    shale_set_options version = {.struct_size = sizeof version, .flags = SHALE_SET_IF_VERSION, .new_version = &ignored};

    CHECK_STATUS(SHALE_CONFLICT, set_text(cache, "key", "0", &present));
    version.version = 1;
    CHECK_STATUS(SHALE_CONFLICT, set_text(cache, "key", "0", &version));
    CHECK_STATUS(SHALE_MISS, get_text(cache, "key", 0, &value));

    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "1", &absent));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_EQUAL(first, value.version);
    CHECK_STATUS(SHALE_CONFLICT, set_text(cache, "key", "2", &absent));
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "2", &present));
    CHECK(second != first);
    version.version = first;
    CHECK_STATUS(SHALE_CONFLICT, set_text(cache, "key", "3", &version));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_TEXT(&value, "2");
    CHECK_EQUAL(second, value.version);
    version.version = second;
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "3", &version));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_TEXT(&value, "3");
    CHECK_EQUAL(ignored, value.version);

    CHECK_STATUS(SHALE_CONFLICT, shale_remove(cache, "key", 3, second));
    CHECK_STATUS(SHALE_OK, shale_remove(cache, "key", 3, value.version));
    CHECK_STATUS(SHALE_MISS, shale_remove(cache, "key", 3, 0));
    CHECK_STATUS(SHALE_MISS, shale_remove(cache, "key", 3, value.version));
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "4", &absent));
    shale_value_free(&value);
    shale_close(cache);
}

static void test_smaller_structs(void) {
    /* Structs as a program passes them that was compiled against an earlier, shorter version. */
    shale_cache *cache = open_memory();
    shale_set_options options = {.struct_size = offsetof(shale_set_options, meta), .flags = SHALE_SET_PINNED};
    options.meta = (const void *)(uintptr_t)8; /* beyond its size: must not be read */
    options.meta_size = 100;
    options.tag_count = 100;
    options.new_version = (uint64_t *)(uintptr_t)8;
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", &options));
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_EQUAL(SHALE_VALUE_PINNED, value.flags);
    CHECK_EQUAL(0, value.meta_size);
    shale_value_free(&value);

    shale_stats stats;
    memset(&stats, 0xaa, sizeof stats);
    stats.struct_size = offsetof(shale_stats, hits);
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    CHECK_EQUAL(1, stats.entries);
    CHECK_EQUAL(0xaaaaaaaaaaaaaaaau, stats.hits);
    CHECK_EQUAL(0xaaaaaaaaaaaaaaaau, stats.dictionaries);
    shale_close(cache);

    shale_options short_options = {.struct_size = offsetof(shale_options, max_entries), .capacity = 2 << 20};
    short_options.max_entries = 1;
    short_options.shards = 12345678;
    short_options.compression = 99;
    cache = NULL;
    CHECK_STATUS(SHALE_OK, shale_open(NULL, &short_options, &cache));
    stats = stats_of(cache);
    CHECK_EQUAL(2 << 20, stats.capacity);
    CHECK_EQUAL(0, stats.max_entries);
    shale_close(cache);
}

static void test_info_and_peek(void) {
    shale_cache *cache = open_memory();
    shale_value value = SHALE_VALUE_INIT;
    shale_set_options options = {
        .struct_size = sizeof options, .flags = SHALE_SET_PINNED, .meta = "etag", .meta_size = 4};
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", &options));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", SHALE_GET_INFO, &value));
    CHECK_EQUAL(5, value.size);
    CHECK_EQUAL(SHALE_VALUE_PINNED, value.flags);
    CHECK(value.meta_size == 4 && memcmp(value.meta, "etag", 4) == 0);
    CHECK(value.version > 0 && value.created_ms > 0);
    CHECK_STATUS(SHALE_MISS, get_text(cache, "missing", SHALE_GET_INFO, &value));
    CHECK_EQUAL(0, value.size);
    CHECK_EQUAL(0, value.meta_size);

    shale_stats before = stats_of(cache);
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", SHALE_GET_PEEK, &value));
    CHECK_TEXT(&value, "value");
    CHECK_STATUS(SHALE_MISS, get_text(cache, "missing", SHALE_GET_PEEK, &value));
    shale_stats after = stats_of(cache);
    CHECK_EQUAL(before.hits, after.hits);
    CHECK_EQUAL(before.misses, after.misses);
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_STATUS(SHALE_MISS, get_text(cache, "missing", 0, &value));
    after = stats_of(cache);
    CHECK_EQUAL(before.hits + 1, after.hits);
    CHECK_EQUAL(before.misses + 1, after.misses);
    shale_value_free(&value);
    shale_close(cache);
}

static void test_compression(void) {
    static const int32_t kinds[] = {SHALE_COMPRESSION_DICTIONARY, SHALE_COMPRESSION_LZ4, SHALE_COMPRESSION_NONE};
    char data[20000];
    for (size_t at = 0; at < sizeof data; at++)
        data[at] = "all work and no play "[at % 21];
    for (int i = 0; i < 3; i++) {
        shale_options options = {.struct_size = sizeof options, .capacity = 8 << 20, .compression = kinds[i]};
        shale_cache *cache = NULL;
        shale_value value = SHALE_VALUE_INIT;
        REQUIRE_STATUS(SHALE_OK, shale_open(NULL, &options, &cache));
        CHECK_STATUS(SHALE_OK, shale_set(cache, "key", 3, data, sizeof data, NULL));
        CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
        CHECK_BYTES(&value, data, sizeof data);
        CHECK(kinds[i] == SHALE_COMPRESSION_NONE ? value.stored_size == sizeof data
                                                 : value.stored_size < sizeof data / 8);
        shale_set_options as_it_is = {.struct_size = sizeof as_it_is, .flags = SHALE_SET_UNCOMPRESSED};
        CHECK_STATUS(SHALE_OK, shale_set(cache, "key", 3, data, sizeof data, &as_it_is));
        CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
        CHECK_BYTES(&value, data, sizeof data);
        CHECK_EQUAL(sizeof data, value.stored_size);

        /* Small and alike: enough of them for dictionaries to be used. */
        for (unsigned n = 0; n < 5000; n++) {
            char record[400];
            int size = snprintf(
                record, sizeof record,
                "{\"id\":%u,\"name\":\"user %u\",\"mail\":\"user.%u@example.org\",\"active\":%s,"
                "\"roles\":[\"reader\",\"writer\"],\"created\":\"2024-0%u-1%uT10:00:00Z\",\"score\":%u}",
                n, n * 7, n * 7, n % 2 ? "true" : "false", n % 9 + 1, n % 10, n * 2654435761u);
            CHECK_STATUS(SHALE_OK, shale_set(cache, &n, sizeof n, record, (size_t)size, NULL));
            CHECK_STATUS(SHALE_OK, shale_get(cache, &n, sizeof n, 0, &value));
            CHECK_BYTES(&value, record, (size_t)size);
        }
        shale_stats stats = stats_of(cache);
        CHECK((stats.dictionaries > 0) == (kinds[i] == SHALE_COMPRESSION_DICTIONARY));
        shale_value_free(&value);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
}

static void test_increment(void) {
    shale_cache *cache = open_memory();
    shale_value value = SHALE_VALUE_INIT;
    int64_t result = 0;
    CHECK_STATUS(SHALE_OK, shale_increment(cache, "n", 1, 5, 100, &result));
    CHECK_EQUAL(105, result);
    CHECK_STATUS(SHALE_OK, shale_increment(cache, "n", 1, -205, 0, &result));
    CHECK_EQUAL(-100, result);
    CHECK_STATUS(SHALE_OK, shale_increment(cache, "n", 1, 0, 0, NULL));
    CHECK_STATUS(SHALE_OK, get_text(cache, "n", 0, &value));
    CHECK_BYTES(&value, "\x9c\xff\xff\xff\xff\xff\xff\xff", 8);

    /* Overflow and other sizes change nothing. */
    CHECK_STATUS(SHALE_E_INVALID, shale_increment(cache, "n", 1, INT64_MIN, 0, &result));
    CHECK_STATUS(SHALE_E_INVALID, shale_increment(cache, "fresh", 5, 1, INT64_MAX, &result));
    CHECK_STATUS(SHALE_MISS, get_text(cache, "fresh", 0, &value));
    CHECK_STATUS(SHALE_OK, set_text(cache, "text", "1234567", NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_increment(cache, "text", 4, 1, 0, &result));
    CHECK_STATUS(SHALE_OK, get_text(cache, "text", 0, &value));
    CHECK_TEXT(&value, "1234567");
    CHECK_STATUS(SHALE_OK, shale_increment(cache, "n", 1, 1, 0, &result));
    CHECK_EQUAL(-99, result);

    /* Meta, tags and age of the entry stay. */
    shale_bytes tag = {"tag", 3};
    int64_t initial = 41;
    shale_set_options options = {.struct_size = sizeof options,
                                 .max_age_ms = 3600000,
                                 .meta = "m",
                                 .meta_size = 1,
                                 .tags = &tag,
                                 .tag_count = 1};
    CHECK_STATUS(SHALE_OK, shale_set(cache, "c", 1, &initial, 8, &options));
    CHECK_STATUS(SHALE_OK, get_text(cache, "c", 0, &value));
    int64_t expires = value.expires_ms;
    CHECK_STATUS(SHALE_OK, shale_increment(cache, "c", 1, 1, 0, &result));
    CHECK_EQUAL(42, result);
    CHECK_STATUS(SHALE_OK, get_text(cache, "c", 0, &value));
    CHECK_EQUAL(expires, value.expires_ms);
    CHECK(value.meta_size == 1 && *(char *)value.meta == 'm');
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3));
    CHECK_STATUS(SHALE_MISS, get_text(cache, "c", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_increment(cache, "c", 1, 1, 7, &result));
    CHECK_EQUAL(8, result);
    shale_value_free(&value);
    shale_close(cache);
}

enum { many = 1000 };

static void test_batches(void) {
    shale_cache *cache = open_memory();
    static uint32_t numbers[many];
    static char texts[many][40];
    static shale_bytes keys[many], values[many];
    static shale_value results[many];
    static shale_status statuses[many];
    for (uint32_t i = 0; i < many; i++) {
        numbers[i] = i;
        int size = snprintf(texts[i], sizeof texts[i], "value %u of the batch", i);
        keys[i] = (shale_bytes){&numbers[i], sizeof numbers[i]};
        values[i] = (shale_bytes){texts[i], (size_t)size};
        results[i] = (shale_value)SHALE_VALUE_INIT;
    }
    memset(statuses, 0x55, sizeof statuses);
    CHECK_STATUS(SHALE_OK, shale_set_many(cache, many, keys, values, NULL, statuses));
    for (int i = 0; i < many; i++)
        CHECK_EQUAL(SHALE_OK, statuses[i]);

    for (uint32_t i = 0; i < many; i += 3)
        CHECK_STATUS(SHALE_OK, shale_remove(cache, &i, sizeof i, 0));
    CHECK_STATUS(SHALE_OK, shale_get_many(cache, many, keys, 0, results, statuses));
    for (int i = 0; i < many; i++) {
        CHECK_EQUAL(i % 3 == 0 ? SHALE_MISS : SHALE_OK, statuses[i]);
        CHECK(i % 3 == 0 ? results[i].size == 0 : holds_text(&results[i], texts[i]));
    }
    CHECK_STATUS(SHALE_OK, shale_get_many(cache, many, keys, SHALE_GET_PEEK, results, NULL));
    CHECK_TEXT(&results[1], texts[1]);
    CHECK_STATUS(SHALE_OK, shale_get_many(cache, 0, NULL, 0, NULL, NULL));
    CHECK_STATUS(SHALE_OK, shale_set_many(cache, 0, NULL, NULL, NULL, NULL));
    CHECK_STATUS(SHALE_OK, shale_remove_many(cache, 0, NULL, NULL));

    /* Each key is its own operation: one that fails does not stop the others. */
    shale_bytes bad[3] = {{"one", 3}, {"none", 0}, {"two", 3}};
    shale_bytes data[3] = {{"1", 1}, {"2", 1}, {"3", 1}};
    CHECK_STATUS(SHALE_E_INVALID, shale_set_many(cache, 3, bad, data, NULL, statuses));
    CHECK_EQUAL(SHALE_OK, statuses[0]);
    CHECK_EQUAL(SHALE_E_INVALID, statuses[1]);
    CHECK_EQUAL(SHALE_OK, statuses[2]);
    CHECK_STATUS(SHALE_E_INVALID, shale_get_many(cache, 3, bad, 0, results, statuses));
    CHECK_EQUAL(SHALE_OK, statuses[0]);
    CHECK_EQUAL(SHALE_E_INVALID, statuses[1]);
    CHECK_EQUAL(SHALE_OK, statuses[2]);
    CHECK_TEXT(&results[0], "1");
    CHECK(results[1].size == 0);
    CHECK_TEXT(&results[2], "3");

    /* The same key twice: the later one stays. */
    shale_bytes same[2] = {{"same", 4}, {"same", 4}};
    CHECK_STATUS(SHALE_OK, shale_set_many(cache, 2, same, data, NULL, NULL));
    CHECK_STATUS(SHALE_OK, get_text(cache, "same", 0, &results[0]));
    CHECK_TEXT(&results[0], "2");

    shale_set_options absent = {.struct_size = sizeof absent, .flags = SHALE_SET_IF_ABSENT};
    CHECK_STATUS(SHALE_OK, shale_set_many(cache, many, keys, values, &absent, statuses));
    for (int i = 0; i < many; i++)
        CHECK_EQUAL(i % 3 == 0 ? SHALE_OK : SHALE_CONFLICT, statuses[i]);

    keys[5].size = 3; /* not a key that was set */
    CHECK_STATUS(SHALE_OK, shale_remove_many(cache, many, keys, statuses));
    for (int i = 0; i < many; i++)
        CHECK_EQUAL(i == 5 ? SHALE_MISS : SHALE_OK, statuses[i]);
    CHECK_STATUS(SHALE_OK, shale_remove_many(cache, many, keys, NULL));
    CHECK_STATUS(SHALE_MISS, shale_get(cache, &numbers[1], sizeof numbers[1], 0, &results[0]));

    for (int i = 0; i < many; i++)
        shale_value_free(&results[i]);
    shale_close(cache);
}

static void test_statuses_have_names(void) {
    for (shale_status status = SHALE_E_PERMISSION; status <= SHALE_END; status++) {
        const char *text = shale_status_text(status);
        CHECK(text && *text);
        for (shale_status other = SHALE_E_PERMISSION; other < status; other++)
            CHECK(strcmp(text, shale_status_text(other)) != 0);
    }
    CHECK(shale_status_text(12345) != NULL && shale_status_text(INT32_MIN) != NULL);
    CHECK(strcmp(shale_version(), VERSION) == 0 && strcmp(SHALE_VERSION, VERSION) == 0);
}

int main(void) {
    watch(patience);
    RUN(test_bytes_come_back);
    RUN(test_the_value_buffer_is_reused);
    RUN(test_sizes_up_to_the_limits);
    RUN(test_arguments_out_of_range);
    RUN(test_meta);
    RUN(test_conditions);
    RUN(test_smaller_structs);
    RUN(test_info_and_peek);
    RUN(test_compression);
    RUN(test_increment);
    RUN(test_batches);
    RUN(test_statuses_have_names);
    return finish();
}
