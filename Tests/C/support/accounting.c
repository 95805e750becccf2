/* Tests the audit of account.h: it finds nothing in caches that were used in every way, and finds each fault that is
 * planted in their files.
 *
 * accounting [rounds, 8] [seed] */
#include "afterwards.h"
#include "files.h"
#include "pattern.h"

enum { key_count = 3000, largest = 250000 };

static random_source source;

static shale_cache *open_cache(const char *directory, uint64_t capacity, uint32_t shards) {
    return require_open(directory,
                        (shale_options){.capacity = capacity, .shards = shards, .flags = SHALE_OPEN_NO_SYNC});
}

static void use_once(shale_cache *cache, uint64_t number) {
    static unsigned char bytes[largest];
    static shale_value value = SHALE_VALUE_INIT;
    uint64_t key = random_below(&source, key_count), tag = key % 50, kind = random_below(&source, 100);
    shale_bytes tags = {&tag, sizeof tag};
    shale_set_options options = {.struct_size = sizeof options, .tags = &tags, .tag_count = key % 3 == 0};
    if (kind < 70) {
        size_t size = sizeof(pattern_head) + random_below(&source, random_below(&source, 100) ? 1500 : largest - 100);
        pattern_fill(bytes, key, number, size);
        options.flags = kind == 0 && size < 10000 ? SHALE_SET_PINNED : kind == 1 ? SHALE_SET_UNCOMPRESSED : 0;
        options.max_age_ms = kind < 10 ? 1000000 : 0;
        options.stale_ms = kind == 5 ? 70000 : 0;
        CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, size, &options));
    } else if (kind < 78)
        CHECK(shale_remove(cache, &key, sizeof key, 0) >= 0);
    else if (kind < 86)
        CHECK(shale_touch(cache, &key, sizeof key, key % 5 ? 500000 : SHALE_NEVER) >= 0);
    else if (kind < 87)
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &tag, sizeof tag));
    else if (kind < 88)
        CHECK_STATUS(SHALE_OK, shale_evict(cache, random_below(&source, 4), NULL));
    else
        CHECK(shale_get(cache, &key, sizeof key, 0, &value) >= 0);
    if (random_below(&source, 20000) == 0)
        CHECK_STATUS(SHALE_OK, shale_clear(cache));
}

static void used_in_every_way(uint64_t rounds) {
    static const struct {
        uint64_t capacity;
        uint32_t shards;
    } kinds[] = {{3 << 20, 1}, {8 << 20, 3}, {48 << 20, 1}, {64 << 20, 4}};
    for (uint64_t round = 0; round < rounds; round++) {
        char *directory = path_to("used");
        uint64_t capacity = kinds[round % 4].capacity, number = 0;
        shale_cache *cache = open_cache(directory, capacity, kinds[round % 4].shards);
        for (int part = 0; part < 5; part++) {
            for (int i = 0; i < 3000; i++)
                use_once(cache, ++number);
            accounts found = check_account(directory, "used");
            shale_stats stats = stats_of(cache);
            CHECK_EQUAL(found.entries, stats.entries);
            CHECK_EQUAL(found.live, stats.live_bytes);
            CHECK_EQUAL(found.raw, stats.raw_bytes);
            CHECK_EQUAL(found.stored, stats.stored_bytes);
            CHECK_EQUAL(0, found.incomplete);
            CHECK_EQUAL(0, found.being_written);
            CHECK_EQUAL(0, found.orphans); /* an eviction here never removes more than four large values */
            if (part == 3) { /* and with another capacity */
                CHECK_STATUS(SHALE_OK, shale_close(cache));
                cache = open_cache(directory, capacity = capacity * (round % 2 ? 2 : 3) / 2, 0);
                check_account(directory, "larger");
            }
        }
        check_still_works(cache);
        check_account(directory, "afterwards");
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(directory);
        free(directory);
    }
}

/* Planted faults */

static struct {
    char *directory;
    mapped_file data, index;
    layout l;
    uint64_t old_slot, old_stamp, removed_slot; /* of keys that were replaced and removed since */
    uint64_t replaced, removed; /* where those slots are or were, in the index */
} planted;

static unsigned char *shard_header(void) {
    return planted.index.bytes + index_head_bytes;
}

static unsigned char *slot_at(uint64_t n) {
    return planted.index.bytes + slot_offset(&planted.l, 0, n);
}

/* The first slot, from `n` on, with these bits of its first word; or the first free one. */
static uint64_t find_slot(uint64_t n, uint64_t mask, uint64_t bits) {
    while (n < buckets_of(shard_header()) * 4 &&
           ((uint32_t)word_at(slot_at(n)) == 0 || (word_at(slot_at(n)) & mask) != bits))
        n++;
    REQUIRE(n < buckets_of(shard_header()) * 4);
    return n;
}

static void poke(unsigned char *at, uint64_t word) {
    memcpy(at, &word, 8);
}
static void add_to(unsigned field) {
    poke(shard_header() + field, word_at(shard_header() + field) + 1);
}

enum { kind_plain = 0, kind_tagged = 1, kind_part = 2, kind_touched = 3 };
#define KIND(kind) ((uint64_t)(kind) << 62)
#define KIND_MASK KIND(3)
#define PINNED (UINT64_C(1) << 61)
#define DISPLACEMENT_BIT (UINT64_C(1) << 60)
#define DISPLACEMENT (UINT64_C(15) << 56)

static void entries(void) {
    add_to(shard_entries);
}
static void used(void) {
    add_to(shard_used);
}
static void live(void) {
    add_to(shard_live);
}
static void raw(void) {
    add_to(shard_raw);
}
static void stored_sum(void) {
    add_to(shard_stored);
}
static void pinned(void) {
    add_to(shard_pinned);
}
static void dictionary(void) {
    add_to(shard_dictionaries + 8);
}
static void tag_count(void) {
    poke(shard_header() + shard_tag_counts, 0);
    poke(shard_header() + shard_tag_counts + 8, 0);
}
static void allocated(void) {
    add_to(shard_allocated);
}
static void state(void) {
    add_to(shard_state);
}
static void pages(void) {
    poke(shard_header() + shard_table_bytes, page_bytes);
}
static void place(void) {
    uint64_t n = queued_frame(&planted.l, shard_header(), 1);
    shard_header()[planted.l.states + n] = frame_free;
}
static void queue_order(void) {
    unsigned char *queue = shard_header() + planted.l.queue, first[4];
    uint64_t rows = planted.l.rows, at = word_at(shard_header() + shard_queue_first);
    memcpy(first, queue + at * 4, 4);
    memcpy(queue + at * 4, queue + (at + 1) % rows * 4, 4);
    memcpy(queue + (at + 1) % rows * 4, first, 4);
}
static void segment_of_another_lap(void) {
    uint64_t n = queued_frame(&planted.l, shard_header(), 0);
    planted.data.bytes[frame_offset(&planted.l, 0, n) + segment_tail] ^= 1;
}
static void fingerprint(void) {
    uint64_t n = find_slot(0, 0, 0);
    poke(slot_at(n), word_at(slot_at(n)) ^ UINT64_C(1) << 32);
}
static void reach(void) {
    /* The bucket is the entry's home; without its first displacement bit no entry may lie outside it. */
    uint64_t n = 0;
    do
        n = find_slot(n + 1, 0, 0);
    while (!(word_at(slot_at(n)) & DISPLACEMENT));
    unsigned char *home = slot_at((n / 4 - (word_at(slot_at(n)) >> 56 & 15)) * 4);
    for (int i = 0; i < 4; i++)
        poke(home + i * slot_bytes, word_at(home + i * slot_bytes) & ~DISPLACEMENT_BIT);
}
static void moved_slot(void) {
    uint64_t from = find_slot(0, DISPLACEMENT, 0), to = from + 4;
    while ((uint32_t)word_at(slot_at(to)) != 0)
        to += 4;
    poke(slot_at(to), word_at(slot_at(from)) & ~DISPLACEMENT_BIT);
    poke(slot_at(to) + 8, word_at(slot_at(from) + 8));
    poke(slot_at(from), word_at(slot_at(from)) & DISPLACEMENT_BIT);
}
static void second_slot(void) {
    uint64_t from = 0, to;
    do {
        from = find_slot(from + 1, 0, 0);
        for (to = from / 4 * 4; to < from / 4 * 4 + 4 && (uint32_t)word_at(slot_at(to)) != 0; to++) {
        }
    } while (to == from / 4 * 4 + 4);
    poke(slot_at(to), (word_at(slot_at(from)) & ~DISPLACEMENT_BIT) | (word_at(slot_at(to)) & DISPLACEMENT_BIT));
    poke(slot_at(to) + 8, word_at(slot_at(from) + 8));
}
static void pinned_bit(void) {
    uint64_t n = find_slot(0, PINNED, PINNED);
    poke(slot_at(n), word_at(slot_at(n)) & ~PINNED);
}
static void kind_bits(void) {
    uint64_t n = find_slot(0, KIND_MASK, KIND(kind_tagged));
    poke(slot_at(n), word_at(slot_at(n)) & ~KIND_MASK);
}
static void expiry(void) {
    uint64_t n = find_slot(0, KIND_MASK, KIND(kind_touched));
    poke(slot_at(n) + 8, (word_at(slot_at(n) + 8) ^ UINT64_C(4) << 40));
}
static void stale_slot(void) {
    poke(planted.index.bytes + planted.replaced,
         (word_at(planted.index.bytes + planted.replaced) & ~(uint64_t)UINT32_MAX) | (uint32_t)planted.old_slot);
}
static void removed_slot(void) {
    poke(planted.index.bytes + planted.removed, planted.removed_slot);
}
static void wild_slot(void) {
    uint64_t n = find_slot(0, 0, 0);
    poke(slot_at(n), word_at(slot_at(n)) + 1);
}
static void removed_tag(void) {
    poke(shard_header() + shard_tag_generations, 0);
}
static void residual(void) {
    poke(shard_header() + shard_residual, 0);
}
static void damaged_record(void) {
    uint64_t n = queued_frame(&planted.l, shard_header(), 0);
    planted.data.bytes[frame_offset(&planted.l, 0, n) + segment_header_bytes + record_header_bytes] ^= 1;
}
static void record_behind_the_end(void) {
    /* The log's last record was the tombstone of an 8-byte key. */
    poke(shard_header() + shard_head_offset, word_at(shard_header() + shard_head_offset) - record_header_bytes - 8);
}
static void punch(int fd, uint64_t at, uint64_t size) {
    REQUIRE(fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, (off_t)at, (off_t)size) == 0);
}
/* The last absent frame; the file may have content after its start. */
static uint64_t stray_offset(void) {
    uint64_t n = planted.l.rows - 1;
    while (shard_header()[planted.l.states + n] != frame_absent)
        n--;
    return frame_offset(&planted.l, 0, n) + 5 * page_bytes;
}
static void stray_page(void) {
    REQUIRE(pwrite(planted.data.fd, "x", 1, (off_t)stray_offset()) == 1);
}
static void punch_stray_page(void) {
    punch(planted.data.fd, stray_offset(), page_bytes);
}
static uint64_t stray_index_offset(void) {
    return chunk_offset(&planted.l, 0, 8);
}
static void stray_index_page(void) {
    REQUIRE(pwrite(planted.index.fd, "x", 1, (off_t)stray_index_offset()) == 1);
}
static void punch_stray_index_page(void) {
    punch(planted.index.fd, stray_index_offset(), page_bytes);
}
static void over_capacity(void) {
    REQUIRE(fallocate(planted.data.fd, FALLOC_FL_KEEP_SIZE, (off_t)planted.data.size, 4 << 20) == 0);
}
static void within_capacity(void) {
    punch(planted.data.fd, planted.data.size, 4 << 20);
}
static void lost_blocks(void) {
    uint64_t n = queued_frame(&planted.l, shard_header(), 2);
    punch(planted.data.fd, frame_offset(&planted.l, 0, n), planted.l.segment_size);
}
static void superblock(void) {
    planted.data.bytes[40] ^= 1;
    planted.data.bytes[super_copy + 40] ^= 1;
}
static void other_index(void) {
    planted.index.bytes[index_secret_check] ^= 1;
}

/* clang-format off */
static const struct {
    void (*plant)(void);
    const char *found;
    void (*undo)(void); /* in shale.data; the index is restored whole */
} faults[] = {
    {entries, "entries is", NULL}, {used, "used is", NULL}, {live, "live is", NULL}, {raw, "raw is", NULL}, {stored_sum, "stored is", NULL},
    {pinned, "pinned is", NULL}, {dictionary, "a dictionary's count", NULL}, {tag_count, "tags are", NULL}, {allocated, "are counted", NULL},
    {state, "being changed", NULL}, {pages, "a table of", NULL}, {place, "are queued", NULL}, {queue_order, "follows", NULL},
    {segment_of_another_lap, "another header", segment_of_another_lap}, {fingerprint, "another fingerprint", NULL}, {reach, "does not reach", NULL},
    {moved_slot, "its home is", NULL}, {second_slot, "a second slot", NULL}, {pinned_bit, "being pinned", NULL}, {kind_bits, "the slot says kind", NULL},
    {expiry, "the slot's expiry", NULL}, {stale_slot, "is current, and the log has one of kind 1", NULL},
    {removed_slot, "is current, and the log has one of kind 4", NULL}, {wild_slot, "no record of the log", NULL},
    {removed_tag, "the tag table does not", NULL}, {residual, "are not in the index", NULL}, {damaged_record, "no record at", damaged_record},
    {record_behind_the_end, "after the head's end", NULL}, {stray_page, "shale.data has", punch_stray_page}, {stray_index_page, "shale.index has", punch_stray_index_page},
    {over_capacity, "shale.data takes", within_capacity}, {superblock, "no copy of the superblock", superblock},
    {other_index, "not this cache's", NULL}, {lost_blocks, "another header", NULL}, /* the last: there is no way back */
};
/* clang-format on */

/* Entries of all kinds in one shard; some were replaced, removed, evicted, invalidated, touched. */
static void prepare(void) {
    static unsigned char bytes[largest];
    shale_cache *cache = open_cache(planted.directory, 6 << 20, 1);
    uint64_t number = 0;
    for (uint64_t key = 0; key < 1800; key++) {
        uint64_t tag = key % 8;
        shale_bytes tags = {&tag, sizeof tag};
        shale_set_options options = {.struct_size = sizeof options,
                                     .tags = &tags,
                                     .tag_count = key % 8 < 2,
                                     .flags = key % 16 == 3 ? SHALE_SET_PINNED : 0};
        size_t size = key % 100 == 50 ? 100000 : 600;
        pattern_fill(bytes, key, ++number, size);
        CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, size, &options));
        if (key % 16 == 5)
            CHECK_STATUS(SHALE_OK, shale_touch(cache, &key, sizeof key, 100000000));
    }
    uint64_t invalidated = 0;
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &invalidated, sizeof invalidated));
    CHECK_STATUS(SHALE_OK, shale_evict(cache, 30, NULL));

    /* Slots before their keys were replaced, and removed: the last two keys. */
    planted.data = map_file(planted.directory, "shale.data");
    planted.index = map_file(planted.directory, "shale.index");
    planted.l = layout_of(planted.data.bytes);
    uint64_t keys[] = {1798, 1799};
    unsigned char *before = malloc(planted.index.size);
    REQUIRE(before);
    for (int i = 0; i < 2; i++) {
        memcpy(before, planted.index.bytes, planted.index.size);
        if (i == 0)
            CHECK_STATUS(SHALE_OK, shale_set(cache, &keys[i], sizeof keys[i], "a newer value", 13, NULL));
        else
            CHECK_STATUS(SHALE_OK, shale_remove(cache, &keys[i], sizeof keys[i], 0));
        for (uint64_t at = planted.l.chunks; at < planted.index.size; at += slot_bytes)
            if ((uint32_t)word_at(before + at) &&
                (uint32_t)word_at(before + at) != (uint32_t)word_at(planted.index.bytes + at)) {
                if (i == 0)
                    planted.replaced = at, planted.old_slot = word_at(before + at);
                else
                    planted.removed = at, planted.removed_slot = word_at(before + at);
            }
    }
    free(before);
    REQUIRE(planted.replaced && planted.removed);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* Pages that differ, so that holes stay holes. */
static void restore_index(const unsigned char *saved) {
    for (size_t at = 0; at < planted.index.size; at += page_bytes)
        if (memcmp(planted.index.bytes + at, saved + at, page_bytes) != 0)
            memcpy(planted.index.bytes + at, saved + at, page_bytes);
}

static void planted_faults(void) {
    planted.directory = path_to("planted");
    prepare();
    check_account(planted.directory, "before any fault");
    unsigned char *index = malloc(planted.index.size);
    REQUIRE(index);
    memcpy(index, planted.index.bytes, planted.index.size);
    account_is_quiet = true;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        faults[i].plant();
        accounts found = take_account(planted.directory, account_own_files);
        check_that(found.faults > 0 && strstr(found.first_fault, faults[i].found), __FILE__, __LINE__, faults[i].found,
                   " should be in the audit's output, which is: %s", found.faults ? found.first_fault : "nothing");
        if (faults[i].undo)
            faults[i].undo();
        restore_index(index);
    }
    account_is_quiet = false;
    printf("%zu planted faults found\n", sizeof faults / sizeof *faults);
    free(index);
    unmap_file(&planted.data);
    unmap_file(&planted.index);
    free(planted.directory);
}

int main(int argument_count, char **arguments) {
    uint64_t rounds = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 8;
    source.state = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : 1;
    watch(patience);
    RUN(planted_faults);
    used_in_every_way(rounds);
    return finish();
}
