#include "floor.h"

#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct {
    uint64_t checksum;
    uint32_t raw_size, stored_size; /* equal: as it is */
    uint32_t key_size, reserved;
} record;

typedef struct {
    uint64_t tag, place; /* place 0: empty */
} slot;

struct flat_store {
    slot *slots;
    unsigned char *file;
    uint64_t mask, used, slot_bytes, file_bytes;
};

static void *map(uint64_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

flat_store *flat_create(uint64_t entries, uint64_t bytes) {
    flat_store *store = malloc(sizeof *store);
    uint64_t count = 1;
    while (count * 4 < entries * 5)
        count *= 2;
    store->mask = count - 1;
    store->slot_bytes = count * sizeof(slot);
    store->file_bytes = bytes;
    store->slots = map(store->slot_bytes);
    store->file = map(bytes);
    store->used = 8;
    return store;
}

void flat_put(flat_store *store, const void *key, size_t key_size, const void *value, size_t value_size) {
    uint64_t tag = XXH3_64bits(key, key_size), at = tag & store->mask;
    size_t bound = (size_t)LZ4_compressBound((int)value_size);
    if (store->used + sizeof(record) + key_size + bound + 8 > store->file_bytes)
        abort();
    record *entry = (record *)(store->file + store->used);
    unsigned char *bytes = (unsigned char *)(entry + 1);
    memcpy(bytes, key, key_size);
    int stored = LZ4_compress_default(value, (char *)bytes + key_size, (int)value_size, (int)bound);
    if (stored <= 0 || (size_t)stored > value_size - value_size / 8) {
        stored = (int)value_size;
        memcpy(bytes + key_size, value, value_size);
    }
    *entry = (record){XXH3_64bits(bytes + key_size, (size_t)stored), (uint32_t)value_size, (uint32_t)stored,
                      (uint32_t)key_size, 0};
    while (store->slots[at].place)
        at = (at + 1) & store->mask;
    store->slots[at] = (slot){tag, store->used};
    store->used = (store->used + sizeof(record) + key_size + (size_t)stored + 7) & ~(uint64_t)7;
}

long flat_get(const flat_store *store, const void *key, size_t key_size, void *buffer, size_t capacity) {
    uint64_t tag = XXH3_64bits(key, key_size);
    for (uint64_t at = tag & store->mask; store->slots[at].place; at = (at + 1) & store->mask) {
        if (store->slots[at].tag != tag)
            continue;
        const record *entry = (const record *)(store->file + store->slots[at].place);
        const char *bytes = (const char *)(entry + 1);
        if (entry->key_size != key_size || memcmp(bytes, key, key_size) != 0)
            continue;
        bytes += key_size;
        if (entry->raw_size > capacity || XXH3_64bits(bytes, entry->stored_size) != entry->checksum)
            return -1;
        if (entry->stored_size == entry->raw_size) {
            memcpy(buffer, bytes, entry->raw_size);
            return (long)entry->raw_size;
        }
        return LZ4_decompress_safe(bytes, buffer, (int)entry->stored_size, (int)capacity);
    }
    return -1;
}

void flat_destroy(flat_store *store) {
    munmap(store->slots, store->slot_bytes);
    munmap(store->file, store->file_bytes);
    free(store);
}
