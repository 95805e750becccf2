/* Runs threads at once, each with its own context; returns when all have ended. */
#ifndef THREADS_H
#define THREADS_H

#include "check.h"

#include <pthread.h>

enum { threads_at_most = 16 };

static inline void run_threads(uint64_t count, void *(*work)(void *context), void *const *contexts) {
    pthread_t started[threads_at_most];
    REQUIRE(count <= threads_at_most);
    for (uint64_t i = 0; i < count; i++)
        REQUIRE(pthread_create(&started[i], NULL, work, contexts[i]) == 0);
    for (uint64_t i = 0; i < count; i++)
        pthread_join(started[i], NULL);
}

#endif
