#define _GNU_SOURCE
#include "platform.h"

/* Of <linux/futex.h>, which musl's compiler does not find. */
enum { FUTEX_WAIT = 0, FUTEX_WAKE = 1 };

/* Waiting and waking never decide who owns a lock: the word alone does. Every wait is short, and a woken thread tries
 * again, so a waiter that dies between being woken and taking the lock takes nothing with it. */

/* The locks that this thread holds, or is about to take, or has just released, by their kind. A lock's own word tells
 * which: it has the owner's number and the thread's. So whichever instruction a thread ends at, its lock is found. */
struct held_locks {
    uint64_t *locks[SHIM_LOCK_KINDS];
    const struct shim_owner *owners[SHIM_LOCK_KINDS];
    uint32_t thread; /* unlike that of any other thread of this process; 0: not watched */
};
static _Thread_local struct held_locks held __attribute__((tls_model(SHIM_TLS_MODEL)));

void shim_lock_hold_none(void) { memset(held.locks, 0, sizeof held.locks); }

static void wake_one(uint64_t *lock) { syscall(SYS_futex, lock, FUTEX_WAKE, 1, NULL, NULL, 0); }

/* The word of a lock that this thread holds. */
static inline uint64_t held_word(const struct shim_owner *owner) {
    return (uint64_t)held.thread << SHIM_LOCK_THREAD | shim_owner_number(owner);
}

/* ---- threads that end while they hold a lock ------------------------------- */

/* A thread ends within a call if it is cancelled there, or calls pthread_exit in a callback or in a signal's handler.
 * Its process lives on, so the lock says that its owner's thread has ended. */
static void thread_ends(void *p) {
    struct held_locks *ending = p;
    for (int kind = 0; kind < SHIM_LOCK_KINDS; kind++) {
        uint64_t *lock = ending->locks[kind];
        if (!lock) continue;
        ending->locks[kind] = NULL;
        /* (A child that a handler has made by the system call alone, within a call, owns nothing.) */
        uint64_t seen = shim_lock_word(lock), word = held_word(ending->owners[kind]);
        while (word & SHIM_OWNER_MASK && (seen & ~SHIM_LOCK_WANTED) == word &&
               !__atomic_compare_exchange_n(lock, &seen, (seen & SHIM_LOCK_WANTED) | SHIM_OWNER_ENDED, 0,
                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        }
        /* Also if the thread has released the lock and ended before it woke anybody. */
        wake_one(lock);
    }
    ending->thread = 0;
}

static pthread_key_t key;
static _Bool has_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void make_key(void) { has_key = pthread_key_create(&key, thread_ends) == 0; }

/* A library that is unloaded must leave no destructor behind. */
static __attribute__((destructor)) void delete_key(void) {
    if (has_key) pthread_key_delete(key);
    has_key = 0;
}

/* If it fails, because memory or keys are exhausted, the next lock tries it again: but not beside a lock that the thread
 * holds without a number. */
static __attribute__((noinline)) void watch_thread(void) {
    static uint32_t threads;
    for (int kind = 0; kind < SHIM_LOCK_KINDS; kind++)
        if (held.locks[kind]) return;
    pthread_once(&once, make_key);
    if (!has_key || pthread_setspecific(key, &held) != 0) return;
    do held.thread = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    while (held.thread == 0);
}

/* ---- taking and releasing ------------------------------------------------------ */

void shim_lock_init(void *lock) {
#ifdef SHALE_FAULTS
    (void)shim_fault("lock_init");
#endif
    __atomic_store_n((uint64_t *)lock, 0, __ATOMIC_RELEASE);
}

static inline _Bool change(void *lock, const struct shim_owner *owner, uint64_t *seen, uint64_t next,
                           enum shim_lock_kind kind) {
    held.owners[kind] = owner;
    held.locks[kind] = (uint64_t *)lock;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (!__atomic_compare_exchange_n((uint64_t *)lock, seen, next, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        held.locks[kind] = NULL;
        return 0;
    }
#ifdef SHALE_FAULTS
    shim_tell_lock(lock, 1);
#endif
    return 1;
}

int shim_lock_try(void *lock, const struct shim_owner *owner, enum shim_lock_kind kind) {
#ifdef SHALE_FAULTS
    (void)shim_fault("lock_try");
#endif
    if (__builtin_expect(shim_owner_number(owner) == 0, 0)) return ENOLCK;
    if (__builtin_expect(!held.thread, 0)) watch_thread();
    uint64_t seen = 0;
    return __builtin_expect(change(lock, owner, &seen, held_word(owner), kind), 1) ? 0 : EBUSY;
}

/* If the word has another owner's number, it is left alone: this is a child that was forked within a call, or the word
 * was damaged. */
static __attribute__((noinline)) void release_wanted(uint64_t *lock, const struct shim_owner *owner) {
    uint64_t seen = held_word(owner) | SHIM_LOCK_WANTED;
    if (shim_owner_number(owner) && __atomic_compare_exchange_n(lock, &seen, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        wake_one(lock);
}

void shim_lock_release(void *lock, const struct shim_owner *owner, enum shim_lock_kind kind) {
    uint64_t seen = held_word(owner);
#ifdef SHALE_FAULTS
    (void)shim_fault("lock_release");
    shim_tell_lock(lock, 0);
#endif
    if (__builtin_expect(
            !__atomic_compare_exchange_n((uint64_t *)lock, &seen, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED), 0))
        release_wanted(lock, owner);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    held.locks[kind] = NULL;
}

/* ---- waiting ---------------------------------------------------------------- */

static _Bool is_free(uint64_t word) {
    uint32_t number = word & SHIM_OWNER_MASK;
    return number == 0 || number == SHIM_OWNER_ENDED;
}

/* Others may still wait, so the word keeps saying so. */
static _Bool take(void *lock, const struct shim_owner *owner, uint64_t *seen, enum shim_lock_kind kind) {
    return change(lock, owner, seen, held_word(owner) | SHIM_LOCK_WANTED, kind);
}

int shim_lock_wait(void *lock, const struct shim_owner *owner, enum shim_lock_kind kind, int64_t ms, uint64_t *seen) {
    uint64_t word = shim_lock_word(lock);
    for (_Bool has_waited = 0;;) {
        while (is_free(word)) {
            if (take(lock, owner, &word, kind)) return 0;
        }
        if (has_waited) {
            *seen = word;
            return EBUSY;
        }
        if (!(word & SHIM_LOCK_WANTED)) {
            if (!__atomic_compare_exchange_n((uint64_t *)lock, &word, word | SHIM_LOCK_WANTED, 0, __ATOMIC_RELAXED,
                                             __ATOMIC_RELAXED))
                continue;
            word |= SHIM_LOCK_WANTED;
        }
        struct timespec time = {ms / 1000, ms % 1000 * 1000000};
        /* (The lower half: integers are little-endian.) */
        if (syscall(SYS_futex, lock, FUTEX_WAIT, (uint32_t)word, &time, NULL, 0) < 0 && errno == ETIMEDOUT &&
            shim_lock_word(lock) == word) {
            *seen = word;
            return ETIMEDOUT;
        }
        has_waited = 1;
        word = shim_lock_word(lock);
    }
}

_Bool shim_lock_take_over(void *lock, const struct shim_owner *owner, enum shim_lock_kind kind, uint64_t seen) {
#ifdef SHALE_FAULTS
    (void)shim_fault("lock_take_over");
#endif
    return take(lock, owner, &seen, kind);
}

/* ---- messages --------------------------------------------------------------- */

/* Whether /proc belongs to this PID namespace. */
static _Bool is_own_proc(void) {
    char text[24];
    ssize_t size = readlink("/proc/self", text, sizeof text - 1);
    if (size <= 0) return 0;
    text[size] = 0;
    return atoi(text) == getpid();
}

static void describe_process(int64_t process, char *text, size_t size) {
    char path[40], name[20];
    if (process == getpid()) {
        snprintf(text, size, "another thread of this process");
        return;
    }
    if (process > 0 && !is_own_proc()) process = 0;
    if (process <= 0) {
        snprintf(text, size, process ? "a process in another PID namespace" : "a process that cannot be found");
        return;
    }
    snprintf(path, sizeof path, "/proc/%lld/comm", (long long)process);
    ssize_t length = shim_sys_read_file(path, name, sizeof name - 1);
    if (length < 0) length = 0;
    name[length] = 0;
    for (char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = c[1] ? '?' : 0; /* any bytes, and a final newline */
    snprintf(text, size, "process %lld (%s)", (long long)process, name);
}

void shim_describe_wait(char *text, size_t size, const char *path, const char *file, const char *lock, int64_t ms,
                        int64_t process, const char *advice) {
    char holder[64];
    describe_process(process, holder, sizeof holder);
    snprintf(text, size, "%s%s: a call has waited %lld ms for %s, which %s holds; %s", path ? path : "memory", file,
             (long long)ms, lock, holder, advice);
}
