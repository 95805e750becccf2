/* Other programs read the files of a cache, as `cat`, a backup or a search do, with large reads from the first byte
 * to the last: while it is empty, while it grows, after space was freed, after it was made smaller, and while no
 * handle has it open. The disk usage stays below the capacity all the same, and the audit of both files finds no
 * fault. Counts as skipped on a file system without large folios. */
#include "afterwards.h"
#include "files.h"
#include "usage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static char *directory;
static uint64_t capacity;
static double worst;

static shale_cache *open_it(uint32_t shards) {
    return require_open(directory, (shale_options){.capacity = capacity,
                                                   .shards = shards,
                                                   .segment_size = shards > 1 ? 128 << 10 : 0,
                                                   .flags = SHALE_OPEN_NO_SYNC});
}

static void check_space(const char *when) {
    uint64_t used = disk_usage(directory);
    if ((double)used / (double)capacity > worst)
        worst = (double)used / (double)capacity;
    check_that(used <= capacity, __FILE__, __LINE__, "more on the disk than the capacity",
               " %s: %" PRIu64 " of %" PRIu64, when, used, capacity);
}

static void each_file(void (*act)(int file)) {
    static const char *const names[] = {"shale.data", "shale.index"};
    for (int i = 0; i < 2; i++) {
        int file = open_file(directory, names[i], O_RDONLY);
        act(file);
        close(file);
    }
}

static void read_file(int file) {
    static char buffer[1 << 20];
    posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
    while (read(file, buffer, sizeof buffer) > 0)
        ;
}
/* The audit, after all programs that read files here: cat, a search, and a backup. */
static void audit_when_read(const char *when) {
    char command[1024];
    snprintf(
        command, sizeof command,
        "cat '%s'/* > /dev/null; grep -c 'no such words' '%s'/* > /dev/null; tar -cf - -C '%s' . 2> /dev/null | cat > /dev/null",
        directory, directory, directory);
    CHECK_EQUAL(0, system(command));
    CHECK_EQUAL(0, check_files(directory, account_read_files, when).orphans);
    check_space(when);
}

/* As after a restart of the machine. */
static void evict_pages(int file) {
    REQUIRE(fsync(file) == 0);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
}

/* Sets, and hits that leave stamps, with readers of the files now and then. */
static void use(shale_cache *cache, uint64_t from, uint64_t count, size_t size, int readings, const char *when) {
    static char bytes[4096];
    random_source source = {from + size};
    shale_value value = SHALE_VALUE_INIT;
    static const shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED};
    for (uint64_t i = 0; i < count; i++) {
        uint64_t key = from + i, other = from + random_below(&source, i + 1);
        REQUIRE_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, size, &options));
        shale_get(cache, &other, sizeof other, 0, &value);
        if (readings && i % (count / (uint64_t)readings + 1) == 0)
            each_file(read_file);
        if (i % (count / 50 + 1) == 0)
            check_space(when);
    }
    shale_value_free(&value);
    check_space(when);
}

static void read_while_open(uint32_t shards) {
    remove_tree(directory);
    shale_cache *cache = open_it(shards);
    each_file(read_file);
    check_space("when it is empty");
    audit_when_read("when it is empty");
    use(cache, 0, capacity / 3000 * 3 / 2, 3000, 10, "while the log grows");
    audit_when_read("when the log has grown");
    /* The table takes frames from the log. */
    use(cache, 1 << 30, capacity / 160, 60, 20, "while the table grows");
    CHECK_STATUS(SHALE_OK, shale_clear(cache));
    each_file(read_file);
    audit_when_read("after a clear");
    use(cache, 2 << 30, capacity / 3000, 3000, 5, "after a clear");
    audit_when_read("when it was used after a clear");
    check_still_works(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    capacity /= 2;
    cache = open_it(shards);
    each_file(read_file);
    use(cache, 0, capacity / 160, 60, 5, "after it was made smaller");
    audit_when_read("after it was made smaller");
    check_still_works(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static bool is_resident(unsigned char *page) {
    unsigned char resident = 0;
    REQUIRE(mincore(page, 1, &resident) == 0);
    return resident & 1;
}

static bool is_there(const layout *l, const unsigned char *index, uint64_t i) {
    unsigned char state = index[shard_offset(l, i % l->shards) + l->states + i / l->shards];
    return state == frame_free || state == frame_in_log;
}

/* Except for the data, no page of a hole is in the page cache: a large folio would span both. */
static uint64_t check_ends_of_holes(void) {
    uint64_t ends = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
    mapped_file data = map_file(directory, "shale.data"), index = map_file(directory, "shale.index");
    layout l = layout_of(data.bytes);
    uint64_t head = l.dictionaries + l.dictionary_places * l.dictionary_size;
    if (head < l.segments) {
        CHECK(!is_resident(data.bytes + head));
        ends++;
    }
    uint64_t places = (data.size - l.segments) / l.segment_size;
    for (uint64_t i = 1; i < places; i++)
        if (!is_there(&l, index.bytes, i)) {
            unsigned char *hole = data.bytes + l.segments + i * l.segment_size;
            if (is_there(&l, index.bytes, i - 1)) {
                CHECK(!is_resident(hole));
                ends++;
            }
            if (i + 1 < places && is_there(&l, index.bytes, i + 1)) {
                CHECK(!is_resident(hole + l.segment_size - page));
                ends++;
            }
        }
    unmap_file(&data);
    unmap_file(&index);
    return ends;
}

static void read_while_closed(uint32_t shards) {
    remove_tree(directory);
    shale_cache *cache = open_it(shards);
    use(cache, 0, capacity / 400 * 3 / 2, 300, 0, "before");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    each_file(evict_pages);
    each_file(read_file);
    cache = open_it(shards);
    check_space("once it is open");
    REQUIRE(check_ends_of_holes() > 0);
    use(cache, 0, capacity / 400 / 4, 300, 2, "when it was read before it was opened");
    audit_when_read("when it was read before it was opened");
    check_still_works(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void one_shard(void) {
    capacity = 8 << 20;
    read_while_open(1);
    capacity = 8 << 20;
    read_while_closed(1);
}
static void many_shards(void) {
    capacity = 64 << 20;
    read_while_open(16);
    capacity = 64 << 20;
    read_while_closed(32);
}

/* Whether a byte that is stored into a hole allocates more than its page: the effect that this test is about. */
static bool has_large_pages(void) {
    enum { size = 8 << 20 };
    char *path = path_to("sparse");
    int file = open(path, O_RDWR | O_CREAT, 0600);
    REQUIRE(file >= 0 && ftruncate(file, size) == 0);
    read_file(file);
    unsigned char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(bytes != MAP_FAILED);
    bytes[size / 2] = 1;
    munmap(bytes, size);
    struct stat status;
    REQUIRE(fsync(file) == 0 && fstat(file, &status) == 0);
    close(file);
    unlink(path);
    free(path);
    return status.st_blocks * 512 > sysconf(_SC_PAGESIZE);
}

int main(void) {
    watch(patience);
    directory = path_to("foreign_readers");
    RUN(one_shard);
    RUN(many_shards);
    printf("at most %.1f %% of the capacity\n", worst * 100);
    remove_tree(directory);
    free(directory);
    bool can_fail = has_large_pages();
    int result = finish();
    if (result == 0 && !can_fail)
        fprintf(stderr, "skipped: the file system has no large pages, so nothing could go wrong\n");
    return result == 0 && !can_fail ? SKIPPED : result;
}
