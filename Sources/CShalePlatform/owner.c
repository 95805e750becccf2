#define _GNU_SOURCE
#include "platform.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* Far behind the locks of `FileLock`. */
#define FIRST_BYTE (INT64_C(1) << 61)

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* ---- the file ---------------------------------------------------------------- */

/* A program may have closed the descriptor, and another file may have its number. */
static _Bool is_ours(const struct shim_owner *o, int fd) {
    struct stat s;
    return fstat(fd, &s) == 0 && s.st_dev == o->device && s.st_ino == o->inode;
}

static long checked(const struct shim_owner *o, long fd) {
    if (fd < 0 || is_ours(o, (int)fd)) return fd;
    close((int)fd);
    return -EBADF;
}

/* Opens the file again, for a description of its own; not through a path if it can be helped, where another file may
 * be by now. */
static long open_again(const struct shim_owner *o) {
    SHIM_FAIL("owner_open");
    long fd = -EBADF;
    if (is_ours(o, o->file)) {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", o->file);
        do fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        while (fd < 0 && errno == EINTR);
        fd = checked(o, fd < 0 ? -errno : fd);
    }
    if (fd < 0 && o->directory >= 0) {
        long named;
        do named = openat(o->directory, o->name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        while (named < 0 && errno == EINTR);
        named = checked(o, named < 0 ? -errno : named);
        if (named >= 0) fd = named;
    }
    return fd;
}

static long lock_byte(int fd, uint32_t number) {
    SHIM_FAIL("owner_lock");
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = FIRST_BYTE + number, .l_len = 1};
    int r;
    do r = fcntl(fd, F_OFD_SETLK, &l);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

_Bool shim_owner_has_ended(const struct shim_owner *asker, uint32_t number) {
    if (number == 0 || number >= SHIM_OWNER_ENDED) return 1;
    if (asker->file < 0 || number == shim_owner_number(asker)) return 0;
#ifdef SHALE_FAULTS
    if (shim_fault("owner_has_ended") < 0) return 0;
#endif
    /* Before and after: another file's byte is not locked. */
    if (is_ours(asker, asker->file)) {
        _Bool is_locked = shim_sys_is_locked(asker->file, FIRST_BYTE + number);
        return !is_locked && is_ours(asker, asker->file);
    }
    long fd = open_again(asker);
    if (fd < 0) return 0;
    _Bool is_locked = shim_sys_is_locked((int)fd, FIRST_BYTE + number);
    close((int)fd);
    return !is_locked;
}

/* ---- numbers ----------------------------------------------------------------- */

/* A row: bits 0-29 the number, 30-41 part of the PID namespace, 42-63 the process. */
static uint64_t row(const struct shim_owner *o, uint32_t number, uint64_t process) {
    return number | (uint64_t)(o->pid_namespace & 0xfff) << SHIM_OWNER_BITS | process << 42;
}

int64_t shim_owner_process(const struct shim_owner *asker, uint32_t number) {
    if (number == shim_owner_number(asker)) return getpid();
    if (asker->file < 0 || !asker->pid_namespace || number == 0) return 0;
    uint64_t found = __atomic_load_n(asker->rows + number % SHIM_OWNER_ROWS, __ATOMIC_RELAXED);
    if ((uint32_t)(found & SHIM_OWNER_MASK) != number) return 0;
    return found == row(asker, number, found >> 42) ? (int64_t)(found >> 42) : -1;
}

/* By which this process's uptime is ahead of the machine's (time_namespaces(7)), in milliseconds. */
static int64_t uptime_ahead(void) {
    char text[256];
    ssize_t size = shim_sys_read_file("/proc/self/timens_offsets", text, sizeof text - 1);
    if (size <= 0) return 0;
    text[size] = 0;
    const char *line = strstr(text, "monotonic");
    long long seconds = 0, nanoseconds = 0;
    if (!line || sscanf(line + 9, "%lld %lld", &seconds, &nanoseconds) != 2) return 0;
    return seconds * 1000 + nanoseconds / 1000000;
}

/* Numbers are given again after 2^30 others. So a lock may still have this one, of an owner that died with it. */
static void end_former_owner(const struct shim_owner *o, uint32_t number) {
    for (size_t i = 0; i <= o->count; i++) {
        void *lock = i < o->count ? o->first_lock + i * o->stride : o->other_lock;
        uint32_t seen = shim_lock_word(lock);
        while ((seen & SHIM_OWNER_MASK) == number) {
            if (__atomic_compare_exchange_n((uint32_t *)lock, &seen, (seen & SHIM_LOCK_WANTED) | SHIM_OWNER_ENDED, 0,
                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                break;
        }
    }
}

/* The mapping keeps the description, and with it the lock. */
static long make_anchor(struct shim_owner *o, int fd) {
    SHIM_FAIL("owner_map");
    void *anchor = mmap(NULL, page(), PROT_NONE, MAP_SHARED, fd, 0);
    if (anchor == MAP_FAILED) return -errno;
    if (madvise(anchor, page(), MADV_DONTFORK) < 0) {
        long e = -errno;
        munmap(anchor, page());
        return e;
    }
    o->anchor = anchor;
    return 0;
}

long shim_owner_attach(struct shim_owner *o) {
    long fd = open_again(o), result;
    uint32_t number;
    if (fd < 0) return fd;
    do {
        number = (__atomic_fetch_add(o->counter, 1, __ATOMIC_RELAXED) + 1) & SHIM_OWNER_MASK;
        result = number == 0 || number == SHIM_OWNER_ENDED ? -EAGAIN : lock_byte((int)fd, number);
    } while (result == -EAGAIN);
    if (result == 0) result = make_anchor(o, (int)fd);
    close((int)fd);
    if (result < 0) return result;
    o->uptime_ahead = uptime_ahead();
    end_former_owner(o, number);
    __atomic_store_n(o->rows + number % SHIM_OWNER_ROWS, row(o, number, (uint64_t)getpid()), __ATOMIC_RELAXED);
    __atomic_store_n(o->number, number, __ATOMIC_RELEASE);
    return 0;
}

/* ---- the owner's life ------------------------------------------------------------ */

static long make_number(struct shim_owner *o) {
    SHIM_FAIL("owner_map");
    void *p = mmap(NULL, page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return -errno;
    (void)madvise(p, page(), MADV_WIPEONFORK);
    o->number = p;
    return 0;
}

long shim_owner_begin(struct shim_owner *o) {
    long result = make_number(o);
    if (result < 0) return result;
    result = shim_forbid_forks();
    if (result == 0) {
        result = shim_owner_attach(o);
        if (result == 0) shim_forks_add(o);
        shim_permit_forks();
    }
    if (result < 0) {
        munmap(o->number, page());
        o->number = NULL;
    }
    return result;
}

long shim_owner_begin_private(struct shim_owner *o) {
    o->file = -1;
    o->number = calloc(1, sizeof *o->number);
    if (!o->number) return -ENOMEM;
    *o->number = 1;
    return 0;
}

long shim_owner_renew(struct shim_owner *o) {
    long result = shim_forbid_forks();
    if (result < 0) return result;
    if (!shim_owner_number(o)) result = shim_owner_attach(o);
    shim_permit_forks();
    return result;
}

void shim_owner_end(struct shim_owner *o) {
    if (!o->number) return;
    if (o->file < 0) {
        free(o->number);
    } else {
        (void)shim_forbid_forks();
        shim_forks_remove(o);
        /* (A child without a number has no such mapping: another one may be there.) */
        if (shim_owner_number(o)) munmap(o->anchor, page());
        munmap(o->number, page());
        shim_permit_forks();
    }
    o->number = NULL;
}
