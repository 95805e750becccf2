/* The steps that are measured: a clock before and after each call, the checking outside. */
#include "steps.h"

#include <inttypes.h>
#include <stdio.h>

#include "check.h"
#include "talk.h"

enum { BATCH = 64 };

void step_compare(const demo *demo, const char *expected) {
    size_t total = demo->corpus.count;
    latencies all = latencies_make(total);
    shale_value value = SHALE_VALUE_INIT;
    for (size_t i = 0; i < total; i++) {
        const corpus_entry *entry = &demo->corpus.entries[i];
        uint64_t start = now_ns();
        shale_status status = shale_get(demo->cache, entry->key.data, entry->key.size, 0, &value);
        latencies_add(&all, start);
        check_answer(entry, expected[entry->role], status, &value);
        say_progress(i, total);
    }
    shale_value_free(&value);
    say_measured(&all);
}

static bool belongs(const demo *demo, size_t index, size_t part, size_t parts) {
    return index % parts == part && demo->corpus.entries[index].role == ROLE_PLAIN;
}

void step_rewrite(const demo *demo, size_t part, size_t parts) {
    size_t total = demo->corpus.count;
    latencies all = latencies_make(total);
    for (size_t i = 0; i < total; i++) {
        if (!belongs(demo, i, part, parts))
            continue;
        const corpus_entry *entry = &demo->corpus.entries[i];
        uint64_t start = now_ns();
        shale_status status = shale_set(demo->cache, entry->key.data, entry->key.size, entry->value.data,
                                        entry->value.size, NULL);
        latencies_add(&all, start);
        if (status != SHALE_OK)
            say_failure(entry->key, "set", status);
    }
    say_measured(&all);
}

typedef struct {
    const corpus_entry *entries[BATCH];
    shale_bytes keys[BATCH], values[BATCH];
    shale_value answers[BATCH];
    shale_status statuses[BATCH];
    size_t count;
} batch;

/* Sets the batch, gets it back, checks each answer, and empties the batch. */
static void run_batch(const demo *demo, batch *batch, latencies *sets, latencies *gets) {
    uint64_t start = now_ns();
    shale_set_many(demo->cache, batch->count, batch->keys, batch->values, NULL, batch->statuses);
    latencies_add(sets, start);
    for (size_t i = 0; i < batch->count; i++)
        if (batch->statuses[i] != SHALE_OK)
            say_failure(batch->keys[i], "set_many", batch->statuses[i]);

    start = now_ns();
    shale_get_many(demo->cache, batch->count, batch->keys, 0, batch->answers, batch->statuses);
    latencies_add(gets, start);
    for (size_t i = 0; i < batch->count; i++)
        check_answer(batch->entries[i], 'p', batch->statuses[i], &batch->answers[i]);
    batch->count = 0;
}

void step_batch(const demo *demo, size_t part, size_t parts) {
    size_t total = demo->corpus.count, entries = 0;
    latencies sets = latencies_make(total / BATCH + 1), gets = latencies_make(total / BATCH + 1);
    batch batch = {.count = 0};
    for (size_t i = 0; i < BATCH; i++)
        batch.answers[i] = (shale_value)SHALE_VALUE_INIT;

    for (size_t i = 0; i < total; i++) {
        if (!belongs(demo, i, part, parts))
            continue;
        const corpus_entry *entry = &demo->corpus.entries[i];
        batch.entries[batch.count] = entry;
        batch.keys[batch.count] = entry->key;
        batch.values[batch.count] = entry->value;
        entries++;
        if (++batch.count == BATCH)
            run_batch(demo, &batch, &sets, &gets);
    }
    if (batch.count > 0)
        run_batch(demo, &batch, &sets, &gets);

    printf("result {\"entries\": %zu, \"set_ns\": %" PRIu64 ", \"get_ns\": %" PRIu64 "}\n", entries,
           latencies_total(&sets), latencies_total(&gets));
    for (size_t i = 0; i < BATCH; i++)
        shale_value_free(&batch.answers[i]);
    latencies_free(&sets);
    latencies_free(&gets);
}
