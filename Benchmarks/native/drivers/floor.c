/* The floor: the cost of a get and a set in a plain C program that is no cache. An open-addressing table in
 * anonymous memory points into a mapped file that only grows. XXH3 finds the key and checks the value, LZ4
 * compresses it as Shale does. There is no eviction, no age, no second process, no recovery, and nothing ever moves;
 * two threads may read. */
#define _GNU_SOURCE
#include "driver.h"

#define LZ4_STATIC_LINKING_ONLY 1
#include <lz4.h>
#define XXH_INLINE_ALL
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    chunk_bytes = 2 << 20, /* the file grows by this much at a time: a huge page, if the file system has them */
    least_compressed = 48, /* as in Shale: below it LZ4 finds nothing */
    most_with_dictionary = 16 << 10,
    dictionary_bytes = 56 << 10,
    batch = 64
};
static const uint64_t address_space = (uint64_t)1 << 38;

typedef enum { plain, compressed, with_dictionary } mode;

typedef struct {
    uint64_t checksum; /* of the stored bytes */
    uint32_t raw_size;
    uint32_t stored_size;
    uint16_t key_size;
    uint8_t codec; /* a mode */
    uint8_t reserved[5];
} record; /* the key and the stored bytes follow */

/* A slot is 24 bits of the hash above 40 bits of place, in units of 8 bytes.
 * Place 0 is an empty slot, place 1 a deleted one. */
typedef struct {
    uint64_t *slots;
    uint64_t mask;
    unsigned char *file;
    uint64_t used, grown;
    int descriptor;
    mode mode;
    LZ4_stream_t *stream, *prepared; /* prepared: the dictionary, loaded */
    char *dictionary;
    size_t dictionary_size;
} floor_store;

static const uint64_t place_mask = ((uint64_t)1 << 40) - 1;

static uint64_t hash_of(bytes key) {
    return XXH3_64bits(key.data, key.size);
}

/* Writing zeros gives larger pages, sooner, than faults do. */
static void grow(floor_store *store, uint64_t needed) {
    static const char zeros[chunk_bytes];
    while (store->used + needed > store->grown) {
        if (posix_fallocate(store->descriptor, (off_t)store->grown, chunk_bytes) != 0 ||
            pwrite(store->descriptor, zeros, chunk_bytes, (off_t)store->grown) != chunk_bytes)
            FAIL("floor: no space for the file");
#ifdef MADV_POPULATE_WRITE
        madvise(store->file + store->grown, chunk_bytes, MADV_POPULATE_WRITE);
#endif
        store->grown += chunk_bytes;
    }
}

static void *anonymous(uint64_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        FAIL("floor: no memory for the table");
    madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

static floor_store *open_floor(const settings *settings, mode mode) {
    floor_store *store = calloc(1, sizeof *store);
    char path[600];
    snprintf(path, sizeof path, "%s/floor.data", settings->directory);
    store->descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    unsigned char *space = mmap(NULL, address_space + chunk_bytes, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    store->file = (unsigned char *)(((uintptr_t)space + chunk_bytes - 1) & ~(uintptr_t)(chunk_bytes - 1));
    if (store->descriptor < 0 || space == MAP_FAILED ||
        mmap(store->file, address_space, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, store->descriptor, 0) ==
            MAP_FAILED)
        FAIL("floor: cannot map %s", path);
    uint64_t count = 1024;
    while (count * 5 < settings->entries * 8) /* at most five eighths full */
        count *= 2;
    store->mask = count - 1;
    store->slots = anonymous(count * sizeof *store->slots);
    store->used = 16; /* places 0 and 1 have a meaning */
    store->mode = mode;
    store->stream = LZ4_createStream();
    if (mode == with_dictionary)
        store->dictionary = malloc(dictionary_bytes);
    return store;
}

static void *open_plain(const settings *settings) {
    return open_floor(settings, plain);
}

static void *open_compressed(const settings *settings) {
    return open_floor(settings, compressed);
}

static void *open_with_dictionary(const settings *settings) {
    return open_floor(settings, with_dictionary);
}

static void close_floor(void *handle) {
    floor_store *store = handle;
    munmap(store->slots, (store->mask + 1) * sizeof *store->slots);
    munmap(store->file, address_space);
    close(store->descriptor);
    LZ4_freeStream(store->stream);
    if (store->prepared)
        LZ4_freeStream(store->prepared);
    free(store->dictionary);
    free(store);
}

/* The dictionary is the first values, unchanged: one dictionary, for good. */
static void learn(floor_store *store, bytes value) {
    size_t room = dictionary_bytes - store->dictionary_size, part = value.size < 2048 ? value.size : 2048;
    part = part < room ? part : room;
    memcpy(store->dictionary + store->dictionary_size, value.data, part);
    store->dictionary_size += part;
    if (store->dictionary_size < dictionary_bytes)
        return;
    store->prepared = LZ4_createStream();
    LZ4_loadDict(store->prepared, store->dictionary, dictionary_bytes);
}

/* Writes the stored form of a value; returns its length and mode. */
static uint32_t encode(floor_store *store, bytes value, char *out, uint8_t *codec) {
    int size = (int)value.size, limit = size - size / 8, stored = 0;
    *codec = plain;
    if (store->mode != plain && size >= least_compressed) {
        bool small = store->mode == with_dictionary && size <= most_with_dictionary;
        LZ4_resetStream_fast(store->stream);
        if (small && store->prepared)
            LZ4_attach_dictionary(store->stream, store->prepared);
        *codec = small && store->prepared ? with_dictionary : compressed;
        stored = LZ4_compress_fast_continue(store->stream, value.data, out, size, LZ4_compressBound(size), 1);
        if (small && !store->prepared)
            learn(store, value);
    }
    if (stored > 0 && stored <= limit)
        return (uint32_t)stored;
    *codec = plain;
    memcpy(out, value.data, value.size);
    return (uint32_t)value.size;
}

static const record *at_place(const floor_store *store, uint64_t slot) {
    return (const record *)(store->file + (slot & place_mask) * 8);
}

static bool has_key(const record *entry, bytes key) {
    return entry->key_size == key.size && memcmp(entry + 1, key.data, key.size) == 0;
}

/* The slot of a key, or NULL. `free_slot`: where it could go. */
static uint64_t *find(const floor_store *store, uint64_t hash, bytes key, uint64_t **free_slot) {
    uint64_t tag = hash & ~place_mask;
    for (uint64_t at = hash & store->mask;; at = (at + 1) & store->mask) {
        uint64_t *slot = store->slots + at, word = *slot;
        if (word == 0) {
            if (free_slot)
                *free_slot = slot;
            return NULL;
        }
        if ((word & ~place_mask) != tag || (word & place_mask) == 1)
            continue;
        const record *entry = at_place(store, word);
        __builtin_prefetch((const char *)entry + 64);
        __builtin_prefetch((const char *)entry + 128);
        if (has_key(entry, key))
            return slot;
    }
}

static void set(void *session, bytes key, bytes value) {
    floor_store *store = session;
    grow(store, sizeof(record) + key.size + (size_t)LZ4_compressBound((int)value.size) + 8);
    record *entry = (record *)(store->file + store->used);
    char *body = (char *)(entry + 1) + key.size;
    memcpy(entry + 1, key.data, key.size);
    record head = {.raw_size = (uint32_t)value.size, .key_size = (uint16_t)key.size};
    head.stored_size = encode(store, value, body, &head.codec);
    head.checksum = XXH3_64bits(body, head.stored_size);
    *entry = head;
    uint64_t hash = hash_of(key), *free_slot = NULL, *slot = find(store, hash, key, &free_slot);
    *(slot ? slot : free_slot) = (hash & ~place_mask) | store->used / 8;
    store->used = (store->used + sizeof(record) + key.size + head.stored_size + 7) & ~(uint64_t)7;
}

static bool get_hashed(floor_store *store, uint64_t hash, bytes key, buffer *value) {
    uint64_t *slot = find(store, hash, key, NULL);
    if (!slot)
        return false;
    const record *entry = at_place(store, *slot);
    const char *body = (const char *)(entry + 1) + key.size;
    value->size = entry->raw_size;
    if (entry->codec == plain) {
        memcpy(value->data, body, entry->raw_size);
        return XXH3_64bits(value->data, entry->raw_size) == entry->checksum;
    }
    if (XXH3_64bits(body, entry->stored_size) != entry->checksum)
        return false;
    int size = (int)entry->raw_size, stored = (int)entry->stored_size;
    if (entry->codec == compressed)
        return LZ4_decompress_safe(body, value->data, stored, size) == size;
    return LZ4_decompress_safe_usingDict(body, value->data, stored, size, store->dictionary, dictionary_bytes) == size;
}

static bool get(void *session, bytes key, buffer *value) {
    return get_hashed(session, hash_of(key), key, value);
}

/* The lines that the keys need are prefetched together: all slots, then all records. */
static void get_many(void *session, size_t count, const bytes *keys, buffer *values, bool *found) {
    floor_store *store = session;
    uint64_t hashes[batch];
    for (size_t start = 0; start < count; start += batch) {
        size_t end = count - start < batch ? count : start + batch;
        for (size_t i = start; i < end; i++) {
            hashes[i - start] = hash_of(keys[i]);
            __builtin_prefetch(store->slots + (hashes[i - start] & store->mask));
        }
        for (size_t i = start; i < end; i++) {
            uint64_t hash = hashes[i - start], at = hash & store->mask;
            while (store->slots[at] && (store->slots[at] ^ hash) & ~place_mask)
                at = (at + 1) & store->mask;
            const char *entry = (const char *)at_place(store, store->slots[at]);
            __builtin_prefetch(entry);
            __builtin_prefetch(entry + 64);
            __builtin_prefetch(entry + 128);
        }
        for (size_t i = start; i < end; i++)
            found[i] = get_hashed(store, hashes[i - start], keys[i], &values[i]);
    }
}

static bool remove_key(void *session, bytes key) {
    floor_store *store = session;
    uint64_t *slot = find(store, hash_of(key), key, NULL);
    if (!slot)
        return false;
    *slot = 1;
    return true;
}

static void *attach(void *store) {
    return store;
}

static void detach(void *session) {
    (void)session;
}

static void weigh(void *handle, footprint *footprint) {
    floor_store *store = handle;
    footprint->index_bytes = (store->mask + 1) * sizeof *store->slots;
}

static void describe(char *text, size_t size) {
    snprintf(text, size, "open addressing, mapped file, XXH3 %d.%d.%d, LZ4 %s", XXH_VERSION_MAJOR, XXH_VERSION_MINOR,
             XXH_VERSION_RELEASE, LZ4_versionString());
}

#define FLOOR(title, opening)                                                                                          \
    {.name = title,                                                                                                    \
     .traits = in_memory | threads_read | reference,                                                                   \
     .describe = describe,                                                                                             \
     .open = opening,                                                                                                  \
     .close = close_floor,                                                                                             \
     .attach = attach,                                                                                                 \
     .detach = detach,                                                                                                 \
     .set = set,                                                                                                       \
     .get = get,                                                                                                       \
     .remove = remove_key,                                                                                             \
     .get_many = get_many,                                                                                             \
     .weigh = weigh}

const driver floor_none = FLOOR("floor-none", open_plain);
const driver floor_lz4 = FLOOR("floor-lz4", open_compressed);
const driver floor_dictionary = FLOOR("floor-dictionary", open_with_dictionary);
