/* Each hold of a shard's lock does bounded work, whatever the entries are: eight tags each, keys of 60,000 bytes,
 * damage in which everything looks like a record's head, damaged values of hundreds of kilobytes. And no call pays for a
 * whole pass over the table. */
#include "check.h"
#include "faults.h"
#include "files.h"

/* As in Tests/lock-limits.toml: 256 KiB of records and one more, beside 16 bytes for each that is appended; slots that
 * passes visit in a call, beside one for two bytes that it appends. */
enum { most_slots = 2048, most_unpaid = 327680, most_passed = 2048, long_key = 60000, value_tags = 8 };

static struct shim_counts counts;
static int64_t clock_ms;

static int64_t read_clock(void *context UNUSED) {
    return clock_ms;
}

static void begin_counts(void) {
    memset(&counts, 0, sizeof counts);
    shim_counts = &counts;
}

static void check_counts(const char *where) {
    uint64_t holds = 0;
    shim_counts = NULL;
    for (int i = 0; i < SHIM_CALLS; i++) {
        const struct shim_call_counts *call = &counts.calls[i];
        const char *name = (const char *)call->name;
        if (!CHECK(call->most[SHIM_SLOTS] <= most_slots) | !CHECK(call->bytes_unpaid <= most_unpaid) |
            !CHECK(call->passes_unpaid <= most_passed))
            fprintf(stderr, "  %s: %lu slots, %lu bytes of records in a hold of %s, %lu slots in its passes\n", where,
                    call->most[SHIM_SLOTS], call->bytes_unpaid, name, call->passes_unpaid);
        holds += call->holds;
    }
    CHECK(holds > 0);
}

static shale_cache *open_empty(const char *directory, uint64_t capacity, uint64_t segment_size, int32_t policy) {
    clock_ms = 1700000000000;
    return require_open(directory, (shale_options){.capacity = capacity,
                                                   .shards = 1,
                                                   .segment_size = segment_size,
                                                   .eviction = policy,
                                                   .flags = SHALE_OPEN_NO_SYNC,
                                                   .compression = SHALE_COMPRESSION_NONE,
                                                   .now_ms = read_clock});
}

static void close_and_remove(shale_cache *cache, char *directory) {
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

/* The first tag of each is one of a hundred, the others are its own. */
static void put_tagged(shale_cache *cache, uint32_t key) {
    uint32_t names[value_tags];
    shale_bytes tags[value_tags];
    for (uint32_t i = 0; i < value_tags; i++) {
        names[i] = i == 0 ? key % 100 : 1000 + key * value_tags + i;
        tags[i] = (shale_bytes){&names[i], sizeof names[i]};
    }
    shale_set_options options = {.struct_size = sizeof options, .tags = tags, .tag_count = value_tags};
    CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, "x", 1, &options));
}

static void test_eight_tags(int32_t policy) {
    enum { entries = 100000 };
    char *directory = path_to("tags");
    shale_cache *cache = open_empty(directory, 32 << 20, 0, policy);
    for (uint32_t key = 0; key < entries; key++)
        put_tagged(cache, key);
    begin_counts();
    for (uint32_t tag = 0; tag < 20000; tag++)
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &tag, sizeof tag));
    for (uint32_t key = 0; key < 2 * entries; key++) /* cleaned entries have tags to look up */
        put_tagged(cache, key);
    uint64_t purged = 0;
    CHECK_STATUS(SHALE_OK, shale_purge(cache, &purged));
    check_counts("eight tags");
    close_and_remove(cache, directory);
}

/* All entries have the same tags, so all look through the same cells. */
static void test_equal_tags(int32_t policy) {
    char *directory = path_to("equal");
    for (uint32_t round = 0; round < 12; round++) {
        shale_cache *cache = open_empty(directory, 8 << 20, 0, policy);
        uint32_t names[value_tags], other = 1000 + round * 1000;
        shale_bytes tags[value_tags];
        for (uint32_t i = 0; i < value_tags; i++) {
            names[i] = round * value_tags + i;
            tags[i] = (shale_bytes){&names[i], sizeof names[i]};
        }
        shale_set_options options = {.struct_size = sizeof options, .tags = tags, .tag_count = value_tags};
        begin_counts();
        for (uint32_t key = 0; key < 3000; key++)
            CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, "x", 1, &options));
        for (uint32_t i = 0; i < 600; i++, other++)
            CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &other, sizeof other));
        CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
        CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
        check_counts("equal tags");
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(directory);
    }
    free(directory);
}

static const char *long_key_of(uint32_t number) {
    static char key[long_key];
    memcpy(key, &number, sizeof number);
    return key;
}

static void put_long(shale_cache *cache, uint32_t number, uint32_t age_ms) {
    shale_bytes tag = {"one", 3};
    shale_set_options options = {
        .struct_size = sizeof options, .max_age_ms = age_ms, .tags = &tag, .tag_count = number % 2};
    CHECK_STATUS(SHALE_OK, shale_set(cache, long_key_of(number), long_key, "x", 1, &options));
}

static void test_long_keys(int32_t policy) {
    enum { entries = 400 };
    char *directory = path_to("keys");
    shale_cache *cache = open_empty(directory, 32 << 20, 0, policy);
    uint64_t purged = 0;
    for (uint32_t key = 0; key < entries; key++)
        put_long(cache, key, 1000);
    clock_ms += 2000;
    begin_counts();
    CHECK_STATUS(SHALE_OK, shale_purge(cache, &purged));
    CHECK_EQUAL(entries, (int64_t)purged);
    for (uint32_t key = 0; key < entries; key++)
        put_long(cache, key, 1000);
    clock_ms += 2000;
    for (uint32_t key = 0; key < 2 * entries; key++) /* sweeps for victims meet expired entries */
        put_long(cache, 10000 + key, 1000000);
    for (uint32_t key = 0; key < 2 * entries; key++) {
        shale_status status = shale_touch(cache, long_key_of(10000 + key), long_key, 2000000);
        CHECK(status == SHALE_OK || status == SHALE_MISS);
    }
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "other", 5));
    CHECK_STATUS(SHALE_OK, shale_purge(cache, &purged));
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 100, NULL));
    for (uint32_t key = 0; key < entries; key++) /* touched entries are cleaned */
        put_long(cache, 20000 + key, 1000000);
    check_counts("long keys");
    close_and_remove(cache, directory);
}

/* Damages the head of each thirtieth record. (Its key has 16 bytes, so the words of its value begin where a record
 * might.) */
static void spoil_heads(const char *directory, uint32_t count) {
    mapped_file data = map_file(directory, "shale.data");
    for (uint32_t number = 0; number < count; number += 30) {
        char key[20];
        int size = snprintf(key, sizeof key, "head %011" PRIu32, number);
        unsigned char *at = memmem(data.bytes, data.size, key, (size_t)size);
        if (at)
            at[-48] ^= 1;
    }
    unmap_file(&data);
}

static void put_heads(shale_cache *cache, uint32_t from, uint32_t to) {
    enum { words = 2000 };
    static uint64_t value[words];
    for (int i = 0; i < words; i++)
        value[i] = (uint64_t)long_key << 48 | (uint64_t)1 << 32; /* at any word of it: a value with a long key */
    for (uint32_t number = from; number < to; number++) {
        char key[20];
        int size = snprintf(key, sizeof key, "head %011" PRIu32, number);
        CHECK_STATUS(SHALE_OK, shale_set(cache, key, (size_t)size, value, sizeof value, NULL));
    }
}

static void test_damage_like_heads(int32_t policy) {
    enum { entries = 600 };
    char *directory = path_to("heads");
    shale_cache *cache = open_empty(directory, 16 << 20, 0, policy);
    put_heads(cache, 0, entries);
    spoil_heads(directory, entries);
    begin_counts();
    put_heads(cache, entries, 4 * entries);
    check_counts("damage like heads");
    CHECK(stats_of(cache).corrupt_records > 0);
    close_and_remove(cache, directory);
}

/* The table multiplies for small entries, shrinks for large ones, and grows again from the full log. */
static void test_passes(int32_t policy) {
    enum { capacity = 32 << 20, small = 10, large = 15000 };
    static char value[large];
    char *directory = path_to("passes");
    shale_cache *cache = open_empty(directory, capacity, 0, policy);
    begin_counts();
    uint64_t key = 0, index[3];
    for (int i = 0; i < 3; i++) {
        size_t size = i == 1 ? large : small;
        for (uint64_t end = key + 2 * capacity / (size + 60); key < end; key++)
            CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, value, size, NULL));
        index[i] = stats_of(cache).index_bytes;
    }
    check_counts("passes");
    CHECK(index[1] < index[0] / 4 && index[2] > index[0] / 2);
    close_and_remove(cache, directory);
}

static void test_verify(void) {
    enum { entries = 1600, size = 60000 };
    static char value[size];
    char *directory = path_to("verify");
    shale_cache *cache = open_empty(directory, 128 << 20, 2 << 20, SHALE_EVICTION_LRU);
    for (uint32_t key = 0; key < entries; key++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, value, sizeof value, NULL));
    mapped_file data = map_file(directory, "shale.data");
    for (size_t at = data.size / 8; at < data.size; at += data.size / 64)
        data.bytes[at] ^= 1;
    unmap_file(&data);
    shale_report report = {.struct_size = sizeof report};
    begin_counts();
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    check_counts("verify");
    CHECK(report.corrupt_records > 0);
    close_and_remove(cache, directory);
}

int main(void) {
    watch(patience);
    for (uint64_t round = 0; round < 2; round++) {
        test_eight_tags(policy_of(round));
        test_equal_tags(policy_of(round));
        test_long_keys(policy_of(round));
        test_damage_like_heads(policy_of(round));
        test_passes(policy_of(round));
    }
    test_verify();
    return finish();
}
