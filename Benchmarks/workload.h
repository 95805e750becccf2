/* Keys and values made from a seed: the same seed and number always give the
 * same bytes. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

enum { short_value_size = 100, record_size_limit = 480, key_size = 16, long_key_size = 200 };

static inline uint64_t mix(uint64_t z) { /* splitmix64 */
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* `size` bytes, at least 16, that no other number has. */
void make_key(unsigned char *key, size_t size, uint64_t seed, uint64_t number);
/* A JSON-like value of exactly 100 bytes. */
void make_short_value(char *value, uint64_t seed, uint64_t number);
/* A JSON record of about 400 bytes; returns its size. */
size_t make_record(char *record, uint64_t seed, uint64_t number);

#endif
