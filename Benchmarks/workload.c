#include "workload.h"

#include <stdio.h>
#include <string.h>

static const char *const first_names[] = {"anna", "bela", "carlos", "dmitri", "eva",   "farid", "grace", "hiro",
                                          "ines", "jonas", "kofi",  "lena",   "marta", "nadia", "oskar", "priya"};
static const char *const cities[] = {"Lisbon", "Nairobi", "Osaka",  "Porto", "Quito",  "Riga",   "Seoul", "Tallinn",
                                     "Utrecht", "Vilnius", "Warsaw", "Xalapa", "Yerevan", "Zagreb", "Bergen", "Cork"};

#define PICK(list, r) (list)[(r) % (sizeof(list) / sizeof *(list))]

void make_key(unsigned char *key, size_t size, uint64_t seed, uint64_t number) {
    uint64_t words[2] = {mix(seed ^ mix(number)), number};
    memcpy(key, words, sizeof words);
    for (size_t at = sizeof words; at < size; at++)
        key[at] = (unsigned char)("/articles/by-section/"[at % 21] ^ (at % 16 == 0 ? (words[0] >> at % 61) & 15 : 0));
}

void make_short_value(char *value, uint64_t seed, uint64_t number) {
    uint64_t r = mix(seed * 3 + mix(number)), s = mix(r);
    char text[160];
    int size = snprintf(text, sizeof text, "{\"id\":%u,\"user\":\"%s\",\"city\":\"%s\",\"score\":%u,\"hash\":\"%016llx%016llx",
                        (unsigned)(number * 7 + 100000), PICK(first_names, r), PICK(cities, r >> 8),
                        (unsigned)(r >> 16) % 100000, (unsigned long long)s, (unsigned long long)mix(s));
    if (size < short_value_size)
        memset(text + size, '0', (size_t)(short_value_size - size));
    memcpy(text + short_value_size - 2, "\"}", 2);
    memcpy(value, text, short_value_size);
}

size_t make_record(char *record, uint64_t seed, uint64_t number) {
    uint64_t r = mix(seed * 5 + mix(number)), s = mix(r), t = mix(s);
    const char *first = PICK(first_names, r), *second = PICK(first_names, r >> 4);
    return (size_t)snprintf(
        record, record_size_limit,
        "{\"id\":%u,\"type\":\"article\",\"author\":{\"id\":%u,\"name\":\"%s %s\",\"email\":\"%s.%s%u@example.org\","
        "\"city\":\"%s\"},\"section\":\"culture\",\"title\":\"%s and %s in %s\",\"url\":\"https://example.org/articles/%u/%08x\","
        "\"published\":\"2024-%02u-%02uT%02u:%02u:%02uZ\",\"modified\":null,\"words\":%u,\"views\":%u,"
        "\"rating\":%u.%u,\"tags\":[\"%s\",\"news\",\"%s\"],\"premium\":%s,\"etag\":\"%016llx\"}",
        (unsigned)number, (unsigned)(r >> 40) % 50000, first, second, first, second, (unsigned)(s % 1000),
        PICK(cities, s >> 10), PICK(cities, s >> 14), PICK(first_names, s >> 18), PICK(cities, s >> 22),
        (unsigned)(s >> 26) % 1000000, (unsigned)t, (unsigned)(t % 12) + 1, (unsigned)(t >> 8) % 28 + 1,
        (unsigned)(t >> 16) % 24, (unsigned)(t >> 24) % 60, (unsigned)(t >> 32) % 60, (unsigned)(t >> 40) % 3000,
        (unsigned)(r >> 24) % 100000, (unsigned)(r >> 12) % 5, (unsigned)(r >> 16) % 10, PICK(cities, t >> 48),
        PICK(first_names, t >> 52), t >> 56 & 1 ? "true" : "false", (unsigned long long)mix(t));
}
