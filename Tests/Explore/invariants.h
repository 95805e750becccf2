/* The headers agree with a walk over slots, frames and records. */
#ifndef INVARIANTS_H
#define INVARIANTS_H

static void check_shard(const shard_view *v) {
    const layout *l = &v->layout;
    if (field(v, w_state) != 0)
        return; /* a process was killed in it; the next one with the lock recovers it first */
    uint64_t entries = 0, used = 0, live = 0, raw = 0, stored = 0, pinned = 0, dictionaries[16] = {0};
    uint32_t locations[512];
    slot s;
    checks++;
    for (size_t i = 0; next_slot(v, &i, &s);) {
        const unsigned char *p = record_at(v, s.location);
        size_t place = place_of(v, s.location), offset = (size_t)s.location * 8 % l->segment;
        if (!p || offset < segment_header || frame_state(v, place) != frame_in_log) {
            complain("the slot in bucket %zu points to location %u, outside the log", s.position, s.location);
            return;
        }
        if (place == field(v, w_head_frame) && offset >= field(v, w_head_offset)) {
            complain("the slot in bucket %zu points to location %u, after the head", s.position, s.location);
            return;
        }
        for (uint64_t j = 0; j < used && j < 512; j++)
            if (locations[j] == s.location)
                complain("two slots point to location %u", s.location);
        if (used < 512)
            locations[used] = s.location;
        used++;
        const unsigned char *value = value_record(v, s.location);
        if (record_kind(p) == kind_touch && value &&
            place_number(v, place_of(v, (uint32_t)word(p, stored_offset(p)))) != word(p, stored_offset(p) + 8))
            complain("the touch record at location %u names a segment that is not in the log", s.location);
        if (!value) {
            complain("the touch record at location %u names no place", s.location);
            return;
        }
        live += record_length(p) + (value != p ? record_length(value) : 0);
        if (s.is_part)
            continue;
        entries++;
        pinned += s.is_pinned;
        raw += half(value, 28);
        stored += record_kind(value) == kind_manifest ? word(value, stored_offset(value) + 16) : half(value, 24);
        if (s.is_pinned != record_is_pinned(p))
            complain("slot and record at location %u disagree on being pinned", s.location);
    }
    /* (Parts count for dictionaries too.) */
    for (size_t i = 0; next_slot(v, &i, &s);) {
        const unsigned char *value = value_record(v, s.location);
        if (value && value[20] >> 4 == 2)
            dictionaries[(value[40] | value[41] << 8) % most(1, l->dictionary_places)]++;
    }
    const struct {
        const char *name;
        size_t at;
        uint64_t sum;
    } sums[] = {{"entries", w_entries, entries}, {"used", w_used, used},
                {"live", w_live, live},          {"raw", w_raw, raw},
                {"stored", w_stored, stored},    {"pinned", w_pinned, pinned}};
    bool in_doubt = field(v, w_audit_at) || field(v, w_unsure) == 2;
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        /* (Until an audit has ended, they may contain the sizes of lost entries.) */
        if (field(v, sums[i].at) < sums[i].sum || (field(v, sums[i].at) > sums[i].sum && !in_doubt))
            complain("%s is %llu, its sum is %llu", sums[i].name, (unsigned long long)field(v, sums[i].at),
                     (unsigned long long)sums[i].sum);
    for (size_t i = 0; i < 16; i++)
        if (field(v, w_dictionaries + i * 8) < dictionaries[i] ||
            (field(v, w_dictionaries + i * 8) > dictionaries[i] && !in_doubt))
            complain("dictionary place %zu has %llu records, counted %llu", i,
                     (unsigned long long)field(v, w_dictionaries + i * 8), (unsigned long long)dictionaries[i]);

    size_t count = field(v, w_queue_count), allocated = 0, in_log = 0;
    uint64_t previous = 0;
    for (size_t i = 0; i < count && i < l->rows; i++) {
        size_t place = queued(v, i);
        if (place >= l->rows || frame_state(v, place) != frame_in_log || place_number(v, place) <= previous) {
            complain("place %zu of the queue is %zu, state %zu, segment %llu after %llu", i, place,
                     place < l->rows ? frame_state(v, place) : 99,
                     place < l->rows ? (unsigned long long)place_number(v, place) : 0, (unsigned long long)previous);
            return;
        }
        previous = place_number(v, place);
        if (word(v->data, place_start(v, place) + 16) != previous)
            complain("segment %llu has another header", (unsigned long long)previous);
    }
    for (size_t place = 0; place < l->rows; place++) {
        allocated += frame_state(v, place) != frame_absent;
        in_log += frame_state(v, place) == frame_in_log;
        int f = machine.names[name_data];
        for (size_t at = place_start(v, place);
             f >= 0 && (frame_state(v, place) == frame_in_log || frame_state(v, place) == frame_free) &&
             at < place_start(v, place) + l->segment;
             at += unit)
            if (!machine.files[f].allocated[at / unit]) {
                complain("place %zu, state %zu, is a hole", place, frame_state(v, place));
                break;
            }
    }
    if (in_log != count)
        complain("%zu places are in the log, %zu in the queue", in_log, count);
    if (allocated != field(v, w_allocated))
        complain("%llu places are counted, there are %zu", (unsigned long long)field(v, w_allocated), allocated);
    /* (A killed writer may have counted one too many.) */
    for (size_t generation = 0; generation < 2; generation++) {
        size_t tags = 0, cells = tag_cells_of(v, generation);
        for (size_t i = 0; i < cells; i++)
            tags += tag_word(v, generation, i, 0) != 0;
        if (tags > field(v, w_tag_counts + 8 * generation))
            complain("%llu tags are counted, there are %zu",
                     (unsigned long long)field(v, w_tag_counts + 8 * generation), tags);
    }
    /* The lowest number of a line has left it: so a refusal for the line's floor implies as many later changes as
     * the line has cells. */
    for (size_t line = 0; line < fence_lines; line++)
        for (size_t i = 1; i < fence_line / 8; i++)
            if (fence_number(fence_word(v, line, i)) < fence_word(v, line, 0))
                complain("line %zu of the fence table names %llu, and %llu has left it", line,
                         (unsigned long long)fence_number(fence_word(v, line, i)),
                         (unsigned long long)fence_word(v, line, 0));
}

static void check_files(void) {
    int data = machine.names[name_data], index = machine.names[name_index];
    if (data < 0 || index < 0)
        return;
    layout l = read_layout(bytes_of(data));
    if (!l.exists)
        return;
    uint64_t capacity = l.capacity;
    checks++;
    if (disk_bytes() > most(capacity, handle() ? 0 : capacity_of(2)) + (size_t)model.uncounted * l.segment)
        complain("du is %u of a capacity of %llu", disk_bytes(), (unsigned long long)capacity);
    for (size_t s = 0; s < l.shards; s++) {
        shard_view v = view_of(&l, bytes_of(data), bytes_of(index), s);
        if (handle())
            check_shard(&v);
        /* (While no handle has it open, the index may be one for another capacity.) */
        if (handle() && !model.was_cut && field(&v, w_corrupt))
            complain("%llu records are counted as corrupt, and no power was cut",
                     (unsigned long long)field(&v, w_corrupt));
    }
}

static void check_nothing_evictable(void) {
    layout l = read_layout(bytes_of_data);
    for (size_t i = 0; i < l.shards && machine.names[name_index] >= 0; i++) {
        shard_view v = view_of(&l, bytes_of_data, bytes_of(machine.names[name_index]), i);
        slot s;
        for (size_t at = 0; next_slot(&v, &at, &s);) {
            const unsigned char *p = value_record(&v, s.location);
            if (!s.is_part && !s.is_pinned && p && key_of(p) >= 0 && !(s.word1 >> 40)) {
                complain("evict evicts nothing, though key %c is evictable", key_of(p) + 'a');
                return;
            }
        }
    }
}

#endif
