/* A child that is killed before one of its stores: set `stores_left`, and the hook `shim_faults.store`. */
#ifndef KILL_AT_H
#define KILL_AT_H

#include "check.h"

enum { killed_at_store = 42 };

static long stores_left;
static void before_store(const void *at UNUSED) {
    if (stores_left > 0 && --stores_left == 0)
        _exit(killed_at_store);
}

#endif
