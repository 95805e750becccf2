/* A cache follows its entries' sizes: after two capacities of sets of another size, it holds nearly as many entries as a
 * new cache with those, and its index is hardly larger (space.md, "The table").
 *
 * changing_sizes               capacities of 4 and 16 MiB
 * changing_sizes MIB...        others
 * changing_sizes longest MIB   the longest set in processor time while the sizes change, best of five runs */
#include "check.h"

enum { most_size = 60000, key_size = 10, head = 60 /* about what an entry takes beside its value */ };

static unsigned char bytes[2 * most_size];
static uint64_t number;
static bool is_timed;
static int64_t longest; /* ns */

static int64_t processor_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Until so many capacities were set. */
static void fill(shale_cache *cache, uint64_t capacity, size_t size, uint64_t capacities) {
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED};
    for (uint64_t i = 0; i < capacities * capacity / (size + head); i++) {
        char key[key_size + 1];
        snprintf(key, sizeof key, "%010" PRIu64, number++);
        int64_t begun = is_timed ? processor_time() : 0;
        if (!CHECK_STATUS(SHALE_OK, shale_set(cache, key, key_size, bytes + i % most_size, size, &options)))
            return;
        if (is_timed) {
            int64_t taken = processor_time() - begun;
            longest = taken > longest ? taken : longest;
        }
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

static const size_t pairs[][2] = {{16000, 10}, {1000, 100}, {1000, 10}, {16000, 50}, {60000, 10}};

static void change_all(uint64_t mebibytes, unsigned count) {
    for (int32_t policy = SHALE_EVICTION_LRU; policy <= SHALE_EVICTION_CLOCK; policy++)
        for (unsigned i = 0; i < count; i++) {
            change(mebibytes << 20, policy, pairs[i][0], pairs[i][1]);
            change(mebibytes << 20, policy, pairs[i][1], pairs[i][0]);
        }
}

/* A pass over the table of 256 MiB takes 15 to 23 ms, and the pages of a new frame a few. */
static void time_the_longest(uint64_t mebibytes) {
    enum { runs = 5, most_ms = 10 };
    for (int32_t policy = SHALE_EVICTION_LRU; policy <= SHALE_EVICTION_CLOCK; policy++) {
        int64_t best = INT64_MAX;
        for (int run = 0; run < runs; run++) {
            shale_cache *cache = require_open(NULL, (shale_options){.capacity = mebibytes << 20, .eviction = policy});
            is_timed = false;
            fill(cache, mebibytes << 20, most_size, 2);
            is_timed = true;
            longest = 0;
            fill(cache, mebibytes << 20, 10, 1);
            fill(cache, mebibytes << 20, most_size, 2);
            CHECK_STATUS(SHALE_OK, shale_close(cache));
            best = longest < best ? longest : best;
        }
        printf("%5" PRIu64 " MiB %-5s longest set: %.2f ms\n", mebibytes,
               policy == SHALE_EVICTION_LRU ? "LRU" : "CLOCK", (double)best / 1e6);
        CHECK(best <= most_ms * (int64_t)1000000);
    }
}

int main(int count, char **arguments) {
    random_source random = {1};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)random_next(&random);
    if (count == 3 && strcmp(arguments[1], "longest") == 0) {
        time_the_longest(strtoul(arguments[2], NULL, 10));
    } else if (count > 1) {
        for (int i = 1; i < count; i++) {
            uint64_t mebibytes = strtoul(arguments[i], NULL, 10);
            change_all(mebibytes, mebibytes > 256 ? 2 : sizeof pairs / sizeof *pairs);
        }
    } else {
        watch(patience);
        change_all(4, sizeof pairs / sizeof *pairs);
        change_all(16, 2);
    }
    return finish();
}
