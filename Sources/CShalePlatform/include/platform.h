/* What Swift cannot import by itself: atomics on mapped memory, system calls with their errno, locks, LZ4 and XXH3. One
 * function each, and nothing else: decisions are made in Swift. All system calls made by Swift code are in this file.
 * */
#ifndef SHALE_PLATFORM_H
#define SHALE_PLATFORM_H

#if !defined(__linux__)
#error "Shale runs on Linux alone: it needs futexes, open file description locks and fallocate"
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <signal.h>
#include <unistd.h>

#define LZ4_STATIC_LINKING_ONLY 1
#define LZ4_HC_STATIC_LINKING_ONLY 1
#include <lz4.h>
#include <lz4hc.h>
/* LZ4 before 1.9 lacks LZ4_initStream and LZ4_resetStream_fast. LZ4_attach_dictionary and its HC form are in every static
 * library, and in shared libraries from 1.10 on; CMakeLists.txt checks whether they exist, the Swift package goes by the
 * version. */
#if LZ4_VERSION_NUMBER < 10900
#error "LZ4 1.9 or later is needed"
#endif
#if !defined(SHALE_LZ4_ATTACHES) && LZ4_VERSION_NUMBER >= 11000
#define SHALE_LZ4_ATTACHES 1
#endif

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL 1
#endif
#include <xxhash.h>

/* Linux interfaces that libc declares only under _GNU_SOURCE. A header imported as a module cannot define that: other
 * modules have included the system's headers without it. */
extern int fallocate(int fd, int mode, off_t offset, off_t length);
#ifndef F_OFD_SETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#define F_OFD_SETLKW 38
#endif
#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE 1
#define FALLOC_FL_PUNCH_HOLE 2
#endif
#ifndef SEEK_HOLE
#define SEEK_DATA 3
#define SEEK_HOLE 4
#endif
extern long syscall(long number, ...);

/* (musl has no room for initial-exec variables of a library that is loaded at run time, as by Python.) */
#if defined(__GLIBC__)
#define SHIM_TLS_MODEL "initial-exec"
#else
#define SHIM_TLS_MODEL "local-dynamic"
#endif

/* ---- faults and counts: test builds alone ------------------------------- */

#ifdef SHALE_FAULTS
#include "counts.h"
#include "faults.h"
#define SHIM_FAIL(name)                                                                                                \
    do {                                                                                                               \
        long e_ = shim_fault(name);                                                                                    \
        if (e_ < 0) return e_;                                                                                         \
    } while (0)
#define SHIM_FAIL_ALLOCATION()                                                                                         \
    do {                                                                                                               \
        if (shim_fault("malloc") < 0) return NULL;                                                                     \
    } while (0)
/* Of n bytes. */
#define SHIM_LOOK(p, n) shim_look(p, n)
#define SHIM_STORE(p, n)                                                                                               \
    do {                                                                                                               \
        shim_store_fault(p);                                                                                           \
        shim_count_slots(p, n);                                                                                        \
    } while (0)
#else
#define SHIM_FAIL(name)                                                                                                \
    do {                                                                                                               \
    } while (0)
#define SHIM_FAIL_ALLOCATION()                                                                                         \
    do {                                                                                                               \
    } while (0)
#define SHIM_LOOK(p, n)                                                                                                \
    do {                                                                                                               \
    } while (0)
#define SHIM_STORE(p, n)                                                                                               \
    do {                                                                                                               \
    } while (0)
#endif

/* ---- atomics ---------------------------------------------------------- */

static inline uint64_t shim_load64(const void *p) {
    SHIM_LOOK(p, 8);
    return __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
}
static inline uint32_t shim_load32(const void *p) {
    SHIM_LOOK(p, 4);
    return __atomic_load_n((const uint32_t *)p, __ATOMIC_RELAXED);
}
static inline uint64_t shim_load64_acquire(const void *p) {
    SHIM_LOOK(p, 8);
    return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}
static inline void shim_store64(void *p, uint64_t v) {
    SHIM_STORE(p, 8);
    __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELAXED);
}
/* Into the handle's own memory, which no kill leaves behind. */
static inline void shim_store64_own(void *p, uint64_t v) { __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELAXED); }
static inline void shim_store32(void *p, uint32_t v) {
    SHIM_STORE(p, 4);
    __atomic_store_n((uint32_t *)p, v, __ATOMIC_RELAXED);
}
static inline void shim_store64_release(void *p, uint64_t v) {
    SHIM_STORE(p, 8);
    __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE);
}
static inline uint64_t shim_add64(void *p, uint64_t v) {
    SHIM_STORE(p, 8);
    return __atomic_fetch_add((uint64_t *)p, v, __ATOMIC_RELAXED);
}
static inline _Bool shim_cas64(void *p, uint64_t expected, uint64_t desired) {
    SHIM_STORE(p, 8);
    return __atomic_compare_exchange_n((uint64_t *)p, &expected, desired, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
static inline uint64_t shim_exchange64(void *p, uint64_t v) {
    SHIM_STORE(p, 8);
    return __atomic_exchange_n((uint64_t *)p, v, __ATOMIC_ACQ_REL);
}
static inline void shim_fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
static inline void shim_fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
static inline void shim_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
/* Copies bytes for other threads and processes; a later store with release publishes them. */
static inline void shim_copy(void *to, const void *from, size_t n) {
    SHIM_LOOK(from, n);
#ifdef SHALE_FAULTS
    if (n == 0) return;
    SHIM_STORE(to, n / 2);
    memcpy(to, from, n / 2);
    to = (char *)to + n / 2, from = (const char *)from + n / 2, n -= n / 2;
    SHIM_STORE(to, n);
#endif
    memcpy(to, from, n);
}
static inline void shim_zero(void *p, size_t n) {
    SHIM_STORE(p, n);
    memset(p, 0, n);
}
static inline uint8_t shim_load8(const void *p) {
    SHIM_LOOK(p, 1);
    return __atomic_load_n((const uint8_t *)p, __ATOMIC_RELAXED);
}
static inline void shim_store8(void *p, uint8_t v) {
    SHIM_STORE(p, 1);
    __atomic_store_n((uint8_t *)p, v, __ATOMIC_RELAXED);
}
static inline void shim_prefetch(const void *p) { __builtin_prefetch(p, 0, 3); }

/* ---- hashing (XXH3, https://xxhash.com) ------------------------------- */

/* XXH3_64bits_withSeed, with the widest vectors of the processor. */
uint64_t shim_hash(const void *p, size_t n, uint64_t seed);

/* The same, inlined and without the dispatch, for lengths that are known at compile time or often short. */
static inline __attribute__((always_inline)) uint64_t shim_hash_short(const void *p, size_t n, uint64_t seed) {
    const unsigned char *bytes = (const unsigned char *)p;
    if (n <= 128) SHIM_LOOK(p, n);
    if (n <= 16) return XXH3_len_0to16_64b(bytes, n, XXH3_kSecret, seed);
    if (n <= 128) return XXH3_len_17to128_64b(bytes, n, XXH3_kSecret, sizeof(XXH3_kSecret), seed);
    return shim_hash(p, n, seed);
}
static inline __attribute__((always_inline)) uint64_t shim_hash_72(const void *p, uint64_t seed) {
    return XXH3_len_17to128_64b((const unsigned char *)p, 72, XXH3_kSecret, sizeof(XXH3_kSecret), seed);
}
static inline __attribute__((always_inline)) uint64_t shim_hash_16(const void *p, uint64_t seed) {
    return XXH3_len_9to16_64b((const unsigned char *)p, 16, XXH3_kSecret, seed);
}

/* ---- the version in shale.h (version.c) ------------------------------- */

const char *shim_version(void);

/* ---- thread-local last error (tls.c) ---------------------------------- */

enum { SHIM_ERROR_TEXT = 1024 };
struct shim_error {
    int code; /* errno, or 0 */
    char text[SHIM_ERROR_TEXT];
};
extern _Thread_local struct shim_error shim_thread_error
    __attribute__((tls_model(SHIM_TLS_MODEL), visibility("hidden")));
static inline char *shim_error_text(void) { return shim_thread_error.text; }
static inline int shim_error_code(void) { return shim_thread_error.code; }
static inline void shim_set_error_code(int code) { shim_thread_error.code = code; }
/* A number that differs between threads that run at the same time. */
static inline uintptr_t shim_thread_number(void) { return (uintptr_t)&shim_thread_error >> 6; }
/* Writes the text of an errno, such as "No such file or directory". */
static inline void shim_errno_text(int code, char *buffer, size_t size) {
    if (strerror_r(code, buffer, size) != 0) strncpy(buffer, "unknown error", size);
}

/* ---- memory ----------------------------------------------------------- */

static inline void *shim_malloc(size_t n) {
    SHIM_FAIL_ALLOCATION();
    return malloc(n);
}
static inline void *shim_calloc(size_t n) {
    SHIM_FAIL_ALLOCATION();
    return calloc(1, n);
}
static inline void *shim_aligned(size_t alignment, size_t n) {
    SHIM_FAIL_ALLOCATION();
    void *p = NULL;
    return posix_memalign(&p, alignment, n) == 0 ? p : NULL;
}
static inline char *shim_duplicate(const char *text) {
    SHIM_FAIL_ALLOCATION();
    return strdup(text);
}
static inline void shim_free(void *p) { free(p); }

/* ---- clock ------------------------------------------------------------ */

static inline int64_t shim_clock_ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
static inline int64_t shim_now_ms(void) { return shim_clock_ms(CLOCK_REALTIME); }
/* As of the kernel's last tick, a few milliseconds ago: at a fifth of the cost. */
static inline int64_t shim_recent_ms(void) { return shim_clock_ms(CLOCK_REALTIME_COARSE); }
/* Since boot, the same for all processes; never set back. */
static inline int64_t shim_uptime_ms(void) {
#ifdef SHALE_FAULTS
    return shim_clock_ms(CLOCK_MONOTONIC) + shim_faults.uptime_ahead;
#else
    return shim_clock_ms(CLOCK_MONOTONIC);
#endif
}
/* The same in whole seconds, as of the kernel's last tick. */
static inline uint64_t shim_recent_uptime_s(void) {
    uint64_t ahead = 0;
#ifdef SHALE_FAULTS
    ahead = (uint64_t)(shim_faults.uptime_ahead / 1000);
    if (shim_faults.call || shim_faults.store || shim_faults.event) return 1 + ahead;
#endif
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec + ahead;
}
static inline void shim_sleep_us(long us) {
    struct timespec t = {us / 1000000, (us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

/* ---- owners of locks (owner.c) ----------------------------------------- */

enum {
    SHIM_OWNER_BITS = 30,
    SHIM_OWNER_MASK = (1 << SHIM_OWNER_BITS) - 1,
    /* In place of a number: the owner's thread has ended. */
    SHIM_OWNER_ENDED = SHIM_OWNER_MASK,
};

/* The identity by which a handle of one process owns locks and leases: a number that no other owner of the same index
 * has, and a lock of the kernel on byte 2^61 + number of a file, which ends with the process, whatever its namespace and
 * libc. That lock belongs to an open file description of its own, which nothing but a mapping refers to, so that forked
 * children do not get it, and closing descriptors does not end it (on overlayfs: a descriptor, which children close). */
struct shim_owner {
    /* Set before `shim_owner_begin`, and constant then. */
    int file, directory; /* descriptors; `directory` is -1 if the file has no name there */
    const char *name;
    uint64_t device, inode; /* of the file */
    uint32_t *counter; /* shared: how many numbers have been given */
    uint64_t *rows; /* shared, a hint: `SHIM_OWNER_ROWS` words, which process has which number */
    char *first_lock, *other_lock;
    size_t stride, count; /* of the locks from `first_lock` on */
    uint32_t pid_namespace;

    /* 0 in a child that has no number yet. In a page of its own, which the kernel clears in children. */
    uint32_t *number;
    /* What keeps the description: the mapping, or the descriptor (-1: none). */
    _Bool keeps_descriptor;
    void *anchor;
    int descriptor;
    /* Milliseconds by which this time namespace's uptime exceeds the machine's; read when first needed. */
    _Bool knows_uptime;
    int64_t uptime_ahead;
    struct shim_owner *next, **link;
};
enum { SHIM_OWNER_ROWS = 32 };

/* Each returns 0 or -errno. */
long shim_owner_begin(struct shim_owner *owner);
/* For a child in which the owner has no number. */
long shim_owner_renew(struct shim_owner *owner);
/* For a handle whose locks no other process sees: needs no file, and is never found dead. */
void shim_owner_begin_private(struct shim_owner *owner);
/* No call may be under way. */
void shim_owner_end(struct shim_owner *owner);
/* (forks.c) Between these two no thread forks, and all owners that were added get a number in a child. */
long shim_forbid_forks(void);
void shim_permit_forks(void);
void shim_forks_add(struct shim_owner *owner);
void shim_forks_remove(struct shim_owner *owner);
/* Gets a number. To be called between them. */
long shim_owner_attach(struct shim_owner *owner);
static inline uint32_t shim_owner_number(const struct shim_owner *owner) {
    return __atomic_load_n(owner->number, __ATOMIC_RELAXED);
}
/* Whether the owner with that number has ended; false if that cannot be determined. One or three system calls. */
_Bool shim_owner_has_ended(const struct shim_owner *asker, uint32_t number);
/* The process with a number; 0: unknown, -1: in another PID namespace. */
int64_t shim_owner_process(const struct shim_owner *asker, uint32_t number);
/* Like `shim_uptime_ms`, the same in all time namespaces. */
int64_t shim_owner_uptime_ms(struct shim_owner *owner);

/* ---- locks of all threads and processes (lock.c) ------------------------- */

/* A thread holds at most one lock of each kind. */
enum shim_lock_kind { SHIM_SHARD_LOCK, SHIM_OTHER_LOCK, SHIM_LOCK_KINDS };
/* A lock is a word: bits 0-29 its owner's number, bit 31 whether others may wait, bits 32-63 the owner's thread. */
#define SHIM_LOCK_WANTED UINT64_C(0x80000000)
#define SHIM_LOCK_THREAD 32
enum { SHIM_ETIMEDOUT = ETIMEDOUT, SHIM_ENOLCK = ENOLCK };

static inline uint64_t shim_lock_word(const void *lock) {
    return __atomic_load_n((const uint64_t *)lock, __ATOMIC_RELAXED);
}
static inline uint32_t shim_lock_owner(const void *lock) { return shim_lock_word(lock) & SHIM_OWNER_MASK; }
/* Whether others may wait for a lock that this thread holds. */
static inline _Bool shim_lock_is_wanted(const void *lock) { return (shim_lock_word(lock) & SHIM_LOCK_WANTED) != 0; }
void shim_lock_init(void *lock);
/* Tries to lock without waiting. Returns 0, EBUSY, or ENOLCK if the owner needs a number first. */
int shim_lock_try(void *lock, const struct shim_owner *owner, enum shim_lock_kind kind);
/* Waits for the lock until it is released, or its owner's thread ends, and `ms` at most. Returns 0, EBUSY if another one
 * has got it meanwhile, or ETIMEDOUT; `seen` gets the word in the last two cases. */
int shim_lock_wait(void *lock, const struct shim_owner *owner, enum shim_lock_kind kind, int64_t ms, uint64_t *seen);
/* Takes the lock over from the dead owner of the word `seen`. Returns false if the word has changed. */
_Bool shim_lock_take_over(void *lock, const struct shim_owner *owner, enum shim_lock_kind kind, uint64_t seen);
void shim_lock_release(void *lock, const struct shim_owner *owner, enum shim_lock_kind kind);
/* In a child: it holds none of the locks that its thread held in the parent. */
void shim_lock_hold_none(void);
/* Writes the message of a wait, with the process that holds the lock; 0: unknown, -1: in another PID namespace.
 * Allocates no memory. */
void shim_describe_wait(char *text, size_t size, const char *path, const char *file, const char *lock, int64_t ms,
                        int64_t process, const char *advice);

/* ---- threads (threads.c) ----------------------------------------------- */

enum { SHIM_THREAD_STACK = 512 << 10 };
/* Calls body with each number below count once, in the caller's thread and in others that have ended when it returns:
 * at most most_threads in total, and at most one per processor. If none can be started, the caller's thread does all.
 * The others get no signals. */
void shim_for_each(size_t count, size_t most_threads, void (*body)(size_t number, void *context), void *context);

/* ---- system calls: the result, or -errno ------------------------------ */

#define SHIM_RESULT(call)                                                                                              \
    do {                                                                                                               \
        long r_ = (long)(call);                                                                                        \
        return r_ < 0 ? -errno : r_;                                                                                   \
    } while (0)

/* Returns another descriptor instead of 0, 1 and 2, which a daemonizing program closes. */
static inline long shim_above_standard(int fd) {
    if (fd >= 3) return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 3), e = errno;
    close(fd);
    return high < 0 ? -e : high;
}
static inline long shim_sys_openat(int dir, const char *name, int flags, unsigned mode) {
    SHIM_FAIL("openat");
    int fd;
    do fd = openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, (mode_t)mode);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return -errno;
    return shim_above_standard(fd);
}
static inline long shim_sys_open_directory(const char *path) {
    SHIM_FAIL("open");
    int fd;
    do fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return -errno;
    return shim_above_standard(fd);
}
/* The descriptor is closed even if close returns an error. */
static inline long shim_sys_close(int fd) {
    long r = close(fd) < 0 ? -errno : 0;
    SHIM_FAIL("close");
    return r;
}
static inline long shim_sys_mkdir(const char *path, unsigned mode) {
    SHIM_FAIL("mkdir");
    SHIM_RESULT(mkdir(path, (mode_t)mode));
}
static inline long shim_sys_unlinkat(int dir, const char *name) {
    SHIM_FAIL("unlinkat");
    SHIM_RESULT(unlinkat(dir, name, 0));
}
static inline long shim_sys_renameat(int dir, const char *from, const char *to) {
    SHIM_FAIL("renameat");
    SHIM_RESULT(renameat(dir, from, dir, to));
}
/* Returns less than n only at the end of the file: some file systems transfer in pieces. */
static inline long shim_sys_pread(int fd, void *p, size_t n, int64_t at) {
    size_t done = 0;
    while (done < n) {
        size_t count = n - done;
#ifdef SHALE_FAULTS
        long fault = shim_fault("pread");
        if (fault < 0) return fault;
        if (fault > 0 && (size_t)fault < count) count = (size_t)fault; /* a short transfer */
#endif
        ssize_t r = pread(fd, (char *)p + done, count, at + (int64_t)done);
        if (r == 0) break;
        if (r < 0 && errno != EINTR) return -errno;
        if (r > 0) done += (size_t)r;
    }
    return (long)done;
}
/* Whether a write up to `end` would raise SIGXFSZ. */
static inline _Bool shim_exceeds_file_limit(int64_t end) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && (uint64_t)end > limit.rlim_cur;
}
static inline long shim_sys_pwrite(int fd, const void *p, size_t n, int64_t at) {
    if (shim_exceeds_file_limit(at + (int64_t)n)) return -EFBIG;
    size_t done = 0;
    while (done < n) {
        size_t count = n - done;
#ifdef SHALE_FAULTS
        long fault = shim_fault("pwrite");
        if (fault < 0) return fault;
        if (fault > 0 && (size_t)fault < count) count = (size_t)fault; /* a short transfer */
#endif
        ssize_t r = pwrite(fd, (const char *)p + done, count, at + (int64_t)done);
        if (r < 0 && errno != EINTR) return -errno;
        if (r > 0) done += (size_t)r;
    }
    return (long)done;
}
static inline long shim_sys_fdatasync(int fd) {
    SHIM_FAIL("fdatasync");
    int r;
    do r = fdatasync(fd);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}
static inline long shim_sys_fsync(int fd) {
    SHIM_FAIL("fsync");
    int r;
    do r = fsync(fd);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}
static inline long shim_sys_fchmod(int fd, unsigned mode) {
    SHIM_FAIL("fchmod");
    SHIM_RESULT(fchmod(fd, (mode_t)mode));
}
/* Whether the process's limit lets a file have blocks up to `end`: inside the file it forbids nothing. */
static inline _Bool shim_may_reach(int fd, int64_t end) {
    struct stat s;
    return !shim_exceeds_file_limit(end) || (fstat(fd, &s) == 0 && s.st_size >= end);
}
/* Allocates blocks for [at, at + n). If it fails, some may have been allocated. */
static inline long shim_sys_fallocate(int fd, int64_t at, int64_t n) {
    SHIM_FAIL("fallocate");
    if (!shim_may_reach(fd, at + n)) return -EFBIG;
    int r;
    do r = fallocate(fd, 0, at, n);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}
static inline long shim_sys_punch(int fd, int64_t at, int64_t n) {
    SHIM_FAIL("punch");
    int r;
    do r = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, n);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}
static inline long shim_sys_truncate(int fd, int64_t end) {
    SHIM_FAIL("truncate");
    if (!shim_may_reach(fd, end)) return -EFBIG;
    SHIM_RESULT(ftruncate(fd, end));
}
static inline struct flock shim_bytes(int64_t at, int64_t n, int kind) {
    struct flock l;
    memset(&l, 0, sizeof l);
    l.l_type = (short)kind;
    l.l_whence = SEEK_SET;
    l.l_start = at;
    l.l_len = n;
    return l;
}
/* Locks n bytes for the open file description; n = 0: all bytes from there on. kind: F_RDLCK, F_WRLCK, F_UNLCK. */
static inline long shim_lock_bytes(int fd, int64_t at, int64_t n, int kind, _Bool wait) {
    struct flock l = shim_bytes(at, n, kind);
    int r;
    do r = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &l);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}
static inline long shim_sys_lock(int fd, int64_t at, int64_t n, int kind, _Bool wait) {
    SHIM_FAIL("lock");
    return shim_lock_bytes(fd, at, n, kind, wait);
}
/* Whether another open file description holds a lock on the byte; true if that cannot be determined. */
static inline _Bool shim_is_byte_locked(int fd, int64_t byte) {
    struct flock l = shim_bytes(byte, 1, F_WRLCK);
    return fcntl(fd, F_OFD_GETLK, &l) < 0 || l.l_type != F_UNLCK;
}
static inline _Bool shim_sys_is_locked(int fd, int64_t byte) {
#ifdef SHALE_FAULTS
    if (shim_fault("is_locked") < 0) return 1;
#endif
    return shim_is_byte_locked(fd, byte);
}
/* Returns the first byte from this one on that another description has locked; -1: none, or unknown. */
static inline int64_t shim_sys_next_locked(int fd, int64_t byte) {
    struct flock l = shim_bytes(byte, 0, F_WRLCK);
    return fcntl(fd, F_OFD_GETLK, &l) < 0 || l.l_type == F_UNLCK ? -1 : l.l_start;
}
enum { SHIM_HUGE_PAGE = 2 << 20 };
/* Returns the mapping, or NULL with -errno in *error. fd < 0: anonymous, shared with forked children. */
static inline void *shim_sys_map(int fd, size_t n, _Bool writable, long *error) {
#ifdef SHALE_FAULTS
    if ((*error = shim_fault("mmap")) < 0) return NULL;
#endif
    /* Align the mapping so that huge pages of the file are huge pages in memory: reserve room for moving it. */
    size_t slack = n < SHIM_HUGE_PAGE ? 0 : SHIM_HUGE_PAGE;
    char *room = (char *)mmap(NULL, n + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if ((void *)room == MAP_FAILED) {
        *error = -errno;
        return NULL;
    }
    size_t before = slack ? (size_t)(-(uintptr_t)room & (SHIM_HUGE_PAGE - 1)) : 0;
    /* mlockall(MCL_FUTURE) fills an accessible mapping at once, including holes, for which a tmpfs takes space. */
    void *p = mmap(room + before, n, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0),
                   fd, 0);
    if (p == MAP_FAILED || mprotect(p, n, PROT_READ | (writable ? PROT_WRITE : 0)) < 0) {
        *error = -errno;
        munmap(room, n + slack);
        return NULL;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE), end = (before + n + page - 1) / page * page;
    if (before > 0) munmap(room, before);
    if (n + slack > end) munmap(room + end, n + slack - end);
    return p;
}
static inline void shim_sys_unmap(void *p, size_t n) { munmap(p, n); }
/* Hints: a failure affects only speed. (Linux 5.14 and later; the number is the kernel's, for older headers.) */
enum { SHIM_POPULATE_WRITE = 23 };
static inline void shim_sys_populate(void *p, size_t n) { madvise(p, n, SHIM_POPULATE_WRITE); }
static inline void shim_sys_huge_pages(void *p, size_t n) { madvise(p, n, MADV_HUGEPAGE); }
/* Disables read-ahead, which would also make the page cache use pages larger than one. */
static inline void shim_sys_random_access(void *p, size_t n) { madvise(p, n, MADV_RANDOM); }
static inline void shim_sys_no_huge_pages(void *p, size_t n) { madvise(p, n, MADV_NOHUGEPAGE); }
/* Brings a page into memory, and only this one if read-ahead is disabled. (Linux 5.14 and later; a load could raise a
 * signal when it reads a hole of a full tmpfs.) */
enum { SHIM_POPULATE_READ = 22 };
static inline void shim_sys_touch(void *p) {
    madvise((void *)((uintptr_t)p & ~(uintptr_t)4095), 4096, SHIM_POPULATE_READ);
}
/* The same for a range. Returns -EFAULT if a load would raise a signal. */
static inline long shim_sys_populate_read(void *p, size_t n) { SHIM_RESULT(madvise(p, n, SHIM_POPULATE_READ)); }
/* Begins to read pages that are not in memory yet. */
static inline void shim_sys_will_need(void *p, size_t n) {
    uintptr_t start = (uintptr_t)p & ~(uintptr_t)4095;
    madvise((void *)start, (uintptr_t)p + n - start, MADV_WILLNEED);
}
/* Whether a byte's page is in memory; true if that cannot be determined. */
static inline _Bool shim_sys_is_resident(void *p) {
    unsigned char resident = 1;
    return mincore((void *)((uintptr_t)p & ~(uintptr_t)4095), 1, &resident) < 0 || (resident & 1);
}
/* The same for up to 16 MiB. */
static inline _Bool shim_sys_are_resident(void *p, size_t n) {
    unsigned char resident[4096];
    size_t pages = (n + 4095) / 4096;
    if (pages > sizeof resident || mincore(p, n, resident) < 0) return 1;
    for (size_t i = 0; i < pages; i++)
        if (!(resident[i] & 1)) return 0;
    return 1;
}
/* In a mapping locked in memory (mlockall), the kernel drops no page and gives none back. */
static inline _Bool shim_is_locked(void *p, size_t n) { return madvise(p, n, MADV_DONTNEED) < 0 && errno == EINVAL; }
static inline long shim_sys_release(void *p, size_t n) {
    SHIM_FAIL("release");
    if (madvise(p, n, MADV_REMOVE) == 0) return 0;
    if (errno != EINVAL || !shim_is_locked(p, n) || munlock(p, n) < 0) return -errno;
    long r = madvise(p, n, MADV_REMOVE) < 0 ? -errno : 0;
    long as_they_come = 1; /* MLOCK_ONFAULT: locked again, and not filled. (Linux 4.4 and later.) */
    syscall(SYS_mlock2, p, n, as_they_come);
    return r;
}

/* Reads a byte. Returns whether that took longer than 10 us: it came from the disk, or the thread was interrupted. */
static inline _Bool shim_load_is_slow(const void *p) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    (void)__atomic_load_n((const uint8_t *)p, __ATOMIC_SEQ_CST);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (to.tv_sec - from.tv_sec) * 1000000000 + (to.tv_nsec - from.tv_nsec) > 10000;
}

struct shim_stat {
    uint64_t device, inode, links, size, blocks /* of 512 bytes */, unit /* of reading and writing */;
    uint64_t changed; /* nanoseconds since 1970 (st_ctim, which cannot be set) */
    uint32_t mode, owner;
};
static inline void shim_copy_stat(const struct stat *s, struct shim_stat *out) {
    out->device = s->st_dev;
    out->inode = s->st_ino;
    out->links = s->st_nlink;
    out->size = (uint64_t)s->st_size;
    out->blocks = (uint64_t)s->st_blocks;
    out->unit = (uint64_t)s->st_blksize;
    out->changed = (uint64_t)s->st_ctim.tv_sec * 1000000000u + (uint64_t)s->st_ctim.tv_nsec;
    out->mode = s->st_mode;
    out->owner = s->st_uid;
}
static inline long shim_sys_fstat(int fd, struct shim_stat *out) {
    SHIM_FAIL("fstat");
    struct stat s;
    if (fstat(fd, &s) < 0) return -errno;
    shim_copy_stat(&s, out);
    return 0;
}
static inline long shim_sys_fstatat(int dir, const char *name, struct shim_stat *out) {
    SHIM_FAIL("fstatat");
    struct stat s;
    if (fstatat(dir, name, &s, AT_SYMLINK_NOFOLLOW) < 0) return -errno;
    shim_copy_stat(&s, out);
    return 0;
}
/* Returns a file's birth time in nanoseconds since 1970; 0 if the kernel or the file system does not provide it. */
static inline uint64_t shim_sys_birth(int fd) {
#ifdef SYS_statx
    union {
        struct {
            uint32_t mask, block_size;
            unsigned char others[72];
            int64_t seconds;
            uint32_t nanoseconds;
        } s; /* of struct statx, which not every libc declares */
        unsigned char all[256];
    } x = {.all = {0}};
    enum { empty_path = 0x1000, birth = 0x800 };
    if (syscall(SYS_statx, fd, "", empty_path, birth, &x) < 0 || !(x.s.mask & birth)) return 0;
    return (uint64_t)x.s.seconds * 1000000000u + x.s.nanoseconds;
#else
    (void)fd;
    return 0;
#endif
}
/* Returns where a file's next hole or next data begins; the file's end counts as a hole. */
static inline long shim_sys_next_hole(int fd, int64_t at) {
    SHIM_FAIL("lseek");
    SHIM_RESULT(lseek(fd, at, SEEK_HOLE));
}
static inline long shim_sys_next_data(int fd, int64_t at) {
    SHIM_FAIL("lseek");
    SHIM_RESULT(lseek(fd, at, SEEK_DATA));
}
/* Follows a symbolic link in the last part of the path too. */
static inline long shim_sys_stat(const char *path, struct shim_stat *out) {
    SHIM_FAIL("stat");
    struct stat s;
    if (stat(path, &s) < 0) return -errno;
    shim_copy_stat(&s, out);
    return 0;
}
static inline long shim_sys_filesystem(int fd, uint64_t *type) {
    SHIM_FAIL("filesystem");
    struct statfs s;
    if (fstatfs(fd, &s) < 0) return -errno;
    *type = (uint64_t)(uint32_t)s.f_type;
    return 0;
}
static inline uint32_t shim_sys_process(void) { return (uint32_t)getpid(); }
static inline uint32_t shim_sys_euid(void) { return geteuid(); }
/* A file without a name, in memory. */
static inline long shim_sys_memory_file(void) {
    SHIM_FAIL("memory_file");
    long fd = syscall(SYS_memfd_create, "shale", 1 /* MFD_CLOEXEC */);
    return fd < 0 ? -errno : shim_above_standard((int)fd);
}
static inline long shim_sys_random(void *p, size_t n) {
    SHIM_FAIL("random");
#ifdef SHALE_FAULTS
    if (shim_faults.random && n == 8) {
        unsigned long long word = shim_faults.random();
        memcpy(p, &word, 8);
        return 8;
    }
#endif
    ssize_t r;
    do r = getrandom(p, n, 0);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : (long)r;
}
/* Reads the first bytes of a small file, as in /proc. Returns the length, or -errno. */
static inline long shim_sys_read_file(const char *path, void *p, size_t n) {
#ifdef SHALE_FAULTS
    if (shim_faults.boot_id && strstr(path, "boot_id")) {
        size_t length = strlen(shim_faults.boot_id);
        if (length < n) n = length;
        memcpy(p, shim_faults.boot_id, n);
        return (long)n;
    }
#endif
    SHIM_FAIL("read_file");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    ssize_t r;
    do r = read(fd, p, n);
    while (r < 0 && errno == EINTR);
    long e = -errno;
    close(fd);
    return r < 0 ? e : (long)r;
}
static inline long shim_sys_pid_namespace(uint64_t *number) {
    SHIM_FAIL("pid_namespace");
    struct stat s;
    if (stat("/proc/self/ns/pid", &s) < 0) return -errno;
    *number = s.st_ino;
    return 0;
}
/* Returns 1 if the directory holds anything but `own`, names that begin with `prefix`, and files that any directory may
 * hold; otherwise 0, or -errno. `name` gets the first such file. */
static inline long shim_sys_has_foreign_files(int dir, const char *own, const char *prefix, char *name, size_t size) {
    SHIM_FAIL("has_foreign_files");
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -errno;
    DIR *d = fdopendir(fd);
    if (!d) {
        long e = -errno;
        close(fd);
        return e;
    }
    long found = 0;
    const struct dirent *entry;
    while (!found && (errno = 0, entry = readdir(d))) {
        const char *n = entry->d_name;
        if (n[0] == '.' || !strcmp(n, "lost+found") || !strcmp(n, own) || !strncmp(n, prefix, strlen(prefix))) continue;
        strncpy(name, n, size - 1);
        name[size - 1] = 0;
        found = 1;
    }
    if (!found) found = -errno;
    closedir(d);
    return found;
}
/* Keeps btrfs from copying on write, so that allocated space stays the file's own. */
static inline void shim_sys_no_copy_on_write(int fd) {
    int flags = 0;
    if (ioctl(fd, 0x80086601 /* FS_IOC_GETFLAGS */, &flags) == 0) {
        flags |= 0x00800000 /* FS_NOCOW_FL */;
        (void)ioctl(fd, 0x40086602 /* FS_IOC_SETFLAGS */, &flags);
    }
}
enum {
    SHIM_EFAULT = EFAULT,
    SHIM_ENOSPC = ENOSPC,
    SHIM_EFBIG = EFBIG,
    SHIM_EDQUOT = EDQUOT,
    SHIM_ENOENT = ENOENT,
    SHIM_ENOTDIR = ENOTDIR,
    SHIM_EEXIST = EEXIST,
    SHIM_EACCES = EACCES,
    SHIM_EPERM = EPERM,
    SHIM_EROFS = EROFS,
    SHIM_ELOOP = ELOOP,
    SHIM_EAGAIN = EAGAIN,
    SHIM_ENOMEM = ENOMEM,
    SHIM_EINVAL = EINVAL,
    SHIM_EBADF = EBADF,
    SHIM_EOVERFLOW = EOVERFLOW,
    SHIM_READ_LOCK = F_RDLCK,
    SHIM_WRITE_LOCK = F_WRLCK,
    SHIM_UNLOCK = F_UNLCK,
    SHIM_O_RDONLY = O_RDONLY,
    SHIM_O_RDWR = O_RDWR,
    SHIM_O_CREAT = O_CREAT,
    SHIM_O_EXCL = O_EXCL,
};

/* ---- LZ4 (https://lz4.org), block format ------------------------------ */

static inline int shim_lz4_bound(int n) { return LZ4_compressBound(n); }
/* A stream is fast, of 16 KiB, or dense, of 256 KiB: blocks of the same format, by a longer search. */
enum { SHIM_LZ4_DENSE_LEVEL = 4 }; /* of LZ4's high-compression levels 2 to 12 */
static inline size_t shim_lz4_stream_size(_Bool is_dense) {
    return is_dense ? sizeof(LZ4_streamHC_t) : sizeof(LZ4_stream_t);
}
static inline void shim_lz4_stream_init(void *stream, _Bool is_dense) {
    if (is_dense)
        LZ4_resetStreamHC_fast(LZ4_initStreamHC(stream, sizeof(LZ4_streamHC_t)), SHIM_LZ4_DENSE_LEVEL);
    else
        LZ4_initStream(stream, sizeof(LZ4_stream_t));
}
/* Prepares a stream that later compressions copy or attach: loading a dictionary costs 28 us. */
static inline void shim_lz4_load_dictionary(void *stream, _Bool is_dense, const void *dictionary, int n) {
    shim_lz4_stream_init(stream, is_dense);
    if (is_dense)
        LZ4_loadDictHC((LZ4_streamHC_t *)stream, (const char *)dictionary, n);
    else
        LZ4_loadDict((LZ4_stream_t *)stream, (const char *)dictionary, n);
}
/* Compresses independent blocks with one stream, without clearing its table for each. */
static inline int shim_lz4_compress(void *stream, _Bool is_dense, const void *in, void *out, int n, int limit) {
    if (is_dense) {
        LZ4_resetStreamHC_fast((LZ4_streamHC_t *)stream, SHIM_LZ4_DENSE_LEVEL);
        return LZ4_compress_HC_continue((LZ4_streamHC_t *)stream, (const char *)in, (char *)out, n, limit);
    }
    LZ4_resetStream_fast((LZ4_stream_t *)stream);
    return LZ4_compress_fast_continue((LZ4_stream_t *)stream, (const char *)in, (char *)out, n, limit, 1);
}
static inline int shim_lz4_compress_with(void *stream, _Bool is_dense, const void *prepared, const void *in, void *out,
                                         int n, int limit) {
    if (is_dense) {
#ifdef SHALE_LZ4_ATTACHES
        LZ4_resetStreamHC_fast((LZ4_streamHC_t *)stream, SHIM_LZ4_DENSE_LEVEL);
        LZ4_attach_HC_dictionary((LZ4_streamHC_t *)stream, (const LZ4_streamHC_t *)prepared);
#else
        memcpy(stream, prepared, sizeof(LZ4_streamHC_t));
#endif
        return LZ4_compress_HC_continue((LZ4_streamHC_t *)stream, (const char *)in, (char *)out, n, limit);
    }
#ifdef SHALE_LZ4_ATTACHES
    LZ4_resetStream_fast((LZ4_stream_t *)stream);
    LZ4_attach_dictionary((LZ4_stream_t *)stream, (const LZ4_stream_t *)prepared);
#else /* the same dictionary, copied */
    memcpy(stream, prepared, sizeof(LZ4_stream_t));
#endif
    return LZ4_compress_fast_continue((LZ4_stream_t *)stream, (const char *)in, (char *)out, n, limit, 1);
}
static inline int shim_lz4_decompress(const void *in, void *out, int n, int size) {
    SHIM_LOOK(in, (size_t)n);
    return LZ4_decompress_safe((const char *)in, (char *)out, n, size);
}
static inline int shim_lz4_decompress_with(const void *dictionary, int dictionary_size, const void *in, void *out,
                                           int n, int size) {
    SHIM_LOOK(in, (size_t)n);
    return LZ4_decompress_safe_usingDict((const char *)in, (char *)out, n, size, (const char *)dictionary,
                                         dictionary_size);
}

/* ---- the caller's clock ------------------------------------------------ */

static inline int64_t shim_call_clock(int64_t (*clock)(void *), void *context) { return clock(context); }

#endif
