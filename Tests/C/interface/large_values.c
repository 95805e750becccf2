/* Values in parts: values that are short compared to their shard are stored whole in it, so that they are evicted in
 * the shard's order, and their parts are short compared to their segment, so that little of it is wasted and the
 * cleaner has little to copy.
 *
 * large_values */
#include "check.h"

enum { size = 64 << 10 }; /* in parts, with segments of up to 1 MiB */

static unsigned char bytes[size];

static shale_cache *open_cache(uint64_t capacity, uint32_t shards, uint32_t segment_size, int32_t policy) {
    return require_open(NULL, (shale_options){.capacity = capacity,
                                              .shards = shards,
                                              .segment_size = segment_size,
                                              .eviction = policy,
                                              .compression = SHALE_COMPRESSION_NONE});
}

static void put(shale_cache *cache, uint32_t key) {
    memcpy(bytes, &key, sizeof key);
    CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, sizeof bytes, NULL));
}

static bool is_there(shale_cache *cache, uint32_t key, uint32_t flags) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = shale_get(cache, &key, sizeof key, flags, &value);
    bool is_it = status == SHALE_OK && value.size == sizeof bytes && memcmp(value.data, &key, sizeof key) == 0;
    CHECK(is_it || status == SHALE_MISS);
    shale_value_free(&value);
    return is_it;
}

/* The keys are spread evenly enough over the shards: a shard gets half of its share at least. So none has entries
 * twice as old as those that fit. */
static void test_no_shard_keeps_old_entries(void) {
    enum { capacity = 16 << 20, fitting = capacity / size, sets = 10 * fitting };
    for (uint32_t shards = 1; shards <= 4; shards *= 2) {
        shale_cache *cache = open_cache(capacity, shards, 0, SHALE_EVICTION_LRU);
        for (uint32_t key = 0; key < sets; key++)
            put(cache, key);
        uint32_t present = 0;
        for (uint32_t key = 0; key < sets; key++)
            if (is_there(cache, key, SHALE_GET_PEEK) && CHECK(key >= sets - 2 * fitting))
                present++;
        CHECK(present > fitting / 2);
        CHECK_EQUAL(present, stats_of(cache).entries);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
}

/* Entries that are read again and again outlive those that never are. */
static void test_used_entries_stay(void) {
    enum { capacity = 16 << 20, popular = 32, sets = 1500 };
    for (int32_t policy = SHALE_EVICTION_LRU; policy <= SHALE_EVICTION_CLOCK; policy++) {
        shale_cache *cache = open_cache(capacity, 4, 0, policy);
        for (uint32_t key = 0; key < popular; key++)
            put(cache, key);
        for (uint32_t n = 0; n < sets; n++) {
            put(cache, popular + n);
            for (uint32_t key = n % 4; key < popular; key += 4)
                CHECK(is_there(cache, key, 0));
        }
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
}

/* In a full cache, with a set after each miss. */
static void test_little_is_copied(void) {
    enum { capacity = 64 << 20, segment = 512 << 10, keys = 4 * capacity / size, calls = 6 * keys };
    for (uint32_t shards = 1; shards <= 2; shards++) {
        shale_cache *cache = open_cache(capacity, shards, segment, SHALE_EVICTION_LRU);
        random_source source = {1};
        uint64_t set = 0, before = 0;
        for (int n = 0; n < calls; n++) {
            if (n == calls / 2) {
                set = 0;
                before = stats_of(cache).cleaned_bytes;
            }
            /* Lower keys are more popular. */
            uint32_t key = (uint32_t)random_below(&source, 1 + random_below(&source, keys));
            if (is_there(cache, key, 0))
                continue;
            put(cache, key);
            set += size;
        }
        shale_stats stats = stats_of(cache);
        uint64_t copied = stats.cleaned_bytes - before;
        printf("%u shards: %.2f bytes copied for each byte set, %.1f %% of the log live\n", shards,
               (double)copied / (double)set, 100 * (double)stats.live_bytes / (double)stats.data_bytes);
        CHECK(copied < 4 * set);
        CHECK(stats.live_bytes > stats.data_bytes / 4 * 3);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
}

int main(void) {
    watch(patience);
    RUN(test_no_shard_keeps_old_entries);
    RUN(test_used_entries_stay);
    RUN(test_little_is_copied);
    return finish();
}
