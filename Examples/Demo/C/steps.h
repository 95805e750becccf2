/* The steps that the orchestrator can request. Each reports its result. */
#ifndef DEMO_STEPS_H
#define DEMO_STEPS_H

#include <stdbool.h>

#include "board.h"
#include "corpus.h"

typedef struct {
    corpus corpus;
    board *board;
    shale_cache *cache;
} demo;

/* Whether the entry is plain and its number modulo `parts` is `part`. */
static inline bool is_plain_part(const demo *demo, size_t index, size_t part, size_t parts) {
    return index % parts == part && demo->corpus.entries[index].role == ROLE_PLAIN;
}

/* Verifies the entries that the board counts as completed, then stores the rest. */
void step_fill(const demo *demo);
/* Stores the entries that get misses. */
void step_refill(const demo *demo);
/* Gets every entry; `expected` has one letter for each role, see check.h. */
void step_compare(const demo *demo, const char *expected);
/* Sets a part of the plain entries again. */
void step_rewrite(const demo *demo, size_t part, size_t parts);
/* The same with shale_set_many. */
void step_set_many(const demo *demo, size_t part, size_t parts);
/* Like step_compare, with shale_get_many. */
void step_get_many(const demo *demo, const char *expected);
/* The counters of shale_get_stats. */
void step_stats(const demo *demo);

#endif
