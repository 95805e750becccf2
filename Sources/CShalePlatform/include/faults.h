/* Hooks for tests into the library: compiled in only with SHALE_FAULTS, which CMake sets for the archive
 * libshale_faults.a that the tests of faults link. The installed libraries contain none of it. */
#ifndef SHALE_FAULTS_H
#define SHALE_FAULTS_H

enum shim_event { SHIM_EVICTED, SHIM_FORCED, SHIM_REPLAYED, SHIM_SOUGHT, SHIM_PAUSED, SHIM_SIGHTED };
struct shim_faults {
    /* Called before each system call and allocation ("malloc"): 0 lets it run, -errno is returned instead of it. For
     * pread and pwrite, n > 0 limits a transfer to n bytes. Also called before each step of a lock ("lock_try",
     * "lock_take_over", "lock_release"), where the result has no effect. */
    long (*call)(const char *name);
    /* Called before each store into memory that other threads or processes see. */
    void (*store)(const void *at);
    /* Called after a lock was taken, and before it is released. */
    void (*lock)(const void *at, _Bool is_taken);
    /* Called at internal events that no call reports: an entry is about to be evicted (`at`: its slot), a choice is
     * about to be made that need not follow the order of use, a log is about to be replayed, a table is about to be
     * walked for dead pinned entries, a call has released a shard's lock and will continue, a cursor has chosen an
     * entry (`at`: its slot) and is about to read its key. */
    void (*event)(enum shim_event event, const void *at);
    /* Whether several threads may call hooks at once. If false, and there is a hook, the library starts no threads. */
    _Bool may_start_threads;
    /* If true, no thread forks, and owners are not listed for their children: a test may restore their memory. */
    _Bool never_forks;
    /* The boot ID to report; NULL: the kernel's. */
    const char *boot_id;
    /* Source of a cache's random secret, so that one seed repeats a run; NULL: the kernel's. */
    unsigned long long (*random)(void);
    /* Milliseconds added to the system's uptime. (If there is a hook, the clock by which handles check that the cache
     * still exists advances by this alone: a test decides when they make these system calls.) */
    long long uptime_ahead;
};
extern struct shim_faults shim_faults;

/* Counters of a hold of a shard's lock (counts.h). A slot counts again if it is examined after another one; 16 bytes of
 * a victims' heap count as a slot. */
enum shim_count { SHIM_SLOTS, SHIM_RECORDS, SHIM_BYTES_READ, SHIM_BYTES_APPENDED, SHIM_COUNTS };

/* The largest counts of a call's holds. `bytes_unpaid`: of holds that read more than 16 times what they append.
 * `passes_unpaid`: slots that a pass over the table visits in a whole call, beyond one for two bytes that it appends.
 * `faults`: how often all of them together waited for a page from the disk. */
struct shim_call_counts {
    unsigned long key; /* a hash of the name; 0: the row is free */
    unsigned long name[4];
    unsigned long holds, most[SHIM_COUNTS], bytes_unpaid, faults, passes_unpaid;
};
enum { SHIM_CALLS = 64 };
struct shim_counts {
    struct shim_call_counts calls[SHIM_CALLS];
};
/* NULL: counting is off. A test may set its own table. */
extern struct shim_counts *shim_counts;

static inline long shim_fault(const char *name) { return shim_faults.call ? shim_faults.call(name) : 0; }
static inline void shim_tell(enum shim_event event, const void *at) {
    if (shim_faults.event) shim_faults.event(event, at);
}
static inline void shim_tell_lock(const void *at, _Bool is_taken) {
    if (shim_faults.lock) shim_faults.lock(at, is_taken);
}
static inline void shim_store_fault(const void *at) {
    if (shim_faults.store) shim_faults.store(at);
}

#endif
