#include "report.h"

#include <stdio.h>
#include <stdlib.h>

enum { most = 128 };

static struct {
    const char *name, *unit;
    double value;
} figures[most];
static size_t figure_count;

void report_section(const char *title) {
    printf("\n%s\n", title);
    fflush(stdout);
}

void report(const char *name, const char *label, double value, const char *unit) {
    int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
    printf("  %-56s %12.*f %s\n", label, decimals, value, unit);
    fflush(stdout);
    if (figure_count < most) {
        figures[figure_count].name = name;
        figures[figure_count].unit = unit;
        figures[figure_count++].value = value;
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *samples, size_t count) {
    qsort(samples, count, sizeof *samples, compare);
    return count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
}

int report_write_json(const char *path, unsigned long long seed, unsigned long long entries) {
    FILE *file = fopen(path, "w");
    if (!file)
        return -1;
    fprintf(file, "{\n  \"seed\": %llu,\n  \"entries\": %llu,\n  \"figures\": {\n", seed, entries);
    for (size_t i = 0; i < figure_count; i++)
        fprintf(file, "    \"%s\": {\"value\": %.6g, \"unit\": \"%s\"}%s\n", figures[i].name, figures[i].value,
                figures[i].unit, i + 1 < figure_count ? "," : "");
    fprintf(file, "  }\n}\n");
    return fclose(file);
}
