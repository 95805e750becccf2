/* Answers that an oracle accepts although a cache that never loses anything would not give them. Each use is
 * counted, in all processes together, and printed at the end with the number of looks. A comment beside it cites the
 * page and the heading that allow it; Tests/C/packaging/citations.py checks that the heading exists. If a tolerance
 * is used in more than a hundredth of the looks, its comment names a workload that does not need it. */
#ifndef TOLERANCES_H
#define TOLERANCES_H

#include "check.h"

#include <stdatomic.h>

enum { most_tolerances = 8 };

static struct {
    _Atomic uint64_t looks;
    struct {
        _Atomic uint64_t used;
        char why[120];
    } tolerances[most_tolerances];
} *tolerances_shared;

/* Call before the first fork. */
static inline void begin_tolerances(void) {
    tolerances_shared = shared_memory(sizeof *tolerances_shared);
}

static inline void count_look(void) {
    atomic_fetch_add_explicit(&tolerances_shared->looks, 1, memory_order_relaxed);
}

/* Counts one use of the tolerance; returns true. */
static inline bool tolerated(int which, const char *why) {
    if (atomic_fetch_add_explicit(&tolerances_shared->tolerances[which].used, 1, memory_order_relaxed) == 0)
        snprintf(tolerances_shared->tolerances[which].why, sizeof tolerances_shared->tolerances[which].why, "%s", why);
    return true;
}

static inline void print_tolerances(void) {
    uint64_t looks = atomic_load(&tolerances_shared->looks);
    printf("tolerances in %" PRIu64 " looks:", looks);
    int shown = 0;
    for (int i = 0; i < most_tolerances; i++) {
        uint64_t used = atomic_load(&tolerances_shared->tolerances[i].used);
        if (used)
            printf("%s %s %" PRIu64 " (%.2f %%)", shown++ ? "," : "", tolerances_shared->tolerances[i].why, used,
                   looks ? 100.0 * (double)used / (double)looks : 0);
    }
    printf("%s\n", shown ? "" : " none");
}

#endif
