/* The address space that a cache reserves: in memory for its capacity, on disk for the size that it may grow to with
 * its index. */
#include "afterwards.h"

enum { mib = 1 << 20, entries = 100 };

/* Bytes of the process's shared mappings: a cache's, and not the heap. */
static uint64_t mapped_bytes(void) {
    char line[512], access[5];
    unsigned long long from, to, sum = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    REQUIRE(file != NULL);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%llx-%llx %4s", &from, &to, access) == 3 && access[3] == 's')
            sum += to - from;
    fclose(file);
    return sum;
}

static shale_cache *open_with(const char *directory, uint64_t capacity, uint64_t reserve) {
    shale_options options = {.struct_size = sizeof options, .capacity = capacity, .reserve_capacity = reserve};
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    return cache;
}

/* For the capacity that a cache may grow to: at least what its segments take, and at most 1.7 times as much. */
static void check_reserves(const char *directory, uint64_t capacity, uint64_t reserve, uint64_t reserved) {
    uint64_t before = mapped_bytes();
    shale_cache *cache = open_with(directory, capacity, reserve);
    uint64_t took = mapped_bytes() - before, most = reserved / 10 * 17;
    if (capacity)
        printf("%s, %" PRIu64 " MiB: %.2f times the capacity\n", directory ? "on disk" : "in memory", capacity / mib,
               (double)took / (double)capacity);
    check_that(took >= reserved / 10 * 8 && took <= most, __FILE__, __LINE__, "address space",
               ": %" PRIu64 " bytes for %" PRIu64, took, reserved);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    CHECK_EQUAL(before, mapped_bytes());
}

static void test_sizes(void) {
    static const uint64_t capacities[] = {1, 3, 4, 17, 64, 65, 200, 1 << 10};
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        uint64_t capacity = capacities[i] * mib;
        char *directory = path_to("cache");
        check_reserves(NULL, capacity, 0, capacity);
        check_reserves(NULL, capacity, 9 * capacity, capacity);
        check_reserves(directory, capacity, 0, 4 * capacity);
        remove_tree(directory);
        check_reserves(directory, capacity, capacity, capacity);
        check_reserves(directory, 0, 0, capacity); /* by its superblock */
        remove_tree(directory);
        check_reserves(directory, capacity, capacity / 2 * 5, capacity / 2 * 5);
        remove_tree(directory);
        check_reserves(directory, capacity, 9 * capacity, 4 * capacity);
        remove_tree(directory);
        free(directory);
    }
}

static void set_some(shale_cache *cache) {
    for (uint32_t key = 0; key < entries; key++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, &key, sizeof key, NULL));
}

/* All entries are present; `sets` are counted since the index was made. */
static void check_some(shale_cache *cache, uint64_t sets) {
    shale_value value = SHALE_VALUE_INIT;
    for (uint32_t key = 0; key < entries; key++)
        CHECK_STATUS(SHALE_OK, shale_get(cache, &key, sizeof key, 0, &value));
    shale_value_free(&value);
    shale_stats stats = {.struct_size = sizeof stats};
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    CHECK_EQUAL(sets, stats.sets);
}

/* Up to the reserved size the index is kept, and beyond that it is rebuilt. */
static void test_growth(void) {
    char *directory = path_to("growing");
    shale_cache *cache = open_with(directory, 8 * mib, 16 * mib);
    set_some(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    cache = open_with(directory, 16 * mib, 0);
    check_some(cache, entries);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_account(directory, "grown");
    cache = open_with(directory, 17 * mib, 17 * mib);
    check_some(cache, 0);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_account(directory, "grown beyond the reserved size");
    check_reserves(directory, 0, 0, 17 * mib);
    check_reserves(directory, 18 * mib, 0, 4 * 18 * mib);
    cache = open_with(directory, 4 * mib, 0);
    check_some(cache, 0);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

static unsigned leases_recorded(const char *directory, uint64_t reserve) {
    unsigned recorded = 0;
    shale_cache *cache = open_with(directory, 8 * mib, reserve);
    for (uint32_t key = 0; key < 4096; key++) {
        uint64_t lease = 0;
        shale_value value = SHALE_VALUE_INIT;
        shale_lease_options options = {.struct_size = sizeof options, .flags = SHALE_LEASE_RECORDED};
        CHECK_STATUS(SHALE_MISS, shale_lease(cache, &key, sizeof key, &options, &value, &lease));
        shale_value_free(&value);
        recorded += lease != 0;
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return recorded;
}

/* Room for leases follows the capacity, whatever is reserved. */
static void test_notes(void) {
    char *directory = path_to("notes"), *reserving = path_to("reserving");
    unsigned recorded = leases_recorded(directory, 0);
    CHECK(recorded > 2000 && recorded < 4096);
    CHECK_EQUAL(recorded, leases_recorded(reserving, 8 * mib));
    CHECK_EQUAL(recorded, leases_recorded(NULL, 0));
    free(directory);
    free(reserving);
}

int main(void) {
    watch(patience);
    RUN(test_sizes);
    RUN(test_growth);
    RUN(test_notes);
    return finish();
}
