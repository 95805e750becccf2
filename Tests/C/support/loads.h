/* Loads of many workers at once: of keys that only one worker uses, and of shared keys, which one worker at a time
 * may load. */
#ifndef LOADS_H
#define LOADS_H

#include "afterwards.h"
#include "known_failures.h"

enum { load_keys = 12, most_loaders = 64 };

/* In shared memory. */
typedef struct {
    shares shares;
    _Atomic uint64_t line_shared; /* refusals, for more changes of others than the cache notes */
    _Atomic uint32_t holders[load_keys]; /* the worker that has the lease, plus 1 */
    _Atomic bool is_dead[most_loaders]; /* or about to be killed */
} loads;

static loads *all_loads;

static inline void begin_loads(void) {
    all_loads = shared_memory(sizeof *all_loads);
    load_shares = &all_loads->shares;
}

/* Clears all holders: the next round has other keys. */
static inline void begin_round_of_loads(void) {
    memset(all_loads->holders, 0, sizeof all_loads->holders);
    memset(all_loads->is_dead, 0, sizeof all_loads->is_dead);
}

/* Of a key that no other thread loads: `value` gets the token for its fenced set. */
static inline void begin_own_load(shale_cache *cache, const uint64_t name[2], shale_value *value) {
    CHECK_ANSWER(shale_remove(cache, name, 2 * sizeof *name, 0));
    CHECK_STATUS(SHALE_MISS, shale_get(cache, name, 2 * sizeof *name, SHALE_GET_TOKEN, value));
}

/* `name`: a key that is never set; `slot`: its index in the holders. */
static inline uint64_t begin_load(shale_cache *cache, const uint64_t name[2], uint32_t slot, uint32_t who) {
    uint64_t lease = lease_of_missing(cache, name, 2 * sizeof *name);
    if (!lease)
        return 0;
    load_shares->loads++;
    /* A lease that could not be recorded keeps no other caller from loading (limits.md, "Processes"). */
    if (shale_renew(cache, name, 2 * sizeof *name, lease, 60 * 60 * 1000) != SHALE_OK)
        return 0;
    uint32_t other = atomic_exchange(&all_loads->holders[slot], who + 1);
    load_shares->duplicates += other && !atomic_load(&all_loads->is_dead[other - 1]);
    return lease;
}

static inline void end_load(shale_cache *cache, const uint64_t name[2], uint32_t slot, uint64_t lease) {
    atomic_store(&all_loads->holders[slot], 0);
    CHECK_STATUS(SHALE_OK, shale_release(cache, name, 2 * sizeof *name, lease));
}

/* A refusal of a fenced set beside concurrent callers, without a clear or a rebuild: more other keys changed than a
 * line of the fence table records, or another key has the same mark. (limits.md, "Processes") */
static inline void note_refusal(shale_cache *cache) {
    all_loads->line_shared++;
    shale_stats stats = stats_of(cache);
    CHECK(stats.conflicts_overflow + stats.conflicts_key > 0);
}

/* Cases of the known failures: small programs, each with the kind of its failure. A case that is not listed has to
 * pass. */
typedef struct {
    const char *name, *kind;
    bool (*passes)(void);
} progress_case;

static inline void check_cases(const progress_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        bool is_listed = false;
        for (int k = 0; k < known_failure_count; k++)
            is_listed |= strcmp(known_failures[k].how, cases[i].name) == 0 &&
                         strcmp(known_failures[k].kind, cases[i].kind) == 0;
        bool passes = cases[i].passes();
        check_that(passes != is_listed, __FILE__, __LINE__, cases[i].name,
                   is_listed ? " (%s) is known to fail, and passes: delete its line in Tests/known-failures"
                             : " (%s) fails, and is not listed in Tests/known-failures",
                   cases[i].kind);
    }
    for (int k = 0; k < known_failure_count; k++) {
        bool is_case = false;
        for (size_t i = 0; i < count; i++)
            is_case |= strcmp(known_failures[k].how, cases[i].name) == 0 &&
                       strcmp(known_failures[k].kind, cases[i].kind) == 0;
        check_that(is_case, __FILE__, __LINE__, known_failures[k].how, " (%s) is none of the suite's cases",
                   known_failures[k].kind);
    }
}

#endif
