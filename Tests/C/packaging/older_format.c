/* A cache of data format 1 or 2 is read as it is, and taken over by the next writer
 * with all that it holds. Such a cache is made here: one of today's format is
 * written down again as format.md says that these versions have it.
 *
 * Version 2 has no records of kind 10, which this one does not hold. Version 1:
 *
 *   - superblock: version 1, no bytes at 96;
 *   - segment headers: no tail's offset, and a check that leaves its word out;
 *   - no synced tails. */
#include "afterwards.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { version_now = 4, alike = 400, others = 40, keys = alike + others, large_size = 200000, most_size = 4096 };

static char *directory;

static char *path_of(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static shale_cache *open_cache(uint64_t capacity, uint32_t shards, uint32_t flags) {
    return require_open(
        directory, (shale_options){.capacity = capacity, .shards = shards, .segment_size = 128 << 10, .flags = flags});
}

/* ---- the file, as bytes --------------------------------------------------------- */

typedef struct {
    unsigned char *bytes;
    size_t size;
} file_bytes;

static file_bytes load(void) {
    struct stat status;
    int fd = open(path_of("shale.data"), O_RDONLY);
    REQUIRE(fd >= 0 && fstat(fd, &status) == 0);
    file_bytes file = {malloc((size_t)status.st_size), (size_t)status.st_size};
    REQUIRE(file.bytes && read(fd, file.bytes, file.size) == (ssize_t)file.size);
    close(fd);
    return file;
}

static void store(size_t at, const void *bytes, size_t size) {
    int fd = open(path_of("shale.data"), O_WRONLY);
    REQUIRE(fd >= 0 && pwrite(fd, bytes, size, (off_t)at) == (ssize_t)size);
    close(fd);
}

static uint64_t hash_words(const uint64_t *words, size_t count, uint64_t seed) {
    return XXH3_64bits_withSeed(words, count * 8, seed);
}

/* Writes a copy of the superblock down as that of another version. */
static void store_superblock(unsigned char *p, size_t copy, unsigned char version) {
    CHECK_EQUAL(version_now, half_at(p + super_version));
    p[super_version] = version;
    if (version == 1)
        memset(p + 96, 0, 24);
    uint64_t check = XXH3_64bits_withSeed(p, super_check, word_at(p));
    memcpy(p + super_check, &check, 8);
    store(copy, p, super_bytes);
}

static void make_version(unsigned char version) {
    file_bytes file = load();
    for (size_t copy = 0; copy <= super_copy; copy += super_copy)
        store_superblock(file.bytes + copy, copy, version);
    unlink(path_of("shale.index")); /* whose version is another one, too */
    free(file.bytes);
}

/* Writes the cache down in format 1. Returns how many segments it has. */
static unsigned make_version_1(void) {
    file_bytes file = load();
    layout l = layout_of(file.bytes);
    static const unsigned char zeros[16 * 128];
    uint64_t secret = word_at(file.bytes + 24) ? word_at(file.bytes + 24) : word_at(file.bytes + super_copy + 24);
    unsigned segments = 0;
    for (size_t copy = 0; copy <= super_copy; copy += super_copy)
        store_superblock(file.bytes + copy, copy, 1);
    if (l.shards <= 128)
        store(page_bytes + l.shards * 16, zeros, l.shards * 16);
    for (size_t at = l.segments; at + segment_header_bytes <= file.size; at += l.segment_size) {
        unsigned char *p = file.bytes + at;
        uint64_t words[7] = {word_at(p),      word_at(p + 8),  word_at(p + 16), word_at(p + 24),
                             word_at(p + 32), word_at(p + 48), word_at(p + 56)};
        if (word_at(p + 40) != hash_words(words, 7, secret) || word_at(p) == 0)
            continue;
        uint64_t check = hash_words(words, 6, secret);
        memset(p + 56, 0, 8);
        memcpy(p + 40, &check, 8);
        store(at, p, segment_header_bytes);
        segments++;
    }
    unlink(path_of("shale.index")); /* whose version is another one, too */
    free(file.bytes);
    return segments;
}

static void check_versions(unsigned expected, unsigned synced) {
    file_bytes file = load();
    for (size_t copy = 0; copy <= super_copy; copy += super_copy) {
        CHECK_EQUAL(expected, half_at(file.bytes + copy + super_version));
        CHECK_EQUAL(synced, half_at(file.bytes + copy + 96));
    }
    free(file.bytes);
}

/* ---- what it holds ---------------------------------------------------------------- */

typedef struct {
    shale_status status;
    uint64_t size, version, hash;
    int64_t expires_ms, created_ms;
    uint32_t flags;
} description;

static size_t name_of(unsigned key, char name[16]) {
    return (size_t)snprintf(name, 16, "key-%06u", key);
}

static void fill(shale_cache *cache) {
    static unsigned char bytes[large_size];
    char name[16];
    shale_bytes tags[2] = {{"news", 4}, {"sport", 5}};
    for (unsigned key = 0; key < keys; key++) {
        shale_set_options o = {.struct_size = sizeof o};
        size_t size = (size_t)snprintf(
            (char *)bytes, most_size,
            "{\"id\": %u, \"name\": \"customer %u\", \"city\": \"Springfield\", \"currency\": \"EUR\", \"active\": true,"
            " \"street\": \"Long Road %u\", \"comment\": \"delivery to the back door between nine and five\"}",
            key, key * 7, key * 3);
        unsigned kind = key < alike ? 0 : key % 8;
        if (kind == 1) {
            for (size_t i = 0; i < large_size; i++)
                bytes[i] = (unsigned char)(i * 31 + key);
            size = large_size, o.flags = SHALE_SET_UNCOMPRESSED;
        }
        if (kind == 2)
            o.meta = "text/plain", o.meta_size = 10;
        if (kind == 3)
            o.tags = tags, o.tag_count = 1 + key / 8 % 2;
        if (kind == 4)
            o.flags = SHALE_SET_PINNED;
        if (kind == 5)
            o.max_age_ms = 36000000 + key, o.stale_ms = 1000;
        CHECK_STATUS(SHALE_OK, shale_set(cache, name, name_of(key, name), bytes, size, &o));
        if (kind == 6)
            CHECK_STATUS(SHALE_OK, shale_touch(cache, name, name_of(key, name), 7200000));
        if (kind == 7)
            CHECK_STATUS(SHALE_OK, shale_remove(cache, name, name_of(key, name), 0));
    }
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "sport", 5));
}

static void describe(shale_cache *cache, description *all) {
    shale_value value = SHALE_VALUE_INIT;
    char name[16];
    for (unsigned key = 0; key < keys; key++) {
        description d = {.status = shale_get(cache, name, name_of(key, name), SHALE_GET_PEEK, &value)};
        if (d.status == SHALE_OK)
            d = (description){SHALE_OK,         value.size,
                              value.version,    XXH3_64bits_withSeed(value.data, value.size, value.meta_size),
                              value.expires_ms, value.created_ms,
                              value.flags};
        all[key] = d;
    }
    shale_value_free(&value);
}

static void check_same(shale_cache *cache, const description *expected, const char *when) {
    static description found[keys];
    describe(cache, found);
    unsigned present = 0;
    for (unsigned key = 0; key < keys; key++) {
        const description *a = &expected[key], *b = &found[key];
        present += b->status == SHALE_OK;
        check_that(a->status == b->status && a->size == b->size && a->version == b->version && a->hash == b->hash &&
                       a->expires_ms == b->expires_ms && a->created_ms == b->created_ms && a->flags == b->flags,
                   __FILE__, __LINE__, when, ": key %u: %s, %" PRIu64 " bytes; was %s, %" PRIu64, key,
                   shale_status_text(b->status), b->size, shale_status_text(a->status), a->size);
    }
    CHECK(present > keys * 4 / 5);
}

/* Read as it is, then by a writer, whose cache is returned. */
static shale_cache *take_over(const description *before, unsigned version, unsigned synced) {
    shale_cache *cache = open_cache(0, 0, SHALE_OPEN_READ_ONLY);
    check_same(cache, before, "read only");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_versions(version, synced);
    cache = open_cache(0, 0, 0);
    check_versions(version_now, 32);
    check_same(cache, before, "taken over");
    return cache;
}

static void test_a_cache_of_version_1_is_taken_over(void) {
    directory = path_to("first");
    static description before[keys];
    shale_cache *cache = open_cache(8 << 20, 2, 0);
    fill(cache);
    shale_stats stats = stats_of(cache);
    CHECK(stats.dictionaries > 0);
    CHECK_EQUAL(0, stats.evictions);
    describe(cache, before);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_versions(version_now, 32);
    CHECK(make_version_1() >= 8);

    cache = take_over(before, 1, 0);
    stats = stats_of(cache);
    CHECK_EQUAL(0, stats.corrupt_records);
    /* Segments of both formats in one log. */
    for (unsigned i = 0; i < 2000; i++) {
        char name[16];
        size_t size = (size_t)snprintf(name, sizeof name, "new-%u", i % 10);
        static const char bytes[1000];
        shale_set_options o = {.struct_size = sizeof o, .flags = SHALE_SET_UNCOMPRESSED};
        CHECK_STATUS(SHALE_OK, shale_set(cache, name, size, bytes, sizeof bytes, &o));
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    unlink(path_of("shale.index"));
    cache = open_cache(0, 0, 0);
    check_same(cache, before, "replayed");
    check_afterwards(cache, directory, "replayed");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_versions(version_now, 32);
    free(directory);
}

static void test_a_cache_of_version_2_is_taken_over(void) {
    directory = path_to("second");
    static description before[keys];
    shale_cache *cache = open_cache(8 << 20, 2, 0);
    fill(cache);
    describe(cache, before);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    make_version(2);
    cache = take_over(before, 2, 32);
    CHECK_STATUS(SHALE_OK, shale_invalidate_with(cache, "news", 4, SHALE_INVALIDATE_EXPIRE));
    check_afterwards(cache, directory, "taken over");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

/* All parts of large values are in the shards of their own hashes. */
static void test_a_cache_of_version_3_is_taken_over(void) {
    directory = path_to("third");
    shale_cache *cache = open_cache(8 << 20, 2, 0);
    static unsigned char bytes[300000];
    for (unsigned key = 0; key < 5; key++) {
        memset(bytes, 'a' + (int)key, sizeof bytes);
        CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, sizeof bytes, NULL));
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    make_version(3);
    cache = open_cache(0, 0, 0);
    check_versions(version_now, 32);
    for (unsigned key = 0; key < 5; key++) {
        shale_value value = SHALE_VALUE_INIT;
        memset(bytes, 'a' + (int)key, sizeof bytes);
        CHECK_STATUS(SHALE_OK, shale_get(cache, &key, sizeof key, 0, &value));
        CHECK(holds_bytes(&value, bytes, sizeof bytes));
        shale_value_free(&value);
    }
    CHECK_STATUS(SHALE_OK, shale_remove(cache, "\0\0\0\0", 4, 0));
    check_afterwards(cache, directory, "taken over");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

/* One copy of the superblock was rewritten, then the power went. */
static void test_a_half_upgrade_is_completed(void) {
    directory = path_to("half");
    shale_cache *cache = open_cache(1 << 20, 1, 0);
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    file_bytes upgraded = load();
    size_t newer = word_at(upgraded.bytes + super_sequence) > word_at(upgraded.bytes + super_copy + super_sequence)
                       ? 0
                       : super_copy;
    make_version_1();
    store(newer, upgraded.bytes + newer, super_bytes);
    free(upgraded.bytes);
    cache = open_cache(0, 0, 0);
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    shale_value_free(&value);
    check_afterwards(cache, directory, "half upgraded");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_versions(version_now, 32);
    free(directory);
}

/* More shards than the page has tails for: the segments stay where they are. */
static void test_many_shards_have_no_tails(void) {
    directory = path_to("many");
    CHECK_STATUS(SHALE_OK, shale_close(open_cache(256 << 20, 140, 0)));
    CHECK_EQUAL(0, make_version_1());
    shale_cache *cache = open_cache(0, 0, 0);
    check_versions(version_now, 16);
    for (int round = 0; round < 2; round++) {
        for (unsigned key = 0; key < 3000 && round == 0; key++)
            CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, &key, sizeof key, NULL));
        shale_value value = SHALE_VALUE_INIT;
        for (unsigned key = 0; key < 3000; key++)
            if (!CHECK_STATUS(SHALE_OK, shale_get(cache, &key, sizeof key, 0, &value)) ||
                !CHECK(holds_bytes(&value, &key, sizeof key)))
                break;
        shale_value_free(&value);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        unlink(path_of("shale.index"));
        cache = open_cache(0, 0, 0);
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

int main(void) {
    watch(120);
    RUN(test_a_cache_of_version_1_is_taken_over);
    RUN(test_a_cache_of_version_2_is_taken_over);
    RUN(test_a_cache_of_version_3_is_taken_over);
    RUN(test_a_half_upgrade_is_completed);
    RUN(test_many_shards_have_no_tails);
    return finish();
}
