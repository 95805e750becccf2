/* A tag costs the same whether it is the first or the ten-thousandth: no call that changes one, nor a set beside it,
 * looks at many slots, although generations of tags end meanwhile. */
#include "check.h"
#include "faults.h"
#include "files.h"
#include "layout.h"

enum { entries = 200000, tags = 20000, more_entries = 60000, most_slots = 2048 };

static struct shim_counts counts;

static uint64_t most_slots_of(const char *call) {
    for (int i = 0; i < SHIM_CALLS; i++)
        if (strcmp((const char *)counts.calls[i].name, call) == 0)
            return counts.calls[i].most[SHIM_SLOTS];
    return 0;
}

static void put(shale_cache *cache, uint32_t key) {
    uint32_t own = key % 1000;
    shale_bytes tag = {&own, sizeof own};
    shale_set_options options = {.struct_size = sizeof options, .tags = &tag, .tag_count = 1};
    CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, "x", 1, &options));
}

/* Values that no writer leaves in the words of the generations cost the index, and no process. */
static void test_damaged(void) {
    char *directory = path_to("damaged");
    shale_options options = {.capacity = 4 << 20, .shards = 1};
    for (int i = 0; i < 4; i++) {
        shale_cache *cache = require_open(directory, options);
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        mapped_file index = map_file(directory, "shale.index");
        const uint64_t damage = INT64_MAX;
        memcpy(index.bytes + index_head_bytes + shard_tag_counts + i * 8, &damage, sizeof damage);
        unmap_file(&index);
        cache = require_open(directory, options);
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "another", 7));
        CHECK_EQUAL(1, stats_of(cache).rebuilds);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(directory);
    }
    free(directory);
}

int main(void) {
    watch(patience);
    test_damaged();
    shale_cache *cache = require_open(NULL, (shale_options){.capacity = 128 << 20, .shards = 1});
    for (uint32_t key = 0; key < entries; key++)
        put(cache, key);
    shim_counts = &counts;
    for (uint32_t tag = 0; tag < tags; tag++) {
        uint32_t other = tag + 1000;
        CHECK_STATUS(SHALE_OK, shale_invalidate_with(cache, tag % 100 ? &other : &tag, sizeof tag,
                                                     tag % 2 ? SHALE_INVALIDATE_EXPIRE : 0));
        /* A table that grows goes on with the sweep. */
        for (uint32_t i = 0; i < more_entries / tags; i++)
            put(cache, entries + tag * (more_entries / tags) + i);
    }
    shim_counts = NULL;
    uint64_t invalidations = most_slots_of("shale_invalidate_with"), sets = most_slots_of("shale_set");
    printf("at most %" PRIu64 " slots for a tag, %" PRIu64 " for a set beside it\n", invalidations, sets);
    CHECK(invalidations > 0 && invalidations <= most_slots);
    CHECK(sets > 0 && sets <= most_slots);
    /* Entries that tags ended stay dead, also those displaced in the table. */
    shale_value value = SHALE_VALUE_INIT;
    for (uint32_t key = 0; key < entries; key += 100)
        CHECK_STATUS(SHALE_MISS, shale_get(cache, &key, sizeof key, 0, &value));
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return finish();
}
