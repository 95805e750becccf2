#include "corpus.h"

#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    char magic[8];
    uint64_t count;
} file_header;

typedef struct {
    uint32_t key_size;
    uint16_t tag_size;
    uint16_t role;
    uint64_t value_size;
} entry_header;

/* Reads the entry at `at`; returns the position of the next one. */
static const char *read_entry(const char *at, corpus_entry *entry) {
    entry_header header;
    memcpy(&header, at, sizeof header);
    const char *key = at + sizeof header;
    const char *value = key + header.key_size + header.tag_size;
    entry->key = (shale_bytes){key, header.key_size};
    entry->value = (shale_bytes){value, header.value_size};
    entry->role = header.role;
    size_t size = header.key_size + header.tag_size + header.value_size;
    return key + (size + 7) / 8 * 8;
}

corpus corpus_map(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) < 0)
        err(1, "%s", path);
    const char *start = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (start == MAP_FAILED)
        err(1, "%s", path);
    close(file);

    file_header header;
    memcpy(&header, start, sizeof header);
    if (memcmp(header.magic, "SHALEDM1", sizeof header.magic) != 0)
        errx(1, "%s is not a corpus", path);
    corpus_entry *entries = calloc(header.count, sizeof *entries);
    if (entries == NULL)
        err(1, "%s", path);
    const char *at = start + sizeof header;
    for (uint64_t i = 0; i < header.count; i++)
        at = read_entry(at, &entries[i]);
    return (corpus){entries, header.count};
}
