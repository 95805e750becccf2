#define _GNU_SOURCE
#include "platform.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* Far behind the locks of `FileLock`. */
#define FIRST_BYTE (INT64_C(1) << 61)

/* The kernel's PROC_TIME_INIT_INO. */
#define INITIAL_TIME_NAMESPACE 0xEFFFFFFAu

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* ---- the file ---------------------------------------------------------------- */

/* A program may have closed the descriptor, and another file may have its number. */
static _Bool is_ours(const struct shim_owner *o, int fd) {
    struct stat s;
    return fstat(fd, &s) == 0 && s.st_dev == o->device && s.st_ino == o->inode;
}

static long opened(const struct shim_owner *o, int directory, const char *name, int flags) {
    long fd;
    do fd = openat(directory, name, O_RDWR | O_CLOEXEC | O_NONBLOCK | flags);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return -errno;
    if (is_ours(o, (int)fd)) return fd;
    close((int)fd);
    return -EBADF;
}

/* Opens the file again, for a description of its own: by its name, or, if another file has it by now, by the descriptor,
 * which takes several times as long. */
static long open_again(const struct shim_owner *o) {
    SHIM_FAIL("owner_open");
    long fd = o->directory < 0 ? -EBADF : opened(o, o->directory, o->name, O_NOFOLLOW);
    if (fd < 0 && is_ours(o, o->file)) {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", o->file);
        fd = opened(o, AT_FDCWD, path, 0);
    }
    return fd;
}

static long lock_byte(int fd, uint32_t number) {
    SHIM_FAIL("owner_lock");
    return shim_lock_bytes(fd, FIRST_BYTE + number, 1, F_WRLCK, 0);
}

static _Bool is_locked(int fd, uint32_t number) { return shim_is_byte_locked(fd, FIRST_BYTE + number); }

_Bool shim_owner_has_ended(const struct shim_owner *asker, uint32_t number) {
    if (number == 0 || number >= SHIM_OWNER_ENDED) return 1;
    if (asker->file < 0 || number == shim_owner_number(asker)) return 0;
#ifdef SHALE_FAULTS
    if (shim_fault("owner_has_ended") < 0) return 0;
#endif
    _Bool has_file = is_ours(asker, asker->file);
    long fd = has_file ? asker->file : open_again(asker);
    if (fd < 0) return 0;
    /* (Ours again: another file's byte is not locked.) */
    _Bool has_ended = !is_locked((int)fd, number) && is_ours(asker, (int)fd);
    if (!has_file) close((int)fd);
    return has_ended;
}

/* ---- numbers ----------------------------------------------------------------- */

/* A row: bits 0-29 the number, 30-41 part of the PID namespace, 42-63 the process. */
static uint64_t row(const struct shim_owner *o, uint32_t number, uint64_t process) {
    return number | (uint64_t)(o->pid_namespace & 0xfff) << SHIM_OWNER_BITS | process << 42;
}

int64_t shim_owner_process(const struct shim_owner *asker, uint32_t number) {
    if (number == 0) return 0;
    if (number == shim_owner_number(asker)) return getpid();
    if (asker->file < 0 || !asker->pid_namespace) return 0;
    uint64_t found = __atomic_load_n(asker->rows + number % SHIM_OWNER_ROWS, __ATOMIC_RELAXED);
    if ((uint32_t)(found & SHIM_OWNER_MASK) != number) return 0;
    return found == row(asker, number, found >> 42) ? (int64_t)(found >> 42) : -1;
}

/* Returns the milliseconds by which this process's uptime is ahead of the machine's (time_namespaces(7)); `known` if /proc
 * does not tell. The kernel shows the offsets of the namespace for children, which is another one after unshare. */
static int64_t uptime_ahead(int64_t known) {
    struct stat own, of_children;
    char text[256];
    if (stat("/proc/self/ns/time", &own) < 0 || stat("/proc/self/ns/time_for_children", &of_children) < 0) return known;
    if (own.st_ino != of_children.st_ino) return own.st_ino == INITIAL_TIME_NAMESPACE ? 0 : known;
    ssize_t size = shim_sys_read_file("/proc/self/timens_offsets", text, sizeof text - 1);
    if (size <= 0) return known;
    text[size] = 0;
    const char *line = strstr(text, "monotonic");
    long long seconds = 0, nanoseconds = 0;
    if (!line || sscanf(line + 9, "%lld %lld", &seconds, &nanoseconds) != 2) return known;
    return seconds * 1000 + nanoseconds / 1000000;
}

int64_t shim_owner_uptime_ms(struct shim_owner *o) {
    if (!__atomic_load_n(&o->knows_uptime, __ATOMIC_ACQUIRE)) {
        int64_t known = __atomic_load_n(&o->uptime_ahead, __ATOMIC_RELAXED);
        __atomic_store_n(&o->uptime_ahead, uptime_ahead(known), __ATOMIC_RELAXED);
        __atomic_store_n(&o->knows_uptime, 1, __ATOMIC_RELEASE);
    }
    return shim_uptime_ms() - __atomic_load_n(&o->uptime_ahead, __ATOMIC_RELAXED);
}

/* Numbers are given again after 2^30 others. So a lock may still have this one, of an owner that died with it. */
static void end_former_owner(const struct shim_owner *o, uint32_t number) {
    for (size_t i = 0; i <= o->count; i++) {
        void *lock = i < o->count ? o->first_lock + i * o->stride : o->other_lock;
        uint64_t seen = shim_lock_word(lock);
        while ((seen & SHIM_OWNER_MASK) == number) {
            if (__atomic_compare_exchange_n((uint64_t *)lock, &seen, (seen & SHIM_LOCK_WANTED) | SHIM_OWNER_ENDED, 0,
                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED))
                break;
        }
    }
}

/* ---- what keeps the description, and with it the lock ------------------------------- */

static long map(struct shim_owner *o, int fd) {
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

static long keep_descriptor(struct shim_owner *o, int fd) {
    long kept = shim_above_standard(fd);
    if (kept < 0) return kept;
    o->descriptor = (int)kept;
    return 0;
}

/* Closes `fd`. A mapping in overlayfs, or in another file system on top of one, refers to the file below: there, the
 * first owner finds that its lock is gone, and the descriptor is kept instead. */
static long keep(struct shim_owner *o, int fd, uint32_t number) {
    if (o->keeps_descriptor) return keep_descriptor(o, fd);
    long result = map(o, fd);
    close(fd);
    if (result < 0 || is_locked(o->file, number)) return result;
    munmap(o->anchor, page());
    fd = (int)open_again(o);
    if (fd < 0) return fd;
    result = lock_byte(fd, number);
    if (result < 0) {
        close(fd);
        return result;
    }
    o->keeps_descriptor = 1;
    return keep_descriptor(o, fd);
}

static void let_go(struct shim_owner *o) {
    if (!o->keeps_descriptor)
        munmap(o->anchor, page());
    else if (o->descriptor >= 0 && is_ours(o, o->descriptor))
        close(o->descriptor);
    o->descriptor = -1;
}

long shim_owner_attach(struct shim_owner *o) {
    /* In a child, the descriptor is the parent's (and the mapping is not there). */
    if (o->keeps_descriptor) let_go(o);
    long fd = open_again(o), result;
    uint32_t number;
    if (fd < 0) return fd;
    do {
        number = (__atomic_fetch_add(o->counter, 1, __ATOMIC_RELAXED) + 1) & SHIM_OWNER_MASK;
        result = number == 0 || number == SHIM_OWNER_ENDED ? -EAGAIN : lock_byte((int)fd, number);
    } while (result == -EAGAIN);
    if (result < 0) {
        close((int)fd);
        return result;
    }
    result = keep(o, (int)fd, number);
    if (result < 0) return result;
    __atomic_store_n(&o->knows_uptime, 0, __ATOMIC_RELAXED);
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
    o->descriptor = -1;
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

void shim_owner_begin_private(struct shim_owner *o) {
    static uint32_t number = 1;
    o->file = -1;
    o->number = &number;
}

long shim_owner_renew(struct shim_owner *o) {
    long result = shim_forbid_forks();
    if (result < 0) return result;
    if (!shim_owner_number(o)) result = shim_owner_attach(o);
    shim_permit_forks();
    return result;
}

void shim_owner_end(struct shim_owner *o) {
    if (o->number && o->file >= 0) {
        (void)shim_forbid_forks();
        shim_forks_remove(o);
        /* (A child without a number has no such mapping: another one may be there.) */
        if (shim_owner_number(o) || o->keeps_descriptor) let_go(o);
        munmap(o->number, page());
        shim_permit_forks();
    }
    o->number = NULL;
}
