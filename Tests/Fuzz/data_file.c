/* The data file has any content: the commands change a small cache's shale.data, field by field, with checks that
 * pass if the command says so. There is no index, so that all of it is read. No call may crash or hang. */
#include "exercise.h"

/* Fields of a record; after them come words of its extension, key, meta and value. */
enum {
    field_lsn,
    field_body_check,
    field_kind,
    field_codec,
    field_tags,
    field_flags,
    field_key,
    field_stored,
    field_raw,
    field_meta,
    field_created,
    field_dictionary,
    field_expires,
    field_count
};

/* Bits of command.c */
enum { unsealed_head = 1, unsealed_body = 2, unsealed = 1 };

static image work;

static void mark_used(size_t at, size_t size) {
    if (at < work.segments)
        return;
    for (size_t place = (at - work.segments) / segment_size; place < most_segments; place++) {
        size_t begin = work.segments + place * segment_size;
        if (begin >= at + size)
            return;
        size_t end = at + size - begin < segment_size ? at + size - begin : segment_size;
        if (work.used[place] < end)
            work.used[place] = end;
    }
}

static void set_field(uint8_t *p, unsigned field, uint64_t value, uint32_t word, size_t room) {
    switch (field) {
    case field_lsn: set64(p, value); break;
    case field_body_check: set64(p + 8, value); break;
    case field_kind: p[20] = (uint8_t)((p[20] & 0xf0) | (value & 15)); break;
    case field_codec: p[20] = (uint8_t)((p[20] & 15) | value << 4); break;
    case field_tags: p[21] = (uint8_t)((p[21] & 0xf0) | (value & 15)); break;
    case field_flags: p[21] = (uint8_t)((p[21] & 15) | value << 4); break;
    case field_key: memcpy(p + 22, &value, 2); break;
    case field_stored: set32(p + 24, (uint32_t)value); break;
    case field_raw: set32(p + 28, (uint32_t)value); break;
    case field_meta: memcpy(p + 32, &value, 2); break;
    case field_created: memcpy(p + 34, &value, 6); break;
    case field_dictionary: memcpy(p + 40, &value, 2); break;
    case field_expires: memcpy(p + 42, &value, 6); break;
    default: {
        size_t at = record_header + (size_t)(word % 64) * 8;
        if (at + 8 <= room)
            set64(p + at, value);
    }
    }
}

static void seal_record(size_t at, uint32_t place, unsigned how) {
    uint64_t number = segment_number(&work, place);
    if (!(how & unsealed_body))
        seal_body(&work, at, number);
    if (!(how & unsealed_head))
        seal_head(&work, at, number);
}

static uint32_t head_place(uint32_t shard) {
    uint32_t head = most_segments;
    for (uint32_t place = shard; place < most_segments; place += work.shards)
        if (work.used[place] && (head == most_segments || segment_number(&work, place) > segment_number(&work, head)))
            head = place;
    return head;
}

static uint32_t shard_of(const uint8_t *key, size_t size) {
    return (uint32_t)((hash(key, size, secret) >> 32) * work.shards >> 32);
}

/* Where the log of a shard continues; 0 if its head has no room. */
static size_t append_at(uint32_t shard, size_t size, uint32_t *place) {
    *place = head_place(shard);
    if (*place == most_segments || work.used[*place] < segment_header)
        return 0;
    size_t offset = (work.used[*place] + 7) & ~(size_t)7;
    if (offset + size > segment_size)
        return 0;
    return work.segments + (size_t)*place * segment_size + offset;
}

/* A new record at the end of the log, with the lengths that it should have. */
static void append(const command *c) {
    uint8_t key[24];
    char name[16];
    size_t key_size = make_key(name, c->b);
    unsigned kind = c->a & 15, tags = c->d & 3, flags = c->d >> 2 & 3;
    size_t meta_size = c->d >> 4 & 31, stored_size = c->d >> 16 & 0xfff;
    memcpy(key, name, key_size);
    size_t source = work.records[c->e % work.record_count].at;
    if (kind == kind_part || kind == kind_invalidate) {
        key_size = kind == kind_part ? 24 : 8;
        memcpy(key, &c->e, 8);
        uint64_t owner = hash(name, strlen(name), secret), part = c->d >> 8 & 15;
        memcpy(key + 8, &owner, 8);
        memcpy(key + 16, &part, 8);
    }
    if (kind == kind_touch)
        stored_size = 24;
    if (kind == kind_manifest)
        stored_size = 40;
    if (kind == kind_end || kind == kind_gap || kind == kind_tombstone)
        meta_size = tags = flags = 0, key_size = kind == kind_tombstone ? key_size : 0;
    if (kind != kind_value && kind != kind_part && kind != kind_manifest && kind != kind_touch && kind != kind_gap)
        stored_size = 0;
    size_t stale = flags & 2 ? 8 : 0, end = record_header + stale + tags * 8 + key_size + meta_size + stored_size;
    uint32_t place;
    size_t at = append_at(shard_of(key, key_size), (end + 7) & ~(size_t)7, &place);
    if (!at)
        return;
    uint8_t *p = work.bytes + at;
    memset(p, 0, end);
    set64(p, 1 + (c->e >> 40));
    p[20] = (uint8_t)(kind | (c->c >> 2 & 3) << 4);
    p[21] = (uint8_t)(tags | flags << 4);
    p[22] = (uint8_t)key_size;
    set32(p + 24, (uint32_t)stored_size);
    set32(p + 28, (uint32_t)stored_size);
    uint64_t created = (uint64_t)CLOCK_START, expires = c->c & 16 ? (uint64_t)CLOCK_START + c->e % 200000 : UINT64_MAX;
    memcpy(p + 32, &meta_size, 2);
    memcpy(p + 34, &created, 6);
    memcpy(p + 42, &expires, 6);
    if (stale)
        set64(p + record_header, expires == UINT64_MAX ? c->e : expires + 1000);
    uint64_t tag = hash("news", 4, ~secret);
    for (unsigned i = 0; i < tags; i++)
        set64(p + record_header + stale + i * 8, i ? c->e : tag);
    uint8_t *q = p + record_header + stale + tags * 8;
    memcpy(q, key, key_size);
    q += key_size + meta_size;
    if (kind == kind_touch) { /* at a record of the image */
        uint32_t target = (uint32_t)(source - work.segments) / segment_size;
        set64(q, ((uint64_t)(target / work.shards) * segment_size + (source - work.segments) % segment_size) / 8);
        set64(q + 8, segment_number(&work, target));
        set64(q + 16, get64(work.bytes + source));
    } else if (kind == kind_manifest) {
        uint64_t words[5] = {c->e & 0xffff, c->e >> 16 & 0xfffff, c->e >> 16 & 0xfffff, 1 + (c->d & 0x3fff), 0};
        words[4] = (words[1] + words[3] - 1) / words[3];
        memcpy(q, words, sizeof words);
    } else {
        for (size_t i = 0; i < stored_size; i++)
            q[i] = (uint8_t)(c->e >> i % 8 * 8);
    }
    mark_used(at, (end + 7) & ~(size_t)7);
    note_record(&work, at, place);
    seal_record(at, place, c->c);
}

static void copy_record(const command *c) {
    size_t source = work.records[c->e % work.record_count].at;
    layout l = layout_of(work.bytes + source);
    uint32_t place;
    if (l.end > segment_size || l.stored > segment_size)
        return;
    size_t at = append_at(shard_of(work.bytes + source + l.key, l.key_size), l.end, &place);
    if (!at)
        return;
    memmove(work.bytes + at, work.bytes + source, l.end);
    mark_used(at, l.end);
    note_record(&work, at, place);
    seal_record(at, place, c->c);
}

/* A segment after the newest one of its shard, in any frame, with any numbers. */
static void new_segment(const command *c) {
    uint32_t shard = c->a % work.shards, place = c->b % (most_segments / work.shards) * work.shards + shard,
             head = head_place(shard);
    uint64_t previous = head == most_segments ? 0 : segment_number(&work, head);
    uint64_t tail = head == most_segments ? 0 : get64(place_at(&work, head) + 32);
    uint8_t *p = place_at(&work, place);
    memset(p, 0, segment_header);
    memcpy(p, "SHLESEG1", 8);
    set32(p + 8, place / work.shards);
    set32(p + 12, shard);
    set64(p + 16, previous + (c->d & 3) + (c->c & 4 ? c->e : 0));
    set64(p + 24, previous - (c->d >> 2 & 3));
    set64(p + 32, c->c & 8 ? c->e : tail);
    set64(p + 48, c->e);
    set64(p + 56, c->c & 16 ? c->d : 64);
    work.used[place] = segment_header;
    if (!(c->c & unsealed))
        seal_segment(&work, place);
}

static void set_segment_word(const command *c) {
    uint32_t place = c->a % most_segments;
    if (!work.used[place])
        return;
    uint8_t *p = place_at(&work, place);
    if (c->c & 2) /* a step from its value */
        set64(p + c->b % 8 * 8, get64(p + c->b % 8 * 8) + c->e);
    else
        set64(p + c->b % 8 * 8, c->e);
    if (!(c->c & unsealed))
        seal_segment(&work, place);
}

static void set_superblock(const command *c) {
    static const struct {
        uint8_t at, size;
    } fields[] = {{0, 8},  {8, 4},  {12, 4}, {16, 8}, {24, 8}, {32, 8}, {40, 8}, {48, 4}, {52, 4},
                  {56, 8}, {64, 8}, {72, 8}, {80, 4}, {84, 4}, {88, 4}, {92, 4}, {96, 8}, {120, 8}};
    unsigned field = c->b % (sizeof fields / sizeof *fields);
    for (size_t copy = 0; copy < 2; copy++) {
        if (c->a & 1 << copy)
            continue;
        uint8_t *p = work.bytes + copy * 2048;
        memcpy(p + fields[field].at, &c->e, fields[field].size);
        if (!(c->c & unsealed))
            seal_superblock(p);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    command c = {0};
    read_command(data, size, 0, &c);
    const template *t = template_of(c.code % template_count);
    random_state = c.e;
    clock_value = CLOCK_START;
    copy_image(&work, &t->data);
    size_t file_size = t->data_size, cut = SIZE_MAX;
    const command first = c;
    for (size_t n = 1; read_command(data, size, n, &c); n++) {
        size_t record = c.a % work.record_count;
        size_t at = work.records[record].at;
        switch (c.code % 14) {
        case 0: /* a field of a record */
        case 1:
            set_field(work.bytes + at, c.b % (field_count + 6), c.e, c.d, image_capacity(&work) - at);
            mark_used(at, record_header + 64 * 8);
            seal_record(at, work.records[record].place, c.c);
            break;
        case 2: /* a step from its lengths */
            set_field(work.bytes + at, c.b % 2 ? field_stored : field_raw,
                      get32(work.bytes + at + (c.b % 2 ? 24 : 28)) + c.e, 0, 0);
            seal_record(at, work.records[record].place, c.c);
            break;
        case 3:
        case 4: append(&c); break;
        case 5: copy_record(&c); break;
        case 6: { /* 8 bytes anywhere */
            size_t place = c.d % image_capacity(&work) & ~(size_t)7;
            set64(work.bytes + place, c.e);
            mark_used(place, 8);
            break;
        }
        case 7: set_segment_word(&c); break;
        case 8: new_segment(&c); break;
        case 9: set_superblock(&c); break;
        case 10: { /* a synced position or tail */
            uint32_t entry = c.a % (2 * work.shards);
            set64(work.bytes + page_size + entry * 16u, c.c & 2 ? segment_number(&work, c.b % most_segments) : c.e);
            set32(work.bytes + page_size + entry * 16u + 8, c.d);
            if (!(c.c & unsealed))
                seal_synced(&work, entry);
            break;
        }
        case 11: /* a dictionary */
            if (work.dictionaries) {
                uint32_t place = c.a % work.dictionaries;
                set64(dictionary_at(&work, place) + (c.b % 8 < 6 ? c.b % 2 * 8 : 64 + c.d % 4096), c.e);
                if (!(c.c & unsealed))
                    seal_dictionary(&work, place);
            }
            break;
        case 12: /* the file is cut short, or longer */ cut = c.d % image_capacity(&work); break;
        case 13:
            if (c.a & 1)
                clock_value = CLOCK_START + (int64_t)(c.e % 1000000);
            else if (c.a & 2)
                set64(work.bytes + 1024 + c.b % 2 * 8, c.e); /* clean mark, generation */
            else
                work.used[c.b % most_segments] = 0; /* a hole */
            break;
        }
    }
    for (size_t place = 0; place < most_segments; place++)
        if (work.used[place] && file_size < work.segments + (place + 1) * segment_size)
            file_size = work.segments + (place + 1) * segment_size;
    int descriptor = lowest_descriptor();
    write_image(&work, cut != SIZE_MAX ? cut : file_size);
    scratch_unlink("shale.index");
    exercise_file(&first, false);
    expect_nothing_left(descriptor);
    return 0;
}
