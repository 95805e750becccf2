/* Times of calls: all samples are kept, so that the percentiles are exact. */
#ifndef DEMO_LATENCY_H
#define DEMO_LATENCY_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t *samples; /* nanoseconds */
    size_t count;
    size_t capacity;
} latencies;

/* The monotonic clock, in nanoseconds. */
uint64_t now_ns(void);

latencies latencies_make(size_t capacity);
void latencies_free(latencies *all);
/* Adds the time since `start`. */
void latencies_add(latencies *all, uint64_t start);
uint64_t latencies_total(const latencies *all);
/* Sorts the samples and returns the percentile of `share` (0 to 1); 0 without samples. */
uint64_t latencies_percentile(latencies *all, double share);

#endif
