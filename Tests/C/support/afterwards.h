/* What must hold after a round of anything: kills, full disks, other capacities, power cuts. */
#ifndef AFTERWARDS_H
#define AFTERWARDS_H

#include "account.h"
#include "check.h"

/* The audit of both files, while nobody writes (account.h). `files`: who else has had them. */
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

/* A set of one byte and a removal work, whatever fills the cache. */
static inline void check_set_and_remove(shale_cache *cache) {
    static const char key[] = "a byte";
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, shale_set(cache, key, sizeof key, "x", 1, NULL));
    CHECK_STATUS(SHALE_OK, shale_get(cache, key, sizeof key, 0, &value));
    CHECK(holds_bytes(&value, "x", 1));
    CHECK_STATUS(SHALE_OK, shale_remove(cache, key, sizeof key, 0));
    CHECK_STATUS(SHALE_MISS, shale_get(cache, key, sizeof key, 0, &value));
    shale_value_free(&value);
}

/* And an eviction: of the entry that was used least recently, whichever that is. */
static inline void check_still_works(shale_cache *cache) {
    uint64_t evicted = 0;
    check_set_and_remove(cache);
    CHECK_STATUS(SHALE_OK, shale_set(cache, "victim", 6, "x", 1, NULL)); /* there is one that is not pinned */
    uint64_t before = stats_of(cache).entries;
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, &evicted));
    CHECK_EQUAL(1, evicted);
    CHECK(stats_of(cache).entries < before);
    CHECK_EITHER(SHALE_OK, SHALE_MISS, shale_remove(cache, "victim", 6, 0)); /* it may have been the one */
}

/* All of it. Every shard is locked once before the audit, so that what the killed left is mended. */
static inline void check_afterwards(shale_cache *cache, const char *directory, const char *when) {
    unsigned failures = check_failures;
    CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
    check_still_works(cache);
    check_account(directory, when);
    if (check_failures != failures)
        fprintf(stderr, "  %s\n", when);
}

#endif
