/* Handover: who takes a lock sees all stores of the last owner, who released it or whose thread ended.
 *
 * code: Sources/CShalePlatform/lock.c: !__atomic_compare_exchange_n((uint64_t *)lock, &seen, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED), 0))
 * code: Sources/CShalePlatform/lock.c: __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
 * code: Sources/CShalePlatform/lock.c: if (!__atomic_compare_exchange_n((uint64_t *)lock, seen, next, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) { */
#include "memory.inc"

byte word = 1, data = 1;

#define CHANGE 1
#define RELEASE 2

#ifdef WEAK_RELEASE /* the word before the change */
#define BEFORE_RELEASE 0
#else
#define BEFORE_RELEASE CHANGE
#endif

active proctype owner() {
    THREAD;
    RUN(3,
        STEP(CHANGE, 0, data = 2)
        STEP(RELEASE, BEFORE_RELEASE, word = 0))
}

#define TAKE 1
#define READ 2

#ifdef WEAK_ACQUIRE /* a load before the lock is taken */
#define BEFORE_READ 0
#else
#define BEFORE_READ TAKE
#endif

active proctype next() {
    THREAD;
    byte seen, read;
    RUN(3,
        STEP(TAKE, 0, seen = word)
        STEP(READ, BEFORE_READ, read = data));
    assert(seen != 0 || read == 2)
}
