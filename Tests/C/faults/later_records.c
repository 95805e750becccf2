/* Records as a later library of the same format may write them: with an extension word, and with the flag of a value
 * that was compressed once more. This library reads, copies and ages them like others, and omits the word when it
 * writes a value again. It refuses what it cannot know: a superblock with features, a segment of another log. */
#include "check.h"
#include "files.h"
#include "layout.h"

enum { recompressed = 4, extended = 8, mib = 1 << 20 };

static const shale_options options = {.struct_size = sizeof options, .capacity = 2 * mib, .shards = 1};
static const char *const tag_of_all = "tag";

static uint64_t secret_of(const mapped_file *data) {
    return word_at(data->bytes + 24); /* (both copies have the same) */
}

/* The first record of the key. */
static record_view find(const mapped_file *data, const layout *l, const char *key) {
    for (uint64_t at = l->segments + segment_header_bytes; at + record_header_bytes < data->size;) {
        record_view r = record_at(data->bytes, at);
        if (r.kind == record_value && r.key_size == strlen(key) && memcmp(data->bytes + r.key, key, r.key_size) == 0)
            return r;
        at += r.length;
    }
    REQUIRE(!"the key's record");
    return (record_view){0};
}

/* Makes the log's last record what a later library would have written; the index has to be rebuilt. */
static void extend(const char *directory, const char *key) {
    mapped_file data = map_file(directory, "shale.data");
    layout l = layout_of(data.bytes);
    record_view r = find(&data, &l, key);
    unsigned char *p = data.bytes + r.offset;
    uint64_t begin = (r.flags & 2 ? 8 : 0) + record_header_bytes, word = UINT64_C(0x1122334455667788);
    memmove(p + begin + 8, p + begin, r.length - begin);
    memcpy(p + begin, &word, 8);
    p[21] = (unsigned char)(p[21] | (recompressed | extended) << 4);
    r = record_at(data.bytes, r.offset);
    uint64_t number = word_at(data.bytes + l.segments + segment_number);
    uint32_t check = head_check_of(data.bytes, &r, number, r.offset, secret_of(&data));
    memcpy(p + 16, &check, 4);
    unmap_file(&data);
    remove_index(directory);
}

static void set(shale_cache *cache, const char *key, const char *text, int64_t stale_ms) {
    shale_bytes tag = {tag_of_all, 3};
    shale_set_options how = {.struct_size = sizeof how,
                             .max_age_ms = 3600000,
                             .stale_ms = stale_ms,
                             .tags = &tag,
                             .tag_count = 1,
                             .meta = "meta",
                             .meta_size = 4};
    CHECK_STATUS(SHALE_OK, set_text(cache, key, text, &how));
}

static void check_value(shale_cache *cache, const char *key, const char *text) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, get_text(cache, key, 0, &value));
    CHECK_TEXT(&value, text);
    CHECK(value.meta_size == 4 && memcmp(value.meta, "meta", 4) == 0);
    shale_value_free(&value);
}

static void test_extended_records(void) {
    for (int keeps_stale = 0; keeps_stale < 2; keeps_stale++) {
        char *directory = path_to("extended"), key[20];
        remove_tree(directory);
        shale_cache *cache = require_open(directory, options);
        set(cache, "key", "the value", keeps_stale ? 3600000 : 0);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        extend(directory, "key");
        cache = require_open(directory, options);
        check_value(cache, "key", "the value");
        CHECK_EQUAL(0, stats_of(cache).corrupt_records);
        /* The cleaner copies it, unchanged and with another age. */
        static char filler[20000];
        shale_set_options plain = {.struct_size = sizeof plain, .flags = SHALE_SET_UNCOMPRESSED};
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 300; i++) {
                snprintf(key, sizeof key, "filler %d", i % 20);
                CHECK_STATUS(SHALE_OK, shale_set(cache, key, strlen(key), filler, sizeof filler, &plain));
            }
            check_value(cache, "key", "the value");
            if (round == 0)
                CHECK_STATUS(SHALE_OK, shale_touch(cache, "key", 3, 1800000));
        }
        CHECK(stats_of(cache).cleaned_bytes > 0);
        shale_report report = {.struct_size = sizeof report};
        CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
        CHECK_EQUAL(0, report.corrupt_records);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_index(directory);
        cache = require_open(directory, options);
        check_value(cache, "key", "the value");
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, tag_of_all, 3)); /* its tag is still found */
        shale_value value = SHALE_VALUE_INIT;
        CHECK_STATUS(SHALE_MISS, get_text(cache, "key", 0, &value));
        CHECK_EQUAL(0, stats_of(cache).corrupt_records);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        free(directory);
    }
}

static void write_super(const char *directory, size_t at, uint32_t number) {
    mapped_file data = map_file(directory, "shale.data");
    for (size_t copy = 0; copy <= super_copy; copy += super_copy) {
        unsigned char *p = data.bytes + copy;
        memcpy(p + at, &number, 4);
        uint64_t check = XXH3_64bits_withSeed(p, super_check, SUPER_MAGIC);
        memcpy(p + super_check, &check, 8);
    }
    unmap_file(&data);
}

static void test_features(void) {
    char *directory = path_to("features");
    shale_cache *cache = require_open(directory, options);
    set(cache, "key", "the value", 0);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    write_super(directory, super_features, 1);
    cache = NULL;
    CHECK_STATUS(SHALE_E_VERSION, shale_open(directory, &options, &cache));
    write_super(directory, super_features, 0);
    cache = require_open(directory, options);
    check_value(cache, "key", "the value");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

static void test_another_log(void) {
    char *directory = path_to("log");
    shale_cache *cache = require_open(directory, options);
    set(cache, "key", "the value", 0);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    mapped_file data = map_file(directory, "shale.data");
    layout l = layout_of(data.bytes);
    unsigned char *p = data.bytes + l.segments;
    memcpy(p + segment_log, &(uint32_t){1}, 4);
    uint64_t words[] = {word_at(p),      word_at(p + 8),  word_at(p + 16), word_at(p + 24),
                        word_at(p + 32), word_at(p + 48), word_at(p + 56)};
    uint64_t check = XXH3_64bits_withSeed(words, sizeof words, secret_of(&data));
    memcpy(p + segment_check, &check, 8);
    unmap_file(&data);
    remove_index(directory);
    cache = require_open(directory, options);
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_MISS, get_text(cache, "key", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

int main(void) {
    prefer_memory();
    watch(patience);
    RUN(test_extended_records);
    RUN(test_features);
    RUN(test_another_log);
    return finish();
}
