#include "steps.h"

#include <inttypes.h>
#include <stdio.h>

#include "talk.h"

void step_stats(const demo *demo) {
    shale_stats stats = {.struct_size = sizeof stats};
    shale_status status = shale_get_stats(demo->cache, &stats);
    if (status != SHALE_OK)
        say_failure((shale_bytes){"(statistics)", 12}, "shale_get_stats", status);
    const struct {
        const char *name;
        uint64_t value;
    } counters[] = {
        {"entries", stats.entries},           {"capacity", stats.capacity},
        {"data_bytes", stats.data_bytes},     {"index_bytes", stats.index_bytes},
        {"live_bytes", stats.live_bytes},     {"raw_bytes", stats.raw_bytes},
        {"stored_bytes", stats.stored_bytes}, {"evictions", stats.evictions},
        {"expirations", stats.expirations},   {"corrupt_records", stats.corrupt_records},
        {"rebuilds", stats.rebuilds},         {"dictionaries", stats.dictionaries},
    };
    printf("result {\"shards\": %" PRIu32, stats.shards);
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        printf(", \"%s\": %" PRIu64, counters[i].name, counters[i].value);
    printf("}\n");
}
