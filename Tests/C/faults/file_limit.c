/* One process has a limit on the size of files (ulimit -f); others share its cache and have none. The limited
 * process uses the existing frames: its own sets displace the oldest entries. For the others the cache grows as
 * before, and loses nothing else. */
#include "afterwards.h"

#include <sys/resource.h>

enum { mib = 1 << 20, value_bytes = 1000, segment_bytes = 1 << 20, small_bytes = 256 << 10 };

static shale_cache *open_cache(const char *directory, uint64_t capacity) {
    return require_open(directory, (shale_options){.capacity = capacity, .flags = SHALE_OPEN_NO_SYNC});
}

static shale_status set(shale_cache *cache, uint64_t key, size_t size, uint32_t flags) {
    static unsigned char bytes[300000];
    memset(bytes, (int)(key * 7 + 1), size);
    shale_set_options options = {.struct_size = sizeof options, .flags = flags | SHALE_SET_UNCOMPRESSED};
    return shale_set(cache, &key, sizeof key, bytes, size, &options);
}

static bool holds(shale_cache *cache, uint64_t key, size_t size) {
    shale_value value = SHALE_VALUE_INIT;
    bool found = shale_get(cache, &key, sizeof key, 0, &value) == SHALE_OK && value.size == size &&
                 ((unsigned char *)value.data)[size - 1] == (unsigned char)(key * 7 + 1);
    shale_value_free(&value);
    return found;
}

/* From here on. The signal for a store beyond the limit keeps its default action. */
static void limit_files(const char *directory) {
    char path[512];
    struct stat status;
    struct rlimit limit;
    snprintf(path, sizeof path, "%s/shale.data", directory);
    REQUIRE(stat(path, &status) == 0 && getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = (rlim_t)status.st_size;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void test_others_grow(void) {
    enum { first = 12000, limited = 4000, all = 26000 };
    char *directory = path_to("shared");
    shale_cache *cache = open_cache(directory, 48 * mib);
    for (uint64_t key = 0; key < first; key++)
        REQUIRE_STATUS(SHALE_OK, set(cache, key, value_bytes, 0));
    CHECK_EQUAL(0, stats_of(cache).evictions);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        limit_files(directory);
        shale_cache *mine = open_cache(directory, 0);
        for (uint64_t i = 0; i < limited; i++) {
            CHECK_STATUS(SHALE_OK, set(mine, all + i, value_bytes, 0));
            CHECK(holds(mine, all + i, value_bytes));
        }
        CHECK_STATUS(SHALE_OK, set(mine, all + limited, 300000, 0)); /* in parts, if segments are that small */
        CHECK(holds(mine, all + limited, 300000));
        CHECK_STATUS(SHALE_OK, shale_close(mine));
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    /* It displaced about as much as it stored. */
    uint64_t displaced = stats_of(cache).evictions, stored = limited + 300;
    check_that(displaced > 0 && displaced < stored + 2 * segment_bytes / value_bytes, __FILE__, __LINE__, "displaced",
               ": %" PRIu64 " by %" PRIu64, displaced, stored);
    uint64_t disk = stats_of(cache).data_bytes;
    for (uint64_t key = first; key < all; key++)
        REQUIRE_STATUS(SHALE_OK, set(cache, key, value_bytes, 0));
    CHECK_EQUAL((int64_t)displaced, (int64_t)stats_of(cache).evictions);
    CHECK(stats_of(cache).data_bytes > disk);
    uint64_t found = 0;
    for (uint64_t key = 0; key < all; key++)
        found += holds(cache, key, value_bytes);
    check_that(found + displaced >= all, __FILE__, __LINE__, "nothing else is lost",
               ": %" PRIu64 " found, %" PRIu64 " displaced", found, displaced);
    check_afterwards(cache, directory, "beside a limited process");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* If nothing can be evicted, the message names the limit. */
static void test_says_why(void) {
    char *directory = path_to("pinned");
    shale_cache *cache = open_cache(directory, 16 * mib);
    for (uint64_t key = 0; key < 20; key++)
        REQUIRE_STATUS(SHALE_OK, set(cache, key, value_bytes, SHALE_SET_PINNED));
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        limit_files(directory);
        shale_cache *mine = open_cache(directory, 0);
        shale_status status = SHALE_OK;
        uint64_t key = 100;
        while (status == SHALE_OK && key < 20000)
            status = set(mine, key++, value_bytes, SHALE_SET_PINNED);
        CHECK_STATUS(SHALE_E_FULL, status);
        CHECK(strstr(shale_last_error(), "ulimit -f") && strstr(shale_last_error(), directory));
        for (uint64_t k = 100; k < key - 1; k++)
            CHECK(holds(mine, k, value_bytes));
        CHECK_STATUS(SHALE_OK, shale_close(mine));
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    uint64_t entries = stats_of(cache).entries;
    for (uint64_t key = 20000; key < 20000 + 2 * small_bytes / value_bytes; key++)
        CHECK_STATUS(SHALE_OK, set(cache, key, value_bytes, SHALE_SET_PINNED));
    CHECK_EQUAL((int64_t)entries + 2 * small_bytes / value_bytes, (int64_t)stats_of(cache).entries);
    check_afterwards(cache, directory, "beside a limited process");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* A table that one process may not make larger grows in another. */
static void test_table(void) {
    enum { first = 800, limited = 4000, all = 20000 };
    char *directory = path_to("table");
    shale_cache *cache = open_cache(directory, 16 * mib);
    for (uint64_t key = 0; key < first; key++)
        REQUIRE_STATUS(SHALE_OK, set(cache, key, value_bytes, 0)); /* a few segments */
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        limit_files(directory);
        shale_cache *mine = open_cache(directory, 0);
        for (uint64_t i = 0; i < limited; i++)
            CHECK_STATUS(SHALE_OK, set(mine, all + i, 1, 0));
        CHECK_STATUS(SHALE_OK, shale_close(mine));
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    uint64_t displaced = stats_of(cache).evictions;
    for (uint64_t key = first; key < all; key++)
        REQUIRE_STATUS(SHALE_OK, set(cache, key, 1, 0));
    CHECK_EQUAL((int64_t)displaced, (int64_t)stats_of(cache).evictions);
    check_afterwards(cache, directory, "beside a limited process");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* A set that the limit refuses leaves its key as it was: no other frame has room for it. */
static void test_keeps_its_key(void) {
    char *directory = path_to("key");
    for (size_t old = 100; old <= 50000; old *= 500) {
        shale_cache *cache = open_cache(directory, 2 * mib);
        CHECK_STATUS(SHALE_OK, set(cache, 1, old, 0));
        pid_t child = fork();
        if (child == 0) {
            begin_child(patience);
            limit_files(directory);
            shale_cache *mine = open_cache(directory, 0);
            CHECK_STATUS(SHALE_E_FULL, set(mine, 1, 300000, 0));
            CHECK(strstr(shale_last_error(), "ulimit -f") != NULL);
            CHECK(holds(mine, 1, old));
            CHECK_STATUS(SHALE_OK, shale_close(mine));
            _exit(check_failures != 0);
        }
        CHECK_EQUAL(0, wait_for(child));
        CHECK(holds(cache, 1, old));
        CHECK_STATUS(SHALE_OK, set(cache, 1, 300000, 0));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(directory);
    }
    free(directory);
}

int main(void) {
    watch(patience);
    test_others_grow();
    test_says_why();
    test_table();
    test_keeps_its_key();
    return finish();
}
