/* Situations (situations.h) in which each store and each system call is an event:
 * the hooks of shale_faults. */
#ifndef AIMED_H
#define AIMED_H

#include "faults.h"
#include "situations.h"

static void strike(void) {
    if (is_hit())
        kill(getpid(), aimed_signal);
}
static void before_store(const void *at UNUSED) {
    strike();
}
static long before_call(const char *name UNUSED) {
    strike();
    return 0;
}

static void aim(uint64_t n, int signal) {
    atomic_store(&shared->events, 0);
    aimed_at = n;
    aimed_signal = signal;
    shim_faults.store = before_store;
    shim_faults.call = before_call;
}

static void lay_down(void) {
    shim_faults.store = NULL;
    shim_faults.call = NULL;
}

#endif
