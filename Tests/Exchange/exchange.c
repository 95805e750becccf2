/* Exchanges caches between programs for different processors or libcs: one writes, another reads. The data file has
 * one form, and the index is rebuilt.
 *
 *    exchange write|read|look DIRECTORY NAME    NAME: whose entries; look: by a read-only handle
 *    exchange hold DIRECTORY COMMAND            runs the command while it has the cache open; returns its status */
#include <shale.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, shale_last_error()), exit(1)))

enum { COUNT = 3000, LARGEST = 300000 };
static char value[LARGEST];

/* Sizes of all kinds: empty, small enough for a dictionary, alone in LZ4, in parts. */
static size_t make(const char *name, int i) {
    size_t size = i % 1000 == 999 ? LARGEST : i % 100 == 99 ? 30000 : i % 10 == 9 ? 0 : (size_t)(i % 700);
    for (size_t at = 0; at < size; at++)
        value[at] = name[at % strlen(name)] ^ (at / 16 % 4 == 0 ? (char)(i * 7 + at) : 'x');
    return size;
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    shale_options options = {.struct_size = sizeof options, .capacity = 0};
    shale_cache *cache;
    const char *name = arguments[3];
    if (!strcmp(arguments[1], "write"))
        options.capacity = 64 << 20;
    else if (!strcmp(arguments[1], "look"))
        options.flags = SHALE_OPEN_READ_ONLY;
    CHECK(shale_open(arguments[2], &options, &cache) == SHALE_OK);
    if (!strcmp(arguments[1], "hold")) {
        CHECK(system(name) == 0);
        CHECK(shale_close(cache) == SHALE_OK);
        return 0;
    }

    const shale_bytes tags[] = {{"kept", 4}, {"invalidated", 11}};
    char key[64];
    shale_value found = SHALE_VALUE_INIT;
    for (int i = 0; i < COUNT; i++) {
        size_t key_size = (size_t)snprintf(key, sizeof key, "%s %d", name, i), size = make(name, i);
        shale_set_options with = {.struct_size = sizeof with, .meta = key, .meta_size = key_size, .tags = tags};
        with.tag_count = i % 3 == 0 ? 2 : 1;
        with.max_age_ms = i % 2 ? 3600 * 1000 : SHALE_NEVER;
        if (options.capacity) {
            CHECK(shale_set(cache, key, key_size, value, size, &with) == SHALE_OK);
            continue;
        }
        shale_status status = shale_get(cache, key, key_size, 0, &found);
        CHECK(status == (i % 3 == 0 ? SHALE_MISS : SHALE_OK));
        if (status == SHALE_MISS)
            continue;
        CHECK(found.size == size && memcmp(found.data, value, size) == 0);
        CHECK(found.meta_size == key_size && memcmp(found.meta, key, key_size) == 0);
        CHECK(i % 2 ? found.expires_ms == found.created_ms + 3600 * 1000 : found.expires_ms == SHALE_NEVER);
    }
    if (options.capacity) {
        CHECK(shale_invalidate(cache, "invalidated", 11) == SHALE_OK);
        shale_stats stats = {.struct_size = sizeof stats};
        CHECK(shale_get_stats(cache, &stats) == SHALE_OK && stats.dictionaries > 0);
    }
    shale_value_free(&found);
    CHECK(shale_close(cache) == SHALE_OK);
}
