/* A process is killed while it writes the header of a new segment, in a cache whose every set cleans: its frame is
 * often that of the segment that was the tail when the head was begun. No entry is lost, and nothing counts as
 * damaged.
 *
 * new_segment [kills, 400] [seed] */
#include "afterwards.h"
#include "faults.h"
#include "files.h"
#include "pattern.h"

enum { segment_size = 128 << 10, header_size = 64, key_count = 100, value_size = 9000 };

static char *directory;
static uint64_t stores_left;

/* Segments are aligned to their size. */
static void before_store(const void *at) {
    if ((uintptr_t)at % segment_size < header_size && --stores_left == 0)
        kill(getpid(), SIGKILL);
}

static shale_cache *open_cache(void) {
    return require_open(
        directory, (shale_options){.capacity = 2 << 20, .segment_size = segment_size, .flags = SHALE_OPEN_NO_SYNC});
}

static void put(shale_cache *cache, uint64_t key, uint64_t version) {
    static unsigned char bytes[value_size];
    pattern_fill(bytes, key, version, sizeof bytes);
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED};
    CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, sizeof bytes, &options));
}

int main(int argument_count, char **arguments) {
    uint64_t kills = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 400, version = 0;
    uint64_t seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL), struck = 0,
             rebuilds = 0;
    random_source source = {seed};
    directory = path_to("cache");
    shale_cache *cache = open_cache();
    for (uint64_t round = 0; round < 4; round++)
        for (uint64_t key = 0; key < key_count; key++)
            put(cache, key, ++version);
    for (uint64_t n = 0; n < kills && check_failures == 0; n++) {
        uint64_t after = 1 + random_below(&source, 30);
        pid_t child = fork();
        if (child == 0) {
            begin_child(patience);
            shale_cache *own = open_cache();
            stores_left = after;
            shim_faults.store = before_store;
            for (uint64_t i = 0; i < 400; i++)
                put(own, i % key_count, ++version);
            _exit(check_failures != 0);
        }
        version += 400;
        int code = wait_for(child);
        CHECK(code == 128 + SIGKILL || code == 0);
        struck += code != 0;
        put(cache, random_below(&source, key_count), ++version); /* recovers */
        shale_stats stats = stats_of(cache);
        if (!CHECK_EQUAL(0, stats.corrupt_records))
            fprintf(stderr, "again: new_segment %" PRIu64 " %" PRIu64 "\n", kills, seed);
        CHECK_EQUAL(rebuilds, stats.rebuilds);
        if (n % 8)
            continue;
        /* The same with an index rebuilt from the log. */
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_index(directory);
        cache = open_cache();
        stats = stats_of(cache);
        CHECK_EQUAL(0, stats.corrupt_records);
        rebuilds = stats.rebuilds;
        check_account(directory, "after a kill");
    }
    check_still_works(cache);
    shale_report report = {.struct_size = sizeof report};
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.corrupt_records);
    CHECK(struck * 2 > kills);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    printf("%" PRIu64 " processes killed in the header of a new segment, seed %" PRIu64 "\n", struck, seed);
    free(directory);
    return finish();
}
