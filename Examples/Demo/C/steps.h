/* The steps that the orchestrator may ask for. Each says its result. */
#ifndef DEMO_STEPS_H
#define DEMO_STEPS_H

#include "board.h"
#include "corpus.h"

typedef struct {
    corpus corpus;
    board *board;
    shale_cache *cache;
} demo;

/* Verifies what the board says is completed, then stores the rest. */
void step_fill(const demo *demo);
/* Stores what is missed. */
void step_refill(const demo *demo);
/* Gets every entry; `expected` has one letter for each role, see check.h. */
void step_compare(const demo *demo, const char *expected);
/* Sets those plain entries again whose number leaves `part` when divided by `parts`. */
void step_rewrite(const demo *demo, size_t part, size_t parts);
/* The same with shale_set_many, followed by shale_get_many. */
void step_batch(const demo *demo, size_t part, size_t parts);
/* The counters of shale_get_stats. */
void step_stats(const demo *demo);

#endif
