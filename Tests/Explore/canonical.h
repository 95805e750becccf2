/* A state reduced to what its future depends on: numbers that only grow count by their rank. Some words are left out
 * (those that no decision reads, what lies after the last record of a frame, samples for dictionaries, the lead
 * after a rebuild), so two different states may become the same; then one of them is not explored, which never
 * causes a false failure. */
#ifndef CANONICAL_H
#define CANONICAL_H

#include "operations.h"

enum { most_numbers = 4096 };

typedef struct {
    uint64_t numbers[most_numbers];
    int count;
} ranks;
static ranks lsns, segments_seen, stamps_seen, ids_seen;

static void note(ranks *r, uint64_t n) {
    if (n && r->count < most_numbers)
        r->numbers[r->count++] = n;
}
static void sort_ranks(ranks *r) {
    /* Few, and nearly in order. */
    for (int i = 1; i < r->count; i++) {
        uint64_t n = r->numbers[i];
        int j = i;
        for (; j > 0 && r->numbers[j - 1] > n; j--)
            r->numbers[j] = r->numbers[j - 1];
        r->numbers[j] = n;
    }
    int left = 0;
    for (int i = 0; i < r->count; i++)
        if (!left || r->numbers[left - 1] != r->numbers[i])
            r->numbers[left++] = r->numbers[i];
    r->count = left;
}
static uint64_t rank_of(const ranks *r, uint64_t n) {
    if (!n)
        return 0;
    int low = 0, high = r->count;
    while (low < high) {
        int mid = (low + high) / 2;
        if (r->numbers[mid] < n)
            low = mid + 1;
        else
            high = mid;
    }
    return (uint64_t)low + 1;
}

static uint64_t sum;
static void add(uint64_t w) {
    sum = (sum ^ w) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 29;
}

/* The records of a frame; false after the last one. */
static bool next_record(const layout *l, const unsigned char *place, size_t *at, const unsigned char **record) {
    if (*at + record_header > l->segment)
        return false;
    const unsigned char *p = place + *at;
    unsigned kind = record_kind(p);
    if (!half(p, 16) || kind < 1 || kind > kind_expire || record_length(p) > l->segment - *at)
        return false;
    *record = p;
    *at += record_length(p);
    return true;
}

static void walk_frames(const layout *l, const unsigned char *data, uint32_t size, const bool *allocated, bool notes) {
    for (size_t i = 0; i < l->rows * l->shards; i++) {
        size_t start = l->segments + i * l->segment;
        if (start + l->segment > size || !allocated[start / unit]) {
            if (!notes)
                add(1);
            continue;
        }
        const unsigned char *place = data + start, *p;
        bool is_segment = word(place, 0) == 0x31474553454C4853u && word(place, 40);
        if (notes) {
            if (is_segment) {
                note(&segments_seen, word(place, 16)), note(&segments_seen, word(place, 24)),
                    note(&segments_seen, word(place, 32));
                note(&lsns, word(place, 48));
            }
            for (size_t at = segment_header; next_record(l, place, &at, &p);) {
                note(&lsns, word(p, 0));
                if (record_kind(p) == kind_touch)
                    note(&segments_seen, word(p, stored_offset(p) + 8)), note(&lsns, word(p, stored_offset(p) + 16));
                if (record_kind(p) == kind_manifest)
                    note(&lsns, word(p, stored_offset(p)));
                if (record_kind(p) == kind_part)
                    note(&lsns, word(p, key_offset(p)));
                if (record_kind(p) == kind_loss)
                    note(&segments_seen, word(p, key_offset(p) + 8));
                if (record_kind(p) <= kind_manifest)
                    note(&ids_seen, id_of(p));
            }
            continue;
        }
        if (!is_segment) {
            add(2);
            continue;
        }
        add(rank_of(&segments_seen, word(place, 16)));
        add(rank_of(&segments_seen, word(place, 24)));
        add(rank_of(&segments_seen, word(place, 32)));
        add(rank_of(&lsns, word(place, 48)));
        add(word(place, 56));
        for (size_t at = segment_header; next_record(l, place, &at, &p);) {
            add(rank_of(&lsns, word(p, 0)));
            add(word(p, 16) >> 32);
            add(word(p, 24));
            uint64_t expires = word(p, 40) >> 16;
            add(expires == 0xFFFFFFFFFFFFu ? 1 : expires - (uint64_t)machine.clock_ms);
            add(p[40]);
            if (record_kind(p) <= kind_manifest || record_kind(p) == kind_tombstone || record_kind(p) == kind_touch)
                add(p[key_offset(p)]);
            if (record_kind(p) == kind_invalidate)
                add(word(p, key_offset(p)));
            if (record_kind(p) <= kind_manifest) {
                add(rank_of(&ids_seen, id_of(p)));
                if (half(p, 24) == 8)
                    add(word(p, stored_offset(p)) & 0xFFFF);
            }
            if (record_kind(p) == kind_part)
                add(rank_of(&lsns, word(p, key_offset(p)))), add(word(p, key_offset(p) + 16));
            if (record_kind(p) == kind_manifest)
                add(rank_of(&lsns, word(p, stored_offset(p))));
            if (record_kind(p) == kind_loss)
                add(word(p, key_offset(p))), add(rank_of(&segments_seen, word(p, key_offset(p) + 8)));
            if (record_kind(p) == kind_touch)
                add(word(p, stored_offset(p))), add(rank_of(&segments_seen, word(p, stored_offset(p) + 8)));
        }
    }
}

static void walk_shard(const shard_view *v, bool notes) {
    static const size_t plain[] = {w_shape,           w_state,
                                   w_entries,         w_live,
                                   w_pinned,          w_used,
                                   w_head_frame,      w_head_offset,
                                   w_tail_offset,     w_queue_first,
                                   w_queue_count,     w_allocated,
                                   w_table_pages,     w_no_space,
                                   w_unsure,          w_sweep_at,
                                   w_sweep_state,     w_heap_counts,
                                   w_heap_counts + 8, w_heap_current,
                                   w_free_count,      w_tag_generations,
                                   w_tag_counts,      w_tag_counts + 8,
                                   w_tags_carried,    w_tags_carried + 8,
                                   w_tag_sweep,       w_notes_changes};
    static const size_t numbered[] = {w_head_number, w_residual, w_last_number, w_tail_number, w_proven_tail};
    static const size_t stamped[] = {w_stamp, w_sweep_limit, w_heap_limit};
    const uint64_t stamp_mask = ((uint64_t)1 << 38) - 1;
    slot s;
    if (notes) {
        for (size_t i = 0; i < sizeof numbered / sizeof *numbered; i++)
            note(&segments_seen, field(v, numbered[i]));
        for (size_t i = 0; i < sizeof stamped / sizeof *stamped; i++)
            note(&stamps_seen, field(v, stamped[i]) & stamp_mask);
        for (size_t place = 0; place < v->layout.rows; place++)
            note(&segments_seen, place_number(v, place));
        for (size_t generation = 0; generation < 2; generation++)
            for (size_t i = 0; i < tag_cells_of(v, generation); i++)
                note(&lsns, tag_word(v, generation, i, 8)), note(&lsns, tag_word(v, generation, i, 16));
        for (size_t i = 0; next_slot(v, &i, &s);)
            note(&stamps_seen, s.word1 & stamp_mask);
        return;
    }
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        add(field(v, plain[i]));
    add(field(v, w_epoch) & 1);
    add(field(v, w_pending));
    for (size_t at = w_audit_at; at < w_audit_at + 200; at += 8)
        add(field(v, at));
    for (size_t at = w_transaction; at < w_transaction + 96 && field(v, w_state); at += 8)
        add(field(v, at));
    for (size_t i = 0; i < sizeof numbered / sizeof *numbered; i++)
        add(rank_of(&segments_seen, field(v, numbered[i])));
    for (size_t i = 0; i < sizeof stamped / sizeof *stamped; i++)
        add(rank_of(&stamps_seen, field(v, stamped[i]) & stamp_mask));
    for (size_t place = 0; place < v->layout.rows; place++)
        add(frame_state(v, place)), add(rank_of(&segments_seen, place_number(v, place)));
    for (size_t i = 0; i < field(v, w_queue_count) && i < v->layout.rows; i++)
        add(queued(v, i));
    for (size_t i = 1; i <= field(v, w_free_count) && i <= v->layout.rows; i++)
        add(queued(v, 2 * v->layout.rows - i));
    for (size_t generation = 0; generation < 2; generation++)
        for (size_t i = 0; i < tag_cells_of(v, generation); i++)
            add(tag_word(v, generation, i, 0)), add(rank_of(&lsns, tag_word(v, generation, i, 8))),
                add(rank_of(&lsns, tag_word(v, generation, i, 16)));
    for (size_t i = 0; next_slot(v, &i, &s);)
        add(i), add(s.word0), add(rank_of(&stamps_seen, s.word1 & stamp_mask)), add(s.word1 >> 38);
    for (int which = 0; which < 2; which++)
        for (size_t i = 1; i <= field(v, w_heap_counts + (size_t)which * 8) && i < heap_half / 8; i++) {
            uint64_t item = heap_item(v, (size_t)which, i);
            add(rank_of(&stamps_seen, item >> 26)), add(item & 0x3FFFFFF);
        }
    /* Free slots keep their displacement bits. */
    size_t end = least(shape_extent(field(v, w_shape)), v->layout.buckets) + spill;
    for (size_t i = 0; i < end * 4; i++)
        add(word(slot_at(v, i), 0) >> 60 & 1);
}

static void add_choices_to_sum(const choices *c, bool notes) {
    if (!notes)
        add((uint64_t)c->count << 1 | c->is_any);
    for (int i = 0; i < c->count; i++) {
        const choice *x = &c->choices[i];
        if (notes)
            note(&ids_seen, x->id);
        else
            add(rank_of(&ids_seen, x->id) << 32 | (uint64_t)x->increments << 16 | (uint64_t)x->flags << 8 | x->leave),
                add(x->expires ? (uint64_t)(x->expires - machine.clock_ms) : 1);
    }
}

static uint64_t canonical(void) {
    sum = 0;
    lsns.count = segments_seen.count = stamps_seen.count = ids_seen.count = 0;
    int data = machine.names[name_data], index = machine.names[name_index];
    layout l = data < 0 ? (layout){0} : read_layout(bytes_of(data)),
           durable = data < 0 ? l : read_layout(durable_of(data));
    for (int pass = 0; pass < 2; pass++) {
        bool notes = pass == 0;
        if (l.exists)
            walk_frames(&l, bytes_of(data), machine.files[data].size, machine.files[data].allocated, notes);
        if (durable.exists && machine.files[data].durable_size)
            walk_frames(&durable, durable_of(data), machine.files[data].durable_size,
                        machine.files[data].durably_allocated, notes);
        if (l.exists)
            for (size_t s = 0; s < l.shards; s++) {
                uint64_t synced = word(bytes_of(data), superblock_page + s * 16);
                if (notes)
                    note(&segments_seen, synced),
                        note(&segments_seen, word(bytes_of(data), superblock_page + l.shards * 16 + s * 16));
                else
                    add(rank_of(&segments_seen, synced)), add(half(bytes_of(data), superblock_page + s * 16 + 8)),
                        add(rank_of(&segments_seen, word(bytes_of(data), superblock_page + l.shards * 16 + s * 16)));
                if (index >= 0) {
                    shard_view v = view_of(&l, bytes_of(data), bytes_of(index), s);
                    walk_shard(&v, notes);
                }
            }
        for (int k = 0; k < most_keys; k++) {
            for (int w = 0; w < model.world_count; w++)
                add_choices_to_sum(&model.worlds[w][k], notes);
            add_choices_to_sum(&model.history[k], notes);
        }
        if (notes)
            note(&lsns, model.load.token);
        if (notes)
            sort_ranks(&lsns), sort_ranks(&segments_seen), sort_ranks(&stamps_seen), sort_ranks(&ids_seen);
    }
    if (model.load.token) {
        add(rank_of(&lsns, model.load.token));
        add((uint64_t)(model.load.end - machine.clock_ms) << 3 | (uint64_t)process_of_load() << 1 |
            model.load.may_be_refused);
        for (size_t s = 0; index >= 0 && s < l.shards; s++) {
            shard_view v = view_of(&l, bytes_of(data), bytes_of(index), s);
            add(field(&v, w_fence_floor) >= model.load.token);
            add(field(&v, w_last_tag_change) >= model.load.token);
            for (size_t line = 0; line < fence_lines; line++)
                for (size_t i = 0; i < fence_line / 8; i++)
                    add(fence_number(fence_word(&v, line, i)) >= model.load.token);
        }
    }
    if (index >= 0 && l.exists)
        for (size_t i = 0; i < 4; i++)
            add(word(bytes_of(index), 640 + i * 8)), add(word(bytes_of(index), 704 + i * 8));
    for (int p = 0; p < processes; p++)
        for (int i = 0; i < cursors; i++)
            if (machine.processes[p].cursors[i])
                add((uint64_t)model.cursors[p][i].lived << 24 | (uint64_t)model.cursors[p][i].away << 16 |
                    (uint64_t)model.cursors[p][i].shown << 8 | (uint64_t)p << 1 | (uint64_t)i);
    add((uint64_t)(machine.processes[reader].handle != NULL) << 1 | (model.reader_index == inode_of_index()));
    add((uint64_t)l.capacity);
    add((uint64_t)model.actor << 8 | (uint64_t)model.world_count << 4 | (machine.processes[0].handle != NULL) << 1 |
        (machine.processes[1].handle != NULL));
    add((uint64_t)machine.names[name_index] << 16 | (uint64_t)machine.names[name_new_index] << 8);
    return sum ? sum : 1;
}

#endif
