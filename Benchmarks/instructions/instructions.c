/* The program that the script `count` runs under callgrind, which counts only inside the function `measured`: it
 * does one operation `operations` times. Everything else is preparation.
 *
 *    instructions hit|miss|set|full|fenced|remove none|lz4|dictionary */
#include <shale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { operations = 10000, key_size = 16, value_size = 1024 };

static char keys[2 * operations][key_size + 1]; /* the second half is never stored */
static char values[operations][value_size + 64];
static size_t value_sizes[operations];

static void require(shale_status status, shale_status expected) {
    if (status != expected) {
        fprintf(stderr, "%s: %s\n", shale_status_text(status), status < 0 ? shale_last_error() : "");
        exit(1);
    }
}

static void get_all(shale_cache *cache, int first, shale_status expected) {
    shale_value value = SHALE_VALUE_INIT;
    for (int i = first; i < first + operations; i++)
        require(shale_get(cache, keys[i], key_size, 0, &value), expected);
    shale_value_free(&value);
}

static void set_all(shale_cache *cache, int first) {
    for (int i = 0; i < operations; i++)
        require(shale_set(cache, keys[first + i], key_size, values[i], value_sizes[i], NULL), SHALE_OK);
}

static void hit(shale_cache *cache) {
    get_all(cache, 0, SHALE_OK);
}
static void miss(shale_cache *cache) {
    get_all(cache, operations, SHALE_MISS);
}
static void set(shale_cache *cache) {
    set_all(cache, 0);
}
static void set_new(shale_cache *cache) {
    set_all(cache, operations);
}
static void remove_all(shale_cache *cache) {
    for (int i = 0; i < operations; i++)
        require(shale_remove(cache, keys[i], key_size, 0), SHALE_OK);
}

static volatile int finished;

/* Not inlined, and with work at its end, or the call would become a tail call. */
__attribute__((noinline)) void measured(void (*work)(shale_cache *), shale_cache *cache);
void measured(void (*work)(shale_cache *), shale_cache *cache) {
    work(cache);
    finished++;
}

static shale_cache *open_cache(int32_t compression, uint64_t capacity) {
    shale_options options = {.struct_size = sizeof options, .capacity = capacity, .compression = compression};
    shale_cache *cache = NULL;
    require(shale_open(NULL, &options, &cache), SHALE_OK);
    return cache;
}

/* Records of about 1 KiB that have names of members in common. */
static void make_values(void) {
    uint32_t random = 1;
    for (int i = 0; i < operations; i++) {
        size_t size = 0;
        for (int line = 0; size < value_size - 64; line++) {
            random = random * 1664525 + 1013904223;
            size += (size_t)snprintf(values[i] + size, 64,
                                     "{\"line\":%d,\"sku\":\"%08x\",\"quantity\":%u,\"price\":%u},", line,
                                     (unsigned)random, (unsigned)(random >> 8) % 10, (unsigned)(random >> 12) % 10000);
        }
        value_sizes[i] = size;
    }
}

int main(int count, char **arguments) {
    /* evicts: a half fits. notes: changes are recorded for fenced sets. */
    static const struct {
        const char *name;
        void (*run)(shale_cache *);
        bool evicts, notes;
    } works[] = {{"hit", hit, false, false},     {"miss", miss, false, false},    {"set", set, false, false},
                 {"full", set_new, true, false}, {"fenced", set_new, true, true}, {"remove", remove_all, false, true}};
    enum { kinds = sizeof works / sizeof *works };
    static const char *const modes[] = {[SHALE_COMPRESSION_DICTIONARY] = "dictionary",
                                        [SHALE_COMPRESSION_LZ4] = "lz4",
                                        [SHALE_COMPRESSION_NONE] = "none"};
    int work = 0;
    int32_t mode = 0;
    while (work < kinds && count == 3 && strcmp(arguments[1], works[work].name) != 0)
        work++;
    while (mode < 3 && count == 3 && strcmp(arguments[2], modes[mode]) != 0)
        mode++;
    if (count != 3 || work == kinds || mode == 3)
        return 2;
    for (int i = 0; i < 2 * operations; i++)
        snprintf(keys[i], sizeof keys[i], "article/%08x", (unsigned)i * 2654435761u);
    make_values();
    shale_cache *cache = open_cache(mode, works[work].evicts ? 4u << 20 : 128u << 20);
    if (works[work].notes) {
        shale_value value = SHALE_VALUE_INIT;
        require(shale_get(cache, "token", 5, SHALE_GET_TOKEN, &value), SHALE_MISS);
    }
    set_all(cache, 0);
    set_all(cache, 0); /* the second time with the dictionary, if there is one */
    measured(works[work].run, cache);
    require(shale_close(cache), SHALE_OK);
    return 0;
}
