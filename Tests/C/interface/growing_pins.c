/* A table grows only if the pinned entries have room beside it (space.md, "Pinned entries"), also in the call that
 * pins: pinned entries can be set again afterwards, and others be set beside them, whatever the capacity. A disk
 * that is full for a while keeps the table small, so that it grows with the last entry. */
#include "check.h"
#include "faults.h"
#include "files.h"

#include <errno.h>

enum {
    segment = 128 << 10,
    page = 4096,
    pins = 756, /* 7/8 of 54/64 of the slots of the smallest table */
    full_from = 700,
    helpers = 200,
    helper_size = 8000,
    largest = 14000
};

static unsigned char bytes[1 << 14];
static bool is_full;
static unsigned grown;

static long no_space(const char *name) {
    return is_full && strcmp(name, "fallocate") == 0 ? -ENOSPC : 0;
}

static shale_status put(shale_cache *cache, char kind, int number, size_t size, uint32_t flags) {
    char key[16];
    int length = snprintf(key, sizeof key, "%c%06d", kind, number);
    shale_set_options options = {.struct_size = sizeof options, .flags = flags | SHALE_SET_UNCOMPRESSED};
    return shale_set(cache, key, (size_t)length, bytes, size, &options);
}

static void pin_with_growth(uint64_t capacity, size_t size) {
    char *directory = path_to("growing");
    shale_options options = {
        .struct_size = sizeof options, .capacity = capacity, .segment_size = segment, .flags = SHALE_OPEN_NO_SYNC};
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    for (int i = 0; i < helpers; i++)
        CHECK_STATUS(SHALE_OK, put(cache, 'q', i, helper_size, 0));
    bool fits = true;
    for (int i = 0; i < pins && fits; i++) {
        is_full = i >= full_from;
        fits = put(cache, 'p', i, size, SHALE_SET_PINNED) == SHALE_OK;
    }
    is_full = false;
    char key[16];
    for (int i = 0; i < helpers; i++) {
        int length = snprintf(key, sizeof key, "q%06d", i);
        CHECK_ANSWER(shale_remove(cache, key, (size_t)length, 0));
    }
    uint64_t before = stats_of(cache).index_bytes;
    if (fits && put(cache, 'l', 0, largest, SHALE_SET_PINNED) == SHALE_OK && stats_of(cache).index_bytes > before) {
        grown++;
        bool holds = true;
        for (int i = 0; i < 200 && holds; i++)
            holds = CHECK_STATUS(SHALE_OK, put(cache, 'x', i, helper_size, 0)) &&
                    CHECK_STATUS(SHALE_OK, put(cache, 'p', i % pins, size, SHALE_SET_PINNED));
        if (!holds)
            fprintf(stderr, "  capacity %" PRIu64 ", %d pins of %zu bytes and one of %d\n", capacity, pins, size,
                    largest);
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

/* Where the table cannot grow, pinned entries leave slots to others. */
static void test_slots_for_others(void) {
    enum { others = 3000 };
    shale_options options = {
        .struct_size = sizeof options, .capacity = 4 << 20, .segment_size = segment, .flags = SHALE_OPEN_NO_SYNC};
    shale_cache *cache = NULL;
    char *directory = path_to("slots");
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    for (int i = 0; i < helpers; i++)
        CHECK_STATUS(SHALE_OK, put(cache, 'q', i, helper_size, 0));
    is_full = true;
    int pinned = 0;
    while (pinned < 5 * pins && put(cache, 'p', pinned, 1, SHALE_SET_PINNED) == SHALE_OK)
        pinned++;
    CHECK(pinned >= pins / 2 && pinned < 5 * pins);
    for (int i = 0; i < others; i++)
        CHECK_STATUS(SHALE_OK, put(cache, 'x', i, 1, 0));
    is_full = false;
    CHECK_STATUS(SHALE_OK, put(cache, 'p', pinned, 1, SHALE_SET_PINNED)); /* no longer than its cause */
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

static int allocations_left;
static long no_space_for_more(const char *name) {
    return strcmp(name, "fallocate") == 0 && allocations_left-- <= 0 ? -ENOSPC : 0;
}

/* Wherever the disk becomes full, a rebuild keeps all pinned entries, or fails and leaves the log as it is until there
 * is room: recovery.md, "A rebuild". */
static void test_rebuild(void) {
    enum { all = 24000, tries = 24 };
    char *directory = path_to("rebuilt");
    shale_options options = {
        .struct_size = sizeof options, .capacity = 8 << 20, .segment_size = segment, .flags = SHALE_OPEN_NO_SYNC};
    shale_cache *cache = NULL;
    int refused = 0, opened = 0;
    shim_faults.call = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    for (int i = 0; i < all; i++)
        CHECK_STATUS(SHALE_OK, put(cache, 'p', i, 1, SHALE_SET_PINNED));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    for (int i = 0; i <= tries; i++) {
        remove_index(directory);
        allocations_left = i;
        shim_faults.call = i < tries ? no_space_for_more : NULL;
        shale_status status = shale_open(directory, &options, &cache);
        shim_faults.call = NULL;
        if (status == SHALE_E_FULL && i < tries) {
            refused++;
            status = shale_open(directory, &options, &cache);
        } else
            opened++;
        REQUIRE_STATUS(SHALE_OK, status);
        int found = 0;
        for (int k = 0; k < all; k++) {
            char key[16];
            shale_value value = SHALE_VALUE_INIT;
            int length = snprintf(key, sizeof key, "p%06d", k);
            found += shale_get(cache, key, (size_t)length, 0, &value) == SHALE_OK && holds_bytes(&value, bytes, 1);
            shale_value_free(&value);
        }
        if (!CHECK_EQUAL(all, found))
            fprintf(stderr, "  no room for allocation %d\n", i);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    printf("%d openings without room, %d with it\n", refused, opened);
    CHECK(refused > 3 && opened > 3);
    free(directory);
}

int main(void) {
    watch(patience);
    memset(bytes, 7, sizeof bytes);
    shim_faults.call = no_space;
    /* Somewhere within a segment's length the larger table takes a frame from the log, and somewhere within these
     * sizes the last pin does not fit beside it. The format decides where exactly. */
    for (uint64_t capacity = 1 << 20; capacity < (1 << 20) + segment; capacity += page)
        for (size_t size = 440; size <= 536; size += 8)
            pin_with_growth(capacity, size);
    CHECK(grown > 50);
    RUN(test_slots_for_others);
    RUN(test_rebuild);
    return finish();
}
