/* The corpus: all inputs in one mapped file. demo/corpus.py describes its layout. */
#ifndef DEMO_CORPUS_H
#define DEMO_CORPUS_H

#include <stddef.h>

#include "shale.h"

enum corpus_role { ROLE_PLAIN, ROLE_REFRESHED, ROLE_INVALIDATED, ROLE_SHORT_LIVED, ROLE_COUNT };

typedef struct {
    shale_bytes key;
    shale_bytes value;
    enum corpus_role role;
} corpus_entry;

typedef struct {
    const corpus_entry *entries;
    size_t count;
} corpus;

/* Maps the file for the rest of the process; exits with a message on failure. */
corpus corpus_map(const char *path);

#endif
