/* Package paragraphs of this Debian system: real values, small and alike. */
#ifndef CORPUS_H
#define CORPUS_H

#include <stddef.h>

typedef struct {
    char *text; /* all of it; the paragraphs point into it */
    struct paragraph {
        const char *start;
        size_t size;
    } *paragraphs;
    size_t count, bytes;
} corpus;

/* /var/lib/dpkg/status and /var/lib/apt/lists/..._Packages, at most `limit` paragraphs. */
corpus corpus_load(size_t limit);
void corpus_free(corpus *c);

#endif
