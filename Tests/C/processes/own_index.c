/* A read-only handle with a private index, since no writer had left one: while the sole writer opens the cache, with
 * a smaller capacity as well, a get is a hit as before, or an error that says to open the handle again. Never a
 * miss: the writer moves and evicts records, and this index does not follow. */
#include "check.h"
#include "faults.h"
#include "files.h"

enum { capacity = 8 << 20, segment = 128 << 10, keys = 1500, sets = 3000, size = 3000, every = 20, looks = 4 };

static char *directory;
static shale_cache *reader;
static bool was_hit[keys], is_looking;
static unsigned long stores, hits, refusals, misses;
static uint64_t next = 12345;

static uint64_t draw(void) {
    next = next * 6364136223846793005 + 1442695040888963407;
    return next >> 33;
}

static shale_status look(uint64_t key) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = shale_get(reader, &key, sizeof key, SHALE_GET_PEEK, &value);
    shale_value_free(&value);
    return status;
}

static void before_store(const void *at UNUSED) {
    if (is_looking || ++stores % every != 0)
        return;
    is_looking = true;
    for (int i = 0; i < looks; i++) {
        uint64_t key = draw() % keys;
        if (!was_hit[key])
            continue;
        shale_status status = look(key);
        hits += status == SHALE_OK;
        refusals += status == SHALE_E_BUSY;
        misses += status == SHALE_MISS;
    }
    is_looking = false;
}

static void fill(void) {
    shale_options options = {.struct_size = sizeof options, .capacity = capacity, .shards = 1, .segment_size = segment};
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    static unsigned char bytes[size];
    shale_set_options plain = {.struct_size = sizeof plain, .flags = SHALE_SET_UNCOMPRESSED};
    for (uint64_t i = 0; i < sets; i++) {
        uint64_t key = i < keys ? i : draw() % keys;
        CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, size, &plain));
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_index(directory);
}

static void test_while_a_writer_opens(uint64_t smaller) {
    stores = hits = refusals = misses = 0;
    fill();
    shale_options read_only = {.struct_size = sizeof read_only, .flags = SHALE_OPEN_READ_ONLY};
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &read_only, &reader));
    unsigned there = 0;
    for (uint64_t key = 0; key < keys; key++)
        there += was_hit[key] = look(key) == SHALE_OK;
    CHECK(there > keys / 2);
    /* A failed open changes nothing, and invalidates no handle. */
    shale_options wrong = {.struct_size = sizeof wrong, .shards = 7};
    shale_cache *none = NULL;
    CHECK_STATUS(SHALE_E_INVALID, shale_open(directory, &wrong, &none));
    CHECK(look(0) != SHALE_E_BUSY);
    shim_faults.store = before_store;
    shale_options options = {.struct_size = sizeof options, .capacity = smaller};
    shale_cache *cache = NULL;
    CHECK_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    shim_faults.store = NULL;
    CHECK(refusals > 1000);
    CHECK_EQUAL(0, misses);
    CHECK_STATUS(SHALE_E_BUSY, look(0));
    CHECK_STATUS(SHALE_OK, shale_close(reader));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
}

int main(void) {
    watch(patience);
    directory = path_to("own");
    test_while_a_writer_opens(0);
    test_while_a_writer_opens(capacity / 2);
    free(directory);
    return finish();
}
