#define _GNU_SOURCE
#include "platform.h"

/* A robust futex can lose a wake-up. A waiter that is killed between being woken
 * and taking the lock takes the wake-up with it, if somebody else has taken the
 * lock in between without the mark that others wait: neither he nor the kernel
 * wakes the next one then. So everyone looks again after this time. */
enum { renewed_after_ms = 20 };

int shim_mutex_wait(void *p) {
    int e;
    do {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += renewed_after_ms * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        e = pthread_mutex_clocklock(p, CLOCK_MONOTONIC, &until);
    } while (e == ETIMEDOUT);
    return e;
}
