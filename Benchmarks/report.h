/* Figures, as a table on the standard output and as JSON. */
#ifndef REPORT_H
#define REPORT_H

#include <stddef.h>

void report_section(const char *title);
/* `name` is stable, for machines; `label` says it to people. */
void report(const char *name, const char *label, double value, const char *unit);
/* The middle of `count` samples, which it sorts. */
double median(double *samples, size_t count);
/* Writes all figures as one JSON object; 0, or -1 with errno. */
int report_write_json(const char *path, unsigned long long seed, unsigned long long entries);

#endif
