/* What must hold after a round of anything: kills, full disks, other capacities, power cuts. */
#ifndef AFTERWARDS_H
#define AFTERWARDS_H

#include "account.h"
#include "check.h"

/* The audit of both files, while nobody writes (account.h). */
static inline accounts check_account(const char *directory, const char *when) {
    accounts found = take_account(directory, account_own_files);
    if (!CHECK_EQUAL(0, found.faults)) {
        fprintf(stderr, "  %s: ", when);
        print_account(&found, stderr);
    }
    return found;
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
    shale_stats before = {.struct_size = sizeof before}, after = before;
    uint64_t evicted = 0;
    check_set_and_remove(cache);
    CHECK_STATUS(SHALE_OK, shale_set(cache, "victim", 6, "x", 1, NULL)); /* there is one that is not pinned */
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &before));
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, &evicted));
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &after));
    CHECK_EQUAL(1, evicted);
    CHECK(after.entries < before.entries);
    shale_status status = shale_remove(cache, "victim", 6, 0);
    CHECK(status == SHALE_OK || status == SHALE_MISS);
}

#endif
