/* The bytes of a cache, as format.md gives them: enough to find
 * every structure in a copy of the two files that is known to be sound. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <stdint.h>
#include <string.h>

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

enum { page_bytes = 4096, index_head_bytes = 3 * page_bytes, record_header_bytes = 48, segment_header_bytes = 64 };

/* clang-format off */

/* Fields of the superblock and the words beside it. */
enum { super_copy = 2048, super_version = 8, super_sequence = 16, super_capacity = 32, super_check = 120, super_bytes = 128,
       super_renewals = 104, super_features = 108, super_clean_mark = 1024, super_generation = 1032 };

/* In the number of a blob whose parts are in the shard of their manifest. */
static const uint64_t blob_is_in_one_shard = UINT64_C(1) << 63;

#define SUPER_MAGIC UINT64_C(0x41544144454c4853)   /* SHLEDATA */
#define INDEX_MAGIC UINT64_C(0x58444e49454c4853)   /* SHLEINDX */
#define SEGMENT_MAGIC UINT64_C(0x31474553454c4853) /* SHLESEG1 */

/* Fields of a segment's header. */
enum { segment_frame = 8, segment_shard = 12, segment_number = 16, segment_previous = 24, segment_tail = 32,
       segment_check = 40, segment_lsn = 48, segment_tail_offset = 56, segment_log = 60 };

/* Fields of the index head. */
enum { index_version = 17, index_secret_check = 16, index_geometry_check = 24, index_boot = 32, index_own_device = 48,
       index_data_device = 64, index_clean_mark = 80, index_generation = 112, index_own_birth = 120,
       index_data_birth = 128, index_sum = 136, index_owners = 152, index_owner_rows = 160, index_data_changed = 144, index_lsn = 512, index_dictionary_words = 640, index_dictionary_numbers = 704,
       index_counters = 4096 };

/* Fields of a shard header. */
enum { shard_lock = 8, shard_shape = 64, shard_moves = 72, shard_epoch = 80, shard_tag_generations = 88, shard_tag_counts = 960, shard_stamp = 128, shard_state = 192,
       shard_entries = 200, shard_live = 208, shard_raw = 216, shard_stored = 224, shard_pinned = 232, shard_used = 240,
       shard_head_frame = 256, shard_head_offset = 264, shard_head_number = 272, shard_tail_offset = 280,
       shard_queue_first = 288, shard_queue_count = 296, shard_tail_number = 304, shard_proven_tail = 312,
       shard_table_bytes = 320, shard_residual = 328, shard_last_number = 336, shard_pending = 368,
       shard_allocated = 376, shard_heap_counts = 408, shard_dictionaries = 512, shard_transaction = 704,
       shard_frame = 752, shard_move_count = 776, shard_copied_slot = 792, shard_saved = 200, shard_savepoint = 1024,
       shard_saved_bytes = 440, shard_header_bytes = 2304 };

/* Of a place in shale.data. */
enum frame_state { frame_absent, frame_free, frame_in_log, frame_preparing };

enum { tag_cell = 32, tag_cells = 128, lease_group = 16 * 24, writer_cell = 16, writer_group = 16 * writer_cell, use_time_bytes = 1024, least_fence_lines = 128, most_fence_lines = 65536, dictionary_words = 16, bucket_bytes = 64, slot_bytes = 16, last_buckets = 16,
       most_buckets = (1 << 24) - 64, chunk_buckets = 1024, chunk_head = 3 * page_bytes, chunk_bytes = chunk_head + chunk_buckets * bucket_bytes };

enum record_kind { record_value = 1, record_manifest, record_part, record_tombstone, record_touch, record_invalidate,
                   record_end, record_gap, record_loss, record_expire };

/* clang-format on */

typedef struct {
    uint64_t shards, segment_size, rows, dictionary_places, dictionary_size;
    uint64_t dictionaries, segments;             /* in shale.data */
    uint64_t queue, states, leases, writers, fences, region,
        chunks; /* in a shard's region of shale.index, its size, and its end */
} layout;

/* A record of the log, by its position in shale.data. */
typedef struct {
    uint64_t offset, length, lsn;
    unsigned kind, codec, tags, flags, dictionary;
    uint64_t key, key_size, meta, meta_size, stored, stored_size; /* offsets in shale.data */
} record_view;

static inline uint64_t word_at(const unsigned char *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static inline uint32_t half_at(const unsigned char *p) {
    uint32_t half;
    memcpy(&half, p, 4);
    return half;
}

static inline uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

static inline uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static inline uint64_t clamped(uint64_t least, uint64_t value, uint64_t most) {
    return value < least ? least : value > most ? most : value;
}

/* The chunks for this many buckets, the last one in whole pages. */
static inline uint64_t table_bytes_of(uint64_t buckets) {
    uint64_t all = buckets + last_buckets, rest = all % chunk_buckets;
    return all / chunk_buckets * chunk_bytes + (rest ? chunk_head + round_up(rest * bucket_bytes, page_bytes) : 0);
}

static inline layout layout_of(const unsigned char *data) {
    const unsigned char *super = word_at(data + super_sequence) > word_at(data + super_copy + super_sequence)
                                     ? data
                                     : data + super_copy;
    layout l = {.shards = half_at(super + 48),
                .segment_size = half_at(super + 52),
                .rows = half_at(super + 80),
                .dictionary_places = half_at(super + 88),
                .dictionary_size = half_at(super + 92)};
    l.dictionaries = page_bytes + round_up(l.shards * 32, page_bytes);
    l.segments = round_up(l.dictionaries + l.dictionary_places * l.dictionary_size,
                          l.segment_size < 2 << 20 ? l.segment_size : 2 << 20);
    l.queue = shard_header_bytes + l.rows * 8;
    l.states = round_up(l.queue + l.rows * 4, 8);
    uint64_t first_rows = half_at(super + 112);
    uint64_t share = (first_rows ? first_rows * 4 : l.rows) * l.segment_size / 4;
    l.leases = round_up(l.states + l.rows, 64);
    l.writers = l.leases + clamped(5, share / (48 << 10), 320) * lease_group;
    l.fences = round_up(l.writers + clamped(4, share / (240 << 10), 64) * writer_group, 64);
    l.region = round_up(l.fences + clamped(least_fence_lines, share / 100 / 64, most_fence_lines) * 64 + use_time_bytes,
                        page_bytes);
    l.chunks = index_head_bytes + l.shards * l.region;
    return l;
}

static inline uint64_t shard_offset(const layout *l, uint64_t shard) {
    return index_head_bytes + shard * l->region;
}

/* Chunk `n` of a shard, in shale.index. */
static inline uint64_t chunk_offset(const layout *l, uint64_t shard, uint64_t n) {
    return l->chunks + (n * l->shards + shard) * chunk_bytes;
}

static inline uint64_t bucket_offset(const layout *l, uint64_t shard, uint64_t n) {
    return chunk_offset(l, shard, n / chunk_buckets) + chunk_head + n % chunk_buckets * bucket_bytes;
}

/* Cell `n` of a generation of tags. */
static inline uint64_t tag_cell_offset(const layout *l, uint64_t shard, unsigned generation, uint64_t n) {
    return chunk_offset(l, shard, n / tag_cells) + generation * page_bytes + n % tag_cells * tag_cell;
}

/* How many cells a generation has; the word at shard_tag_generations says in how many chunks. */
static inline uint64_t tag_cells_of(const unsigned char *header, unsigned generation) {
    return (word_at(header + shard_tag_generations) >> (1 + 20 * generation) & 0xFFFFF) * tag_cells;
}

/* Slot `n` of a shard's table. */
static inline uint64_t slot_offset(const layout *l, uint64_t shard, uint64_t n) {
    return bucket_offset(l, shard, n / 4) + n % 4 * slot_bytes;
}

static inline uint64_t frame_offset(const layout *l, uint64_t shard, uint64_t place) {
    return l->segments + (place * l->shards + shard) * l->segment_size;
}

/* Of the slot's low word. */
static inline uint64_t location_offset(const layout *l, uint64_t shard, uint32_t location) {
    uint64_t bytes = (uint64_t)location * 8;
    return frame_offset(l, shard, bytes / l->segment_size) + bytes % l->segment_size;
}

static inline uint64_t shape_mode(const unsigned char *shard) {
    return word_at(shard + shard_shape) >> 48;
}

/* Buckets in use, including those after the last home. */
static inline uint64_t buckets_of(const unsigned char *shard) {
    uint64_t buckets = word_at(shard + shard_shape) & 0xffffff;
    uint64_t mode = shape_mode(shard), more = mode == 1  ? larger(64, buckets / 4)
                                              : mode & 1 ? (buckets << mode / 2) - buckets
                                                         : 0;
    return buckets + more + last_buckets;
}

static inline uint64_t queued_frame(const layout *l, const unsigned char *shard, uint64_t i) {
    return half_at(shard + l->queue + (word_at(shard + shard_queue_first) + i) % l->rows * 4);
}

static inline record_view record_at(const unsigned char *data, uint64_t offset) {
    const unsigned char *p = data + offset;
    record_view r = {.offset = offset,
                     .lsn = word_at(p),
                     .kind = p[20] & 15,
                     .codec = p[20] >> 4,
                     .tags = p[21] & 15,
                     .flags = p[21] >> 4,
                     .dictionary = (unsigned)p[40] | (unsigned)p[41] << 8};
    r.key = offset + record_header_bytes + (r.flags & 2 ? 8 : 0) + (r.flags & 8) + r.tags * 8;
    r.key_size = (uint64_t)p[22] | (uint64_t)p[23] << 8;
    r.meta = r.key + r.key_size;
    r.meta_size = (uint64_t)p[32] | (uint64_t)p[33] << 8;
    r.stored = r.meta + r.meta_size;
    r.stored_size = half_at(p + 24);
    r.length = round_up(r.stored + r.stored_size - offset, 8);
    return r;
}

/* The head check of a record in a segment of that number, at that offset of shale.data. */
static inline uint32_t head_check_of(const unsigned char *data, const record_view *r, uint64_t number, uint64_t at,
                                     uint64_t secret) {
    const unsigned char *p = data + r->offset;
    uint64_t extension = r->key - r->offset - record_header_bytes;
    uint64_t words[] = {word_at(p),
                        word_at(p + 16) >> 32 << 32,
                        word_at(p + 24),
                        word_at(p + 32),
                        word_at(p + 40),
                        r->key_size ? XXH3_64bits_withSeed(data + r->key, r->key_size, secret) : 0,
                        extension ? XXH3_64bits_withSeed(p + record_header_bytes, extension, secret) : 0,
                        number,
                        at};
    return (uint32_t)XXH3_64bits_withSeed(words, sizeof words, secret);
}

#endif
