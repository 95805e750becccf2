/* What this program says to the orchestrator, line by line. demo/worker.py lists the lines. */
#ifndef DEMO_TALK_H
#define DEMO_TALK_H

#include <stddef.h>

#include "latency.h"
#include "shale.h"

/* At most ten times a second; cheap enough to be called for every entry. */
void say_progress(size_t done, size_t total);
/* The cache did not do what it promises for this key. After the first ten, keys are not named any more. */
void say_difference(shale_bytes key, const char *what);
/* The same, for a call that failed: with the library's own sentence. */
void say_failure(shale_bytes key, const char *call, shale_status status);
/* The result of a step that was measured. Frees the samples. */
void say_measured(latencies *all);
/* The result of any other step: one number with a name. */
void say_count(const char *name, size_t count);

#endif
