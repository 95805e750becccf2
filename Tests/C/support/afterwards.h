/* Invariants that hold after every round: kills, full disks, other capacities, power cuts. */
#ifndef AFTERWARDS_H
#define AFTERWARDS_H

#include "account.h"
#include "check.h"
#include "shares.h"

/* The audit of both files, while no process writes (account.h). `files`: which other readers they had. */
static inline accounts check_files(const char *directory, enum account_files files, const char *when) {
    accounts found = take_account(directory, files);
    if (!CHECK_EQUAL(0, found.faults)) {
        fprintf(stderr, "  %s: ", when);
        print_account(&found, stderr);
    }
    /* In one shard a large value's parts go with it; those in other shards may be left to the cleaner: space.md, "When
     * room runs out". */
    if (found.shards == 1 && !CHECK_EQUAL(0, found.orphans))
        fprintf(stderr, "  %s\n", when);
    return found;
}

static inline accounts check_account(const char *directory, const char *when) {
    return check_files(directory, account_own_files, when);
}

/* A set of one byte and a removal work in any cache, however full. `loses`: concurrent callers evict or clear. */
static inline void check_set_and_remove(shale_cache *cache, bool loses) {
    static const char key[] = "a byte";
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, shale_set(cache, key, sizeof key, "x", 1, NULL));
    shale_status status = shale_get(cache, key, sizeof key, 0, &value);
    CHECK_EITHER(SHALE_OK, loses ? SHALE_MISS : SHALE_OK, status);
    CHECK(status == SHALE_MISS || holds_bytes(&value, "x", 1));
    CHECK_EITHER(SHALE_OK, loses ? SHALE_MISS : SHALE_OK, shale_remove(cache, key, sizeof key, 0));
    CHECK_STATUS(SHALE_MISS, shale_get(cache, key, sizeof key, 0, &value));
    shale_value_free(&value);
}

static shares *load_shares; /* counts loads; NULL: loads are not counted */

static inline shale_status set_fenced(shale_cache *cache, const void *key, size_t key_size, uint64_t token) {
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_IF_UNCHANGED, .version = token};
    shale_status status = shale_set(cache, key, key_size, "loaded", 6, &options);
    CHECK_EITHER(SHALE_OK, SHALE_CONFLICT, status);
    if (load_shares) {
        load_shares->fenced++;
        load_shares->refused += status == SHALE_CONFLICT;
    }
    return status;
}

/* A lease of a key that has no value, for an hour at most; 0: another caller has it. */
static inline uint64_t lease_of_missing(shale_cache *cache, const void *key, size_t key_size) {
    shale_value value = SHALE_VALUE_INIT;
    shale_lease_options options = {.struct_size = sizeof options, .lease_ms = 60 * 60 * 1000};
    uint64_t lease = 0;
    CHECK_STATUS(SHALE_MISS, shale_lease(cache, key, key_size, &options, &value, &lease));
    shale_value_free(&value);
    return lease;
}

/* A set, a removal, an invalidation and a load succeed in any cache, and so does an eviction (of the least recently
 * used entry) if the caller allows one. `loses`: concurrent callers evict or clear. True if the load's fenced set
 * was refused, which only concurrent callers can cause. */
static inline bool try_everything(shale_cache *cache, bool evicts, bool loses) {
    static const char load[] = "a load";
    const shale_bytes tag = {"a tag", 5};
    shale_set_options tagged = {.struct_size = sizeof tagged, .tags = &tag, .tag_count = 1};
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, shale_set(cache, "tagged", 6, "x", 1, &tagged));
    CHECK_STATUS(SHALE_OK, shale_set(cache, "victim", 6, "x", 1, NULL)); /* if there is one that is not pinned */
    uint64_t lease = lease_of_missing(cache, load, sizeof load);
    CHECK(lease != 0);
    CHECK_EQUAL(0, lease_of_missing(cache, load, sizeof load));
    check_set_and_remove(cache, loses);
    if (evicts)
        CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, NULL));
    CHECK_ANSWER(shale_remove(cache, "victim", 6, 0)); /* the set may have evicted it */
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, tag.data, tag.size));
    CHECK_STATUS(SHALE_MISS, shale_get(cache, "tagged", 6, 0, &value));
    shale_status status = set_fenced(cache, load, sizeof load, lease);
    CHECK_STATUS(SHALE_OK, shale_release(cache, load, sizeof load, lease));
    CHECK_ANSWER(shale_remove(cache, load, sizeof load, 0));
    shale_value_free(&value);
    return status == SHALE_CONFLICT;
}

/* An eviction takes one. */
static inline void check_eviction(shale_cache *cache) {
    CHECK_STATUS(SHALE_OK, shale_set(cache, "victim", 6, "x", 1, NULL)); /* if there is one that is not pinned */
    uint64_t before = stats_of(cache).entries, evicted = 0;
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, &evicted));
    CHECK_EQUAL(1, evicted);
    CHECK(stats_of(cache).entries < before);
    CHECK_EITHER(SHALE_OK, SHALE_MISS, shale_remove(cache, "victim", 6, 0)); /* the set may have evicted it */
}

/* All checks, without concurrent callers: so no load is refused. */
static inline void check_still_works(shale_cache *cache) {
    CHECK(!try_everything(cache, false, false));
    check_eviction(cache);
}

/* All checks, and the audit. Locks every shard once before the audit, so that killed writers are recovered. */
static inline void check_afterwards(shale_cache *cache, const char *directory, const char *when) {
    unsigned failures = check_failures;
    CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
    check_still_works(cache);
    check_account(directory, when);
    if (check_failures != failures)
        fprintf(stderr, "  %s\n", when);
}

#endif
