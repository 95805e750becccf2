/* Answers that an oracle accepts although a cache that never loses anything would not give them. Each use is counted,
 * in all processes together, and printed at the end with the number of looks. A comment beside it cites the page and
 * the heading that allow it; Tests/C/packaging/citations.py checks that the heading exists. One that is used in more
 * than a hundredth of the looks has another workload beside it that does not need it; which one is said where it is
 * used. */
#ifndef EXCUSES_H
#define EXCUSES_H

#include "check.h"

#include <stdatomic.h>

enum { most_excuses = 8 };

static struct {
    _Atomic uint64_t looks;
    struct {
        _Atomic uint64_t used;
        char why[120];
    } excuses[most_excuses];
} *excuses_shared;

/* Before the first fork. */
static inline void begin_excuses(void) {
    excuses_shared = shared_memory(sizeof *excuses_shared);
}

static inline void count_look(void) {
    atomic_fetch_add_explicit(&excuses_shared->looks, 1, memory_order_relaxed);
}

/* True; and counted. */
static inline bool excused(int which, const char *why) {
    if (atomic_fetch_add_explicit(&excuses_shared->excuses[which].used, 1, memory_order_relaxed) == 0)
        snprintf(excuses_shared->excuses[which].why, sizeof excuses_shared->excuses[which].why, "%s", why);
    return true;
}

static inline void print_excuses(void) {
    uint64_t looks = atomic_load(&excuses_shared->looks);
    printf("excuses in %" PRIu64 " looks:", looks);
    int shown = 0;
    for (int i = 0; i < most_excuses; i++) {
        uint64_t used = atomic_load(&excuses_shared->excuses[i].used);
        if (used)
            printf("%s %s %" PRIu64 " (%.2f %%)", shown++ ? "," : "", excuses_shared->excuses[i].why, used,
                   looks ? 100.0 * (double)used / (double)looks : 0);
    }
    printf("%s\n", shown ? "" : " none");
}

#endif
