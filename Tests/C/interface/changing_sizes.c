/* A cache follows its entries' sizes: after two capacities of sets of another size, it holds nearly as many entries as a
 * new cache with those, and its index is hardly larger (space.md, "The table").
 *
 * changing_sizes [MIB...]: capacities; without, 4 and 16 */
#include "check.h"

enum { most_size = 60000, key_size = 10, head = 60 /* about what an entry takes beside its value */ };

static unsigned char bytes[2 * most_size];
static uint64_t number;

/* Until so many capacities were set. */
static void fill(shale_cache *cache, uint64_t capacity, size_t size, uint64_t capacities) {
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED};
    for (uint64_t i = 0; i < capacities * capacity / (size + head); i++) {
        char key[key_size + 1];
        snprintf(key, sizeof key, "%010" PRIu64, number++);
        if (!CHECK_STATUS(SHALE_OK, shale_set(cache, key, key_size, bytes + i % most_size, size, &options)))
            return;
    }
}

static shale_stats filled(uint64_t capacity, int32_t policy, size_t first, size_t then) {
    char *directory = path_to("sizes");
    shale_cache *cache = require_open(
        directory, (shale_options){.capacity = capacity, .eviction = policy, .flags = SHALE_OPEN_NO_SYNC});
    if (first > 0)
        fill(cache, capacity, first, 2);
    fill(cache, capacity, then, 2);
    shale_stats stats = stats_of(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
    return stats;
}

static void change(uint64_t capacity, int32_t policy, size_t first, size_t then) {
    shale_stats new = filled(capacity, policy, 0, then), changed = filled(capacity, policy, first, then);
    double entries = (double)changed.entries / (double)new.entries,
           index = (double)changed.index_bytes / (double)new.index_bytes,
           least = capacity < (uint64_t)64 << 20 ? 0.90 : 0.95;
    printf("%5" PRIu64 " MiB %-5s %5zu then %5zu bytes: %.3f of a new cache's entries (%" PRIu64
           "), %.3f of its index\n",
           capacity >> 20, policy == SHALE_EVICTION_LRU ? "LRU" : "CLOCK", first, then, entries, new.entries, index);
    fflush(stdout);
    CHECK(entries >= least);
    if (first < then)
        CHECK(index <= 1.2);
}

int main(int count, char **arguments) {
    watch(3 * patience);
    random_source random = {1};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)random_next(&random);
    static const size_t pairs[][2] = {{16000, 10}, {1000, 10}, {16000, 50}, {1000, 100}, {60000, 10}};
    for (int i = 1; i < (count > 1 ? count : 3); i++)
        for (int32_t policy = SHALE_EVICTION_LRU; policy <= SHALE_EVICTION_CLOCK; policy++)
            for (size_t j = 0; j < sizeof pairs / sizeof *pairs; j++) {
                uint64_t capacity = (uint64_t)(count > 1 ? atoi(arguments[i]) : i == 1 ? 4 : 16) << 20;
                change(capacity, policy, pairs[j][0], pairs[j][1]);
                change(capacity, policy, pairs[j][1], pairs[j][0]);
            }
    return finish();
}
