/* Keys made from numbers: printable, as every store allows them, and without an order that a store could profit
 * from. */
#ifndef KEYS_H
#define KEYS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { short_key_size = 16, long_key_size = 200 };

static inline uint64_t mix(uint64_t z) { /* splitmix64, a bijection */
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Eight letters for 32 bits. */
static inline uint64_t letters(uint64_t bits) {
    bits = (bits | bits << 16) & 0x0000ffff0000ffffu;
    bits = (bits | bits << 8) & 0x00ff00ff00ff00ffu;
    bits = (bits | bits << 4) & 0x0f0f0f0f0f0f0f0fu;
    return bits + 0x6161616161616161u;
}

/* `size` bytes, at least 16: the bytes before the last 16 are the same for many numbers, as in URLs. */
static inline void make_key(char *key, size_t size, uint64_t number) {
    static const char path[] = "https://example.org/articles/by-section/culture/2026/";
    uint64_t name = mix(number), words[2] = {letters(name >> 32), letters(name & 0xffffffffu)};
    size_t front = size - sizeof words;
    for (size_t at = 0; at < front; at++)
        key[at] = path[at % (sizeof path - 1)];
    memcpy(key + front, words, sizeof words);
}

#endif
