#define _GNU_SOURCE
#include "platform.h"

/* A robust futex can lose a wake-up. A waiter that is killed between being woken and taking the lock takes the wake-up
 * with it if another thread has taken the lock in between without the mark that others wait: neither that thread nor
 * the kernel wakes the next waiter then. Therefore every waiter tries again after this time. */
enum { renewed_after_ms = 20 };

/* The clock of the wait: musl supports no other. There, setting the clock back while a thread is between reading it and
 * waiting lengthens that one wait by as much, which matters only if a wake-up is lost as well. */
#if defined(__GLIBC__)
enum { clock_of_waits = CLOCK_MONOTONIC };
static int lock_until(void *p, const struct timespec *until) {
    return pthread_mutex_clocklock(p, CLOCK_MONOTONIC, until);
}
#else
enum { clock_of_waits = CLOCK_REALTIME };
static int lock_until(void *p, const struct timespec *until) { return pthread_mutex_timedlock(p, until); }
#endif

int shim_mutex_wait(void *p, int64_t ms) {
    struct timespec until;
    clock_gettime(clock_of_waits, &until);
    until.tv_nsec += (ms < renewed_after_ms ? ms : renewed_after_ms) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    int e = lock_until(p, &until);
    if (e == EOWNERDEAD) pthread_mutex_consistent(p);
    return e;
}

uint32_t shim_mutex_owner(const void *p) { return shim_mutex_word(p) & 0x3fffffff; }

/* Returns 0 if /proc belongs to another PID namespace, or does not exist. */
static unsigned process_of(uint32_t thread) {
    char path[40], text[512], *found;
    ssize_t size = readlink("/proc/self", text, sizeof text - 1);
    if (size <= 0) return 0;
    text[size] = 0;
    if (atoi(text) != getpid()) return 0;
    snprintf(path, sizeof path, "/proc/%u/status", (unsigned)thread);
    size = shim_sys_read_file(path, text, sizeof text - 1);
    if (size <= 0) return 0;
    text[size] = 0;
    found = strstr(text, "\nTgid:");
    return found ? (unsigned)atoi(found + 6) : 0;
}

static void describe_process(uint32_t thread, char *text, size_t size) {
    char path[40], name[20];
    unsigned process = thread ? process_of(thread) : 0;
    if (!process) {
        snprintf(text, size, "a process that cannot be found");
        return;
    }
    if (process == (unsigned)getpid()) {
        snprintf(text, size, "another thread of this process");
        return;
    }
    snprintf(path, sizeof path, "/proc/%u/comm", process);
    ssize_t length = shim_sys_read_file(path, name, sizeof name - 1);
    if (length < 0) length = 0;
    name[length] = 0;
    for (char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = c[1] ? '?' : 0; /* any bytes, and a final newline */
    snprintf(text, size, "process %u (%s)", process, name);
}

void shim_describe_wait(char *text, size_t size, const char *path, const char *file, const char *lock, int64_t ms,
                        uint32_t thread, const char *advice) {
    char holder[64];
    describe_process(thread, holder, sizeof holder);
    snprintf(text, size, "%s%s: a call has waited %lld ms for %s, which %s holds; %s", path ? path : "memory", file,
             (long long)ms, lock, holder, advice);
}
