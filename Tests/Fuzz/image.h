/* Two small caches with every kind of record, as bytes in memory, and the checks of Documentation/internals/format.md, so that
 * a target can change any field and still pass them: the limits protect against damage that no check finds. */
#ifndef IMAGE_H
#define IMAGE_H

#include "fuzz.h"

#define XXH_INLINE_ALL 1
#include <xxhash.h>

static const uint64_t secret = UINT64_C(0x5eed0000cafe1234);

static inline uint64_t get64(const uint8_t *p) {
    uint64_t value;
    memcpy(&value, p, 8);
    return value;
}
static inline uint32_t get32(const uint8_t *p) {
    uint32_t value;
    memcpy(&value, p, 4);
    return value;
}
static inline void set64(uint8_t *p, uint64_t value) {
    memcpy(p, &value, 8);
}
static inline void set32(uint8_t *p, uint32_t value) {
    memcpy(p, &value, 4);
}
static inline uint64_t hash(const void *p, size_t size, uint64_t seed) {
    return XXH3_64bits_withSeed(p, size, seed);
}

/* ---- the data file ---------------------------------------------------------- */

enum {
    page_size = 4096,
    segment_size = 128 << 10,
    segment_header = 64,
    record_header = 48,
    most_segments = 24, /* of an image: the first frames of the file */
    most_records = 1024,
    /* How far a length in a record may reach beyond the image. */
    slack = 256 << 10,
};

enum { kind_value = 1, kind_manifest, kind_part, kind_tombstone, kind_touch, kind_invalidate, kind_end, kind_gap };

typedef struct {
    uint8_t *bytes; /* zeros in unwritten areas */
    size_t segments; /* where the frames begin */
    uint32_t shards, places; /* frames: of all shards together, in the image */
    uint32_t dictionaries, dictionary_size;
    size_t used[most_segments]; /* bytes of each frame that are not zero, 0: a hole */
    struct {
        size_t at;
        uint32_t place;
    } records[most_records];
    size_t record_count;
} image;

static inline size_t image_capacity(const image *i) {
    return i->segments + (size_t)most_segments * segment_size;
}
static inline uint8_t *place_at(const image *i, uint32_t place) {
    return i->bytes + i->segments + (size_t)place * segment_size;
}
static inline uint64_t segment_number(const image *i, uint32_t place) {
    return get64(place_at(i, place) + 16);
}

/* A record's parts, by the lengths that it has now. */
typedef struct {
    size_t key, key_size, meta, meta_size, stored, stored_size, end;
} layout;

static inline layout layout_of(const uint8_t *p) {
    layout l;
    l.key = record_header + (p[21] >> 4 & 2 ? 8u : 0u) + (p[21] & 15u) * 8u;
    l.key_size = get32(p + 20) >> 16;
    l.meta = l.key + l.key_size;
    l.meta_size = get64(p + 32) & 0xffff;
    l.stored = l.meta + l.meta_size;
    l.stored_size = get32(p + 24);
    l.end = (l.stored + l.stored_size + 7) & ~(size_t)7;
    return l;
}

static inline void seal_body(const image *i, size_t at, uint64_t number) {
    uint8_t *p = i->bytes + at;
    layout l = layout_of(p);
    if (at + l.stored + l.stored_size > image_capacity(i) + slack)
        return;
    uint64_t place[2] = {number, at};
    uint64_t seed = l.meta_size == 0 ? secret : hash(p + l.meta, l.meta_size, secret);
    set64(p + 8, hash(p + l.stored, l.stored_size, seed) ^ hash(place, sizeof place, secret));
}

static inline void seal_head(const image *i, size_t at, uint64_t number) {
    uint8_t *p = i->bytes + at;
    layout l = layout_of(p);
    uint64_t words[9] = {
        get64(p),
        get64(p + 16) & ~UINT64_C(0xffffffff),
        get64(p + 24),
        get64(p + 32),
        get64(p + 40),
        l.key_size == 0 ? 0 : hash(p + l.key, l.key_size, secret),
        l.key == record_header ? 0 : hash(p + record_header, l.key - record_header, secret),
        number,
        at,
    };
    set32(p + 16, (uint32_t)hash(words, sizeof words, secret));
}

static inline void seal_segment(const image *i, uint32_t place) {
    uint8_t *p = place_at(i, place);
    uint64_t words[7] = {get64(p),      get64(p + 8),  get64(p + 16), get64(p + 24),
                         get64(p + 32), get64(p + 48), get64(p + 56)};
    set64(p + 40, hash(words, sizeof words, secret));
}

static inline void seal_superblock(uint8_t *p) {
    set64(p + 120, hash(p, 120, get64((const uint8_t *)"SHLEDATA")));
}

/* Entries below `shards` are positions, those from there on tails. */
static inline void seal_synced(const image *i, uint32_t entry) {
    uint8_t *p = i->bytes + page_size + entry * 16u;
    uint64_t words[3] = {entry, get64(p), get32(p + 8)};
    set32(p + 12, (uint32_t)hash(words, sizeof words, secret));
}

static inline uint8_t *dictionary_at(const image *i, uint32_t n) {
    return i->bytes + 2 * page_size + (size_t)n * i->dictionary_size;
}
static inline void seal_dictionary(const image *i, uint32_t n) {
    uint8_t *p = dictionary_at(i, n);
    uint64_t size = get64(p + 8);
    if (size <= i->dictionary_size)
        set64(p + 16, hash(p + 64, size, secret ^ get64(p)));
}

static inline void note_record(image *i, size_t at, uint32_t place) {
    if (i->record_count < most_records) {
        i->records[i->record_count].at = at;
        i->records[i->record_count++].place = place;
    }
}

/* ---- keys and values ---------------------------------------------------------- */

enum { key_count = 32, variant_count = 4, most_value = 48 << 10 };

static inline size_t make_key(char *key, unsigned number) {
    return (size_t)sprintf(key, "key-%02u", number % key_count);
}

/* A value that identifies itself: key, variant, then bytes that follow from these. */
static inline size_t make_value(uint8_t *value, unsigned key, unsigned variant) {
    static const size_t sizes[] = {8, 30, 200, 1000, 380, 64, 2, 3000};
    key %= key_count, variant %= variant_count;
    size_t size = key == 15 ? 17000 : key == 18 ? 35000 : sizes[(key + variant * 3) % 8]; /* above 16 KiB: in parts */
    uint64_t state = key * 64 + variant, word = 0;
    size_t at = 0;
    for (; at < size; at += 8) {
        word = key % 2 ? random_word(&state) : at % 64;
        if (size - at < 8)
            break;
        memcpy(value + at, &word, 8);
    }
    if (at < size)
        memcpy(value + at, &word, size - at);
    value[0] = (uint8_t)('A' + key), value[1] = (uint8_t)('0' + variant);
    return size;
}

static inline bool is_value_of(const uint8_t *value, size_t size, unsigned key) {
    static uint8_t expected[most_value];
    if (size < 2 || value[0] != 'A' + key)
        return false;
    for (unsigned variant = 0; variant < variant_count; variant++)
        if (value[1] == '0' + variant)
            return size == make_value(expected, key, variant) && memcmp(expected, value, size) == 0;
    return false;
}

/* The key that counts, and one whose values are no patterns. */
enum { counter_key = 17 };

/* ---- the caches that inputs change ---------------------------------------------- */

typedef struct {
    image data;
    uint8_t *index;
    size_t index_size;
    size_t data_size;
    struct {
        size_t at, size;
    } parts[16]; /* of the index that are on disk */
    int part_count;
} template;

enum { template_count = 2 };

static inline shale_options template_options(int number) {
    shale_options options = {.struct_size = sizeof options, .now_ms = clock_now};
    options.capacity = number == 0 ? 1 << 20 : 4 << 20;
    options.shards = number == 0 ? 1 : 2;
    return options;
}

static inline void read_all(int fd, void *bytes, size_t size, size_t at) {
    if (pread(fd, bytes, size, (off_t)at) != (ssize_t)size)
        FAIL("read: %s", strerror(errno));
}
static inline void write_all(int fd, const void *bytes, size_t size, size_t at) {
    if (pwrite(fd, bytes, size, (off_t)at) != (ssize_t)size)
        FAIL("write: %s", strerror(errno));
}

static inline void template_fill(shale_cache *cache, int number) {
    static uint8_t value[most_value];
    char key[16];
    shale_bytes tags[2] = {{"news", 4}, {"sport", 5}};
    if (number == 1) { /* values that are alike, until there is a dictionary */
        for (int n = 0; n < 400; n++) {
            int size = sprintf(
                (char *)value,
                "{\"id\": %d, \"name\": \"customer %d\", \"address\": {\"street\": \"Long Road %d\", \"city\": \"Springfield\"},"
                " \"orders\": [{\"article\": %d, \"price\": \"%d.99\", \"currency\": \"EUR\"}], \"active\": true,"
                " \"comment\": \"delivery to the back door between nine and five\"}",
                n, n * 7, n * 3, n * 11, n % 100);
            sprintf(key, "json-%03d", n);
            ASSERT(shale_set(cache, key, 8, value, (size_t)size, NULL) == SHALE_OK);
        }
        shale_stats stats = {.struct_size = sizeof stats};
        ASSERT(shale_get_stats(cache, &stats) == SHALE_OK && stats.dictionaries > 0);
        for (int n = 0; n < 380; n++) {
            sprintf(key, "json-%03d", n);
            ASSERT(shale_remove(cache, key, 8, 0) == SHALE_OK);
        }
    }
    for (unsigned n = 0; n < key_count; n++) {
        shale_set_options options = {.struct_size = sizeof options};
        if (n % 4 == 2)
            options.meta = "text/plain", options.meta_size = 10;
        if (n % 5 == 3)
            options.tags = tags, options.tag_count = 1 + n % 2;
        if (n % 7 == 5)
            options.flags = SHALE_SET_PINNED;
        if (n % 6 == 4)
            options.max_age_ms = 60000 + n, options.stale_ms = n % 4 ? 0 : 30000;
        size_t key_size = make_key(key, n);
        for (unsigned variant = 0; variant <= n % 3; variant++) {
            size_t size = make_value(value, n, variant);
            ASSERT(shale_set(cache, key, key_size, value, size, &options) == SHALE_OK);
        }
        if (n % 4 == 1)
            ASSERT(shale_touch(cache, key, key_size, 100000) == SHALE_OK);
        if (n == counter_key) {
            shale_remove(cache, key, key_size, 0);
            ASSERT(shale_increment(cache, key, key_size, 40, 2, NULL) == SHALE_OK);
        }
        if (n % 8 == 6)
            ASSERT(shale_remove(cache, key, key_size, 0) == SHALE_OK);
    }
    ASSERT(shale_invalidate(cache, "sport", 5) == SHALE_OK);
    size_t size = make_value(value, 3, 1);
    ASSERT(shale_set(cache, "key-03", 6, value, size, NULL) == SHALE_OK);
}

static inline void template_walk(image *i) {
    for (uint32_t place = 0; place < i->places; place++) {
        const uint8_t *p = place_at(i, place);
        if (memcmp(p, "SHLESEG1", 8) != 0)
            continue;
        size_t at = segment_header;
        while (at <= segment_size - record_header && get32(p + at + 16) != 0) {
            layout l = layout_of(p + at);
            note_record(i, (size_t)(p - i->bytes) + at, place);
            at += l.end;
        }
        i->used[place] = at;
    }
}

/* Made by the library itself, with a secret that does not change. */
static inline void template_make(template *t, int number) {
    shale_options options = template_options(number);
    shale_cache *cache = NULL;
    scratch_unlink("shale.data");
    scratch_unlink("shale.index");
    ASSERT(shale_open(scratch_directory(), &options, &cache) == SHALE_OK && shale_close(cache) == SHALE_OK);
    uint8_t page[page_size];
    int fd = scratch_open("shale.data", O_RDWR);
    read_all(fd, page, sizeof page, 0);
    for (size_t copy = 0; copy <= 2048; copy += 2048) {
        set64(page + copy + 24, secret);
        seal_superblock(page + copy);
    }
    write_all(fd, page, sizeof page, 0);
    scratch_unlink("shale.index");
    ASSERT(shale_open(scratch_directory(), &options, &cache) == SHALE_OK);
    template_fill(cache, number);
    ASSERT(shale_close(cache) == SHALE_OK);

    image *i = &t->data;
    struct stat status;
    fstat(fd, &status);
    t->data_size = (size_t)status.st_size;
    read_all(fd, page, sizeof page, 0);
    i->shards = get32(page + 2048 + 48);
    i->dictionaries = get32(page + 2048 + 88);
    i->dictionary_size = get32(page + 2048 + 92);
    i->segments = (2 * page_size + (size_t)i->dictionaries * i->dictionary_size + segment_size - 1) / segment_size *
                  segment_size;
    i->places = (uint32_t)((t->data_size - i->segments + segment_size - 1) / segment_size);
    ASSERT(i->places <= most_segments / 2);
    i->bytes = calloc(1, image_capacity(i) + slack);
    ASSERT(i->bytes);
    read_all(fd, i->bytes, t->data_size, 0);
    close(fd);
    template_walk(i);

    fd = scratch_open("shale.index", O_RDONLY);
    fstat(fd, &status);
    t->index_size = (size_t)status.st_size;
    t->index = calloc(1, t->index_size);
    ASSERT(t->index);
    for (off_t at = 0; at < status.st_size && t->part_count < 16; t->part_count++) {
        off_t begin = lseek(fd, at, SEEK_DATA);
        if (begin < 0)
            break;
        at = lseek(fd, begin, SEEK_HOLE);
        t->parts[t->part_count].at = (size_t)begin;
        t->parts[t->part_count].size = (size_t)(at - begin);
        read_all(fd, t->index + begin, (size_t)(at - begin), (size_t)begin);
    }
    close(fd);
}

static inline const template *template_of(int number) {
    static template made[template_count];
    template *t = &made[number % template_count];
    if (!t->data.bytes)
        template_make(t, number % template_count);
    return t;
}

/* ---- writing the files ------------------------------------------------------------ */

/* Empty frames are holes, as in a real file. */
static inline void write_image(const image *i, size_t file_size) {
    int fd = scratch_open("shale.data", O_RDWR | O_CREAT);
    if (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)file_size) < 0)
        FAIL("ftruncate: %s", strerror(errno));
    size_t head = i->segments < file_size ? i->segments : file_size;
    write_all(fd, i->bytes, head, 0);
    for (uint32_t place = 0; place < most_segments; place++) {
        size_t at = i->segments + (size_t)place * segment_size, size = i->used[place];
        if (at + size > file_size)
            size = at < file_size ? file_size - at : 0;
        if (size)
            write_all(fd, i->bytes + at, size, at);
    }
    close(fd);
}

static inline void copy_image(image *to, const image *from) {
    uint8_t *bytes = to->bytes;
    size_t old = bytes ? image_capacity(to) + slack : 0;
    if (!bytes || old < image_capacity(from) + slack) {
        free(bytes);
        bytes = calloc(1, image_capacity(from) + slack);
        ASSERT(bytes);
    } else { /* clears the last input's contents */
        memset(bytes, 0, to->segments);
        for (uint32_t place = 0; place < most_segments; place++)
            memset(bytes + to->segments + (size_t)place * segment_size, 0, to->used[place]);
    }
    *to = *from;
    to->bytes = bytes;
    memcpy(bytes, from->bytes, from->segments);
    for (uint32_t place = 0; place < most_segments; place++)
        memcpy(place_at(to, place), place_at(from, place), from->used[place]);
}

#endif
