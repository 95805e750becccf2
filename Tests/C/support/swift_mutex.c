/* Shows ThreadSanitizer the order that Synchronization.Mutex makes, for Scripts/sanitize-swift.
 *
 * Without contention, a lock or unlock is an atomic operation in the caller's code, which is instrumented. With
 * contention, it is a call of one of the three functions below in Swift's library, which is not: ThreadSanitizer then
 * reports a race on the state that the lock guards. A program that links this file calls the library through it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LOCK "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"
#define TRY_LOCK "$s15Synchronization12_MutexHandleV12_tryLockSlowSbyF"
#define UNLOCK "$s15Synchronization12_MutexHandleV11_unlockSlowyyF"
#define SWIFT __attribute__((swiftcall))
#define SELF __attribute__((swift_context)) void *self

SWIFT void lock(uint32_t thread, SELF) __asm__(LOCK);
SWIFT bool try_lock(SELF) __asm__(TRY_LOCK);
SWIFT void unlock(SELF) __asm__(UNLOCK);

static SWIFT void (*library_lock)(uint32_t thread, SELF);
static SWIFT bool (*library_try_lock)(SELF);
static SWIFT void (*library_unlock)(SELF);

static void *find(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found)
        return found;
    fprintf(stderr, "swift_mutex.c: this version of Swift has no function %s\n", name);
    abort();
}

__attribute__((constructor)) static void find_all(void) {
    *(void **)&library_lock = find(LOCK);
    *(void **)&library_try_lock = find(TRY_LOCK);
    *(void **)&library_unlock = find(UNLOCK);
}

SWIFT void lock(uint32_t thread, SELF) {
    library_lock(thread, self);
    __tsan_acquire(self);
}

SWIFT bool try_lock(SELF) {
    bool is_locked = library_try_lock(self);
    if (is_locked)
        __tsan_acquire(self);
    return is_locked;
}

SWIFT void unlock(SELF) {
    __tsan_release(self);
    library_unlock(self);
}
