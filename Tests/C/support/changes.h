/* All calls that change something, for a handle that must not. */
#ifndef CHANGES_H
#define CHANGES_H

#include "check.h"

static inline void check_changes_answer(shale_status expected, shale_cache *cache, const char *key) {
    size_t size = strlen(key);
    const shale_bytes bytes = {key, size};
    shale_status status = SHALE_OK;
    CHECK_STATUS(expected, set_text(cache, key, "value", NULL));
    CHECK_STATUS(expected, shale_set_many(cache, 1, &bytes, &bytes, NULL, &status));
    CHECK_STATUS(expected, shale_renew(cache, key, size, 1, 0));
    CHECK_STATUS(expected, shale_release(cache, key, size, 1));
    CHECK_STATUS(expected, shale_remove(cache, key, size, 0));
    CHECK_STATUS(expected, shale_remove_many(cache, 1, &bytes, &status));
    CHECK_STATUS(expected, shale_expire(cache, key, size));
    CHECK_STATUS(expected, shale_touch(cache, key, size, 1));
    CHECK_STATUS(expected, shale_touch_unchanged(cache, key, size, 1, 1));
    CHECK_STATUS(expected, shale_increment(cache, key, size, 1, 1, NULL));
    CHECK_STATUS(expected, shale_invalidate(cache, "tag", 3));
    CHECK_STATUS(expected, shale_invalidate_with(cache, "tag", 3, SHALE_INVALIDATE_EXPIRE));
    CHECK_STATUS(expected, shale_clear(cache));
    CHECK_STATUS(expected, shale_evict(cache, 1, NULL));
    CHECK_STATUS(expected, shale_purge(cache, NULL));
    CHECK_STATUS(expected, shale_sync(cache));
}

#endif
