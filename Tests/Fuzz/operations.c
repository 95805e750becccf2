/* Programs of operations against a model that knows the right answers: two handles on one directory, a clock that
 * the program moves, orderly and other ends, rebuilds. In a cache that has room for everything each answer is exact;
 * otherwise an entry may be missing, and is exact if present. */
#include "fuzz.h"

enum {
    key_count = 20,
    large_keys = 4,
    tag_count = 4,
    handle_count = 2,
    most_value = (1 << 20) + 8,
    least_large = (128 << 10) / 8
};

/* An entry as it must be, if it is present. */
typedef struct {
    enum {
        absent,
        present,
        maybe, /* or evicted (design.md, "Eviction"); inputs without world.evicts do without, except case 12 */
        residual /* absent, but its record may be left, for a rebuild to find (recovery.md, "A rebuild") */
    } where;
    uint32_t serial; /* its value follows from this */
    size_t size, meta_size;
    bool is_counter, pinned;
    int64_t number;
    unsigned tags;
    int64_t created, expires, stale; /* SHALE_NEVER; `stale`: how long it is kept past its age */
    uint64_t version;
} entry;

static struct {
    entry entries[key_count];
    int64_t max_age, stale; /* of the cache */
    uint64_t last_version;
    uint32_t serial;
    bool evicts, has_pinned; /* ever: a pinned entry takes room until it is found, also when it is dead */
    bool unmended; /* a shard is marked as being changed: the next lock rebuilds it, and missing entries may be back */
    shale_cache *handles[handle_count];
    shale_options options;
    uint64_t capacity;
} world;

static uint8_t expected[most_value];

static size_t name_of(unsigned key, char *name) {
    size_t size = (size_t)sprintf(name, "key %u", key);
    return key % 5 == 4 ? size + (size_t)sprintf(name + size, " %0200d", 7) : size;
}

static void fill(uint8_t *value, uint32_t serial, size_t size) {
    uint64_t state = serial, word = 0;
    size_t at = 0;
    for (; at < size; at += 8) {
        word = serial % 3 == 0 ? random_word(&state) : serial + at % 32;
        if (size - at < 8)
            break;
        memcpy(value + at, &word, 8);
    }
    if (at < size)
        memcpy(value + at, &word, size - at);
    memcpy(value, &serial, size < 4 ? size : 4);
}

static int64_t later(int64_t from, int64_t by) {
    return by == SHALE_NEVER || from == SHALE_NEVER ? SHALE_NEVER : from + by;
}

enum state { dead, stale, fresh };
static enum state state_of(const entry *e) {
    if (e->where == absent)
        return dead;
    if (e->expires == SHALE_NEVER || clock_value < e->expires)
        return fresh;
    int64_t kept = later(e->expires, e->stale);
    return e->stale > 0 && (kept == SHALE_NEVER || clock_value < kept) ? stale : dead;
}

static const int64_t ages[] = {
    0, 0, SHALE_NEVER, SHALE_NONE, 1, 1000, 64000, 3600000, INT64_C(30) * 24 * 3600000, INT64_C(1) << 38};

static void age(entry *e, int64_t max_age) {
    max_age = max_age == 0 ? world.max_age : max_age;
    e->expires = later(clock_value, max_age == SHALE_NONE ? 0 : max_age);
}
static void keep(entry *e, int64_t period) {
    period = period == 0 ? world.stale : period;
    e->stale = period == SHALE_NONE ? 0 : period;
}

/* The state of an entry that may have been present, and is missing. */
static int missed(void) {
    return world.unmended ? maybe : residual;
}

/* A read of an entry that may be present. If it is not, it was evicted (design.md, "Eviction"), or displaced by
 * entries that came back; an entry once found missing stays so until a rebuild (recovery.md, "A power failure"). */
static bool may_be_missing(const entry *e) {
    return e->where == residual || (e->where == maybe && tolerated(0, "evicted, or displaced"));
}

/* The cache may have evicted by now any entry that it may evict. */
static void doubt(void) {
    for (int i = 0; i < key_count; i++)
        if (world.entries[i].where == present && !world.entries[i].pinned)
            world.entries[i].where = maybe;
}
static void before_write(void) {
    if (world.evicts)
        doubt();
}

static shale_cache *a_handle(unsigned choice) {
    shale_cache *cache = world.handles[choice % handle_count];
    return cache ? cache : world.handles[(choice + 1) % handle_count];
}

#define EXPECT(expression)                                                                                             \
    do {                                                                                                               \
        if (!(expression))                                                                                             \
            FAIL("key %u at %" PRId64 ": %s (%s)", key, clock_value, #expression, shale_last_error());                 \
    } while (0)

/* ---- reading ---------------------------------------------------------------- */

static void check_value(unsigned key, shale_status status, uint32_t flags, const shale_value *value) {
    entry *e = &world.entries[key];
    enum state state = state_of(e);
    bool visible = state == fresh || (state == stale && flags & SHALE_GET_STALE);
    count_look();
    if (status == SHALE_MISS) {
        EXPECT(!visible || may_be_missing(e));
        EXPECT(value->size == 0 && value->meta_size == 0);
        if (e->where == maybe && visible)
            e->where = missed();
        return;
    }
    EXPECT(status == SHALE_OK || status == SHALE_STALE);
    EXPECT(visible && e->where != residual);
    EXPECT((status == SHALE_OK) == (state == fresh));
    /* A rebuild may need its place for entries that come back. And of those, SHALE_GET_INFO has checked no parts. */
    e->where = world.unmended || (flags & SHALE_GET_INFO && e->where == maybe && e->size > least_large) ? maybe
                                                                                                        : present;
    EXPECT(value->size == e->size && value->meta_size == e->meta_size);
    EXPECT(value->version == e->version);
    EXPECT(value->expires_ms == e->expires);
    EXPECT(value->created_ms == e->created);
    EXPECT(!(value->flags & SHALE_VALUE_PINNED) == !e->pinned);
    EXPECT(!(value->flags & SHALE_VALUE_STALE) == (state == fresh));
    if (value->meta_size) {
        EXPECT(memcmp(value->meta, &e->serial, value->meta_size < 4 ? value->meta_size : 4) == 0);
    }
    if (flags & SHALE_GET_INFO)
        return;
    if (e->is_counter)
        memcpy(expected, &e->number, 8);
    else
        fill(expected, e->serial, e->size);
    EXPECT(memcmp(value->data, expected, value->size) == 0);
}

static void get(shale_cache *cache, unsigned key, uint32_t flags) {
    char name[256];
    shale_value value = SHALE_VALUE_INIT;
    size_t size = name_of(key, name);
    check_value(key, shale_get(cache, name, size, flags, &value), flags, &value);
    shale_value_free(&value);
}

static void get_many(shale_cache *cache, unsigned first, uint32_t flags) {
    static char names[key_count][256];
    shale_bytes keys[key_count];
    shale_value values[key_count];
    shale_status statuses[key_count];
    for (unsigned i = 0; i < key_count; i++) {
        keys[i] = (shale_bytes){names[i], name_of((first + i) % key_count, names[i])};
        values[i] = (shale_value)SHALE_VALUE_INIT;
    }
    ASSERT(shale_get_many(cache, key_count, keys, flags, values, statuses) == SHALE_OK);
    for (unsigned i = 0; i < key_count; i++) {
        check_value((first + i) % key_count, statuses[i], flags, &values[i]);
        shale_value_free(&values[i]);
    }
}

static int key_number(const shale_value *name) {
    char expected_name[256];
    for (unsigned key = 0; key < key_count; key++) {
        size_t size = name_of(key, expected_name);
        if (name->size == size && memcmp(name->data, expected_name, size) == 0)
            return (int)key;
    }
    return -1;
}

static void walk(shale_cache *cache, uint32_t flags) {
    shale_cursor *cursor;
    ASSERT(shale_cursor_open(cache, &cursor) == SHALE_OK);
    shale_value name = SHALE_VALUE_INIT, value = SHALE_VALUE_INIT;
    bool seen[key_count] = {false};
    shale_status status;
    while ((status = shale_cursor_next(cursor, flags, &name, &value)) != SHALE_END) {
        int key = key_number(&name);
        if (key < 0)
            FAIL("the cursor returns a key that was never set");
        check_value((unsigned)key, status, flags, &value);
        if (seen[key])
            FAIL("key %d came twice, and nothing has moved", key);
        seen[key] = true;
    }
    for (unsigned key = 0; key < key_count; key++) {
        entry *e = &world.entries[key];
        enum state state = state_of(e);
        if (!seen[key] && (state == fresh || (state == stale && flags & SHALE_GET_STALE))) {
            EXPECT(may_be_missing(e));
            if (e->where == maybe)
                e->where = missed();
        }
    }
    shale_cursor_close(cursor);
    shale_value_free(&name);
    shale_value_free(&value);
}

/* ---- writing ----------------------------------------------------------------- */

static void new_version(unsigned key, uint64_t version) {
    EXPECT(version > world.last_version);
    world.entries[key].version = world.last_version = version;
}

/* A failed call leaves the key as it was. Without pinned entries there is always room; pinning may be refused, and
 * beside pinned entries others may find none: space.md, "Pinned entries". */
static bool is_full(unsigned key, shale_status status) {
    count_look();
    if (status != SHALE_E_FULL)
        return false;
    EXPECT(world.evicts && world.has_pinned);
    return tolerated(1, "full of pinned entries");
}

static void set(shale_cache *cache, const command *c, unsigned key) {
    static uint8_t bytes[most_value];
    char name[256];
    entry *e = &world.entries[key], next = {.where = present};
    /* If everything has to fit, few are large. */
    const size_t most[] = {10, 500, world.evicts || key < large_keys ? 20001 : 2001,
                           world.evicts ? (size_t)world.capacity / 4 + 2 : 2001};
    next.size = (c->d >> 2) % most[c->d & 3];
    next.meta_size = c->e >> 40 & 1 ? c->e >> 41 & 127 : 0;
    next.serial = ++world.serial;
    next.tags = c->e >> 48 & 15;
    next.pinned = c->b & 8;
    world.has_pinned = world.has_pinned || next.pinned;
    next.created = clock_value;
    fill(bytes, next.serial, next.size);
    uint8_t meta[128];
    for (size_t i = 0; i < sizeof meta; i += 4)
        memcpy(meta + i, &next.serial, 4);
    static const char tag_names[tag_count][2] = {"a", "b", "c", "d"};
    shale_bytes tags[tag_count];
    size_t tagged = 0;
    for (unsigned tag = 0; tag < tag_count; tag++)
        if (next.tags & 1u << tag)
            tags[tagged++] = (shale_bytes){tag_names[tag], 1};
    uint64_t version = 0;
    static const uint32_t conditions[] = {
        0, 0, 0, 0, 0, SHALE_SET_IF_ABSENT, SHALE_SET_IF_PRESENT, SHALE_SET_IF_VERSION};
    uint32_t condition = conditions[c->b & 7];
    shale_set_options options = {
        .struct_size = sizeof options,
        .flags = condition | (next.pinned ? SHALE_SET_PINNED : 0) | (c->b & 16 ? SHALE_SET_UNCOMPRESSED : 0),
        .max_age_ms = ages[c->e % 10],
        .stale_ms = ages[(c->e >> 8) % 10],
        .version = c->e >> 16 & 3 ? e->version : c->e >> 18,
        .meta = meta,
        .meta_size = next.meta_size,
        .tags = tags,
        .tag_count = tagged,
        .new_version = &version,
    };
    age(&next, options.max_age_ms);
    keep(&next, options.stale_ms);
    before_write();
    enum state state = state_of(e);
    /* The condition's result if the entry is present; the same as for a dead one if it is not. */
    bool holds_there = condition == SHALE_SET_IF_ABSENT    ? state != fresh
                       : condition == SHALE_SET_IF_PRESENT ? state == fresh
                       : condition == SHALE_SET_IF_VERSION ? state != dead && options.version == e->version
                                                           : true;
    bool holds_absent = condition == 0 || condition == SHALE_SET_IF_ABSENT;
    size_t size = name_of(key, name);
    shale_status status = shale_set(cache, name, size, bytes, next.size, &options);
    if (is_full(key, status))
        return;
    if (next.size > world.capacity / 4) {
        EXPECT(status == SHALE_E_TOO_LARGE);
        return;
    }
    EXPECT(status == SHALE_OK || status == SHALE_CONFLICT);
    bool holds = status == SHALE_OK;
    switch (e->where) {
    case present: EXPECT(holds == holds_there); break;
    case maybe:
        EXPECT(holds == holds_there || holds == holds_absent);
        if (holds_there != holds_absent)
            e->where = holds == holds_there || !may_be_missing(e) ? present : missed();
        break;
    default: EXPECT(holds == holds_absent);
    }
    if (!holds)
        return;
    *e = next;
    new_version(key, version);
    if (state_of(e) == dead)
        e->where = absent;
}

static void increment(shale_cache *cache, const command *c, unsigned key) {
    char name[256];
    size_t size = name_of(key, name);
    entry *e = &world.entries[key];
    int64_t delta = (int64_t)(c->d & 1 ? c->e : c->e % 1000), initial = (int64_t)(c->d >> 1), sum = 0, result = 0;
    before_write();
    shale_status status = shale_increment(cache, name, size, delta, initial, &result);
    if (is_full(key, status))
        return;
    bool overflows = __builtin_add_overflow(initial, delta, &sum);
    if (state_of(e) == fresh && (e->where == present || e->where == maybe)) {
        int64_t next = 0;
        /* A value of 8 bytes is a counter, also if a set stored it. */
        int64_t before = e->number;
        if (!e->is_counter && e->size == 8) {
            fill(expected, e->serial, 8);
            memcpy(&before, expected, 8);
        }
        bool fails = e->size != 8 || __builtin_add_overflow(before, delta, &next);
        if (status == (fails ? SHALE_E_INVALID : SHALE_OK) && (fails || result == next) &&
            (e->where == present || fails != overflows || next != sum)) {
            e->where = present;
            if (!fails) {
                e->is_counter = true;
                e->number = next;
                goto versioned;
            }
            return;
        }
        EXPECT(e->where == maybe && may_be_missing(e));
    }
    EXPECT(status == (overflows ? SHALE_E_INVALID : SHALE_OK));
    if (overflows)
        return;
    EXPECT(result == sum);
    {
        entry next = {.where = present, .is_counter = true, .size = 8, .number = sum, .created = clock_value};
        age(&next, 0);
        keep(&next, 0);
        *e = next;
    }
versioned:
    { /* increment does not return its version */
        shale_value value = SHALE_VALUE_INIT;
        status = shale_get(cache, name, size, SHALE_GET_STALE | SHALE_GET_PEEK, &value);
        if (status >= 0 && status != SHALE_MISS)
            new_version(key, value.version);
        else
            EXPECT(state_of(e) == dead);
        if (state_of(e) == dead)
            e->where = absent;
        shale_value_free(&value);
    }
}

static void remove_key(shale_cache *cache, const command *c, unsigned key) {
    char name[256];
    size_t size = name_of(key, name);
    entry *e = &world.entries[key];
    uint64_t version = c->d & 1 ? 0 : c->d & 2 ? e->version : c->e;
    before_write();
    shale_status status = shale_remove(cache, name, size, version);
    if (is_full(key, status))
        return;
    bool is_there = state_of(e) != dead && (e->where == present || e->where == maybe);
    bool agrees = version == 0 || version == e->version;
    if (status == SHALE_MISS) {
        EXPECT(!is_there || may_be_missing(e));
        if (version == 0)
            e->where = absent;
        else if (e->where == maybe && is_there)
            e->where = missed();
        return;
    }
    EXPECT(is_there);
    EXPECT(status == (agrees ? SHALE_OK : SHALE_CONFLICT));
    e->where = agrees ? absent : present;
}

static void touch(shale_cache *cache, const command *c, unsigned key) {
    char name[256];
    size_t size = name_of(key, name);
    entry *e = &world.entries[key];
    int64_t max_age = ages[c->e % 10];
    before_write();
    shale_status status = shale_touch(cache, name, size, max_age);
    if (is_full(key, status))
        return;
    bool is_there = state_of(e) != dead && (e->where == present || e->where == maybe);
    if (status == SHALE_MISS) {
        EXPECT(!is_there || may_be_missing(e));
        if (is_there)
            e->where = missed();
        return;
    }
    EXPECT(status == SHALE_OK && is_there);
    e->where = present;
    age(e, max_age);
    if (state_of(e) == dead)
        e->where = absent;
}

static void invalidate(shale_cache *cache, const command *c) {
    char tag = (char)('a' + c->a % tag_count);
    unsigned key = 0;
    before_write();
    shale_status status = shale_invalidate(cache, &tag, 1);
    if (is_full(key, status)) { /* it may have happened in some shards */
        for (key = 0; key < key_count; key++)
            if (world.entries[key].tags & 1u << c->a % tag_count && world.entries[key].where == present)
                world.entries[key].where = maybe;
        return;
    }
    EXPECT(status == SHALE_OK);
    for (key = 0; key < key_count; key++)
        if (world.entries[key].tags & 1u << c->a % tag_count)
            world.entries[key].where = absent;
}

/* ---- opening, closing, rebuilding ------------------------------------------------ */

static void open_handle(unsigned which, uint32_t flags) {
    if (world.handles[which])
        return;
    shale_options options = world.options;
    options.flags = flags;
    ASSERT(shale_open(scratch_directory(), &options, &world.handles[which]) == SHALE_OK);
}
static void close_handle(unsigned which) {
    if (world.handles[which])
        ASSERT(shale_close(world.handles[which]) == SHALE_OK);
    world.handles[which] = NULL;
}

/* Evicted entries may be present again after a rebuild. */
static void rebuilt(void) {
    for (int i = 0; i < key_count; i++)
        if (world.entries[i].where == residual)
            world.entries[i].where = maybe;
    before_write(); /* returned entries may have displaced others */
}

/* format.md */
enum { index_head = 3 * 4096, shard_state = 192, shard_head_offset = 264, shard_begun_offset = 312 };

static void reopen(const command *c) {
    for (unsigned i = 0; i < handle_count; i++)
        close_handle(i);
    switch (c->a % 4) {
    case 0: break;
    case 1: /* after a power cut that lost nothing */
        scratch_unlink("shale.index");
        world.unmended = false;
        rebuilt();
        break;
    default: { /* a process was killed while it was writing, before it had appended anything, or rebuilding */
        int fd = scratch_open("shale.index", O_RDWR);
        uint64_t state = c->a % 4 - 1, offset;
        if (pread(fd, &offset, 8, index_head + shard_head_offset) != 8 ||
            pwrite(fd, &offset, 8, index_head + shard_begun_offset) != 8 ||
            pwrite(fd, &state, 8, index_head + shard_state) != 8)
            FAIL("write: %s", strerror(errno));
        close(fd);
        world.unmended = true;
        rebuilt();
        break;
    }
    }
    open_handle(c->b & 1, c->b & 2 ? SHALE_OPEN_NO_SYNC : 0);
    if (c->b & 4) { /* locks every shard */
        ASSERT(shale_sync(world.handles[c->b & 1]) == SHALE_OK);
        world.unmended = false;
    }
}

static void read_only(const command *c) {
    shale_options options = world.options;
    options.flags = SHALE_OPEN_READ_ONLY;
    options.capacity = options.max_entries = 0;
    shale_cache *cache = NULL;
    ASSERT(shale_open(scratch_directory(), &options, &cache) == SHALE_OK);
    for (unsigned key = 0; key < key_count; key++)
        get(cache, key, c->b & 7);
    walk(cache, SHALE_GET_STALE);
    ASSERT(shale_set(cache, "x", 1, "y", 1, NULL) == SHALE_E_PERMISSION);
    ASSERT(shale_close(cache) == SHALE_OK);
}

static void check_sums(shale_cache *cache) {
    shale_report report = {.struct_size = sizeof report};
    shale_stats stats = {.struct_size = sizeof stats};
    ASSERT(shale_verify(cache, &report) == SHALE_OK && shale_get_stats(cache, &stats) == SHALE_OK);
    ASSERT(report.corrupt_records == 0 && stats.corrupt_records == 0);
    ASSERT(stats.data_bytes + stats.index_bytes <= stats.capacity);
    ASSERT(stats.entries <= key_count && report.records >= stats.entries);
    if (!world.evicts) {
        unsigned there = 0;
        for (int i = 0; i < key_count; i++)
            there += world.entries[i].where == present && state_of(&world.entries[i]) != dead;
        ASSERT(stats.entries >= there);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    command c = {0};
    read_command(data, size, 0, &c);
    memset(&world, 0, sizeof world);
    random_state = c.e;
    clock_value = CLOCK_START;
    world.evicts = c.a & 1;
    world.capacity = c.a & 2 ? 4 << 20 : 1 << 20;
    world.max_age = c.a & 4 ? 60000 : SHALE_NEVER;
    world.stale = c.a & 8 ? 30000 : SHALE_NONE;
    world.options = (shale_options){
        .struct_size = sizeof world.options,
        .capacity = world.capacity,
        .max_age_ms = c.a & 4 ? 60000 : 0,
        .stale_ms = c.a & 8 ? 30000 : 0,
        .shards = world.capacity == 1 << 20 ? 1 : 1 + c.b % 3,
        .max_entries = world.evicts && c.a & 16 ? 1 + c.b % 16 : 0,
        .compression = c.c % 3,
        .now_ms = clock_now,
    };
    int descriptor = (scratch_directory(), lowest_descriptor());
    scratch_unlink("shale.data");
    scratch_unlink("shale.index");
    open_handle(0, 0);
    if (c.a & 32)
        open_handle(1, 0);
    for (size_t n = 1; read_command(data, size, n, &c); n++) {
        shale_cache *cache = a_handle(c.c);
        unsigned key = c.a % key_count;
        switch (c.code % 24) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4: set(cache, &c, key); break;
        case 5:
        case 6: get(cache, key, c.b & 7); break;
        case 7: remove_key(cache, &c, key); break;
        case 8: touch(cache, &c, key); break;
        case 9: increment(cache, &c, key); break;
        case 10: invalidate(cache, &c); break;
        case 11: /* less often than by its share */
            if (c.b % 4)
                break;
            ASSERT(shale_clear(cache) == SHALE_OK);
            for (int i = 0; i < key_count; i++)
                world.entries[i].where = absent;
            break;
        case 12: {
            uint64_t evicted = 0;
            ASSERT(shale_evict(cache, c.b % 4, &evicted) == SHALE_OK && evicted <= c.b % 4);
            if (evicted)
                doubt();
            break;
        }
        case 13: {
            uint64_t purged;
            ASSERT(shale_purge(cache, &purged) == SHALE_OK && purged <= key_count);
            break;
        }
        case 14:
            clock_value += (int64_t)(c.b & 1 ? c.e % 1000 : c.b & 2 ? c.e % 100000 : c.e % (INT64_C(1) << 37));
            break;
        case 15: get_many(cache, key, c.b & 7); break;
        case 16: walk(cache, c.b & 7); break;
        case 17: check_sums(cache); break;
        case 18: ASSERT(shale_sync(cache) == SHALE_OK); break;
        case 19: open_handle(c.b % handle_count, c.b & 4 ? SHALE_OPEN_NO_SYNC : 0); break;
        case 20: /* one of two: there is always one left */
            if (world.handles[0] && world.handles[1])
                close_handle(c.b % handle_count);
            break;
        case 21: reopen(&c); break;
        case 22: read_only(&c); break;
        case 23: /* the same many times: the log goes round */
            for (unsigned i = 0; i < c.b % (c.d % 4 == 3 ? 8u : 64u); i++)
                set(cache, &c, key);
            break;
        }
    }
    for (unsigned key = 0; key < key_count; key++)
        get(a_handle(0), key, SHALE_GET_STALE);
    check_sums(a_handle(1));
    for (unsigned i = 0; i < handle_count; i++)
        close_handle(i);
    expect_nothing_left(descriptor);
    return 0;
}
