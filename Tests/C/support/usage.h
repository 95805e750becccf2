/* The disk usage of a directory. */
#ifndef USAGE_H
#define USAGE_H

#include "check.h"

#include <sys/stat.h>

static uint64_t usage_bytes;

static inline int usage_add_file(const char *path UNUSED, const struct stat *status, int type UNUSED,
                                 struct FTW *walk UNUSED) {
    usage_bytes += (uint64_t)status->st_blocks * 512;
    return 0;
}

/* What du says of a directory. */
static inline uint64_t disk_usage(const char *directory) {
    usage_bytes = 0;
    nftw(directory, usage_add_file, 16, FTW_PHYS);
    return usage_bytes;
}

#endif
