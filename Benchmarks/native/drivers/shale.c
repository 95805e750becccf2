/* Shale through its C interface, in its modes on disk and in memory. */
#include "driver.h"

#include <shale.h>
#include <string.h>
#include <unistd.h>

enum { batch = 64 };

typedef struct {
    shale_cache *cache;
    shale_value value, values[batch]; /* their buffers are the caller's */
    uint64_t lease;
} session;

static void require(shale_status status, const char *what) {
    if (status != SHALE_OK)
        FAIL("%s: %s (%s)", what, shale_status_text(status), status < 0 ? shale_last_error() : "");
}

static void *open_with(const settings *settings, const char *directory, int32_t compression, int32_t eviction) {
    shale_options options = {.struct_size = sizeof options,
                             .capacity = settings->capacity,
                             .compression = compression,
                             .eviction = eviction};
    if (!options.capacity) /* room for everything twice: enough that nothing is evicted, also in small caches */
        options.capacity = 2 * (settings->raw_bytes + settings->entries * 96) + (64 << 20);
    shale_cache *cache = NULL;
    require(shale_open(directory, &options, &cache), "shale_open");
    return cache;
}

static void *open_shale(const settings *settings, const char *directory, int32_t compression) {
    return open_with(settings, directory, compression, SHALE_EVICTION_LRU);
}

static void *open_dictionary(const settings *settings) {
    return open_shale(settings, settings->directory, SHALE_COMPRESSION_DICTIONARY);
}

static void *open_dense(const settings *settings) {
    return open_shale(settings, settings->directory, SHALE_COMPRESSION_DENSE);
}

static void *open_lz4(const settings *settings) {
    return open_shale(settings, settings->directory, SHALE_COMPRESSION_LZ4);
}

static void *open_none(const settings *settings) {
    return open_shale(settings, settings->directory, SHALE_COMPRESSION_NONE);
}

static void *open_memory_dictionary(const settings *settings) {
    return open_shale(settings, NULL, SHALE_COMPRESSION_DICTIONARY);
}

static void *open_memory_dense(const settings *settings) {
    return open_shale(settings, NULL, SHALE_COMPRESSION_DENSE);
}

static void *open_memory_lz4(const settings *settings) {
    return open_shale(settings, NULL, SHALE_COMPRESSION_LZ4);
}

static void *open_memory(const settings *settings) {
    return open_shale(settings, NULL, SHALE_COMPRESSION_NONE);
}

/* Another policy only makes a difference in a full cache. */
static void *open_clock(const settings *settings) {
    return open_with(settings, settings->directory, SHALE_COMPRESSION_NONE, SHALE_EVICTION_CLOCK);
}

static void *open_memory_clock(const settings *settings) {
    return open_with(settings, NULL, SHALE_COMPRESSION_NONE, SHALE_EVICTION_CLOCK);
}

static void close_shale(void *store) {
    require(shale_close(store), "shale_close");
}

static void *attach(void *store) {
    session *s = calloc(1, sizeof *s);
    s->cache = store;
    s->value = (shale_value)SHALE_VALUE_INIT;
    for (int i = 0; i < batch; i++)
        s->values[i] = (shale_value)SHALE_VALUE_INIT;
    return s;
}

static void detach(void *s) {
    free(s);
}

static void set(void *handle, bytes key, bytes value) {
    session *s = handle;
    require(shale_set(s->cache, key.data, key.size, value.data, value.size, NULL), "shale_set");
}

static bool get(void *handle, bytes key, buffer *value) {
    session *s = handle;
    s->value.data = value->data;
    s->value.capacity = value->capacity;
    if (shale_get(s->cache, key.data, key.size, 0, &s->value) != SHALE_OK)
        return false;
    value->data = s->value.data; /* the same, as the buffer is large enough */
    value->size = s->value.size;
    return true;
}

static bool get_or_lease(void *handle, bytes key, buffer *value) {
    session *s = handle;
    s->value.data = value->data;
    s->value.capacity = value->capacity;
    shale_lease_options options = {.struct_size = sizeof options, .wait_ms = 30000};
    if (shale_lease(s->cache, key.data, key.size, &options, &s->value, &s->lease) != SHALE_OK)
        return false;
    value->data = s->value.data;
    value->size = s->value.size;
    return true;
}

static void fulfil(void *handle, bytes key, bytes value) {
    session *s = handle;
    shale_set_options fenced = {.struct_size = sizeof fenced, .flags = SHALE_SET_IF_UNCHANGED, .version = s->lease};
    shale_status status = shale_set(s->cache, key.data, key.size, value.data, value.size, s->lease ? &fenced : NULL);
    require(status == SHALE_CONFLICT ? SHALE_OK : status, "shale_set");
    if (s->lease)
        shale_release(s->cache, key.data, key.size, s->lease);
}

_Static_assert(sizeof(bytes) == sizeof(shale_bytes) && offsetof(bytes, size) == offsetof(shale_bytes, size),
               "keys and values are passed on as they are");

static void get_many(void *handle, size_t count, const bytes *keys, buffer *values, bool *found) {
    session *s = handle;
    shale_status statuses[batch];
    for (size_t start = 0; start < count; start += batch) {
        size_t some = count - start < batch ? count - start : batch;
        for (size_t i = 0; i < some; i++) {
            s->values[i].data = values[start + i].data;
            s->values[i].capacity = values[start + i].capacity;
        }
        require(
            shale_get_many(s->cache, some, (const shale_bytes *)(const void *)(keys + start), 0, s->values, statuses),
            "shale_get_many");
        for (size_t i = 0; i < some; i++) {
            found[start + i] = statuses[i] == SHALE_OK;
            values[start + i].data = s->values[i].data;
            values[start + i].size = s->values[i].size;
        }
    }
}

static void set_many(void *handle, size_t count, const bytes *keys, const bytes *values) {
    session *s = handle;
    require(shale_set_many(s->cache, count, (const shale_bytes *)(const void *)keys,
                           (const shale_bytes *)(const void *)values, NULL, NULL),
            "shale_set_many");
}

static bool remove_key(void *handle, bytes key) {
    session *s = handle;
    return shale_remove(s->cache, key.data, key.size, 0) == SHALE_OK;
}

static void weigh(void *store, footprint *footprint) {
    shale_stats stats = {.struct_size = sizeof stats};
    require(shale_get_stats(store, &stats), "shale_get_stats");
    footprint->index_bytes = stats.index_bytes;
    footprint->stored_bytes = stats.stored_bytes;
    footprint->value_bytes = stats.raw_bytes;
}

static void remove_index(const char *directory, char *file, size_t size) {
    snprintf(file, size, "%s/shale.index", directory);
    unlink(file);
    snprintf(file, size, "%s/shale.data", directory);
}

static void describe(char *text, size_t size) {
    snprintf(text, size, "%s, capacity twice the data", shale_version());
}

#define SHALE(title, opening, more, dropping)                                                                          \
    {.name = title,                                                                                                    \
     .traits = (more) | threads_read | threads_write | evicts | reference,                                             \
     .describe = describe,                                                                                             \
     .open = opening,                                                                                                  \
     .close = close_shale,                                                                                             \
     .attach = attach,                                                                                                 \
     .detach = detach,                                                                                                 \
     .set = set,                                                                                                       \
     .get = get,                                                                                                       \
     .remove = remove_key,                                                                                             \
     .get_many = get_many,                                                                                             \
     .set_many = set_many,                                                                                             \
     .get_or_lease = get_or_lease,                                                                                     \
     .fulfil = fulfil,                                                                                                 \
     .weigh = weigh,                                                                                                   \
     .remove_index = dropping}

const driver shale_dictionary = SHALE("shale-dictionary", open_dictionary, processes_open, remove_index);
const driver shale_dense = SHALE("shale-dense", open_dense, processes_open, remove_index);
const driver shale_lz4 = SHALE("shale-lz4", open_lz4, processes_open, remove_index);
const driver shale_none = SHALE("shale-none", open_none, processes_open, remove_index);
const driver shale_memory = SHALE("shale-memory", open_memory, in_memory | processes_fork, NULL);
const driver shale_memory_lz4 = SHALE("shale-memory-lz4", open_memory_lz4, in_memory | processes_fork | only_full,
                                      NULL);
const driver shale_memory_dictionary = SHALE("shale-memory-dictionary", open_memory_dictionary,
                                             in_memory | processes_fork | only_full, NULL);
const driver shale_memory_dense = SHALE("shale-memory-dense", open_memory_dense, in_memory | processes_fork | only_full,
                                        NULL);
const driver shale_clock = SHALE("shale-clock", open_clock, processes_open | only_full, remove_index);
const driver shale_memory_clock = SHALE("shale-memory-clock", open_memory_clock, in_memory | processes_fork | only_full,
                                        NULL);
