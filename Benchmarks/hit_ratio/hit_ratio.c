/* Replays request traces through a memory-only cache that may hold 1, 5 and 10 % of the trace's keys: get, and set
 * after a miss. A cache of one shard must then be exactly an LRU cache: each request is compared with a reference
 * implementation below, and the first difference ends the program with status 1.
 *
 *    hit_ratio [--json FILE] TRACE...
 *    hit_ratio [--json FILE] --synthetic
 *
 * With --bytes the values have sizes, and the capacity is in bytes: for an ideal LRU list, in which every byte can
 * be used at once, and for Shale with either policy of eviction. Values larger than a sixteenth of the capacity are
 * not stored.
 *
 *    hit_ratio [--json FILE] --bytes [--sizes own|equal|lognormal] [--room LIST] TRACE...
 *
 *    --sizes  own: the trace's, or 1 KiB; equal: 1 KiB; lognormal (the default):
 *             by the key, median 1 KiB, sigma 1.4, 100 bytes to 64 KiB
 *    --room   capacities, separated by commas: percent of the bytes of all keys
 *             (5%), or bytes (4M, 64M, 1G); the default is 1%,5%,10%
 *
 * Traces: NAME.u32 (a little-endian 32-bit key a request), NAME.ks (pairs of such a key and a size, 0 if unknown)
 * and NAME.txt (lines of "time key size"), plain or compressed by xz. Benchmarks/hit_ratio/synthetic writes five. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <math.h>
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
    uint32_t *sizes; /* of the keys' values, as first asked for; 0: unknown */
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

static void add_request(trace *t, uint64_t key, uint32_t size) {
    if ((size_t)t->distinct * 2 >= t->known_size) {
        grow_known(t);
        t->sizes = realloc(t->sizes, t->known_size / 2 * sizeof *t->sizes);
        if (!t->sizes)
            fail("memory", "not enough");
    }
    struct known *place = find(t, key);
    if (!place->number_plus_1) {
        t->sizes[t->distinct] = size;
        *place = (struct known){key, ++t->distinct};
    }
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

static uint32_t little_endian(const unsigned char *word) {
    return word[0] | (uint32_t)word[1] << 8 | (uint32_t)word[2] << 16 | (uint32_t)word[3] << 24;
}

static trace load(const char *path) {
    trace t = {0};
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    snprintf(t.name, sizeof t.name, "%.*s", (int)strcspn(name, "."), name);
    bool packed = ends_with(path, ".xz");
    bool keys = ends_with(path, ".u32") || ends_with(path, ".u32.xz");
    bool pairs = ends_with(path, ".ks") || ends_with(path, ".ks.xz");
    if (!keys && !pairs && !ends_with(path, ".txt") && !ends_with(path, ".txt.xz"))
        fail(path, "the name ends in .u32, .ks or .txt, or in one of them and .xz");
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
    if (keys || pairs) {
        unsigned char word[8];
        while (fread(word, pairs ? 8 : 4, 1, file) == 1)
            add_request(&t, little_endian(word), pairs ? little_endian(word + 4) : 0);
    } else {
        char line[256];
        while (fgets(line, sizeof line, file)) {
            uint64_t key;
            uint32_t size;
            if (sscanf(line, "%*s %" SCNu64 " %" SCNu32, &key, &size) != 2)
                fail(path, "a line is not \"time key size\"");
            add_request(&t, key, size ? size : 1);
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
            add_request(&t, next_scanned++, 0);
        else if (i % 10000 < 2000)
            add_request(&t, (1u << 19) + i % 150, 0);
        else
            add_request(&t, (random >> 32) % 4000 * (random % 4000) / 4000, 0);
    }
    return t;
}

static void unload(trace *t) {
    free(t->keys);
    free(t->sizes);
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

/* Returns whether it was a hit; fills a miss. */
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

/* Returns whether it was a hit; fills a miss. A value holds its key. */
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

/* False, with a message, if one shard deviates from LRU. */
static bool replay(const trace *t, uint32_t percent, outcome *o) {
    uint32_t limit = (uint32_t)((uint64_t)t->distinct * percent / 100);
    *o = (outcome){.requests = t->requests, .distinct = t->distinct, .percent = percent, .limit = limit ? limit : 1};
    memcpy(o->name, t->name, sizeof o->name);
    shale_options options = {
        .struct_size = sizeof options,
        .max_entries = o->limit,
        .capacity = (64u << 20) + (uint64_t)o->limit * 256, /* never evicts */
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

/* By bytes */

enum { record_overhead = 64, key_size = 16 }; /* a record's header of 48 bytes, and the key */

typedef enum { own_sizes, equal_sizes, lognormal_sizes } sizes;

/* How many bytes may be stored: a number, or, if that is 0, a percentage of the bytes of all keys. */
typedef struct {
    uint64_t bytes;
    double percent;
} room;

/* By the key: median 1 KiB, sigma 1.4, from 100 bytes to 64 KiB. */
static uint32_t lognormal(uint32_t key) {
    const double pi = 3.14159265358979323846;
    double a = (double)((mix(key) >> 11) + 1) / 9007199254740993.0,
           b = (double)(mix(key ^ 0xABCDEF0123u) >> 11) / 9007199254740992.0;
    double size = 1024 * exp(1.4 * sqrt(-2 * log(a)) * cos(2 * pi * b));
    return (uint32_t)(size < 100 ? 100 : size > 65536 ? 65536 : size);
}

/* Gives a trace the size of each value, at least that of the key in it. */
static void set_sizes(trace *t, sizes how) {
    for (uint32_t key = 0; key < t->distinct; key++) {
        uint32_t own = how == own_sizes ? t->sizes[key] : 0;
        uint32_t size = how == lognormal_sizes ? lognormal(key) : own ? own : 1024;
        t->sizes[key] = size < sizeof key ? (uint32_t)sizeof key : size;
    }
}
static uint64_t record_of(const trace *t, uint32_t key) {
    return (t->sizes[key] + record_overhead + UINT64_C(7)) & ~UINT64_C(7);
}

typedef struct {
    char name[64];
    const char *policy;
    size_t requests;
    double percent; /* of the bytes of all keys */
    uint64_t capacity, hits;
    double copied, live, live_log; /* bytes for each byte that is set, once it is full; shares of the capacity, and
                                    * of
                                    *    the segments that the log has */
} byte_outcome;

static byte_outcome begin_bytes(const trace *t, room most, const char *policy) {
    byte_outcome o = {.requests = t->requests, .policy = policy};
    memcpy(o.name, t->name, sizeof o.name);
    uint64_t all = 0;
    for (uint32_t key = 0; key < t->distinct; key++)
        all += record_of(t, key);
    o.capacity = most.bytes ? most.bytes : (uint64_t)((double)all * most.percent / 100);
    if (o.capacity < 1 << 20) /* the least */
        o.capacity = 1 << 20;
    o.percent = 100 * (double)o.capacity / (double)all;
    return o;
}

static byte_outcome replay_ideal(const trace *t, room most) {
    byte_outcome o = begin_bytes(t, most, "ideal LRU");
    lru list = {allocate(t->distinct + 1, sizeof(struct link)), t->distinct, 0, UINT32_MAX};
    list.links[list.end].newer = list.links[list.end].older = list.end;
    uint64_t bytes = 0;
    for (size_t i = 0; i < t->requests; i++) {
        uint32_t key = t->keys[i];
        uint64_t record = record_of(t, key);
        if (record > o.capacity / 16)
            continue;
        if (list.links[key].held) {
            take_out(&list, key);
            put_first(&list, key);
            o.hits++;
            continue;
        }
        while (bytes + record > o.capacity) {
            uint32_t oldest = list.links[list.end].newer;
            take_out(&list, oldest);
            list.links[oldest].held = false;
            bytes -= record_of(t, oldest);
        }
        bytes += record;
        put_first(&list, key);
    }
    o.live = (double)bytes / (double)o.capacity;
    free(list.links);
    return o;
}

static byte_outcome replay_bytes(const trace *t, room most, int32_t policy) {
    byte_outcome o = begin_bytes(t, most, policy == SHALE_EVICTION_LRU ? "LRU" : "clock");
    shale_options options = {.struct_size = sizeof options,
                             .capacity = o.capacity,
                             .eviction = policy,
                             .compression = SHALE_COMPRESSION_NONE};
    shale_cache *cache;
    require(shale_open(NULL, &options, &cache), "shale_open");
    shale_value value = SHALE_VALUE_INIT;
    unsigned char *bytes = allocate(o.capacity / 16, 1);
    uint64_t set = 0, set_before = 0, copied_before = 0, samples = 0;
    double live = 0, live_log = 0;
    bool is_full = false;
    for (size_t i = 0; i < t->requests; i++) {
        uint64_t key[2] = {t->keys[i], 0}, record = record_of(t, t->keys[i]);
        if (record > o.capacity / 16)
            continue;
        shale_status status = shale_get(cache, key, key_size, 0, &value);
        require(status, "shale_get");
        if (status == SHALE_OK) {
            o.hits++;
            if (value.size != t->sizes[t->keys[i]] || memcmp(value.data, key, sizeof key) != 0)
                fail("shale_get", "another key's value");
        } else {
            memcpy(bytes, key, sizeof key);
            require(shale_set(cache, key, key_size, bytes, t->sizes[t->keys[i]], NULL), "shale_set");
            set += record;
        }
        if (i % 64 == 0) {
            shale_stats stats = stats_of(cache);
            if (!is_full && stats.evictions > 0) {
                is_full = true;
                set_before = set;
                copied_before = stats.cleaned_bytes;
            }
            if (is_full) {
                live += (double)stats.live_bytes / (double)o.capacity;
                live_log += (double)stats.live_bytes / (double)stats.data_bytes;
                samples++;
            }
        }
    }
    if (set > set_before)
        o.copied = (double)(stats_of(cache).cleaned_bytes - copied_before) / (double)(set - set_before);
    o.live = samples ? live / (double)samples : 0;
    o.live_log = samples ? live_log / (double)samples : 0;
    shale_value_free(&value);
    free(bytes);
    require(shale_close(cache), "shale_close");
    return o;
}

static void print_bytes(const byte_outcome *o) {
    printf("%-12s %5.1f %% %9.1f MB  %-10s hits %6.2f %%  copied %5.2f  live %5.1f %%", o->name, o->percent,
           (double)o->capacity / 1e6, o->policy, 100 * (double)o->hits / (double)o->requests, o->copied, 100 * o->live);
    if (o->live_log > 0)
        printf(", of the log %5.1f %%", 100 * o->live_log);
    printf("\n");
    fflush(stdout);
}

static FILE *begin_json(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file)
        fail(path, "cannot be written");
    fprintf(file, "{\n  \"schema\": 1,\n  \"results\": [");
    return file;
}

static void end_json(FILE *file, const char *path) {
    fprintf(file, "\n  ]\n}\n");
    if (fclose(file) != 0)
        fail(path, "cannot be written");
}

static void write_bytes_json(const char *path, const byte_outcome *outcomes, size_t count) {
    FILE *file = begin_json(path);
    for (size_t i = 0; i < count; i++) {
        const byte_outcome *o = &outcomes[i];
        fprintf(file,
                "%s\n    {\"data\": \"%s\", \"percent\": %.2f, \"capacity\": %" PRIu64
                ", \"policy\": \"%s\", \"hit_ratio\": %.6f, \"copied\": %.4f, \"live\": %.4f, "
                "\"live_log\": %.4f}",
                i ? "," : "", o->name, o->percent, o->capacity, o->policy, (double)o->hits / (double)o->requests,
                o->copied, o->live, o->live_log);
    }
    end_json(file, path);
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
    FILE *file = begin_json(path);
    for (size_t i = 0; i < count; i++) {
        const outcome *o = &outcomes[i];
        fprintf(file,
                "%s\n    {\"data\": \"%s\", \"requests\": %zu, \"keys\": %" PRIu32 ", \"percent\": %" PRIu32
                ", \"max_entries\": %" PRIu32 ", \"shards\": %" PRIu32
                ", \"metric\": \"hit_ratio\", \"shale\": %.6f, \"lru\": %.6f}",
                i ? "," : "", o->name, o->requests, o->distinct, o->percent, o->limit, o->shards, ratio(o->hits, o),
                ratio(o->lru_hits, o));
    }
    end_json(file, path);
}

static const uint32_t percents[] = {1, 5, 10};
enum { percent_count = sizeof percents / sizeof *percents };

/* By entries: exact, or status 1. */
static int compare_entries(const char *json, char **paths, int count) {
    outcome *outcomes = allocate((size_t)count * percent_count, sizeof *outcomes);
    size_t done = 0;
    printf("%-20s %10s %9s %6s %9s %7s %9s %9s\n", "trace", "requests", "keys", "limit", "entries", "shards", "shale",
           "LRU");
    for (int i = 0; i < count; i++) {
        trace t = strcmp(paths[i], "--synthetic") == 0 ? synthetic() : load(paths[i]);
        for (size_t p = 0; p < percent_count; p++, done++) {
            if (!replay(&t, percents[p], &outcomes[done]))
                return 1;
            print(&outcomes[done]);
        }
        unload(&t);
    }
    if (json)
        write_json(json, outcomes, done);
    free(outcomes);
    return 0;
}

static room room_of(const char *text, char **end) {
    room r = {0};
    double number = strtod(text, end);
    if (**end == '%')
        r.percent = number;
    else if (**end && strchr("KMG", **end))
        r.bytes = (uint64_t)(number * (double)(UINT64_C(1) << (**end == 'K' ? 10 : **end == 'M' ? 20 : 30)));
    else
        return r;
    ++*end;
    return r;
}

static void compare_bytes(const char *json, char **paths, int count, sizes how, const char *rooms) {
    size_t room_count = 1, done = 0;
    for (const char *c = rooms; *c; c++)
        room_count += *c == ',';
    byte_outcome *outcomes = allocate((size_t)count * room_count * 3, sizeof *outcomes);
    for (int i = 0; i < count; i++) {
        trace t = load(paths[i]);
        set_sizes(&t, how);
        char *end = NULL;
        for (const char *at = rooms; at; at = *end == ',' ? end + 1 : NULL) {
            room most = room_of(at, &end);
            if ((most.bytes == 0 && !(most.percent > 0 && most.percent <= 100)) || (*end && *end != ','))
                fail(at, "not a capacity; say for instance 5%,64M");
            outcomes[done] = replay_ideal(&t, most);
            print_bytes(&outcomes[done++]);
            for (int32_t policy = SHALE_EVICTION_LRU; policy <= SHALE_EVICTION_CLOCK; policy++) {
                outcomes[done] = replay_bytes(&t, most, policy);
                print_bytes(&outcomes[done++]);
            }
        }
        unload(&t);
    }
    if (json)
        write_bytes_json(json, outcomes, done);
    free(outcomes);
}

static sizes sizes_of(const char *name) {
    static const char *const names[] = {"own", "equal", "lognormal"};
    for (int i = own_sizes; i <= lognormal_sizes; i++)
        if (strcmp(name, names[i]) == 0)
            return (sizes)i;
    fail(name, "sizes are own, equal or lognormal");
    return own_sizes;
}

int main(int count, char **arguments) {
    const char *json = NULL, *rooms = "1%,5%,10%";
    sizes how = lognormal_sizes;
    bool by_bytes = false;
    char **paths = allocate((size_t)count, sizeof *paths);
    int path_count = 0, status = 0;
    for (int i = 1; i < count; i++) {
        bool has_next = i + 1 < count;
        if (strcmp(arguments[i], "--json") == 0 && has_next)
            json = arguments[++i];
        else if (strcmp(arguments[i], "--sizes") == 0 && has_next)
            how = sizes_of(arguments[++i]);
        else if (strcmp(arguments[i], "--room") == 0 && has_next)
            rooms = arguments[++i];
        else if (strcmp(arguments[i], "--bytes") == 0)
            by_bytes = true;
        else
            paths[path_count++] = arguments[i];
    }
    if (path_count == 0)
        fail("usage", "hit_ratio [--json FILE] TRACE... | --synthetic | "
                      "--bytes [--sizes own|equal|lognormal] [--room 5%,64M] TRACE...");
    if (by_bytes)
        compare_bytes(json, paths, path_count, how, rooms);
    else
        status = compare_entries(json, paths, path_count);
    free(paths);
    return status;
}
