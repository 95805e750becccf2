/* A smaller capacity, when shards hold parts of each other's large values: it holds, the remaining entries are
 * whole, and they are as many as it has room for, however large the table was. A capacity that cannot hold the
 * pinned entries is refused, and evicts nothing. */
#include "check.h"
#include "pattern.h"
#include "usage.h"

enum { capacity = 64 << 20, shards = 8, large = 400 << 10, small = 2000, larges = 400, smalls = 12000 };

static char *directory;
static unsigned char bytes[large];

static shale_status open_with(uint64_t size, shale_cache **cache) {
    shale_options options = {.struct_size = sizeof options, .capacity = size, .flags = SHALE_OPEN_NO_SYNC};
    if (size == capacity)
        options.shards = shards, options.segment_size = 128 << 10;
    return shale_open(directory, &options, cache);
}

static shale_status put(shale_cache *cache, uint64_t key, size_t size, uint32_t flags) {
    pattern_fill(bytes, key, 1, size);
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED | flags};
    return shale_set(cache, &key, sizeof key, bytes, size, &options);
}

/* How many bytes of values are present, each whole. */
static uint64_t held(shale_cache *cache, uint64_t from, uint64_t to, size_t size) {
    uint64_t sum = 0, version;
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t key = from; key < to; key++) {
        shale_status status = shale_get(cache, &key, sizeof key, SHALE_GET_PEEK, &value);
        if (status == SHALE_MISS)
            continue;
        CHECK_STATUS(SHALE_OK, status);
        CHECK(value.size == size && !pattern_check(value.data, value.size, key, &version));
        sum += value.size;
    }
    shale_value_free(&value);
    return sum;
}

/* Down to an eighth, in steps, from a cache that was full at every step. */
static void shards_share_values(void) {
    directory = path_to("shared");
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, open_with(capacity, &cache));
    for (uint64_t size = capacity; size >= 16 << 20; size /= 2) {
        for (uint64_t i = 0; i < larges; i++) {
            REQUIRE_STATUS(SHALE_OK, put(cache, 1000000 + i, large, 0));
            for (uint64_t j = 0; j < smalls / larges; j++)
                REQUIRE_STATUS(SHALE_OK, put(cache, i * (smalls / larges) + j, small, 0));
        }
        REQUIRE_STATUS(SHALE_OK, shale_close(cache));
        REQUIRE_STATUS(SHALE_OK, open_with(size / 2, &cache));
        uint64_t sum = held(cache, 0, smalls, small) + held(cache, 1000000, 1000000 + larges, large),
                 usage = disk_usage(directory);
        printf("%" PRIu64 " MiB: %.0f %% of it are values, %" PRIu64 " KiB on the disk\n", size / 2 >> 20,
               100.0 * (double)sum / (double)(size / 2), usage >> 10);
        CHECK(usage <= size / 2);
        /* In 8 MiB each shard has five or six segments beside what its index keeps of the first capacity, and half of
         * them are free: 9 to 21 % by chance, as the secret spreads the parts of large values. */
        CHECK(sum >= size / 2 / 100 * (size / 2 >= 32 << 20 ? 55 : size / 2 >= 16 << 20 ? 30 : 3));
    }
    REQUIRE_STATUS(SHALE_OK, put(cache, 1, small, 0));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

/* A table that held many more entries costs none of those that remain. */
static void tables_yield(void) {
    directory = path_to("table");
    shale_cache *cache = NULL;
    shale_options options = {
        .struct_size = sizeof options, .capacity = capacity, .shards = 1, .flags = SHALE_OPEN_NO_SYNC};
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    for (uint64_t key = 0; key < 500000; key++)
        REQUIRE_STATUS(SHALE_OK, put(cache, key, 8, 0));
    for (uint64_t key = 0; key < 500000; key++)
        REQUIRE_STATUS(SHALE_OK, shale_remove(cache, &key, sizeof key, 0));
    for (uint64_t key = 0; key < 1000; key++)
        REQUIRE_STATUS(SHALE_OK, put(cache, key, small, 0));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    REQUIRE_STATUS(SHALE_OK, open_with(16 << 20, &cache));
    CHECK_EQUAL(1000 * (uint64_t)small, held(cache, 0, 1000, small));
    CHECK(disk_usage(directory) <= 16 << 20);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

static void pins_refuse_it(void) {
    directory = path_to("pinned");
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, open_with(capacity, &cache));
    for (uint64_t i = 0; i < 40; i++)
        REQUIRE_STATUS(SHALE_OK, put(cache, 2000000 + i, large, SHALE_SET_PINNED));
    for (uint64_t i = 0; i < smalls; i++)
        REQUIRE_STATUS(SHALE_OK, put(cache, i, small, 0));
    uint64_t pinned = held(cache, 2000000, 2000040, large), others = held(cache, 0, smalls, small);
    CHECK_EQUAL(40 * (uint64_t)large, pinned);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    CHECK_STATUS(SHALE_E_FULL, open_with(20 << 20, &cache));
    CHECK(strstr(shale_last_error(), "pinned") != NULL);
    REQUIRE_STATUS(SHALE_OK, open_with(0, &cache));
    CHECK_EQUAL(pinned, held(cache, 2000000, 2000040, large));
    CHECK_EQUAL(others, held(cache, 0, smalls, small));
    for (uint64_t i = 0; i < 40; i++)
        CHECK_STATUS(SHALE_OK, put(cache, 2000000 + i, large, 0));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    REQUIRE_STATUS(SHALE_OK, open_with(20 << 20, &cache));
    CHECK(disk_usage(directory) <= 20 << 20);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

/* A tenth of the cache is live, some of it pinned, the rest of its log dead: a smaller one holds all of it. */
static void no_eviction_while_there_is_room(int32_t eviction) {
    enum { larger = 5 << 20, smaller = 3 << 20, keys = 250, pinned = 20, rounds = 20 };
    directory = path_to(eviction == SHALE_EVICTION_LRU ? "sparse" : "sparse, CLOCK");
    random_source source = {1};
    shale_cache *cache = NULL;
    for (int round = 0; round < rounds; round++) {
        shale_options options = {.struct_size = sizeof options,
                                 .capacity = round % 2 ? smaller : larger,
                                 .shards = 1,
                                 .eviction = eviction,
                                 .flags = SHALE_OPEN_NO_SYNC};
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
        uint64_t before = round ? stats_of(cache).entries : keys;
        CHECK_EQUAL(keys, before);
        for (int i = 0; i < 4000; i++) {
            uint64_t key = i < keys ? (uint64_t)i : random_below(&source, keys);
            REQUIRE_STATUS(SHALE_OK,
                           put(cache, key, random_below(&source, 2 * small), key < pinned ? SHALE_SET_PINNED : 0));
        }
        CHECK_EQUAL(keys, stats_of(cache).entries);
        REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    }
    free(directory);
}
static void no_eviction_while_there_is_room_with_lru(void) {
    no_eviction_while_there_is_room(SHALE_EVICTION_LRU);
}
static void no_eviction_while_there_is_room_with_clock(void) {
    no_eviction_while_there_is_room(SHALE_EVICTION_CLOCK);
}

/* The index stays as large as the largest capacity has made it. A capacity that leaves no room for a log beside it
 * is refused before anything is evicted; with any other one the cache works like a new one. */
static void the_index_needs_room(void) {
    static const uint64_t sizes[][2] = {{5000, 20000}, {8192, 32768}, {9000, 36000}}; /* KiB: the first, the largest */
    int refused = 0, accepted = 0;
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (uint64_t to = 1024; to <= 2048; to += 128) {
            directory = path_to("index");
            remove_tree(directory);
            shale_cache *cache = NULL;
            int32_t policy = policy_of(to / 128);
            for (int k = 0; k < 2; k++) {
                shale_options options = {.struct_size = sizeof options,
                                         .capacity = sizes[i][k] << 10,
                                         .flags = SHALE_OPEN_NO_SYNC,
                                         .eviction = policy};
                REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
                for (uint64_t key = 0; key < 5000; key++)
                    REQUIRE_STATUS(SHALE_OK, put(cache, key, 100, 0));
                if (k == 0)
                    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
            }
            uint64_t entries = stats_of(cache).entries;
            REQUIRE_STATUS(SHALE_OK, shale_close(cache));
            shale_status status = open_with(to << 10, &cache);
            CHECK_EITHER(SHALE_OK, SHALE_E_FULL, status);
            if (status == SHALE_OK) {
                accepted++;
                for (uint64_t key = 0; key < 3000; key++)
                    if (!CHECK_STATUS(SHALE_OK, put(cache, key, 100, 0)))
                        break;
                CHECK(disk_usage(directory) <= to << 10);
            } else {
                refused++;
                CHECK(strstr(shale_last_error(), "index") != NULL);
                REQUIRE_STATUS(SHALE_OK, open_with(0, &cache));
                CHECK_EQUAL(entries, stats_of(cache).entries);
                CHECK_EQUAL(0, stats_of(cache).evictions);
            }
            CHECK_STATUS(SHALE_OK, shale_close(cache));
            free(directory);
        }
    printf("%d capacities refused, %d accepted\n", refused, accepted);
    CHECK(refused > 0 && accepted > 10);
}

int main(void) {
    watch(patience);
    RUN(the_index_needs_room);
    RUN(no_eviction_while_there_is_room_with_lru);
    RUN(no_eviction_while_there_is_room_with_clock);
    RUN(shards_share_values);
    RUN(tables_yield);
    RUN(pins_refuse_it);
    return finish();
}
