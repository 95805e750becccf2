/* Measures calls with one key: the time of each call, without the checks. */
#include "steps.h"

#include "check.h"
#include "talk.h"

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

void step_rewrite(const demo *demo, size_t part, size_t parts) {
    size_t total = demo->corpus.count;
    latencies all = latencies_make(total);
    for (size_t i = 0; i < total; i++) {
        if (!is_plain_part(demo, i, part, parts))
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
