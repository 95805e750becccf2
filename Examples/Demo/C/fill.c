/* Fills the cache. kill -9 may interrupt this at any instruction; the next run continues after the entries
 * that the board counts as completed.
 *
 * Python refreshes some of the entries at the same time. This program stores those only if they are absent, so that
 * Python's values remain whichever comes first. */
#include "steps.h"

#include "check.h"
#include "talk.h"

enum { STRETCH = 64, BATCH_EVERY = 4 }; /* every fourth stretch of 64 entries is stored by one call */

/* A completed set survives kill -9: every entry that the board counts must be found. */
static void verify_completed(const demo *demo, size_t completed) {
    shale_value value = SHALE_VALUE_INIT;
    for (size_t i = 0; i < completed; i++) {
        const corpus_entry *entry = &demo->corpus.entries[i];
        shale_status status = shale_get(demo->cache, entry->key.data, entry->key.size, 0, &value);
        if (status != SHALE_OK)
            say_failure(entry->key, "was completed before the writer was killed, but get", status);
        else
            check_bytes(entry, &value);
    }
    shale_value_free(&value);
}

static bool python_refreshes(const corpus_entry *entry) {
    return entry->role == ROLE_REFRESHED || entry->role == ROLE_INVALIDATED;
}

static void store(const demo *demo, const corpus_entry *entry) {
    shale_set_options options = {.struct_size = sizeof options};
    options.flags = python_refreshes(entry) ? SHALE_SET_IF_ABSENT : 0;
    shale_status status = shale_set(demo->cache, entry->key.data, entry->key.size, entry->value.data, entry->value.size,
                                    &options);
    if (status != SHALE_OK && !(status == SHALE_CONFLICT && python_refreshes(entry)))
        say_failure(entry->key, "set", status);
}

static void store_many(const demo *demo, size_t start, size_t end) {
    shale_bytes keys[STRETCH] = {0}, values[STRETCH] = {0};
    shale_status statuses[STRETCH];
    size_t count = 0;
    for (size_t i = start; i < end; i++) {
        const corpus_entry *entry = &demo->corpus.entries[i];
        if (python_refreshes(entry)) {
            store(demo, entry);
            continue;
        }
        keys[count] = entry->key;
        values[count++] = entry->value;
    }
    shale_set_many(demo->cache, count, keys, values, NULL, statuses);
    for (size_t i = 0; i < count; i++)
        if (statuses[i] != SHALE_OK)
            say_failure(keys[i], "set_many", statuses[i]);
}

void step_fill(const demo *demo) {
    size_t total = demo->corpus.count;
    size_t next = atomic_load(&demo->board->completed);
    verify_completed(demo, next);
    while (next < total) {
        bool whole = next % STRETCH == 0 && next + STRETCH <= total;
        if (whole && next / STRETCH % BATCH_EVERY == 0) {
            store_many(demo, next, next + STRETCH);
            next += STRETCH;
        } else {
            store(demo, &demo->corpus.entries[next]);
            next++;
        }
        atomic_store(&demo->board->completed, next);
        say_progress(next, total);
    }
    say_count("completed", next);
}

void step_refill(const demo *demo) {
    size_t refilled = 0;
    for (size_t i = 0; i < demo->corpus.count; i++) {
        const corpus_entry *entry = &demo->corpus.entries[i];
        shale_value value = SHALE_VALUE_INIT;
        shale_status status = shale_get(demo->cache, entry->key.data, entry->key.size, SHALE_GET_INFO, &value);
        shale_value_free(&value);
        if (status == SHALE_OK)
            continue;
        if (status != SHALE_MISS) {
            say_failure(entry->key, "get", status);
            continue;
        }
        status = shale_set(demo->cache, entry->key.data, entry->key.size, entry->value.data, entry->value.size, NULL);
        if (status != SHALE_OK)
            say_failure(entry->key, "set", status);
        refilled++;
    }
    say_count("refilled", refilled);
}
