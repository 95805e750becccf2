#include "check.h"

#include <stdio.h>
#include <string.h>

#include "talk.h"

bool check_bytes(const corpus_entry *entry, const shale_value *value) {
    char what[128];
    if (value->size != entry->value.size) {
        snprintf(what, sizeof what, "%zu bytes, but the source has %zu", value->size, entry->value.size);
    } else if (value->size > 0 && memcmp(value->data, entry->value.data, value->size) != 0) {
        const char *got = value->data, *wanted = entry->value.data;
        size_t at = 0;
        while (got[at] == wanted[at])
            at++;
        snprintf(what, sizeof what, "the first byte that differs from the source is byte %zu", at);
    } else {
        return true;
    }
    say_difference(entry->key, what);
    return false;
}

bool check_answer(const corpus_entry *entry, char expected, shale_status status, const shale_value *value) {
    if (status != (expected == 'm' ? SHALE_MISS : SHALE_OK)) {
        say_failure(entry->key, expected == 'm' ? "should be missing, but get" : "should be present, but get", status);
        return false;
    }
    if (status == SHALE_MISS)
        return true;
    if ((value->expires_ms != SHALE_NEVER) != (expected == 'a')) {
        say_difference(entry->key, expected == 'a' ? "has no age" : "has an age");
        return false;
    }
    return check_bytes(entry, value);
}
