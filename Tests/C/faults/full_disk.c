/* A full disk gives SHALE_E_FULL, or evicts entries to make room: never a signal, never a wrong value, never a loss
 * of an existing value, and the cache recovers when there is room again.
 *
 * Three disks fill up: a real one (a tmpfs of 24 MiB, in a private mount namespace; mounting needs privileges), a
 * simulated one (fallocate fails beyond a quota), and the limit on the size of files (RLIMIT_FSIZE, whose signal
 * would kill). Each is left with no byte, a page, two pages, and so on, in every situation in which the cache needs
 * room.
 *
 * full_disk [times that every scenario is run, 1] [seed] [scenario] */
#include "afterwards.h"
#include "layout.h"
#include "own_disk.h"
#include "resources.h"
#include "stored.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "faults.h"
#include "files.h"

enum { page = 4096, kib = 1 << 10, mib = 1 << 20 };

static char *root, *directory, *filler;
static uint64_t seed;
static random_source source;

/* Outlives the process of a scenario. */
static struct {
    char step[128];
    uint64_t situations, sets, full_sets, opens, full_opens;
} *account;

static void step(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void step(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(account->step, sizeof account->step, format, arguments);
    va_end(arguments);
}

#define EXPECT(expression, ...) expect((expression), __LINE__, #expression, __VA_ARGS__)
static bool expect(bool holds, int line, const char *expression, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static bool expect(bool holds, int line, const char *expression, const char *format, ...) {
    char text[1400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return check_that(holds, __FILE__, line, expression, ": %s: %s", account->step, text);
}

/* ---- disks -------------------------------------------------------------- */

typedef struct {
    const char *name;
    bool (*attach)(void);
    void (*leave)(uint64_t bytes); /* leaves this much free from now on */
    void (*empty)(void);           /* frees room again */
} disk;

static bool attach_tmpfs(void) {
    return mount_own_disk(root, 24 << 10);
}

static void leave_tmpfs(uint64_t bytes) {
    struct statvfs status;
    struct stat present = {0};
    int file = open(filler, O_RDWR | O_CREAT, 0600);
    REQUIRE(file >= 0 && fstat(file, &present) == 0 && statvfs(root, &status) == 0);
    uint64_t available = (uint64_t)status.f_bavail * status.f_bsize + (uint64_t)present.st_size;
    REQUIRE(ftruncate(file, 0) == 0);
    if (available > bytes)
        REQUIRE(fallocate(file, 0, 0, (off_t)(available - bytes)) == 0);
    close(file);
}

static void empty_tmpfs(void) {
    unlink(filler);
}

static uint64_t quota = UINT64_MAX;

static long refuse_beyond_quota(const char *name) {
    /* The hook does not get the requested size: a step of the table, or a segment. */
    return strcmp(name, "fallocate") == 0 && quota != UINT64_MAX && disk_usage(root) + 8 * page > quota ? -ENOSPC : 0;
}

static bool attach_quota(void) {
    shim_faults.call = refuse_beyond_quota;
    return true;
}

static void leave_quota(uint64_t bytes) {
    quota = disk_usage(root) + bytes;
}

static void empty_quota(void) {
    quota = UINT64_MAX;
}

static uint64_t largest_file;

static int look_at_size(const char *path UNUSED, const struct stat *status, int type UNUSED, struct FTW *walk UNUSED) {
    if (S_ISREG(status->st_mode) && (uint64_t)status->st_size > largest_file)
        largest_file = (uint64_t)status->st_size;
    return 0;
}

static bool attach_limit(void) {
    return true;
}

static void set_limit(rlim_t bytes) {
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* Limits files to the size of the largest one plus some bytes. */
static void leave_limit(uint64_t bytes) {
    largest_file = 0;
    nftw(root, look_at_size, 16, FTW_PHYS);
    set_limit(largest_file + bytes);
}

static void empty_limit(void) {
    set_limit(RLIM_INFINITY);
}

static const disk disks[] = {
    {"tmpfs", attach_tmpfs, leave_tmpfs, empty_tmpfs},
    {"quota", attach_quota, leave_quota, empty_quota},
    {"file-size limit", attach_limit, leave_limit, empty_limit},
};
enum { disk_count = sizeof disks / sizeof disks[0] };
static const disk *here;

/* ---- helpers of scenarios ---- */

static shale_cache *cache;
static uint64_t capacity; /* that du must not exceed */
static int32_t policy;

static bool open_cache(uint64_t bytes, uint32_t flags) {
    shale_options options = {.struct_size = sizeof options, .capacity = bytes, .flags = flags, .eviction = policy};
    shale_status status = shale_open(directory, &options, &cache);
    account->opens++;
    account->full_opens += status == SHALE_E_FULL;
    EXPECT(status == SHALE_OK || status == SHALE_E_FULL, "shale_open answers %d: %s", status, shale_last_error());
    EXPECT(status != SHALE_E_FULL || strstr(shale_last_error(), directory), "shale_open says %s", shale_last_error());
    if (status == SHALE_OK && bytes)
        capacity = bytes;
    return status == SHALE_OK;
}

static void close_cache(void) {
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    cache = NULL;
}

static void check_key(uint64_t key, bool evicts) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = shale_get(cache, &key, sizeof key, 0, &value);
    const char *wrong = status < 0 ? shale_last_error() : stored_mismatch(key, status, &value, evicts);
    EXPECT(!wrong, "key %" PRIu64 ": %s", key, wrong);
    shale_value_free(&value);
}

static void check_all(bool evicts) {
    for (uint64_t key = 0; key < stored_keys; key++)
        if (stored[key].version)
            check_key(key, evicts);
}

/* A set that succeeds or finds no room; a stored value is visible at once. */
static bool put(uint64_t key, size_t size, uint32_t flags) {
    shale_status status = store(cache, key, size, flags);
    account->sets++;
    account->full_sets += status == SHALE_E_FULL;
    EXPECT(status == SHALE_OK || status == SHALE_E_FULL, "shale_set answers %d: %s", status, shale_last_error());
    EXPECT(status != SHALE_E_FULL || strstr(shale_last_error(), directory), "shale_set says %s", shale_last_error());
    if (status == SHALE_OK) {
        uint64_t before = stored[key].version;
        stored[key].pinned = true; /* not evicted yet */
        check_key(key, false);
        stored[key].pinned = flags & SHALE_SET_PINNED;
        REQUIRE(stored[key].version == before);
    } else
        check_key(key, true);
    return status == SHALE_OK;
}

static void check_disk(void) {
    uint64_t bytes = disk_usage(directory);
    REQUIRE(capacity > 0);
    EXPECT(bytes <= capacity, "du says %" PRIu64 ", the capacity is %" PRIu64, bytes, capacity);
}

/* (The audit's descriptors do not see the simulated disk.) */
static void audit_files(const char *when) {
    accounts found = take_account(directory, account_own_files);
    EXPECT(found.faults == 0, "%s: %u faults, first: %s", when, found.faults, found.first_fault);
}

static void start_over(void) {
    here->empty();
    remove_tree(directory);
    clear_stored();
    account->situations++;
}

/* There is room again: everything works, and the contents are sound. */
static void recover(uint64_t bytes, bool evicts) {
    here->empty();
    if (cache || open_cache(bytes, SHALE_OPEN_NO_SYNC)) {
        check_all(evicts);
        for (uint64_t key = 0; key < 8; key++)
            EXPECT(put(key, 3000, 0), "%s", shale_last_error());
        shale_report report = {.struct_size = sizeof report};
        CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
        EXPECT(report.corrupt_records == 0, "%" PRIu64 " damaged records", report.corrupt_records);
        close_cache();
        check_disk();
        audit_files("after there was room again");
        if (open_cache(0, SHALE_OPEN_NO_SYNC)) {
            check_all(evicts);
            check_still_works(cache);
            close_cache();
        }
    }
    EXPECT(!cache, "%s", "not opened though there is room again");
}

static uint64_t boots;

static void reboot(void) {
    static char boot[64];
    snprintf(boot, sizeof boot, "%036" PRIu64, ++boots);
    shim_faults.boot_id = boot;
}

/* A cache with room for all that is put into it. */
static void fill_some(uint64_t keys, size_t size) {
    REQUIRE(open_cache(16 * mib, SHALE_OPEN_NO_SYNC));
    for (uint64_t key = 0; key < keys; key++)
        REQUIRE(put(key, size, key % 5 ? 0 : SHALE_SET_PINNED));
}

/* ---- scenarios ---------------------------------------------------------- */

static void test_create(void) {
    bool created = false, stored_one = false;
    for (uint64_t free = 0; free < 3 * mib && !stored_one; free += page) {
        start_over();
        step("creating a cache with %" PRIu64 " bytes free", free);
        here->leave(free);
        if (open_cache(8 * mib, 0)) {
            created = true;
            stored_one = put(1, 1000, 0);
            close_cache();
            check_disk();
        }
        recover(8 * mib, false);
    }
    EXPECT(created && stored_one, "%s", "never created");
}

/* A capacity larger than the disk. */
static void test_fill(void) {
    start_over();
    step("filling a disk that is smaller than the cache");
    REQUIRE(open_cache(64 * mib, SHALE_OPEN_NO_SYNC));
    here->leave(6 * mib);
    uint64_t failed = 0;
    for (uint64_t i = 0; i < 6000; i++) {
        uint64_t key = random_below(&source, 2000);
        failed += !put(key, 100 + random_below(&source, 7000),
                       i % 50 ? SHALE_SET_UNCOMPRESSED : SHALE_SET_UNCOMPRESSED | SHALE_SET_PINNED);
    }
    EXPECT(failed == 0, "%" PRIu64 " of 6000 sets find no room, although entries could go", failed);
    step("large values on a full disk");
    for (uint64_t key = 2000; key < 2040; key++)
        put(key, 200000 + random_below(&source, 100000), SHALE_SET_UNCOMPRESSED);
    check_all(true);
    check_disk();
    audit_files("on a full disk");
    check_set_and_remove(cache, false);
    uint64_t full = stats_of(cache).data_bytes;
    close_cache();
    step("opening a cache that fills the disk");
    if (EXPECT(open_cache(0, 0), "%s", "no room to open it")) {
        check_all(true);
        CHECK_STATUS(SHALE_OK, shale_sync(cache));
        put(1, 2000, 0);
        step("there is room again");
        here->empty();
        /* The cache tries the disk again after a number of segments. */
        for (uint64_t n = 0; n < 16000 && stats_of(cache).data_bytes <= full + 4 * mib; n++)
            EXPECT(put(2100 + n % 2000, 6000, SHALE_SET_UNCOMPRESSED), "%s", shale_last_error());
        EXPECT(stats_of(cache).data_bytes > full + 4 * mib,
               "the cache does not grow again: %" PRIu64 " bytes after %" PRIu64, stats_of(cache).data_bytes, full);
    }
    recover(0, true);
}

/* Pinned entries are at the tail when there is no more room: they are moved, and others are evicted. */
static void test_pinned(void) {
    for (uint64_t free = 0; free < mib; free += 100 * kib) {
        start_over();
        step("going on where pinned entries are at the tail, with %" PRIu64 " bytes free", free);
        fill_some(1500, 900);
        here->leave(free);
        uint64_t failed = 0;
        for (uint64_t key = 1500; key < 5000; key++)
            failed += !put(key, 900, SHALE_SET_UNCOMPRESSED);
        EXPECT(failed == 0, "%" PRIu64 " of 3500 sets find no room, although entries could go", failed);
        check_all(true);
        check_disk();
        recover(0, true);
    }
}

/* Many small entries, for which the table cannot grow. */
static void test_table(void) {
    for (uint64_t free = 0; free < 256 << 10; free += 16 << 10) {
        start_over();
        step("growing a table with %" PRIu64 " bytes free", free);
        REQUIRE(open_cache(8 * mib, SHALE_OPEN_NO_SYNC));
        for (uint64_t key = 0; key < 100; key++)
            REQUIRE(put(key, 100, SHALE_SET_PINNED));
        here->leave(free);
        for (uint64_t key = 100; key < 5000; key++)
            put(key, 24, 0);
        check_all(true);
        check_disk();
        recover(0, true);
    }
}

/* An untrusted index is rebuilt on a full disk, or waits for room. */
static void test_rebuild(void) {
    for (uint64_t free = 0; free < 200 << 10; free += 3 * page) {
        start_over();
        step("rebuilding with %" PRIu64 " bytes free", free);
        fill_some(1500, 900);
        close_cache();
        reboot();
        here->leave(free);
        bool opened = open_cache(0, SHALE_OPEN_NO_SYNC);
        if (opened) {
            check_all(free < 64 << 10); /* the old index's space suffices, except for the simulated disk's margin */
            for (uint64_t key = 5000; key < 5100; key++)
                put(key, 3000, 0);
            check_all(true);
        }
        check_disk();
        recover(0, opened);
    }
}

/* Large values, which need room in all at once, when the disk was full and has room again. */
static void test_large_afterwards(void) {
    for (int tries = 1; tries <= 66; tries += 13) {
        start_over();
        step("a large value when the disk has room again, after %d sets", tries);
        REQUIRE(open_cache(2 * mib, SHALE_OPEN_NO_SYNC));
        for (uint64_t key = 0; key < 5; key++)
            REQUIRE(put(key, 10000, SHALE_SET_UNCOMPRESSED));
        here->leave(0);
        for (uint64_t key = 5; key < 5 + (uint64_t)tries; key++)
            put(key, 10000, SHALE_SET_UNCOMPRESSED);
        here->empty();
        for (int i = 0; i < 3; i++)
            EXPECT(put(1000, stored_largest, SHALE_SET_UNCOMPRESSED), "%s", shale_last_error());
        recover(0, true);
    }
}

/* A copied data file has holes in areas that were never written. */
static void test_copied(void) {
    start_over();
    step("opening a sparse copy");
    fill_some(700, 900);
    close_cache();
    char command[1024];
    int length = snprintf(
        command, sizeof command,
        "mkdir '%s/copy' && cp --sparse=always '%s/shale.data' '%s/copy' && rm -r '%s' && mv '%s/copy' '%s'", root,
        directory, root, directory, root, directory);
    REQUIRE(length < (int)sizeof command && system(command) == 0);
    here->leave(64 << 10);
    if (open_cache(0, SHALE_OPEN_NO_SYNC)) {
        check_all(false);
        for (uint64_t key = 700; key < 3000; key++)
            put(key, 900, 0);
        check_all(true);
    }
    recover(0, true);
}

/* The generation of the only shard, as the index of a closed cache has it. */
static uint64_t left_in_head(void) {
    static unsigned char head[page];
    uint64_t offset = 0;
    int file = open_file(directory, "shale.data", O_RDONLY);
    REQUIRE(pread(file, head, page, 0) == page);
    close(file);
    file = open_file(directory, "shale.index", O_RDONLY);
    REQUIRE(pread(file, &offset, 8, index_head_bytes + shard_head_offset) == 8);
    close(file);
    layout l = layout_of(head);
    REQUIRE(l.shards == 1 && offset <= l.segment_size);
    return l.segment_size - offset;
}

/* The same with a hole that is smaller than the dictionaries beside it. */
static void test_copied_hole(void) {
    enum { texts = 3000 };
    start_over();
    step("making dictionaries before a copy");
    REQUIRE(open_cache(16 * mib, SHALE_OPEN_NO_SYNC));
    for (int i = 0; i < texts; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"identifier\": %d, \"name\": \"user %d\", \"roles\": [\"reader\", \"writer\"]}",
                 i, i * 7);
        REQUIRE(set_text(cache, text, text, NULL) == SHALE_OK);
    }
    for (uint64_t key = 0; left_in_head() < 8 * kib || left_in_head() > 14 * kib; key = (key + 1) % 700)
        REQUIRE(put(key, 900, SHALE_SET_UNCOMPRESSED));
    close_cache();
    char command[1024];
    int length = snprintf(
        command, sizeof command,
        "mkdir '%s/copy' && cp --sparse=always '%s/shale.data' '%s/copy' && rm -r '%s' && mv '%s/copy' '%s'", root,
        directory, root, directory, root, directory);
    REQUIRE(length < (int)sizeof command && system(command) == 0);
    step("opening a copy with a hole of a few pages, and then its index fills the disk");
    bool opened = false;
    for (uint64_t free = 0; !opened && free < 2 * mib; free += page) {
        here->leave(free);
        opened = open_cache(0, SHALE_OPEN_NO_SYNC);
    }
    if (EXPECT(opened, "%s", "no room to open it")) {
        check_all(false);
        for (uint64_t key = 700; key < 730; key++)
            put(key, 900, SHALE_SET_UNCOMPRESSED);
        check_all(true);
    }
    recover(0, true);
}

static void test_read_only(void) {
    for (int trusted = 0; trusted < 2; trusted++) {
        start_over();
        step("reading with %s index and nothing free", trusted ? "the" : "no trusted");
        fill_some(700, 900);
        close_cache();
        if (!trusted)
            reboot();
        here->leave(0);
        if (EXPECT(open_cache(0, SHALE_OPEN_READ_ONLY), "%s", "not opened"))
            check_all(false);
        close_cache();
        recover(0, false);
    }
}

/* A call that changes nothing, or that shrinks, needs no room. */
static void test_open(void) {
    start_over();
    step("opening, reading, syncing and closing with nothing free");
    fill_some(700, 900);
    close_cache();
    here->leave(0);
    for (int i = 0; i < 3; i++) {
        if (!EXPECT(open_cache(0, 0), "%s", "not opened"))
            break;
        check_all(false);
        CHECK_STATUS(SHALE_OK, shale_sync(cache));
        put(5000, 1000, 0);
        check_all(false);
        close_cache();
    }
    recover(0, false);
}

static void test_clear(void) {
    for (uint64_t keys = 50; keys < 3000; keys += 450) {
        start_over();
        step("clearing with %" PRIu64 " keys and nothing free", keys);
        fill_some(keys, 900);
        here->leave(0);
        for (uint64_t key = 4000; key < 6000; key++)
            put(key, 900, 0);
        shale_status status = shale_clear(cache);
        EXPECT(status == SHALE_OK || (status == SHALE_E_FULL && keys < 500), "shale_clear answers %d: %s", status,
               shale_last_error());
        if (status == SHALE_OK) {
            clear_stored();
            for (uint64_t key = 0; key < stored_keys; key++)
                check_key(key, false);
            EXPECT(put(1, 900, 0), "%s", "no room after a clear");
        }
        recover(0, true);
    }
}

static void test_capacity(void) {
    static const uint64_t capacities[] = {8 * mib, 12 * mib, 24 * mib, 96 * mib, 16 * mib};
    for (size_t i = 0; i < sizeof capacities / sizeof capacities[0]; i++) {
        start_over();
        fill_some(2500, 900);
        close_cache();
        here->leave(random_below(&source, 64) * page);
        step("changing the capacity to %" PRIu64 " on a full disk", capacities[i]);
        bool done = open_cache(capacities[i], SHALE_OPEN_NO_SYNC);
        if (done) {
            audit_files("after the capacity changed");
            check_all(true);
            for (uint64_t key = 0; key < 300; key++)
                put(key, 900, 0);
        }
        check_disk();
        recover(0, true);
    }
}

/* A conditional set of an older value, evaluated by a read after it. Returns whether the value was in the index and
 * lacked a part: a read that found that out would have removed it, so only the condition asks. */
static bool set_by_condition(uint64_t key, bool is_listed, uint64_t condition) {
    static const unsigned char bytes[10];
    shale_set_options options = {.struct_size = sizeof options, .flags = condition};
    bool if_absent = condition == SHALE_SET_IF_ABSENT;
    shale_status status = shale_set(cache, &key, sizeof key, bytes, sizeof bytes, &options);
    if (status == SHALE_CONFLICT) {
        shale_value value = SHALE_VALUE_INIT;
        CHECK_STATUS(if_absent ? SHALE_OK : SHALE_MISS, shale_get(cache, &key, sizeof key, SHALE_GET_PEEK, &value));
        shale_value_free(&value);
    }
    return is_listed && (status == SHALE_CONFLICT) != if_absent;
}

static bool lists(uint64_t key) {
    shale_value value = SHALE_VALUE_INIT;
    bool is_listed = shale_get(cache, &key, sizeof key, SHALE_GET_INFO | SHALE_GET_PEEK, &value) == SHALE_OK;
    shale_value_free(&value);
    return is_listed;
}

/* An entry that a full disk evicts may be a part of a large value in another shard; the value is then removed as
 * well, unless that happens to more than four in a call. A value that lacks a part does not count as present:
 * shale.h, SHALE_SET_IF_PRESENT. Returns how many values lacked one. */
static uint64_t set_by_conditions(void) {
    enum { keys = 900, window = 60 };
    start_over();
    step("conditions on large values on a full disk");
    static unsigned char bytes[160 * kib];
    shale_options options = {
        .struct_size = sizeof options,
        .capacity = 16 * mib,
        .shards = 16, /* of which the longer values take more than a sixteenth: they are in all of them */
        .segment_size = 128 * kib,
        .flags = SHALE_OPEN_NO_SYNC};
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    here->leave(3 * mib);
    shale_set_options plain = {.struct_size = sizeof plain, .flags = SHALE_SET_UNCOMPRESSED};
    uint64_t lacking = 0;
    for (uint64_t key = 0; key < keys; key++) {
        shale_status status = shale_set(cache, &key, sizeof key, bytes, 20000 + key % 7 * 20000, &plain);
        EXPECT(status == SHALE_OK || status == SHALE_E_FULL, "shale_set answers %d: %s", status, shale_last_error());
        if (key < window)
            continue;
        lacking += set_by_condition(key - 30, lists(key - 30), key % 2 ? SHALE_SET_IF_ABSENT : SHALE_SET_IF_PRESENT);
        for (uint64_t age = 1; age < window; age++) /* complete values stay as they are */
            if (lists(key - age))
                lacking += set_by_condition(key - age, true, SHALE_SET_IF_ABSENT);
    }
    close_cache();
    here->empty();
    return lacking;
}

static void test_conditions(void) {
    bool may_lack = here->leave == disks[0].leave;
    uint64_t lacking = 0;
    for (int round = 0; round == 0 || (may_lack && lacking == 0 && round < 20); round++)
        lacking = set_by_conditions();
    EXPECT(!may_lack || lacking > 0, "%s", "no value lacks a part");
}

/* The error advises a smaller capacity. */
static void test_smaller_capacity(void) {
    for (uint64_t keys = 0; keys < 3000; keys += 300) {
        start_over();
        fill_some(2500, 900);
        here->leave(4 * mib);
        step("a smaller capacity after %" PRIu64 " keys on a full disk", keys);
        for (uint64_t key = 0; key < 5000 + keys; key++)
            put(key % stored_keys, 900, SHALE_SET_UNCOMPRESSED);
        close_cache();
        if (EXPECT(open_cache(5 * mib, SHALE_OPEN_NO_SYNC), "%s", shale_last_error())) {
            audit_files("after the capacity changed");
            check_all(true);
            EXPECT(put(1, 900, 0), "%s", shale_last_error());
            check_disk();
        }
        recover(0, true);
    }
}

static void test_dictionary(void) {
    for (uint64_t free = 0; free < 96 << 10; free += 3 * page) {
        start_over();
        step("making a dictionary with %" PRIu64 " bytes free", free);
        REQUIRE(open_cache(8 * mib, SHALE_OPEN_NO_SYNC));
        REQUIRE(put(0, 1000, 0));
        here->leave(free);
        for (uint64_t key = 0; key < 400; key++) {
            char text[400];
            int size = snprintf(
                text, sizeof text,
                "{\"identifier\": %" PRIu64 ", \"name\": \"user %" PRIu64 "\", \"address\": \"%" PRIu64
                " Example Street\", \"created\": \"2024-01-01T00:00:00Z\", \"roles\": [\"reader\", \"writer\"]}",
                key, key * 7, key * 31);
            shale_status status = set_text(cache, text, text, NULL);
            shale_value value = SHALE_VALUE_INIT;
            if (EXPECT(status == SHALE_OK || status == SHALE_E_FULL, "shale_set answers %d: %s", status,
                       shale_last_error()) &&
                status == SHALE_OK) {
                CHECK_STATUS(SHALE_OK, get_text(cache, text, 0, &value));
                CHECK_BYTES(&value, text, (size_t)size);
            }
            shale_value_free(&value);
        }
        recover(0, true);
    }
}

/* Several processes write, each its own keys, until the disk is full and after that. */
static void test_processes(void) {
    enum { writers = 3, keys_each = 1000 };
    start_over();
    step("three processes on a full disk");
    REQUIRE(open_cache(48 * mib, SHALE_OPEN_NO_SYNC));
    here->leave(3 * mib);
    pid_t children[writers];
    for (uint64_t writer = 0; writer < writers; writer++) {
        children[writer] = fork();
        if (children[writer] == 0) {
            begin_child(patience);
            source.state += writer;
            for (int i = 0; i < 2500; i++) {
                uint64_t key = writer * keys_each + random_below(&source, keys_each);
                shale_status status = store(cache, key, 100 + random_below(&source, 4000), SHALE_SET_UNCOMPRESSED);
                EXPECT(status == SHALE_OK || status == SHALE_E_FULL, "shale_set answers %d: %s", status,
                       shale_last_error());
                check_key(writer * keys_each + random_below(&source, keys_each), true);
            }
            check_all(true);
            _exit(check_failures != 0);
        }
    }
    for (int writer = 0; writer < writers; writer++)
        CHECK_EQUAL(0, wait_for(children[writer]));
    check_disk();
    recover(0, true);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"create", test_create},
    {"fill", test_fill},
    {"large-afterwards", test_large_afterwards},
    {"pinned", test_pinned},
    {"table", test_table},
    {"rebuild", test_rebuild},
    {"copied", test_copied},
    {"copied-hole", test_copied_hole},
    {"read-only", test_read_only},
    {"open", test_open},
    {"clear", test_clear},
    {"capacity", test_capacity},
    {"smaller", test_smaller_capacity},
    {"conditions", test_conditions},
    {"dictionary", test_dictionary},
    {"processes", test_processes},
};
enum { scenario_count = sizeof scenarios / sizeof scenarios[0] };

/* In a process of its own, to detect signals. */
static bool run(const disk *on, int scenario, uint64_t round) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        source.state = seed + round * 1000 + (uint64_t)scenario;
        here = on;
        policy = policy_of((uint64_t)(on - disks) + (uint64_t)scenario + round);
        if (!on->attach())
            _exit(SKIPPED);
        scenarios[scenario].run();
        _exit(check_failures != 0);
    }
    int code = wait_for(child);
    bool done = code != SKIPPED;
    if (done)
        check_that(code == 0, __FILE__, __LINE__, scenarios[scenario].name,
                   " on %s ends with %d (%s), while %s; again with: full_disk 1 %" PRIu64 " %s", on->name, code,
                   code > 128 ? strsignal(code - 128) : "failed checks", account->step, seed + round * 1000,
                   scenarios[scenario].name);
    remove_tree(directory);
    return done;
}

int main(int argument_count, char **arguments) {
    uint64_t rounds = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 1;
    seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    prefer_memory();
    begin_tolerances();
    account = shared_memory(sizeof *account);
    char *first = path_to("disk/x"); /* makes the temporary directory */
    root = path_to("disk");
    directory = path_to("disk/cache");
    filler = path_to("disk/filler");
    REQUIRE(mkdir(root, 0700) == 0);
    int ran = 0, on_disks = 0;
    for (int d = 0; d < disk_count; d++) {
        bool possible = true;
        for (uint64_t round = 0; round < rounds && possible; round++)
            for (int s = 0; s < scenario_count && possible; s++) {
                if (argument_count > 3 && strcmp(arguments[3], scenarios[s].name) != 0)
                    continue;
                int64_t start = monotonic_ms();
                possible = run(&disks[d], s, round);
                if (getenv("VERBOSE"))
                    fprintf(stderr, "%-16s %-12s %6" PRId64 " ms\n", disks[d].name, scenarios[s].name,
                            monotonic_ms() - start);
                ran++;
            }
        on_disks += possible;
        if (!possible)
            printf("%s: not possible here\n", disks[d].name);
    }
    CHECK(ran > 0);
    printf("%" PRIu64 " situations on %d kinds of full disk: %" PRIu64 " sets, %" PRIu64
           " of them without room; %" PRIu64 " openings, %" PRIu64 " of them without room; seed %" PRIu64 "\n",
           account->situations, on_disks, account->sets, account->full_sets, account->opens, account->full_opens, seed);
    print_tolerances();
    free(first);
    free(root);
    free(directory);
    free(filler);
    return finish();
}
