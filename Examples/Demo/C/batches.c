/* Measures calls with 64 keys. */
#include "steps.h"

#include <inttypes.h>
#include <stdio.h>

#include "check.h"
#include "latency.h"
#include "talk.h"

enum { BATCH = 64 };

typedef struct {
    const corpus_entry *entries[BATCH];
    shale_bytes keys[BATCH], values[BATCH];
    size_t count;
} batch;

static void add(batch *batch, const corpus_entry *entry) {
    batch->entries[batch->count] = entry;
    batch->keys[batch->count] = entry->key;
    batch->values[batch->count] = entry->value;
    batch->count++;
}

static void say_entries(size_t entries, uint64_t total_ns) {
    printf("result {\"entries\": %zu, \"total_ns\": %" PRIu64 "}\n", entries, total_ns);
}

/* Stores the batch and clears it; returns the time that storing took. */
static uint64_t store(const demo *demo, batch *batch) {
    shale_status statuses[BATCH];
    uint64_t start = now_ns();
    shale_set_many(demo->cache, batch->count, batch->keys, batch->values, NULL, statuses);
    uint64_t elapsed = now_ns() - start;
    for (size_t i = 0; i < batch->count; i++)
        if (statuses[i] != SHALE_OK)
            say_failure(batch->keys[i], "set_many", statuses[i]);
    batch->count = 0;
    return elapsed;
}

void step_set_many(const demo *demo, size_t part, size_t parts) {
    batch batch = {.count = 0};
    size_t entries = 0;
    uint64_t total_ns = 0;
    for (size_t i = 0; i < demo->corpus.count; i++) {
        if (!is_plain_part(demo, i, part, parts))
            continue;
        add(&batch, &demo->corpus.entries[i]);
        entries++;
        if (batch.count == BATCH)
            total_ns += store(demo, &batch);
    }
    if (batch.count > 0)
        total_ns += store(demo, &batch);
    say_entries(entries, total_ns);
}

/* Gets the batch, checks each result, and clears the batch; returns the time that the get took. */
static uint64_t fetch(const demo *demo, batch *batch, shale_value *answers, const char *expected) {
    shale_status statuses[BATCH];
    uint64_t start = now_ns();
    shale_get_many(demo->cache, batch->count, batch->keys, 0, answers, statuses);
    uint64_t elapsed = now_ns() - start;
    for (size_t i = 0; i < batch->count; i++)
        check_answer(batch->entries[i], expected[batch->entries[i]->role], statuses[i], &answers[i]);
    batch->count = 0;
    return elapsed;
}

static uint64_t fetch_all(const demo *demo, shale_value *answers, const char *expected) {
    batch batch = {.count = 0};
    uint64_t total_ns = 0;
    for (size_t i = 0; i < demo->corpus.count; i++) {
        add(&batch, &demo->corpus.entries[i]);
        if (batch.count == BATCH)
            total_ns += fetch(demo, &batch, answers, expected);
    }
    if (batch.count > 0)
        total_ns += fetch(demo, &batch, answers, expected);
    return total_ns;
}

void step_get_many(const demo *demo, const char *expected) {
    shale_value answers[BATCH];
    for (size_t i = 0; i < BATCH; i++)
        answers[i] = (shale_value)SHALE_VALUE_INIT;
    /* The first round grows the 64 buffers; the second is measured. */
    fetch_all(demo, answers, expected);
    say_entries(demo->corpus.count, fetch_all(demo, answers, expected));
    for (size_t i = 0; i < BATCH; i++)
        shale_value_free(&answers[i]);
}
