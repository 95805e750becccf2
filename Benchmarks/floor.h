/* The floor: a plain C program that does the work of a hit, and nothing that
 * makes a cache: hash the key (XXH3), look it up in a flat table, compare the
 * key, check the value's checksum (XXH3), decompress it (LZ4) or copy it where
 * LZ4 did not help. No sharing, no recency, no ages, no room to make. */
#ifndef FLOOR_H
#define FLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct flat_store flat_store;

flat_store *flat_create(uint64_t entries, uint64_t bytes);
void flat_put(flat_store *store, const void *key, size_t key_size, const void *value, size_t value_size);
/* The value's size, or -1. */
long flat_get(const flat_store *store, const void *key, size_t key_size, void *buffer, size_t capacity);
void flat_destroy(flat_store *store);

#endif
