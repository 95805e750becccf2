#define _GNU_SOURCE
#include "platform.h"

/* A robust futex can lose a wake-up. A waiter that is killed between being woken
 * and taking the lock takes the wake-up with it, if somebody else has taken the
 * lock in between without the mark that others wait: neither he nor the kernel
 * wakes the next one then. So everyone looks again after this time. */
enum { renewed_after_ms = 20 };

/* The clock that the wait goes by: musl knows no other. There, a clock that is set back while a thread is between reading
 * it and waiting lengthens that one wait by as much, which matters only to a wake-up that is lost as well. */
#if defined(__GLIBC__)
enum { clock_of_waits = CLOCK_MONOTONIC };
static int lock_until(void *p, const struct timespec *until) {
    return pthread_mutex_clocklock(p, CLOCK_MONOTONIC, until);
}
#else
enum { clock_of_waits = CLOCK_REALTIME };
static int lock_until(void *p, const struct timespec *until) { return pthread_mutex_timedlock(p, until); }
#endif

int shim_mutex_wait(void *p) {
    int e;
    do {
        struct timespec until;
        clock_gettime(clock_of_waits, &until);
        until.tv_nsec += renewed_after_ms * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        e = lock_until(p, &until);
    } while (e == ETIMEDOUT);
    return e;
}
