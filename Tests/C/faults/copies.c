/* Copies of a closed cache: made by cp, by tar, into an image, by a CI cache. Two files of one close are used as
 * they are, by a writer and by a read-only handle. Two files that are not of one close are a mixture: the index of
 * another close, or files copied while a writer opened the cache, in either order and wherever each copy was cut in
 * two. Then the index is rebuilt, and the data file decides alone. Either way no removed or replaced value comes
 * back, then or after the next rebuild; two copies never give the same version twice; and a copy without room to
 * fill the holes of its source answers an error.
 *
 * copies [calls from one cut to the next, 1] */
#include "birth.h"
#include "check.h"
#include "files.h"
#include "layout.h"
#include "own_disk.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "faults.h"

enum { mib = 1 << 20, keys = 40, value_bytes = 3000, fillers = 100 };

static const shale_options small = {.struct_size = sizeof small, .capacity = mib},
                           read_only = {.struct_size = sizeof read_only, .flags = SHALE_OPEN_READ_ONLY};

/* ---- the contents ---- */

/* Of ten keys, one is replaced in the second life, one is removed, one is new, one was removed before. */
enum fate { kept, replaced, removed, is_new, removed_before };

static enum fate fate_of(int key) {
    return key % 10 == 1   ? replaced
           : key % 10 == 2 ? removed
           : key % 10 == 3 ? is_new
           : key % 10 == 4 ? removed_before
                           : kept;
}

static const char *name_of(int key) {
    static char name[16];
    snprintf(name, sizeof name, "key %d", key);
    return name;
}

static const char *text_of(int key, int life) {
    static char text[value_bytes + 1];
    int head = snprintf(text, sizeof text, "%d of life %d ", key, life);
    random_source source = {(uint64_t)key * 10 + (uint64_t)life}; /* (bytes that do not compress) */
    for (int i = head; i < value_bytes; i++)
        text[i] = (char)('!' + random_below(&source, 90));
    text[value_bytes] = 0;
    return text;
}

static void live_first(shale_cache *cache) {
    shale_value value = SHALE_VALUE_INIT;
    for (int key = 0; key < keys; key++)
        if (fate_of(key) != is_new)
            CHECK_STATUS(SHALE_OK, set_text(cache, name_of(key), text_of(key, 1), NULL));
    for (int key = 0; key < keys; key++)
        if (fate_of(key) == removed_before)
            CHECK_STATUS(SHALE_OK, shale_remove(cache, name_of(key), strlen(name_of(key)), 0));
    CHECK_STATUS(SHALE_OK, get_text(cache, name_of(0), 0, &value)); /* a hit, which only the index counts */
    shale_value_free(&value);
}

static void live_second(shale_cache *cache) {
    for (int key = 0; key < keys; key++)
        if (fate_of(key) == replaced || fate_of(key) == is_new)
            CHECK_STATUS(SHALE_OK, set_text(cache, name_of(key), text_of(key, 2), NULL));
        else if (fate_of(key) == removed)
            CHECK_STATUS(SHALE_OK, shale_remove(cache, name_of(key), strlen(name_of(key)), 0));
    /* Enough segments that its log has others than the first life's. */
    for (int key = keys; key < keys + fillers; key++)
        CHECK_STATUS(SHALE_OK, set_text(cache, name_of(key), text_of(key, 2), NULL));
}

/* The life whose value the key has; 0: none. */
static int life_of(shale_cache *cache, int key) {
    shale_value value = SHALE_VALUE_INIT;
    int life = -1;
    shale_status status = get_text(cache, name_of(key), SHALE_GET_PEEK, &value);
    for (int i = 1; i <= 3 && status == SHALE_OK; i++)
        if (holds_text(&value, text_of(key, i)))
            life = i;
    shale_value_free(&value);
    return status == SHALE_MISS ? 0 : life;
}

static int life_after(int key, int lives) {
    switch (fate_of(key)) {
    case replaced: return lives;
    case removed: return lives == 1;
    case is_new: return lives == 1 ? 0 : 2;
    case removed_before: return 0;
    default: return 1;
    }
}

static bool is_as_after(shale_cache *cache, int lives) {
    for (int key = 0; key < keys; key++)
        if (life_of(cache, key) != life_after(key, lives))
            return false;
    return true;
}

/* In a copy that mixes both lives, a key has a value that it had at some time between the two closes, or none. */
static void check_mixed(shale_cache *cache, const char *what) {
    for (int key = 0; key < keys; key++) {
        int life = life_of(cache, key);
        check_that(life == 0 || life == life_after(key, 1) || life == life_after(key, 2), __FILE__, __LINE__,
                   "the value of a mixed copy", ": %s, %s: life %d", what, name_of(key), life);
    }
}

/* ---- files ---- */

typedef struct {
    unsigned char *bytes;
    size_t size;
} file_image;

static file_image read_whole(const char *directory, const char *name) {
    int fd = open_file(directory, name, O_RDONLY);
    file_image image = {.size = (size_t)lseek(fd, 0, SEEK_END)};
    image.bytes = calloc(1, image.size + 1);
    REQUIRE(image.bytes && pread(fd, image.bytes, image.size, 0) == (ssize_t)image.size);
    close(fd);
    return image;
}

enum fill { fill_sparse, fill_dense };

static void write_whole(const char *directory, const char *name, const file_image *image, enum fill how) {
    static const unsigned char zeros[page_bytes];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    REQUIRE(fd >= 0 && ftruncate(fd, (off_t)image->size) == 0);
    for (size_t at = 0; at < image->size; at += page_bytes) {
        size_t size = image->size - at < page_bytes ? image->size - at : page_bytes;
        if (how == fill_dense || memcmp(image->bytes + at, zeros, size) != 0)
            REQUIRE(pwrite(fd, image->bytes + at, size, (off_t)at) == (ssize_t)size);
    }
    close(fd);
}

static void write_files(const char *directory, const file_image *data, enum fill how_data, const file_image *index,
                        enum fill how_index) {
    remove_tree(directory);
    REQUIRE(mkdir(directory, 0700) == 0);
    write_whole(directory, "shale.data", data, how_data);
    write_whole(directory, "shale.index", index, how_index);
}

static void write_pair(const char *directory, const file_image *data, const file_image *index, enum fill how) {
    write_files(directory, data, how, index, how);
}

/* The beginning of one file and the rest of another. */
static file_image join(const file_image *begin, const file_image *rest, size_t where) {
    file_image joined = {.size = rest->size > where ? rest->size : begin->size < where ? begin->size : where};
    joined.bytes = calloc(1, joined.size + 1);
    REQUIRE(joined.bytes != NULL);
    memcpy(joined.bytes, rest->bytes, rest->size < joined.size ? rest->size : joined.size);
    memcpy(joined.bytes, begin->bytes, begin->size < where ? begin->size : where);
    return joined;
}

static uint64_t bytes_on_disk(const char *directory) {
    struct stat data, index;
    char path[512];
    snprintf(path, sizeof path, "%s/shale.data", directory);
    REQUIRE(stat(path, &data) == 0);
    snprintf(path, sizeof path, "%s/shale.index", directory);
    REQUIRE(stat(path, &index) == 0);
    return (uint64_t)(data.st_blocks + index.st_blocks) * 512;
}

/* The index counts hits; they are lost with it. */
static bool is_trusted(shale_cache *cache) {
    return stats_of(cache).hits > 0;
}

/* ---- whole copies ---- */

static file_image first_data, first_index, second_data, second_index;

static uint64_t version_of_set(shale_cache *cache) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, set_text(cache, "version", "x", NULL));
    CHECK_STATUS(SHALE_OK, get_text(cache, "version", 0, &value));
    uint64_t version = value.version;
    shale_value_free(&value);
    return version;
}

static void test_whole_copies(void) {
    char *path = path_to("whole");
    uint64_t versions[3];
    for (int copy = 0; copy < 3; copy++) {
        write_pair(path, &first_data, &first_index, copy == 1 ? fill_sparse : fill_dense);
        for (int i = 0; i < 2; i++) { /* each reads the same files, and changes neither */
            shale_cache *reader = require_open(path, read_only);
            CHECK(is_trusted(reader) && is_as_after(reader, 1));
            CHECK_STATUS(SHALE_OK, shale_close(reader));
        }
        shale_cache *cache = require_open(path, small);
        CHECK(is_trusted(cache) && is_as_after(cache, 1));
        CHECK(bytes_on_disk(path) <= mib);
        shale_cache *beside = require_open(path, small);
        CHECK(is_as_after(beside, 1));
        versions[copy] = version_of_set(beside);
        CHECK_STATUS(SHALE_OK, shale_close(beside));
        live_second(cache);
        CHECK(is_as_after(cache, 2));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        cache = require_open(path, small); /* its own index by now */
        CHECK(is_trusted(cache) && is_as_after(cache, 2));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_index(path);
        cache = require_open(path, small);
        CHECK(!is_trusted(cache) && is_as_after(cache, 2));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    /* The same when hours of sets lie between the two. */
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < i; j++)
            CHECK((versions[i] > versions[j] ? versions[i] - versions[j] : versions[j] - versions[i]) > 1000000);
    free(path);
}

/* Of the newest segment, in the only shard. */
static uint64_t head_number(const char *directory) {
    file_image data = read_whole(directory, "shale.data"), index = read_whole(directory, "shale.index");
    layout l = layout_of(data.bytes);
    uint64_t number = word_at(index.bytes + shard_offset(&l, 0) + shard_head_number);
    free(data.bytes);
    free(index.bytes);
    return number;
}

/* A new segment has a number that it has in no other copy. */
static void test_segments_of_copies(void) {
    char *path = path_to("segments");
    uint64_t numbers[3];
    for (int copy = 0; copy < 3; copy++) {
        write_pair(path, &first_data, &first_index, fill_dense);
        uint64_t first = head_number(path);
        shale_cache *cache = require_open(path, small);
        for (int i = 0; i < value_bytes / 50; i++) /* one or two more segments */
            CHECK_STATUS(SHALE_OK, set_text(cache, "more", text_of(i, 3), NULL));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        numbers[copy] = head_number(path);
        CHECK(numbers[copy] >= first + (UINT64_C(1) << 40) && numbers[copy] <= first + (UINT64_C(1) << 41) + 5);
        CHECK(copy == 0 || numbers[copy] != numbers[copy - 1]);
    }
    free(path);
}

/* A file system may give the inode of a deleted file to another one, possibly a copy of it. */
static void test_reused_inode(void) {
    char *path = path_to("inode");
    const file_image *data[] = {&first_data, &second_data};
    for (int of_both = 0; of_both < 2; of_both++) {
        write_pair(path, data[!of_both], &first_index, fill_dense);
        mapped_file index = map_file(path, "shale.index");
        int fd = open_file(path, "shale.data", O_RDONLY);
        struct stat own, other;
        REQUIRE(fstat(index.fd, &own) == 0 && fstat(fd, &other) == 0);
        uint64_t names[] = {own.st_dev, own.st_ino, other.st_dev, other.st_ino};
        if (birth_of(fd) == 0)
            fprintf(stderr, "NOT TESTED: this file system does not say when a file was made\n");
        else
            memcpy(index.bytes + index_own_device, names, sizeof names);
        unmap_file(&index);
        close(fd);
        shale_cache *cache = require_open(path, small);
        CHECK(is_trusted(cache) == of_both && is_as_after(cache, of_both ? 1 : 2));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    free(path);
}

static void write_over(const char *directory, const char *name, const file_image *image) {
    int fd = open_file(directory, name, O_WRONLY);
    REQUIRE(ftruncate(fd, (off_t)image->size) == 0 && pwrite(fd, image->bytes, image->size, 0) == (ssize_t)image->size);
    close(fd);
}

/* A copy that is restored over the files of the same cache, which keep their inodes. */
static void test_restored_in_place(void) {
    char *path = path_to("in-place");
    uint64_t versions[2];
    shale_cache *cache = require_open(path, small);
    live_first(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    file_image data = read_whole(path, "shale.data"), index = read_whole(path, "shale.index");
    for (int copy = 0; copy < 2; copy++) {
        cache = require_open(path, small);
        CHECK(is_trusted(cache) && is_as_after(cache, 1) && bytes_on_disk(path) <= mib);
        versions[copy] = version_of_set(cache);
        live_second(cache);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        write_over(path, "shale.data", &data);
        write_over(path, "shale.index", &index);
        shale_cache *reader = require_open(path, read_only);
        CHECK(is_trusted(reader) && is_as_after(reader, 1));
        CHECK_STATUS(SHALE_OK, shale_close(reader));
    }
    CHECK(versions[0] != versions[1]);
    /* The same for one file alone. */
    for (int which = 0; which < 2; which++) {
        cache = require_open(path, small);
        CHECK(is_as_after(cache, 1));
        live_second(cache);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        write_over(path, which ? "shale.index" : "shale.data", which ? &index : &data);
        cache = require_open(path, small);
        CHECK(!is_trusted(cache) && is_as_after(cache, which ? 2 : 1));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    free(data.bytes);
    free(index.bytes);
    free(path);
}

/* A cache that is restored again and again, with few writes in between, keeps its entries. */
static void test_copies_of_copies(void) {
    char *path = path_to("again");
    file_image data = first_data, index = first_index;
    for (int i = 0; i < 100; i++) {
        write_pair(path, &data, &index, fill_dense);
        if (i > 0) {
            free(data.bytes);
            free(index.bytes);
        }
        shale_cache *cache = require_open(path, small);
        CHECK(is_trusted(cache) && is_as_after(cache, 1));
        CHECK_STATUS(SHALE_OK, set_text(cache, "more", text_of(i, 3), NULL));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        data = read_whole(path, "shale.data");
        index = read_whole(path, "shale.index");
    }
    free(data.bytes);
    free(index.bytes);
    free(path);
}

/* A killed writer's files are not a trustworthy copy. */
static void test_a_copy_of_a_cache_in_use(void) {
    char *path = path_to("used"), *copied = path_to("copy-of-used");
    remove_tree(path);
    shale_cache *cache = require_open(path, small);
    live_first(cache);
    file_image data = read_whole(path, "shale.data"), index = read_whole(path, "shale.index");
    write_pair(copied, &data, &index, fill_dense);
    shale_cache *other = require_open(copied, small);
    CHECK(!is_trusted(other) && is_as_after(other, 1));
    CHECK_STATUS(SHALE_OK, shale_close(other));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(data.bytes);
    free(index.bytes);
    free(path);
    free(copied);
}

/* ---- mixtures ---- */

/* After a mixture was opened: all changes persist, also without the index. */
static void check_goes_on(const char *path, shale_cache *cache, const char *what) {
    int known[keys];
    for (int key = 0; key < keys; key++) {
        if (key % 4 == 0)
            CHECK_STATUS(SHALE_OK, set_text(cache, name_of(key), text_of(key, 3), NULL));
        if (key % 4 == 1)
            CHECK(shale_remove(cache, name_of(key), strlen(name_of(key)), 0) >= 0);
        known[key] = life_of(cache, key);
        CHECK(key % 4 > 1 || known[key] == (key % 4 == 0 ? 3 : 0));
    }
    for (int pass = 0; pass < 2; pass++) {
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        if (pass)
            remove_index(path);
        cache = require_open(path, small);
        for (int key = 0; key < keys; key++)
            check_that(life_of(cache, key) == known[key], __FILE__, __LINE__, "a mixed copy has changed",
                       ": %s, %s: %d, then %d", what, name_of(key), known[key], life_of(cache, key));
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void check_pair(const char *path, const file_image *data, const file_image *index, const char *what,
                       int trusted_lives) {
    write_pair(path, data, index, fill_dense);
    for (int writes = 0; writes < 2; writes++) {
        shale_cache *cache = NULL;
        shale_status status = shale_open(path, writes ? &small : &read_only, &cache);
        /* (A cut before the end of the first page leaves a damaged cache, or none.) */
        if (!CHECK_STATUS(SHALE_OK, status)) {
            fprintf(stderr, "  %s: %s\n", what, shale_last_error());
            return;
        }
        bool trusted = is_trusted(cache);
        if (trusted_lives >= 0)
            check_that(trusted == (trusted_lives > 0), __FILE__, __LINE__, "trust", ": %s", what);
        if (trusted)
            check_that(is_as_after(cache, 1) || is_as_after(cache, 2), __FILE__, __LINE__,
                       "a copy that is trusted is whole", ": %s", what);
        check_mixed(cache, what);
        if (writes)
            check_goes_on(path, cache, what);
        else
            CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
}

static void test_mixtures(void) {
    char *path = path_to("mixed"), what[100];
    const file_image *data[2] = {&first_data, &second_data}, *index[2] = {&first_index, &second_index};
    const size_t cuts[] = {page_bytes, 2 * page_bytes, index_head_bytes, index_head_bytes + page_bytes,
                           64 << 10,   200 << 10};
    for (unsigned c = 0; c < sizeof cuts / sizeof cuts[0]; c++)
        for (int mix = 0; mix < 16; mix++) {
            file_image d = join(data[mix & 1], data[mix >> 1 & 1], cuts[c]),
                       i = join(index[mix >> 2 & 1], index[mix >> 3 & 1], cuts[c]);
            snprintf(what, sizeof what, "data of %d and %d, index of %d and %d, cut at %zu", 1 + (mix & 1),
                     1 + (mix >> 1 & 1), 1 + (mix >> 2 & 1), 1 + (mix >> 3 & 1), cuts[c]);
            check_pair(path, &d, &i, what, mix == 0 ? 1 : mix == 15 ? 2 : -1);
            free(d.bytes);
            free(i.bytes);
        }
    free(path);
}

/* One shard's frames of the other data file, from an offset in each on. */
static void test_single_segments(void) {
    char *path = path_to("segment"), what[100];
    layout l = layout_of(first_data.bytes);
    const unsigned char *header = first_index.bytes + shard_offset(&l, 0);
    uint64_t head = frame_offset(&l, 0, word_at(header + shard_head_frame)), end = word_at(header + shard_head_offset);
    const uint64_t cuts[][2] = {{head, end}, {head, 0}, {head, segment_header_bytes}, {head + l.segment_size, 0}};
    for (unsigned i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        /* Records after the log's end; the same from the segment's beginning; and a later segment. */
        file_image d = join(&first_data, &second_data, 0);
        memcpy(d.bytes, first_data.bytes, l.segments);
        for (uint64_t at = l.segments; at < d.size; at += l.segment_size) {
            bool is_taken = at == cuts[i][0];
            uint64_t from = is_taken ? cuts[i][1] : l.segment_size;
            for (uint64_t k = 0; k < from && at + k < d.size; k++)
                d.bytes[at + k] = at + k < first_data.size ? first_data.bytes[at + k] : 0;
        }
        snprintf(what, sizeof what, "the segment at %" PRIu64 " from %" PRIu64 " on is a later one", cuts[i][0],
                 cuts[i][1]);
        check_pair(path, &d, &first_index, what, 0);
        /* None of its records. */
        memcpy(d.bytes, first_data.bytes, first_data.size);
        memset(d.bytes + head + (i ? 0 : segment_header_bytes), 0, i < 2 ? end - segment_header_bytes : 4096);
        write_pair(path, &d, &first_index, fill_dense);
        shale_cache *cache = require_open(path, small);
        CHECK(!is_trusted(cache));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        free(d.bytes);
    }
    free(path);
}

/* ---- torn at a call ---- */

/* A copy of both files, one after the other, in pieces: some at one call of a writer, the rest at a later one. */
static struct tear {
    const char *from;
    long call, first, second; /* the calls' numbers */
    int pieces; /* that are copied at the first call */
    bool index_first;
    file_image copied[2]; /* data, index */
    bool is_busy;
} tear;

static void copy_pieces(int from, int to) {
    for (int piece = from; piece < to; piece++) {
        bool is_index = (piece < 2) == tear.index_first;
        file_image now = read_whole(tear.from, is_index ? "shale.index" : "shale.data"), *own = &tear.copied[is_index];
        size_t where = is_index ? index_head_bytes : page_bytes;
        if (piece % 2 == 0) {
            *own = now;
        } else {
            file_image joined = join(own, &now, where);
            free(own->bytes);
            free(now.bytes);
            *own = joined;
        }
    }
}

static long at_call(const char *name UNUSED) {
    if (tear.is_busy)
        return 0;
    tear.is_busy = true;
    long number = ++tear.call;
    if (number == tear.first)
        copy_pieces(0, tear.pieces);
    if (number == tear.second)
        copy_pieces(tear.pieces, 4);
    tear.is_busy = false;
    return 0;
}

/* The second life, from the opening to the end of the close. Returns its number of calls. */
static long run_second_life(const char *path, long first, long second, int pieces, bool index_first) {
    write_pair(path, &first_data, &first_index, fill_dense);
    /* (The first opening makes the copy its own, and is not traced.) */
    CHECK_STATUS(SHALE_OK, shale_close(require_open(path, small)));
    tear = (struct tear){.from = path, .first = first, .second = second, .pieces = pieces, .index_first = index_first};
    shim_faults.call = at_call;
    shale_cache *cache = require_open(path, small);
    live_second(cache);
    CHECK_STATUS(SHALE_OK, shale_sync(cache));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shim_faults.call = NULL;
    return tear.call;
}

static long step = 1;

static void test_torn_copies(void) {
    char *path = path_to("torn"), *copied = path_to("copy-of-torn"), what[100];
    long calls = run_second_life(path, 0, 0, 4, false), checked = 0;
    for (long first = 1; first <= calls; first += step)
        for (long ahead = 0; first + ahead <= calls; ahead = ahead * 3 + 1)
            for (int way = 0; way < 6; way++) {
                int pieces = 1 + way / 2;
                run_second_life(path, first, first + ahead, pieces, way % 2);
                snprintf(what, sizeof what, "%d pieces at call %ld of %ld, the rest at %ld, %s first", pieces, first,
                         calls, first + ahead, way % 2 ? "index" : "data");
                check_pair(copied, &tear.copied[0], &tear.copied[1], what, -1);
                free(tear.copied[0].bytes);
                free(tear.copied[1].bytes);
                checked++;
                if (check_failures > 20)
                    return;
            }
    printf("%ld torn copies, at %ld calls\n", checked, calls);
    free(path);
    free(copied);
}

/* ---- no room ---- */

static void check_full_disk(const char *disk) {
    char directory[400], filler[400];
    snprintf(directory, sizeof directory, "%s/cache", disk);
    snprintf(filler, sizeof filler, "%s/filler", disk);
    char *elsewhere = path_to("zeros");
    remove_tree(elsewhere);
    /* Values of zeros, uncompressed: a sparse copy has holes in their place. */
    shale_options options = {.struct_size = sizeof options, .capacity = 4 * mib, .compression = SHALE_COMPRESSION_NONE};
    shale_cache *cache = require_open(elsewhere, options);
    static const char zeros[50000];
    shale_value value = SHALE_VALUE_INIT;
    for (int i = 0; i < 60; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, zeros, sizeof zeros, NULL));
    CHECK_STATUS(SHALE_OK, shale_get(cache, &(int){59}, sizeof(int), 0, &value));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    file_image data = read_whole(elsewhere, "shale.data"), index = read_whole(elsewhere, "shale.index");

    for (int left = 0; left < 3; left++)
        for (int way = 0; way < 6; way++) {
            bool writes = way % 2, has_index = way < 4;
            write_files(directory, &data, way / 2 == 1 ? fill_dense : fill_sparse, &index, fill_sparse);
            if (!has_index)
                remove_index(directory);
            int fd = open(filler, O_WRONLY | O_CREAT, 0600);
            REQUIRE(fd >= 0);
            while (write(fd, zeros, page_bytes) == page_bytes)
                ;
            off_t end = lseek(fd, 0, SEEK_CUR);
            REQUIRE(ftruncate(fd, end - left * 20 * page_bytes) == 0);
            cache = NULL;
            /* No other result is allowed, least of all a signal. */
            shale_status status = shale_open(directory, writes ? &options : &read_only, &cache);
            CHECK_EITHER(SHALE_E_FULL, way / 2 == 1 ? SHALE_OK : SHALE_E_FULL,
                         status); /* the index alone has few holes */
            CHECK(status == SHALE_OK || strstr(shale_last_error(), directory) != NULL);
            if (status == SHALE_OK && writes) { /* the index has its room, even if the freed blocks are used */
                while (write(fd, zeros, page_bytes) == page_bytes)
                    ;
                CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3));
                for (int i = 0; i < 60; i++)
                    CHECK_STATUS(SHALE_OK, shale_remove(cache, &i, sizeof i, 0));
            }
            CHECK(shale_close(cache) == SHALE_OK || status != SHALE_OK);
            REQUIRE(ftruncate(fd, 0) == 0);
            close(fd);
            unlink(filler);
            if (status == SHALE_OK)
                write_files(directory, &data, fill_dense, &index, fill_sparse);
            cache = require_open(directory, writes ? options : read_only);
            CHECK(is_trusted(cache) == has_index);
            for (int i = 0; i < 60; i++) {
                CHECK_STATUS(SHALE_OK, shale_get(cache, &i, sizeof i, 0, &value));
                CHECK_BYTES(&value, zeros, sizeof zeros);
            }
            CHECK(!writes || bytes_on_disk(directory) <= 4 * mib);
            CHECK_STATUS(SHALE_OK, shale_close(cache));
        }
    shale_value_free(&value);
    free(data.bytes);
    free(index.bytes);
    free(elsewhere);
}

/* All holes were written as zeros, also those between the frames and the chunks of several shards. */
static void test_dense_copies(void) {
    char *path = path_to("dense");
    shale_options options = {.struct_size = sizeof options, .capacity = 12 * mib, .shards = 3};
    shale_cache *cache = require_open(path, options);
    static unsigned char large[100000];
    static const shale_set_options plain = {.struct_size = sizeof plain, .flags = SHALE_SET_UNCOMPRESSED};
    for (int i = 0; i < 30; i++) { /* nearly all in one of them */
        CHECK_STATUS(SHALE_OK, set_text(cache, name_of(i), text_of(i, 1), NULL));
        CHECK_STATUS(SHALE_OK, shale_set(cache, "large", 5, large, sizeof large, &plain));
    }
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, get_text(cache, "large", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    CHECK_STATUS(SHALE_OK, shale_close(require_open(path, options))); /* (frees the prepared segment) */
    uint64_t before = bytes_on_disk(path);
    file_image data = read_whole(path, "shale.data"), index = read_whole(path, "shale.index");
    write_pair(path, &data, &index, fill_dense);
    CHECK(bytes_on_disk(path) > before + mib);
    cache = require_open(path, options);
    CHECK(is_trusted(cache));
    CHECK(bytes_on_disk(path) <= before);
    CHECK_STATUS(SHALE_OK, get_text(cache, "large", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shale_value_free(&value);
    free(data.bytes);
    free(index.bytes);
    free(path);
}

static void test_sparse_copies_on_a_full_disk(void) {
    char *disk = path_to("disk");
    mkdir(disk, 0700);
    pid_t child = fork();
    if (child == 0) {
        if (!mount_own_disk(disk, 24 * 1024))
            _exit(77);
        check_full_disk(disk);
        _exit(check_failures != 0);
    }
    int result = wait_for(child);
    if (result == 77)
        fprintf(stderr, "NOT TESTED: sparse copies on a full disk, for want of the right to mount one\n");
    else
        CHECK_EQUAL(0, result);
    free(disk);
}

int main(int argument_count, char **arguments) {
    prefer_memory();
    step = argument_count > 1 ? atol(arguments[1]) : 1;
    watch(patience);
    char *path = path_to("first");
    remove_tree(path);
    shale_cache *cache = require_open(path, small);
    live_first(cache);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    first_data = read_whole(path, "shale.data");
    first_index = read_whole(path, "shale.index");
    cache = require_open(path, small);
    live_second(cache);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    second_data = read_whole(path, "shale.data");
    second_index = read_whole(path, "shale.index");
    RUN(test_whole_copies);
    RUN(test_segments_of_copies);
    RUN(test_reused_inode);
    RUN(test_restored_in_place);
    RUN(test_copies_of_copies);
    RUN(test_a_copy_of_a_cache_in_use);
    RUN(test_mixtures);
    RUN(test_single_segments);
    RUN(test_torn_copies);
    RUN(test_dense_copies);
    RUN(test_sparse_copies_on_a_full_disk);
    free(path);
    return finish();
}
