/* When a file was created and changed, in nanoseconds since 1970, as the index records it; 0 if unknown. */
#ifndef BIRTH_H
#define BIRTH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>

static inline uint64_t birth_of(int fd) {
#ifdef STATX_BTIME
    struct statx s;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &s) == 0 && s.stx_mask & STATX_BTIME)
        return (uint64_t)s.stx_btime.tv_sec * 1000000000u + s.stx_btime.tv_nsec;
#endif
    (void)fd;
    return 0;
}

static inline uint64_t change_of(int fd) {
    struct stat s;
    return fstat(fd, &s) < 0 ? 0 : (uint64_t)s.st_ctim.tv_sec * 1000000000u + (uint64_t)s.st_ctim.tv_nsec;
}

#endif
