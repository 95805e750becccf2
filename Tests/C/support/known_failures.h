/* A suite's known failures: its lines of Tests/known-failures, which explains them. */
#ifndef KNOWN_FAILURES_H
#define KNOWN_FAILURES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { most_known_failures = 32 };

typedef struct {
    char line[1024];
    const char *suite, *kind, *how, *why;
} known_failure;

static known_failure known_failures[most_known_failures];
static int known_failure_count;

static inline char *next_known_field(char **rest) {
    char *field = *rest, *bar = field ? strstr(field, " | ") : NULL;
    if (bar)
        *bar = 0;
    *rest = bar ? bar + 3 : NULL;
    return field;
}

/* Reads the suite's lines. Exits if the file cannot be parsed. */
static inline void read_known_failures(const char *suite) {
    FILE *file = fopen(KNOWN_FAILURES, "r");
    known_failure *known = known_failures;
    while (file && known_failure_count < most_known_failures && fgets(known->line, sizeof known->line, file)) {
        known->line[strcspn(known->line, "\n")] = 0;
        if (*known->line == '#' || !*known->line)
            continue;
        char *rest = known->line;
        known->suite = next_known_field(&rest);
        known->kind = next_known_field(&rest);
        known->how = next_known_field(&rest);
        known->why = rest;
        static const char *const suites[] = {"explore", "stress", "histories", "test_progress", "tier_histories"};
        bool is_read = false;
        for (size_t i = 0; i < sizeof suites / sizeof *suites; i++)
            is_read |= strcmp(known->suite, suites[i]) == 0;
        if (!known->why || !is_read) {
            fprintf(stderr, "%s: not four fields, the first a suite's name: %s\n", KNOWN_FAILURES, known->line);
            exit(2);
        }
        if (strcmp(known->suite, suite) == 0)
            known++, known_failure_count++;
    }
    if (!file || !feof(file)) {
        fprintf(stderr, "%s: cannot be read to its end\n", KNOWN_FAILURES);
        exit(2);
    }
    fclose(file);
}

static inline bool is_known_failure(const char *kind) {
    for (int i = 0; i < known_failure_count; i++)
        if (strcmp(known_failures[i].kind, kind) == 0)
            return true;
    return false;
}

#endif
