/* An audit of a cache from outside: reads both of its files by Documentation/internals/format.md (layout.h) alone, without the
 * library. Compares what the headers say with a walk of the log and of the tables, and with what the file system
 * reports:
 *
 *   - superblock, index head and segment headers verify; segment numbers ascend in the queue;
 *   - frames (absent, free, in the log, being prepared) add up, and only those that are counted take disk space;
 *   - the log is readable from the tail to the head, and a rebuild would find nothing after the head's end;
 *   - each slot is where its key belongs, within its bucket's maximum displacement, and no key has two slots;
 *   - each slot is the newest that the log has of its key, with the record's flags, kind and expiry;
 *   - entries, slots in use, live, raw, stored and pinned bytes and the dictionaries' counts are the sums of the
 *     slots;
 *   - keys that only the log has are noted (the residual word), so that a removal leaves a tombstone;
 *   - no current entry is named by an invalidation or an expiry in the log, unless the tag table has it;
 *   - large values have all their parts, and each part belongs to one (both are counted; the caller decides);
 *   - the directory takes no more than the capacity.
 *
 * No process may write meanwhile, and what a killed writer left must have been recovered. The files are mapped
 * without read-ahead, so that the audit changes nothing. */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "layout.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The contents of the two files, as counted by the audit. */
typedef struct {
    uint64_t capacity, shards, entries, slots, live, raw, stored, pinned;
    uint64_t in_log, is_free, in_preparation; /* places */
    uint64_t records, damaged, residuals; /* in the log; residuals: keys that a rebuild would bring back */
    uint64_t parts, orphans, orphan_bytes; /* orphans: parts without a manifest */
    uint64_t incomplete; /* manifests that lack parts */
    uint64_t being_written; /* blobs that the shards list */
    uint64_t data_bytes, index_bytes, directory_bytes; /* on the disk */
    unsigned faults;
    char first_fault[256];
} accounts;

typedef struct {
    uint64_t offset, length, lsn, key_hash, tags, tag_count, dead_at;
    uint64_t raw, stored, blob, parts;
    uint64_t placed; /* the hash that names its shard: the key's, or that of a part's owner */
    uint32_t location, target; /* of a touch record */
    uint16_t dictionary; /* 0: none */
    uint8_t kind;
    bool is_pinned, is_damaged; /* damaged: its body does not verify */
} logged;

/* Of each key, the record that a replay of the log ends with; of each tag, its last invalidation and its last expiry. */
enum key_kind { key_of_entry, key_of_part, key_of_tag, key_of_expired_tag };
typedef struct {
    uint64_t hash;
    uint32_t newest, value; /* indices in `records`, and 1: 0 is none. `value` is what a touch record prolongs */
    enum key_kind kind;
    bool is_seen;
} known_key;

typedef struct {
    uint64_t blob, parts, found;
} known_blob;

/* Which other readers the files had; bodies are checked unless there were none. Reading the files fills the kernel's
 * cache with large folios; a store to such a folio allocates all of it, which no counter of the cache includes: then
 * only the capacity is compared with the disk usage. Copies take the disk space that the copy gave them. */
enum account_files { account_own_files, account_read_files, account_copied_files };

typedef struct {
    accounts result;
    const char *directory;
    enum account_files files;
    unsigned char *data, *index;
    uint64_t data_size, index_size, secret, expiry_base, max_entries;
    int data_fd, index_fd;
    layout l;
    /* of the current shard */
    uint64_t shard;
    const unsigned char *header;
    struct segment {
        uint64_t number, place;
    } *segments; /* with sound headers */
    size_t segment_count, segment_room;
    uint64_t proven_number, proven_offset; /* where a rebuild begins */
    logged *records;
    size_t record_count, record_room;
    known_key *keys; /* open addressing, by hash */
    uint32_t *places; /* the same, by location: an index in `records`, and 1 */
    size_t table_size;
    /* of all shards */
    known_blob *blobs;
    size_t blob_count, blob_room;
    struct part {
        uint64_t blob, length;
    } *parts;
    size_t part_count, part_room;
} audit;

static bool account_is_quiet; /* for tests that plant faults */

static void account_fault(audit *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void account_fault(audit *a, const char *format, ...) {
    char text[sizeof a->result.first_fault];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (a->result.faults++ == 0)
        memcpy(a->result.first_fault, text, sizeof text);
    if (a->result.faults <= 20 && !account_is_quiet)
        fprintf(stderr, "account: %s, shard %" PRIu64 ": %s\n", a->directory, a->shard, text);
}

static inline void *account_grow(void *memory, size_t count, size_t *room, size_t size) {
    if (count < *room)
        return memory;
    *room = *room ? *room * 2 : 1024;
    if (!(memory = realloc(memory, *room * size)))
        abort();
    return memory;
}

static inline uint64_t account_hash(const void *bytes, size_t size, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes, size, seed);
}

static inline uint64_t account_word(const audit *a, unsigned field) {
    return word_at(a->header + field);
}

static inline bool account_is_state(const audit *a, uint64_t place, enum frame_state state) {
    return a->header[a->l.states + place] == state;
}

static inline uint64_t account_number(const audit *a, uint64_t place) {
    return word_at(a->header + shard_header_bytes + place * 8);
}

/* Files */

static bool account_map(audit *a, const char *name, int *fd, unsigned char **memory, uint64_t *size,
                        uint64_t *on_disk) {
    char path[4096];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", a->directory, name);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &status) != 0 || status.st_size < page_bytes) {
        account_fault(a, "%s cannot be opened, or is empty", path);
        return false;
    }
    *size = (uint64_t)status.st_size;
    *on_disk = (uint64_t)status.st_blocks * 512;
    *memory = mmap(NULL, *size, PROT_READ, MAP_SHARED, *fd, 0);
    if (*memory == MAP_FAILED) {
        account_fault(a, "%s cannot be mapped", path);
        return false;
    }
    madvise(*memory, *size, MADV_RANDOM);
    return true;
}

static bool account_read_super(audit *a) {
    const unsigned char *best = NULL;
    for (int i = 0; i < 2; i++) {
        const unsigned char *copy = a->data + i * super_copy;
        bool is_sound = word_at(copy) == SUPER_MAGIC &&
                        word_at(copy + super_check) == account_hash(copy, super_check, SUPER_MAGIC);
        if (is_sound && (!best || word_at(copy + super_sequence) > word_at(best + super_sequence)))
            best = copy;
    }
    if (!best) {
        account_fault(a, "no copy of the superblock verifies");
        return false;
    }
    a->l = layout_of(a->data);
    a->secret = word_at(best + 24);
    a->result.capacity = word_at(best + 32);
    a->max_entries = word_at(best + 40);
    a->expiry_base = word_at(best + 72);
    a->result.shards = a->l.shards;
    return true;
}

static bool account_read_head(audit *a) {
    const unsigned char *head = a->index;
    struct stat index, data;
    uint64_t geometry[] = {a->l.shards, a->l.segment_size, a->l.rows, a->l.region};
    if (word_at(head) != INDEX_MAGIC ||
        word_at(head + index_secret_check) != account_hash(&a->secret, 8, INDEX_MAGIC)) {
        account_fault(a, "the index is not this cache's");
        return false;
    }
    if (word_at(head + index_geometry_check) != account_hash(geometry, sizeof geometry, INDEX_MAGIC)) {
        account_fault(a, "the index has another geometry than format.md gives");
        return false;
    }
    if (fstat(a->index_fd, &index) != 0 || fstat(a->data_fd, &data) != 0 ||
        word_at(head + index_own_device + 8) != index.st_ino || word_at(head + index_data_device + 8) != data.st_ino)
        account_fault(a, "the index names other files");
    if (a->index_size < a->l.chunks) {
        account_fault(a, "the index ends before its last shard");
        return false;
    }
    for (uint64_t shard = 0; shard < a->l.shards; shard++)
        for (uint64_t at = a->l.writers; at < a->l.fences; at += writer_cell)
            a->result.being_written += word_at(a->index + shard_offset(&a->l, shard) + at) != 0;
    return true;
}

/* Checks that uncounted areas have no data; SEEK_DATA reports what was allocated and never written as a hole.
 * `is_counted` answers for the page at an offset, and says how far its answer holds. */
static void account_check_holes(audit *a, int fd, const char *name,
                                bool (*is_counted)(audit *a, uint64_t at, uint64_t *end)) {
    off_t at = 0, end;
    unsigned found = 0;
    while (found < 3 && (at = lseek(fd, at, SEEK_DATA)) >= 0) {
        if ((end = lseek(fd, at, SEEK_HOLE)) < 0)
            break;
        while (at < end && found < 3) {
            uint64_t until = 0;
            if (!is_counted(a, (uint64_t)at, &until) && ++found)
                account_fault(a, "%s has %" PRId64 " bytes on the disk at %" PRId64 " that nothing counts", name,
                              (int64_t)((uint64_t)end < until ? (uint64_t)end : until) - (int64_t)at, (int64_t)at);
            at = (off_t)until < end ? (off_t)until : end;
        }
    }
}

static bool account_data_counts(audit *a, uint64_t at, uint64_t *end) {
    const layout *l = &a->l;
    uint64_t head = l->dictionaries + l->dictionary_places * l->dictionary_size;
    if (at < l->segments) {
        *end = at < head ? head : l->segments;
        return at < head;
    }
    uint64_t n = (at - l->segments) / l->segment_size, shard = n % l->shards, place = n / l->shards;
    *end = l->segments + (n + 1) * l->segment_size;
    return place < l->rows && a->index[shard_offset(l, shard) + l->states + place] != frame_absent;
}

/* The bytes of a shard's region that a table with this many buckets takes. */
static uint64_t account_region_bytes(const audit *a, uint64_t buckets) {
    return a->l.region + table_bytes_of(buckets);
}

static bool account_index_counts(audit *a, uint64_t at, uint64_t *end) {
    const layout *l = &a->l;
    if (at < l->chunks) {
        *end = l->chunks;
        return true;
    }
    uint64_t n = (at - l->chunks) / chunk_bytes, inside = (at - l->chunks) % chunk_bytes, begin = at - inside;
    uint64_t counted = word_at(a->index + shard_offset(l, n % l->shards) + shard_table_bytes) - l->region,
             before = n / l->shards * chunk_bytes, here = counted > before ? counted - before : 0;
    *end = begin + (inside < here && here < chunk_bytes ? here : chunk_bytes);
    return inside < here;
}

/* The log of a shard */

/* The record at an offset of a frame, if it verifies. */
static bool account_verify_record(const audit *a, uint64_t place, uint64_t at, record_view *r) {
    uint64_t base = frame_offset(&a->l, a->shard, place), room = a->l.segment_size - at;
    const unsigned char *p = a->data + base + at;
    if (room < record_header_bytes || (p[20] & 15) < record_value || (p[20] & 15) > record_expire)
        return false;
    *r = record_at(a->data, base + at);
    if (r->codec > 2 || r->tags > 8 || r->length > room)
        return false;
    return head_check_of(a->data, r, account_number(a, place), base + at, a->secret) == half_at(p + 16);
}

/* Tombstones, invalidations, expiries, ends, gaps and losses have no body. */
static bool account_is_body_sound(const audit *a, uint64_t place, const record_view *r) {
    if (r->kind >= record_tombstone && r->kind != record_touch)
        return true;
    uint64_t at[] = {account_number(a, place), r->offset};
    uint64_t seed = r->meta_size ? account_hash(a->data + r->meta, r->meta_size, a->secret) : a->secret;
    return word_at(a->data + r->offset + 8) ==
           (account_hash(a->data + r->stored, r->stored_size, seed) ^ account_hash(at, sizeof at, a->secret));
}

static void account_note_record(audit *a, uint64_t place, uint64_t at, const record_view *r) {
    a->records = account_grow(a->records, a->record_count, &a->record_room, sizeof *a->records);
    logged *n = &a->records[a->record_count++];
    const unsigned char *p = a->data + r->offset;
    bool keeps_stale = r->flags & 2;
    uint64_t expires = word_at(p + 40) >> 16, never = (UINT64_C(1) << 48) - 1,
             dead_at = keeps_stale && expires != never ? word_at(p + record_header_bytes) : expires;
    *n = (logged){.offset = r->offset,
                  .length = r->length,
                  .lsn = r->lsn,
                  .kind = (uint8_t)r->kind,
                  .is_pinned = r->flags & 1,
                  .location = (uint32_t)((place * a->l.segment_size + at) / 8),
                  .tag_count = r->tags,
                  .tags = r->offset + record_header_bytes + (keeps_stale ? 8 : 0),
                  .raw = half_at(p + 28),
                  .stored = r->stored_size,
                  .dictionary = r->codec == 2 ? (uint16_t)r->dictionary : 0,
                  .key_hash = r->key_size ? account_hash(a->data + r->key, r->key_size, a->secret) : 0,
                  .dead_at = dead_at == never ? UINT64_MAX : dead_at};
    n->placed = n->key_hash;
    const unsigned char *stored = a->data + r->stored;
    if (a->files != account_own_files && !account_is_body_sound(a, place, r)) {
        n->is_damaged = true;
        a->result.damaged++;
        return;
    }
    if (r->kind == record_touch) {
        if (r->stored_size != 24)
            account_fault(a, "a touch record of %" PRIu64 " bytes", r->stored_size);
        else
            n->target = (uint32_t)word_at(stored);
    } else if (r->kind == record_manifest) {
        if (r->stored_size != 40) {
            account_fault(a, "a manifest of %" PRIu64 " bytes", r->stored_size);
            return;
        }
        n->blob = word_at(stored);
        n->stored = word_at(stored + 16);
        n->parts = word_at(stored + 32);
        if (n->raw != word_at(stored + 8))
            account_fault(a, "a manifest of %" PRIu64 " bytes that says %" PRIu64, n->raw, word_at(stored + 8));
    } else if (r->kind == record_part) {
        n->raw = n->stored = 0; /* the manifest counts for all parts */
        if (r->key_size == 24) {
            n->blob = word_at(a->data + r->key);
            if (n->blob & blob_is_in_one_shard)
                n->placed = word_at(a->data + r->key + 8);
        } else
            account_fault(a, "a part whose key has %" PRIu64 " bytes", r->key_size);
    }
}

/* One segment, from an offset on; the head has no end record. */
static void account_walk_segment(audit *a, uint64_t place, uint64_t from, bool is_head) {
    uint64_t at = from,
             end = is_head ? account_word(a, shard_head_offset) : a->l.segment_size - record_header_bytes + 1;
    record_view r;
    while (at < end && at + record_header_bytes <= a->l.segment_size) {
        if (!account_verify_record(a, place, at, &r)) {
            account_fault(a, "place %" PRIu64 ": no record at %" PRIu64 " of %" PRIu64, place, at, end);
            return;
        }
        if (r.kind == record_end) {
            /* (A head that had ended before a rebuild counts as full.) */
            if (is_head && end != a->l.segment_size)
                account_fault(a, "the head ends at %" PRIu64 " already", at);
            return;
        }
        if (r.kind != record_gap && r.kind != record_loss)
            account_note_record(a, place, at, &r);
        at += r.length;
    }
    if (!is_head)
        return;
    if (at != end && end != a->l.segment_size)
        account_fault(a, "the head's last record ends at %" PRIu64 ", its offset is %" PRIu64, at, end);
    for (; at + record_header_bytes <= a->l.segment_size; at += 8)
        if (account_verify_record(a, place, at, &r) && r.kind != record_end) {
            account_fault(a, "a record after the head's end, at %" PRIu64 " of place %" PRIu64, at, place);
            return;
        }
}

static int account_segment_order(const void *a, const void *b) {
    uint64_t x = ((const struct segment *)a)->number, y = ((const struct segment *)b)->number;
    return x < y ? -1 : x > y;
}

static void account_prove_tail(audit *a, uint64_t number, uint64_t offset) {
    if (number > a->proven_number || (number == a->proven_number && offset > a->proven_offset)) {
        a->proven_number = number;
        a->proven_offset = offset;
    }
}

static bool account_segment_header(audit *a, uint64_t place, uint64_t number) {
    const unsigned char *p = a->data + frame_offset(&a->l, a->shard, place);
    uint64_t words[] = {word_at(p),      word_at(p + 8),  word_at(p + 16), word_at(p + 24),
                        word_at(p + 32), word_at(p + 48), word_at(p + 56)};
    return words[0] == SEGMENT_MAGIC && half_at(p + segment_frame) == place && half_at(p + segment_shard) == a->shard &&
           word_at(p + segment_number) == number &&
           word_at(p + segment_check) == account_hash(words, sizeof words, a->secret);
}

/* Where a rebuild begins: at the furthest tail that a sound header or the synced tail names. Notes all sound headers,
 * in the order of their numbers. */
static void account_find_segments(audit *a) {
    a->segment_count = 0;
    a->proven_number = a->proven_offset = 0;
    for (uint64_t place = 0; place < a->l.rows; place++) {
        const unsigned char *p = a->data + frame_offset(&a->l, a->shard, place);
        if (account_is_state(a, place, frame_absent) ||
            frame_offset(&a->l, a->shard, place) + a->l.segment_size > a->data_size ||
            !account_segment_header(a, place, word_at(p + segment_number)))
            continue;
        a->segments = account_grow(a->segments, a->segment_count, &a->segment_room, sizeof *a->segments);
        a->segments[a->segment_count++] = (struct segment){word_at(p + segment_number), place};
        account_prove_tail(a, word_at(p + segment_tail), word_at(p + segment_tail_offset));
    }
    if (a->segment_count)
        qsort(a->segments, a->segment_count, sizeof *a->segments, account_segment_order);
    const unsigned char *synced = a->data + page_bytes + (a->l.shards + a->shard) * 16;
    uint64_t words[] = {a->l.shards + a->shard, word_at(synced), half_at(synced + 8)};
    if (words[1] && half_at(synced + 12) == (uint32_t)account_hash(words, sizeof words, a->secret))
        account_prove_tail(a, words[1], words[2]);
}

static bool account_walk_log(audit *a) {
    uint64_t count = account_word(a, shard_queue_count), states[4] = {0}, previous = 0;
    unsigned faults = a->result.faults;
    a->record_count = 0;
    for (uint64_t place = 0; place < a->l.rows; place++) {
        unsigned state = a->header[a->l.states + place];
        if (state > frame_preparing) {
            account_fault(a, "place %" PRIu64 " has state %u", place, state);
            return false;
        }
        states[state]++;
        if ((state == frame_free || state == frame_in_log) &&
            frame_offset(&a->l, a->shard, place) + a->l.segment_size > a->data_size) {
            account_fault(a, "place %" PRIu64 " lies past the end of the file", place);
            return false;
        }
    }
    a->result.in_log += states[frame_in_log];
    a->result.is_free += states[frame_free];
    a->result.in_preparation += states[frame_preparing];
    if (states[frame_in_log] != count)
        account_fault(a, "%" PRIu64 " places are in the log, %" PRIu64 " are queued", states[frame_in_log], count);
    if (a->l.rows - states[frame_absent] != account_word(a, shard_allocated))
        account_fault(a, "%" PRIu64 " places are not absent, %" PRIu64 " are counted", a->l.rows - states[frame_absent],
                      account_word(a, shard_allocated));
    for (uint64_t i = 0; i < count; i++) {
        uint64_t place = queued_frame(&a->l, a->header, i);
        if (place >= a->l.rows || !account_is_state(a, place, frame_in_log)) {
            account_fault(a, "place %" PRIu64 " is queued and not in the log", place);
            return false;
        }
        uint64_t number = account_number(a, place);
        if (number <= previous)
            account_fault(a, "segment %" PRIu64 " follows %" PRIu64, number, previous);
        previous = number;
        if (!account_segment_header(a, place, number))
            account_fault(a, "segment %" PRIu64 ": its place %" PRIu64 " has another header", number, place);
    }
    if (count && (queued_frame(&a->l, a->header, count - 1) != account_word(a, shard_head_frame) ||
                  previous != account_word(a, shard_head_number)))
        account_fault(a, "the head is not the last of the queue");
    if (previous > account_word(a, shard_last_number))
        account_fault(a, "segment %" PRIu64 " is above the last number %" PRIu64, previous,
                      account_word(a, shard_last_number));
    if (a->result.faults != faults)
        return false;
    account_find_segments(a);
    if (count && a->proven_number > account_word(a, shard_tail_number))
        account_fault(a, "a rebuild would begin at segment %" PRIu64 ", after the tail %" PRIu64, a->proven_number,
                      account_word(a, shard_tail_number));
    if (account_word(a, shard_proven_tail) > a->proven_number)
        account_fault(a, "a rebuild would begin at segment %" PRIu64 ", the index says at %" PRIu64, a->proven_number,
                      account_word(a, shard_proven_tail));
    /* (An abandoned log is empty: its records lie before the tail, and before the synced position.) */
    uint64_t newest = count ? previous : account_word(a, shard_tail_number) - 1;
    if (a->segment_count && a->segments[a->segment_count - 1].number > newest)
        account_fault(a, "segment %" PRIu64 " is above the head", a->segments[a->segment_count - 1].number);
    /* Records that the cleaner has read no longer count for the index; a rebuild may read them again. */
    for (size_t i = 0; i < a->segment_count; i++) {
        bool is_first = a->segments[i].number == a->proven_number;
        if (a->segments[i].number >= a->proven_number)
            account_walk_segment(a, a->segments[i].place,
                                 is_first && a->proven_offset ? a->proven_offset : segment_header_bytes,
                                 a->segments[i].number == previous);
    }
    a->result.records += a->record_count;
    return a->result.faults == faults;
}

/* The last record of each key */

/* Where a key is noted, or will be. */
static known_key *account_key(const audit *a, uint64_t hash, enum key_kind kind) {
    size_t i = (hash ^ hash >> 29) & (a->table_size - 1);
    while (a->keys[i].newest && (a->keys[i].hash != hash || a->keys[i].kind != kind))
        i = (i + 1) & (a->table_size - 1);
    return &a->keys[i];
}

static logged *account_record(const audit *a, uint32_t location) {
    size_t i = (location * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (a->table_size - 1);
    while (a->places[i] && a->records[a->places[i] - 1].location != location)
        i = (i + 1) & (a->table_size - 1);
    return a->places[i] ? &a->records[a->places[i] - 1] : NULL;
}

/* A rebuild discards values whose dictionary no longer exists. */
static bool account_has_dictionary(const audit *a, const logged *r) {
    uint64_t places = a->l.dictionary_places;
    return r->dictionary == 0 ||
           (places && word_at(a->index + index_dictionary_numbers + r->dictionary % places * 8) == r->dictionary);
}

static void account_replay(audit *a) {
    for (a->table_size = 1024; a->table_size < a->record_count * 2;)
        a->table_size *= 2;
    free(a->keys);
    free(a->places);
    a->keys = calloc(a->table_size, sizeof *a->keys);
    a->places = calloc(a->table_size, sizeof *a->places);
    if (!a->keys || !a->places)
        abort();
    for (uint32_t n = 0; n < a->record_count; n++) {
        logged *r = &a->records[n];
        size_t i = (r->location * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (a->table_size - 1);
        while (a->places[i])
            i = (i + 1) & (a->table_size - 1);
        a->places[i] = n + 1;
        enum key_kind kind = r->kind == record_part         ? key_of_part
                             : r->kind == record_invalidate ? key_of_tag
                             : r->kind == record_expire     ? key_of_expired_tag
                                                            : key_of_entry;
        known_key *key = account_key(a, r->key_hash, kind);
        key->hash = r->key_hash;
        key->kind = kind;
        const logged *value = key->value ? &a->records[key->value - 1] : NULL;
        if (r->is_damaged || !account_has_dictionary(a, r)) {
            /* It supersedes all earlier records except the one that it was copied from. */
            if (!value || value->lsn != r->lsn)
                *key = (known_key){.hash = r->key_hash, .kind = kind, .newest = UINT32_MAX};
        } else if (r->kind == record_touch) {
            /* It counts only for the record that it names. */
            if (value && value->location == r->target)
                key->newest = n + 1;
            else if (!key->newest)
                key->newest = UINT32_MAX; /* its place is reused, so nothing is known of it */
        } else {
            key->newest = n + 1;
            key->value = r->kind == record_tombstone ? 0 : n + 1;
        }
    }
}

/* The lsn at which the tag table has a tag as invalidated, or expired; 0: it has none. */
static uint64_t account_tag(const audit *a, uint64_t tag, enum key_kind kind) {
    uint64_t lsn = 0;
    for (unsigned generation = 0; generation < 2; generation++) {
        uint64_t cells = tag_cells_of(a->header, generation), i = ((tag >> 32) * cells) >> 32;
        for (uint64_t n = 0; n < cells; n++, i = i + 1 == cells ? 0 : i + 1) {
            const unsigned char *cell = a->index + tag_cell_offset(&a->l, a->shard, generation, i);
            if (word_at(cell) == 0)
                break;
            if (word_at(cell) == tag)
                lsn = larger(lsn, word_at(cell + (kind == key_of_tag ? 8 : 16)));
        }
    }
    return lsn;
}

/* True if an invalidation in the log removed it, or an expiry made it stale. */
static bool account_is_ended(const audit *a, const logged *value, enum key_kind kind) {
    for (uint64_t i = 0; i < value->tag_count; i++) {
        uint64_t tag = word_at(a->data + value->tags + i * 8), hash = account_hash(&tag, 8, a->secret);
        const known_key *key = account_key(a, hash, kind);
        if (key->newest && a->records[key->newest - 1].lsn > value->lsn)
            return true;
    }
    return false;
}

/* Table */

typedef struct {
    uint64_t entries, used, live, raw, stored, pinned, dictionaries[dictionary_words];
} sums;

static uint64_t account_home(const unsigned char *header, uint32_t hash_bits) {
    uint64_t shape = word_at(header + shard_shape), buckets = shape & 0xffffff, frontier = shape >> 24 & 0xffffff,
             mode = shape >> 48;
    uint64_t home = hash_bits * buckets >> 32, next = buckets + larger(64, buckets / 4);
    if (mode == 2)
        next = larger(256, buckets - buckets / 5);
    else if (mode > 2)
        next = mode & 1 ? buckets << mode / 2 : buckets >> (mode / 2 - 1);
    return mode == 0 || (mode & 1 ? home < frontier : home >= frontier) ? home : hash_bits * next >> 32;
}

static uint64_t account_max_displacement(const audit *a, uint64_t home) {
    const unsigned char *bucket = a->index + bucket_offset(&a->l, a->shard, home);
    uint64_t displacement = 0;
    for (int i = 0; i < 4; i++)
        if (word_at(bucket + i * slot_bytes) >> 60 & 1)
            displacement = displacement * 2 + 1;
        else
            break;
    return displacement;
}

static void account_check_frame(audit *a, uint64_t bucket, uint64_t word0, const logged *r) {
    uint64_t displacement = word0 >> 56 & 15, home = account_home(a->header, (uint32_t)r->key_hash);
    if ((r->key_hash & 0xffffff) != (word0 >> 32 & 0xffffff))
        account_fault(a, "bucket %" PRIu64 ": a slot has another fingerprint than its record's key", bucket);
    else if (home + displacement != bucket)
        account_fault(a, "bucket %" PRIu64 ": a slot is displaced by %" PRIu64 ", its home is %" PRIu64, bucket,
                      displacement, home);
    else if (account_max_displacement(a, home) < displacement)
        account_fault(a, "bucket %" PRIu64 " does not reach its entry in %" PRIu64, home, bucket);
    if ((r->placed >> 32) * a->l.shards >> 32 != a->shard)
        account_fault(a, "bucket %" PRIu64 ": an entry of another shard", bucket);
}

static void account_check_flags(audit *a, uint64_t bucket, uint64_t word0, uint64_t word1, const logged *r) {
    unsigned kind = word0 >> 62, expected = r->kind == record_touch  ? 3
                                            : r->kind == record_part ? 2
                                            : r->tag_count > 0       ? 1
                                                                     : 0;
    if (kind != expected)
        account_fault(a, "bucket %" PRIu64 ": the slot says kind %u, its record %u", bucket, kind, expected);
    if ((word0 >> 61 & 1) != r->is_pinned)
        account_fault(a, "bucket %" PRIu64 ": slot and record disagree on being pinned", bucket);
    uint64_t expiry = word1 >> 40, units = r->dead_at / 64000 + (r->dead_at % 64000 != 0);
    bool asks_record = expiry == 1 || expiry == 0xffffff;
    if (r->kind != record_part && !asks_record && expiry != (r->dead_at == UINT64_MAX ? 0 : units - a->expiry_base))
        account_fault(a, "bucket %" PRIu64 ": the slot's expiry is %" PRIu64 ", its record's %" PRIu64, bucket, expiry,
                      r->dead_at == UINT64_MAX ? 0 : units - a->expiry_base);
    if ((word1 & ((UINT64_C(1) << 38) - 1)) > account_word(a, shard_stamp))
        account_fault(a, "bucket %" PRIu64 ": a stamp above the counter", bucket);
}

static void account_add(audit *a, sums *sum, const logged *r, uint64_t word0) {
    const logged *value = r->kind == record_touch ? account_record(a, r->target) : r;
    sum->used++;
    sum->live += r->length;
    if (value && value != r)
        sum->live += value->length;
    if (r->kind != record_part) {
        sum->entries++;
        sum->pinned += word0 >> 61 & 1;
    }
    if (!value)
        return;
    sum->raw += value->raw;
    sum->stored += value->stored;
    if (value->dictionary)
        sum->dictionaries[value->dictionary % larger(1, a->l.dictionary_places)]++;
    if (value->kind == record_manifest) {
        a->blobs = account_grow(a->blobs, a->blob_count, &a->blob_room, sizeof *a->blobs);
        a->blobs[a->blob_count++] = (known_blob){.blob = value->blob, .parts = value->parts};
    } else if (value->kind == record_part) {
        a->parts = account_grow(a->parts, a->part_count, &a->part_room, sizeof *a->parts);
        a->parts[a->part_count++] = (struct part){value->blob, value->length};
    }
}

static void account_check_slot(audit *a, uint64_t bucket, uint64_t word0, uint64_t word1, sums *sum) {
    logged *r = account_record(a, (uint32_t)word0);
    if (!r) {
        account_fault(a, "bucket %" PRIu64 ": no record of the log at location %" PRIu32, bucket, (uint32_t)word0);
        return;
    }
    account_check_frame(a, bucket, word0, r);
    account_check_flags(a, bucket, word0, word1, r);
    account_add(a, sum, r, word0);
    known_key *key = account_key(a, r->key_hash, r->kind == record_part ? key_of_part : key_of_entry);
    const logged *newest = key->newest && key->newest != UINT32_MAX ? &a->records[key->newest - 1] : NULL;
    if (newest != r)
        account_fault(a,
                      "bucket %" PRIu64 ": the record of lsn %" PRIu64
                      " is current, and the log has one of kind %u and lsn %" PRIu64 " after it",
                      bucket, r->lsn, newest ? newest->kind : 0, newest ? newest->lsn : 0);
    if (key->is_seen)
        account_fault(a, "bucket %" PRIu64 ": a second slot for one key", bucket);
    key->is_seen = true;
    const logged *value = r->kind == record_touch ? account_record(a, r->target) : r;
    if (!value || value->key_hash != r->key_hash || (value->kind == record_touch) ||
        (r->kind == record_touch && word_at(a->data + record_at(a->data, r->offset).stored + 16) != value->lsn)) {
        account_fault(a, "bucket %" PRIu64 ": a touch record names another record than its value", bucket);
        return;
    }
    for (enum key_kind kind = key_of_tag; kind <= key_of_expired_tag; kind++) {
        bool is_known = false;
        for (uint64_t i = 0; i < value->tag_count; i++)
            is_known |= account_tag(a, word_at(a->data + value->tags + i * 8), kind) > value->lsn;
        if (!is_known && account_is_ended(a, value, kind))
            account_fault(a, "bucket %" PRIu64 ": the log %s a tag of lsn %" PRIu64 ", the tag table does not", bucket,
                          kind == key_of_tag ? "invalidates" : "expires", value->lsn);
    }
}

static void account_compare(audit *a, const char *what, unsigned field, uint64_t sum) {
    if (account_word(a, field) != sum)
        account_fault(a, "%s is %" PRIu64 ", its sum %" PRIu64, what, account_word(a, field), sum);
}

static void account_check_table(audit *a) {
    sums sum = {0};
    uint64_t end = buckets_of(a->header);
    if (shape_mode(a->header) > 8 || account_region_bytes(a, end - last_buckets) > account_word(a, shard_table_bytes) ||
        end > most_buckets || bucket_offset(&a->l, a->shard, end - 1) + bucket_bytes > a->index_size) {
        account_fault(a, "a table of %" PRIu64 " buckets in %" PRIu64 " bytes", end,
                      account_word(a, shard_table_bytes));
        return;
    }
    for (uint64_t bucket = 0; bucket < end; bucket++) {
        const unsigned char *p = a->index + bucket_offset(&a->l, a->shard, bucket);
        bool before = true;
        for (int i = 0; i < 4; i++) {
            uint64_t word0 = word_at(p + i * slot_bytes);
            bool reaches = word0 >> 60 & 1;
            if (reaches && !before)
                account_fault(a, "bucket %" PRIu64 ": its reach bits are no unary number", bucket);
            before = reaches;
            if ((uint32_t)word0 != 0)
                account_check_slot(a, bucket, word0, word_at(p + i * slot_bytes + 8), &sum);
        }
    }
    account_compare(a, "entries", shard_entries, sum.entries);
    account_compare(a, "used", shard_used, sum.used);
    account_compare(a, "live", shard_live, sum.live);
    account_compare(a, "raw", shard_raw, sum.raw);
    account_compare(a, "stored", shard_stored, sum.stored);
    account_compare(a, "pinned", shard_pinned, sum.pinned);
    for (int i = 0; i < dictionary_words; i++)
        account_compare(a, "a dictionary's count", shard_dictionaries + i * 8, sum.dictionaries[i]);
    /* (A killed writer may have counted one too many.) */
    for (unsigned generation = 0; generation < 2; generation++) {
        uint64_t tags = 0, cells = tag_cells_of(a->header, generation),
                 counted = account_word(a, shard_tag_counts + 8 * generation);
        if (cells > 0 && tag_cell_offset(&a->l, a->shard, generation, cells - 1) + tag_cell > a->index_size) {
            account_fault(a, "a generation of tags has %" PRIu64 " cells", cells);
            continue;
        }
        for (uint64_t i = 0; i < cells; i++)
            tags += word_at(a->index + tag_cell_offset(&a->l, a->shard, generation, i)) != 0;
        if (counted < tags)
            account_fault(a, "tags are %" PRIu64 ", their sum %" PRIu64, counted, tags);
    }
    a->result.entries += sum.entries;
    a->result.slots += sum.used;
    a->result.live += sum.live;
    a->result.raw += sum.raw;
    a->result.stored += sum.stored;
    a->result.pinned += sum.pinned;
}

/* Keys that a replay of the log ends with and the index lacks: removing one has to leave a tombstone, which happens
 * while the residual word is not below the segment where a rebuild would begin. */
static void account_check_residuals(audit *a) {
    uint64_t residuals = 0;
    for (size_t i = 0; i < a->table_size; i++) {
        const known_key *key = &a->keys[i];
        if (!key->newest || key->newest == UINT32_MAX || key->is_seen || key->kind != key_of_entry || !key->value)
            continue;
        residuals += !account_is_ended(a, &a->records[key->value - 1], key_of_tag);
    }
    a->result.residuals += residuals;
    if (residuals &&
        (account_word(a, shard_residual) == 0 || account_word(a, shard_residual) < account_word(a, shard_proven_tail)))
        account_fault(a,
                      "%" PRIu64
                      " keys of the log are not in the index, which says that none was unlinked since segment %" PRIu64,
                      residuals, account_word(a, shard_proven_tail));
}

static void account_check_shard(audit *a, uint64_t shard) {
    a->shard = shard;
    a->header = a->index + shard_offset(&a->l, shard);
    if (account_word(a, shard_state) != 0 || account_word(a, shard_pending) != 0 ||
        account_word(a, shard_epoch) % 2 != 0) {
        account_fault(a, "being changed: state %" PRIu64 ", pending %" PRIx64 ", epoch %" PRIu64,
                      account_word(a, shard_state), account_word(a, shard_pending), account_word(a, shard_epoch));
        return;
    }
    if (!account_walk_log(a))
        return;
    account_replay(a);
    account_check_table(a);
    account_check_residuals(a);
}

/* Large values, over all shards */

static int account_order(const void *a, const void *b) {
    uint64_t x = ((const known_blob *)a)->blob, y = ((const known_blob *)b)->blob;
    return x < y ? -1 : x > y;
}

static void account_check_parts(audit *a) {
    if (a->blob_count)
        qsort(a->blobs, a->blob_count, sizeof *a->blobs, account_order);
    a->result.parts = a->part_count;
    for (size_t i = 0; i < a->part_count; i++) {
        known_blob *owner = a->blob_count
                                ? bsearch(&a->parts[i].blob, a->blobs, a->blob_count, sizeof *a->blobs, account_order)
                                : NULL;
        if (owner) {
            owner->found++;
            continue;
        }
        a->result.orphans++;
        a->result.orphan_bytes += a->parts[i].length;
    }
    for (size_t i = 0; i < a->blob_count; i++)
        a->result.incomplete += a->blobs[i].found < a->blobs[i].parts;
}

/* Disk */

static void account_check_disk(audit *a, uint64_t capacity) {
    const layout *l = &a->l;
    uint64_t places = 0, tables = 0;
    struct stat status;
    for (uint64_t shard = 0; shard < l->shards; shard++) {
        const unsigned char *header = a->index + shard_offset(l, shard);
        places += word_at(header + shard_allocated) * l->segment_size;
        tables += word_at(header + shard_table_bytes);
    }
    a->shard = 0;
    if (a->files == account_own_files) {
        account_check_holes(a, a->data_fd, "shale.data", account_data_counts);
        account_check_holes(a, a->index_fd, "shale.index", account_index_counts);
    }
    if (stat(a->directory, &status) == 0)
        a->result.directory_bytes = (uint64_t)status.st_blocks * 512;
    uint64_t least = (a->result.is_free + a->result.in_log) * l->segment_size,
             all = a->result.data_bytes + a->result.index_bytes + a->result.directory_bytes;
    uint64_t most = page_bytes + round_up(l->shards * 32, page_bytes) + l->dictionary_places * l->dictionary_size +
                    places;
    /* A file system's own blocks (extents, indirections) count as the file's. */
    uint64_t slack = (32 << 10) + capacity / 512;
    if (a->files != account_copied_files && a->result.data_bytes < least)
        account_fault(a, "shale.data takes %" PRIu64 " bytes, its places alone should take %" PRIu64,
                      a->result.data_bytes, least);
    if (a->files == account_own_files && a->result.data_bytes > most + slack)
        account_fault(a, "shale.data takes %" PRIu64 " bytes, %" PRIu64 " are counted", a->result.data_bytes, most);
    if (a->files == account_own_files && a->result.index_bytes > index_head_bytes + tables + slack)
        account_fault(a, "shale.index takes %" PRIu64 " bytes, %" PRIu64 " are counted", a->result.index_bytes,
                      index_head_bytes + tables);
    if (all > capacity)
        account_fault(a, "the directory takes %" PRIu64 " bytes, the capacity is %" PRIu64, all, capacity);
    if (most + index_head_bytes + tables > capacity)
        account_fault(a, "%" PRIu64 " bytes are counted, the capacity is %" PRIu64, most + index_head_bytes + tables,
                      capacity);
}

/* The whole audit. Prints each fault; the result has their number. */
static inline accounts take_account(const char *directory, enum account_files files) {
    audit a = {.directory = directory, .data_fd = -1, .index_fd = -1, .files = files};
    if (account_map(&a, "shale.data", &a.data_fd, &a.data, &a.data_size, &a.result.data_bytes) &&
        account_map(&a, "shale.index", &a.index_fd, &a.index, &a.index_size, &a.result.index_bytes) &&
        account_read_super(&a) && account_read_head(&a)) {
        for (uint64_t shard = 0; shard < a.l.shards; shard++)
            account_check_shard(&a, shard);
        account_check_parts(&a);
        account_check_disk(&a, a.result.capacity);
        if (a.max_entries && a.result.entries > larger(a.max_entries, a.l.shards))
            account_fault(&a, "%" PRIu64 " entries, at most %" PRIu64 " are allowed", a.result.entries, a.max_entries);
    }
    if (a.data && a.data != MAP_FAILED)
        munmap(a.data, a.data_size);
    if (a.index && a.index != MAP_FAILED)
        munmap(a.index, a.index_size);
    if (a.data_fd >= 0)
        close(a.data_fd);
    if (a.index_fd >= 0)
        close(a.index_fd);
    free(a.segments);
    free(a.records);
    free(a.keys);
    free(a.places);
    free(a.blobs);
    free(a.parts);
    return a.result;
}

static inline void print_account(const accounts *n, FILE *to) {
    fprintf(to,
            "%" PRIu64 " entries in %" PRIu64 " shards, %" PRIu64 " pinned, %" PRIu64 " bytes live, %" PRIu64
            " raw, %" PRIu64 " stored; %" PRIu64 " records, %" PRIu64 " damaged, %" PRIu64
            " keys of the log alone; %" PRIu64 " places in the log, %" PRIu64 " free, %" PRIu64
            " being prepared; %" PRIu64 " parts, %" PRIu64 " orphaned (%" PRIu64 " bytes), %" PRIu64
            " values incomplete, %" PRIu64 " being written; %" PRIu64 " bytes on the disk of %" PRIu64 "; %u faults\n",
            n->entries, n->shards, n->pinned, n->live, n->raw, n->stored, n->records, n->damaged, n->residuals,
            n->in_log, n->is_free, n->in_preparation, n->parts, n->orphans, n->orphan_bytes, n->incomplete,
            n->being_written, n->data_bytes + n->index_bytes + n->directory_bytes, n->capacity, n->faults);
}

#endif
