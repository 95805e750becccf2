/* The apparent size of the two files, for `ls` and for programs that copy them without holes. While a cache grows,
 * neither is longer than a quarter more than it takes and 64 MiB, up to 128 GiB of capacity. A sole opener cuts both
 * at the end of their last chunk and last frame, unless a reader is attached. A limit on the size of files, or on
 * memory, is named in the error that it causes. */
#include "check.h"
#include "files.h"
#include "layout.h"
#include "usage.h"

#include <sys/resource.h>

enum { slack = 64 << 20 };

static char *directory;

typedef struct {
    uint64_t looks, takes;
} extent;

static extent extent_of(const char *name) {
    char path[512];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    REQUIRE(stat(path, &status) == 0);
    return (extent){(uint64_t)status.st_size, (uint64_t)status.st_blocks * 512};
}

static shale_cache *open_cache(uint64_t capacity, uint32_t shards, uint32_t segment, uint32_t flags) {
    return require_open(directory, (shale_options){.capacity = capacity,
                                                   .shards = shards,
                                                   .segment_size = segment,
                                                   .flags = SHALE_OPEN_NO_SYNC | flags});
}

static void put(shale_cache *cache, uint64_t key, size_t size) {
    static const unsigned char bytes[4096];
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED};
    REQUIRE_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, size, &options));
}

static bool is_there(shale_cache *cache, uint64_t key) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = shale_get(cache, &key, sizeof key, SHALE_GET_PEEK, &value);
    CHECK(status == SHALE_OK || status == SHALE_MISS);
    shale_value_free(&value);
    return status == SHALE_OK;
}

static void check_lengths(void) {
    extent data = extent_of("shale.data"), index = extent_of("shale.index");
    CHECK(index.looks <= index.takes * 5 / 4 + slack);
    CHECK(data.looks <= data.takes * 5 / 4 + slack);
}

/* The ends of the last frame that is not absent, and of the last chunk, by format.md. */
static void check_ends(void) {
    uint64_t data_end = 0, index_end = 0;
    mapped_file data = map_file(directory, "shale.data"), index = map_file(directory, "shale.index");
    layout l = layout_of(data.bytes);
    for (uint64_t shard = 0; shard < l.shards; shard++) {
        const unsigned char *header = index.bytes + shard_offset(&l, shard);
        uint64_t chunks = word_at(header + shard_table_bytes) - l.region, last = (chunks - 1) / chunk_bytes;
        index_end = larger(index_end, chunk_offset(&l, shard, last) + chunks - last * chunk_bytes);
        for (uint64_t place = 0; place < l.rows; place++)
            if (header[l.states + place] != frame_absent)
                data_end = larger(data_end, frame_offset(&l, shard, place) + l.segment_size);
    }
    CHECK_EQUAL(larger(data_end, l.dictionaries + l.dictionary_places * l.dictionary_size), data.size);
    CHECK_EQUAL(index_end, index.size);
    unmap_file(&data);
    unmap_file(&index);
}

static void grows(const char *name, uint64_t capacity, uint32_t shards, uint32_t segment, uint64_t entries) {
    directory = path_to(name);
    shale_cache *cache = open_cache(capacity, shards, segment, 0);
    uint64_t key = 0;
    check_lengths();
    for (uint64_t step = 1; key < entries; step = key < 100 ? 1 : key / 50) {
        for (uint64_t i = 0; i < step && key < entries; i++)
            put(cache, key++, 8);
        check_lengths();
    }
    extent data = extent_of("shale.data"), index = extent_of("shale.index");
    printf("%s, %" PRIu64 " entries: data %" PRIu64 " of %" PRIu64 " KiB, index %" PRIu64 " of %" PRIu64 " KiB\n", name,
           entries, data.takes >> 10, data.looks >> 10, index.takes >> 10, index.looks >> 10);
    for (key = 0; key < entries; key += 1 + entries / 1000)
        CHECK(is_there(cache, key));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    cache = open_cache(0, 0, 0, 0);
    check_ends();
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

/* The largest tables have more chunks than the maximum displacement has buckets, so keys are found across the ends
 * of chunks. */
static void while_it_grows(void) {
    grows("1 GiB", UINT64_C(1) << 30, 0, 0, 400000);
    grows("10 GiB", UINT64_C(10) << 30, 8, 1 << 20, 300000);
    grows("100 GiB", UINT64_C(100) << 30, 16, 1 << 20, 300000);
    for (uint64_t size = 2; size <= 128; size *= 2)
        grows("as it comes", size << 30, 0, 0, 20);
    grows("100 GiB as it comes", UINT64_C(100) << 30, 0, 0, 300000);
}

static void after_a_clear(void) {
    enum { entries = 200000 };
    directory = path_to("cleared");
    shale_cache *cache = open_cache(256 << 20, 4, 128 << 10, 0);
    for (uint64_t key = 0; key < entries; key++)
        put(cache, key, 8);
    REQUIRE_STATUS(SHALE_OK, shale_clear(cache));
    put(cache, 1, 8);
    extent before = extent_of("shale.index");
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));

    shale_cache *reader = open_cache(0, 0, 0, SHALE_OPEN_READ_ONLY);
    cache = open_cache(0, 0, 0, 0);
    CHECK_EQUAL(before.looks, extent_of("shale.index").looks);
    CHECK(is_there(reader, 1));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    REQUIRE_STATUS(SHALE_OK, shale_close(reader));

    cache = open_cache(0, 0, 0, 0);
    check_ends();
    CHECK(extent_of("shale.index").looks < before.looks / 2);
    CHECK(is_there(cache, 1));
    for (uint64_t key = 0; key < entries; key++)
        put(cache, key, 8);
    for (uint64_t key = 0; key < entries; key++)
        CHECK(is_there(cache, key));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

static void with_a_smaller_capacity(void) {
    directory = path_to("smaller");
    shale_cache *cache = open_cache(64 << 20, 4, 128 << 10, 0);
    for (uint64_t key = 0; key < 40000; key++)
        put(cache, key, key < 20000 ? 8 : 1000);
    for (uint64_t key = 0; key < 39000; key++)
        REQUIRE_STATUS(SHALE_OK, shale_remove(cache, &key, sizeof key, 0));
    extent before = extent_of("shale.data");
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    cache = open_cache(8 << 20, 0, 0, 0);
    check_ends();
    CHECK(extent_of("shale.data").looks <= before.looks);
    CHECK(disk_usage(directory) <= 8 << 20);
    for (uint64_t key = 39000; key < 40000; key++)
        CHECK(is_there(cache, key));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

static void limit(int resource, uint64_t bytes) {
    struct rlimit limit = {bytes, bytes};
    REQUIRE(setrlimit(resource, &limit) == 0);
}

/* In a child: whether a cache opens, and holds an entry. */
static void try_with(uint64_t capacity, int resource, uint64_t bytes, shale_status opened, shale_status stored,
                     const char *named) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        limit(resource, bytes);
        shale_cache *cache = NULL;
        shale_options options = {.struct_size = sizeof options, .capacity = capacity};
        shale_status status = shale_open(directory, &options, &cache);
        CHECK_STATUS(opened, status);
        if (status == SHALE_OK) {
            status = shale_set(cache, "key", 3, "value", 5, NULL);
            CHECK_STATUS(stored, status);
        }
        CHECK(!named || strstr(shale_last_error(), named));
        shale_close(cache);
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    remove_tree(directory);
}

static void limits_are_named(void) {
    directory = path_to("limited");
    try_with(1 << 30, RLIMIT_FSIZE, 64 << 10, SHALE_E_FULL, SHALE_OK, "ulimit -f");
    try_with(32 << 20, RLIMIT_FSIZE, 768 << 10, SHALE_OK, SHALE_E_FULL, "ulimit -f");
    try_with(1 << 30, RLIMIT_FSIZE, 64 << 20, SHALE_OK, SHALE_OK, NULL);
    try_with(1 << 30, RLIMIT_AS, UINT64_C(1) << 30, SHALE_E_MEMORY, SHALE_OK, "ulimit -v");
    free(directory);
}

int main(void) {
    watch(patience);
    RUN(while_it_grows);
    RUN(after_a_clear);
    RUN(with_a_smaller_capacity);
    RUN(limits_are_named);
    return finish();
}
