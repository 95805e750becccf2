/* The contents of both files, read from outside by format.md: no function of the engine is used. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include "machine.h"

/* clang-format off */

/* Sources/ShaleCore/Platform/Sizes.swift, SHALE_TINY. */
enum {
    superblock_page = 512, superblock_copy = 256, generation = 136, index_head = 2048, retired_mark = 104, index_generation = 112,
    least_buckets = 2, most_buckets = 16, spare_buckets = 4, spill = 4,
    chunk_buckets = 8, tag_cell = 32, tag_cells = 2, chunk_head = 2 * tag_cells * tag_cell + unit, chunk_bytes = chunk_head + chunk_buckets * 64, heap_half = unit / 2, lease_cells = 4, writer_cells = 4, fence_line = 24, fence_lines = 2, use_time_bytes = 128, reserve = 2,
    segment_header = 64, record_header = 48, shard_header = 2304,
};
#define hash_bits 25

/* Words of a shard's header. */
enum {
    w_shape = 64, w_moves = 72, w_epoch = 80, w_tag_generations = 88, w_tag_counts = 960, w_tags_carried = 976, w_tag_sweep = 992, w_stamp = 128,
    w_state = 192, w_entries = 200, w_live = 208, w_raw = 216, w_stored = 224, w_pinned = 232, w_used = 240,
    w_head_frame = 256, w_head_offset = 264, w_head_number = 272, w_tail_offset = 280, w_queue_first = 288, w_queue_count = 296,
    w_allocated = 376, w_table_pages = 320, w_residual = 328, w_last_number = 336, w_no_space = 344, w_unsure = 648,
    w_sweep_at = 384, w_sweep_limit = 392, w_sweep_state = 400, w_heap_counts = 408, w_heap_current = 424, w_renumberings = 432, w_heap_limit = 440,
    w_removes = 456, w_evictions = 464, w_corrupt = 496, w_dictionaries = 512,
    w_transaction = 704, w_pending = 368, w_tail_number = 304, w_pinned_most = 352, w_pinned_bytes = 360, w_proven_tail = 312, w_free_count = 248, w_fence_floor = 832, w_last_tag_change = 840, w_notes_changes = 848, w_audit_at = 760,
};
enum { kind_value = 1, kind_manifest, kind_part, kind_tombstone, kind_touch, kind_invalidate, kind_end, kind_gap, kind_loss, kind_expire };
enum { frame_absent, frame_free, frame_in_log, frame_preparing };

/* clang-format on */

typedef struct {
    bool exists;
    uint64_t sequence;
    size_t shards, segment, rows, dictionary_places, dictionary_size, capacity, max_entries;
    size_t segments; /* where they begin */
    size_t queue, states, leases, fences, region, chunks, buckets;
} layout;

static uint64_t word(const unsigned char *p, size_t at) {
    uint64_t w;
    memcpy(&w, p + at, 8);
    return w;
}
static uint32_t half(const unsigned char *p, size_t at) {
    uint32_t w;
    memcpy(&w, p + at, 4);
    return w;
}
static size_t up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}
static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}
static size_t most(size_t a, size_t b) {
    return a > b ? a : b;
}
static size_t table_bytes(size_t buckets) {
    size_t all = buckets + spill, rest = all % chunk_buckets;
    return all / chunk_buckets * chunk_bytes + (rest ? chunk_head + up(rest * 64, unit) : 0);
}

/* Derived from the superblock's numbers. */
static void derive(layout *l) {
    l->segments = up(superblock_page + up(l->shards * 32, unit) + l->dictionary_places * l->dictionary_size,
                     l->segment);
    l->queue = shard_header + l->rows * 8;
    l->states = up(l->queue + l->rows * 4, 8);
    l->leases = up(l->states + l->rows, 64);
    l->fences = up(l->leases + lease_cells * 24 + writer_cells * 16, fence_line);
    l->region = up(l->fences + fence_lines * fence_line + use_time_bytes, unit);
    l->buckets = least(most_buckets, most(least_buckets, l->rows * l->segment / 56 / 2) + spare_buckets);
    l->chunks = index_head + l->shards * l->region;
}

static layout read_layout(const unsigned char *data) {
    layout l = {0};
    for (int copy = 0; copy < 2; copy++) {
        const unsigned char *p = data + copy * superblock_copy;
        if (word(p, 0) != 0x41544144454c4853u || !word(p, 120) || (l.exists && word(p, 16) < l.sequence))
            continue;
        l = (layout){.exists = true,
                     .sequence = word(p, 16),
                     .capacity = word(p, 32),
                     .max_entries = word(p, 40),
                     .shards = half(p, 48),
                     .segment = half(p, 52),
                     .rows = half(p, 80),
                     .dictionary_places = half(p, 88),
                     .dictionary_size = half(p, 92)};
    }
    if (l.exists)
        derive(&l);
    return l;
}

typedef struct {
    layout layout;
    const unsigned char *data, *index, *header; /* of a shard */
    size_t shard;
} shard_view;

static shard_view view_of(const layout *l, const unsigned char *data, const unsigned char *index, size_t shard) {
    return (shard_view){*l, data, index, index + index_head + shard * l->region, shard};
}

static uint64_t field(const shard_view *v, size_t at) {
    return word(v->header, at);
}
static size_t place_start(const shard_view *v, size_t place) {
    return v->layout.segments + (place * v->layout.shards + v->shard) * v->layout.segment;
}
static size_t place_of(const shard_view *v, uint32_t location) {
    return (size_t)location * 8 / v->layout.segment;
}
static const unsigned char *record_at(const shard_view *v, uint32_t location) {
    size_t place = place_of(v, location);
    return place < v->layout.rows ? v->data + place_start(v, place) + (size_t)location * 8 % v->layout.segment : NULL;
}
static size_t frame_state(const shard_view *v, size_t place) {
    return v->header[v->layout.states + place];
}
static uint64_t place_number(const shard_view *v, size_t place) {
    return word(v->header, shard_header + place * 8);
}
static size_t queued(const shard_view *v, size_t i) {
    return half(v->header, v->layout.queue + (field(v, w_queue_first) + i) % v->layout.rows * 4);
}

/* A word of a line of the fence table: first the highest number that has left it. The hash's highest bits, scaled,
 * choose the line. */
static uint64_t fence_word(const shard_view *v, size_t line, size_t i) {
    return word(v->header, v->layout.fences + line * fence_line + i * 8);
}
static uint64_t fence_number(uint64_t cell) {
    return cell >> 16;
}

/* Parts of a record. */
static unsigned record_kind(const unsigned char *p) {
    return p[20] & 15;
}
static bool record_is_pinned(const unsigned char *p) {
    return p[21] >> 4 & 1;
}
static size_t key_offset(const unsigned char *p) {
    return record_header + (p[21] >> 4 & 2 ? 8 : 0) + (size_t)(p[21] & 15) * 8;
}
static size_t key_length(const unsigned char *p) {
    return (size_t)p[22] | (size_t)p[23] << 8;
}
static size_t meta_length(const unsigned char *p) {
    return (size_t)p[32] | (size_t)p[33] << 8;
}
static size_t stored_offset(const unsigned char *p) {
    return key_offset(p) + key_length(p) + meta_length(p);
}
static size_t record_length(const unsigned char *p) {
    return up(stored_offset(p) + half(p, 24), 8);
}
/* The record that holds the value: a touch record's target. */
static const unsigned char *value_record(const shard_view *v, uint32_t location) {
    const unsigned char *p = record_at(v, location);
    return p && record_kind(p) == kind_touch ? record_at(v, (uint32_t)word(p, stored_offset(p))) : p;
}

typedef struct {
    size_t position, i;
    uint64_t word0, word1;
    uint32_t location;
    bool is_part, is_pinned;
    unsigned kind;
} slot;

static size_t shape_extent(uint64_t shape) {
    size_t buckets = shape & 0xFFFFFF, mode = shape >> 48;
    return mode == 1 ? buckets + most(1, buckets / 4) : mode > 2 ? buckets << mode / 2 : buckets;
}

/* Cells of each generation of tags, a page with items of both heaps, and the buckets. */
static const unsigned char *chunk_at(const shard_view *v, size_t i) {
    return v->index + v->layout.chunks + (i * v->layout.shards + v->shard) * chunk_bytes;
}
static const unsigned char *slot_at(const shard_view *v, size_t i) {
    return chunk_at(v, i / 4 / chunk_buckets) + chunk_head + i % (4 * chunk_buckets) * 16;
}
static size_t tag_cells_of(const shard_view *v, size_t generation) {
    return (field(v, w_tag_generations) >> (1 + 20 * generation) & 0xFFFFF) * tag_cells;
}
static uint64_t tag_word(const shard_view *v, size_t generation, size_t i, size_t at) {
    return word(chunk_at(v, i / tag_cells), (generation * tag_cells + i % tag_cells) * tag_cell + at);
}
/* The first has the number 1. */
static uint64_t heap_item(const shard_view *v, size_t which, size_t i) {
    return word(chunk_at(v, i / (heap_half / 8)), which * heap_half + i % (heap_half / 8) * 8);
}

/* The next slot that is taken, from *at on; false at the end. */
static bool next_slot(const shard_view *v, size_t *at, slot *s) {
    size_t end = least(shape_extent(field(v, w_shape)), v->layout.buckets) + spill;
    for (; *at < end * 4; (*at)++) {
        const unsigned char *p = slot_at(v, *at);
        uint64_t word0 = word(p, 0);
        if (!(uint32_t)word0)
            continue;
        *s = (slot){*at / 4,         *at % 4,          word0,           word(p, 8),
                    (uint32_t)word0, word0 >> 62 == 2, word0 >> 61 & 1, (unsigned)(word0 >> 62)};
        (*at)++;
        return true;
    }
    return false;
}

#endif
