/* The two files of a cache, for tests that read or write their bytes from outside. */
#ifndef FILES_H
#define FILES_H

#include "check.h"

#include <sys/mman.h>

static inline int open_file(const char *directory, const char *name, int flags) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, flags);
    REQUIRE(fd >= 0);
    return fd;
}

/* A whole file. */
typedef struct {
    int fd;
    unsigned char *bytes;
    size_t size;
} mapped_file;

enum { room_to_grow = 64 << 20 }; /* mapped past its end: it may grow meanwhile */

static inline mapped_file map_file(const char *directory, const char *name) {
    mapped_file file = {.fd = open_file(directory, name, O_RDWR)};
    file.size = (size_t)lseek(file.fd, 0, SEEK_END);
    file.bytes = mmap(NULL, file.size + room_to_grow, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
    REQUIRE(file.bytes != MAP_FAILED);
    return file;
}

static inline void unmap_file(const mapped_file *file) {
    REQUIRE(munmap(file->bytes, file->size + room_to_grow) == 0);
    close(file->fd);
}

/* The last place that has these bytes. */
static inline unsigned char *last_in(const mapped_file *file, const void *bytes, size_t size) {
    unsigned char *end = file->bytes + file->size, *last = NULL;
    for (unsigned char *at = file->bytes; (at = memmem(at, (size_t)(end - at), bytes, size)) != NULL; at++)
        last = at;
    REQUIRE(last != NULL);
    return last;
}

/* The next open rebuilds it. */
static inline void remove_index(const char *directory) {
    char path[512];
    snprintf(path, sizeof path, "%s/shale.index", directory);
    REQUIRE(unlink(path) == 0);
}

#endif
