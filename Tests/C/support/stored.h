/* The values that a test has stored, to compare with a cache's answers. */
#ifndef STORED_H
#define STORED_H

#include "check.h"
#include "tolerances.h"
#include "pattern.h"

enum { stored_keys = 8192, stored_largest = 300000, stored_tags = 4 };

static struct {
    uint64_t version; /* 0: none */
    size_t size;
    bool pinned, tagged; /* by the key modulo stored_tags */
} stored[stored_keys];
static uint64_t stored_versions;

/* Sets a new value of the key; only a success changes the expected value. */
static inline shale_status store(shale_cache *cache, uint64_t key, size_t size, uint32_t flags) {
    static unsigned char bytes[stored_largest];
    uint64_t version = ++stored_versions, tag = key % stored_tags;
    shale_bytes tags = {&tag, sizeof tag};
    shale_set_options options = {
        .struct_size = sizeof options, .flags = flags, .tags = &tags, .tag_count = stored[key].tagged};
    pattern_fill(bytes, key, version, size);
    shale_status status = shale_set(cache, &key, sizeof key, bytes, size, &options);
    if (status == SHALE_OK) {
        stored[key].version = version;
        stored[key].size = size;
        stored[key].pinned = flags & SHALE_SET_PINNED;
    }
    return status;
}

/* What is wrong with the answer to a get of the key; NULL: nothing, or it is an error. `evicts`: unpinned entries
 * may have been evicted, if there is not room for all, on a full disk as well (design.md, "Eviction"). Scenarios in
 * which everything fits do without. */
static inline const char *stored_mismatch(uint64_t key, shale_status status, const shale_value *value, bool evicts) {
    count_look();
    if (status != SHALE_OK) {
        if (value->size != 0)
            return "no value, and yet a size";
        bool is_lost = status == SHALE_MISS && stored[key].version != 0;
        return !is_lost || (evicts && !stored[key].pinned && tolerated(0, "evicted")) ? NULL : "lost";
    }
    uint64_t version = 0;
    const char *wrong = pattern_check(value->data, value->size, key, &version);
    return wrong ? wrong : version == stored[key].version && value->size == stored[key].size ? NULL : "another version";
}

static inline void clear_stored(void) {
    memset(stored, 0, sizeof stored);
}

#endif
