/* Every system call, every allocation and every lock that an operation needs fails: the first, the second, and so on
 * until the operation meets no failure; each once alone, and once with all that follow. pread and pwrite also
 * transfer less than was asked for.
 *
 * Whatever fails, the call answers a documented status with a message that names the cause, or succeeds if the
 * failure does not matter. No stored value is lost, nothing leaks, no lock stays held, `du` stays under the
 * capacity, and the same call succeeds once nothing fails any more.
 *
 * failing_calls [errnos of each call at each place, 1] [seed] [scenario] */
#include "afterwards.h"
#include "resources.h"
#include "stored.h"

#include "faults.h"

/* ---- calls that can fail ------------------------------------------------------ */

enum { most_errors = 12 };

static const struct {
    const char *call;
    int errors[most_errors];
} calls[] = {
    {"open", {EMFILE, ENFILE, EACCES, ENOENT, ENOTDIR, ELOOP, ENOMEM, EIO}},
    {"openat", {EMFILE, ENFILE, EACCES, EPERM, EROFS, ENOENT, EEXIST, ELOOP, ENOMEM, ENOSPC, EDQUOT, EIO}},
    {"mkdir", {EACCES, EPERM, EROFS, ENOSPC, EDQUOT, EMLINK, ENOENT, ENOMEM, EIO}},
    {"unlinkat", {EACCES, EPERM, EROFS, ENOENT, EBUSY, EIO}},
    {"lseek", {EINVAL, ENXIO, EIO}},
    {"renameat", {EACCES, EPERM, EROFS, ENOSPC, EDQUOT, ENOENT, ENOMEM, EIO}},
    {"pread", {EIO, ENOMEM}},
    {"pwrite", {EIO, ENOSPC, EDQUOT, EFBIG, ENOMEM}},
    {"fdatasync", {EIO, ENOSPC, EDQUOT}},
    {"fsync", {EIO, ENOSPC, EDQUOT, EINVAL}},
    {"fchmod", {EPERM, EROFS, EIO}},
    {"fallocate", {ENOSPC, EDQUOT, EFBIG, EIO, EOPNOTSUPP, ENOSYS, ENODEV, EPERM, ENOMEM}},
    {"punch", {EOPNOTSUPP, ENOSYS, EIO, EPERM, ENOSPC, ENOMEM}},
    {"lock", {ENOLCK, EAGAIN, EINVAL, EOPNOTSUPP, EIO}},
    {"is_locked", {EINVAL, EOPNOTSUPP, EIO}},
    {"mmap", {ENOMEM, EAGAIN, ENFILE, ENODEV, EACCES, EPERM}},
    {"release", {EACCES, EINVAL, EOPNOTSUPP, ENOMEM}},
    {"fstat", {EIO, ENOMEM}},
    {"fstatat", {ENOENT, EACCES, ELOOP, ENOMEM, EIO}},
    {"filesystem", {EIO, ENOMEM, ENOSYS}},
    {"random", {EAGAIN, ENOSYS}},
    /* (Without /proc, boot and namespace are unknown, which is no failure.) */
    {"read_file", {EMFILE, ENFILE, ENOMEM, EIO}},
    {"has_foreign_files", {EMFILE, ENFILE, EACCES, ENOMEM, EIO}},
    {"close", {EIO, ENOSPC, EDQUOT, EINTR}},
    {"pid_namespace", {ENOMEM, EIO}},
    {"owner_open", {EMFILE, ENFILE, EACCES, ENOMEM, EIO}},
    {"owner_lock", {ENOLCK, ENOMEM, EIO}},
    {"owner_map", {ENOMEM, EAGAIN}},
    {"malloc", {ENOMEM}},
};
enum { call_count = sizeof calls / sizeof calls[0] };

/* The current fault: call number `first`, and perhaps all after it, answers `answer`. */
static struct {
    bool armed, onwards;
    int call; /* -1: nothing fails, all are counted */
    long answer, first;
    long seen[call_count], injected;
} fault;

static long answer_call(const char *name) {
    if (!fault.armed)
        return 0;
    for (int i = 0; i < call_count; i++) {
        if (strcmp(name, calls[i].call) != 0)
            continue;
        long number = ++fault.seen[i];
        if (i != fault.call || number < fault.first || (number > fault.first && !fault.onwards))
            return 0;
        fault.injected++;
        return fault.answer;
    }
    return 0;
}

/* ---- the contents ----------------------------------------------------- */

enum { key_count = 1500 };

static char *directory;     /* of the cache; NULL in memory */
static char *message_path;  /* names that messages have to contain */
static uint64_t capacity;   /* that du must not exceed */
static shale_cache *cache;
static uint64_t seed, statuses, harmless;
static bool strict;         /* nothing fails: everything has to succeed */
/* Entries may have been evicted (design.md, "Eviction"): if the capacity shrinks, and once the disk was full. See
 * stored.h */
static bool evicts;
static const char *scenario_name = "none";

static int64_t counter;

static const char *place(void) {
    static char text[200];
    if (fault.call < 0)
        snprintf(text, sizeof text, "scenario %s without faults", scenario_name);
    else
        snprintf(text, sizeof text, "scenario %s, %s number %ld%s answers %ld (%s)", scenario_name,
                 calls[fault.call].call, fault.first, fault.onwards ? " and all after it" : "", fault.answer,
                 fault.answer < 0 ? strerror((int)-fault.answer) : "bytes");
    return text;
}

#define EXPECT(expression, ...) expect((expression), __LINE__, #expression, __VA_ARGS__)
static bool expect(bool holds, int line, const char *expression, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static bool expect(bool holds, int line, const char *expression, const char *format, ...) {
    if (holds) {
        check_count++;
        return true;
    }
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return check_that(false, __FILE__, line, expression, ": %s: %s", place(), text);
}

/* Whether a call succeeded; if not, checks that its status and its message tell a user what to do. */
static bool succeeded(shale_status status, const char *what) {
    if (status >= 0)
        return true;
    const char *sentence = shale_last_error();
    int code = shale_last_errno();
    statuses++;
    EXPECT(!strict, "%s fails though nothing does any more: %s", what, sentence);
    EXPECT(status == SHALE_E_IO || status == SHALE_E_FULL || status == SHALE_E_MEMORY || status == SHALE_E_PERMISSION ||
               status == SHALE_E_BUSY,
           "%s answers %d (%s)", what, status, sentence);
    EXPECT(strlen(sentence) > 20 &&
               (strstr(sentence, message_path) || strstr(sentence, "memory") || strstr(sentence, "/proc/")),
           "%s says: %s", what, sentence);
    EXPECT(code == 0 || code == -fault.answer, "%s gives errno %d (%s)", what, code, sentence);
    EXPECT(code != 0 || status != SHALE_E_IO, "%s gives no errno (%s)", what, sentence);
    EXPECT(code == 0 || strstr(sentence, strerror(code)), "%s does not say why: %s", what, sentence);
    if (strcmp(calls[fault.call].call, "malloc") == 0)
        EXPECT(status == SHALE_E_MEMORY, "%s answers %d (%s)", what, status, sentence);
    return false;
}

static bool put(uint64_t key, size_t size, uint32_t flags) {
    return succeeded(store(cache, key, size, flags), "shale_set");
}

static void check_value(uint64_t key, shale_status status, const shale_value *value) {
    const char *wrong = stored_mismatch(key, status, value, evicts);
    EXPECT(!wrong, "key %" PRIu64 ": %s", key, wrong ? wrong : "");
    if (status == SHALE_MISS)
        stored[key].version = 0; /* the key stays absent */
    succeeded(status, "shale_get");
}

/* Reads back every key; `step` > 1: one in `step`. */
static void check_contents(shale_cache *of, uint64_t step) {
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t key = 0; key < key_count; key += key < 64 ? 1 : step)
        check_value(key, shale_get(of, &key, sizeof key, 0, &value), &value);
    shale_status status = shale_get(of, "counter", 7, 0, &value);
    int64_t found = 0;
    if (status == SHALE_OK && EXPECT(value.size == 8, "the counter has %zu bytes", value.size))
        memcpy(&found, value.data, 8);
    EXPECT(status == SHALE_OK ? found == counter : counter == 0 || (evicts && tolerated(0, "evicted")),
           "the counter is %" PRId64 " instead of %" PRId64, found, counter);
    shale_value_free(&value);
}

static void check_disk(void) {
    if (directory) {
        uint64_t bytes = disk_usage(directory);
        EXPECT(bytes <= capacity, "du says %" PRIu64 ", the capacity is %" PRIu64, bytes, capacity);
    }
}

/* Another process opens the cache, reads and writes. */
static void check_from_outside(void) {
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        strict = true;
        cache = NULL;
        shale_options options = {.struct_size = sizeof options, .flags = SHALE_OPEN_NO_SYNC};
        if (succeeded(shale_open(directory, &options, &cache), "shale_open")) {
            check_contents(cache, 97);
            succeeded(shale_set(cache, "outside", 7, "value", 5, NULL), "shale_set");
            succeeded(shale_close(cache), "shale_close");
        }
        _exit(check_failures != 0);
    }
    int code = wait_for(child);
    EXPECT(code == 0, "another process ends with %d", code);
}

/* ---- scenarios ---------------------------------------------------------- */

enum { mib = 1 << 20 };

static int32_t policy;

static shale_options options_of(uint64_t bytes) {
    return (shale_options){
        .struct_size = sizeof(shale_options), .capacity = bytes, .flags = SHALE_OPEN_NO_SYNC, .eviction = policy};
}

static bool open_with(shale_options options) {
    if (cache)
        return true;
    bool done = succeeded(shale_open(directory, &options, &cache), "shale_open");
    EXPECT(done == (cache != NULL), "the handle is %p", (void *)cache);
    return done;
}

static bool close_cache(void) {
    shale_cache *closing = cache;
    cache = NULL;
    return succeeded(shale_close(closing), "shale_close");
}

static void clear_expected(void) {
    clear_stored();
    counter = 0;
}

/* Some entries, also pinned ones, in a cache of 3 MiB that is then closed. */
static void prepare_closed(uint64_t bytes) {
    strict = true;
    capacity = bytes;
    REQUIRE(open_with(options_of(bytes)));
    for (uint64_t key = 0; key < 24; key++)
        if (stored[key].version == 0 || key % 8 == stored_versions % 8)
            put(key, 100 + key * 300, key % 6 == 0 ? SHALE_SET_PINNED : 0);
    strict = false;
}

static void prepare_new(void) {
    remove_tree(directory);
    clear_expected();
    capacity = 3 * mib;
}

static void prepare_clean(void) {
    prepare_closed(3 * mib);
    shale_options options = options_of(0);
    options.flags = 0;
    close_cache();
    REQUIRE(open_with(options)); /* the last close of this one syncs */
    close_cache();
}

static void prepare_live(void) {
    prepare_closed(3 * mib);
    close_cache();
}

/* A machine that was restarted: the index is not trusted. */
static void prepare_rebooted(void) {
    static char boot[64];
    prepare_live();
    snprintf(boot, sizeof boot, "%036" PRIu64, ++stored_versions);
    shim_faults.boot_id = boot;
}

static long stores_left;

static void die_at_store(const void *at UNUSED) {
    if (--stores_left == 0)
        _exit(0);
}

/* A process dies while it changes the shard. */
static void let_writer_die(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        shale_options options = options_of(0);
        cache = NULL;
        if (shale_open(directory, &options, &cache) != SHALE_OK)
            _exit(1);
        stores_left = 12;
        shim_faults.store = die_at_store;
        shale_set(cache, "dying", 5, "value", 5, NULL);
        _exit(2);
    }
    int code = wait_for(child);
    EXPECT(code == 0, "the writer that was to die ends with %d", code);
}

static void prepare_killed(void) {
    prepare_live();
    let_writer_die();
}

static void act_open(void) {
    if (open_with(options_of(3 * mib)))
        put(30, 1000, 0);
}

static void act_open_synced(void) {
    shale_options options = options_of(0);
    options.flags = 0;
    if (open_with(options))
        put(30, 1000, 0);
}

static void act_read_only(void) {
    shale_options options = {.struct_size = sizeof options, .flags = SHALE_OPEN_READ_ONLY};
    if (open_with(options))
        check_contents(cache, 7);
}

static shale_cache *other; /* a second handle, open throughout */

static void prepare_attached(void) {
    prepare_closed(3 * mib);
    other = cache;
    cache = NULL;
}

static void prepare_small(void) {
    prepare_closed(2 * mib);
    close_cache();
}

static void act_open_capacity(uint64_t bytes) {
    if (bytes > capacity)
        capacity = bytes;
    if (open_with(options_of(bytes)))
        capacity = bytes;
}
static void act_grow(void) {
    act_open_capacity(4 * mib);
}
static void act_grow_far(void) {
    act_open_capacity(24 * mib);
}

static void prepare_large(void) {
    prepare_closed(6 * mib);
    for (uint64_t key = 100; key < 1400; key++)
        put(key, 2500, SHALE_SET_UNCOMPRESSED);
    close_cache();
    evicts = true; /* a smaller cache holds less */
}
static void act_shrink(void) {
    act_open_capacity(2 * mib);
}

static void act_limit_entries(void) {
    static uint64_t limit = 1000;
    shale_options options = options_of(0);
    options.max_entries = limit ^= 1;
    open_with(options);
}

static void prepare_memory(void) {
    clear_expected();
}

static void act_memory(void) {
    if (open_with(options_of(3 * mib))) {
        for (uint64_t key = 0; key < 40; key++)
            put(key, 9000, SHALE_SET_UNCOMPRESSED);
        put(50, 200000, 0);
        succeeded(shale_sync(cache), "shale_sync");
    }
}

static void prepare_open(void) {
    prepare_closed(3 * mib);
}

/* Fills segments. */
static void act_sets(void) {
    for (uint64_t key = 0; key < 48; key++)
        put(key % 24, 6000 + key * 50, SHALE_SET_UNCOMPRESSED);
}

static void act_large_sets(void) {
    put(40, 250000, 0);
    put(40, 200000, SHALE_SET_UNCOMPRESSED);
    put(41, stored_largest, 0);
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t key = 40; key < 42; key++)
        check_value(key, shale_get(cache, &key, sizeof key, 0, &value), &value);
    shale_value_free(&value);
    uint64_t key = 40;
    if (succeeded(shale_remove(cache, &key, sizeof key, 0), "shale_remove"))
        stored[key].version = 0;
}

/* The table grows, and shrinks when all entries are removed. */
static void act_table(void) {
    for (uint64_t key = 100; key < 1400; key++)
        put(key, 24, 0);
    if (succeeded(shale_clear(cache), "shale_clear"))
        clear_expected();
    for (uint64_t key = 0; key < 4; key++)
        put(key, 100, 0);
}

static void prepare_full(void) {
    prepare_closed(mib);
    evicts = true;
}

static void act_evictions(void) {
    for (uint64_t key = 100; key < 180; key++)
        if (put(key, 15000, SHALE_SET_UNCOMPRESSED)) {
            shale_value value = SHALE_VALUE_INIT;
            shale_status status = shale_get(cache, &key, sizeof key, 0, &value);
            EXPECT(status != SHALE_MISS, "the newest key, %" PRIu64 ", is missing", key);
            check_value(key, status, &value);
            shale_value_free(&value);
        }
}

static void prepare_dictionary(void) {
    remove_tree(directory);
    clear_expected();
    capacity = 8 * mib;
    strict = true;
    REQUIRE(open_with(options_of(8 * mib)));
    strict = false;
}

/* Enough similar values for a dictionary to be made. */
static void act_dictionary(void) {
    for (uint64_t key = 0; key < 420; key++) {
        char text[400], name[16];
        int size = snprintf(
            text, sizeof text,
            "{\"identifier\": %" PRIu64 ", \"name\": \"user %" PRIu64 "\", \"address\": \"%" PRIu64
            " Example Street\", \"created\": \"2024-01-01T00:00:00Z\", \"roles\": [\"reader\", \"writer\"], "
            "\"balance\": %" PRIu64 ", \"language\": \"en\", \"verified\": true}",
            key, key * 7, key * 31, key * 977);
        int name_size = snprintf(name, sizeof name, "text %" PRIu64, key);
        if (succeeded(shale_set(cache, name, (size_t)name_size, text, (size_t)size, NULL), "shale_set")) {
            shale_value value = SHALE_VALUE_INIT;
            shale_status status = shale_get(cache, name, (size_t)name_size, 0, &value);
            if (succeeded(status, "shale_get"))
                EXPECT(status == SHALE_OK && holds_bytes(&value, text, (size_t)size),
                       "%s differs from the stored value", name);
            shale_value_free(&value);
        }
    }
    shale_stats stats = {.struct_size = sizeof stats};
    if (strict && succeeded(shale_get_stats(cache, &stats), "shale_get_stats"))
        EXPECT(stats.dictionaries > 0, "%" PRIu64 " dictionaries", stats.dictionaries);
}

static void act_reads(void) {
    check_contents(cache, 31);
    shale_value values[8];
    shale_bytes keys[8];
    uint64_t names[8];
    shale_status each[8];
    for (uint64_t i = 0; i < 8; i++) {
        values[i] = (shale_value)SHALE_VALUE_INIT;
        names[i] = i * 4;
        keys[i] = (shale_bytes){&names[i], sizeof names[i]};
    }
    shale_get_many(cache, 8, keys, 0, values, each);
    for (int i = 0; i < 8; i++) {
        check_value(names[i], each[i], &values[i]);
        shale_value_free(&values[i]);
    }
    uint64_t present = 0, seen = 0;
    for (uint64_t key = 0; key < key_count; key++)
        present += stored[key].version != 0;
    shale_cursor *cursor = NULL;
    if (succeeded(shale_cursor_open(cache, &cursor), "shale_cursor_open")) {
        shale_value key = SHALE_VALUE_INIT, value = SHALE_VALUE_INIT;
        for (;;) {
            shale_status status = shale_cursor_next(cursor, 0, &key, &value);
            if (status == SHALE_END)
                break;
            if (!succeeded(status, "shale_cursor_next")) {
                if (fault.onwards && fault.armed)
                    break;
                continue;
            }
            uint64_t number;
            if (key.size == sizeof number) {
                memcpy(&number, key.data, sizeof number);
                if (EXPECT(number < key_count, "the cursor finds key %" PRIu64, number))
                    check_value(number, status, &value);
                seen++;
            }
        }
        if (!(fault.onwards && fault.armed))
            EXPECT(seen >= present, "the cursor finds %" PRIu64 " of %" PRIu64, seen, present);
        shale_value_free(&key);
        shale_value_free(&value);
        shale_cursor_close(cursor);
    } else
        EXPECT(cursor == NULL, "%s", "a cursor in spite of the error");
    shale_report report = {.struct_size = sizeof report};
    if (succeeded(shale_verify(cache, &report), "shale_verify"))
        EXPECT(report.corrupt_records == 0, "%" PRIu64 " damaged records", report.corrupt_records);
    shale_stats stats = {.struct_size = sizeof stats};
    if (succeeded(shale_get_stats(cache, &stats), "shale_get_stats"))
        EXPECT(stats.capacity == capacity && stats.corrupt_records == 0, "capacity %" PRIu64 ", corrupt %" PRIu64,
               stats.capacity, stats.corrupt_records);
}

static void act_changes(void) {
    for (uint64_t key = 0; key < 12; key++) {
        stored[key].tagged = true;
        put(key, 500, 0);
        if (succeeded(shale_touch(cache, &key, sizeof key, 3600000), "shale_touch"))
            check_count++;
        int64_t result = 0;
        if (succeeded(shale_increment(cache, "counter", 7, 3, 100, &result), "shale_increment")) {
            counter = counter ? counter + 3 : 103;
            EXPECT(result == counter, "the counter is %" PRId64 " instead of %" PRId64, result, counter);
        }
        uint64_t lease = 0;
        shale_value value = SHALE_VALUE_INIT;
        if (succeeded(shale_lease(cache, &stored_versions, sizeof stored_versions, NULL, &value, &lease),
                      "shale_lease") &&
            lease)
            succeeded(shale_release(cache, &stored_versions, sizeof stored_versions, lease), "shale_release");
        shale_value_free(&value);
        if (key % 3 == 0 && succeeded(shale_remove(cache, &key, sizeof key, 0), "shale_remove"))
            stored[key].version = 0;
    }
    uint64_t tag = stored_versions % stored_tags, count = 0;
    if (succeeded(shale_invalidate(cache, &tag, sizeof tag), "shale_invalidate"))
        for (uint64_t key = 0; key < key_count; key++)
            if (stored[key].tagged && key % stored_tags == tag)
                stored[key].version = 0;
    succeeded(shale_purge(cache, &count), "shale_purge");
    EXPECT(count == 0, "%" PRIu64 " purged", count);
    if (stored_versions % 3 == 0 && succeeded(shale_clear(cache), "shale_clear"))
        clear_expected();
    put(13, 1000, 0);
}

static void act_sync(void) {
    put(14, 2000, 0);
    succeeded(shale_sync(cache), "shale_sync");
}

static void prepare_open_synced(void) {
    shale_options options = options_of(0);
    options.flags = 0;
    prepare_live();
    strict = true;
    REQUIRE(open_with(options));
    put(15, 2000, 0);
    strict = false;
}

/* The last close: it syncs, and marks the files. */
static void act_close(void) {
    if (cache)
        close_cache();
    else
        act_open_synced();
}

static void prepare_open_killed(void) {
    prepare_open();
    let_writer_die();
}

/* The next operation after the death of a writer rebuilds the shard. */
static void act_rebuild(void) {
    put(16, 1000, 0);
    check_contents(cache, 31);
}

typedef struct {
    const char *name;
    void (*prepare)(void), (*act)(void);
    bool in_memory, read_only;
    int32_t policy;
} scenario;

enum { lru = SHALE_EVICTION_LRU, clock_policy = SHALE_EVICTION_CLOCK };
static const scenario scenarios[] = {
    {"new", prepare_new, act_open, false, false, lru},
    {"clean", prepare_clean, act_open_synced, false, false, lru},
    {"live", prepare_live, act_open, false, false, lru},
    {"killed", prepare_killed, act_open, false, false, lru},
    {"rebooted", prepare_rebooted, act_open, false, false, lru},
    {"attached", prepare_attached, act_open, false, false, lru},
    {"grow", prepare_small, act_grow, false, false, lru},
    {"grow-far", prepare_small, act_grow_far, false, false, lru},
    {"shrink", prepare_large, act_shrink, false, false, lru},
    {"limit", prepare_live, act_limit_entries, false, false, lru},
    {"read-only", prepare_live, act_read_only, false, true, lru},
    {"read-only-rebooted", prepare_rebooted, act_read_only, false, true, lru},
    {"memory", prepare_memory, act_memory, true, false, lru},
    {"sets", prepare_open, act_sets, false, false, lru},
    {"large", prepare_open, act_large_sets, false, false, lru},
    {"table", prepare_open, act_table, false, false, lru},
    {"evictions", prepare_full, act_evictions, false, false, lru},
    {"dictionary", prepare_dictionary, act_dictionary, false, false, lru},
    {"reads", prepare_open, act_reads, false, false, lru},
    {"changes", prepare_open, act_changes, false, false, lru},
    {"sync", prepare_open, act_sync, false, false, lru},
    {"close", prepare_open_synced, act_close, false, false, lru},
    {"rebuild", prepare_open_killed, act_rebuild, false, false, lru},
    {"shrink-clock", prepare_large, act_shrink, false, false, clock_policy},
    {"large-clock", prepare_open, act_large_sets, false, false, clock_policy},
    {"evictions-clock", prepare_full, act_evictions, false, false, clock_policy},
};
enum { scenario_count = sizeof scenarios / sizeof scenarios[0] };

/* ---- the loop ----------------------------------------------------------- */

static uint64_t trials, injections, places;
static unsigned most_failures;

/* Parts that a set had stored before a lock failed can't be cleared without it: they are left to the cleaner, which
 * skips them (design.md, "Large values"). Other faults leave no orphaned parts. */
static void audit_files(void) {
    accounts found = take_account(directory, account_own_files);
    EXPECT(found.faults == 0, "%u faults, first: %s", found.faults, found.first_fault);
    EXPECT(found.orphans == 0, "%" PRIu64 " orphaned parts", found.orphans);
}

/* One fault in one scenario. Returns whether the operation met it. */
static bool try_fault(const scenario *s) {
    resources before = resources_now();
    uint64_t statuses_before = statuses;
    evicts = false;
    s->prepare();
    EXPECT(!fault.armed, "%s", "prepared without faults");
    memset(fault.seen, 0, sizeof fault.seen);
    fault.injected = 0;
    fault.armed = true;
    s->act();
    fault.armed = false;
    check_disk();
    long injected = fault.injected;
    if (injected > 0 && strcmp(calls[fault.call].call, "fallocate") == 0 &&
        (fault.answer == -ENOSPC || fault.answer == -EDQUOT))
        evicts = true;
    if (injected > 0 && statuses == statuses_before)
        harmless++;
    strict = true;
    s->act();
    check_disk();
    if (cache)
        check_contents(cache, 1);
    if (!s->in_memory && !s->read_only)
        check_from_outside();
    if (cache)
        close_cache();
    if (other) {
        cache = other;
        other = NULL;
        check_contents(cache, 1);
        close_cache();
    }
    if (!s->in_memory) {
        REQUIRE(open_with(options_of(0)));
        check_contents(cache, 1);
        shale_report report = {.struct_size = sizeof report};
        succeeded(shale_verify(cache, &report), "shale_verify");
        EXPECT(report.corrupt_records == 0, "%" PRIu64 " damaged records", report.corrupt_records);
        check_set_and_remove(cache, false);
        close_cache();
        check_disk();
    }
    strict = false;
    resources after = resources_now();
    EXPECT(after.descriptors == before.descriptors, "%ld descriptors leak", after.descriptors - before.descriptors);
    EXPECT(after.mappings == before.mappings, "%ld mappings leak", after.mappings - before.mappings);
    EXPECT(after.allocations == before.allocations, "%ld allocations leak", after.allocations - before.allocations);
    if (!s->in_memory && trials % 16 == 0) /* (its memory does not belong to the library) */
        audit_files();
    trials++;
    injections += (uint64_t)injected;
    return injected > 0;
}

/* The fault at the first place, the second, and so on, until the operation does not meet it any more. */
static void try_everywhere(const scenario *s, bool exhaustive) {
    for (fault.first = 1; check_failures < most_failures; fault.first++) {
        if (!try_fault(s))
            break;
        places++;
        /* Hundreds of the same call, one for each entry: only some of them in the short form. */
        if (fault.first >= 24 && !exhaustive)
            fault.first += fault.first / 3;
    }
}

static void run(const scenario *s, int errors_each, random_source *source) {
    long seen[call_count];
    scenario_name = s->name;
    directory = s->in_memory ? NULL : path_to("parent/cache");
    message_path = s->in_memory ? "memory" : directory;
    clear_expected();
    if (directory)
        remove_tree(directory);
    most_failures = check_failures + 10; /* they are alike */
    fault.call = -1;
    try_fault(s); /* calls that it needs without a failure */
    memcpy(seen, fault.seen, sizeof seen);
    for (fault.call = 0; fault.call < call_count; fault.call++) {
        if (seen[fault.call] == 0)
            continue;
        int error_count = 0;
        while (error_count < most_errors && calls[fault.call].errors[error_count])
            error_count++;
        int start = (int)random_below(source, (uint64_t)error_count);
        for (int i = 0; i < error_count && i < errors_each; i++) {
            fault.answer = -calls[fault.call].errors[(start + i) % error_count];
            for (int onwards = 0; onwards < 2; onwards++) {
                fault.onwards = onwards == 1;
                try_everywhere(s, errors_each > 1);
            }
        }
        bool transfers = strcmp(calls[fault.call].call, "pread") == 0 || strcmp(calls[fault.call].call, "pwrite") == 0;
        for (int onwards = 0; transfers && onwards < 2; onwards++) {
            fault.answer = onwards ? 3 : 1; /* bytes */
            fault.onwards = onwards == 1;
            try_everywhere(s, errors_each > 1);
        }
    }
    shim_faults.boot_id = NULL;
    free(directory);
}

static void hang(int signal UNUSED) {
    const char *text = place();
    if (write(2, "hangs: ", 7) < 0 || write(2, text, strlen(text)) < 0 || write(2, "\n", 1) < 0)
        _exit(2);
    _exit(1);
}

int main(int argument_count, char **arguments) {
    int errors_each = argument_count > 1 ? atoi(arguments[1]) : 1;
    seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    prefer_memory(); /* there are thousands of caches */
    random_source source = {seed};
    begin_tolerances();
    shim_faults.call = answer_call;
    int ran = 0;
    for (int i = 0; i < scenario_count; i++) {
        if (argument_count > 3 && strcmp(arguments[3], scenarios[i].name) != 0)
            continue;
        watch(patience);
        signal(SIGALRM, hang);
        int64_t start = monotonic_ms();
        uint64_t trials_before = trials;
        unsigned failures_before = check_failures;
        policy = scenarios[i].policy;
        run(&scenarios[i], errors_each, &source);
        if (getenv("VERBOSE"))
            fprintf(stderr, "%-20s %6" PRIu64 " trials %6" PRId64 " ms\n", scenarios[i].name, trials - trials_before,
                    monotonic_ms() - start);
        if (check_failures != failures_before)
            fprintf(stderr, "  again with: failing_calls %d %" PRIu64 " %s\n", errors_each, seed, scenarios[i].name);
        ran++;
    }
    CHECK(ran > 0);
    printf("%" PRIu64 " faults injected at %" PRIu64 " places of %d scenarios: %" PRIu64 " errors answered, %" PRIu64
           " places harmless, seed %" PRIu64 "\n",
           injections, places, ran, statuses, harmless, seed);
    print_tolerances();
    return finish();
}
