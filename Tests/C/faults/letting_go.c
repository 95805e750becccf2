/* Threads fill a disk that is smaller than their cache, beside pinned entries. One prepares a segment without the
 * lock while others want it, and the disk may have no room for it. Calls that remove or evict entries succeed in any
 * case, and so does each set, which evicts others. Removed keys stay absent, and the pinned entries stay.
 *
 * letting_go [seed] */
#include "own_disk.h"
#include "pattern.h"
#include "threads.h"

enum { kib = 1 << 10, thread_count = 3, rounds = 3000, keys_each = 40, pins = 4, largest = 30000 };

static shale_cache *cache;

typedef struct {
    uint64_t number;
    random_source source;
} worker;

/* In the thread's own range, so that no other thread sets a key that it has removed. */
static uint64_t draw_key(worker *w) {
    return w->number * keys_each + random_below(&w->source, keys_each);
}

static void set(uint64_t key, uint64_t version, size_t size, uint32_t flags) {
    unsigned char bytes[largest];
    uint64_t tag = key % 8;
    shale_set_options options = {.struct_size = sizeof options,
                                 .flags = flags | SHALE_SET_UNCOMPRESSED,
                                 .max_age_ms = 3600000,
                                 .stale_ms = 3600000,
                                 .tags = &(shale_bytes){&tag, sizeof tag},
                                 .tag_count = !(flags & SHALE_SET_PINNED)};
    pattern_fill(bytes, key, version, size);
    CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, size, &options));
}

static shale_status look(uint64_t key, uint32_t flags) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = shale_get(cache, &key, sizeof key, flags, &value);
    uint64_t version;
    if (status == SHALE_OK || status == SHALE_STALE)
        CHECK(!pattern_check(value.data, value.size, key, &version));
    shale_value_free(&value);
    return status;
}

static void let_go(uint64_t key, uint64_t how) {
    uint64_t tag = key % 8;
    if (how == 0) {
        CHECK(shale_remove(cache, &key, sizeof key, 0) >= 0);
        CHECK_STATUS(SHALE_MISS, look(key, SHALE_GET_STALE));
    } else if (how == 1) {
        CHECK(shale_expire(cache, &key, sizeof key) >= 0);
        CHECK_STATUS(SHALE_MISS, look(key, 0));
    } else if (how == 2)
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &tag, sizeof tag));
    else
        CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, NULL));
}

static void *work(void *context) {
    worker *w = context;
    for (uint64_t i = 0; i < rounds && check_failures == 0; i++) {
        uint64_t how = random_below(&w->source, 24), key = draw_key(w);
        if (how < 6)
            let_go(key, how % 4);
        else
            set(key, i + 1, sizeof(pattern_head) + random_below(&w->source, how < 10 ? largest - 100 : 3000), 0);
    }
    return NULL;
}

static void fill(const char *directory, uint64_t disk, size_t pinned, int32_t policy, uint64_t seed) {
    cache = require_open(directory, (shale_options){.capacity = 1407 * kib, .eviction = policy});
    for (uint64_t i = 0; i < pins; i++)
        set(1000 + i, 1, pinned, SHALE_SET_PINNED);
    worker workers[thread_count];
    void *contexts[thread_count];
    for (uint64_t i = 0; i < thread_count; i++) {
        workers[i] = (worker){i, {seed + i}};
        contexts[i] = &workers[i];
    }
    run_threads(thread_count, work, contexts);
    for (uint64_t key = 0; key < thread_count * keys_each; key++)
        let_go(key, 0);
    for (uint64_t i = 0; i < pins; i++) {
        CHECK_STATUS(SHALE_OK, look(1000 + i, 0));
        let_go(1000 + i, i % 2);
    }
    set(2000, 1, largest, 0);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    /* The log says the same. */
    char *index = path_to("disk/cache/shale.index");
    REQUIRE(unlink(index) == 0);
    free(index);
    cache = require_open(directory, (shale_options){0});
    for (uint64_t key = 0; key < thread_count * keys_each; key++)
        CHECK_STATUS(SHALE_MISS, look(key, SHALE_GET_STALE));
    for (uint64_t i = 0; i < pins; i++)
        CHECK_STATUS(i % 2 ? SHALE_STALE : SHALE_MISS, look(1000 + i, SHALE_GET_STALE));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    if (check_failures)
        fprintf(stderr, "on a disk of %" PRIu64 " KiB, with pinned entries of %zu bytes and policy %d\n", disk, pinned,
                (int)policy);
}

int main(int argument_count, char **arguments) {
    uint64_t seed = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : (uint64_t)time(NULL);
    static const uint64_t disks[] = {1104, 1300};
    static const size_t pinned[] = {300, largest};
    char *root = path_to("disk"), *directory = path_to("disk/cache");
    REQUIRE(mkdir(root, 0700) == 0);
    for (int i = 0; i < 24; i++) {
        pid_t child = fork();
        if (child == 0) {
            begin_child(patience);
            if (!mount_own_disk(root, disks[i & 1]))
                _exit(SKIPPED);
            fill(directory, disks[i & 1], pinned[i >> 1 & 1], i >> 2 & 1 ? SHALE_EVICTION_CLOCK : SHALE_EVICTION_LRU,
                 seed * 100 + (uint64_t)i * 10);
            _exit(check_failures != 0);
        }
        int code = wait_for(child);
        if (code == SKIPPED) {
            printf("skipped: a tmpfs cannot be mounted here\n");
            finish();
            return SKIPPED;
        }
        CHECK_EQUAL(0, code);
    }
    printf("seed %" PRIu64 "\n", seed);
    free(root);
    free(directory);
    return finish();
}
