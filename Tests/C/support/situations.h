/* A cache in a known state, and an operation during which its process is struck: killed or stopped at the n-th
 * event. The including file defines what an event is and how to strike at it (`aim`, `lay_down`): see aimed.h and
 * every_instruction.c.
 *
 * The ledger, in shared memory, holds for each key the completed version and the intended one; they differ while an
 * operation runs. */
#ifndef SITUATIONS_H
#define SITUATIONS_H

#include "check.h"
#include "tolerances.h"
#include "files.h"
#include "layout.h"
#include "pattern.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum {
    counters = 4, /* the first keys are 8-byte integers */
    most_keys = 2600,
    groups = 8, /* key modulo this is its tag */
    segment_size = 128 << 10,
    small = 100,
    large = 90000 /* in six parts; of 4 MiB in 3 shards more than a sixteenth of a shard, so they are in all of them */
};

typedef struct {
    uint64_t completed[most_keys], intended[most_keys], keys, version;
} ledger;

static struct {
    ledger ledger;
    _Atomic uint64_t events, found;
} *shared;

/* Counts events from now on; `signal` strikes at the n-th. 0: never. */
static void aim(uint64_t n, int signal);
static void lay_down(void);

static uint64_t aimed_at;
static int aimed_signal;

/* The first event from some number on at which the first shard is in the wanted state. */
static struct {
    bool (*when)(const layout *l, const unsigned char *header);
    layout l;
    const unsigned char *header;
    uint64_t from;
} sought;

/* True if the event that begins is the one to strike at. */
static inline bool is_hit(void) {
    uint64_t n = atomic_fetch_add(&shared->events, 1) + 1;
    if (sought.when && n >= sought.from && !atomic_load(&shared->found) && sought.when(&sought.l, sought.header))
        atomic_store(&shared->found, n);
    return n == aimed_at;
}

/* Operations with an account */

static inline void put(shale_cache *cache, uint64_t key, size_t size, uint32_t flags) {
    static unsigned char bytes[large];
    uint64_t version = ++shared->ledger.version, tag = key % groups;
    shale_bytes tags = {&tag, sizeof tag};
    shale_set_options options = {.struct_size = sizeof options, .flags = flags, .tags = &tags, .tag_count = 1};
    pattern_fill(bytes, key, version, size);
    if (key >= shared->ledger.keys)
        shared->ledger.keys = key + 1;
    shared->ledger.intended[key] = version;
    REQUIRE_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, size, &options));
    shared->ledger.completed[key] = version;
}

static inline void put_many(shale_cache *cache, uint64_t from, uint64_t to, size_t size) {
    for (uint64_t key = from; key < to; key++)
        put(cache, key, size, 0);
}

static inline void take(shale_cache *cache, uint64_t key) {
    shared->ledger.intended[key] = 0;
    shale_status status = shale_remove(cache, &key, sizeof key, 0);
    CHECK(status == SHALE_OK || status == SHALE_MISS);
    shared->ledger.completed[key] = 0;
}

static inline void touch(shale_cache *cache, uint64_t key, int64_t age_ms) {
    if (age_ms == SHALE_NONE)
        shared->ledger.intended[key] = 0;
    CHECK_STATUS(SHALE_OK, shale_touch(cache, &key, sizeof key, age_ms));
    shared->ledger.completed[key] = shared->ledger.intended[key];
}

static inline void increment(shale_cache *cache, uint64_t key) {
    int64_t result = 0;
    if (key >= shared->ledger.keys)
        shared->ledger.keys = key + 1;
    shared->ledger.intended[key] = shared->ledger.completed[key] + 1;
    CHECK_STATUS(SHALE_OK, shale_increment(cache, &key, sizeof key, 1, 0, &result));
    CHECK_EQUAL(shared->ledger.intended[key], result);
    shared->ledger.completed[key] = shared->ledger.intended[key];
}

static inline void take_group(shale_cache *cache, uint64_t group) {
    for (uint64_t key = counters; key < shared->ledger.keys; key++)
        if (key % groups == group)
            shared->ledger.intended[key] = 0;
    REQUIRE_STATUS(SHALE_OK, shale_invalidate(cache, &group, sizeof group));
    memcpy(shared->ledger.completed, shared->ledger.intended, sizeof shared->ledger.intended);
}

static inline void take_all(shale_cache *cache) {
    memset(shared->ledger.intended, 0, sizeof shared->ledger.intended);
    REQUIRE_STATUS(SHALE_OK, shale_clear(cache));
    memset(shared->ledger.completed, 0, sizeof shared->ledger.completed);
}

/* Situations */

typedef struct {
    const char *name;
    uint64_t capacity; /* 0: 2 MiB */
    uint64_t max_entries;
    uint32_t shards; /* 0: 1 */
    int32_t policy;
    void (*prepare)(shale_cache *cache);
    void (*warm)(shale_cache *cache); /* in the process that is struck, before the operation */
    void (*act)(shale_cache *cache); /* NULL: opening alone */
    /* Keys may be missing, no more than evictions are counted; with LRU those that were used least recently first
     * (design.md, "Eviction"). The other situations do without. */
    bool evicts;
    /* More than one key may be affected: an operation that had begun may be completed by the recovery (recovery.md,
     * "A process is killed"). The other situations do without. */
    bool takes_many;
    /* A writer was killed in this operation before: the struck operation begins with its recovery, by the process
     * that opens the cache, or is attached. */
    void (*killed_in)(shale_cache *cache);
    bool (*killed_when)(const layout *l, const unsigned char *header); /* what that has to leave in the first shard */
    void (*spoil)(void); /* after it was prepared and closed, before it is used */
    bool closes; /* struck from the opening to the end of the close; the operation, if any, runs in between */
    bool beside; /* while another process is attached */
    const char *boot_id; /* opened under another boot: the index is rebuilt */
    uint64_t other_capacity; /* opened with another capacity */
} situation;

static char *aimed_directory;

/* The process's mappings of its files. */
static inline void each_mapping(void (*visit)(char *from, char *to, bool is_writable)) {
    char line[600];
    FILE *maps = fopen("/proc/self/maps", "r");
    REQUIRE(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        uint64_t from, to;
        char rights[8];
        if (strstr(line, aimed_directory) && sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &from, &to, rights) == 3)
            visit((char *)(uintptr_t)from, (char *)(uintptr_t)to, rights[1] == 'w');
    }
    fclose(maps);
}

static inline shale_status try_open(const situation *s, bool again, shale_cache **cache) {
    shale_options options = {.struct_size = sizeof options,
                             .capacity = s->capacity ? s->capacity : 2 << 20,
                             .max_entries = s->max_entries,
                             .segment_size = segment_size,
                             .shards = s->shards ? s->shards : 1,
                             .eviction = s->policy,
                             .flags = s->closes ? 0 : SHALE_OPEN_NO_SYNC};
    if (again && s->other_capacity)
        options.capacity = s->other_capacity;
    return shale_open(aimed_directory, &options, cache);
}

static inline void prepare_base(shale_cache *cache) {
    for (uint64_t key = 0; key < counters; key++)
        increment(cache, key);
    put_many(cache, counters, 60, small);
}
static void prepare_empty(shale_cache *cache UNUSED) {
}
static void set_new(shale_cache *cache) {
    put(cache, 70, small, 0);
}
static void set_again(shale_cache *cache) {
    put(cache, 10, 3000, 0);
}
static void set_pinned(shale_cache *cache) {
    put(cache, 10, small, SHALE_SET_PINNED);
    put(cache, 11, small, SHALE_SET_PINNED);
    put(cache, 10, small, 0);
    take(cache, 11);
}
static void remove_one(shale_cache *cache) {
    take(cache, 20);
    take(cache, 21);
}
static void touch_one(shale_cache *cache) {
    touch(cache, 30, 3600000);
    touch(cache, 30, 7200000);
    touch(cache, 31, SHALE_NONE);
}
static void increment_one(shale_cache *cache) {
    increment(cache, 0);
    increment(cache, 0);
}
static void invalidate_one(shale_cache *cache) {
    take_group(cache, 3);
    put(cache, 11, small, 0);
}

static void take_tags(shale_cache *cache, uint32_t from, uint32_t to) {
    for (uint32_t tag = from; tag < to; tag++)
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &tag, sizeof tag));
}

/* A generation of tags is full, and has that of a group; the last invalidation is the head's last record. */
static void prepare_tags(shale_cache *cache) {
    prepare_base(cache);
    take_group(cache, 5);
    take_tags(cache, 0, 95);
}
/* It becomes the older generation, and is swept and emptied. */
static void invalidate_sweep(shale_cache *cache) {
    take_tags(cache, 100, 140);
    take_group(cache, 3);
}
static void clear_all(shale_cache *cache) {
    take_all(cache);
    put(cache, 10, small, 0);
}

static void prepare_large(shale_cache *cache) {
    prepare_base(cache);
    put(cache, 40, large, 0);
    put(cache, 41, large, 0);
    put(cache, 42, large, 0);
    touch(cache, 42, 3600000);
}
static void large_new(shale_cache *cache) {
    put(cache, 70, large, 0);
}
static void large_again(shale_cache *cache) {
    put(cache, 40, large, 0);
    put(cache, 41, small, 0);
    take(cache, 42);
}

/* As many entries as the limit allows. */
static void prepare_full(shale_cache *cache) {
    put_many(cache, counters, 200 + counters, small);
}
static void evict_some(shale_cache *cache) {
    put_many(cache, 300, 304, small);
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 3, NULL));
}
static void set_expired(shale_cache *cache, uint64_t key) {
    static const shale_set_options at_once = {.struct_size = sizeof at_once, .max_age_ms = SHALE_NONE};
    CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, "gone", 4, &at_once));
    shared->ledger.intended[key] = shared->ledger.completed[key] = 0;
}
/* Expired values replaced values without an age: those must not come back. */
static void prepare_expired(shale_cache *cache) {
    prepare_base(cache);
    for (uint64_t key = 50; key < 60; key++)
        set_expired(cache, key);
}
static void purge(shale_cache *cache) {
    CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
}
/* So much has been written that every set cleans. */
static void prepare_cleaning(shale_cache *cache) {
    prepare_base(cache);
    touch(cache, 12, 3600000);
    put_many(cache, 60, 110, 4000);
    for (int round = 0; round < 8; round++) {
        put_many(cache, 60, 110, 4000);
        touch(cache, 70, 3600000);
    }
}
/* The same, with live entries in between, so that cleaning copies: plain ones, some touched, some pinned. Others
 * have expired, by themselves or by a touch, or lose their tag at the end. */
enum { lasting = 400, lasting_count = 1200, lasting_end = lasting + lasting_count, tagged_away = 7 };

static uint64_t copied_bytes(shale_cache *cache) {
    shale_stats stats = {.struct_size = sizeof stats};
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    return stats.cleaned_bytes;
}
static uint64_t key_that_cleans; /* whether its shard cleans */

/* Sets a key, and returns whether that began to clean a segment, in a cache where many have been cleaned. */
static bool begins_to_copy(shale_cache *cache, uint64_t key) {
    static uint64_t last;
    uint64_t before = copied_bytes(cache), after;
    key_that_cleans = key;
    put(cache, key, 4000, 0);
    after = copied_bytes(cache);
    bool begins = after > 1 << 20 && after > before && before == last;
    last = after;
    return begins;
}
static void prepare_copying(shale_cache *cache) {
    bool begins = false;
    prepare_base(cache);
    for (uint64_t n = 0; !begins; n++) {
        uint64_t key = lasting + n % lasting_count;
        REQUIRE(n < 100000);
        put(cache, key, small + n % 7 * 30, n % 10 == 0 ? SHALE_SET_PINNED : 0);
        if (n % 3 == 0)
            touch(cache, key, n % 20 == 3 ? SHALE_NONE : 3600000);
        if (n % 20 == 1)
            set_expired(cache, key);
        begins = begins_to_copy(cache, 60 + n % 50);
    }
    take_group(cache, tagged_away);
}
/* The same with values in parts, which take half of the log. */
static void prepare_parts(shale_cache *cache, uint64_t count) {
    bool begins = false;
    prepare_base(cache);
    for (uint64_t n = 0; !begins; n++) {
        REQUIRE(n < 100000);
        if (n % 20 == 0)
            put(cache, lasting + n / 20 % count, large, 0);
        if (n % 20 == 1)
            touch(cache, lasting + n / 20 % count, 3600000);
        begins = begins_to_copy(cache, 60 + n % 50);
    }
}
static void prepare_copying_parts(shale_cache *cache) {
    prepare_parts(cache, 18);
}
static void prepare_more_parts(shale_cache *cache) {
    prepare_parts(cache, 31);
}
static void copy_some(shale_cache *cache) {
    uint64_t before = copied_bytes(cache);
    for (int i = 0; i < 4 || (i < 200 && copied_bytes(cache) == before); i++)
        put(cache, key_that_cleans, 4000, 0);
    CHECK(copied_bytes(cache) > before);
}
/* All frames are in use, and half of their entries have been replaced. */
static void prepare_full_log(shale_cache *cache) {
    prepare_base(cache);
    for (int round = 0; round < 6; round++)
        put_many(cache, 60, 300, 5000);
}
/* The log is full of current entries: with the CLOCK policy half of those at its tail are evicted, and the rest,
 * which were read, are copied. The cleaner has just begun with the segment at the tail. */
static uint64_t evictions(shale_cache *cache) {
    shale_stats stats = {.struct_size = sizeof stats};
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    return stats.evictions;
}
static void use(shale_cache *cache, uint64_t key) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, shale_get(cache, &key, sizeof key, 0, &value));
    shale_value_free(&value);
}
enum { queued_size = 6000, queue_end = 800 };

static void prepare_queue(shale_cache *cache) {
    prepare_base(cache);
    uint64_t before = 0, after = 0;
    for (uint64_t key = 60; after < 30 || after == before || after > before + 20; key++) {
        REQUIRE(key < queue_end);
        put(cache, key, queued_size, SHALE_SET_UNCOMPRESSED);
        if (key % 2)
            use(cache, key);
        before = after;
        after = evictions(cache);
    }
}
static void queue_on(shale_cache *cache) {
    uint64_t evicted = evictions(cache), copied = copied_bytes(cache);
    bool has_both = false;
    for (uint64_t key = queue_end; key < queue_end + 3 || (key < queue_end + 30 && !has_both); key++) {
        put(cache, key, queued_size, SHALE_SET_UNCOMPRESSED);
        has_both = evictions(cache) > evicted && copied_bytes(cache) > copied;
    }
    CHECK(has_both);
}
/* The same with large values, of which the cleaner meets parts first. */
static void prepare_queue_of_parts(shale_cache *cache) {
    prepare_base(cache);
    for (uint64_t key = 60; evictions(cache) < 10; key++) {
        REQUIRE(key < queue_end);
        put(cache, key, large, 0);
        if (key % 4 == 0)
            use(cache, key);
    }
}
static void queue_parts(shale_cache *cache) {
    uint64_t before = evictions(cache);
    for (uint64_t key = queue_end; key < queue_end + 20 && evictions(cache) < before + 2; key++)
        put(cache, key, large, 0);
    CHECK(evictions(cache) >= before + 2);
}
/* Some 200 KB: begins at least one segment, and cleans as much. */
static void write_on(shale_cache *cache) {
    for (uint64_t key = 60; key < 80; key++)
        put(cache, key, 9000, 0);
}
/* As many as the smallest table holds before it grows. */
static void prepare_growth(shale_cache *cache) {
    put_many(cache, counters, 832 + counters, 24);
}
static void grow(shale_cache *cache) {
    put_many(cache, 1000, 1050, 24);
}
static void prepare_shrinking(shale_cache *cache) {
    put_many(cache, counters, 1400, 24);
    for (uint64_t key = 100; key < 1400; key++)
        take(cache, key);
}
static void shrink(shale_cache *cache) {
    put_many(cache, 1500, 1560, 24);
}
/* Dictionaries are made from the values that one handle stores: these are the last ones before it has enough. */
static void warm_dictionary(shale_cache *cache) {
    put_many(cache, 100, 224, 400);
}
static void adopt_dictionary(shale_cache *cache) {
    put_many(cache, 224, 260, 400);
}
static void synchronise(shale_cache *cache) {
    put(cache, 10, small, 0);
    CHECK_STATUS(SHALE_OK, shale_sync(cache));
}
static void read_all(shale_cache *cache) {
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t key = 0; key < 10; key++)
        shale_get(cache, &key, sizeof key, 0, &value);
    shale_value_free(&value);
}
static void close_it(shale_cache *cache) {
    put(cache, 10, small, 0);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* Whether a slot points to the record there. */
static bool is_current(const layout *l, const unsigned char *header, uint64_t place, uint64_t offset) {
    uint32_t location = (uint32_t)((place * l->segment_size + offset) / 8);
    for (uint64_t i = 0; i < buckets_of(header) * 4; i++)
        if (half_at(header - shard_offset(l, 0) + slot_offset(l, 0, i)) == location)
            return true;
    return false;
}

/* Damages some of the entries whose records are cleaned next; they are misses from then on. */
static unsigned spoiled;

static void spoil_tail(void) {
    mapped_file file = map_file(aimed_directory, "shale.data"), index = map_file(aimed_directory, "shale.index");
    unsigned char *data = file.bytes;
    layout l = layout_of(data);
    const unsigned char *header = index.bytes + shard_offset(&l, 0);
    unsigned current = 0;
    spoiled = 0;
    uint64_t place = queued_frame(&l, header, 0), base = frame_offset(&l, 0, place);
    record_view r;
    for (uint64_t at = base + word_at(header + shard_tail_offset); (r = record_at(data, at)).kind != record_end;
         at += r.length) {
        uint64_t key = 0;
        if (r.key_size == sizeof key)
            memcpy(&key, data + r.key, sizeof key);
        if (key >= lasting && key < lasting_end && is_current(&l, header, place, at - base) && ++current % 8 == 0) {
            data[at + 16] ^= 1;
            shared->ledger.completed[key] = shared->ledger.intended[key] = 0;
            spoiled++;
        }
    }
    CHECK(spoiled > 1);
    unmap_file(&file);
    unmap_file(&index);
}

/* What a killed writer has left to be recovered (Documentation/internals/format.md). */

static bool has_open_change(const layout *l UNUSED, const unsigned char *header) {
    return word_at(header + shard_transaction) &&
           memcmp(header + shard_saved, header + shard_savepoint, shard_saved_bytes) != 0;
}
static bool has_open_head(const layout *l, const unsigned char *header) {
    return has_open_change(l, header) && word_at(header + shard_frame) >> 40 & 1;
}
static bool has_open_moves(const layout *l UNUSED, const unsigned char *header) {
    return word_at(header + shard_move_count) != 0;
}
static bool has_pending(const layout *l UNUSED, const unsigned char *header) {
    return word_at(header + shard_pending) != 0;
}
static bool has_open_copy(const layout *l, const unsigned char *header) {
    uint64_t slot = word_at(header + shard_copied_slot);
    uint64_t head = (word_at(header + shard_head_frame) * l->segment_size + word_at(header + shard_head_offset)) / 8;
    return slot && half_at(header + slot) == head;
}
static bool has_orphans(const layout *l UNUSED, const unsigned char *header) {
    /* Three parts beside those of three values. */
    return word_at(header + shard_used) > word_at(header + shard_entries) + 15 + 3;
}

enum { clock_policy = SHALE_EVICTION_CLOCK };
/* clang-format off */
static const situation situations[] = {
    {.name = "set", .prepare = prepare_base, .act = set_new},
    {.name = "replace", .prepare = prepare_base, .act = set_again},
    {.name = "pin", .prepare = prepare_base, .act = set_pinned},
    {.name = "remove", .prepare = prepare_base, .act = remove_one},
    {.name = "touch", .prepare = prepare_base, .act = touch_one},
    {.name = "increment", .prepare = prepare_base, .act = increment_one},
    {.name = "get", .prepare = prepare_base, .act = read_all},
    {.name = "invalidate", .prepare = prepare_base, .act = invalidate_one, .takes_many = true},
    {.name = "sweep of tags", .prepare = prepare_tags, .act = invalidate_sweep, .takes_many = true},
    {.name = "clear", .prepare = prepare_base, .act = clear_all, .takes_many = true},
    {.name = "clear of 3 shards", .capacity = 4 << 20, .shards = 3, .prepare = prepare_base, .act = clear_all, .takes_many = true},
    {.name = "large set", .capacity = 4 << 20, .shards = 3, .prepare = prepare_large, .act = large_new},
    {.name = "large replace", .capacity = 4 << 20, .shards = 3, .prepare = prepare_large, .act = large_again},
    {.name = "large set in one of 3 shards", .capacity = 8 << 20, .shards = 3, .prepare = prepare_large, .act = large_new},
    {.name = "large replace in one of 3 shards", .capacity = 8 << 20, .shards = 3, .prepare = prepare_large, .act = large_again},
    {.name = "evict", .max_entries = 200, .prepare = prepare_full, .act = evict_some, .evicts = true},
    {.name = "purge", .prepare = prepare_expired, .act = purge},
    {.name = "clean and roll", .prepare = prepare_cleaning, .act = write_on},
    {.name = "clean and copy", .prepare = prepare_copying, .act = copy_some},
    {.name = "clean and copy parts", .prepare = prepare_copying_parts, .act = copy_some},
    {.name = "clean in 3 shards", .capacity = 4 << 20, .shards = 3, .prepare = prepare_more_parts, .act = copy_some},
    {.name = "clean damage", .prepare = prepare_copying, .spoil = spoil_tail, .act = copy_some},
    {.name = "table growth", .prepare = prepare_growth, .act = grow},
    {.name = "table shrinking", .prepare = prepare_shrinking, .act = shrink},
    {.name = "dictionary", .capacity = 8 << 20, .prepare = prepare_base, .warm = warm_dictionary, .act = adopt_dictionary},
    {.name = "sync", .prepare = prepare_base, .act = synchronise},
    {.name = "mending a set", .prepare = prepare_cleaning, .act = set_new, .killed_in = set_again, .killed_when = has_open_change},
    {.name = "mending a set, beside", .prepare = prepare_cleaning, .act = set_new, .killed_in = set_again, .killed_when = has_open_change, .beside = true},
    {.name = "mending a removal", .prepare = prepare_base, .act = set_new, .killed_in = remove_one, .killed_when = has_open_change},
    {.name = "mending a removal, beside", .prepare = prepare_base, .act = set_new, .killed_in = remove_one, .killed_when = has_open_change, .beside = true},
    {.name = "mending growth", .prepare = prepare_growth, .act = set_new, .killed_in = grow, .killed_when = has_open_moves},
    {.name = "mending growth, beside", .prepare = prepare_growth, .act = set_new, .killed_in = grow, .killed_when = has_open_moves, .beside = true},
    {.name = "mending shrinking", .prepare = prepare_shrinking, .act = set_new, .killed_in = shrink, .killed_when = has_open_moves},
    {.name = "mending shrinking, beside", .prepare = prepare_shrinking, .act = set_new, .killed_in = shrink, .killed_when = has_open_moves, .beside = true},
    {.name = "mending a clear", .prepare = prepare_base, .act = set_new, .killed_in = clear_all, .killed_when = has_pending, .takes_many = true},
    {.name = "mending a clear, beside", .prepare = prepare_base, .act = set_new, .killed_in = clear_all, .killed_when = has_pending, .takes_many = true, .beside = true},
    {.name = "mending a copy", .prepare = prepare_copying, .act = set_new, .killed_in = copy_some, .killed_when = has_open_copy},
    {.name = "mending a copy, beside", .prepare = prepare_copying, .act = set_new, .killed_in = copy_some, .killed_when = has_open_copy, .beside = true},
    {.name = "mending a roll", .prepare = prepare_cleaning, .act = set_new, .killed_in = write_on, .killed_when = has_open_head},
    {.name = "mending a roll, beside", .prepare = prepare_cleaning, .act = set_new, .killed_in = write_on, .killed_when = has_open_head, .beside = true},
    {.name = "mending a sweep", .prepare = prepare_tags, .act = set_new, .killed_in = invalidate_sweep, .killed_when = has_open_change, .takes_many = true},
    {.name = "mending a sweep, beside", .prepare = prepare_tags, .act = set_new, .killed_in = invalidate_sweep, .killed_when = has_open_change, .takes_many = true, .beside = true},
    {.name = "create", .prepare = prepare_empty, .closes = true},
    {.name = "open", .prepare = prepare_base, .closes = true},
    {.name = "open after a kill", .prepare = prepare_large, .closes = true, .killed_in = large_new, .killed_when = has_orphans},
    {.name = "open beside", .prepare = prepare_base, .closes = true, .beside = true},
    {.name = "close beside", .prepare = prepare_base, .act = close_it, .closes = true, .beside = true},
    {.name = "close", .prepare = prepare_base, .act = close_it, .closes = true},
    {.name = "new index", .prepare = prepare_large, .closes = true, .boot_id = "11111111-2222-3333-4444-555555555555"},
    {.name = "smaller", .prepare = prepare_cleaning, .closes = true, .capacity = 4 << 20, .other_capacity = 2 << 20, .evicts = true},
    {.name = "larger", .prepare = prepare_base, .closes = true, .other_capacity = 16 << 20},
    {.name = "much larger", .prepare = prepare_full_log, .closes = true, .other_capacity = 1 << 30, .evicts = true},
    {.name = "replace, CLOCK", .policy = clock_policy, .prepare = prepare_base, .act = set_again},
    {.name = "get, CLOCK", .policy = clock_policy, .prepare = prepare_base, .act = read_all},
    {.name = "sweep of tags, CLOCK", .policy = clock_policy, .prepare = prepare_tags, .act = invalidate_sweep, .takes_many = true},
    {.name = "large replace, CLOCK", .policy = clock_policy, .capacity = 4 << 20, .shards = 3, .prepare = prepare_large, .act = large_again},
    {.name = "evict, CLOCK", .policy = clock_policy, .max_entries = 200, .prepare = prepare_full, .act = evict_some, .evicts = true},
    {.name = "evict at the tail", .policy = clock_policy, .prepare = prepare_queue, .act = queue_on, .evicts = true},
    {.name = "evict parts at the tail", .policy = clock_policy, .capacity = 4 << 20, .shards = 3, .prepare = prepare_queue_of_parts, .act = queue_parts, .evicts = true},
    {.name = "copy, CLOCK", .policy = clock_policy, .prepare = prepare_copying, .act = copy_some},
    {.name = "3 shards, CLOCK", .policy = clock_policy, .capacity = 4 << 20, .shards = 3, .prepare = prepare_copying_parts, .act = copy_some},
    {.name = "damage, CLOCK", .policy = clock_policy, .prepare = prepare_copying, .spoil = spoil_tail, .act = copy_some},
    {.name = "table growth, CLOCK", .policy = clock_policy, .prepare = prepare_growth, .act = grow},
    {.name = "mending an eviction", .policy = clock_policy, .prepare = prepare_queue, .act = set_new, .killed_in = queue_on, .killed_when = has_open_change, .evicts = true},
    {.name = "mending an eviction, beside", .policy = clock_policy, .prepare = prepare_queue, .act = set_new, .killed_in = queue_on, .killed_when = has_open_change, .evicts = true, .beside = true},
    {.name = "new index, CLOCK", .policy = clock_policy, .prepare = prepare_large, .closes = true, .boot_id = "11111111-2222-3333-4444-555555555555"},
    {.name = "smaller, CLOCK", .policy = clock_policy, .prepare = prepare_queue, .closes = true, .capacity = 4 << 20, .other_capacity = 2 << 20, .evicts = true},
};
/* clang-format on */
enum { situation_count = sizeof situations / sizeof *situations };

/* Reading */

/* A key's version; 0: the key is absent. */
static inline uint64_t look(shale_cache *cache, uint64_t key, shale_value *value, const char **fault) {
    uint64_t found = 0;
    shale_status status = shale_get(cache, &key, sizeof key, SHALE_GET_PEEK, value);
    *fault = NULL;
    if (status == SHALE_MISS)
        return 0;
    if (status != SHALE_OK)
        *fault = shale_last_error();
    else if (key >= counters)
        *fault = pattern_check(value->data, value->size, key, &found);
    else if (value->size != sizeof found)
        *fault = "not a counter";
    else
        memcpy(&found, value->data, sizeof found);
    return found;
}

/* Older entries that may be present while a later one is missing. (Where keys are evicted, they were used in their
 * order, and none was removed. The CLOCK policy's hand has passed an entry whose eviction a kill has undone; at the
 * log's tail, evictions follow uses and where cleaning put the entries.) */
static inline uint64_t most_passed(const situation *s) {
    return s->policy == SHALE_EVICTION_LRU ? 0 : s->max_entries ? 1 : UINT64_MAX;
}

/* Every key is as completed or as intended. `seen` gets the versions found. */
static inline bool check_keys(shale_cache *cache, const situation *s, uint64_t n, const char *when, uint64_t *seen) {
    shale_value value = SHALE_VALUE_INIT;
    bool holds = true;
    uint64_t older = 0, missing = 0;
    for (uint64_t key = 0; key < shared->ledger.keys; key++) {
        const char *fault;
        uint64_t found = look(cache, key, &value, &fault);
        uint64_t completed = shared->ledger.completed[key], intended = shared->ledger.intended[key];
        count_look();
        if (!fault && found != completed && found != intended && !(s->evicts && found == 0 && tolerated(0, "evicted")))
            fault = found == 0 ? "lost" : "another version";
        missing += !found && completed && intended;
        if (!fault && s->evicts && found == 0 && completed && intended && older > most_passed(s))
            fault = "evicted before a less recently used key";
        older += found != 0;
        holds &= check_that(!fault, __FILE__, __LINE__, fault ? fault : "",
                            ": %s, event %" PRIu64 ", %s: key %" PRIu64 ", completed %" PRIu64 ", intended %" PRIu64
                            ", found %" PRIu64,
                            s->name, n, when, key, completed, intended, found);
        if (seen)
            seen[key] = found;
    }
    shale_value_free(&value);
    /* (The owners of parts in other shards, four at most, go after the eviction that counts.) */
    uint64_t most = evictions(cache) + (s->shards > 1 ? 4 : 0);
    return holds & check_that(missing <= (s->evicts ? most : 0), __FILE__, __LINE__,
                              "more are missing than were evicted",
                              ": %s, event %" PRIu64 ", %s: %" PRIu64 " of %" PRIu64, s->name, n, when, missing, most);
}

/* Restores the prepared files: the same inodes, so that the index stays theirs. */

typedef struct {
    int fd;
    off_t size;
    size_t count;
    struct {
        off_t at;
        size_t size;
        void *bytes;
    } extents[256];
} saved_file;

static inline void save_file(saved_file *file, const char *name) {
    *file = (saved_file){.fd = open_file(aimed_directory, name, O_RDWR)};
    file->size = lseek(file->fd, 0, SEEK_END);
    for (off_t at = 0, end; (at = lseek(file->fd, at, SEEK_DATA)) >= 0; at = end) {
        end = lseek(file->fd, at, SEEK_HOLE);
        size_t size = (size_t)(end - at), i = file->count++;
        REQUIRE(i < 256 && (file->extents[i].bytes = malloc(size)));
        file->extents[i].at = at;
        file->extents[i].size = size;
        REQUIRE(pread(file->fd, file->extents[i].bytes, size, at) == (ssize_t)size);
    }
}

static inline void restore_file(const saved_file *file) {
    REQUIRE(ftruncate(file->fd, 0) == 0 && ftruncate(file->fd, file->size) == 0);
    for (size_t i = 0; i < file->count; i++)
        REQUIRE(pwrite(file->fd, file->extents[i].bytes, file->extents[i].size, file->extents[i].at) ==
                (ssize_t)file->extents[i].size);
}

/* Frames are allocated as a whole, unwritten parts included. */
static inline void allocate_places(const saved_file *data, const saved_file *idx) {
    unsigned char *bytes = mmap(NULL, page_bytes, PROT_READ, MAP_SHARED, data->fd, 0);
    unsigned char *index = mmap(NULL, (size_t)idx->size, PROT_READ, MAP_SHARED, idx->fd, 0);
    REQUIRE(bytes != MAP_FAILED && index != MAP_FAILED);
    layout l = layout_of(bytes);
    for (uint64_t shard = 0; shard < l.shards; shard++)
        for (uint64_t place = 0; place < l.rows; place++)
            if (index[shard_offset(&l, shard) + l.states + place] != frame_absent)
                REQUIRE(fallocate(data->fd, FALLOC_FL_KEEP_SIZE, (off_t)frame_offset(&l, shard, place),
                                  (off_t)l.segment_size) == 0);
    munmap(bytes, page_bytes);
    munmap(index, (size_t)idx->size);
}

static inline void free_file(saved_file *file) {
    for (size_t i = 0; i < file->count; i++)
        free(file->extents[i].bytes);
    close(file->fd);
}

/* Nothing here depends on a disk. */
static inline void aimed_begin(void) {
    prefer_memory();
    aimed_directory = path_to("aimed");
    begin_tolerances();
    shared = shared_memory(sizeof *shared);
}

/* Prepares the cache as the situation wants it, and closes it. */
static inline void prepare(const situation *s) {
    shale_cache *cache = NULL;
    remove_tree(aimed_directory);
    memset(shared, 0, sizeof *shared);
    if (s->prepare == prepare_empty)
        return;
    REQUIRE_STATUS(SHALE_OK, try_open(s, false, &cache));
    s->prepare(cache);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    if (s->spoil)
        s->spoil();
}

/* The state that a situation begins with: created again if its handle closes it, otherwise as it was saved. */
static inline void set_up(const situation *s, const saved_file *data, const saved_file *idx, const ledger *prepared) {
    if (s->closes) {
        prepare(s);
    } else {
        restore_file(data);
        restore_file(idx);
        allocate_places(data, idx);
        shared->ledger = *prepared;
    }
}

/* A process that is struck by the signal at the n-th event of its operation; 0: at none. It uses its parent's
 * handle, or its own. */
static inline void be_struck(const situation *s, uint64_t n, int signal, shale_cache *cache) {
    begin_child(30);
    die_with_parent();
    bool opens = s->closes || (s->killed_in && !cache);
    if (opens)
        aim(n, signal);
    if (!cache)
        REQUIRE_STATUS(SHALE_OK, try_open(s, true, &cache));
    if (s->warm)
        s->warm(cache);
    if (!opens)
        aim(n, signal);
    if (s->act)
        s->act(cache);
    if (!s->closes)
        lay_down();
    if (!s->closes || !s->act)
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    _exit(check_failures != 0);
}

static inline pid_t start_child(const situation *s, uint64_t n, int signal, shale_cache *cache) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        be_struck(s, n, signal, cache);
    return child;
}

#endif
