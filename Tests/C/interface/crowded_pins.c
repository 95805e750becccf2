/* Small pinned entries beside others, in a new cache and in one whose entries were larger: a pin that is admitted has a
 * slot, so ordinary sets go on; a set evicts what it needs, and a refused one no more than that (space.md, "Pinned
 * entries"). */
#include "check.h"

enum { small = 20, key_size = 1 + sizeof(unsigned), record = 80, entries = 20000 };

static unsigned char bytes[1 << 16];

static void make_key(char *key, char kind, unsigned number) {
    key[0] = kind;
    memcpy(key + 1, &number, sizeof number);
}

static shale_status put(shale_cache *cache, char kind, unsigned number, size_t size, uint32_t flags) {
    char key[key_size];
    make_key(key, kind, number);
    shale_set_options options = {.struct_size = sizeof options, .flags = flags | SHALE_SET_UNCOMPRESSED};
    return shale_set(cache, key, key_size, bytes + number % 1000, size, &options);
}

/* Sets, and checks what that evicts: at most `most` entries, and for an answer other than OK at most the bytes of the
 * record, rounded up to whole entries. */
static shale_status put_counted(shale_cache *cache, char kind, unsigned number, uint32_t flags, uint64_t most) {
    uint64_t before = stats_of(cache).evictions;
    shale_status status = put(cache, kind, number, small, flags);
    uint64_t evicted = stats_of(cache).evictions - before;
    if (!CHECK(evicted <= (status == SHALE_OK ? most : 1)))
        fprintf(stderr, "  %c%u: %d, %" PRIu64 " evictions\n", kind, number, status, evicted);
    return status;
}

/* Returns how many could be pinned. `beside`: ordinary sets for each pin. */
static unsigned crowd(uint64_t mebibytes, int32_t policy, size_t earlier, unsigned beside) {
    /* One makes room for the record and one is in its slot's place; eight make room for a larger table. With CLOCK,
     * cleaning ahead evicts. */
    const uint64_t most = 1 + 1 + 8 + (policy == SHALE_EVICTION_CLOCK ? 32 : 0);
    shale_cache *cache = require_open(NULL, (shale_options){.capacity = mebibytes << 20, .eviction = policy});
    if (earlier > 0)
        for (unsigned i = 0; i < (mebibytes << 21) / earlier; i++)
            CHECK_STATUS(SHALE_OK, put(cache, 'e', i, earlier, 0));
    unsigned pinned = 0, refused = 0, others = 0;
    for (unsigned number = 0; refused < 50; number++) {
        /* The first one of a shard also makes room for the cleaner, which can only move it. */
        if (put_counted(cache, 'p', number, SHALE_SET_PINNED, pinned < 32 ? UINT64_MAX : most) == SHALE_OK)
            pinned++;
        else
            refused++;
        for (unsigned i = 0; i < beside; i++)
            CHECK_STATUS(SHALE_OK, put_counted(cache, 'o', others++, 0, pinned < 32 ? UINT64_MAX : most));
    }
    shale_stats stats = stats_of(cache);
    for (unsigned i = 0; i < entries; i++)
        CHECK_STATUS(SHALE_OK, put_counted(cache, 'o', others++, 0, most));
    CHECK_STATUS(SHALE_OK, put(cache, 'l', 0, 4000, 0));
    unsigned found = 0;
    for (unsigned number = 0; number < pinned + refused; number++) {
        char key[key_size];
        shale_value value = SHALE_VALUE_INIT;
        make_key(key, 'p', number);
        found += shale_get(cache, key, key_size, SHALE_GET_PEEK, &value) == SHALE_OK;
        shale_value_free(&value);
    }
    CHECK_EQUAL(pinned, found);
    printf("%2" PRIu64 " MiB %-5s after %5zu bytes, %u beside: %6u pinned, %2.0f %% live, %2.0f %% index\n", mebibytes,
           policy == SHALE_EVICTION_LRU ? "LRU" : "CLOCK", earlier, beside, pinned,
           100.0 * (double)stats.live_bytes / (double)(mebibytes << 20),
           100.0 * (double)stats.index_bytes / (double)(mebibytes << 20));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return pinned;
}

int main(void) {
    watch(patience);
    static const size_t earlier[] = {16000, 1000};
    for (int32_t policy = SHALE_EVICTION_LRU; policy <= SHALE_EVICTION_CLOCK; policy++)
        for (unsigned beside = 0; beside < 2; beside++) {
            unsigned new = crowd(4, policy, 0, beside);
            for (unsigned i = 0; i < 2; i++)
                CHECK(crowd(4, policy, earlier[i], beside) >= new / 100 * 90);
        }
    CHECK(crowd(16, SHALE_EVICTION_LRU, 16000, 1) > 100000);
    return finish();
}
