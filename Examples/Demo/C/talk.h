/* The lines that this program sends to the orchestrator; demo/worker.py lists them. */
#ifndef DEMO_TALK_H
#define DEMO_TALK_H

#include <stddef.h>

#include "latency.h"
#include "shale.h"

/* Sends at most ten lines a second; cheap enough to be called for every entry. */
void say_progress(size_t done, size_t total);
/* Reports a wrong result of the cache for this key. Only the first ten keys are named. */
void say_difference(shale_bytes key, const char *what);
/* The same for a failed call, with the library's error message. */
void say_failure(shale_bytes key, const char *call, shale_status status);
/* The result of a measured step. Frees the samples. */
void say_measured(latencies *all);
/* The result of any other step: a named number. */
void say_count(const char *name, size_t count);

#endif
