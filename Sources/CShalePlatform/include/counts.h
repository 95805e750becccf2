/* Counts the work done while a shard's lock is held. In test builds (SHALE_FAULTS), each hold counts the slots and the
 * records that it examines, the bytes of the log that it reads, and those that it appends. Slots and bytes are counted
 * by the address of every load, store, copy and hash, so that no loop can be missed. A call's passes over the table are
 * counted over all its holds. The largest counts of each call go
 * to the table `shim_counts`, or to the file named by SHALE_LOCK_COUNTS, for all processes that map it. */
#ifndef SHALE_COUNTS_H
#define SHALE_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "faults.h"

struct shim_hold {
    const void *lock; /* NULL: none is held, or counting is off */
    uintptr_t table, table_size, log, log_size, last_slot;
    uint64_t counts[SHIM_COUNTS];
    const char *rest; /* name under which the rest is counted, if not the call */
    uint64_t faults;  /* of the thread, when it began: pages that came from the disk */
};
/* The call that a thread runs, and the lock that it holds. */
struct shim_section {
    const char *call;
    uint64_t pass_slots, appended; /* in all its holds so far */
    uint64_t pass_from;            /* the hold's slots when the pass went on */
    struct shim_hold hold;
};

extern _Thread_local struct shim_section shim_section_now
    __attribute__((tls_model(SHIM_TLS_MODEL), visibility("hidden")));
/* Limits that stop the process as soon as a hold of the call SHALE_LOCK_STOP exceeds one. */
extern uint64_t shim_stop_above[SHIM_COUNTS] __attribute__((visibility("hidden")));
void shim_stop(enum shim_count which);

static inline void shim_count(enum shim_count which, uint64_t n) {
    struct shim_hold *hold = &shim_section_now.hold;
    if (!hold->lock) return;
    hold->counts[which] += n;
    if (hold->counts[which] > shim_stop_above[which]) shim_stop(which);
}
static inline void shim_count_slots(const void *p, size_t n) {
    struct shim_hold *hold = &shim_section_now.hold;
    if (!hold->lock || (uintptr_t)p - hold->table >= hold->table_size) return;
    uintptr_t slot = (uintptr_t)p / 16;
    if (slot != hold->last_slot || n > 16) shim_count(SHIM_SLOTS, n > 16 ? n / 16 : 1);
    hold->last_slot = slot;
}
/* Counts bytes read, at any address. */
static inline void shim_look(const void *p, size_t n) {
    struct shim_hold *hold = &shim_section_now.hold;
    if (!hold->lock) return;
    if ((uintptr_t)p - hold->log < hold->log_size)
        shim_count(SHIM_BYTES_READ, n);
    else
        shim_count_slots(p, n);
}

/* Begins a call of the interface; returns a value for shim_leave. The name is a function's, up to a parenthesis. A hold
 * already in progress either never ends (Tests/Explore jumps out of calls), or belongs to an enclosing call (if a
 * test's hook makes this one) and continues afterwards. */
struct shim_section shim_call(const void *name);
/* The same for a part of a call that is counted separately, not as the call's. */
struct shim_section shim_part(const void *name);
void shim_leave(struct shim_section outer);
/* Counts the rest of the current hold separately. */
void shim_rest_of_hold(const void *name);

void shim_hold_begins(const void *lock, const void *table, size_t table_size, const void *log, size_t log_size);
void shim_hold_ends(const void *lock);

/* Around the steps of a pass over the table. */
static inline void shim_pass_begins(void) { shim_section_now.pass_from = shim_section_now.hold.counts[SHIM_SLOTS]; }
static inline void shim_pass_ends(void) {
    uint64_t slots = shim_section_now.hold.counts[SHIM_SLOTS];
    /* (The rest of the hold may be counted anew.) */
    if (slots > shim_section_now.pass_from) shim_section_now.pass_slots += slots - shim_section_now.pass_from;
}

static inline void shim_count_record(void) { shim_count(SHIM_RECORDS, 1); }
static inline void shim_count_appended(size_t n) { shim_count(SHIM_BYTES_APPENDED, n); }

#endif
