/* The C interface called as no program should: NULL, sizes of nothing and of everything, unknown sizes of structs,
 * flags and ages out of range, any options. Every call answers a status; nothing is written through pointers that
 * were not passed, and errors leave a message. */
#include "fuzz.h"

enum { most_bytes = 70100 };
static uint8_t bytes[most_bytes];

/* Sizes at which something changes. */
static size_t a_size(uint8_t choice) {
    static const size_t sizes[] = {0, 1, 2, 7, 8, 9, 100, 1000, 16384, 16385, 65534, 65535, 65536, 69999};
    return sizes[choice % (sizeof sizes / sizeof *sizes)];
}
/* Sizes that no memory can have: refused before any byte is read. */
static size_t a_false_size(uint64_t e) {
    static const size_t sizes[] = {SIZE_MAX,        SIZE_MAX / 2,          SIZE_MAX / 2 + 1, SIZE_MAX - 7,
                                   (size_t)1 << 40, ((size_t)1 << 32) + 1, (size_t)1 << 31};
    return sizes[e % (sizeof sizes / sizeof *sizes)];
}

static shale_bytes a_key(const command *c) {
    shale_bytes key = {bytes + c->a % 64, a_size(c->a)};
    if (c->a & 64)
        key.data = NULL;
    if (c->a & 128)
        key.size = a_false_size(c->e);
    return key;
}
static shale_bytes a_value(const command *c) {
    shale_bytes value = {bytes + c->b % 64, a_size(c->b)};
    if (c->b & 64)
        value.data = NULL;
    if (c->b & 128)
        value.size = a_false_size(c->e >> 8);
    return value;
}

static void check(shale_status status) {
    ASSERT(status >= SHALE_E_PERMISSION && status <= SHALE_END);
    ASSERT(strcmp(shale_status_text(status), "unknown status") != 0);
    if (status < 0) {
        size_t length = strnlen(shale_last_error(), 1025);
        ASSERT(length > 0 && length < 1025);
    }
}

/* A struct of any size in memory of exactly that size, so that accesses beyond it are detected. */
static void *sized(const void *full, size_t full_size, uint32_t size) {
    size_t known = size < 4 ? 4 : size < 1024 ? size : 1024;
    uint8_t *copy = malloc(known);
    ASSERT(copy);
    memset(copy, 0xa5, known);
    memcpy(copy, full, known < full_size ? known : full_size);
    memcpy(copy, &size, 4);
    return copy;
}
static uint32_t a_struct_size(const command *c, size_t right) {
    switch (c->c & 7) {
    case 0: return (uint32_t)(c->d % (right + 1));
    case 1: return (uint32_t)right + c->d % 256;
    case 2: return 0;
    default: return (uint32_t)right;
    }
}

static void open_any(const command *c, shale_cache **cache) {
    static const uint64_t capacities[] = {0,       1,          1 << 20,           (1 << 20) - 1,
                                          4 << 20, UINT64_MAX, UINT64_C(1) << 44, (UINT64_C(1) << 44) + 1,
                                          3 << 20, 1 << 21};
    static const int64_t ages[] = {0, 1, -1, -2, INT64_MIN, INT64_MAX, INT64_MAX - 1, 60000};
    static const uint32_t segments[] = {0, 128 << 10, 256 << 10, 1, (128 << 10) + 1, 16 << 20, 32 << 20, UINT32_MAX};
    static const uint32_t shards[] = {0, 1, 2, 3, 64, 65536, 65537, UINT32_MAX};
    shale_options options = {
        .flags = c->b & 16 ? c->d : c->b & 7,
        .capacity = c->a & 1 ? c->e : capacities[(c->e & 15) % 10],
        .max_entries = c->a & 2 ? c->e >> 8 : c->e >> 4 & 15,
        .max_age_ms = c->a & 4 ? (int64_t)c->e : ages[c->e >> 8 & 7],
        .stale_ms = c->a & 8 ? (int64_t)c->e : ages[c->e >> 11 & 7],
        .shards = c->a & 16 ? c->d : shards[c->e >> 14 & 7],
        .segment_size = c->a & 32 ? c->d : segments[c->e >> 17 & 7],
        .mode = c->e >> 20 & 1   ? c->d
                : c->e >> 21 & 1 ? 0600
                                 : 0,
        .compression = c->e >> 22 & 1 ? (int32_t)c->d : (int32_t)(c->e >> 23 & 3),
        .now_ms = clock_now,
    };
    /* Only address space, but page tables for tens of thousands of shards take time. */
    if (options.capacity > 64 << 20 && options.capacity <= UINT64_C(1) << 44)
        options.capacity = 64 << 20;
    if (options.capacity == 0)
        options.capacity = 1 << 20;
    void *passed = sized(&options, sizeof options, a_struct_size(c, sizeof options));
    static const char *const odd[] = {
        "", "/", "/dev/null", "/dev/null/cache", "/proc/self", "/does-not-exist/\xff/cache", ".", NULL};
    const char *directory = c->c & 16 ? scratch_directory() : c->c & 32 ? odd[c->d % 8] : NULL;
    if (directory && directory != scratch_directory())
        ((shale_options *)passed)->struct_size < 8 ? (void)0
                                                   : (void)(((shale_options *)passed)->flags |= SHALE_OPEN_MUST_EXIST);
    if (c->c & 64) {
        check(shale_open(directory, passed, NULL));
    } else {
        shale_cache *opened = (shale_cache *)(uintptr_t)1;
        shale_status status = shale_open(directory, passed, &opened);
        check(status);
        ASSERT((status == SHALE_OK) == (opened != NULL));
        if (opened && *cache)
            check(shale_close(opened));
        else if (opened)
            *cache = opened;
    }
    free(passed);
}

static void set_any(const command *c, shale_cache *cache) {
    static const int64_t ages[] = {0, 1, -1, -2, INT64_MIN, INT64_MAX, 60000, -60000};
    shale_bytes tags[16], key = a_key(c), value = a_value(c);
    for (int i = 0; i < 16; i++) {
        tags[i] = (shale_bytes){bytes + i, a_size((uint8_t)(c->d >> i))};
        if (c->d >> 24 == 255)
            tags[i].data = NULL;
    }
    uint64_t version = 77;
    shale_set_options options = {
        .flags = c->c & 16 ? c->d : c->d & 31,
        .max_age_ms = ages[c->d >> 5 & 7],
        .stale_ms = ages[c->d >> 8 & 7],
        .version = c->e,
        .meta = c->d >> 11 & 1 ? NULL : bytes,
        .meta_size = c->d >> 12 & 1 ? a_false_size(c->e) : a_size((uint8_t)(c->d >> 13 & 15)),
        .tags = c->d >> 17 & 1 ? NULL : tags,
        .tag_count = c->d >> 18 & 1 ? c->e : c->d >> 19 & 15,
        .new_version = c->d >> 23 & 1 ? NULL : &version,
    };
    if (options.tags == NULL && options.tag_count == 0)
        options.meta_size = 0;
    void *passed = c->c & 32 ? NULL : sized(&options, sizeof options, a_struct_size(c, sizeof options));
    shale_status status = shale_set(cache, key.data, key.size, value.data, value.size, passed);
    check(status);
    if (status != SHALE_OK)
        ASSERT(version == 77);
    else if (!(key.data && key.size && key.size <= SHALE_MAX_KEY_SIZE))
        FAIL("a key of %zu bytes at %p was taken", key.size, key.data);
    shale_bytes keys[3] = {key, {bytes, 3}, key}, values[3] = {value, {bytes, 5}, value};
    shale_status statuses[3] = {99, 99, 99};
    status = shale_set_many(cache, c->c >> 6, c->d & 64 ? NULL : keys, c->d & 128 ? NULL : values, passed,
                            c->d & 256 ? NULL : statuses);
    check(status);
    free(passed);
}

static void get_any(const command *c, shale_cache *cache) {
    shale_bytes key = a_key(c);
    uint32_t flags = c->c & 16 ? c->d : c->d & 7;
    shale_value value = SHALE_VALUE_INIT;
    if (c->c & 32)
        value.struct_size = (uint32_t)(c->d >> 8) % (sizeof value + 40);
    bool sound = value.struct_size >= sizeof value;
    shale_status status = shale_get(cache, key.data, key.size, flags, c->c & 64 ? NULL : &value);
    check(status);
    if (status == SHALE_OK || status == SHALE_STALE) {
        ASSERT(sound && !(c->c & 64) && value.data);
        ASSERT(flags & SHALE_GET_INFO || value.size + value.meta_size <= value.capacity);
    } else if (sound) {
        ASSERT(value.size == 0 && value.meta_size == 0);
    }
    if (sound) {
        shale_value values[3] = {value, SHALE_VALUE_INIT, SHALE_VALUE_INIT};
        shale_bytes keys[3] = {key, {bytes, 3}, {NULL, c->e & 1}};
        shale_status statuses[3];
        check(shale_get_many(cache, c->b & 3, c->b & 4 ? NULL : keys, flags, c->b & 8 ? NULL : values,
                             c->b & 16 ? NULL : statuses));
        check(shale_get_many(cache, c->b & 32 ? SIZE_MAX : 0, NULL, flags, NULL, NULL));
        for (int i = 0; i < 3; i++)
            shale_value_free(&values[i]);
    }
}

static void lease_any(const command *c, shale_cache *cache) {
    shale_bytes key = a_key(c);
    shale_lease_options options = {
        .flags = c->c & 16 ? c->d : c->d & 7,
        .lease_ms = c->c & 32 ? (int64_t)c->e : c->d & 0xFFFF,
        .wait_ms = c->c & 64 ? INT64_MIN : c->d & 1, /* or every input would wait */
        .refresh_ahead_ms = c->c & 128 ? (int64_t)c->e : 0,
    };
    void *passed = c->b & 1 ? NULL : sized(&options, sizeof options, a_struct_size(c, sizeof options));
    shale_value value = SHALE_VALUE_INIT;
    uint64_t lease = 77;
    shale_status status = shale_lease(cache, key.data, key.size, passed, c->b & 2 ? NULL : &value,
                                      c->b & 4 ? NULL : &lease);
    check(status);
    ASSERT(status >= 0 || lease == 0 || c->b & 4);
    if (status != SHALE_OK && status != SHALE_STALE)
        ASSERT(value.size == 0 && value.meta_size == 0);
    if (c->b & 8)
        check(shale_release(cache, key.data, key.size, c->b & 16 ? c->e : lease));
    shale_value_free(&value);
    free(passed);
}

static void walk_any(const command *c, shale_cache *cache) {
    shale_cursor *cursor = NULL;
    check(shale_cursor_open(cache, c->c & 16 ? NULL : &cursor));
    if (!cache)
        ASSERT(cursor == NULL);
    shale_value key = SHALE_VALUE_INIT, value = SHALE_VALUE_INIT;
    if (c->c & 32)
        key.struct_size = c->d % 100;
    if (c->c & 64)
        value.struct_size = c->d % 100;
    bool sound = key.struct_size >= sizeof key && value.struct_size >= sizeof value;
    shale_status status;
    unsigned steps = 0;
    do {
        status = shale_cursor_next(cursor, c->c & 128 ? c->d : c->d & 7, c->b & 1 ? NULL : &key,
                                   c->b & 2 ? NULL : &value);
        check(status);
        ASSERT(++steps < 100000);
    } while (status == SHALE_OK || status == SHALE_STALE);
    if (sound)
        ASSERT(status == SHALE_END || status < 0);
    shale_cursor_close(cursor);
    if (key.struct_size >= sizeof key)
        shale_value_free(&key);
    if (value.struct_size >= sizeof value)
        shale_value_free(&value);
}

static void report_any(const command *c, shale_cache *cache) {
    shale_report report = {0};
    shale_stats stats = {0};
    void *passed = sized(&report, sizeof report, a_struct_size(c, sizeof report));
    check(shale_verify(cache, c->c & 16 ? NULL : passed));
    free(passed);
    passed = sized(&stats, sizeof stats, a_struct_size(c, sizeof stats));
    check(shale_get_stats(cache, c->c & 32 ? NULL : passed));
    free(passed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    shale_cache *cache = NULL;
    command c;
    random_state = size;
    clock_value = CLOCK_START;
    for (size_t i = 0; bytes[most_bytes - 1] == 0 && i < most_bytes; i++)
        bytes[i] = (uint8_t)(i * 7 % 251 + 1);
    scratch_directory();
    int descriptor = lowest_descriptor();
    for (size_t n = 0; read_command(data, size, n, &c); n++) {
        /* A NULL cache is an argument like another. */
        shale_cache *passed = c.code & 16 ? NULL : cache;
        shale_bytes key = a_key(&c);
        uint64_t count = 77;
        int64_t sum = 77;
        switch (c.code & 15) {
        case 0: open_any(&c, &cache); break;
        case 1:
        case 2: set_any(&c, passed); break;
        case 3:
        case 4: get_any(&c, passed); break;
        case 5:
            check(c.c & 16 ? shale_expire(passed, key.data, key.size) : shale_remove(passed, key.data, key.size, c.e));
            break;
        case 6: check(shale_touch(passed, key.data, key.size, c.c & 16 ? (int64_t)c.e : (int64_t)c.b - 3)); break;
        case 7:
            check(shale_increment(passed, key.data, key.size, (int64_t)c.e, (int64_t)c.d, c.c & 16 ? NULL : &sum));
            break;
        case 8: check(shale_invalidate_with(passed, key.data, key.size, c.c >> 4)); break;
        case 9: walk_any(&c, passed); break;
        case 10: report_any(&c, passed); break;
        case 11:
            check(shale_evict(passed, c.e, c.c & 16 ? NULL : &count));
            check(shale_purge(passed, c.c & 16 ? NULL : &count));
            ASSERT(c.c & 16 || count != 77 || passed);
            break;
        case 12: check(c.c & 1 ? shale_clear(passed) : shale_sync(passed)); break;
        case 13: {
            shale_bytes keys[3] = {key, {NULL, c.e & 1}, {bytes, 3}};
            shale_status statuses[3];
            check(shale_remove_many(passed, c.c & 16 ? SIZE_MAX : c.c & 3, c.c & 32 || c.c & 16 ? NULL : keys,
                                    c.c & 64 ? NULL : statuses));
            break;
        }
        case 14: /* the calls that take anything */
            lease_any(&c, passed);
            shale_value_free(NULL);
            shale_cursor_close(NULL);
            check(shale_close(NULL));
            ASSERT(strnlen(shale_status_text((shale_status)c.e), 100) < 100 && strlen(shale_version()) >= 5);
            clock_value = c.c & 16 ? (int64_t)c.e : clock_value + c.d;
            break;
        case 15:
            if (cache)
                check(shale_close(cache));
            cache = NULL;
            break;
        }
    }
    if (cache)
        check(shale_close(cache));
    scratch_unlink("shale.data");
    scratch_unlink("shale.index");
    expect_nothing_left(descriptor);
    return 0;
}
