/* All that a program may do with a cache after its files were changed. No call may crash or hang; sizes are within
 * the limits; a value that this process stores is read back, or is a miss. */
#ifndef EXERCISE_H
#define EXERCISE_H

#include "image.h"

/* Makes the sanitizer check every byte that a caller would read. */
static inline void read_bytes(const void *data, size_t size) {
    static volatile uint64_t sink;
    if (size)
        sink += hash(data, size, 0);
}

static inline void check_answer(shale_status status, uint32_t flags, const shale_value *value) {
    if (status != SHALE_OK && !(status == SHALE_STALE && flags & SHALE_GET_STALE)) {
        ASSERT(value->size == 0 && value->meta_size == 0);
        return;
    }
    ASSERT(value->size <= UINT64_C(1) << 32 && value->meta_size <= SHALE_MAX_META_SIZE);
    ASSERT(value->data != NULL && value->capacity >= value->meta_size);
    if (!(flags & SHALE_GET_INFO)) {
        ASSERT(value->size <= UINT64_C(1) << 30 && value->size + value->meta_size <= value->capacity);
        read_bytes(value->data, value->size);
    }
    if (value->meta_size)
        read_bytes(value->meta, value->meta_size);
}

/* `strict`: records are as the library wrote them, so a key has one of its own values or none. */
static inline void read_everything(shale_cache *cache, bool strict) {
    static const uint32_t ways[] = {0, SHALE_GET_STALE, SHALE_GET_PEEK, SHALE_GET_INFO | SHALE_GET_PEEK};
    shale_value value = SHALE_VALUE_INIT, name = SHALE_VALUE_INIT;
    char key[16];
    for (unsigned n = 0; n < key_count; n++) {
        uint32_t flags = ways[n % 4];
        size_t size = make_key(key, n);
        shale_status status = shale_get(cache, key, size, flags, &value);
        check_answer(status, flags, &value);
        if (strict && (status == SHALE_OK || status == SHALE_STALE) && n != counter_key && !(flags & SHALE_GET_INFO))
            if (!is_value_of(value.data, value.size, n))
                FAIL("%s has a value that was never its own", key);
    }
    shale_bytes keys[key_count];
    char names[key_count][16];
    shale_value values[key_count];
    shale_status statuses[key_count];
    for (unsigned n = 0; n < key_count; n++) {
        keys[n] = (shale_bytes){names[n], make_key(names[n], n)};
        values[n] = (shale_value)SHALE_VALUE_INIT;
    }
    shale_get_many(cache, key_count, keys, SHALE_GET_STALE, values, statuses);
    for (unsigned n = 0; n < key_count; n++) {
        check_answer(statuses[n], SHALE_GET_STALE, &values[n]);
        shale_value_free(&values[n]);
    }
    shale_cursor *cursor;
    if (shale_cursor_open(cache, &cursor) == SHALE_OK) {
        unsigned seen = 0;
        shale_status status;
        while ((status = shale_cursor_next(cursor, SHALE_GET_STALE, &name, &value)) == SHALE_OK ||
               status == SHALE_STALE) {
            check_answer(status, SHALE_GET_STALE, &value);
            ASSERT(name.size >= 1 && name.size <= SHALE_MAX_KEY_SIZE);
            read_bytes(name.data, name.size);
            unsigned number;
            if (strict && name.size == 6 && sscanf(name.data, "key-%2u", &number) == 1 && number != counter_key &&
                number < key_count)
                if (!is_value_of(value.data, value.size, number))
                    FAIL("the cursor gives a value that was never key-%02u's", number);
            if (++seen > 1000000)
                FAIL("the cursor does not end");
        }
        shale_cursor_close(cursor);
    }
    shale_value_free(&value);
    shale_value_free(&name);
}

static inline void expect_own(shale_cache *cache, const char *key, const void *bytes, size_t size) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = shale_get(cache, key, strlen(key), 0, &value);
    count_look();
    /* If records are forged with right checks, only this is promised: that the bytes are the caller's own
     * (limits.md, "Secrecy"). index_file, whose records are sound, does without. */
    if (status != SHALE_OK)
        tolerated(0, "missing, as records were forged");
    if (status == SHALE_OK && (value.size != size || (size && memcmp(value.data, bytes, size) != 0)))
        FAIL("%s differs from the value just set", key);
    shale_value_free(&value);
}

static inline void write_something(shale_cache *cache, unsigned what) {
    static uint8_t bytes[most_value];
    char key[16];
    shale_bytes tag = {"news", 4};
    for (unsigned n = 0; n < 12; n++) {
        unsigned number = (what + n * 5) % key_count, variant = (what >> n) % variant_count;
        make_key(key, number);
        if (number == counter_key)
            continue;
        shale_set_options options = {
            .struct_size = sizeof options, .tags = &tag, .tag_count = n % 2, .meta = "x", .meta_size = n % 3 == 0};
        size_t size = make_value(bytes, number, variant);
        if (shale_set(cache, key, 6, bytes, size, &options) == SHALE_OK)
            expect_own(cache, key, bytes, size);
    }
    int64_t sum;
    shale_increment(cache, "key-17", 6, 1, 1, &sum);
    shale_touch(cache, "key-01", 6, 5000);
    shale_touch(cache, "key-05", 6, SHALE_NEVER);
    shale_touch(cache, "key-20", 6, 5000);
    shale_expire(cache, "key-07", 6);
    shale_remove(cache, "key-02", 6, 0);
    shale_remove(cache, "key-13", 6, 0);
    shale_remove(cache, "absent", 6, 0);
    if (what & 1)
        shale_invalidate_with(cache, "news", 4, (uint32_t)what >> 3 & SHALE_INVALIDATE_EXPIRE);
    if (what & 2)
        shale_evict(cache, 3, NULL);
    if (what & 4)
        shale_purge(cache, NULL);
    if (what & 8)
        shale_sync(cache);
    if (what & 16)
        for (unsigned n = 0; n < 60; n++) { /* more than the tail's segment holds: the cleaner reaches it */
            char other[16];
            sprintf(other, "more-%02u", n);
            size_t size = make_value(bytes, 7 + n % 3 * 8, n % 2 ? 0 : 2);
            if (shale_set(cache, other, 7, bytes, size, NULL) == SHALE_OK)
                expect_own(cache, other, bytes, size);
        }
    if (what & 32)
        shale_clear(cache);
}

static inline void verify(shale_cache *cache) {
    shale_report report = {.struct_size = sizeof report};
    shale_stats stats = {.struct_size = sizeof stats};
    if (shale_verify(cache, &report) == SHALE_OK)
        ASSERT(report.corrupt_records <= report.records);
    ASSERT(shale_get_stats(cache, &stats) == SHALE_OK);
}

/* Opens, reads, writes, reads, closes. `how`: the options of that. */
static inline void exercise(const shale_options *options, uint32_t how, bool strict) {
    shale_cache *cache = NULL;
    shale_status status = shale_open(scratch_directory(), options, &cache);
    ASSERT((status == SHALE_OK) == (cache != NULL));
    if (status != SHALE_OK)
        return;
    if (how & 1)
        verify(cache);
    read_everything(cache, strict);
    if (!(options->flags & SHALE_OPEN_READ_ONLY)) {
        write_something(cache, how >> 8);
        read_everything(cache, strict);
    }
    if (how & 2)
        verify(cache);
    shale_close(cache);
}

/* Exercises the cache whose files have been prepared, as an input's first command says: with which options, and
 * whether once more, since the first handle must not leave it worse. */
static inline void exercise_file(const command *first, bool strict) {
    bool reads_only = first->a & 1;
    uint32_t how = first->d;
    shale_options options = template_options(first->code % template_count);
    options.capacity = 0, options.shards = 0;
    options.flags = (reads_only ? SHALE_OPEN_READ_ONLY : 0) | (first->a & 2 ? SHALE_OPEN_NO_SYNC : 0);
    if (first->a & 4 && !reads_only)
        options.capacity = UINT64_C(1) << 20 << (first->a >> 3 & 3);
    if (first->a & 32 && !reads_only)
        options.max_entries = 1 + first->b % 64;
    exercise(&options, how, strict);
    if (!(first->c & 1))
        return;
    if (how & 4)
        scratch_unlink("shale.index");
    clock_value += 1000;
    options.capacity = 0, options.max_entries = 0, options.flags = 0;
    exercise(&options, how >> 3, strict);
}

#endif
