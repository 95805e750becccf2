/* Values that identify themselves: key, version and length, then bytes that follow from these. A mixed-up, torn or
 * stale value does not pass pattern_check(). About half of the bytes compress. */
#ifndef PATTERN_H
#define PATTERN_H

#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t key;
    uint64_t version; /* the writer's own count, not the cache's */
    uint64_t size;
} pattern_head;

static inline uint64_t pattern_word(pattern_head head, uint64_t place) {
    uint64_t z = head.key * 0x9e3779b97f4a7c15u + head.version * 0xbf58476d1ce4e5b9u +
                 (place / 4 + 1) * 0x94d049bb133111ebu;
    z ^= z >> 29;
    return place % 4 < 2 ? head.version : z * 0xff51afd7ed558ccdu;
}

/* `size` is at least sizeof(pattern_head). */
static inline void pattern_fill(unsigned char *bytes, uint64_t key, uint64_t version, size_t size) {
    pattern_head head = {key, version, size};
    memcpy(bytes, &head, sizeof head);
    for (size_t at = sizeof head; at < size; at += 8) {
        uint64_t word = pattern_word(head, at / 8);
        memcpy(bytes + at, &word, size - at < 8 ? size - at : 8);
    }
}

/* NULL if the bytes are a whole value of that key, otherwise what is wrong with them. */
static inline const char *pattern_check(const void *data, size_t size, uint64_t key, uint64_t *version) {
    const unsigned char *bytes = data;
    pattern_head head;
    if (size < sizeof head)
        return "shorter than any value";
    memcpy(&head, bytes, sizeof head);
    *version = head.version;
    if (head.key != key)
        return "another key's value";
    if (head.size != size)
        return "another length";
    for (size_t at = sizeof head; at < size; at += 8) {
        uint64_t word = pattern_word(head, at / 8);
        if (memcmp(bytes + at, &word, size - at < 8 ? size - at : 8) != 0)
            return "torn: a mix of versions";
    }
    return NULL;
}

#endif
