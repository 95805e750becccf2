#define _GNU_SOURCE
#include "corpus.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends a file's text; .lz4 files are read through the lz4 program. */
static void append_file(const char *path, char **text, size_t *size) {
    size_t length = strlen(path);
    int packed = length > 4 && strcmp(path + length - 4, ".lz4") == 0;
    char command[1024];
    snprintf(command, sizeof command, "lz4 -dcq '%s'", path);
    FILE *file = packed ? popen(command, "r") : fopen(path, "r");
    if (!file)
        return;
    char block[65536];
    size_t got;
    while ((got = fread(block, 1, sizeof block, file)) > 0) {
        *text = realloc(*text, *size + got + 2);
        if (!*text)
            abort();
        memcpy(*text + *size, block, got);
        *size += got;
    }
    if (packed)
        pclose(file);
    else
        fclose(file);
    *text = realloc(*text, *size + 2);
    memcpy(*text + *size, "\n\n", 2); /* the last paragraph of a file ends there */
    *size += 2;
}

corpus corpus_load(size_t limit) {
    corpus c = {0};
    size_t size = 0;
    append_file("/var/lib/dpkg/status", &c.text, &size);
    static const char *const patterns[] = {"/var/lib/apt/lists/*_Packages", "/var/lib/apt/lists/*_Packages.lz4"};
    for (int i = 0; i < 2; i++) {
        glob_t found;
        if (glob(patterns[i], 0, NULL, &found) == 0) {
            for (size_t n = 0; n < found.gl_pathc; n++)
                append_file(found.gl_pathv[n], &c.text, &size);
            globfree(&found);
        }
    }
    size_t capacity = 0;
    for (size_t at = 0; at < size && c.count < limit;) {
        const char *start = c.text + at, *end = memmem(start, size - at, "\n\n", 2);
        size_t length = end ? (size_t)(end - start) + 1 : size - at;
        if (length > 1) {
            if (c.count == capacity) {
                capacity = capacity ? capacity * 2 : 1024;
                c.paragraphs = realloc(c.paragraphs, capacity * sizeof *c.paragraphs);
                if (!c.paragraphs)
                    abort();
            }
            c.paragraphs[c.count++] = (struct paragraph){start, length};
            c.bytes += length;
        }
        at += length + (end != NULL);
    }
    return c;
}

void corpus_free(corpus *c) {
    free(c->text);
    free(c->paragraphs);
}
