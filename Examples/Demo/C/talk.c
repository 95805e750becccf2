#include "talk.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

enum { PROGRESS_NS = 100 * 1000 * 1000, PROGRESS_STEP = 64, NAMED_DIFFERENCES = 10, TEXT_SIZE = 400 };

void say_progress(size_t done, size_t total) {
    static uint64_t last;
    if (done % PROGRESS_STEP != 0)
        return;
    uint64_t now = now_ns();
    if (now - last < PROGRESS_NS)
        return;
    last = now;
    printf("progress %zu %zu\n", done, total);
}

/* The key as printable text, truncated if long. */
static void describe_key(shale_bytes key, char text[TEXT_SIZE]) {
    const unsigned char *bytes = key.data;
    size_t used = 0;
    for (size_t i = 0; i < key.size && used + 8 < TEXT_SIZE; i++) {
        if (isprint(bytes[i]))
            text[used++] = (char)bytes[i];
        else
            used += (size_t)snprintf(text + used, TEXT_SIZE - used, "\\x%02x", bytes[i]);
    }
    text[used] = '\0';
}

void say_difference(shale_bytes key, const char *what) {
    static size_t count;
    char text[TEXT_SIZE];
    if (++count <= NAMED_DIFFERENCES) {
        describe_key(key, text);
        printf("difference %s: %s\n", text, what);
    } else if (count == NAMED_DIFFERENCES + 1) {
        printf("difference and more\n");
    }
}

void say_failure(shale_bytes key, const char *call, shale_status status) {
    char what[1024];
    snprintf(what, sizeof what, "%s gave %" PRId32 " (%s) %s", call, status, shale_status_text(status),
             status < 0 ? shale_last_error() : "");
    say_difference(key, what);
}

void say_measured(latencies *all) {
    printf("result {\"calls\": %zu, \"total_ns\": %" PRIu64, all->count, latencies_total(all));
    printf(", \"p50_ns\": %" PRIu64 ", \"p99_ns\": %" PRIu64 "}\n", latencies_percentile(all, 0.5),
           latencies_percentile(all, 0.99));
    latencies_free(all);
}

void say_count(const char *name, size_t count) {
    printf("result {\"%s\": %zu}\n", name, count);
}
