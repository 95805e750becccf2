/* Small programs, each with one possible cause of a refused fenced set of an unchanged key. */
#ifndef PROGRESS_CASES_H
#define PROGRESS_CASES_H

#include "check.h"

static int64_t case_ms = 1700000000000;

static int64_t case_now(void *context UNUSED) {
    return case_ms;
}

/* One shard, with room for some 9,000 of the entries below. */
static inline shale_cache *case_cache(void) {
    return require_open(NULL, (shale_options){.capacity = 4 << 20,
                                              .shards = 1,
                                              .segment_size = 128 << 10,
                                              .compression = SHALE_COMPRESSION_NONE,
                                              .now_ms = case_now});
}

static inline void case_set(shale_cache *cache, uint32_t number, int64_t age, const char *tag) {
    char bytes[300] = {0};
    shale_bytes tags = {tag, tag ? strlen(tag) : 0};
    shale_set_options options = {
        .struct_size = sizeof options, .max_age_ms = age, .tags = &tags, .tag_count = tag != NULL};
    CHECK_STATUS(SHALE_OK, shale_set(cache, &number, sizeof number, bytes, sizeof bytes, &options));
}

static inline uint64_t case_token(shale_cache *cache) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_MISS, shale_get(cache, "load", 4, SHALE_GET_TOKEN, &value));
    uint64_t token = value.version;
    shale_value_free(&value);
    return token;
}

/* Whether the load is stored; the key is absent again afterwards. */
static inline bool case_is_stored(shale_cache *cache, uint64_t token, const char *tag) {
    shale_bytes tags = {tag, tag ? strlen(tag) : 0};
    shale_set_options options = {.struct_size = sizeof options,
                                 .flags = SHALE_SET_IF_UNCHANGED,
                                 .version = token,
                                 .tags = &tags,
                                 .tag_count = tag != NULL};
    shale_status status = shale_set(cache, "load", 4, "x", 1, &options);
    CHECK_EITHER(SHALE_OK, SHALE_CONFLICT, status);
    CHECK_STATUS(status == SHALE_OK ? SHALE_OK : SHALE_MISS, shale_remove(cache, "load", 4, 0));
    return status == SHALE_OK;
}

/* A full cache, in which each tenth entry lives for as many milliseconds as ten sets take. A load lasts for 100
 * sets. */
static inline bool case_age(void) {
    enum { loads = 20, sets = 100, fill = 15000 };
    shale_cache *cache = case_cache();
    uint32_t number = 0;
    bool is_stored = true;
    while (number < fill)
        case_set(cache, number++, 0, NULL);
    CHECK(stats_of(cache).evictions > 0);
    for (int i = 0; i < loads; i++) {
        uint64_t token = case_token(cache);
        for (int n = 0; n < sets; n++, case_ms++)
            case_set(cache, number++, n % 10 ? 0 : 10, NULL);
        is_stored &= case_is_stored(cache, token, NULL);
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return is_stored;
}

static inline bool case_purge(void) {
    shale_cache *cache = case_cache();
    uint64_t token = case_token(cache), purged = 0;
    case_set(cache, 0, 10, NULL);
    case_ms += 20;
    CHECK_STATUS(SHALE_OK, shale_purge(cache, &purged));
    CHECK_EQUAL(1, purged);
    bool is_stored = case_is_stored(cache, token, NULL);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return is_stored;
}

/* The cleaner finds entries whose tag was invalidated, while others are replaced, and nothing is evicted. */
static inline bool case_invalidated(void) {
    enum { keys = 1000, replacements = 30000 };
    shale_cache *cache = case_cache();
    uint64_t token = case_token(cache);
    for (uint32_t i = 0; i < keys; i++)
        case_set(cache, keys + i, 0, "tag");
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3));
    for (uint32_t i = 0; i < replacements; i++)
        case_set(cache, i % keys, 0, NULL);
    CHECK_EQUAL(0, stats_of(cache).evictions);
    bool is_stored = case_is_stored(cache, token, NULL);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return is_stored;
}

static inline bool case_removals(void) {
    enum { removals = 400 };
    shale_cache *cache = case_cache();
    uint64_t token = case_token(cache);
    for (uint32_t i = 0; i < removals; i++)
        CHECK_STATUS(SHALE_MISS, shale_remove(cache, &i, sizeof i, 0));
    bool is_stored = case_is_stored(cache, token, NULL);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return is_stored;
}

/* More tags than a generation of them has cells, none of them the load's. */
static inline bool case_tags(void) {
    enum { tags = 385 };
    shale_cache *cache = case_cache();
    uint64_t token = case_token(cache);
    for (uint32_t i = 0; i < tags; i++)
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &i, sizeof i));
    bool is_stored = case_is_stored(cache, token, "its tag");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return is_stored;
}

#endif
