/* Opening and closing: options, persistence, refusals. */
#include "afterwards.h"
#include "changes.h"
#include "files.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const shale_options four_mib = {.struct_size = sizeof four_mib, .capacity = 4 << 20};

static shale_status open_status(const char *directory, const shale_options *options) {
    shale_cache *cache = NULL;
    shale_status status = shale_open(directory, options, &cache);
    CHECK((status == SHALE_OK) == (cache != NULL));
    if (status == SHALE_OK)
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    return status;
}

static uint64_t disk_bytes;

static int add_file(const char *path UNUSED, const struct stat *status, int type UNUSED, struct FTW *walk UNUSED) {
    if (S_ISREG(status->st_mode))
        disk_bytes += (uint64_t)status->st_blocks * 512;
    return 0;
}

/* What du says of the files. */
static uint64_t disk_usage(const char *directory) {
    disk_bytes = 0;
    nftw(directory, add_file, 16, FTW_PHYS);
    return disk_bytes;
}

/* Runs in a child, which holds a handle of its own until it is killed. */
static pid_t hold_open(const char *directory, const shale_options *options) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        shale_cache *cache = NULL;
        char byte = shale_open(directory, options, &cache) == SHALE_OK ? 'y' : 'n';
        if (write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char byte = 0;
    CHECK(read(ready[0], &byte, 1) == 1 && byte == 'y');
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void test_contents_are_kept(void) {
    char *directory = path_to("missing/parents/kept");
    shale_cache *cache = NULL;
    shale_value value = SHALE_VALUE_INIT;
    uint64_t version = 0;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    shale_set_options options = {.struct_size = sizeof options,
                                 .flags = SHALE_SET_PINNED,
                                 .max_age_ms = 3600000,
                                 .meta = "etag",
                                 .meta_size = 4,
                                 .new_version = &version};
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", &options));
    CHECK_STATUS(SHALE_OK, set_text(cache, "removed", "value", NULL));
    CHECK_STATUS(SHALE_OK, shale_remove(cache, "removed", 7, 0));
    CHECK_STATUS(SHALE_OK, shale_sync(cache));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    int64_t created = value.created_ms, expires = value.expires_ms;
    CHECK_EQUAL(created + 3600000, expires);
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &cache));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_TEXT(&value, "value");
    CHECK(value.meta_size == 4 && memcmp(value.meta, "etag", 4) == 0);
    CHECK_EQUAL(version, value.version);
    CHECK_EQUAL(created, value.created_ms);
    CHECK_EQUAL(expires, value.expires_ms);
    CHECK_EQUAL(SHALE_VALUE_PINNED, value.flags);
    CHECK_STATUS(SHALE_MISS, get_text(cache, "removed", 0, &value));
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(4 << 20, stats.capacity);
    CHECK_EQUAL(1, stats.entries);
    CHECK_EQUAL(0, stats.rebuilds);
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "newer", NULL));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK(value.version > version);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    CHECK_STATUS(SHALE_OK, shale_close(NULL));

    /* Without its index a cache is rebuilt from its data. */
    char *index = path_to("missing/parents/kept/shale.index");
    CHECK(unlink(index) == 0);
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &cache));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_TEXT(&value, "newer");
    CHECK_STATUS(SHALE_MISS, get_text(cache, "removed", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(index);
    free(directory);
    shale_value_free(&value);
}

static void test_two_handles(void) {
    char *directory = path_to("two");
    shale_cache *one = NULL, *two = NULL;
    shale_value value = SHALE_VALUE_INIT;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &one));
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &two));
    CHECK_STATUS(SHALE_OK, set_text(one, "key", "from one", NULL));
    CHECK_STATUS(SHALE_OK, get_text(two, "key", 0, &value));
    CHECK_TEXT(&value, "from one");
    CHECK_STATUS(SHALE_OK, set_text(two, "key", "from two", NULL));
    CHECK_STATUS(SHALE_OK, get_text(one, "key", 0, &value));
    CHECK_TEXT(&value, "from two");
    CHECK_STATUS(SHALE_OK, shale_close(one));
    CHECK_STATUS(SHALE_OK, set_text(two, "other", "still open", NULL));
    CHECK_STATUS(SHALE_OK, get_text(two, "key", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_close(two));

    /* In memory, each open is a cache of its own. */
    REQUIRE_STATUS(SHALE_OK, shale_open(NULL, &four_mib, &one));
    REQUIRE_STATUS(SHALE_OK, shale_open(NULL, &four_mib, &two));
    CHECK_STATUS(SHALE_OK, set_text(one, "key", "value", NULL));
    CHECK_STATUS(SHALE_MISS, get_text(two, "key", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_sync(one));
    CHECK_STATUS(SHALE_OK, shale_close(one));
    CHECK_STATUS(SHALE_OK, shale_close(two));
    shale_value_free(&value);
    free(directory);
}

/* A lock of the process, rather than of the handle, would be released with the first handle that is closed. */
static void test_handles_are_closed_in_any_order(void) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    shale_options other = four_mib;
    other.max_entries = 1000;
    for (int order = 0; order < 6; order++) {
        char *directory = path_to("order");
        shale_cache *caches[3];
        shale_value value = SHALE_VALUE_INIT;
        for (int i = 0; i < 3; i++)
            REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &caches[i]));
        for (int i = 0; i < 3; i++) {
            char key[2] = {(char)('a' + i), 0};
            CHECK_STATUS(SHALE_E_BUSY, open_status(directory, &other)); /* another handle is still attached */
            CHECK_STATUS(SHALE_OK, set_text(caches[orders[order][i]], key, "value", NULL));
            for (int j = i; j < 3; j++)
                CHECK_STATUS(SHALE_OK, get_text(caches[orders[order][j]], key, 0, &value));
            CHECK_STATUS(SHALE_OK, shale_close(caches[orders[order][i]]));
        }
        shale_cache *cache = NULL;
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &other, &cache));
        shale_stats stats = stats_of(cache);
        CHECK_EQUAL(3, stats.entries);
        CHECK_EQUAL(0, stats.rebuilds);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        shale_value_free(&value);
        remove_tree(directory);
        free(directory);
    }
}

/* Compression and default ages belong to the handle, the other options to the cache. */
static void test_handles_with_other_options(void) {
    char *directory = path_to("others-options"), text[3000];
    memset(text, 't', sizeof text - 1);
    text[sizeof text - 1] = 0;
    shale_options plain = {.struct_size = sizeof plain,
                           .compression = SHALE_COMPRESSION_NONE,
                           .max_age_ms = 3600000,
                           .stale_ms = SHALE_NEVER,
                           .mode = 0640,
                           .flags = SHALE_OPEN_NO_SYNC};
    shale_options packed = {.struct_size = sizeof packed, .capacity = 4 << 20, .compression = SHALE_COMPRESSION_LZ4};
    shale_cache *one = NULL, *two = NULL;
    shale_value value = SHALE_VALUE_INIT;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &one));
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &plain, &two));
    CHECK_STATUS(SHALE_OK, set_text(one, "packed", text, NULL));
    CHECK_STATUS(SHALE_OK, set_text(two, "plain", text, NULL));
    CHECK_STATUS(SHALE_OK, get_text(two, "packed", 0, &value));
    CHECK_TEXT(&value, text);
    CHECK(value.stored_size < 100);
    CHECK_EQUAL(SHALE_NEVER, value.expires_ms);
    CHECK_STATUS(SHALE_OK, get_text(one, "plain", 0, &value));
    CHECK_TEXT(&value, text);
    CHECK(value.stored_size == sizeof text - 1);
    CHECK_EQUAL(value.created_ms + 3600000, value.expires_ms);

    static const struct {
        shale_options options;
        shale_status expected;
        const char *word;
    } others[] = {
        {{.capacity = 8 << 20}, SHALE_E_BUSY, "capacity"},
        {{.capacity = 2 << 20}, SHALE_E_BUSY, "capacity"},
        {{.capacity = (uint64_t)1 << 40}, SHALE_E_BUSY, "capacity"},
        {{.max_entries = 1}, SHALE_E_BUSY, "max_entries"},
        {{.shards = 2}, SHALE_E_INVALID, "shard"},
        {{.segment_size = 1 << 20}, SHALE_E_INVALID, "segment"},
        {{.flags = SHALE_OPEN_READ_ONLY, .capacity = 4 << 20}, SHALE_E_INVALID, "read-only"},
        {{.flags = SHALE_OPEN_READ_ONLY, .max_entries = 5}, SHALE_E_INVALID, "read-only"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        shale_options options = others[i].options;
        options.struct_size = sizeof options;
        CHECK_STATUS(others[i].expected, open_status(directory, &options));
        CHECK(strstr(shale_last_error(), others[i].word) != NULL);
    }
    CHECK_STATUS(SHALE_OK, open_status(directory, &packed));
    CHECK_STATUS(SHALE_OK, get_text(one, "plain", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_close(one));
    CHECK_STATUS(SHALE_OK, shale_close(two));
    shale_value_free(&value);
    free(directory);
}

static void test_read_only(void) {
    char *directory = path_to("read-only");
    shale_options options = {.struct_size = sizeof options, .flags = SHALE_OPEN_READ_ONLY};
    CHECK(open_status(directory, &options) < 0);
    CHECK(access(directory, F_OK) < 0);

    shale_cache *writer = NULL, *reader = NULL;
    shale_value value = SHALE_VALUE_INIT;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &writer));
    CHECK_STATUS(SHALE_OK, set_text(writer, "key", "value", NULL));
    for (int alone = 0; alone < 2; alone++) {
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &reader));
        CHECK_STATUS(SHALE_OK, get_text(reader, "key", 0, &value));
        CHECK_TEXT(&value, "value");
        CHECK_STATUS(SHALE_MISS, get_text(reader, "missing", 0, &value));
        check_changes_answer(SHALE_E_PERMISSION, reader, "key");
        shale_stats stats = stats_of(reader);
        CHECK_EQUAL(1, stats.entries);
        shale_cursor *cursor = NULL;
        REQUIRE_STATUS(SHALE_OK, shale_cursor_open(reader, &cursor));
        CHECK_STATUS(SHALE_OK, shale_cursor_next(cursor, 0, &value, NULL));
        CHECK_TEXT(&value, "key");
        shale_cursor_close(cursor);
        CHECK_STATUS(SHALE_OK, shale_close(reader));
        if (!alone)
            CHECK_STATUS(SHALE_OK, shale_close(writer));
    }
    shale_value_free(&value);
    free(directory);
}

static void test_must_exist(void) {
    char *directory = path_to("must-exist");
    shale_options options = {.struct_size = sizeof options, .flags = SHALE_OPEN_MUST_EXIST};
    CHECK_STATUS(SHALE_E_IO, open_status(directory, &options));
    CHECK_EQUAL(ENOENT, shale_last_errno());
    CHECK(strstr(shale_last_error(), directory) != NULL);
    CHECK(access(directory, F_OK) < 0);
    CHECK(mkdir(directory, 0700) == 0);
    CHECK_STATUS(SHALE_E_IO, open_status(directory, &options));
    CHECK_EQUAL(ENOENT, shale_last_errno());
    CHECK_STATUS(SHALE_OK, open_status(directory, &four_mib));
    CHECK_STATUS(SHALE_OK, open_status(directory, &options));
    options.flags |= SHALE_OPEN_NO_SYNC;
    CHECK_STATUS(SHALE_OK, open_status(directory, &options));
    free(directory);
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fputs(text, file);
    fclose(file);
}

static void test_not_a_cache(void) {
    char *directory = path_to("others"), *file = path_to("others/letter.txt");
    CHECK(mkdir(directory, 0700) == 0);
    write_file(file, "not a cache");
    CHECK_STATUS(SHALE_E_FORMAT, open_status(directory, &four_mib));
    CHECK(strstr(shale_last_error(), directory) != NULL);
    CHECK(access(file, F_OK) == 0);

    CHECK(open_status(file, &four_mib) < 0); /* a file, not a directory */

    char *strange = path_to("strange"), *data = path_to("strange/shale.data");
    CHECK(mkdir(strange, 0700) == 0);
    write_file(data, "a text that bears the name of the data file, and is none");
    CHECK_STATUS(SHALE_E_FORMAT, open_status(strange, &four_mib));

    /* A link could lead anywhere. */
    char *linked = path_to("linked"), *link = path_to("linked/shale.data");
    CHECK(mkdir(linked, 0700) == 0);
    CHECK(symlink(data, link) == 0);
    CHECK(open_status(linked, &four_mib) < 0);

    CHECK_STATUS(SHALE_E_INVALID, shale_open(directory, &four_mib, NULL));
    free(directory);
    free(file);
    free(strange);
    free(data);
    free(linked);
    free(link);
}

static uint64_t hash_of_files(const char *directory) {
    mapped_file data = map_file(directory, "shale.data"), index = map_file(directory, "shale.index");
    uint64_t hash = XXH3_64bits_withSeed(data.bytes, data.size, XXH3_64bits(index.bytes, index.size));
    unmap_file(&data);
    unmap_file(&index);
    return hash;
}

/* Raises or lowers the version in one copy of the superblock or both, and updates their checks. */
static void change_format(const char *directory, int step, bool only_in_force) {
    mapped_file data = map_file(directory, "shale.data");
    for (size_t copy = 0; copy <= super_copy; copy += super_copy) {
        unsigned char *p = data.bytes + copy, *other = data.bytes + super_copy - copy;
        if (only_in_force && word_at(p + super_sequence) < word_at(other + super_sequence))
            continue;
        uint32_t version = half_at(p + super_version) + (uint32_t)step;
        memcpy(p + super_version, &version, sizeof version);
        uint64_t check = XXH3_64bits_withSeed(p, super_check, SUPER_MAGIC);
        memcpy(p + super_check, &check, sizeof check);
    }
    unmap_file(&data);
}

static void test_another_format(void) {
    char *directory = path_to("another");
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    static const uint32_t flags[] = {0, SHALE_OPEN_READ_ONLY};
    for (int i = 0; i < 8; i++) {
        int step = i & 1 ? 1 : -1;
        change_format(directory, step, i & 2);
        uint64_t before = hash_of_files(directory);
        shale_options options = {.struct_size = sizeof options, .flags = flags[i / 4]};
        CHECK_STATUS(SHALE_E_VERSION, open_status(directory, &options));
        CHECK(strstr(shale_last_error(), directory) && strstr(shale_last_error(), "another version"));
        CHECK_EQUAL(before, hash_of_files(directory));
        change_format(directory, -step, i & 2);
    }
    shale_value value = SHALE_VALUE_INIT;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &cache));
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_TEXT(&value, "value");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shale_value_free(&value);
    free(directory);
}

static void test_an_index_of_another_version(void) {
    char *directory = path_to("another index");
    shale_cache *cache = NULL;
    shale_value value = SHALE_VALUE_INIT;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    for (uint64_t other = index_version - 1; other <= index_version + 1; other += 2) {
        mapped_file index = map_file(directory, "shale.index");
        memcpy(index.bytes + 8, &other, sizeof other);
        unmap_file(&index);
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &cache));
        CHECK_EQUAL(1, stats_of(cache).rebuilds);
        CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
        CHECK_TEXT(&value, "value");
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        index = map_file(directory, "shale.index");
        CHECK_EQUAL(index_version, word_at(index.bytes + 8));
        unmap_file(&index);
    }
    shale_value_free(&value);
    free(directory);
}

static void test_an_index_of_another_version_in_use(void) {
    char *directory = path_to("another index in use"), theirs[30], own[30];
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    snprintf(own, sizeof own, "has version %d;", index_version);
    mapped_file index = map_file(directory, "shale.index");
    for (uint64_t other = index_version - 1; other <= index_version + 1; other += 2) {
        memcpy(index.bytes + 8, &other, sizeof other);
        uint64_t before = hash_of_files(directory);
        snprintf(theirs, sizeof theirs, "with version %" PRIu64 " of", other);
        for (int i = 0; i < 2; i++) {
            shale_options options = {.struct_size = sizeof options, .flags = i ? SHALE_OPEN_READ_ONLY : 0};
            CHECK_STATUS(SHALE_E_BUSY, open_status(directory, &options));
            CHECK(strstr(shale_last_error(), directory) && strstr(shale_last_error(), theirs) &&
                  strstr(shale_last_error(), own));
        }
        CHECK_EQUAL(before, hash_of_files(directory));
    }
    uint64_t version = index_version;
    memcpy(index.bytes + 8, &version, sizeof version);
    unmap_file(&index);
    CHECK_STATUS(SHALE_OK, open_status(directory, NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

static void test_options_out_of_range(void) {
    shale_options options = four_mib;
    options.capacity = (1 << 20) - 1;
    CHECK_STATUS(SHALE_E_INVALID, open_status(NULL, &options));
    options = four_mib;
    options.segment_size = 100000;
    CHECK_STATUS(SHALE_E_INVALID, open_status(NULL, &options));
    options.segment_size = 64 << 10;
    CHECK_STATUS(SHALE_E_INVALID, open_status(NULL, &options));
    options.segment_size = 32 << 20;
    CHECK_STATUS(SHALE_E_INVALID, open_status(NULL, &options));
    options = four_mib;
    options.compression = 4;
    CHECK_STATUS(SHALE_E_INVALID, open_status(NULL, &options));
    options.compression = -1;
    CHECK_STATUS(SHALE_E_INVALID, open_status(NULL, &options));
    options = four_mib;
    options.shards = UINT32_MAX;
    CHECK_STATUS(SHALE_E_INVALID, open_status(NULL, &options));
    options = four_mib;
    options.capacity = 1 << 20;
    CHECK_STATUS(SHALE_OK, open_status(NULL, &options));
}

static void test_properties_of_the_cache(void) {
    char *directory = path_to("belongs");
    shale_options options = {.struct_size = sizeof options,
                             .capacity = 16 << 20,
                             .max_entries = 5000,
                             .shards = 4,
                             .segment_size = 256 << 10};
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(4, stats.shards);
    CHECK_EQUAL(5000, stats.max_entries);
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    CHECK_STATUS(SHALE_OK, open_status(directory, &options));
    options.shards = 2;
    CHECK_STATUS(SHALE_E_INVALID, open_status(directory, &options));
    options.shards = 4;
    options.segment_size = 128 << 10;
    CHECK_STATUS(SHALE_E_INVALID, open_status(directory, &options));

    REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &cache));
    stats = stats_of(cache);
    CHECK_EQUAL(4, stats.shards);
    CHECK_EQUAL(5000, stats.max_entries);
    CHECK_EQUAL(16 << 20, stats.capacity);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

static void test_capacity_is_kept_and_changed(void) {
    char *directory = path_to("capacity");
    shale_options options = {.struct_size = sizeof options, .capacity = 8 << 20, .compression = SHALE_COMPRESSION_NONE};
    shale_value value = SHALE_VALUE_INIT;
    shale_cache *cache = NULL;
    char data[1000];
    memset(data, 'd', sizeof data);
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    for (uint32_t i = 0; i < 40000; i++) {
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, data, 100 + i % 900, NULL));
        if (i % 1000 == 0)
            CHECK(disk_usage(directory) <= 8 << 20);
    }
    CHECK(disk_usage(directory) <= 8 << 20);
    CHECK(disk_usage(directory) > 4 << 20);
    shale_stats stats = stats_of(cache);
    CHECK(stats.evictions > 0);
    CHECK(stats.entries > 4000);
    CHECK(stats.data_bytes + stats.index_bytes <= 8 << 20);
    check_account(directory, "filled");
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    /* Another process has it open: BUSY, and nothing changes. */
    pid_t holder = hold_open(directory, NULL);
    options.capacity = 4 << 20;
    CHECK_STATUS(SHALE_E_BUSY, open_status(directory, &options));
    options.capacity = 8 << 20;
    CHECK_STATUS(SHALE_OK, open_status(directory, &options));
    options.max_entries = 100;
    CHECK_STATUS(SHALE_E_BUSY, open_status(directory, &options));
    options.max_entries = 0;
    kill(holder, SIGKILL);
    wait_for(holder);

    /* Alone: a shrink evicts and frees disk space, the newest stay. */
    options.capacity = 4 << 20;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    CHECK(disk_usage(directory) <= 4 << 20);
    uint32_t last = 39999, first = 0;
    CHECK_STATUS(SHALE_OK, shale_get(cache, &last, sizeof last, 0, &value));
    CHECK_BYTES(&value, data, 100 + last % 900);
    CHECK_STATUS(SHALE_MISS, shale_get(cache, &first, sizeof first, 0, &value));
    stats = stats_of(cache);
    CHECK_EQUAL(4 << 20, stats.capacity);
    check_account(directory, "smaller");
    check_still_works(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    options.capacity = 0;
    options.max_entries = 100;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    stats = stats_of(cache);
    CHECK(stats.entries <= 100);
    CHECK_EQUAL(100, stats.max_entries);
    CHECK_STATUS(SHALE_OK, shale_get(cache, &last, sizeof last, 0, &value));
    check_account(directory, "of fewer entries");
    check_still_works(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    options.capacity = 16 << 20;
    options.max_entries = 1000000;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    CHECK_STATUS(SHALE_OK, shale_get(cache, &last, sizeof last, 0, &value));
    for (uint32_t i = 0; i < 40000; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, data, 100 + i % 900, NULL));
    CHECK(disk_usage(directory) <= 16 << 20);
    CHECK(disk_usage(directory) > 8 << 20);
    check_account(directory, "larger");
    check_still_works(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shale_value_free(&value);
    free(directory);
}

static void test_a_lower_entry_limit_is_applied(void) {
    static const uint32_t counts[] = {150, 1000, 3000, 9000, 20000};
    shale_stats stats = {.struct_size = sizeof stats};
    shale_value value = SHALE_VALUE_INIT;
    char data[600];
    memset(data, 'd', sizeof data);
    for (int i = 0; i < 15; i++) {
        uint32_t count = counts[i % 5], last = count - 1;
        shale_options options = {.struct_size = sizeof options, .capacity = 8 << 20};
        shale_cache *cache = NULL;
        char *directory = path_to("limited");
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
        for (uint32_t n = 0; n < count; n++)
            CHECK_STATUS(SHALE_OK, shale_set(cache, &n, sizeof n, data, n % sizeof data, NULL));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        options.max_entries = 100;
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
        stats = stats_of(cache);
        CHECK_EQUAL(100, stats.entries);
        for (uint32_t n = 0; n < 100; n++, last--)
            CHECK_STATUS(SHALE_OK, shale_get(cache, &last, sizeof last, 0, &value));
        check_afterwards(cache, directory, "of fewer entries");
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(directory);
        free(directory);
    }
    shale_value_free(&value);
}

static void check_modes(const char *directory, mode_t directory_mode, mode_t file_mode) {
    struct stat status;
    CHECK(stat(directory, &status) == 0);
    CHECK_EQUAL(directory_mode, status.st_mode & 07777);
    static const char *const names[] = {"shale.data", "shale.index"};
    for (int i = 0; i < 2; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        CHECK(stat(path, &status) == 0);
        CHECK_EQUAL(file_mode, status.st_mode & 07777);
    }
}

static void test_files_are_private(void) {
    char *directory = path_to("private");
    umask(0);
    CHECK_STATUS(SHALE_OK, open_status(directory, &four_mib));
    check_modes(directory, 0700, 0600);
    free(directory);
}

static void *fail_in_thread(void *unused) {
    (void)unused;
    CHECK(shale_last_error()[0] == 0); /* empty before the first */
    CHECK_EQUAL(0, shale_last_errno());
    CHECK_STATUS(SHALE_E_INVALID, shale_sync(NULL));
    CHECK(shale_last_error()[0] != 0);
    return NULL;
}

static void test_errors_are_per_thread(void) {
    CHECK(open_status("/dev/null/cache", &four_mib) < 0);
    CHECK(strstr(shale_last_error(), "/dev/null") != NULL);
    CHECK_EQUAL(ENOTDIR, shale_last_errno());
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, fail_in_thread, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_EQUAL(ENOTDIR, shale_last_errno());
    CHECK(strstr(shale_last_error(), "/dev/null") != NULL);
    CHECK_STATUS(SHALE_E_INVALID, shale_sync(NULL));
    CHECK_EQUAL(0, shale_last_errno());
    CHECK(shale_last_error()[0] != 0);
}

static void test_long_paths(void) {
    char *path = malloc(20000);
    memset(path, 'p', 20000);
    path[0] = '/';
    path[19999] = 0;
    CHECK_STATUS(SHALE_E_IO, open_status(path, &four_mib));
    CHECK_EQUAL(ENAMETOOLONG, shale_last_errno());
    CHECK(strlen(shale_last_error()) > 0);
    free(path);
    CHECK(open_status("", &four_mib) < 0);
}

static void test_descriptors_are_given_back(void) {
    char *directory = path_to("descriptors");
    int before = dup(0);
    close(before);
    for (int i = 0; i < 50; i++) {
        CHECK_STATUS(SHALE_OK, open_status(directory, &four_mib));
        CHECK_STATUS(SHALE_E_IO, open_status("/dev/null/cache", &four_mib));
    }
    int after = dup(0);
    close(after);
    CHECK_EQUAL(before, after);
    free(directory);
}

/* A limit on the size of files is an error code, or less room; never SIGXFSZ. */
static void test_file_size_limit(void) {
    char *directory = path_to("file-size-limit");
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        struct rlimit limit = {3 << 20, 3 << 20};
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        shale_options options = {.struct_size = sizeof options, .capacity = 64 << 20};
        shale_cache *cache = NULL;
        shale_status status = shale_open(directory, &options, &cache);
        if (status == SHALE_OK) {
            static char data[1000];
            shale_value value = SHALE_VALUE_INIT;
            random_source source = {5};
            for (uint32_t i = 0; i < 20000; i++) {
                for (size_t at = 0; at < sizeof data; at += 8)
                    memcpy(data + at, &(uint64_t){random_next(&source)}, 8);
                status = shale_set(cache, &i, sizeof i, data, sizeof data, NULL);
                CHECK(status == SHALE_OK || status == SHALE_E_FULL);
                shale_status found = shale_get(cache, &i, sizeof i, 0, &value);
                CHECK(found == (status == SHALE_OK ? SHALE_OK : SHALE_MISS));
                CHECK(found != SHALE_OK || holds_bytes(&value, data, sizeof data));
            }
            shale_value_free(&value);
            CHECK_STATUS(SHALE_OK, shale_close(cache));
        } else {
            CHECK_STATUS(SHALE_E_FULL, status);
        }
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    free(directory);
}

/* A program that has closed 0, 1 and 2 gets no cache file as one of them. */
static void test_descriptors_stay_clear_of_the_standard_ones(void) {
    char *directory = path_to("daemon");
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        close(0);
        close(1);
        close(2);
        shale_cache *cache = NULL;
        shale_status status = shale_open(directory, &four_mib, &cache);
        bool clear = fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 && fcntl(2, F_GETFD) < 0;
        bool works = status == SHALE_OK && set_text(cache, "key", "value", NULL) == SHALE_OK &&
                     shale_close(cache) == SHALE_OK;
        _exit(works && clear ? 0 : 1);
    }
    CHECK_EQUAL(0, wait_for(child));
    free(directory);
}

/* The cache's secret decides whether a row of the table is full: it must always have a slot for each entry. */
static void test_rebuild_loses_nothing(void) {
    enum { caches = 40, entries = 6000 };
    char *directory = path_to("rebuilt");
    for (int round = 0; round < caches; round++) {
        shale_cache *cache = require_open(directory,
                                          (shale_options){.capacity = 64 << 20, .flags = SHALE_OPEN_NO_SYNC});
        for (uint32_t key = 0; key < entries; key++)
            CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, "x", 1, NULL));
        CHECK_EQUAL(entries, (int64_t)stats_of(cache).entries);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_index(directory);
        cache = require_open(directory, (shale_options){0});
        CHECK_EQUAL(entries, (int64_t)stats_of(cache).entries);
        CHECK_EQUAL(0, (int64_t)stats_of(cache).evictions);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(directory);
    }
    free(directory);
}

int main(void) {
    watch(patience);
    RUN(test_contents_are_kept);
    RUN(test_two_handles);
    RUN(test_handles_are_closed_in_any_order);
    RUN(test_handles_with_other_options);
    RUN(test_read_only);
    RUN(test_must_exist);
    RUN(test_not_a_cache);
    RUN(test_another_format);
    RUN(test_an_index_of_another_version);
    RUN(test_an_index_of_another_version_in_use);
    RUN(test_options_out_of_range);
    RUN(test_properties_of_the_cache);
    RUN(test_capacity_is_kept_and_changed);
    RUN(test_a_lower_entry_limit_is_applied);
    RUN(test_files_are_private);
    RUN(test_errors_are_per_thread);
    RUN(test_long_paths);
    RUN(test_descriptors_are_given_back);
    RUN(test_file_size_limit);
    RUN(test_descriptors_stay_clear_of_the_standard_ones);
    RUN(test_rebuild_loses_nothing);
    return finish();
}
