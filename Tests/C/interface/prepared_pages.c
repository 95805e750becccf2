/* Space that is prepared ahead of need. The pages of a larger table stay while the load varies about the one at which
 * they are prepared. A frame that is given back while a set maps it, as the one that the log will use next, takes no
 * space: on a tmpfs, reading a hole allocates it. */
#include "check.h"
#include "usage.h"

#include <sys/mman.h>
#include <sys/syscall.h>

enum { segment = 2 << 20, capacity = 64 << 20, populate_read = 22 };

static char *directory;
static shale_cache *cache;
static uint64_t last;

static void set(uint64_t key, size_t size) {
    static unsigned char bytes[8000];
    if (bytes[0] == 0) {
        random_source source = {1};
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (unsigned char)random_next(&source) | 1;
    }
    REQUIRE_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, size, NULL));
}

static uint64_t index_bytes(void) {
    shale_stats stats = {.struct_size = sizeof stats};
    REQUIRE_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    return stats.index_bytes;
}

static void test_load_varies(void) {
    cache = require_open(NULL, (shale_options){.capacity = 256 << 20, .shards = 1});
    while (last < 20000)
        set(++last, 1);
    uint64_t bytes = index_bytes();
    while (index_bytes() == bytes)
        set(++last, 1);
    uint64_t removed = 0, shrunk = 0;
    bytes = index_bytes();
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 12; i++) {
            removed++;
            REQUIRE_STATUS(SHALE_OK, shale_remove(cache, &removed, sizeof removed, 0));
        }
        for (int i = 0; i < 64; i++)
            set(last, 1);
        for (int i = 0; i < 12; i++)
            set(++last, 1);
        uint64_t now = index_bytes();
        for (int i = 0; i < 64; i++)
            set(last, 1);
        shrunk += now < bytes || index_bytes() < now;
        bytes = index_bytes();
    }
    CHECK(shrunk == 0);
    shale_close(cache);
}

/* Grows the table, while a set is about to map the next frame, until that frame is given back. */
static bool waits, was_given_back;

int madvise(void *at, size_t size, int advice) {
    if (waits && size == segment && advice == populate_read) {
        waits = false;
        uint64_t before = disk_usage(directory);
        for (int i = 0; i < 400000 && !was_given_back; i++) {
            set(++last, 1);
            was_given_back = i % 1024 == 0 && disk_usage(directory) < before - segment / 2;
        }
    }
    return (int)syscall(SYS_madvise, at, size, advice);
}

static void test_given_back(void) {
    directory = path_to("cache");
    cache = require_open(directory, (shale_options){.capacity = capacity, .shards = 1, .segment_size = segment});
    for (int i = 0; i < 20000; i++)
        set(++last, 8000);
    waits = true;
    for (int i = 0; i < 1000 && waits; i++)
        set(++last, 8000);
    REQUIRE(!waits && was_given_back);
    for (int i = 0; i < 600000; i++) {
        set(++last, 1);
        if (i % 16384 == 0)
            CHECK(disk_usage(directory) <= capacity);
    }
    shale_close(cache);
}

int main(void) {
    watch(patience);
    prefer_memory();
    RUN(test_load_varies);
    RUN(test_given_back);
    return finish();
}
