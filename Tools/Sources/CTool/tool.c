#define _GNU_SOURCE
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../../../Include/shale.h"

const char *tool_version(void) {
    return SHALE_VERSION;
}

int64_t tool_file_system(const char *path) {
    struct statfs found;
    return statfs(path, &found) ? -1 : (int64_t)(uint32_t)found.f_type;
}

int64_t tool_next_lock(int file, int64_t from) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from};
    if (fcntl(file, F_OFD_GETLK, &lock) < 0)
        return -2;
    if (lock.l_type == F_UNLCK)
        return -1;
    return lock.l_start < from ? from : lock.l_start;
}

/* A second description of the file must see the lock of the first. */
static int try_lock(int file, const char *path) {
    int other = open(path, O_RDWR | O_CLOEXEC), error = 0;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_C(1) << 61, .l_len = 1};
    if (other < 0 || fcntl(other, F_OFD_SETLK, &lock) < 0)
        error = errno;
    else if (tool_next_lock(file, lock.l_start) != lock.l_start)
        error = ENOLCK;
    if (other >= 0)
        close(other);
    return error;
}

struct tool_abilities tool_try_abilities(const char *directory) {
    enum { size = 1 << 16 };
    struct tool_abilities found = {0};
    char path[32];
    int file = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) {
        found.file = errno;
        return found;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    found.lock = try_lock(file, path);
    found.allocation = fallocate(file, 0, 0, size) < 0 ? errno : 0;
    found.hole = fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size) < 0 ? errno : 0;
    close(file);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, size, MADV_WIPEONFORK) < 0)
        found.wiping = errno;
    if (memory != MAP_FAILED)
        munmap(memory, size);
    return found;
}
