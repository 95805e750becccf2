/* Operations on the machine, and the oracle's check after each. */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include "model.h"

#include "known_failures.h"
#include "shale.h"
#include "shares.h"

typedef struct {
    const char *name;
    uint32_t segment, shards;
    int places[3]; /* of a shard, for each capacity; the third needs another index */
    uint64_t max_entries;
    int keys;
    bool has_other_process, compresses;
    int dictionaries; /* frames for them: what a new cache of this capacity has */
    int32_t eviction;
} configuration;

/* Six segments are the least. */
static const configuration configurations[] = {
    {"one process", 512, 1, {6, 8, 26}, 0, 3, false, false, 0, SHALE_EVICTION_LRU},
    {"two processes", 512, 1, {8, 6, 26}, 0, 3, true, false, 0, SHALE_EVICTION_LRU},
    {"five keys in segments of 1 KiB", 1024, 1, {6, 8, 20}, 0, 5, true, false, 0, SHALE_EVICTION_LRU},
    {"two entries at most", 512, 1, {8, 6, 26}, 2, 3, false, false, 0, SHALE_EVICTION_LRU},
    {"dictionaries", 1024, 1, {9, 12, 24}, 0, 4, false, true, 2, SHALE_EVICTION_LRU},
    {"two shards", 512, 2, {6, 7, 20}, 0, 4, true, false, 2, SHALE_EVICTION_LRU},
    {"clock", 512, 1, {8, 6, 26}, 0, 5, true, false, 0, SHALE_EVICTION_CLOCK},
    {"CLOCK, two entries at most", 512, 1, {6, 8, 26}, 2, 3, false, false, 0, SHALE_EVICTION_CLOCK},
    {"CLOCK, two shards", 512, 2, {6, 7, 20}, 0, 4, true, false, 2, SHALE_EVICTION_CLOCK},
};
enum { configuration_count = sizeof configurations / sizeof *configurations };
static const configuration *configured;

/* The capacity that has room for this many frames in each shard, as Geometry.rows counts, and for another chunk of
 * the table. */
static uint64_t capacity_of(int which) {
    const configuration *c = configured;
    size_t shard = up(shard_header + lease_cells * 24 + writer_cells * 16 + fence_lines * fence_line + use_time_bytes,
                      unit) +
                   2 * chunk_head + unit + table_bytes(least_buckets) +
                   (size_t)c->places[which] * (c->segment + 4 * 13);
    size_t all = superblock_page + up(c->shards * 32, unit) + (size_t)c->dictionaries * 512 + index_head +
                 c->shards * shard;
    return all + all / 511 + 1;
}

typedef struct {
    char what;
    uint8_t key, size;
    bool is_silent; /* no check afterwards */
    uint8_t elsewhere; /* this many following operations happen in the other process, while this one prepares a frame */
    bool is_after; /* and has allocated the space */
    uint32_t kill; /* before the n-th store or call; 0: not */
} operation;

/* What ended an operation before its end. */
enum { ended = 0, was_killed, has_failed, has_crashed, has_hung };
static sigjmp_buf escape;
static volatile bool is_running;
static char failure[512];
enum { load_ms = 2500 };
static uint32_t events, kill_at;
static uint64_t kills, cuts, operations_done, cursors_ended, keys_due;
static bool is_displaced; /* a pinned entry finds no slot in this operation */
static bool allows_no_forced_out; /* in known sequences, which have to pass without */
static bool is_forced; /* evictions of this operation need not follow the order of use */
static int replays; /* of logs, in this operation */
static uint16_t new_id; /* of the value that it sets, or 0 */
static int own_key; /* the key that it uses; -1: none, or one that is none of the configuration's */
static bool is_about_z;
static bool sets_large, own_is_evicted;
static bool new_is_evicted; /* as soon as it was stored: a large value whose parts evict each other */
/* The kind of the last failure, as in Tests/known-failures. */
static const char *failure_kind;
static bool masks_known = true;
static uint64_t known_met;

/* Whether it counts as a known failure. */
static bool is_known(const char *kind) {
    if (!masks_known || !is_known_failure(kind)) {
        failure_kind = kind;
        return false;
    }
    known_met++;
    return true;
}

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void complain(const char *format, ...) {
    if (failure[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
}
static void machine_failed(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!failure[0])
        vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
    if (is_running)
        siglongjmp(escape, has_failed);
    fprintf(stderr, "%s\n", failure);
    abort();
}

/* ---- hooks ------------------------------------------------------------------ */

static char boot_id[40];
static int capacity_asked;

static void happens(void) {
    if (++events == kill_at)
        siglongjmp(escape, was_killed);
    if (events > 2000000)
        machine_failed("an operation does not end: two million stores");
}
static void before_store(const void *at) {
    int f = file_at(at);
    if (f < 0)
        return;
    if (!machine.files[f].allocated[(size_t)((const unsigned char *)at - bytes_of(f)) / unit])
        machine_failed("a store into a hole of %s, at %td", f ? "shale.index" : "shale.data",
                       (const unsigned char *)at - bytes_of(f));
    happens();
}
/* A set has begun that may stop while it prepares a frame, and did; which. */
static bool may_stop, has_stopped;
static const operation *stopping;

/* Space allocated by a stopped writer is not counted after others have freed it, until it continues. */
static size_t uncounted_bytes(const layout *l) {
    return ((size_t)model.uncounted + has_stopped) * l->segment;
}
/* At every moment the disk holds no more than the recorded capacity: space.md, "Changing the capacity". */
static void check_disk(void) {
    layout l = machine.names[name_data] < 0 ? (layout){0} : read_layout(bytes_of_data);
    if (l.exists && disk_bytes() > l.capacity + uncounted_bytes(&l))
        complain("du is %u of a capacity of %zu", disk_bytes(), l.capacity);
}
static long before_call(const char *name) {
    if (current_process < 0 || strcmp(name, "malloc") == 0)
        return 0;
    check_disk();
    happens();
    return 0;
}

static uint64_t number_of_id(int key, uint16_t id) {
    return (uint64_t)(key + 1) << 48 | (uint64_t)id << 16;
}
/* Which value a record holds, of one of our keys; 0 if that cannot be told. */
static uint16_t id_of(const unsigned char *p) {
    if (meta_length(p) == 2)
        return (uint16_t)(p[key_offset(p) + key_length(p)] | p[key_offset(p) + key_length(p) + 1] << 8);
    return half(p, 24) == 8 ? (uint16_t)(word(p, stored_offset(p)) >> 16) : 0;
}

static uint64_t inode_of_index(void);
static void expect(const char *what, shale_status status);

static shard_view shard_of(const void *at) {
    int f = file_at(at);
    layout l = read_layout(bytes_of_data);
    if (f == machine.names[name_new_index] && l.rows < (size_t)configured->places[capacity_asked]) {
        /* For a larger capacity, which is recorded last. */
        l.rows = 2 * (size_t)configured->places[capacity_asked];
        derive(&l);
    }
    size_t offset = (size_t)((const unsigned char *)at - bytes_of(f));
    return view_of(&l, bytes_of_data, bytes_of(f),
                   offset < l.chunks ? (offset - index_head) / l.region : (offset - l.chunks) / chunk_bytes % l.shards);
}

/* Whether a slot's table, while it is resized, has no free place within the maximum displacement of some bucket, and
 * no entry there could be evicted for a pinned entry: space.md, "Pinned entries". */
static bool has_no_place(const void *at) {
    enum { reach = 3 };
    shard_view v = shard_of(at);
    size_t pinned[64] = {0};
    slot s;
    for (size_t i = 0; next_slot(&v, &i, &s);)
        pinned[s.position % 64] += s.is_pinned;
    for (size_t i = 0, row = 0; i < 64; i++) {
        row = pinned[i] == 4 ? row + 1 : 0;
        if (row > reach)
            return true;
    }
    return false;
}

/* The entry of the call's own key is passed over: space.md, "The order of eviction". */
static bool is_spared(const shard_view *v, const slot *s) {
    const unsigned char *p = value_record(v, s->location);
    bool is_own = p && (is_about_z ? key_of(p) < 0 : own_key >= 0 && key_of(p) == own_key);
    tolerances_used[tolerance_makes_room] += is_own;
    return is_own;
}

/* Whether the policy evicts this entry, and not another. */
static void check_order(const shard_view *v, int key, uint64_t word1) {
    const uint64_t stamps = ((uint64_t)1 << 38) - 1;
    slot s;
    for (size_t i = 0; next_slot(v, &i, &s);) {
        if (s.is_part || s.is_pinned || is_spared(v, &s))
            continue;
        if (configured->eviction == SHALE_EVICTION_LRU) {
            if ((s.word1 & stamps) < (word1 & stamps))
                complain("evicted out of order: key %c with stamp %u, while the slot in bucket %zu has %u",
                         key < 0 ? '?' : key + 'a', (unsigned)(word1 & stamps), s.position,
                         (unsigned)(s.word1 & stamps));
            /* Entries that it has passed may have a use less than when it did, and it skips damage that no read has
             * found: space.md, "The order of eviction". */
        } else if (model.was_damaged) {
            tolerances_used[tolerance_damage]++;
        } else if ((s.word1 >> 38 & 3) + 1 < (word1 >> 38 & 3))
            complain("evicted out of order: key %c with %u uses, while the slot in bucket %zu has %u",
                     key < 0 ? '?' : key + 'a', (unsigned)(word1 >> 38 & 3), s.position, (unsigned)(s.word1 >> 38 & 3));
    }
}

/* Of the fenced sets that are tried after an operation: its token, and whether changes since may refuse it. */
static bool some_are_pinned(void);
static uint64_t late_token;
static bool late_may_be_refused;
static shares shared_counts;

static void before_event(enum shim_event event, const void *at) {
    if (event == SHIM_SIGHTED) {
        go_on_elsewhere(false);
        return;
    }
    if (event == SHIM_REPLAYED) {
        replays++;
        model.lacks_reserve |= machine.is_full && some_are_pinned();
        late_may_be_refused = model.load.may_be_refused = true;
        for (int k = 0; k < most_keys; k++)
            mark(k, 0, seen_missing, evicted);
        for (int k = 0; k < most_keys && model.was_damaged; k++) {
            tolerances_used[tolerance_damage]++;
            mark(k, 0, resident, evicted);
        }
        replay_damaged();
        return;
    }
    if (event == SHIM_FORCED) {
        is_forced = true;
        /* Parts may be evicted with the rest of the tail's segment; pinned ones if a table "cannot place" them. */
        bool is_pinned = at && file_at(at) > 0 && word(at, 0) >> 61 & 1 && has_no_place(at);
        tolerances_used[tolerance_no_place] += is_pinned;
        is_displaced |= is_pinned;
        for (int k = 0; k < most_keys; k++)
            for (int w = 0; w <= model.world_count; w++) {
                choices *c = w == model.world_count ? &model.history[k] : &model.worlds[w][k];
                for (int i = 0; i < c->count; i++)
                    if (c->choices[i].size == 2 && (is_pinned || !(c->choices[i].flags & is_pinned_value))) {
                        c->choices[i].flags |= may_lack_parts;
                        note_that_left(k);
                    }
            }
        if (!at)
            return;
    }
    if (file_at(at) < 1)
        return;
    shard_view v = shard_of(at);
    uint64_t word0 = word(at, 0), word1 = word(at, 8);
    if (word0 >> 62 == 2)
        return;
    const unsigned char *p = value_record(&v, (uint32_t)word0);
    if (!p)
        return;
    int key = key_of(p);
    uint16_t id = id_of(p);
    if (key >= 0) {
        mark(key, id, resident, evicted);
        note_that_left(key);
        new_is_evicted |= id == new_id;
    }
    if (word0 >> 61 & 1 && !is_displaced)
        complain("a pinned entry is evicted: key %c, value %u", key + 'a', id);
    checks++;
    if (is_forced) {
        tolerances_used[tolerance_forced_eviction]++;
        own_is_evicted |= key >= 0 && key == own_key && id != new_id;
    } else if (key >= 0 && key == own_key && id != new_id && sets_large) {
        tolerances_used[tolerance_makes_room]++;
        own_is_evicted = true;
    } else if (event == SHIM_EVICTED)
        check_order(&v, key, word1);
}

static void signalled(int signal) {
    if (!is_running) {
        fprintf(stderr, "explore itself gets signal %d (%s)\n", signal, strsignal(signal));
        _exit(99);
    }
    snprintf(failure, sizeof failure, "signal %d (%s)", signal, strsignal(signal));
    siglongjmp(escape, has_crashed);
}
static volatile uint64_t watched;
static void alarmed(int signal) {
    (void)signal;
    if (is_running && watched == operations_done + 1) {
        snprintf(failure, sizeof failure, "an operation does not end");
        siglongjmp(escape, has_hung);
    }
    watched = operations_done + 1;
}

/* ---- the contents --------------------------------------------------------- */

static const size_t sizes_of_values[3] = {8, 100, 230}; /* the last in parts; with segments of 1 KiB twice as large */

static size_t size_of(int size) {
    return size == 0 ? 8 : sizes_of_values[size] * configured->segment / 512;
}
static void fill(unsigned char *p, int key, uint16_t id, int size) {
    uint64_t number = number_of_id(key, id);
    memcpy(p, &number, 8);
    static const char text[] = "the quick brown fox jumps over the lazy dog; ";
    for (size_t i = 8; i < size_of(size); i++)
        p[i] = configured->compresses
                   ? (unsigned char)(text[(i + id / 8 * 3) % (sizeof text - 1)] + (i % 40 == 39 ? id % 8 : 0))
                   : (unsigned char)(id * 7 + i * 13 + (unsigned)key);
}

static unsigned char value_bytes[4096];
static shale_value read_value(void) {
    return (shale_value){.struct_size = sizeof(shale_value), .data = value_bytes, .capacity = sizeof value_bytes};
}

/* Which value the read bytes are; false if they are none of ours. */
static bool recognise(int key, const shale_value *v, choice *seen) {
    const unsigned char *p = v->data;
    uint64_t number = v->size >= 8 ? word(p, 0) : 0;
    *seen = (choice){.id = (uint16_t)(number >> 16),
                     .increments = (uint16_t)number,
                     .expires = v->expires_ms == SHALE_NEVER ? 0 : v->expires_ms,
                     .flags = v->flags & SHALE_VALUE_PINNED ? is_pinned_value : 0};
    if (v->size < 8 || number >> 48 != (uint64_t)key + 1)
        return false;
    for (int size = 0; size < 3; size++)
        if (v->size == size_of(size)) {
            unsigned char wanted[1024];
            seen->size = (uint8_t)size;
            fill(wanted, key, seen->id, size);
            return memcmp(wanted + 8, p + 8, v->size - 8) == 0;
        }
    return false;
}

static const char *describe(const choices *c) {
    static char text[400];
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < c->count && n < sizeof text - 60; i++) {
        const choice *x = &c->choices[i];
        n += (size_t)(x->id ? snprintf(text + n, sizeof text - n, "%s%u+%u%s%s%s", i ? " or " : "", x->id,
                                       x->increments, x->flags & is_pinned_value ? " pinned" : "",
                                       x->leave == evicted        ? " (evicted)"
                                       : x->leave == seen_missing ? " (was seen missing)"
                                                                  : "",
                                       is_dead(x)    ? " (dead by age)"
                                       : is_stale(x) ? " (stale)"
                                                     : "")
                            : snprintf(text + n, sizeof text - n, "%snothing", i ? " or " : ""));
    }
    return text;
}

static void count_tolerances_of_miss(const choices *c) {
    bool is_plain = false;
    for (int i = 0; i < c->count; i++)
        is_plain |= is_dead(&c->choices[i]) && !(c->choices[i].flags & is_lost_by_cut);
    if (is_plain || c->count == 0)
        return;
    for (int i = 0; i < c->count; i++)
        if (c->choices[i].leave) {
            tolerances_used[tolerance_evicted]++;
            return;
        } else if (c->choices[i].flags & may_lack_parts) {
            tolerances_used[tolerance_lacks_parts]++;
            return;
        }
    bool is_passed = false;
    for (int i = 0; i < c->count; i++)
        is_passed |= (c->choices[i].flags & is_passed_by_tail) != 0;
    tolerances_used[is_passed ? tolerance_passed : tolerance_cut]++;
}

/* A read answered this: drops worlds in which it is impossible. `plain`: the caller did not ask for stale values. */
static void observe(int key, const choice *seen, bool seen_stale, bool plain) {
    checks++;
    int left = 0;
    choices before = model.worlds[0][key];
    if (seen)
        for (int w = 0; w < model.world_count; w++)
            for (int i = 0; i < model.worlds[w][key].count; i++)
                tolerances_used[tolerance_came_back] += model.worlds[w][key].choices[i].id == seen->id &&
                                                        model.worlds[w][key].choices[i].leave == evicted;
    else
        count_tolerances_of_miss(&before);
    tolerances_used[tolerance_unknown] += before.is_any;
    for (int w = 0; w < model.world_count; w++) {
        choices *c = &model.worlds[w][key];
        if (seen ? saw_value(c, seen, seen_stale) : saw_miss(c, plain)) {
            if (left != w)
                memcpy(model.worlds[left], model.worlds[w], sizeof model.worlds[w]);
            left++;
        }
    }
    if (left == 0) {
        if (seen)
            complain("key %c holds value %u+%u%s%s, size %zu, age over in %lld ms; right is %s", key + 'a', seen->id,
                     seen->increments, seen->flags & is_pinned_value ? ", pinned" : "", seen_stale ? ", stale" : "",
                     size_of(seen->size), seen->expires ? (long long)(seen->expires - machine.clock_ms) : 0,
                     describe(&before));
        else
            complain("key %c is lost; right is %s", key + 'a', describe(&before));
        return;
    }
    tolerances_used[tolerance_killed] += left < model.world_count;
    model.world_count = left;
    /* (Worlds that have become the same are one.) */
    for (int w = 1; w < model.world_count;)
        if (is_same_world(model.worlds[0], model.worlds[w]))
            memcpy(model.worlds[w], model.worlds[--model.world_count], sizeof model.worlds[w]);
        else
            w++;
}

/* ---- performing it ----------------------------------------------------------------- */

static shale_cache *handle(void) {
    return machine.processes[model.actor].handle;
}

static void prepare_boot(void) {
    static int prepared = -1;
    if (prepared != machine.boot)
        snprintf(boot_id, sizeof boot_id, "00000000-0000-0000-0000-%012u", (unsigned)(prepared = machine.boot));
    shim_faults.boot_id = boot_id;
}

static int64_t now_ms(void *context) {
    (void)context;
    return machine.clock_ms;
}

/* The operation's answer. */
static struct {
    shale_status status;
    int64_t number;
    uint64_t evicted, lease;
    choice seen;
    bool is_recognised, has_closed, has_settled, may_lack_room, had_no_room;
} answer;

static size_t shard_with(int key);
static bool has_entry(size_t shard, int key, bool is_its_own);

/* A word of the shards' headers, added up. */
static uint64_t sum_of(size_t word) {
    layout l = read_layout(bytes_of_data);
    uint64_t sum = 0;
    for (size_t i = 0; i < l.shards; i++) {
        shard_view v = view_of(&l, bytes_of_data, bytes_of(machine.names[name_index]), i);
        sum += field(&v, word);
    }
    return sum;
}

/* (Dead entries do not count: they are removed before a call fails for want of room. See space.md, "Pinned
 * entries".) */
static bool some_are_pinned(void) {
    for (int w = 0; w < model.world_count; w++)
        for (int k = 0; k < most_keys; k++) {
            if (model.worlds[w][k].is_any)
                return true;
            for (int i = 0; i < model.worlds[w][k].count; i++)
                if (model.worlds[w][k].choices[i].flags & is_pinned_value && !is_dead(&model.worlds[w][k].choices[i]))
                    return true;
        }
    return false;
}

/* A pinned entry that is damaged takes room until the damage is found: limits.md, "Damage". */
static bool damaged_pins_remain(void) {
    return model.has_damaged_pin && sum_of(w_pinned_bytes) > 0;
}

static bool open_cache(int capacity) {
    capacity_asked = capacity;
    shale_options options = {.struct_size = sizeof options,
                             .capacity = capacity_of(capacity),
                             .max_entries = configured->max_entries,
                             .shards = configured->shards,
                             .segment_size = configured->segment,
                             .compression = configured->compresses ? SHALE_COMPRESSION_DICTIONARY
                                                                   : SHALE_COMPRESSION_NONE,
                             .eviction = configured->eviction,
                             .now_ms = now_ms};
    bool is_other_there = machine.processes[1 - model.actor].handle != NULL;
    if (is_other_there)
        options.capacity = options.max_entries = 0;
    shale_cache *cache = NULL;
    shale_status status = shale_open("/cache", &options, &cache);
    if (status < 0) {
        /* A smaller capacity is refused if pinned entries need more: the cache stays as it was. */
        if (status == SHALE_E_FULL && machine.is_full) {
            /* A full disk is an error code (guarantees.md, "Full disks and capacity"); now it has room again. */
            machine.is_full = false;
            tolerances_used[tolerance_full_disk]++;
            return open_cache(capacity);
        }
        layout l = read_layout(bytes_of_data);
        if (status == SHALE_E_FULL && l.exists && capacity_of(capacity) < l.capacity && some_are_pinned()) {
            tolerances_used[tolerance_full_of_pins]++;
            for (int c = 0; c < 3; c++)
                if (capacity_of(c) == l.capacity)
                    return c != capacity && open_cache(c);
            return false;
        }
        complain("open: %d, %s", status, shale_last_error());
        return false;
    }
    machine.processes[model.actor].handle = cache;
    if (!is_other_there)
        model.capacity = capacity;
    answer.has_settled |= !is_other_there; /* the only process attached */
    return true;
}

static bool is_of_one_key(char what) {
    return strchr("spatATlLnriguzo", what) != NULL;
}
static bool pins(char what) {
    return strchr("pATL", what) != NULL;
}
static bool has_age(char what) {
    return strchr("aA", what) != NULL;
}
static bool has_tag(char what) {
    return strchr("tTlL", what) != NULL;
}
static bool keeps_stale(char what) {
    return strchr("lL", what) != NULL;
}

/* Changes a bit of the key's current record, in its body or in its head; returns whether there is one. */
static bool damage(int key, bool in_head) {
    layout l = read_layout(bytes_of_data);
    /* (A second one would undo the first.) */
    for (int i = 0; i < model.worlds[0][key].count; i++)
        if (model.worlds[0][key].choices[i].flags & is_damaged || !model.worlds[0][key].choices[i].id)
            return false;
    for (size_t i = 0; i < l.shards && machine.names[name_index] >= 0; i++) {
        shard_view v = view_of(&l, bytes_of_data, bytes_of(machine.names[name_index]), i);
        slot s;
        for (size_t at = 0; next_slot(&v, &at, &s);) {
            const unsigned char *p = s.is_part ? NULL : value_record(&v, s.location);
            if (!p || key_of(p) != key)
                continue;
            bytes_of_data[(size_t)(p - bytes_of_data) + (in_head ? 35 : stored_offset(p))] ^= 1;
            return true;
        }
    }
    return false;
}

/* ---- cursors ------------------------------------------------------------------ */

static void end_cursor(int process, int i) {
    shale_cursor *cursor = machine.processes[process].cursors[i];
    machine.processes[process].cursors[i] = NULL;
    shale_cursor_close(cursor);
}

/* Beside writers: they may be killed, and make a new index, which ends it. */
static void end_reader(void) {
    shale_cache *cache = machine.processes[reader].handle;
    end_cursor(reader, 0);
    machine.processes[reader].handle = NULL;
    if (cache)
        expect("closing a read-only handle", shale_close(cache));
}
static bool open_reader(void) {
    if (machine.processes[reader].handle)
        return true;
    shale_options options = {.struct_size = sizeof options, .flags = SHALE_OPEN_READ_ONLY, .now_ms = now_ms};
    shale_cache *cache = NULL;
    shale_status status = shale_open("/cache", &options, &cache);
    machine.processes[reader].handle = cache;
    model.reader_index = inode_of_index();
    /* If no writer has left an index, it would make a private one. */
    if (status < 0 && status != SHALE_E_MEMORY)
        complain("opening for reading: %d, %s", status, shale_last_error());
    return status == SHALE_OK;
}
/* A new index, and one that was about to be made, keeps readers of the old one out, and so does a shard that no
 * process continues to rebuild: processes.md, "Read-only handles". */
static bool is_kept_out(void) {
    if (model.reader_index != inode_of_index())
        return true;
    const unsigned char *index = bytes_of(machine.names[name_index]);
    bool is_out = word(index, retired_mark) || word(index, index_generation) - word(bytes_of_data, generation) > 1;
    layout l = read_layout(bytes_of_data);
    for (size_t i = 0; i < l.shards && !is_out; i++) {
        shard_view v = view_of(&l, bytes_of_data, index, i);
        is_out = field(&v, w_epoch) & 1;
    }
    return is_out;
}

/* A step of a cursor, or all that are left (`M`). It never shows a key twice, nor one that was absent all the time;
 * by its end it has shown each that lived all the time. The second cursor of a process also shows stale entries. */
static void walk_on(const operation *op, int process, int i) {
    shale_cursor *cursor = machine.processes[process].cursors[i];
    if (op->what == 'C') {
        end_cursor(process, i);
        return;
    }
    if (!cursor) {
        expect("opening a cursor", shale_cursor_open(machine.processes[process].handle, &cursor));
        machine.processes[process].cursors[i] = cursor;
        model.cursors[process][i].lived = keys_that_live();
        model.cursors[process][i].away = keys_that_are_away();
        model.cursors[process][i].shown = 0;
    }
    for (bool goes_on = true; goes_on && !failure[0]; goes_on = op->what == 'M') {
        static char name[4096]; /* (A damaged record may have any length.) */
        shale_value key = {.struct_size = sizeof key, .data = name, .capacity = sizeof name}, value = read_value();
        may_stop = op->elsewhere;
        shale_status status = shale_cursor_next(cursor, i ? SHALE_GET_STALE : 0, &key, &value);
        may_stop = false;
        bool is_out = process == reader && is_kept_out();
        checks++;
        if (status == SHALE_E_BUSY && is_out) {
            end_reader();
            return;
        }
        if (is_out && model.reader_index != inode_of_index() && inode_of_index())
            complain("a cursor of an index that was replaced answers %d", status);
        uint8_t missed = (uint8_t)(model.cursors[process][i].lived & ~model.cursors[process][i].shown);
        if (status == SHALE_END) {
            cursors_ended++;
            keys_due += (uint64_t)__builtin_popcount(model.cursors[process][i].lived);
            if (missed)
                complain("a cursor of process %d has not shown a key that was there: %x of %x", process, missed,
                         model.cursors[process][i].lived);
            end_cursor(process, i);
            return;
        }
        int k = key.size == 1 ? name[0] - 'a' : -1;
        choice seen;
        if (status != SHALE_OK && status != SHALE_STALE)
            complain("a cursor answers %d, %s", status, shale_last_error());
        else if (k < 0 || k >= configured->keys || !recognise(k, &value, &seen))
            complain("a cursor shows a value that was never stored");
        else {
            if (model.cursors[process][i].shown >> k & 1)
                complain("a cursor of process %d shows key %c twice", process, 'a' + k);
            if (model.cursors[process][i].away >> k & 1)
                complain("a cursor of process %d shows key %c, which was away", process, 'a' + k);
            model.cursors[process][i].shown |= (uint8_t)(1u << k);
            observe(k, &seen, status == SHALE_STALE, false);
        }
    }
}

static void act(const operation *op, uint16_t id) {
    char key = (char)('a' + op->key);
    process *mine = &machine.processes[model.actor];
    static unsigned char bytes[1024];
    answer.status = SHALE_OK;
    if (strchr("mMC", op->what) && op->key == reader) {
        kill_at = 0; /* (It changes nothing.) */
        current_process = reader;
        if (op->what == 'C' || open_reader())
            walk_on(op, reader, 0);
        if (op->what == 'C')
            end_reader();
        shim_faults.uptime_ahead = 0;
        return;
    }
    if (!mine->handle && !strchr("xXqQdk", op->what) && !open_cache(model.capacity))
        return;
    own_is_evicted = false; /* (Opening may have done that.) */
    switch (op->what) {
    case 's':
    case 'p':
    case 't':
    case 'a':
    case 'A':
    case 'T':
    case 'l':
    case 'L': {
        fill(bytes, op->key, id, op->size);
        unsigned char meta[2] = {(unsigned char)id, (unsigned char)(id >> 8)};
        shale_bytes tag = {"tag", 3};
        shale_set_options options = {.struct_size = sizeof options,
                                     .flags = pins(op->what) ? SHALE_SET_PINNED : 0,
                                     .max_age_ms = has_age(op->what) ? 2500 : 0,
                                     .stale_ms = keeps_stale(op->what) ? 2500 : 0,
                                     .meta = meta,
                                     .meta_size = 2,
                                     .tags = &tag,
                                     .tag_count = has_tag(op->what)};
        may_stop = op->elsewhere && op->size < 2;
        answer.status = shale_set(mine->handle, &key, 1, bytes, size_of(op->size), &options);
        may_stop = false;
        break;
    }
    case 'n': {
        shale_value value = read_value();
        answer.status = shale_get(mine->handle, &key, 1, SHALE_GET_PEEK, &value);
        answer.is_recognised = answer.status == SHALE_OK && recognise(op->key, &value, &answer.seen);
        if (answer.status != SHALE_OK)
            break;
        fill(bytes, op->key, id, op->size);
        unsigned char meta[2] = {(unsigned char)id, (unsigned char)(id >> 8)};
        shale_set_options options = {.struct_size = sizeof options,
                                     .flags = SHALE_SET_IF_VERSION,
                                     .version = value.version,
                                     .meta = meta,
                                     .meta_size = 2};
        answer.status = shale_set(mine->handle, &key, 1, bytes, size_of(op->size), &options);
        break;
    }
    case 'r': answer.status = shale_remove(mine->handle, &key, 1, 0); break;
    case 'u': answer.status = shale_touch(mine->handle, &key, 1, op->size ? SHALE_NEVER : 3500); break;
    case 'o': {
        uint64_t before = sum_of(w_removes);
        size_t shard = shard_with(op->key);
        answer.may_lack_room = some_are_pinned() || machine.is_full;
        answer.status = shale_expire(mine->handle, &key, 1);
        /* (All others are evicted before the entry itself.) */
        answer.may_lack_room |= shard < read_layout(bytes_of_data).shards && !has_entry(shard, op->key, false);
        answer.had_no_room = answer.may_lack_room && sum_of(w_removes) != before;
        break;
    }
    case 'i':
        answer.status = shale_increment(mine->handle, &key, 1, 1, (int64_t)number_of_id(op->key, id), &answer.number);
        break;
    case 'g': {
        shale_value value = read_value();
        answer.status = shale_get(mine->handle, &key, 1, 0, &value);
        answer.is_recognised = answer.status == SHALE_OK && recognise(op->key, &value, &answer.seen);
        break;
    }
    case 'e': answer.status = shale_evict(mine->handle, 1, &answer.evicted); break;
    case 'v':
    case 'V':
        answer.status = shale_invalidate_with(mine->handle, op->key ? (char[]){'t', (char)('0' + op->key)} : "tag",
                                              op->key ? 2 : 3, op->what == 'V' ? SHALE_INVALIDATE_EXPIRE : 0);
        break;
    case 'c': answer.status = shale_clear(mine->handle); break;
    case 'y':
        answer.status = shale_sync(mine->handle);
        if (answer.status == SHALE_OK)
            note_positions();
        break;
    case 'w': machine.clock_ms += 1000; break;
    case 'h': machine.is_full = !machine.is_full; break;
    case 'f': answer.status = shale_verify(mine->handle, NULL); break;
    case 'j': {
        shale_value value = read_value();
        shale_lease_options options = {.struct_size = sizeof options, .lease_ms = load_ms};
        (void)getpid(); /* so that the process has a number */
        answer.status = shale_lease(mine->handle, "j", 1, &options, &value, &answer.lease);
        break;
    }
    case 'z': answer.number = damage(op->key, op->size == 1); break;
    case 'm':
    case 'M':
    case 'C': walk_on(op, model.actor, op->key % cursors); break;
    case 'b': /* switch to the other process */
        model.actor = 1 - model.actor;
        current_process = model.actor;
        if (!handle())
            (void)open_cache(model.capacity);
        break;
    case 'x':
    case 'X': /* closed and opened again, with another capacity */
        if (op->what == 'X')
            process_ends(1 - model.actor);
        if (mine->handle) {
            for (int i = 0; i < cursors; i++)
                end_cursor(model.actor, i);
            shale_cache *cache = mine->handle;
            mine->handle = NULL;
            answer.status = shale_close(cache);
            answer.has_closed = true;
            if (answer.status == SHALE_OK && !machine.processes[1 - model.actor].handle)
                note_positions();
            process_ends(model.actor);
        }
        if (answer.status == SHALE_OK && !open_cache(op->what == 'X' ? op->key : model.capacity) && !failure[0])
            (void)open_cache(model.capacity);
        break;
    case 'q':
    case 'Q':
    case 'd': /* killed between two calls */
        current_process = -1;
        process_ends(model.actor);
        if (op->what != 'q')
            process_ends(1 - model.actor);
        current_process = model.actor;
        if (op->what == 'd')
            (void)unlinkat(0, file_names[name_index], 0);
        if (!open_cache(op->what == 'Q' ? op->key : model.capacity) && !failure[0])
            (void)open_cache(model.capacity);
        break;
    }
}

/* What an expiry of its key makes of a value. */
static choice expired(choice x) {
    if (is_dead(&x) || !x.stale)
        return (choice){0};
    if (is_fresh(&x))
        x.expires = x.own = machine.clock_ms;
    return x;
}

/* What one world becomes by an operation that was completed, given its answer; false if it is impossible. */
static bool complete(choices *w, const operation *op, uint16_t id) {
    choices *c = &w[op->key];
    if (answer.status < 0 && answer.status != SHALE_E_INVALID)
        return true; /* A call that fails leaves its key as it was: shale.h, shale_last_error. */
    switch (op->what) {
    case 's':
    case 'p':
    case 't':
    case 'a':
    case 'A':
    case 'T':
    case 'l':
    case 'L':
        set_choice(c, (choice){.id = id,
                               .size = op->size,
                               .flags = (uint8_t)((pins(op->what) ? is_pinned_value : 0) |
                                                  (has_tag(op->what) ? is_tagged_value : 0)),
                               .expires = has_age(op->what) ? machine.clock_ms + 2500 : 0,
                               .own = has_age(op->what) ? machine.clock_ms + 2500 : 0,
                               .stale = keeps_stale(op->what) ? 2500 : 0,
                               .leave = new_is_evicted ? evicted : resident});
        return true;
    case 'n':
        if (answer.status == SHALE_CONFLICT)
            return true;
        if (!may_be_fresh(c))
            return false;
        set_choice(c, (choice){.id = id, .size = op->size, .leave = new_is_evicted ? evicted : resident});
        return true;
    case 'r':
        if (!(answer.status == SHALE_OK ? may_be_there(c) : may_be_missing(c)))
            return false;
        set_choice(c, (choice){0});
        return true;
    case 'o': {
        if (answer.status != SHALE_OK) {
            if (!may_be_missing(c))
                return false;
            set_choice(c, (choice){0});
            return true;
        }
        if (!may_be_there(c))
            return false;
        choices before = *c;
        c->count = 0;
        for (int i = 0; i < before.count; i++) {
            choice x = before.choices[i];
            if (is_dead(&x) || x.leave == seen_missing)
                continue;
            x.leave = resident;
            add_choice(c, expired(x));
        }
        /* An entry is removed at once if there is no room for the change: shale.h, shale_expire. */
        tolerances_used[tolerance_full_of_pins] += answer.had_no_room;
        if (own_is_evicted || answer.had_no_room)
            add_choice(c, (choice){0});
        return true;
    }
    case 'u':
        if (answer.status != SHALE_OK)
            return saw_miss(c, false);
        if (!may_be_there(c))
            return false;
        for (int i = 0; i < c->count;) {
            choice x = c->choices[i];
            c->choices[i] = c->choices[c->count - 1];
            if (is_dead(&x) || x.leave == seen_missing) {
                c->count--;
                continue;
            }
            x.expires = x.own = op->size ? 0 : machine.clock_ms + 3500;
            x.flags &= (uint8_t)~is_stale_by_tag;
            x.leave = resident;
            c->choices[c->count - 1] = c->choices[i];
            c->choices[i++] = x;
        }
        return true;
    case 'i': {
        if (answer.status == SHALE_E_INVALID) {
            choices left = {.is_any = c->is_any};
            for (int i = 0; i < c->count; i++)
                if (c->choices[i].size && is_fresh(&c->choices[i]) && c->choices[i].leave != seen_missing) {
                    left.choices[left.count] = c->choices[i];
                    left.choices[left.count++].leave = resident;
                }
            *c = left;
            return c->count || c->is_any;
        }
        uint16_t of = (uint16_t)((uint64_t)answer.number >> 16), count = (uint16_t)answer.number;
        if (of == id && count == 1) {
            if (!may_be_missing(c) && !may_be_stale(c))
                return false;
            set_choice(c, (choice){.id = id, .increments = 1});
            return true;
        }
        choices left = {.is_any = c->is_any};
        for (int i = 0; i < c->count; i++) {
            choice x = c->choices[i];
            if (x.id == of && x.increments + 1 == count && x.size == 0 && is_fresh(&x) && x.leave != seen_missing) {
                x.increments++;
                x.leave = resident;
                add_choice(&left, x);
            }
        }
        *c = left;
        return c->count || c->is_any;
    }
    case 'V':
        for (int k = 0; k < most_keys && op->key == 0; k++) {
            choices before = w[k];
            w[k].count = 0;
            for (int i = 0; i < before.count; i++)
                add_expired(&w[k], before.choices[i]);
        }
        return true;
    case 'v':
        for (int k = 0; k < most_keys && op->key == 0; k++) {
            choices before = w[k];
            w[k].count = 0;
            for (int i = 0; i < before.count; i++)
                add_choice(&w[k], before.choices[i].flags & is_tagged_value ? (choice){0} : before.choices[i]);
        }
        return true;
    case 'c':
        for (int k = 0; k < most_keys; k++)
            set_choice(&w[k], (choice){0});
        return true;
    case 'z':
        for (int i = 0; answer.number && i < c->count; i++) {
            c->choices[i].flags |= is_damaged;
            model.has_damaged_pin |= (c->choices[i].flags & is_pinned_value) != 0;
        }
        for (int i = 0; answer.number && op->size && i < model.history[op->key].count; i++) {
            choice x = model.history[op->key].choices[i];
            bool is_current = false;
            for (int j = 0; j < c->count; j++)
                is_current |= is_same(&c->choices[j], &x) ||
                              (c->choices[j].id == x.id && c->choices[j].increments == x.increments &&
                               !(c->choices[j].flags & is_older));
            x.flags |= is_older;
            x.leave = evicted;
            if (!is_current)
                add_choice(c, x);
            c->is_any |= model.history[op->key].is_any;
        }
        return true;
    case 'f':
        for (int k = 0; k < most_keys; k++)
            for (int i = 0; i < w[k].count; i++)
                if (w[k].choices[i].flags & is_damaged && !w[k].choices[i].leave && !machine.is_full) {
                    met_damage(&w[k]);
                    break;
                }
        return true;
    }
    return true;
}

/* The possible states after the operation was killed, beside the state before. */
static void add_killed(const operation *op, uint16_t id) {
    int count = model.world_count;
    for (int i = 0; i < count; i++) {
        choices w[most_keys];
        memcpy(w, model.worlds[i], sizeof w);
        choices *c = &w[op->key];
        if (op->what == 'o') {
            choices before = *c;
            c->count = 0;
            for (int j = 0; j < before.count; j++) {
                choice x = before.choices[j];
                tolerances_used[tolerance_full_of_pins] += answer.may_lack_room;
                if (is_dead(&x) || x.leave || x.flags & (is_damaged | may_lack_parts) || answer.may_lack_room)
                    add_choice(c, (choice){0});
                if (!is_dead(&x) && x.leave != seen_missing)
                    add_choice(c, expired(x));
            }
        } else if (op->what == 'u' || op->what == 'i') {
            choices before = *c;
            c->count = 0;
            for (int j = 0; j < before.count; j++) {
                choice x = before.choices[j];
                if (is_dead(&x) || x.leave || x.flags & (is_damaged | may_lack_parts) ||
                    (op->what == 'i' && is_stale(&x))) {
                    if (op->what == 'i')
                        add_choice(c, (choice){.id = id, .increments = 1});
                    else
                        add_choice(c, x);
                }
                if ((op->what == 'i' ? is_fresh(&x) : !is_dead(&x)) && x.leave != seen_missing) {
                    if (op->what == 'u') {
                        x.expires = x.own = op->size ? 0 : machine.clock_ms + 3500;
                        x.flags &= (uint8_t)~is_stale_by_tag;
                    } else if (x.size == 0)
                        x.increments++;
                    add_choice(c, x);
                }
            }
        } else {
            answer.status = SHALE_OK;
            /* (A removal of a key that may be missing or not.) */
            if (op->what == 'r')
                set_choice(c, (choice){0});
            else if (op->what == 'n' && !may_be_fresh(c))
                continue;
            else
                (void)complete(w, op, id);
        }
        /* A large value whose parts evict each other is set and evicted at once (limits.md, "Order, counts and
         * eviction"); a kill may come between. */
        if (is_forced && is_of_one_key(op->what) && c->count == 1 && c->choices[0].size == 2 &&
            !(c->choices[0].flags & is_pinned_value))
            c->choices[0].flags |= may_lack_parts;
        if (i == 0) {
            model.is_clear_pending |= op->what == 'c';
            if (op->what == 'c')
                memcpy(model.uncleared, model.worlds[i], sizeof model.uncleared);
        }
        choices unsettled[most_keys];
        memcpy(unsettled, w, sizeof unsettled);
        /* (Its parts in other shards are freed, as no index has the manifest that only the log has.) */
        if (is_of_one_key(op->what) && configured->shards > 1 && c->count == 1 && c->choices[0].size == 2)
            unsettled[op->key].choices[0].flags |= may_lack_parts;
        add_pending(unsettled);
        if (op->what == 'c' || (configured->shards > 1 && strchr("vV", op->what)))
            /* `clear` and `invalidate` go from shard to shard (limits.md, "Not atomic"), and a killed `clear` may have
             * emptied part of one. */
            for (int k = 0; k < most_keys; k++) {
                for (int j = 0; j < model.worlds[i][k].count; j++)
                    if (model.worlds[i][k].choices[j].size == 2)
                        model.worlds[i][k].choices[j].flags |= may_lack_parts;
                add_choices(&model.worlds[i][k], &w[k]);
            }
        else
            add_world(w);
    }
}

static void cut_power(uint64_t seed);

/* Reads every key without a trace. */
static void look_at_all(void) {
    if (!handle() || failure[0])
        return;
    for (int k = 0; k < configured->keys && !failure[0]; k++) {
        shale_value value = read_value();
        char key = (char)('a' + k);
        shale_status status = shale_get(handle(), &key, 1, SHALE_GET_PEEK | SHALE_GET_STALE, &value);
        choice seen;
        if (status == SHALE_MISS)
            observe(k, NULL, false, false);
        else if (status != SHALE_OK && status != SHALE_STALE)
            complain("get of %c: %d, %s", key, status, shale_last_error());
        else if (!recognise(k, &value, &seen))
            complain("key %c holds a value that was never stored: %zu bytes, %016llx", key, value.size,
                     (unsigned long long)(value.size >= 8 ? word(value.data, 0) : 0));
        else
            observe(k, &seen, status == SHALE_STALE, false);
        if (status == SHALE_STALE && shale_get(handle(), &key, 1, SHALE_GET_PEEK, &value) != SHALE_MISS)
            complain("key %c is stale, and returned by a plain get", key);
    }
}

/* What a part of a large value holds. */
static size_t bytes_of_a_part(void) {
    return (((size_t)configured->segment - segment_header - record_header) / 3 - record_header - 24) & ~(size_t)7;
}

/* Whether a shard has room for this many more pinned bytes, also beside a table that grows for them: space.md,
 * "Pinned entries". */
static bool fits_pinned(size_t bytes, size_t longest, size_t records) {
    layout l = read_layout(bytes_of_data);
    size_t before = superblock_page + up(l.shards * 32, unit) + l.dictionary_places * l.dictionary_size + index_head +
                    l.capacity / 512;
    for (size_t i = 0; i < l.shards; i++) {
        shard_view v = view_of(&l, bytes_of_data, bytes_of(machine.names[name_index]), i);
        size_t room = l.segment - segment_header - record_header,
               m = most(longest, field(&v, w_pinned_most) & ~(uint64_t)1), filled = room - least(m, room / 2);
        size_t p = field(&v, w_pinned_bytes) + bytes,
               loss = (p * (room - filled) + room * filled - 1) / (room * filled), kept = most(reserve, loss + 1);
        size_t budget = (l.capacity - before) / l.shards, tables = field(&v, w_table_pages),
               buckets = field(&v, w_shape) & 0xFFFFFF;
        if ((field(&v, w_used) + records) * 64 >= buckets * 4 * 24)
            tables = most(tables, l.region + table_bytes(buckets + records));
        size_t places = least(l.rows, (budget > tables ? budget - tables : 0) / l.segment);
        if ((p + filled - 1) / filled + kept + 1 > places)
            return false;
        size_t live = most(l.segment / 2, least((places - loss) * l.segment / 100 * 82,
                                                (places - kept - 1) * (room - l.segment / 16)));
        if (p > live / 8 * 7)
            return false;
    }
    return true;
}

/* Whether a shard has an entry that is not pinned: the key's, or another's. */
static bool has_entry(size_t shard, int key, bool is_its_own) {
    layout l = read_layout(bytes_of_data);
    shard_view v = view_of(&l, bytes_of_data, bytes_of(machine.names[name_index]), shard);
    slot s;
    for (size_t at = 0; next_slot(&v, &at, &s);) {
        const unsigned char *p = s.is_part || s.is_pinned ? NULL : value_record(&v, s.location);
        if (p && (key_of(p) == key) == is_its_own)
            return true;
    }
    return false;
}

/* The index that has an entry of the key; past the last one if none has. */
static size_t shard_with(int key) {
    size_t shard = 0, shards = read_layout(bytes_of_data).shards;
    while (shard < shards && !has_entry(shard, key, true))
        shard++;
    return shard;
}

static uint64_t inode_of_index(void) {
    return machine.names[name_index] < 0 ? 0 : machine.files[machine.names[name_index]].inode;
}

/* Which process has the latest lease; none if it has ended. */
static int process_of_load(void) {
    int p = 0;
    while (p < processes && !(model.load.holder && machine.processes[p].number == model.load.holder))
        p++;
    return p;
}

/* A lease ends with its release, with its time, or with its holder's process (processes.md, "Leases and fenced sets").
 * Until then no other caller gets it, as no other key of this cache is leased; after that the next one does. */
static void check_lease(void) {
    bool is_kept = model.load.index == inode_of_index(), lives = process_of_load() < processes;
    if (!answer.lease) {
        if (!is_kept || !lives || model.load.end <= machine.clock_ms)
            complain("key j cannot be loaded: its lease was over %lld ms ago, or its process has ended",
                     (long long)(machine.clock_ms - model.load.end));
        return;
    }
    shared_counts.loads++;
    if (is_kept && lives && model.load.end > machine.clock_ms) {
        shared_counts.duplicates++;
        if (!is_known("duplicate-load"))
            complain("key j is loaded twice: its lease would last %lld ms more",
                     (long long)(model.load.end - machine.clock_ms));
    }
    model.load.token = answer.lease;
    model.load.index = inode_of_index();
    model.load.holder = machine.processes[model.actor].number;
    model.load.end = machine.clock_ms + load_ms;
    model.load.may_be_refused = model.is_clear_pending;
}

static void add_killed_lease(void) {
    if (model.load.index != inode_of_index())
        memset(&model.load, 0, sizeof model.load);
    model.load.token = 0;
    model.load.index = inode_of_index();
}

static void check_status(const operation *op) {
    shale_status s = answer.status;
    checks++;
    bool is_right = s == SHALE_OK || (s == SHALE_MISS && strchr("rugnoj", op->what)) ||
                    (s == SHALE_E_INVALID && op->what == 'i');
    /* Removals and evictions find room on a full disk too: space.md, "On a full disk". */
    bool is_full = machine.is_full && (!strchr("rovVe", op->what) || model.lacks_reserve);
    if (!is_right && s == SHALE_E_FULL &&
        (is_full || (strchr("spatATlLniu", op->what) && (some_are_pinned() || damaged_pins_remain())))) {
        tolerances_used[is_full ? tolerance_full_disk : tolerance_full_of_pins]++;
        is_right = true;
    }
    if (!is_right && s == SHALE_E_FULL && op->size == 2 &&
        ((op->what == 'n' && answer.is_recognised) || (pins(op->what) && may_be_there(&model.worlds[0][op->key])))) {
        tolerances_used[tolerance_both_do_not_fit]++;
        is_right = true;
    }
    size_t touched = op->what == 'u' ? shard_with(op->key) : SIZE_MAX;
    if (!is_right && s == SHALE_E_FULL && touched < read_layout(bytes_of_data).shards &&
        !has_entry(touched, op->key, false)) {
        tolerances_used[tolerance_both_do_not_fit]++;
        is_right = true;
    }
    /* (The get found the value from before the clear, which the set has finished.) */
    if (s == SHALE_CONFLICT && op->what == 'n' && model.is_clear_pending) {
        tolerances_used[tolerance_clear_pending]++;
        is_right = true;
    }
    /* A call that fails leaves its key as it was, but a set can have evicted the value that it was to replace:
     * limits.md, "Order, counts and eviction". */
    bool is_own_forced_out = !allows_no_forced_out && s == SHALE_E_FULL && own_is_evicted && is_forced &&
                             (some_are_pinned() || pins(op->what));
    tolerances_used[tolerance_own_forced_out] += is_own_forced_out;
    if (s == SHALE_E_FULL && own_is_evicted && !machine.is_full && !is_own_forced_out)
        complain("%c%u fails, and its key is missing: %s", op->what, op->key, shale_last_error());
    if (!is_right && s == SHALE_E_FULL && pins(op->what)) {
        size_t part = bytes_of_a_part(), parts = op->size == 2 ? (size_of(2) + part - 1) / part : 0;
        size_t head = record_header + (size_t)(has_age(op->what) + has_tag(op->what) + keeps_stale(op->what)) * 8 + 3;
        size_t bytes = up(head + (parts ? 40 : size_of(op->size)), 8) + parts * (record_header + 24) +
                       (parts ? up(size_of(2), 8) : 0);
        if (!fits_pinned(bytes, parts ? part + record_header + 24 : bytes, parts + 1)) {
            tolerances_used[tolerance_full_of_pins]++;
            is_right = true;
        }
    }
    if (!is_right && !(s == SHALE_E_FULL && op->size == 2 && is_known(pins(op->what) ? "pin-refused" : "set-refused")))
        complain("%c%u answers %d: %s", op->what, op->key, s, shale_last_error());
    if (op->what == 'j' && s >= 0)
        check_lease();
}

#include "invariants.h"

/* Runs an operation, or the check, as the actor; returns how it ended. */
static int in_process(const operation *op, uint16_t id) {
    current_process = model.actor;
    is_running = true;
    int end = sigsetjmp(escape, 0);
    if (end == ended) {
        if (!op)
            look_at_all();
        else if (op->what == 'k')
            (void)open_cache(model.capacity);
        else
            act(op, id);
    }
    kill_at = 0;
    current_process = -1;
    is_running = false;
    return end;
}

/* Whether every shard has been locked, so that no killed writer's work is left. */
static bool settles(const operation *op) {
    return answer.has_settled || strchr("vVcy", op->what) ||
           (configured->shards == 1 && strchr("spatATlLniruofj", op->what) &&
            !(op->what == 'n' && answer.status == SHALE_MISS));
}

/* A `clear` whose process was killed may be finished by any process that finds something missing, in its shard;
 * parts may be in another. */
static void note_pending_clear(void) {
    for (int i = 0; i < model.pending_count && model.is_clear_pending;
         i++, tolerances_used[tolerance_clear_pending]++) {
        for (int k = 0; k < most_keys; k++)
            for (int j = 0; j < model.worlds[0][k].count && configured->shards > 1; j++)
                if (model.worlds[0][k].choices[j].size == 2)
                    model.worlds[0][k].choices[j].flags |= may_lack_parts;
        for (int k = 0; k < most_keys; k++)
            for (int w = 0;
                 w < model.world_count && model.pending[i][k].count == 1 && !model.pending[i][k].choices[0].id; w++)
                add_choice(&model.worlds[w][k], (choice){0});
    }
}

/* The index is deleted before killed writers' work is recovered: the log may have it, and alone counts. */
static void add_unsettled(void) {
    for (int i = 0; i < model.pending_count; i++, tolerances_used[tolerance_deleted_unsettled]++)
        add_world(model.pending[i]);
    /* In several shards, several of them. */
    if (configured->shards > 1 && model.pending_count > 1) {
        choices all[most_keys];
        memcpy(all, model.worlds[0], sizeof all);
        for (int i = 0; i < model.pending_count; i++)
            for (int k = 0; k < most_keys; k++)
                add_choices(&all[k], &model.pending[i][k]);
        add_world(all);
    }
}

/* What an operation has made of the worlds in which it completed. */
static void conclude(const operation *done, uint16_t id) {
    check_status(done);
    if (answer.status == SHALE_E_FULL && strchr("cvV", done->what)) {
        /* Not atomic; and a `clear` that finds no frame empties the table first. */
        for (int w = 0; w < model.world_count; w++) {
            choices after[most_keys];
            memcpy(after, model.worlds[w], sizeof after);
            answer.status = SHALE_OK;
            (void)complete(after, done, id);
            answer.status = SHALE_E_FULL;
            for (int k = 0; k < most_keys; k++)
                add_choices(&model.worlds[w][k], &after[k]);
        }
    }
    int left = 0;
    choices before = model.worlds[0][done->key];
    if (done->what == 'g' || (done->what == 'n' && answer.status == SHALE_MISS)) {
        if (answer.status == SHALE_OK && !answer.is_recognised)
            complain("key %c holds a value that was never stored", done->key + 'a');
        else if (answer.status >= 0)
            observe(done->key, answer.status == SHALE_OK ? &answer.seen : NULL, false, true);
    } else {
        for (int w = 0; w < model.world_count; w++)
            if (complete(model.worlds[w], done, id)) {
                if (left != w)
                    memcpy(model.worlds[left], model.worlds[w], sizeof model.worlds[w]);
                left++;
            }
        if (left == 0)
            complain("%c of key %c answers %d (number %llx); right is %s", done->what, done->key + 'a', answer.status,
                     (unsigned long long)answer.number, describe(&before));
        else
            model.world_count = left;
        for (int i = 0; i < model.pending_count;)
            if (strchr("mM", done->what) || complete(model.pending[i], done, id)) /* (a cursor reads: the log stays) */
                i++;
            else if (model.is_clear_pending) /* elsewhere, perhaps */
                model.pending[i++][done->key] = model.worlds[0][done->key];
            else
                memcpy(model.pending[i], model.pending[--model.pending_count], sizeof model.pending[i]);
    }
    if (settles(done))
        model.pending_count = model.is_clear_pending = 0;
    if (done->what == 'e' && answer.status == SHALE_OK && answer.evicted == 0)
        check_nothing_evictable();
    note_history();
    if (answer.status == SHALE_OK &&
        (done->what == 'y' || (answer.has_closed && !machine.processes[1 - model.actor].handle)))
        all_is_durable();
}

/* One operation, and a check of all keys. False if a check fails; `failure` says which. */
static bool perform(const operation *op) {
    failure[0] = 0;
    failure_kind = "";
    events = 0;
    kill_at = op->kill;
    is_forced = is_displaced = false;
    replays = 0;
    if (op->what == 'd' && !model.is_clear_pending)
        add_unsettled();
    /* A `clear` without room empties the table before the log: without the index it never happened. It may also not
     * have reached the shard in which an earlier call was killed. */
    for (int k = 0; k < most_keys && op->what == 'd' && model.is_clear_pending;
         k++, tolerances_used[tolerance_deleted_unsettled]++) {
        add_choices(&model.worlds[0][k], &model.uncleared[k]);
        for (int i = 0; i < model.pending_count; i++)
            add_choices(&model.worlds[0][k], &model.pending[i][k]);
    }
    uint16_t id = 0;
    if (is_of_one_key(op->what) && strchr("spatATlLni", op->what))
        id = ++model.last_id;
    new_id = id;
    own_key = is_of_one_key(op->what) ? op->key : -1;
    sets_large = strchr("sptanATlL", op->what) && op->size == 2;
    own_is_evicted = false;
    new_is_evicted = false;
    if (op->what == 'k') {
        cut_power((uint64_t)op->key << 8 | op->size);
        cuts++;
    }
    if (is_of_one_key(op->what) && op->what != 'g')
        model.is_changed[op->key] = true;
    prepare_boot();
    operations_done++;
    shim_faults.store = before_store;
    shim_faults.call = before_call;
    shim_faults.never_forks = true;
    shim_faults.event = before_event;
    memset(&answer, 0, sizeof answer);
    operation done = *op;
    stopping = &done;
    has_stopped = may_stop = false;
    int end = in_process(&done, id);
    model.load.may_be_refused |= done.what == 'c' || model.is_clear_pending;
    if (done.what == 'V' && done.key == 0)
        expire_history();
    if (end == was_killed) {
        kills++;
        process_ends(model.actor);
        if (done.what == 'j')
            add_killed_lease();
        else if (!has_stopped)
            add_killed(&done, id);
        model.uncounted += has_stopped;
        note_history();
        if (machine.processes[1 - model.actor].handle)
            model.actor = 1 - model.actor;
    } else if (end != ended || failure[0])
        return false;
    else if (has_stopped)
        check_status(&done);
    else
        conclude(&done, id);
    note_who_lives();
    if (done.what == 'z' && answer.number)
        model.was_damaged = model.was_cut = true;
    if (failure[0])
        return false;
    if (!done.is_silent && handle()) {
        note_pending_clear(); /* (A read that finds one key missing finishes the clear for later reads.) */
        in_process(NULL, 0);
    }
    has_stopped = false;
    note_pending_clear();
    if (!failure[0])
        check_files();
    return !failure[0];
}

/* ---- two callers at once ---------------------------------------------------------- */

/* The following operations of the sequence, and how many of them have happened elsewhere. */
static struct {
    const operation *operations;
    int count, done;
} following;

static bool check_progress(void);
static void save_here(void);
static void restore_here(void);

/* A set that prepares a frame holds no lock, and has succeeded; a cursor that has chosen an entry has not. Meanwhile
 * the other process runs; beside the reader, the process whose turn it is. */
static void go_on_elsewhere(bool is_after) {
    if (current_process < 0 || !may_stop || has_stopped || stopping->is_after != is_after)
        return;
    bool walks = strchr("mM", stopping->what) != NULL;
    layout l = read_layout(bytes_of_data);
    for (size_t i = 0; i < l.shards && !walks; i++) {
        uint64_t lock = word(bytes_of(machine.names[name_index]), index_head + i * l.region + 8);
        if (lock != 0)
            return;
    }
    struct {
        sigjmp_buf escape;
        operation op;
        const operation *stopping;
        uint32_t events, kill_at;
        int process, replays, key;
        bool is_forced, is_displaced;
        uint16_t id;
    } mine = {.op = *stopping,
              .stopping = stopping,
              .events = events,
              .kill_at = kill_at,
              .process = current_process,
              .replays = replays,
              .key = own_key,
              .id = new_id};
    mine.is_forced = is_forced, mine.is_displaced = is_displaced;
    memcpy(mine.escape, escape, sizeof escape);
    current_process = -1;
    is_running = may_stop = false;
    answer.status = SHALE_OK;
    if (!walks)
        conclude(&mine.op, mine.id);
    for (int i = 0; i < mine.op.elsewhere && following.done < following.count && !failure[0]; i++) {
        operation op = following.operations[following.done];
        /* (They are about both, or about cursors.) */
        if (strchr(mine.process == reader ? "kmMC" : "bXQdkmMC", op.what))
            break;
        following.done++;
        op.elsewhere = 0;
        if (mine.process != reader)
            model.actor = 1 - mine.process;
        if (!perform(&op))
            break;
        save_here();
        if (!check_progress())
            break;
        restore_here();
    }
    if (mine.process != reader)
        model.actor = mine.process;
    memcpy(escape, mine.escape, sizeof escape);
    current_process = mine.process;
    stopping = mine.stopping;
    events = mine.events, kill_at = mine.kill_at, replays = mine.replays, own_key = mine.key, new_id = mine.id;
    is_forced = mine.is_forced, is_displaced = mine.is_displaced;
    sets_large = false;
    is_running = true;
    has_stopped = !walks;
    if (failure[0])
        siglongjmp(escape, has_failed);
    memset(&answer, 0, sizeof answer);
}

/* ---- progress ------------------------------------------------------------------- */

static void expect(const char *what, shale_status status) {
    if (status < 0)
        complain("%s: %d, %s", what, status, shale_last_error());
}

/* A set of a byte, or of none if pinned entries leave no room for one. */
static void expect_set(const char *what, const char *key, const shale_set_options *options) {
    is_about_z = true;
    shale_status status = shale_set(handle(), key, 1, key, 1, options);
    if (status == SHALE_E_FULL && some_are_pinned())
        tolerances_used[tolerance_full_of_pins]++;
    else if (status != SHALE_OK)
        expect(what, status);
    is_about_z = false;
}

/* Whether a line of the fence table no longer has what it needs to know since a token. Then at least as many others
 * have changed later as it has cells, which the invariants check. */
static bool may_be_too_old(uint64_t token) {
    layout l = read_layout(bytes_of_data);
    for (size_t i = 0; i < l.shards; i++) {
        shard_view v = view_of(&l, bytes_of_data, bytes_of(machine.names[name_index]), i);
        for (size_t line = 0; line < fence_lines; line++)
            if (fence_word(&v, line, 0) >= token)
                return true;
    }
    return false;
}
static shale_stats read_stats(void) {
    shale_stats s = {.struct_size = sizeof s};
    expect("the counters", shale_get_stats(handle(), &s));
    return s;
}

/* A fenced set of an unchanged key, with a tag that was never invalidated. */
static void expect_fenced(const char *key, uint64_t token, bool may_be_refused) {
    shale_bytes tag = {"u", 1};
    shale_set_options options = {
        .struct_size = sizeof options, .flags = SHALE_SET_IF_UNCHANGED, .version = token, .tags = &tag, .tag_count = 1};
    is_about_z = true;
    shale_stats before = read_stats();
    shale_status status = shale_set(handle(), key, 1, "f", 1, &options);
    shared_counts.fenced++;
    if (status == SHALE_CONFLICT) {
        shale_stats after = read_stats();
        shared_counts.refused++;
        if (after.conflicts_overflow > before.conflicts_overflow
                ? may_be_too_old(token)
                : after.conflicts_reset > before.conflicts_reset && may_be_refused)
            tolerances_used[tolerance_fence]++;
        else if (!is_known("fence"))
            complain("a fenced set of key %s is refused, though the key is unchanged (fence: %d %d %d %d)", key,
                     (int)(after.conflicts_key - before.conflicts_key),
                     (int)(after.conflicts_tag - before.conflicts_tag),
                     (int)(after.conflicts_overflow - before.conflicts_overflow),
                     (int)(after.conflicts_reset - before.conflicts_reset));
    } else if (status == SHALE_E_FULL && some_are_pinned())
        tolerances_used[tolerance_full_of_pins]++;
    else
        expect("a fenced set", status);
    is_about_z = false;
}

/* Removals and evictions succeed on a full disk, and when all entries are removed, a set does: space.md, "On a full disk".
 * (A shard in which nothing was ever written has no frame.) */
static void expect_letting_go(void) {
    own_key = 1;
    expect("an expiry on a full disk", shale_expire(handle(), "b", 1));
    own_key = -1;
    expect("an invalidation on a full disk", shale_invalidate(handle(), "w", 1));
    for (own_key = 0; own_key < configured->keys; own_key++)
        expect("a removal on a full disk", shale_remove(handle(), &(char){(char)('a' + own_key)}, 1, 0));
    own_key = -1;
    expect("an eviction on a full disk", shale_evict(handle(), 1000, NULL));
    layout l = read_layout(bytes_of_data);
    for (size_t i = 0; i < l.shards; i++) {
        shard_view v = view_of(&l, bytes_of_data, bytes_of(machine.names[name_index]), i);
        if (!field(&v, w_queue_count) || damaged_pins_remain())
            return;
    }
    is_about_z = true;
    expect("a set after everything was removed from a full disk", shale_set(handle(), "z", 1, "z", 1, NULL));
    is_about_z = false;
}

/* A set of a byte, a removal, an eviction, an invalidation and fenced sets succeed, one with a new token and one
 * with that of the load. The caller restores the state. */
static bool check_progress(void) {
    failure[0] = 0;
    failure_kind = "";
    is_forced = is_displaced = false;
    if (machine.is_full && model.lacks_reserve)
        return true;
    prepare_boot();
    shim_faults.store = before_store;
    shim_faults.call = before_call;
    shim_faults.never_forks = true;
    shim_faults.event = before_event;
    operations_done++;
    events = kill_at = 0;
    is_running = true;
    current_process = model.actor;
    late_token = UINT64_MAX;
    if (sigsetjmp(escape, 0) == ended) {
        if (!handle())
            (void)open_cache(model.capacity);
        if (!failure[0] && machine.is_full && !model.lacks_reserve)
            expect_letting_go();
        if (!failure[0] && !machine.is_full) {
            expect_set("one more set of a byte", "z", NULL);
            expect("one more removal", shale_remove(handle(), "z", 1, 0));
            shale_value value = read_value();
            shale_status status = shale_get(handle(), "y", 1, SHALE_GET_TOKEN, &value);
            if (status != SHALE_MISS)
                complain("a token of key y: %d, %s", status, shale_last_error());
            late_token = value.version;
            late_may_be_refused = model.is_clear_pending;
            expect("one more eviction", shale_evict(handle(), 1, NULL));
            expect("one more invalidation", shale_invalidate(handle(), "w", 1));
            expect_fenced("y", late_token, late_may_be_refused);
            if (model.load.token)
                expect_fenced("j", model.load.token,
                              model.load.may_be_refused || model.is_clear_pending ||
                                  model.load.index != inode_of_index());
            expect("one more removal of a", shale_remove(handle(), "a", 1, 0));
        }
    }
    is_about_z = false;
    current_process = -1;
    is_running = false;
    checks++;
    return !failure[0];
}

/* ---- power cuts ----------------------------------------------------------------- */

static uint64_t mix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Each changed block is found as it was at the last sync or as it is now. Seeds 0 and 1: all old, all new. */
static void cut_file(int f, int style, bool is_journal_new, uint64_t *random) {
    file *s = &machine.files[f];
    unsigned char *now = bytes_of(f), *old = durable_of(f);
    size_t extent = most(s->size, s->durable_size);
    size_t changed = 0, one = 0;
    for (size_t at = 0; at < extent; at += unit)
        if (memcmp(now + at, old + at, unit) != 0 && mix(random) % ++changed == 0)
            one = at;
    for (size_t b = 0; b * unit < extent; b++) {
        size_t at = b * unit;
        bool is_allocated = is_journal_new ? s->allocated[b] : s->durably_allocated[b];
        bool is_new = style == 0   ? false
                      : style == 1 ? true
                      : style == 2 ? mix(random) % 2
                      : style == 3 ? mix(random) % 8 == 0
                      : style == 4 ? mix(random) % 8 != 0
                      : style == 5 ? at == one
                                   : at != one;
        if (!is_allocated || (is_journal_new ? !is_new && s->was_punched[b] : is_new && !s->allocated[b])) {
            /* A hole, or freed blocks whose contents are lost. */
            memset(now + at, 0, unit);
        } else if (!is_new)
            memcpy(now + at, old + at, unit);
    }
    if (!is_journal_new) {
        memcpy(s->allocated, s->durably_allocated, sizeof s->allocated);
        s->size = s->durable_size;
        if (extent > s->size)
            memset(now + s->size, 0, extent - s->size);
    }
    make_durable(f);
}

static void cut_power(uint64_t seed) {
    uint64_t random = seed;
    int style = seed < 2 ? (int)seed : (int)(mix(&random) % 7);
    bool is_journal_new = seed == 0 ? false : seed == 1 ? true : mix(&random) % 3 != 0;
    for (int p = 0; p < processes; p++)
        process_ends(p);
    model.actor = 0;
    model_cut();
    if (!is_journal_new)
        memcpy(machine.names, machine.durable_names, sizeof machine.names);
    else
        memcpy(machine.durable_names, machine.names, sizeof machine.names);
    if (machine.names[name_data] >= 0)
        cut_file(machine.names[name_data], style, is_journal_new, &random);
    int index = machine.names[name_index];
    if (index >= 0) {
        int how = (int)(mix(&random) % 4);
        if (how == 0)
            machine.names[name_index] = -1;
        else
            cut_file(index, how == 1 ? style : how == 2 ? 1 : 0, is_journal_new, &random);
    }
    machine.names[name_new_index] = -1;
    memcpy(machine.durable_names, machine.names, sizeof machine.names);
    for (int f = 0; f < files; f++)
        free_file(f);
    machine.boot++;
    model.load.may_be_refused = true; /* (an index of another boot may be a copy of the disk) */
}

#endif
