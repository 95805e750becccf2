/* A cache whose records are not in memory: no change reads them from the disk while it holds the lock, and get_many
 * asks for all before it waits for one. Counts page faults that need the disk. */
#include "check.h"
#include "faults.h"
#include "files.h"
#include "pattern.h"

#include <sys/resource.h>

/* A record is longer than a page, so that each is on pages of its own. */
enum { entries = 3000, value_size = 4500, calls = 256 };

static char *directory;
static struct shim_counts counts;
static shale_cache *cache;

static void put(uint64_t key, size_t size) {
    unsigned char bytes[value_size];
    pattern_fill(bytes, key, 1, size);
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED};
    CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, size, &options));
}

static void open_cache(uint64_t capacity) {
    cache = require_open(directory, (shale_options){.capacity = capacity, .shards = 1, .segment_size = 1 << 20});
}

/* Closes the cache, removes its data from memory, and opens it again. */
static void make_cold(uint64_t capacity) {
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    int data = open_file(directory, "shale.data", O_RDWR);
    REQUIRE(fdatasync(data) == 0 && posix_fadvise(data, 0, 0, POSIX_FADV_DONTNEED) == 0);
    close(data);
    open_cache(capacity);
}

static uint64_t faults_so_far(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_majflt;
}

static uint64_t faults_under_lock(void) {
    uint64_t sum = 0;
    for (int i = 0; i < SHIM_CALLS; i++)
        sum += counts.calls[i].faults;
    return sum;
}

static uint64_t key_of(uint64_t i) {
    return i * 1009 % entries;
}

/* `most`: under the lock. Sets also ask for the pages at the ends of the log; other changes wait for a few of them. */
static void changes_of(const char *what, void (*change)(uint64_t key), uint64_t first, uint64_t capacity,
                       uint64_t most) {
    make_cold(capacity);
    memset(&counts, 0, sizeof counts);
    uint64_t before = faults_so_far();
    for (uint64_t i = 0; i < calls; i++)
        change(key_of(first + i));
    uint64_t under_lock = faults_under_lock(), all = faults_so_far() - before;
    printf("%s: %d calls, %" PRIu64 " faults, of them %" PRIu64 " under the lock\n", what, calls, all, under_lock);
    CHECK(under_lock <= most);
    CHECK(all >= calls); /* they were not in memory */
}

/* (Short: a page that was never written also counts as a fault, but does not wait.) */
static void replace(uint64_t key) {
    put(key, 100);
}
static void touch(uint64_t key) {
    CHECK_STATUS(SHALE_OK, shale_touch(cache, &key, sizeof key, 1000000));
}
static void drop(uint64_t key) {
    CHECK_STATUS(SHALE_OK, shale_remove(cache, &key, sizeof key, 0));
}

static void many(uint64_t capacity) {
    make_cold(capacity);
    uint64_t numbers[calls];
    shale_bytes keys[calls];
    shale_value values[calls];
    shale_status statuses[calls];
    for (int i = 0; i < calls; i++) {
        numbers[i] = key_of((uint64_t)i + calls);
        keys[i] = (shale_bytes){&numbers[i], sizeof numbers[i]};
        values[i] = (shale_value)SHALE_VALUE_INIT;
    }
    uint64_t before = faults_so_far();
    CHECK_STATUS(SHALE_OK, shale_get_many(cache, calls, keys, 0, values, statuses));
    uint64_t all = faults_so_far() - before;
    for (int i = 0; i < calls; i++) {
        CHECK_STATUS(SHALE_OK, statuses[i]);
        shale_value_free(&values[i]);
    }
    printf("get_many: %d keys, %" PRIu64 " faults\n", calls, all);
    CHECK(all < calls * 3 / 2); /* each value's second page; not its first */
}

int main(void) {
    directory = path_to("cache");
    uint64_t ample = 64 << 20, tight = 20 << 20;
    open_cache(ample);
    for (uint64_t key = 0; key < entries; key++)
        put(key, value_size);
    make_cold(ample);
    uint64_t before = faults_so_far();
    for (uint64_t i = 0; i < calls; i++) {
        uint64_t key = key_of(i);
        shale_value value = SHALE_VALUE_INIT;
        CHECK_STATUS(SHALE_OK, shale_get(cache, &key, sizeof key, 0, &value));
        shale_value_free(&value);
    }
    if (faults_so_far() - before < calls) {
        printf("skipped: this file system keeps its files in memory\n");
        return SKIPPED;
    }
    many(ample);
    shim_counts = &counts;
    changes_of("touch", touch, 0, ample, 30);
    changes_of("set", replace, calls, ample, 5);
    changes_of("remove", drop, (uint64_t)2 * calls, ample, 30);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));

    /* A full one: each set evicts and cleans. */
    remove_tree(directory);
    open_cache(tight);
    for (uint64_t key = 0; key < 4 * entries; key++)
        put(key_of(key), value_size);
    changes_of("set in a full cache", replace, 0, tight, 5);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    return finish();
}
