/* Clocks: the wall's, the thread's, and the processor's counter for single operations. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static inline double read_clock(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static inline double wall(void) {
    return read_clock(CLOCK_MONOTONIC);
}
static inline double thread_cpu(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* Ticks, once all earlier instructions have been done. */
static inline uint64_t ticks(void) {
#if defined(__x86_64__)
    unsigned processor;
    return __rdtscp(&processor);
#else
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
#endif
}

#endif
