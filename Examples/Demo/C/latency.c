#include "latency.h"

#include <err.h>
#include <stdlib.h>
#include <time.h>

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

latencies latencies_make(size_t capacity) {
    latencies all = {calloc(capacity ? capacity : 1, sizeof(uint64_t)), 0, capacity};
    if (all.samples == NULL)
        err(1, "%zu samples", capacity);
    return all;
}

void latencies_free(latencies *all) {
    free(all->samples);
}

void latencies_add(latencies *all, uint64_t start) {
    uint64_t end = now_ns();
    if (all->count < all->capacity)
        all->samples[all->count++] = end - start;
}

uint64_t latencies_total(const latencies *all) {
    uint64_t total = 0;
    for (size_t i = 0; i < all->count; i++)
        total += all->samples[i];
    return total;
}

static int ascending(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

uint64_t latencies_percentile(latencies *all, double share) {
    if (all->count == 0)
        return 0;
    qsort(all->samples, all->count, sizeof *all->samples, ascending);
    size_t rank = (size_t)(share * (double)all->count);
    return all->samples[rank < all->count ? rank : all->count - 1];
}
