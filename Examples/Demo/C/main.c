/* The C program: opens the cache, then executes commands from stdin until it ends. */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "latency.h"
#include "steps.h"

enum { LIFETIME_SECONDS = 300 }; /* ends this program even if the orchestrator hangs */

static shale_cache *open_cache(const char *directory, const char *capacity) {
    shale_options options = {.struct_size = sizeof options};
    options.capacity = strtoull(capacity, NULL, 10);
    shale_cache *cache;
    uint64_t start = now_ns();
    if (shale_open(directory, &options, &cache) < 0)
        errx(1, "%s", shale_last_error());
    printf("ready {\"open_ns\": %" PRIu64 "}\n", now_ns() - start);
    return cache;
}

static void obey(const demo *demo, const char *line) {
    char expected[ROLE_COUNT + 1];
    size_t part, parts;
    if (strcmp(line, "fill") == 0)
        step_fill(demo);
    else if (strcmp(line, "refill") == 0)
        step_refill(demo);
    else if (strcmp(line, "stats") == 0)
        step_stats(demo);
    else if (sscanf(line, "compare %4[pam]", expected) == 1 && strlen(expected) == ROLE_COUNT)
        step_compare(demo, expected);
    else if (sscanf(line, "rewrite %zu %zu", &part, &parts) == 2)
        step_rewrite(demo, part, parts);
    else if (sscanf(line, "set_many %zu %zu", &part, &parts) == 2)
        step_set_many(demo, part, parts);
    else if (sscanf(line, "get_many %4[pam]", expected) == 1 && strlen(expected) == ROLE_COUNT)
        step_get_many(demo, expected);
    else
        errx(2, "unknown command: %s", line);
}

int main(int argc, char **argv) {
    if (argc != 5)
        errx(2, "usage: %s CORPUS BOARD DIRECTORY CAPACITY", argv[0]);
    alarm(LIFETIME_SECONDS);
    setvbuf(stdout, NULL, _IOLBF, 0);
    demo demo = {corpus_map(argv[1]), board_map(argv[2]), NULL};
    demo.cache = open_cache(argv[3], argv[4]);
    char line[256];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        obey(&demo, line);
    }
    if (shale_close(demo.cache) < 0)
        errx(1, "%s", shale_last_error());
    return 0;
}
