/* Damaged files cost only what was damaged: whatever the bytes of a cache, it opens, answers with right values,
 * misses or clear errors, and continues.
 *
 * Caches of several shapes are prepared once and kept as images of their files, with a record of what each key holds
 * and where its bytes are. A case takes an image, damages it, and uses the cache in a child process: open, read all,
 * walk, change, fill beyond the capacity, verify, sync, close, and open again.
 *
 * No signal, no hang, and never bytes that were not stored under the key, whatever the damage. Never an older value
 * either, and what is not damaged is still served, except as limits.md, "Damage", says of an index that is believed,
 * and if both files are older (below, counted).
 *
 * damage [cases] [seed] [first case] */
#include "birth.h"
#include "check.h"
#include "tolerances.h"
#include "layout.h"
#include "pattern.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "faults.h"

/* clang-format off */
enum { most_keys = 5000, fill_keys = 2500, counters = 8, most_ranges = 8, largest = 48 << 10, batch = 50 };
/* clang-format on */
static const int64_t begin_ms = 1700000000000, hour_ms = 3600000;

/* MARK: Expected contents */

typedef struct {
    uint64_t version; /* 0: nothing */
    int64_t expires_ms;
} key_state;

typedef struct {
    uint64_t offset, size;
} span;

/* The bytes of shale.data that a key's value depends on. */
typedef struct {
    span ranges[most_ranges];
    unsigned count, dictionary;
    uint64_t shard, first; /* the log order of the oldest of them */
} key_place;

typedef struct {
    span record, target; /* without padding */
} slot_view;

typedef struct {
    unsigned char *data, *index;
    size_t data_size, index_size;
} image;

enum shape { shape_any, shape_growing, shape_shrinking };

/* How a cache was left. The first three indexes are trusted. */
enum leaving { left_running, left_closed, left_closed_other_boot, left_other_boot, left_without_index, leavings };
static const char *const leaving_names[] = {"still running", "closed", "closed, then another boot",
                                            "running, then another boot", "without its index"};

typedef struct {
    const char *name;
    uint64_t capacity, shards, keys;
    size_t most; /* bytes of usual values */
    bool textual, large;
    enum shape shape;
    unsigned operations;
    int32_t policy;

    image running, closed, earlier;
    layout layout;
    key_state *current, *synced;
    key_place *places;
    bool *served[leavings]; /* what is served without damage */
    record_view *records;
    size_t record_count;
    slot_view *slots;
    size_t slot_count;
} specimen;

/* clang-format off */
static specimen specimens[] = {
    {.name = "mixed", .capacity = 1 << 20, .shards = 1, .keys = 500, .most = 3000, .large = true, .operations = 2500},
    {.name = "growing", .capacity = 1 << 20, .shards = 1, .keys = 2400, .most = 64, .shape = shape_growing, .operations = 6000},
    {.name = "shrinking", .capacity = 1 << 20, .shards = 1, .keys = 2000, .most = 64, .shape = shape_shrinking, .operations = 3000},
    {.name = "shards and dictionaries", .capacity = 4 << 20, .shards = 3, .keys = 2000, .most = 900, .textual = true, .large = true, .operations = 9000},
    {.name = "clock", .capacity = 2 << 20, .shards = 2, .keys = 500, .most = 3000, .large = true, .operations = 2500, .policy = SHALE_EVICTION_CLOCK},
    {.name = "new", .capacity = 1 << 20, .shards = 1, .keys = 4, .most = 100, .operations = 3},
};
/* clang-format on */
enum { specimen_count = sizeof specimens / sizeof *specimens };

static uint64_t seed;
static int64_t clock_ms = 1700000000000;

/* Secrets and marks depend on the seed alone, also in a case that is run alone. */
static random_source secrets;

static unsigned long long next_secret(void) {
    return random_next(&secrets);
}

static int64_t now(void *context UNUSED) {
    return clock_ms;
}

static bool is_counter(const specimen *s, uint64_t key) {
    return s->keys > 100 && key + 2 >= s->keys && key < s->keys;
}

static size_t value_size(const specimen *s, uint64_t key, uint64_t version) {
    random_source source = {key * 1000003 + version};
    if (s->large && key % 61 == 7)
        return 17000 + random_below(&source, 24000);
    size_t most = random_below(&source, 50) == 0 ? 2 * s->most : s->most;
    return sizeof(pattern_head) + random_below(&source, most);
}

static size_t value_fill(const specimen *s, unsigned char *bytes, uint64_t key, uint64_t version) {
    static const char text[] =
        "{\"name\":\"the usual name of a thing\",\"kind\":\"document\",\"languages\":[\"de\",\"en\",\"fr\"],\"state\":\"published\",\"rating\":4,\"next\":null},";
    size_t size = value_size(s, key, version);
    pattern_fill(bytes, key, version, size);
    for (size_t at = 64; s->textual && at + 192 <= size; at += 192)
        memcpy(bytes + at, text, sizeof text);
    return size;
}

/* How a read compares with what its key may hold. */
enum result { result_right, result_missing, result_older, result_wrong };

/* Every third state allows two: if unsynced changes may be lost, a key may hold what it held when synced. */
static struct {
    key_state now[most_keys + fill_keys], before[most_keys + fill_keys];
    bool foreign; /* another cache replaced this one: its contents are unknown */
} account;

static bool allows(key_state state, uint64_t version) {
    return state.version == version && (state.expires_ms == 0 || clock_ms < state.expires_ms);
}

static enum result evaluate(const specimen *s, uint64_t key, shale_status status, const shale_value *value,
                            const char **why) {
    static unsigned char expected[largest];
    count_look();
    *why = "an error";
    if (account.foreign && status >= 0)
        return status == SHALE_OK ? result_right : result_missing;
    uint64_t version = 0;
    if (status == SHALE_MISS)
        return result_missing;
    if (status != SHALE_OK)
        return result_wrong;
    *why = "not a value";
    if (is_counter(s, key)) {
        if (value->size != 8 || value->meta_size != 0)
            return result_wrong;
        memcpy(&version, value->data, 8);
    } else {
        pattern_head head;
        if (value->size < sizeof head)
            return result_wrong;
        memcpy(&head, value->data, sizeof head);
        *why = "another key's value";
        if (head.key != key)
            return result_wrong;
        version = head.version;
        *why = "torn";
        if (value->size != value_size(s, key, version))
            return result_wrong;
        value_fill(s, expected, key, version);
        if (memcmp(expected, value->data, value->size) != 0)
            return result_wrong;
        uint64_t meta[2] = {key, version};
        if (value->meta_size != (key % 5 == 0 ? sizeof meta : 0) || memcmp(meta, value->meta, value->meta_size) != 0)
            return result_wrong;
    }
    *why = "older, removed or expired";
    return allows(account.now[key], version) || allows(account.before[key], version) ? result_right : result_older;
}

/* MARK: Changes */

static const char boot_names[2][40] = {"11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"};

static shale_status open_cache(const specimen *s, const char *directory, uint32_t flags, shale_cache **cache) {
    bool sets_limits = !(flags & SHALE_OPEN_READ_ONLY);
    shale_options options = {.struct_size = sizeof options,
                             .capacity = sets_limits ? s->capacity : 0,
                             .segment_size = sets_limits ? 128 << 10 : 0,
                             .shards = sets_limits ? (uint32_t)s->shards : 0,
                             .eviction = s->policy,
                             .flags = flags,
                             .now_ms = now};
    return shale_open(directory, &options, cache);
}

static uint64_t tag_of(uint64_t key) {
    return key % 4 == 1 ? 1 + key % 16 : 0;
}

static shale_status set_key(const specimen *s, shale_cache *cache, uint64_t key, uint64_t version) {
    static unsigned char bytes[largest];
    size_t size = value_fill(s, bytes, key, version);
    uint64_t meta[2] = {key, version}, tag = tag_of(key);
    shale_bytes tag_bytes = {&tag, sizeof tag};
    shale_set_options options = {.struct_size = sizeof options,
                                 .tags = &tag_bytes,
                                 .tag_count = tag != 0,
                                 .meta = meta,
                                 .meta_size = key % 5 == 0 ? sizeof meta : 0,
                                 .max_age_ms = key % 11 == 3 ? hour_ms : 0,
                                 .flags = key % 97 == 0 ? SHALE_SET_PINNED : 0};
    shale_status status = shale_set(cache, &key, sizeof key, bytes, size, &options);
    if (status == SHALE_OK)
        account.now[key] = account.before[key] = (key_state){version, key % 11 == 3 ? clock_ms + hour_ms : 0};
    return status;
}

static shale_status remove_key(shale_cache *cache, uint64_t key) {
    shale_status status = shale_remove(cache, &key, sizeof key, 0);
    if (status >= 0)
        account.now[key] = account.before[key] = (key_state){0};
    return status;
}

static uint64_t next_version(void) {
    static uint64_t version = 1000;
    return ++version;
}

/* One random change, also to the expected contents. */
static shale_status change(const specimen *s, shale_cache *cache, random_source *source) {
    uint64_t key = random_below(source, s->keys), kind = random_below(source, 40);
    if (is_counter(s, key)) {
        int64_t result = 0;
        shale_status status = shale_increment(cache, &key, sizeof key, 1, 0, &result);
        if (status == SHALE_OK)
            account.now[key] = account.before[key] = (key_state){(uint64_t)result, 0};
        return status;
    }
    if (kind < 4)
        return remove_key(cache, key);
    if (kind < 6) { /* ages of both directions */
        int64_t age = kind == 4 ? 10 * hour_ms : 1000;
        shale_status status = shale_touch(cache, &key, sizeof key, age);
        if (status == SHALE_OK)
            account.now[key].expires_ms = account.before[key].expires_ms = clock_ms + age;
        return status;
    }
    if (kind == 6 && random_below(source, 10) == 0) {
        uint64_t tag = tag_of(1 + 4 * random_below(source, 4));
        shale_status status = shale_invalidate(cache, &tag, sizeof tag);
        for (uint64_t i = 0; status == SHALE_OK && i < s->keys; i++)
            if (!is_counter(s, i) && tag_of(i) == tag)
                account.now[i] = account.before[i] = (key_state){0};
        return status;
    }
    return set_key(s, cache, key, next_version());
}

/* MARK: Preparing */

static void *require_memory(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    REQUIRE(memory);
    return memory;
}

static unsigned char *read_file(const char *directory, const char *name, size_t *size) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDONLY);
    struct stat status;
    REQUIRE(fd >= 0 && fstat(fd, &status) == 0);
    *size = (size_t)status.st_size;
    unsigned char *bytes = require_memory(*size);
    REQUIRE(pread(fd, bytes, *size, 0) == (ssize_t)*size);
    close(fd);
    return bytes;
}

static image take_image(const char *directory) {
    image i;
    i.data = read_file(directory, "shale.data", &i.data_size);
    i.index = read_file(directory, "shale.index", &i.index_size);
    return i;
}

static image copy_image(const image *from) {
    image copy = *from;
    copy.data = memcpy(require_memory(from->data_size), from->data, from->data_size);
    copy.index = memcpy(require_memory(from->index_size), from->index, from->index_size);
    return copy;
}

static void free_image(image *i) {
    free(i->data);
    free(i->index);
}

/* Pages of zeros stay holes. */
static void write_file(const char *path, const unsigned char *bytes, size_t size) {
    static const unsigned char zeros[page_bytes];
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    REQUIRE(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    size_t from = 0;
    for (size_t at = 0; at < size; at += page_bytes) {
        size_t count = size - at < page_bytes ? size - at : page_bytes;
        if (memcmp(bytes + at, zeros, count) != 0)
            continue;
        if (at > from)
            REQUIRE(pwrite(fd, bytes + from, at - from, (off_t)from) == (ssize_t)(at - from));
        from = at + count;
    }
    if (size > from)
        REQUIRE(pwrite(fd, bytes + from, size - from, (off_t)from) == (ssize_t)(size - from));
    close(fd);
}

/* The index names both files, so a copy that is to count as the same needs the names of its own files. */
static const off_t name_words[2][4] = {
    {index_own_device, index_own_device + 8, index_own_birth, index_own_birth},
    {index_data_device, index_data_device + 8, index_data_birth, index_data_changed}};

static void write_image(const char *directory, const image *i) {
    char data[300], index[300];
    snprintf(data, sizeof data, "%s/shale.data", directory);
    snprintf(index, sizeof index, "%s/shale.index", directory);
    write_file(data, i->data, i->data_size);
    write_file(index, i->index, i->index_size);
    struct stat status;
    int fds[2] = {open(index, O_RDWR), open(data, O_RDONLY)};
    for (int k = 0; k < 2; k++) {
        REQUIRE(fds[k] >= 0 && fstat(fds[k], &status) == 0);
        uint64_t identity[4] = {status.st_dev, status.st_ino, birth_of(fds[k]), change_of(fds[k])};
        for (int w = 0; w < 3 + k && i->index_size >= page_bytes; w++)
            /* Damage to these words persists. */
            if (word_at(i->index + name_words[k][w]) == 0)
                REQUIRE(pwrite(fds[0], &identity[w], 8, name_words[k][w]) == 8);
    }
    close(fds[0]);
    close(fds[1]);
}

static void add_range(key_place *place, const specimen *s, uint64_t shard, const record_view *r, uint64_t order) {
    REQUIRE(place->count < most_ranges);
    place->ranges[place->count++] = (span){r->offset, r->stored + r->stored_size - r->offset};
    place->shard = shard;
    if (place->count == 1 || order < place->first)
        place->first = order;
    if (r->codec == 2)
        place->dictionary = 1 + r->dictionary % (unsigned)s->layout.dictionary_places;
}

/* The order of an offset in its shard's log. */
static uint64_t log_order(const specimen *s, uint64_t offset, uint64_t *shard) {
    const layout *l = &s->layout;
    uint64_t n = (offset - l->segments) / l->segment_size, place = n / l->shards;
    *shard = n % l->shards;
    const unsigned char *header = s->running.index + shard_offset(l, *shard);
    return word_at(header + shard_header_bytes + place * 8) << 32 | (offset - l->segments) % l->segment_size;
}

static span without_padding(const record_view *r) {
    return (span){r->offset, r->stored + r->stored_size - r->offset};
}

/* Finds the records of the logs, and what each key and each slot depends on. */
static void survey(specimen *s) {
    const layout *l = &s->layout;
    const unsigned char *data = s->running.data;
    s->records = require_memory(sizeof *s->records * (s->running.data_size / record_header_bytes));
    s->slots = require_memory(sizeof *s->slots * 4 * s->running.index_size / 64);
    s->places = require_memory(sizeof *s->places * s->keys);
    for (uint64_t shard = 0; shard < l->shards; shard++) {
        const unsigned char *header = s->running.index + shard_offset(l, shard);
        for (uint64_t i = 0; i < word_at(header + shard_queue_count); i++) {
            uint64_t place = queued_frame(l, header, i), begin = frame_offset(l, shard, place);
            uint64_t end = place == word_at(header + shard_head_frame) ? word_at(header + shard_head_offset)
                                                                       : l->segment_size;
            for (uint64_t at = segment_header_bytes; at + record_header_bytes <= end;) {
                record_view r = record_at(data, begin + at);
                s->records[s->record_count++] = r;
                at += r.length;
                if (r.kind == record_end)
                    break;
            }
        }
    }
    uint64_t blobs[512], blob_keys[512];
    size_t blob_count = 0;
    for (int pass = 0; pass < 2; pass++) /* manifests, then parts */
        for (uint64_t shard = 0; shard < l->shards; shard++) {
            const unsigned char *header = s->running.index + shard_offset(l, shard);
            for (uint64_t i = 0; i < buckets_of(header) * 4; i++) {
                uint64_t word = word_at(s->running.index + slot_offset(l, shard, i)), order, ignored;
                if ((uint32_t)word == 0 || (word >> 62 == 2) != (pass == 1))
                    continue;
                record_view r = record_at(data, location_offset(l, shard, (uint32_t)word)), target = {0};
                order = log_order(s, r.offset, &ignored);
                slot_view *slot = &s->slots[s->slot_count++];
                *slot = (slot_view){without_padding(&r), {0, 0}};
                uint64_t key = word_at(data + r.key);
                if (pass == 1) {
                    size_t k = 0;
                    while (k < blob_count && blobs[k] != key)
                        k++;
                    if (k < blob_count)
                        add_range(&s->places[blob_keys[k]], s, shard, &r, order);
                    continue;
                }
                if (key >= s->keys)
                    continue;
                add_range(&s->places[key], s, shard, &r, order);
                if (r.kind == record_touch) {
                    target = record_at(data, location_offset(l, shard, half_at(data + r.stored)));
                    slot->target = without_padding(&target);
                    add_range(&s->places[key], s, shard, &target, log_order(s, target.offset, &ignored));
                }
                const record_view *value = r.kind == record_touch ? &target : &r;
                if (value->kind == record_manifest) {
                    REQUIRE(blob_count < 512);
                    blobs[blob_count] = word_at(data + value->stored);
                    blob_keys[blob_count++] = key;
                }
            }
        }
}

static void set_leaving(enum leaving leaving) {
    shim_faults.boot_id = boot_names[leaving == left_other_boot || leaving == left_closed_other_boot];
}

static void put_back(const specimen *s, const char *directory, enum leaving leaving, const image *i) {
    (void)s;
    write_image(directory, i);
    if (leaving == left_without_index) {
        char path[300];
        snprintf(path, sizeof path, "%s/shale.index", directory);
        unlink(path);
    }
    set_leaving(leaving);
}

static const image *image_of(const specimen *s, enum leaving leaving) {
    return leaving == left_running || leaving == left_other_boot ? &s->running : &s->closed;
}

static void load_account(const specimen *s, enum leaving leaving, bool with_synced) {
    memset(&account, 0, sizeof account);
    memcpy(account.now, s->current, s->keys * sizeof *s->current);
    memcpy(account.before, leaving == left_other_boot && with_synced ? s->synced : s->current,
           s->keys * sizeof *s->current);
}

/* Reads what is served without damage. */
static void find_served(specimen *s, const char *directory) {
    for (enum leaving leaving = 0; leaving < leavings; leaving++) {
        s->served[leaving] = require_memory(s->keys);
        put_back(s, directory, leaving, image_of(s, leaving));
        load_account(s, leaving, false);
        shale_cache *cache = NULL;
        shale_value value = SHALE_VALUE_INIT;
        unsigned count = 0;
        REQUIRE_STATUS(SHALE_OK, open_cache(s, directory, 0, &cache));
        for (uint64_t key = 0; key < s->keys; key++) {
            const char *why;
            enum result result = evaluate(s, key, shale_get(cache, &key, sizeof key, 0, &value), &value, &why);
            check_that(result == result_right || result == result_missing, __FILE__, __LINE__, why,
                       ": %s, %s, key %" PRIu64, s->name, leaving_names[leaving], key);
            s->served[leaving][key] = result == result_right;
            count += result == result_right;
        }
        shale_stats stats = {.struct_size = sizeof stats};
        REQUIRE_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
        CHECK_EQUAL(leaving < left_other_boot ? 0 : s->shards, stats.rebuilds);
        CHECK(count >= s->keys / (s->shape == shape_shrinking ? 32 : 8)); /* it has lost most to shrink */
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        shale_value_free(&value);
        remove_tree(directory);
        REQUIRE(mkdir(directory, 0700) == 0);
    }
}

/* Whether the first shard's table is in such a pass. */
static bool has_shape(const char *directory, enum shape shape) {
    char path[300];
    unsigned char header[shard_header_bytes];
    snprintf(path, sizeof path, "%s/shale.index", directory);
    int fd = open(path, O_RDONLY);
    REQUIRE(fd >= 0 && pread(fd, header, sizeof header, index_head_bytes) == sizeof header);
    close(fd);
    uint64_t mode = shape_mode(header);
    return mode > 0 && (mode & 1) == (shape == shape_growing);
}

static void prepare(specimen *s, const char *directory) {
    random_source source = {seed ^ s->keys};
    secrets.state = ~source.state;
    shale_cache *cache = NULL;
    memset(&account, 0, sizeof account);
    REQUIRE(mkdir(directory, 0700) == 0);
    set_leaving(left_running);
    REQUIRE_STATUS(SHALE_OK, open_cache(s, directory, 0, &cache));
    for (uint64_t key = 0; key < s->keys && s->keys > 100; key++)
        if (!is_counter(s, key) && (s->shape != shape_growing || key < s->keys / 2))
            REQUIRE_STATUS(SHALE_OK, set_key(s, cache, key, next_version()));
    for (unsigned i = 0; i < s->operations && s->shape != shape_growing; i++) {
        REQUIRE(change(s, cache, &source) >= 0);
        if (i == s->operations / 2 && !s->earlier.data) {
            REQUIRE_STATUS(SHALE_OK, shale_sync(cache));
            s->earlier = take_image(directory);
        }
    }
    if (!s->earlier.data)
        s->earlier = take_image(directory);
    /* A table in the middle of a pass. */
    for (uint64_t i = 0; s->shape != shape_any && !has_shape(directory, s->shape); i++) {
        REQUIRE(i < s->keys / 2);
        if (s->shape == shape_growing)
            REQUIRE_STATUS(SHALE_OK, set_key(s, cache, s->keys / 2 + i, next_version()));
        else
            REQUIRE(remove_key(cache, 2 * i) >= 0 && remove_key(cache, 2 * i + 1) >= 0 &&
                    set_key(s, cache, 0, next_version()) >= 0);
    }
    REQUIRE_STATUS(SHALE_OK, shale_sync(cache));
    s->synced = require_memory(s->keys * sizeof *s->synced);
    memcpy(s->synced, account.now, s->keys * sizeof *s->synced);
    /* Each key once: `account` has room for two states. */
    for (unsigned i = 0; i < 20 && i < s->keys - 2 && s->shape != shape_shrinking; i++) {
        uint64_t key = i * 13 % (s->keys - 2);
        if (key % 3)
            REQUIRE_STATUS(SHALE_OK, set_key(s, cache, key, next_version()));
        else
            REQUIRE(remove_key(cache, key) >= 0);
    }
    s->current = require_memory(s->keys * sizeof *s->current);
    memcpy(s->current, account.now, s->keys * sizeof *s->current);
    s->running = take_image(directory);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    s->closed = take_image(directory);
    s->layout = layout_of(s->closed.data);
    image *images[] = {&s->running, &s->closed, &s->earlier};
    for (int i = 0; i < 3; i++) /* written again by write_image() */
        for (int w = 0; w < 8; w++)
            memset(images[i]->index + name_words[w / 4][w % 4], 0, 8);
    survey(s);
    remove_tree(directory);
    REQUIRE(mkdir(directory, 0700) == 0);
    find_served(s, directory);
    rmdir(directory);
}

/* MARK: Damage */

typedef struct {
    const specimen *specimen;
    enum leaving leaving;
    image now;
    bool no_data, no_index, other_kind; /* a file is missing, or is not a regular file */
    int kind;
    bool strange; /* more than one place, or a wholly different state of the cache */
    char what[200];
} scenario;

/* clang-format off */
enum target {
    target_super_first, target_super_second, target_marks, target_synced, target_dictionary_header, target_dictionary,
    target_segment_header, target_record_word, target_extension, target_key, target_meta, target_stored, target_whole_record,
    target_value, target_manifest, target_part, target_tombstone, target_touch, target_invalidate, target_end, target_behind_head, target_data,
    target_index_head, target_index_counters, target_lock, target_shard_word, target_numbers, target_queue, target_states, target_tags,
    target_heaps, target_word0, target_word1, target_bucket, target_index, targets
};
static const char *const target_names[targets] = {
    "first superblock", "second superblock", "marks", "synced positions", "dictionary header", "dictionary",
    "segment header", "record word", "stale word and tags", "key", "meta", "stored value", "record",
    "value", "manifest", "part", "tombstone", "touch", "invalidate", "end", "bytes after the head", "data",
    "index head", "counters", "lock", "shard header", "segment numbers", "queue", "place states", "tag table",
    "heaps", "slot word 0", "slot word 1", "bucket", "index"
};
/* clang-format on */

static bool in_index(enum target target) {
    return target >= target_index_head;
}

static span part_of(span whole, random_source *source, uint64_t size) {
    if (whole.size <= size)
        return whole;
    return (span){whole.offset + random_below(source, whole.size / size) * size, size};
}

static const record_view *any_record(const specimen *s, random_source *source, unsigned kind) {
    size_t at = random_below(source, s->record_count);
    for (size_t i = 0; i < s->record_count; i++) {
        const record_view *r = &s->records[(at + i) % s->record_count];
        if (kind == 0 || r->kind == kind)
            return r;
    }
    return NULL;
}

/* A place of that kind; size 0 if the cache has none. */
static span find_target(const specimen *s, enum target target, random_source *source) {
    const layout *l = &s->layout;
    uint64_t shard = random_below(source, l->shards), region = shard_offset(l, shard);
    const unsigned char *header = s->running.index + region;
    uint64_t count = word_at(header + shard_queue_count);
    static const unsigned kinds[] = {record_value, record_manifest,   record_part, record_tombstone,
                                     record_touch, record_invalidate, record_end};
    const record_view *r = any_record(
        s, source, target >= target_value && target <= target_end ? kinds[target - target_value] : 0);
    static const record_view none = {0};
    if (!r)
        r = &none;
    switch (target) {
    case target_super_first: return part_of((span){0, super_bytes}, source, 4);
    case target_super_second: return part_of((span){super_copy, super_bytes}, source, 4);
    case target_marks: return part_of((span){super_clean_mark, 16}, source, 8);
    case target_synced: return part_of((span){page_bytes, 32 * l->shards}, source, 8);
    case target_dictionary_header:
    case target_dictionary: {
        if (l->dictionary_places == 0)
            return (span){0, 0};
        uint64_t at = l->dictionaries + random_below(source, l->dictionary_places) * l->dictionary_size;
        return target == target_dictionary ? part_of((span){at + 64, l->dictionary_size - 64}, source, 64)
                                           : part_of((span){at, 24}, source, 8);
    }
    case target_segment_header:
        if (count == 0)
            return (span){0, 0};
        return part_of(
            (span){frame_offset(l, shard, queued_frame(l, header, random_below(source, count))), segment_header_bytes},
            source, 8);
    case target_record_word: return part_of((span){r->offset, record_header_bytes}, source, 8);
    case target_extension: return (span){r->offset + record_header_bytes, r->key - r->offset - record_header_bytes};
    case target_key: return (span){r->key, r->key_size};
    case target_meta: return (span){r->meta, r->meta_size};
    case target_stored: return (span){r->stored, r->stored_size};
    case target_value:
    case target_manifest:
    case target_part:
    case target_tombstone:
    case target_touch:
    case target_invalidate:
    case target_end: return part_of((span){r->offset, r->length}, source, 8);
    case target_whole_record: return (span){r->offset, r->length};
    case target_behind_head: {
        uint64_t from = word_at(header + shard_head_offset);
        return (span){frame_offset(l, shard, word_at(header + shard_head_frame)) + from,
                      l->segment_size - from < 256 ? l->segment_size - from : 256};
    }
    case target_data: return part_of((span){0, s->running.data_size}, source, 8);
    case target_index_head: return part_of((span){0, 1544}, source, 8);
    case target_index_counters: return part_of((span){index_counters, 8192}, source, 8);
    case target_lock: return part_of((span){region, 64}, source, 8);
    case target_shard_word: return part_of((span){region + 64, 1024 - 64}, source, 8);
    case target_numbers: return part_of((span){region + shard_header_bytes, 8 * l->rows}, source, 8);
    case target_queue: return part_of((span){region + l->queue, 4 * l->rows}, source, 4);
    case target_states: return part_of((span){region + l->states, l->rows}, source, 1);
    case target_tags: return part_of((span){chunk_offset(l, shard, 0), 2 * page_bytes}, source, 8);
    case target_heaps: return part_of((span){chunk_offset(l, shard, 0) + 2 * page_bytes, page_bytes}, source, 8);
    case target_word0:
    case target_word1:
    case target_bucket:
        for (unsigned i = 0; i < 1000; i++) {
            uint64_t slot = slot_offset(l, shard, random_below(source, buckets_of(header) * 4));
            if (target == target_bucket)
                return (span){slot & ~(uint64_t)63, 64};
            if ((uint32_t)word_at(s->running.index + slot) != 0 || i == 999)
                return (span){slot + (target == target_word1) * 8, 8};
        }
        return (span){0, 0};
    default: return part_of((span){0, s->running.index_size}, source, 8);
    }
}

static uint64_t telling_word(const specimen *s, random_source *source, uint64_t was) {
    /* clang-format off */
    static const uint64_t words[] = {0, 1, 2, 3, 5, 63, 64, 65, 255, 256, 0xffff, 0x10000, 0xffffff, 0x1000000, 1u << 31, 0xffffffff, (uint64_t)1 << 32,
                                     (uint64_t)1 << 37, (uint64_t)1 << 38, (uint64_t)1 << 48, (uint64_t)1 << 49, (uint64_t)1 << 62, INT64_MAX, (uint64_t)1 << 63, UINT64_MAX};
    const layout *l = &s->layout;
    const uint64_t sizes[] = {l->segment_size, l->segment_size - 48, l->segment_size + 8, l->rows, l->rows - 1, l->rows + 1, was + 1, was - 1, was + 8, was - 8, was * 2, ~was, -was};
    /* clang-format on */
    uint64_t n = sizeof words / sizeof *words, m = sizeof sizes / sizeof *sizes, i = random_below(source, n + m);
    return i < n ? words[i] : sizes[i - n];
}

static const char *const way_names[] = {"one bit flipped", "bits flipped", "a telling word",
                                        "zeroed",          "noise",        "another of its kind copied over it"};
enum { ways = sizeof way_names / sizeof *way_names };

static void noise(unsigned char *bytes, uint64_t size, random_source *source) {
    for (uint64_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)random_next(source);
}

static void damage_target(scenario *c, enum target target, random_source *source) {
    const specimen *s = c->specimen;
    span at = find_target(s, target, source);
    unsigned way = (unsigned)random_below(source, ways);
    unsigned char *bytes = (in_index(target) ? c->now.index : c->now.data) + at.offset;
    size_t size = strlen(c->what);
    snprintf(c->what + size, sizeof c->what - size, "%s at %" PRIu64 ": %s; ", target_names[target], at.offset,
             way_names[way]);
    if (at.size == 0)
        return;
    switch (way) {
    case 0: bytes[random_below(source, at.size)] ^= (unsigned char)(1 << random_below(source, 8)); return;
    case 1:
        for (unsigned i = 0; i < 6; i++)
            bytes[random_below(source, at.size)] ^= (unsigned char)(1 << random_below(source, 8));
        return;
    case 2: {
        uint64_t word = 0;
        memcpy(&word, bytes, at.size < 8 ? at.size : 8);
        word = telling_word(s, source, word);
        memcpy(bytes, &word, at.size < 8 ? at.size : 8);
        return;
    }
    case 3: memset(bytes, 0, at.size); return;
    case 4: noise(bytes, at.size, source); return;
    default: {
        span from = find_target(s, target, source);
        memmove(bytes, (in_index(target) ? c->now.index : c->now.data) + from.offset,
                from.size < at.size ? from.size : at.size);
    }
    }
}

static const char *const block_names[] = {"zeroed", "noise", "exchanged with another", "of an earlier time",
                                          "of another cache"};

/* 512 bytes, a page, or up to a segment, of either file. */
static void damage_block(scenario *c, random_source *source) {
    static const uint64_t sizes[] = {512, 4096, 128 << 10};
    const specimen *s = c->specimen, *other = &specimens[random_below(source, specimen_count)];
    bool index = random_below(source, 3) == 0;
    uint64_t size = sizes[random_below(source, 3)], way = random_below(source, 5);
    uint64_t total = index ? c->now.index_size : c->now.data_size;
    unsigned char *bytes = index ? c->now.index : c->now.data;
    uint64_t first = index || size < 128 << 10 ? 0 : s->layout.segments % size;
    if (total < first + size)
        return;
    uint64_t at = first + random_below(source, (total - first) / size) * size,
             from = first + random_below(source, (total - first) / size) * size;
    size_t length = strlen(c->what);
    snprintf(c->what + length, sizeof c->what - length, "%" PRIu64 " bytes of %s at %" PRIu64 ": %s; ", size,
             index ? "index" : "data", at, block_names[way]);
    const image *old = way == 3 ? &s->earlier : &other->closed;
    uint64_t old_size = index ? old->index_size : old->data_size;
    switch (way) {
    case 0: memset(bytes + at, 0, size); break;
    case 1: noise(bytes + at, size, source); break;
    case 2:
        for (uint64_t i = 0; i < size; i++) {
            unsigned char byte = bytes[at + i];
            bytes[at + i] = bytes[from + i];
            bytes[from + i] = byte;
        }
        break;
    default:
        memset(bytes + at, 0, size);
        if (at < old_size)
            memcpy(bytes + at, (index ? old->index : old->data) + at, old_size - at < size ? old_size - at : size);
    }
}

static void resize(unsigned char **bytes, size_t *size, size_t new_size) {
    unsigned char *fresh = require_memory(new_size);
    memcpy(fresh, *bytes, *size < new_size ? *size : new_size);
    free(*bytes);
    *bytes = fresh;
    *size = new_size;
}

static void damage_size(scenario *c, random_source *source) {
    const specimen *s = c->specimen;
    bool index = random_below(source, 2) == 0;
    unsigned char **bytes = index ? &c->now.index : &c->now.data;
    size_t *size = index ? &c->now.index_size : &c->now.data_size, before = *size, after;
    switch (random_below(source, 8)) {
    case 0: after = 0; break;
    case 1: after = random_below(source, 9000); break;
    case 2: after = random_below(source, before); break;
    case 3: after = random_below(source, before) & ~(size_t)4095; break;
    case 4: after = before - 1 - random_below(source, before < 5000 ? before : 5000); break;
    case 5: after = s->layout.segments + random_below(source, 8) * s->layout.segment_size; break;
    case 6: after = before + random_below(source, 300000); break;
    default: after = before + s->layout.segment_size;
    }
    resize(bytes, size, after);
    if (after > before && random_below(source, 2) == 0)
        noise(*bytes + before, after - before, source);
    size_t length = strlen(c->what);
    snprintf(c->what + length, sizeof c->what - length, "%s from %zu to %zu bytes; ", index ? "index" : "data", before,
             after);
}

static const char *const file_names[] = {
    "a directory", "a fifo", "a symbolic link", "empty", "of another cache", "of an earlier time", "missing", "noise"};
enum {
    file_directory,
    file_fifo,
    file_link,
    file_empty,
    file_foreign,
    file_earlier,
    file_missing,
    file_noise,
    file_ways
};

static void replace_bytes(unsigned char **bytes, size_t *size, const unsigned char *from, size_t from_size) {
    resize(bytes, size, from_size);
    memcpy(*bytes, from, from_size);
}

/* In two steps: first bytes, then non-regular files once the others are written. */
static void damage_file(scenario *c, random_source *source) {
    const specimen
        *s = c->specimen,
        *other = &specimens[(s - specimens + 1 + (int)random_below(source, specimen_count - 1)) % specimen_count];
    unsigned which = 1 + (unsigned)random_below(source, 3); /* data, index, both */
    c->kind = (int)random_below(source, file_ways);
    c->no_data = which & 1;
    c->no_index = which & 2;
    c->other_kind = c->kind < file_empty || c->kind == file_missing;
    const image *from = c->kind == file_earlier ? &s->earlier : &other->closed;
    if (c->kind == file_empty || c->other_kind) {
        if (c->no_data)
            resize(&c->now.data, &c->now.data_size, 0);
        if (c->no_index)
            resize(&c->now.index, &c->now.index_size, 0);
    } else if (c->kind == file_noise) {
        if (c->no_data)
            noise(c->now.data, c->now.data_size, source);
        if (c->no_index)
            noise(c->now.index, c->now.index_size, source);
    } else {
        if (c->no_data)
            replace_bytes(&c->now.data, &c->now.data_size, from->data, from->data_size);
        if (c->no_index)
            replace_bytes(&c->now.index, &c->now.index_size, from->index, from->index_size);
    }
    size_t length = strlen(c->what);
    snprintf(c->what + length, sizeof c->what - length, "%s%s%s is %s; ", which & 1 ? "data" : "",
             which == 3 ? " and " : "", which & 2 ? "index" : "", file_names[c->kind]);
}

static void replace_file(const scenario *c, const char *directory, const char *name, bool chosen) {
    if (!chosen || !c->other_kind)
        return;
    char path[300], target[300];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    snprintf(target, sizeof target, "%s/.elsewhere", directory);
    REQUIRE(unlink(path) == 0);
    switch (c->kind) {
    case file_directory: REQUIRE(mkdir(path, 0700) == 0); break;
    case file_fifo: REQUIRE(mkfifo(path, 0600) == 0); break;
    case file_link:
        write_file(target, c->specimen->closed.data, c->specimen->closed.data_size);
        REQUIRE(symlink(target, path) == 0);
        break;
    default: break;
    }
}

enum { kinds_of_damage = targets * 2 + 12 };

/* Each kind of damage in turn; the cache and the way of leaving it are random. */
static void make(scenario *c, uint64_t number, random_source *source) {
    uint64_t kind = number % kinds_of_damage;
    uint64_t n = random_below(source, 20);
    *c = (scenario){.specimen = &specimens[n < 6 ? 0 : n < 9 ? 4 : n < 13 ? 1 : n < 16 ? 2 : n < 19 ? 3 : 5]};
    bool index = kind < targets * 2 && in_index((enum target)(kind % targets));
    c->leaving = (enum leaving)random_below(source, index ? 3 : leavings);
    c->now = copy_image(image_of(c->specimen, c->leaving));
    snprintf(c->what, sizeof c->what, "%s, left %s: ", c->specimen->name, leaving_names[c->leaving]);
    if (kind < targets * 2)
        damage_target(c, (enum target)(kind % targets), source);
    else if (kind < targets * 2 + 4)
        damage_block(c, source);
    else if (kind < targets * 2 + 7)
        damage_size(c, source);
    else if (kind < targets * 2 + 10)
        damage_file(c, source);
    else { /* several at once */
        c->strange = true;
        for (unsigned i = 0; i < 2 + random_below(source, 4); i++) {
            if (random_below(source, 3) == 0)
                damage_block(c, source);
            else
                damage_target(c, (enum target)random_below(source, targets), source);
        }
    }
    if (index && random_below(source, 8) == 0) { /* and its writer died in a change */
        uint64_t state = 1 + random_below(source, 2);
        memcpy(c->now.index + shard_offset(&c->specimen->layout, 0) + shard_state, &state, 8);
    }
}

/* MARK: Expected answers */

typedef struct {
    bool foreign;         /* it is another cache */
    bool opens;           /* no damage to anything that the cache cannot do without */
    bool sound;           /* no trusted index is damaged: each key is right or missing */
    bool dated;           /* the whole data file is from an earlier time, or from another cache */
    bool trusted;
    uint64_t lost_slots;  /* with a sound, trusted index: the records that verify has to find */
    bool served[most_keys];
} expectation;

static bool differs(const unsigned char *a, size_t a_size, const unsigned char *b, size_t b_size, span at) {
    return at.size && (at.offset + at.size > a_size || at.offset + at.size > b_size ||
                       memcmp(a + at.offset, b + at.offset, at.size) != 0);
}

static bool data_differs(const scenario *c, span at) {
    const image *was = image_of(c->specimen, c->leaving);
    return differs(was->data, was->data_size, c->now.data, c->now.data_size, at);
}

/* Whether all bytes that differ are covered by body checks, and the newest of them in the log of each shard. */
static bool only_bodies(const scenario *c, uint64_t *newest) {
    const specimen *s = c->specimen;
    bool heads = false;
    if (data_differs(c, (span){0, s->layout.segments}))
        heads = true;
    for (size_t i = 0; i < s->record_count; i++) {
        const record_view *r = &s->records[i];
        uint64_t shard, order = log_order(s, r->offset, &shard);
        if (data_differs(c, (span){r->offset, r->length}) && order + r->length > newest[shard])
            newest[shard] = order + r->length;
        span head = {r->offset, r->meta - r->offset};
        if (r->kind == record_tombstone || r->kind == record_invalidate || r->kind == record_end)
            head.size = r->length; /* (their body check is never looked at) */
        heads = heads || data_differs(c, head);
    }
    for (uint64_t place = 0; place < s->layout.rows * s->layout.shards; place++) {
        span header = {s->layout.segments + place * s->layout.segment_size, segment_header_bytes};
        if (header.offset + header.size <= c->now.data_size && data_differs(c, header)) {
            uint64_t shard, order = log_order(s, header.offset, &shard);
            heads = true;
            order += s->layout.segment_size; /* without it, the segment is missing */
            if (order > newest[shard])
                newest[shard] = order;
        }
    }
    return !heads;
}

static void expect(const scenario *c, expectation *e) {
    const specimen *s = c->specimen;
    const image *was = image_of(s, c->leaving);
    bool same_index = c->now.index_size == was->index_size && memcmp(c->now.index, was->index, was->index_size) == 0 &&
                      !(c->other_kind && c->no_index);
    bool same_data_size = c->now.data_size == was->data_size;
    bool both_supers = differs(was->data, was->data_size, c->now.data, c->now.data_size, (span){0, super_bytes}) &&
                       differs(was->data, was->data_size, c->now.data, c->now.data_size,
                               (span){super_copy, super_bytes});
    bool marks = data_differs(c, (span){super_clean_mark, 8});
    memset(e, 0, sizeof *e);
    e->trusted = c->leaving <= left_closed_other_boot && !(marks && c->leaving == left_closed_other_boot);
    e->sound = same_index || c->leaving > left_closed_other_boot;
    e->dated = c->no_data && !c->other_kind;
    e->foreign = c->no_data && c->kind == file_foreign;
    e->opens = !both_supers && c->now.data_size >= s->layout.dictionaries &&
               !(c->other_kind && c->kind != file_missing);
    if (c->no_data && c->other_kind)
        return; /* missing: a new cache replaces it */
    if (!e->sound && same_data_size && !c->strange && !data_differs(c, (span){0, was->data_size}))
        memcpy(e->served, s->served[c->leaving], s->keys);
    if (!same_index && c->leaving != left_without_index)
        return;
    if (!same_data_size || both_supers || c->strange || !e->opens)
        return;
    uint64_t newest[16] = {0};
    bool bodies = only_bodies(c, newest);
    bool synced = data_differs(c, (span){page_bytes, 16 * s->layout.shards}),
         table = data_differs(c, (span){s->layout.dictionaries, s->layout.segments - s->layout.dictionaries});
    for (uint64_t key = 0; key < s->keys; key++) {
        const key_place *place = &s->places[key];
        bool intact = s->served[c->leaving][key] && place->count > 0;
        for (unsigned i = 0; i < place->count; i++)
            intact = intact && !data_differs(c, place->ranges[i]);
        if (place->dictionary)
            intact = intact && !data_differs(c, (span){s->layout.dictionaries +
                                                           (place->dictionary - 1) * s->layout.dictionary_size,
                                                       s->layout.dictionary_size});
        if (!e->trusted && !bodies) {
            /* Everything older than a damaged head may be discarded, but nothing newer. */
            for (uint64_t shard = 0; shard < s->layout.shards; shard++)
                if (place->first < newest[shard] && (shard == place->shard || s->large))
                    intact = intact && shard != place->shard && !is_counter(s, key) && place->count == 1;
            intact = intact && !synced && !table;
        }
        e->served[key] = intact;
    }
    for (size_t i = 0; i < s->slot_count; i++)
        e->lost_slots += data_differs(c, s->slots[i].record) || data_differs(c, s->slots[i].target);
}

/* MARK: Using a damaged cache */

static struct {
    uint64_t number;
    char phase[40];
    uint64_t cases, opened, refused, read, missed, lost_found, rebuilt, full;
    /* Cases and keys with a damaged index that was trusted. */
    uint64_t trusted, trusted_older, trusted_lost, trusted_missing;
    uint64_t older_keys;
} *progress;

static void enter(const char *phase) {
    snprintf(progress->phase, sizeof progress->phase, "%s", phase);
}

static bool found_older;

/* Tolerated answers. The index has no checksums: plausible damage to it costs entries, and in rare cases shows an
 * older value that is still in the log, or an older sum, which persists, or sums of bytes and frames that leave no
 * room (limits.md, "Damage"). Cases with a sound index and with files of one time, nine of ten, do without. */
enum { by_index_older, by_index_missing, by_index_misplaced, by_index_error, by_file_older, by_file_error, by_policy };
static bool tolerates_older(const expectation *e) {
    /* (A data file of an earlier time is a sound cache of its own.) */
    return (e->dated && tolerated(by_file_older, "older, as all of the data file was")) ||
           (!e->sound && tolerated(by_index_older, "older, as the index was damaged and believed"));
}
static bool tolerates_missing(const expectation *e) {
    return !e->sound && tolerated(by_index_missing, "missing, as the index was damaged and believed");
}
static bool tolerates_error(const expectation *e) {
    return (e->dated && tolerated(by_file_error, "an error, as the data file was another's")) ||
           (!e->sound && tolerated(by_index_error, "an error, as the index was damaged and believed"));
}

/* Reads all keys of the account. `must`: those that have to be present; NULL: none. */
static void read_all(const specimen *s, shale_cache *cache, const expectation *e, const bool *must, const char *when) {
    shale_value value = SHALE_VALUE_INIT;
    uint64_t missing = 0;
    for (uint64_t key = 0; key < s->keys; key++) {
        const char *why;
        shale_status status = shale_get(cache, &key, sizeof key, 0, &value);
        enum result result = evaluate(s, key, status, &value, &why);
        if (result == result_older && tolerates_older(e)) {
            found_older = true;
            progress->older_keys += !e->sound && !e->dated;
        } else
            check_that(result != result_wrong && result != result_older, __FILE__, __LINE__, why,
                       ": key %" PRIu64 " %s: %s", key, when, status < 0 ? shale_last_error() : "");
        missing += result == result_missing && must && must[key];
        progress->read += result == result_right;
        progress->missed += result == result_missing;
        if (result == result_missing && must && must[key])
            check_that(tolerates_missing(e), __FILE__, __LINE__, "an undamaged entry is missing",
                       ": key %" PRIu64 " %s", key, when);
    }
    if (!e->sound)
        progress->trusted_missing += missing;
    shale_value_free(&value);
}

static void walk(const specimen *s, shale_cache *cache, const expectation *e) {
    shale_cursor *cursor = NULL;
    shale_value key = SHALE_VALUE_INIT, value = SHALE_VALUE_INIT;
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    for (uint64_t count = 0;; count++) {
        shale_status status = shale_cursor_next(cursor, 0, &key, &value);
        if (status == SHALE_END)
            break;
        if (!CHECK_STATUS(SHALE_OK, status) || !CHECK(count < 200000))
            break;
        uint64_t number;
        if (!CHECK(key.size == sizeof number))
            break;
        memcpy(&number, key.data, sizeof number);
        if (!CHECK(number < most_keys + fill_keys))
            break;
        const char *why;
        enum result result = evaluate(s, number, status, &value, &why);
        check_that(result == result_right || (result == result_older && tolerates_older(e)), __FILE__, __LINE__, why,
                   ": cursor, key %" PRIu64, number);
    }
    shale_cursor_close(cursor);
    shale_value_free(&key);
    shale_value_free(&value);
}

/* An answer that a caller can act on: success, or an error with its message. */
static bool is_answer(shale_status status) {
    return status >= 0 || ((status == SHALE_E_FULL || status == SHALE_E_TOO_LARGE || status == SHALE_E_INVALID ||
                            status == SHALE_E_IO) &&
                           shale_last_error()[0]);
}

/* Errors report real causes only: with a sound index, changes succeed. */
static void accept(const expectation *e, shale_status status, const char *what) {
    progress->full += status == SHALE_E_FULL;
    count_look();
    check_that(is_answer(status) && (status >= 0 || tolerates_error(e)), __FILE__, __LINE__, what, ": %d %s", status,
               status < 0 ? shale_last_error() : "");
}

static void change_some(const specimen *s, shale_cache *cache, const expectation *e, random_source *source) {
    for (unsigned i = 0; i < 120; i++) {
        uint64_t key = s->keys > 100 && i % 16 == 0 ? s->keys - 1 - random_below(source, 2)
                                                    : random_below(source, s->keys);
        if (is_counter(s, key)) {
            key_state was = account.now[key], could = account.before[key];
            int64_t result = 0;
            shale_status status = shale_increment(cache, &key, sizeof key, 1, 0, &result);
            accept(e, status, "increment");
            if (status == SHALE_OK) {
                bool follows = account.foreign || result == 1 || (uint64_t)result == was.version + 1 ||
                               (uint64_t)result == could.version + 1;
                if (!follows && tolerates_older(e))
                    found_older = true;
                else
                    check_that(follows, __FILE__, __LINE__, "a counter went on from another number",
                               ": %" PRId64 " after %" PRIu64, result, was.version);
                account.now[key] = account.before[key] = (key_state){(uint64_t)result, 0};
            }
            continue;
        }
        shale_status status = change(s, cache, source);
        accept(e, status, "change");
    }
}

/* New entries beyond the capacity; the last ones must be present. */
static void fill(const specimen *s, shale_cache *cache, const expectation *e, unsigned round, random_source *source) {
    uint64_t bytes = 0, n = 0, target = s->capacity + s->capacity / 8, evicted = stats_of(cache).evictions;
    if (random_below(source, 4) == 0)
        target /= 16;
    shale_status status = SHALE_OK;
    for (; bytes < target && n < fill_keys; n++) {
        uint64_t key = most_keys + n;
        status = set_key(s, cache, key, round * 10 + 1);
        accept(e, status, "fill");
        bytes += value_size(s, key, round * 10 + 1) + 72;
        if (status < 0 && !e->sound && n > 200) /* (accept() has counted these) */
            break;
    }
    /* The hand of the CLOCK policy stops at a new entry if all older ones were used (design.md, "Eviction"). The
     * entry that was set last has made no room for another. */
    bool new_leaves_first = s->policy == SHALE_EVICTION_CLOCK && stats_of(cache).evictions > evicted;
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t k = n - 8; k < n; k++) {
        uint64_t key = most_keys + k;
        const char *why;
        enum result result = evaluate(s, key, shale_get(cache, &key, sizeof key, 0, &value), &value, &why);
        check_that(result == result_right || (result == result_older && tolerates_older(e)) ||
                       (result == result_missing &&
                        (tolerates_missing(e) || (new_leaves_first && k + 1 < n &&
                                                  tolerated(by_policy, "new, and evicted before used entries")))),
                   __FILE__, __LINE__, result == result_missing ? "a new entry is missing" : why,
                   ": %" PRIu64 " of %" PRIu64, k, n);
    }
    shale_value_free(&value);
}

static uint64_t corrupt_records(shale_cache *cache) {
    shale_stats stats = stats_of(cache);
    progress->rebuilt += stats.rebuilds < 1000 ? stats.rebuilds : 0; /* the counter itself may be damaged */
    return stats.corrupt_records;
}

static uint64_t verified(shale_cache *cache) {
    shale_report report = {.struct_size = sizeof report};
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    return report.corrupt_records;
}

/* Every operation; then the cache is closed. */
static void use_fully(const scenario *c, shale_cache *cache, const expectation *e, random_source *source,
                      unsigned round) {
    const specimen *s = c->specimen;
    const bool *must = round == 0 ? e->served : NULL;
    uint64_t corrupt = corrupt_records(cache);
    if (round == 0 && random_below(source, 3) == 0) {
        enter("verify");
        uint64_t found = verified(cache);
        if (e->sound && e->trusted && !c->strange && c->now.data_size == image_of(s, c->leaving)->data_size &&
            c->kind == 0 && !c->no_data && !c->no_index) {
            CHECK_EQUAL(e->lost_slots, found);
            progress->lost_found += found;
        }
        if (e->sound || !e->trusted)
            CHECK_EQUAL(corrupt + found, corrupt_records(cache));
    }
    enter("read");
    read_all(s, cache, e, must, round == 0 ? "at first" : "when opened again");
    enter("walk");
    walk(s, cache, e);
    enter("change");
    change_some(s, cache, e, source);
    enter("fill");
    fill(s, cache, e, round, source);
    enter("remove, evict, purge");
    uint64_t count = 0;
    if (random_below(source, 4) == 0)
        for (uint64_t key = 0; key < s->keys; key++)
            if (!is_counter(s, key) && random_below(source, 8) != 0)
                accept(e, remove_key(cache, key), "remove");
    if (random_below(source, 4) == 0)
        accept(e, shale_evict(cache, 1 + random_below(source, 600), &count), "evict");
    accept(e, shale_purge(cache, &count), "purge");
    if (random_below(source, 16) == 0) {
        shale_status status = shale_clear(cache);
        accept(e, status, "clear");
        if (status == SHALE_OK)
            memset(account.now, 0, sizeof account.now), memset(account.before, 0, sizeof account.before);
    }
    enter("change again");
    change_some(s, cache, e, source);
    enter("verify at the end");
    verified(cache);
    uint64_t left = verified(cache);
    /* Slots in another's bucket are plausible, and are believed: format.md, "What is checked when". The cleaner does
     * not find them, and reuses their frames for the loss records that the first read has written. */
    if (left > 0 && !e->sound && tolerated(by_index_misplaced, "damaged later, as the index was damaged and believed"))
        left = verified(cache);
    CHECK_EQUAL(0, left);
    enter("sync");
    if (random_below(source, 2) == 0)
        CHECK_STATUS(SHALE_OK, shale_sync(cache));
    enter("read at the end");
    read_all(s, cache, e, NULL, "at the end");
    walk(s, cache, e);
    enter("close");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void read_only(const scenario *c, const char *directory, const expectation *e) {
    shale_cache *cache = NULL;
    shale_status status = open_cache(c->specimen, directory, SHALE_OPEN_READ_ONLY, &cache);
    if (status < 0) {
        count_look();
        check_that(!e->opens || tolerates_error(e), __FILE__, __LINE__, "cannot be opened read-only", ": %d %s", status,
                   shale_last_error());
        return;
    }
    read_all(c->specimen, cache, e, e->served, "by a read-only handle");
    walk(c->specimen, cache, e);
    verified(cache);
    corrupt_records(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void run_case(uint64_t number, const char *directory) {
    random_source source = {seed * 0x9e3779b97f4a7c15u + number};
    scenario c;
    static expectation e;
    make(&c, number, &source);
    expect(&c, &e);
    REQUIRE(mkdir(directory, 0700) == 0);
    put_back(c.specimen, directory, c.leaving, &c.now);
    replace_file(&c, directory, "shale.data", c.no_data);
    replace_file(&c, directory, "shale.index", c.no_index && c.leaving != left_without_index);
    load_account(c.specimen, c.leaving, true);
    account.foreign = e.foreign;
    unsigned failures = check_failures;
    secrets.state = ~source.state;
    clock_ms = begin_ms + (random_below(&source, 6) == 0 ? 2 * hour_ms : 1000);
    if (clock_ms > begin_ms + 1000) /* expired entries may be missing */
        for (uint64_t key = 0; key < c.specimen->keys; key++)
            e.served[key] = e.served[key] && allows(account.now[key], account.now[key].version);
    for (uint64_t key = 0; key < c.specimen->keys; key++)
        if (account.now[key].expires_ms && account.now[key].expires_ms <= clock_ms)
            e.served[key] = false;
    found_older = false;
    uint64_t missing = progress->trusted_missing;

    if (random_below(&source, 8) == 0) {
        enter("read-only");
        read_only(&c, directory, &e);
    }
    enter("open");
    shale_cache *cache = NULL;
    shale_status status = open_cache(c.specimen, directory, 0, &cache);
    progress->cases++;
    if (status < 0) {
        progress->refused++;
        check_that(!e.opens, __FILE__, __LINE__, "cannot be opened", ": %d %s", status, shale_last_error());
        check_that(shale_last_error()[0] != 0 && cache == NULL, __FILE__, __LINE__, "an error without a sentence",
                   ": %d", status);
    } else {
        progress->opened++;
        use_fully(&c, cache, &e, &source, 0);
        enter("open again");
        if (random_below(&source, 3) == 0) {
            char path[300];
            snprintf(path, sizeof path, "%s/shale.index", directory);
            unlink(path);
        }
        if (CHECK_STATUS(SHALE_OK, open_cache(c.specimen, directory, 0, &cache)))
            use_fully(&c, cache, &e, &source, 1);
    }
    if (!e.sound) {
        progress->trusted++;
        progress->trusted_older += found_older && !e.dated;
        progress->trusted_lost += progress->trusted_missing > missing;
    }
    if (check_failures > failures)
        fprintf(stderr, "case %" PRIu64 ": %s\n  again: damage 1 %" PRIu64 " %" PRIu64 "\n", number, c.what, seed,
                number);
    remove_tree(directory);
    free_image(&c.now);
}

/* A library of another version upgraded the cache and was cut off between the two copies: the later one counts, if
 * it is sound. Damage that only looks like it costs nothing. */
static void test_another_format(const char *directory) {
    const specimen *s = &specimens[specimen_count - 1];
    for (int sound = 0; sound < 2; sound++) {
        image i = copy_image(&s->closed);
        bool second = word_at(i.data + super_copy + super_sequence) > word_at(i.data + super_sequence);
        unsigned char *newest = i.data + (second ? super_copy : 0), *other = i.data + (second ? 0 : super_copy);
        memcpy(other, newest, super_bytes);
        uint64_t sequence = word_at(newest + super_sequence) + 1;
        other[super_version]++;
        memcpy(other + super_sequence, &sequence, 8);
        if (sound) {
            uint64_t check = XXH3_64bits_withSeed(other, super_check, word_at(other));
            memcpy(other + super_check, &check, 8);
        }
        REQUIRE(mkdir(directory, 0700) == 0);
        put_back(s, directory, left_closed, &i);
        shale_cache *cache = NULL;
        CHECK_STATUS(sound ? SHALE_E_VERSION : SHALE_OK, open_cache(s, directory, 0, &cache));
        if (cache)
            CHECK_STATUS(SHALE_OK, shale_close(cache));
        image after = take_image(directory);
        CHECK(!sound || memcmp(after.data, i.data, i.data_size) == 0); /* it is left unchanged */
        free_image(&after);
        free_image(&i);
        remove_tree(directory);
    }
}

/* A child runs a batch; if a case ends the child, the next one continues after that case. */
static void run_cases(uint64_t first, uint64_t count, const char *directory) {
    for (uint64_t next = first; next < first + count && check_failures < 20;) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            check_failures = 0;
            struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            uint64_t end = next + batch < first + count ? next + batch : first + count;
            for (uint64_t i = next; i < end && check_failures < 20; i++) {
                progress->number = i;
                alarm(patience);
                run_case(i, directory);
            }
            _exit(check_failures != 0);
        }
        int code = wait_for(child);
        next = progress->number + 1;
        if (code > 128) {
            scenario c;
            random_source source = {seed * 0x9e3779b97f4a7c15u + progress->number};
            make(&c, progress->number, &source);
            check_that(false, __FILE__, __LINE__, code == 128 + SIGALRM ? "hangs" : "ended by a signal",
                       ": %d in \"%s\"\ncase %" PRIu64 ": %s\n  again: damage 1 %" PRIu64 " %" PRIu64, code - 128,
                       progress->phase, progress->number, c.what, seed, progress->number);
            free_image(&c.now);
            remove_tree(directory);
        } else
            check_equal(0, code, __FILE__, __LINE__, "a batch succeeds");
    }
}

int main(int argument_count, char **arguments) {
    uint64_t count = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 5000;
    seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    uint64_t first = argument_count > 3 ? strtoull(arguments[3], NULL, 0) : 0;
    prefer_memory();
    shim_faults.random = next_secret;
    begin_tolerances();
    progress = shared_memory(sizeof *progress);
    char *directory = path_to("damaged");
    for (int i = 0; i < specimen_count; i++)
        prepare(&specimens[i], directory);
    test_another_format(directory);
    run_cases(first, count, directory);
    printf("%" PRIu64 " cases: %" PRIu64 " opened, %" PRIu64 " refused; %" PRIu64 " keys read, %" PRIu64
           " missed; verify found %" PRIu64 " records, %" PRIu64 " shards rebuilt, %" PRIu64
           " sets found no space; a trusted index damaged in %" PRIu64 ", of which %" PRIu64
           " showed older values (%" PRIu64 " keys) and %" PRIu64 " lost entries (%" PRIu64 "); seed %" PRIu64 "\n",
           progress->cases, progress->opened, progress->refused, progress->read, progress->missed, progress->lost_found,
           progress->rebuilt, progress->full, progress->trusted, progress->trusted_older, progress->older_keys,
           progress->trusted_lost, progress->trusted_missing, seed);
    print_tolerances();
    if (check_failures)
        fprintf(stderr, "seed %" PRIu64 "\n", seed);
    free(directory);
    return finish();
}
