/* Replays request traces through a memory-only cache that may hold 1, 5 and
 * 10 % of the trace's keys: get, and set after a miss. A cache of one shard
 * must then be exactly an LRU cache: each request is compared with one that is
 * written here, and the first that differs ends the program with status 1.
 *
 *     hit_ratio [--json FILE] TRACE...
 *     hit_ratio [--json FILE] --synthetic
 *
 * Traces: NAME.u32 (a little-endian 32-bit key a request) and NAME.txt (lines
 * of "time key size"), as they are or compressed by xz. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <shale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, const char *why) {
    fprintf(stderr, "hit_ratio: %s: %s\n", what, why);
    exit(2);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        fail("memory", "not enough");
    return memory;
}

/* A trace: keys are numbered from 0 by first appearance. */

typedef struct {
    char name[64];
    uint32_t *keys;
    size_t requests, room;
    uint32_t distinct;
    /* The numbers that keys have: an open-addressing table. */
    struct known {
        uint64_t key;
        uint32_t number_plus_1; /* 0: free */
    } *known;
    size_t known_size; /* a power of two */
} trace;

static uint64_t mix(uint64_t z) { /* splitmix64 */
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static struct known *find(const trace *t, uint64_t key) {
    size_t at = mix(key) & (t->known_size - 1);
    while (t->known[at].number_plus_1 && t->known[at].key != key)
        at = (at + 1) & (t->known_size - 1);
    return &t->known[at];
}

static void grow_known(trace *t) {
    struct known *old = t->known;
    size_t old_size = t->known_size;
    t->known_size = old_size ? old_size * 2 : 1024;
    t->known = allocate(t->known_size, sizeof *t->known);
    for (size_t i = 0; i < old_size; i++)
        if (old[i].number_plus_1)
            *find(t, old[i].key) = old[i];
    free(old);
}

static void add_request(trace *t, uint64_t key) {
    if ((size_t)t->distinct * 2 >= t->known_size)
        grow_known(t);
    struct known *place = find(t, key);
    if (!place->number_plus_1)
        *place = (struct known){key, ++t->distinct};
    if (t->requests == t->room) {
        t->room = t->room ? t->room * 2 : 1024;
        t->keys = realloc(t->keys, t->room * sizeof *t->keys);
        if (!t->keys)
            fail("memory", "not enough");
    }
    t->keys[t->requests++] = place->number_plus_1 - 1;
}

static bool ends_with(const char *text, const char *end) {
    size_t size = strlen(text), end_size = strlen(end);
    return size >= end_size && strcmp(text + size - end_size, end) == 0;
}

static trace load(const char *path) {
    trace t = {0};
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    snprintf(t.name, sizeof t.name, "%.*s", (int)strcspn(name, "."), name);
    bool packed = ends_with(path, ".xz");
    bool binary = ends_with(path, ".u32") || ends_with(path, ".u32.xz");
    if (!binary && !ends_with(path, ".txt") && !ends_with(path, ".txt.xz"))
        fail(path, "the name ends in .u32, .txt, .u32.xz or .txt.xz");
    FILE *file = fopen(path, "rb");
    if (!file)
        fail(path, "cannot be opened");
    if (packed) {
        fclose(file);
        char command[4096];
        if (strchr(path, '\'') || snprintf(command, sizeof command, "xz -dc '%s'", path) >= (int)sizeof command)
            fail(path, "the name is too long, or has a quote in it");
        file = popen(command, "r");
        if (!file)
            fail(path, "xz cannot be run");
    }
    if (binary) {
        unsigned char word[4];
        while (fread(word, sizeof word, 1, file) == 1)
            add_request(&t, word[0] | (uint32_t)word[1] << 8 | (uint32_t)word[2] << 16 | (uint32_t)word[3] << 24);
    } else {
        char line[256];
        while (fgets(line, sizeof line, file)) {
            uint64_t key;
            if (sscanf(line, "%*s %" SCNu64, &key) != 1)
                fail(path, "a line is not \"time key size\"");
            add_request(&t, key);
        }
    }
    if ((packed ? pclose(file) : fclose(file)) != 0 || !t.requests)
        fail(path, "cannot be read");
    return t;
}

/* Popular keys, scans over keys that never come again, and a loop. */
static trace synthetic(void) {
    trace t = {.name = "synthetic"};
    uint64_t next_scanned = 1u << 20;
    for (uint64_t i = 0; i < 60000; i++) {
        uint64_t random = mix(i);
        if (i % 10000 < 1000)
            add_request(&t, next_scanned++);
        else if (i % 10000 < 2000)
            add_request(&t, (1u << 19) + i % 150);
        else
            add_request(&t, (random >> 32) % 4000 * (random % 4000) / 4000);
    }
    return t;
}

static void unload(trace *t) {
    free(t->keys);
    free(t->known);
}

/* The reference: a doubly linked list through an array by key number. */

typedef struct {
    struct link {
        uint32_t newer, older;
        bool held;
    } *links; /* the last one is both ends of the list */
    uint32_t end, count, limit;
} lru;

static void take_out(lru *l, uint32_t key) {
    struct link *link = &l->links[key];
    l->links[link->newer].older = link->older;
    l->links[link->older].newer = link->newer;
}

static void put_first(lru *l, uint32_t key) {
    uint32_t newest = l->links[l->end].older;
    l->links[key] = (struct link){.newer = l->end, .older = newest, .held = true};
    l->links[newest].newer = key;
    l->links[l->end].older = key;
}

/* Whether it was a hit; a miss is filled. */
static bool lru_request(lru *l, uint32_t key) {
    bool hit = l->links[key].held;
    if (hit) {
        take_out(l, key);
    } else if (l->count == l->limit) {
        uint32_t oldest = l->links[l->end].newer;
        take_out(l, oldest);
        l->links[oldest].held = false;
    } else {
        l->count++;
    }
    put_first(l, key);
    return hit;
}

/* Shale */

static void require(shale_status status, const char *call) {
    if (status < 0)
        fail(call, shale_last_error());
}

/* Whether it was a hit; a miss is filled. A value holds its key. */
static bool shale_request(shale_cache *cache, uint32_t key, shale_value *value) {
    shale_status status = shale_get(cache, &key, sizeof key, 0, value);
    require(status, "shale_get");
    if (status == SHALE_MISS) {
        require(shale_set(cache, &key, sizeof key, &key, sizeof key, NULL), "shale_set");
        return false;
    }
    if (value->size != sizeof key || memcmp(value->data, &key, sizeof key) != 0)
        fail("shale_get", "another key's value");
    return true;
}

typedef struct {
    char name[64];
    size_t requests;
    uint32_t distinct, percent, limit, shards;
    uint64_t hits, lru_hits;
} outcome;

static shale_stats stats_of(shale_cache *cache) {
    shale_stats stats = {.struct_size = sizeof stats};
    require(shale_get_stats(cache, &stats), "shale_get_stats");
    return stats;
}

/* False, and says where, if one shard did something else than LRU. */
static bool replay(const trace *t, uint32_t percent, outcome *o) {
    uint32_t limit = (uint32_t)((uint64_t)t->distinct * percent / 100);
    *o = (outcome){.requests = t->requests, .distinct = t->distinct, .percent = percent, .limit = limit ? limit : 1};
    memcpy(o->name, t->name, sizeof o->name);
    shale_options options = {
        .struct_size = sizeof options,
        .max_entries = o->limit,
        .capacity = (64u << 20) + (uint64_t)o->limit * 256, /* never what evicts */
        .compression = SHALE_COMPRESSION_NONE,
    };
    shale_cache *cache;
    require(shale_open(NULL, &options, &cache), "shale_open");
    o->shards = stats_of(cache).shards;
    lru reference = {allocate(t->distinct + 1, sizeof(struct link)), t->distinct, 0, o->limit};
    reference.links[reference.end].newer = reference.links[reference.end].older = reference.end;

    bool exact = true;
    shale_value value = SHALE_VALUE_INIT;
    for (size_t i = 0; i < t->requests && exact; i++) {
        bool hit = shale_request(cache, t->keys[i], &value), expected = lru_request(&reference, t->keys[i]);
        o->hits += hit;
        o->lru_hits += expected;
        exact = o->shards > 1 || hit == expected;
        if (!exact)
            fprintf(stderr,
                    "hit_ratio: %s, %" PRIu32 " entries: request %zu (key %" PRIu32 ") is a %s, with LRU a %s\n",
                    t->name, o->limit, i, t->keys[i], hit ? "hit" : "miss", expected ? "hit" : "miss");
    }
    shale_stats stats = stats_of(cache);
    if (exact && (stats.entries > o->limit || stats.hits != o->hits || stats.misses != t->requests - o->hits)) {
        fprintf(stderr, "hit_ratio: %s, %" PRIu32 " entries: the statistics do not fit\n", t->name, o->limit);
        exact = false;
    }
    shale_value_free(&value);
    free(reference.links);
    require(shale_close(cache), "shale_close");
    return exact;
}

static double ratio(uint64_t hits, const outcome *o) {
    return (double)hits / (double)o->requests;
}

static void print(const outcome *o) {
    printf("%-20s %10zu %9" PRIu32 " %4" PRIu32 " %% %9" PRIu32 " %7" PRIu32 " %9.4f %9.4f\n", o->name, o->requests,
           o->distinct, o->percent, o->limit, o->shards, ratio(o->hits, o), ratio(o->lru_hits, o));
    fflush(stdout);
}

static void write_json(const char *path, const outcome *outcomes, size_t count) {
    FILE *file = fopen(path, "w");
    if (!file)
        fail(path, "cannot be written");
    fprintf(file, "{\n  \"schema\": 1,\n  \"results\": [");
    for (size_t i = 0; i < count; i++) {
        const outcome *o = &outcomes[i];
        fprintf(file,
                "%s\n    {\"data\": \"%s\", \"requests\": %zu, \"keys\": %" PRIu32 ", \"percent\": %" PRIu32
                ", \"max_entries\": %" PRIu32 ", \"shards\": %" PRIu32
                ", \"metric\": \"hit_ratio\", \"shale\": %.6f, \"lru\": %.6f}",
                i ? "," : "", o->name, o->requests, o->distinct, o->percent, o->limit, o->shards, ratio(o->hits, o),
                ratio(o->lru_hits, o));
    }
    fprintf(file, "\n  ]\n}\n");
    if (fclose(file) != 0)
        fail(path, "cannot be written");
}

int main(int count, char **arguments) {
    static const uint32_t percents[] = {1, 5, 10};
    const char *json = NULL;
    outcome *outcomes = allocate((size_t)count * 3, sizeof *outcomes);
    size_t done = 0;
    printf("%-20s %10s %9s %6s %9s %7s %9s %9s\n", "trace", "requests", "keys", "limit", "entries", "shards", "shale",
           "LRU");
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--json") == 0 && i + 1 < count) {
            json = arguments[++i];
            continue;
        }
        trace t = strcmp(arguments[i], "--synthetic") == 0 ? synthetic() : load(arguments[i]);
        for (size_t p = 0; p < sizeof percents / sizeof *percents; p++, done++) {
            if (!replay(&t, percents[p], &outcomes[done]))
                return 1;
            print(&outcomes[done]);
        }
        unload(&t);
    }
    if (!done)
        fail("usage", "hit_ratio [--json FILE] TRACE... | --synthetic");
    if (json)
        write_json(json, outcomes, done);
    free(outcomes);
    return 0;
}
