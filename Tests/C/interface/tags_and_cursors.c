/* Tags, clearing, eviction, verification, statistics, cursors. */
#include "afterwards.h"
#include "files.h"

static shale_cache *open_memory(uint64_t capacity, uint64_t max_entries) {
    return require_open(NULL, (shale_options){.capacity = capacity, .max_entries = max_entries});
}

static uint64_t entries(shale_cache *cache) {
    shale_stats stats = stats_of(cache);
    return stats.entries;
}

static bool is_there(shale_cache *cache, const char *key) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = get_text(cache, key, SHALE_GET_PEEK, &value);
    CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
    shale_value_free(&value);
    return status == SHALE_OK;
}

static shale_status set_tagged(shale_cache *cache, const char *key, const char *const *names, size_t count) {
    shale_bytes tags[SHALE_MAX_TAGS];
    for (size_t i = 0; i < count; i++)
        tags[i] = (shale_bytes){names[i], strlen(names[i])};
    shale_set_options options = {.struct_size = sizeof options, .tags = tags, .tag_count = count};
    return set_text(cache, key, key, &options);
}

static void test_invalidate(void) {
    shale_cache *cache = open_memory(4 << 20, 0);
    static const char *const eight[] = {"1", "2", "3", "4", "5", "6", "7", "8"};
    static const char *const red[] = {"red"}, *const both[] = {"blue", "red"}, *const blue[] = {"blue"};
    CHECK_STATUS(SHALE_OK, set_tagged(cache, "r", red, 1));
    CHECK_STATUS(SHALE_OK, set_tagged(cache, "b", blue, 1));
    CHECK_STATUS(SHALE_OK, set_tagged(cache, "rb", both, 2));
    CHECK_STATUS(SHALE_OK, set_tagged(cache, "eight", eight, 8));
    CHECK_STATUS(SHALE_OK, set_tagged(cache, "none", NULL, 0));

    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "unknown", 7));
    CHECK(is_there(cache, "r") && is_there(cache, "b") && is_there(cache, "rb") && is_there(cache, "eight"));
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "red", 3));
    CHECK(!is_there(cache, "r") && is_there(cache, "b") && !is_there(cache, "rb") && is_there(cache, "none"));
    CHECK_STATUS(SHALE_OK, set_tagged(cache, "r", red, 1)); /* set after the call */
    CHECK(is_there(cache, "r"));
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "8", 1));
    CHECK(!is_there(cache, "eight") && is_there(cache, "r"));
    CHECK_STATUS(SHALE_OK, set_text(cache, "b", "untagged now", NULL));
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "blue", 4));
    CHECK(is_there(cache, "b"));

    char *tag = malloc(65536);
    memset(tag, 't', 65536);
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, tag, 65535));
    CHECK(shale_invalidate(cache, tag, 65536) < 0);
    CHECK_STATUS(SHALE_E_INVALID, shale_invalidate(cache, "", 0));
    CHECK_STATUS(SHALE_E_INVALID, shale_invalidate(cache, NULL, 3));
    CHECK_STATUS(SHALE_E_INVALID, shale_invalidate(NULL, "tag", 3));
    free(tag);

    /* More tags than any small table holds. */
    char name[20], key[20];
    const char *names[] = {name};
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "tag %d", i);
        snprintf(key, sizeof key, "key %d", i);
        CHECK_STATUS(SHALE_OK, set_tagged(cache, key, names, 1));
        if (i % 2 == 0)
            CHECK_STATUS(SHALE_OK, shale_invalidate(cache, name, strlen(name)));
    }
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "key %d", i);
        CHECK(is_there(cache, key) == (i % 2 != 0));
    }
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(2505, stats.invalidations);
    shale_close(cache);
}

static void test_invalidation_is_kept(void) {
    char *directory = path_to("tags");
    shale_options options = {.struct_size = sizeof options, .capacity = 4 << 20};
    shale_cache *cache = NULL;
    static const char *const red[] = {"red"};
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    CHECK_STATUS(SHALE_OK, set_tagged(cache, "before", red, 1));
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "red", 3));
    CHECK_STATUS(SHALE_OK, set_tagged(cache, "after", red, 1));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    for (int rebuilt = 0; rebuilt < 2; rebuilt++) {
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
        CHECK(!is_there(cache, "before") && is_there(cache, "after"));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_index(directory);
    }
    free(directory);
}

static void test_clear(void) {
    char *directory = path_to("clear");
    shale_options options = {.struct_size = sizeof options, .capacity = 4 << 20};
    shale_set_options pinned = {.struct_size = sizeof pinned, .flags = SHALE_SET_PINNED};
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    char key[20];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "key %d", i);
        CHECK_STATUS(SHALE_OK, set_text(cache, key, key, i % 10 ? NULL : &pinned));
    }
    CHECK_EQUAL(1000, entries(cache));
    CHECK_STATUS(SHALE_OK, shale_clear(cache));
    CHECK_EQUAL(0, entries(cache));
    CHECK(!is_there(cache, "key 0") && !is_there(cache, "key 999"));
    CHECK_STATUS(SHALE_OK, set_text(cache, "key 5", "after", NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_index(directory);
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    CHECK_EQUAL(1, entries(cache));
    CHECK(is_there(cache, "key 5") && !is_there(cache, "key 0"));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    CHECK_STATUS(SHALE_E_INVALID, shale_clear(NULL));
    free(directory);
}

static void test_evict_takes_the_least_recently_used(void) {
    shale_cache *cache = open_memory(4 << 20, 0);
    shale_set_options pinned = {.struct_size = sizeof pinned, .flags = SHALE_SET_PINNED};
    shale_value value = SHALE_VALUE_INIT;
    uint64_t evicted = 99;
    char key[20];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%d", i);
        CHECK_STATUS(SHALE_OK, set_text(cache, key, key, i < 3 ? &pinned : NULL));
    }
    for (int i = 0; i < 500; i += 5) { /* 100 old ones become the newest */
        snprintf(key, sizeof key, "%d", i);
        CHECK_STATUS(SHALE_OK, get_text(cache, key, 0, &value));
    }
    for (int i = 1; i < 500; i += 5) { /* a peek and an info leave them where they are */
        snprintf(key, sizeof key, "%d", i);
        CHECK_STATUS(SHALE_OK, get_text(cache, key, i % 2 ? SHALE_GET_PEEK : SHALE_GET_PEEK | SHALE_GET_INFO, &value));
    }
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 0, &evicted));
    CHECK_EQUAL(0, evicted);
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 398, &evicted));
    CHECK_EQUAL(398, evicted); /* of 0..499 all but the 100 read ones and the pinned 1 and 2 */
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%d", i);
        CHECK(is_there(cache, key) == (i < 3 || i >= 500 || i % 5 == 0));
    }
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 500, NULL));
    CHECK(is_there(cache, "495") && !is_there(cache, "999") && is_there(cache, "1"));
    CHECK_STATUS(SHALE_OK, shale_evict(cache, UINT64_MAX, &evicted));
    CHECK_EQUAL(99, evicted); /* 5, 10, … 495: the pinned 0, 1 and 2 stay */
    CHECK_EQUAL(3, entries(cache));
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(997, stats.evictions);
    CHECK_STATUS(SHALE_E_INVALID, shale_evict(NULL, 1, NULL));
    shale_value_free(&value);
    shale_close(cache);
}

static void test_max_entries(void) {
    shale_cache *cache = open_memory(4 << 20, 100);
    shale_value value = SHALE_VALUE_INIT;
    char key[20];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%d", i);
        CHECK_STATUS(SHALE_OK, set_text(cache, key, key, NULL));
        CHECK(entries(cache) <= 100);
        CHECK_STATUS(SHALE_OK, get_text(cache, "0", 0, &value)); /* in use all the time */
    }
    CHECK_EQUAL(100, entries(cache));
    CHECK(is_there(cache, "0") && is_there(cache, "901") && is_there(cache, "999") && !is_there(cache, "900"));
    shale_value_free(&value);
    shale_close(cache);
}

static void test_pinned_entries_fill_the_cache(void) {
    shale_cache *cache = open_memory(2 << 20, 0);
    shale_set_options pinned = {.struct_size = sizeof pinned, .flags = SHALE_SET_PINNED | SHALE_SET_UNCOMPRESSED};
    shale_value value = SHALE_VALUE_INIT;
    char data[4000];
    memset(data, 'p', sizeof data);
    uint32_t count = 0;
    shale_status status = SHALE_OK;
    while (count < 2000 && (status = shale_set(cache, &count, sizeof count, data, sizeof data, &pinned)) == SHALE_OK)
        count++;
    CHECK_STATUS(SHALE_E_FULL, status);
    CHECK(count > 100);
    for (uint32_t i = 0; i < count; i++) {
        CHECK_STATUS(SHALE_OK, shale_get(cache, &i, sizeof i, 0, &value));
        CHECK_BYTES(&value, data, sizeof data);
        CHECK_EQUAL(SHALE_VALUE_PINNED, value.flags);
    }
    CHECK_STATUS(SHALE_MISS, shale_get(cache, &count, sizeof count, 0, &value));
    for (uint32_t i = 0; i < count; i += 2)
        CHECK_STATUS(SHALE_OK, shale_remove(cache, &i, sizeof i, 0));
    for (uint32_t i = 10000; i < 12000; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, data, sizeof data, NULL));
    for (uint32_t i = 1; i < count; i += 2)
        CHECK_STATUS(SHALE_OK, shale_get(cache, &i, sizeof i, 0, &value));
    shale_value_free(&value);
    shale_close(cache);
}

static void test_verify(void) {
    shale_cache *cache = open_memory(8 << 20, 0);
    shale_report report = {.struct_size = sizeof report};
    char data[300];
    memset(data, 'v', sizeof data);
    for (uint32_t i = 0; i < 3000; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, data, i % 300, NULL));
    for (uint32_t i = 0; i < 1000; i++)
        CHECK_STATUS(SHALE_OK, shale_remove(cache, &i, sizeof i, 0));
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK(report.records >= 2000);
    CHECK(report.bytes > 0);
    CHECK_EQUAL(0, report.corrupt_records);
    CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_verify(NULL, &report));
    CHECK_EQUAL(2000, entries(cache));
    shale_close(cache);
}

static void test_damage_is_removed(void) {
    char *directory = path_to("damage"), *path = path_to("damage/shale.data");
    shale_options options = {.struct_size = sizeof options, .capacity = 4 << 20, .compression = SHALE_COMPRESSION_NONE};
    shale_report report = {.struct_size = sizeof report};
    shale_value value = SHALE_VALUE_INIT;
    shale_cache *cache = NULL;
    char data[64];
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    for (int i = 0; i < 100; i++) {
        snprintf(data, sizeof data, "the value that belongs to number %02d", i);
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, data, strlen(data), NULL));
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    /* One byte of number 42's value changes on the disk. */
    FILE *file = fopen(path, "r+");
    REQUIRE(file != NULL);
    static char content[4 << 20];
    size_t size = fread(content, 1, sizeof content, file);
    char *found = memmem(content, size, "belongs to number 42", 20);
    REQUIRE(found != NULL);
    fseek(file, found - content, SEEK_SET);
    fputc('B', file);
    fclose(file);

    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(1, report.corrupt_records);
    for (int i = 0; i < 100; i++) {
        snprintf(data, sizeof data, "the value that belongs to number %02d", i);
        CHECK_STATUS(i == 42 ? SHALE_MISS : SHALE_OK, shale_get(cache, &i, sizeof i, 0, &value));
        CHECK(i == 42 || holds_text(&value, data));
    }
    shale_stats stats = stats_of(cache);
    CHECK(stats.corrupt_records >= 1);
    CHECK_EQUAL(99, stats.entries);
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.corrupt_records);
    check_account(directory, "damaged entries are removed");
    check_still_works(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shale_value_free(&value);
    free(directory);
    free(path);
}

/* The loss record makes room by moving the damaged entry, for which the call pauses: a get looks for it at its new
 * place. */
static void test_long_damage_is_removed(void) {
    enum { keys = 5, key_size = 40000, meta_size = 65000, value_size = 16000, mark_size = 100 };
    static unsigned char key[key_size], meta[meta_size], data[value_size], mark[mark_size];
    char *directory = path_to("long");
    shale_cache *cache = require_open(
        directory, (shale_options){.capacity = 1 << 20, .shards = 1, .compression = SHALE_COMPRESSION_NONE});
    shale_value value = SHALE_VALUE_INIT;
    shale_set_options options = {.struct_size = sizeof options, .meta = meta, .meta_size = meta_size};
    for (unsigned round = 0; round < 5; round++)
        for (unsigned i = 0; i < keys; i++) {
            key[0] = (unsigned char)i;
            memset(data, 0x40 + (int)i, mark_size);
            CHECK_STATUS(SHALE_OK, shale_set(cache, key, key_size, data, value_size, &options));
        }
    mapped_file file = map_file(directory, "shale.data");
    for (unsigned i = 0; i < keys; i++) {
        memset(mark, 0x40 + (int)i, mark_size);
        for (unsigned char *at = file.bytes; (at = memmem(at, (size_t)(file.bytes + file.size - at), mark, mark_size));)
            at[50] = 0;
        key[0] = (unsigned char)i;
        CHECK_STATUS(SHALE_MISS, shale_get(cache, key, key_size, 0, &value));
    }
    unmap_file(&file);
    check_account(directory, "damage to long entries");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shale_value_free(&value);
    free(directory);
}

static void test_stats(void) {
    shale_cache *cache = open_memory(4 << 20, 0);
    shale_value value = SHALE_VALUE_INIT;
    char data[1000];
    memset(data, 's', sizeof data);
    for (uint32_t i = 0; i < 100; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, data, sizeof data, NULL));
    for (uint32_t i = 50; i < 200; i++)
        CHECK_STATUS(i < 100 ? SHALE_OK : SHALE_MISS, shale_get(cache, &i, sizeof i, 0, &value));
    for (uint32_t i = 90; i < 110; i++)
        CHECK_STATUS(i < 100 ? SHALE_OK : SHALE_MISS, shale_remove(cache, &i, sizeof i, 0));
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(1, stats.shards);
    CHECK_EQUAL(4 << 20, stats.capacity);
    CHECK_EQUAL(0, stats.max_entries);
    CHECK_EQUAL(90, stats.entries);
    CHECK_EQUAL(100, stats.sets);
    CHECK_EQUAL(50, stats.hits);
    CHECK_EQUAL(100, stats.misses);
    CHECK_EQUAL(10, stats.removes);
    CHECK_EQUAL(0, stats.stale_hits);
    CHECK_EQUAL(0, stats.evictions);
    CHECK_EQUAL(0, stats.corrupt_records);
    CHECK_EQUAL(0, stats.rebuilds);
    CHECK_EQUAL(90 * sizeof data, stats.raw_bytes);
    CHECK(stats.stored_bytes > 0 && stats.stored_bytes < stats.raw_bytes / 4);
    CHECK(stats.live_bytes > stats.stored_bytes);
    CHECK(stats.data_bytes + stats.index_bytes <= stats.capacity);
    CHECK_STATUS(SHALE_E_INVALID, shale_get_stats(cache, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_get_stats(NULL, &stats));
    shale_value_free(&value);
    shale_close(cache);
}

static void test_cursor(void) {
    shale_cache *cache = open_memory(8 << 20, 0);
    shale_cursor *cursor = NULL;
    shale_value key = SHALE_VALUE_INIT, value = SHALE_VALUE_INIT;
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    CHECK_STATUS(SHALE_END, shale_cursor_next(cursor, 0, &key, &value));
    CHECK_STATUS(SHALE_END, shale_cursor_next(cursor, 0, &key, &value));
    shale_cursor_close(cursor);
    shale_cursor_close(NULL);

    enum { count = 3000 };
    static unsigned char seen[count];
    shale_set_options stale = {.struct_size = sizeof stale, .max_age_ms = SHALE_NONE, .stale_ms = SHALE_NEVER};
    shale_set_options dead = {.struct_size = sizeof dead, .max_age_ms = SHALE_NONE, .stale_ms = SHALE_NONE};
    shale_set_options meta = {.struct_size = sizeof meta, .meta = "m", .meta_size = 1};
    for (uint32_t i = 0; i < count; i++) {
        uint64_t number = i * 3;
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, &number, sizeof number,
                                         i % 3 == 0   ? &meta
                                         : i % 3 == 1 ? &stale
                                         : i < 100    ? &dead
                                                      : NULL));
    }
    for (int with_stale = 0; with_stale < 2; with_stale++) {
        memset(seen, 0, sizeof seen);
        REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
        for (;;) {
            shale_status status = shale_cursor_next(cursor, with_stale ? SHALE_GET_STALE : 0, &key, &value);
            if (status == SHALE_END)
                break;
            uint32_t i = count;
            REQUIRE(key.size == sizeof i && value.size == 8);
            memcpy(&i, key.data, sizeof i);
            REQUIRE(i < count);
            CHECK_STATUS(i % 3 == 1 ? SHALE_STALE : SHALE_OK, status);
            uint64_t number = i * 3;
            CHECK(memcmp(value.data, &number, sizeof number) == 0);
            CHECK(i % 3 == 0 ? value.meta_size == 1 && *(char *)value.meta == 'm' : value.meta_size == 0);
            CHECK(value.version > 0);
            seen[i]++;
        }
        for (uint32_t i = 0; i < count; i++)
            CHECK_EQUAL(i % 3 == 0 ? 1 : i % 3 == 1 ? with_stale : i >= 100, seen[i]);
        shale_cursor_close(cursor);
    }

    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    CHECK_STATUS(SHALE_OK, shale_cursor_next(cursor, 0, NULL, NULL));
    CHECK_STATUS(SHALE_OK, shale_cursor_next(cursor, 0, &key, NULL));
    CHECK_EQUAL(4, key.size);
    CHECK_STATUS(SHALE_OK, shale_cursor_next(cursor, SHALE_GET_INFO, NULL, &value));
    CHECK_EQUAL(8, value.size);
    shale_cursor_close(cursor);

    /* Entries that live throughout come once, whatever else changes meanwhile. */
    memset(seen, 0, sizeof seen);
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    uint32_t other = 1000000;
    while (shale_cursor_next(cursor, SHALE_GET_STALE, &key, NULL) != SHALE_END) {
        uint32_t i;
        memcpy(&i, key.data, sizeof i);
        if (i < count)
            seen[i]++;
        if (other < 1010000)
            for (int n = 0; n < 3; n++, other++)
                CHECK_STATUS(SHALE_OK, shale_set(cache, &other, sizeof other, "x", 1, NULL));
    }
    for (uint32_t i = 0; i < count; i++)
        CHECK_EQUAL(i % 3 != 2 || i >= 100, seen[i]);
    shale_cursor_close(cursor);

    CHECK_STATUS(SHALE_E_INVALID, shale_cursor_open(NULL, &cursor));
    CHECK_STATUS(SHALE_E_INVALID, shale_cursor_open(cache, NULL));
    CHECK_STATUS(SHALE_E_INVALID, shale_cursor_next(NULL, 0, &key, &value));
    shale_value_free(&key);
    shale_value_free(&value);
    shale_close(cache);
}

int main(void) {
    watch(patience);
    RUN(test_invalidate);
    RUN(test_invalidation_is_kept);
    RUN(test_clear);
    RUN(test_evict_takes_the_least_recently_used);
    RUN(test_max_entries);
    RUN(test_pinned_entries_fill_the_cache);
    RUN(test_verify);
    RUN(test_damage_is_removed);
    RUN(test_long_damage_is_removed);
    RUN(test_stats);
    RUN(test_cursor);
    return finish();
}
