/* The cache never takes more disk space than its recorded capacity, at no moment at which a process may be killed: a
 * full cache is opened with smaller and larger capacities, and before each system call the disk usage is compared
 * with the recorded capacity. Then the audit, and a check that the cache still works.
 *
 *    capacities         in the directory of temporary files
 *    capacities huge    in a tmpfs with huge pages, which are larger than the requested sizes
 *    capacities locked  in a tmpfs, by a process that has called mlockall(MCL_FUTURE) */
#include "afterwards.h"
#include "faults.h"
#include "own_disk.h"
#include "pattern.h"
#include "usage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { mib = 1 << 20, most = 9000, most_steps = 12 };

static char *directory, *data;
static const char *doing;
static bool is_locked;
static uint64_t from, to, looks, fullest; /* per cent */

/* The capacity in the superblock that is in force: the copy with the higher sequence; 0: there is none yet. */
static uint64_t recorded_capacity(void) {
    static unsigned char copies[2][super_bytes];
    int file = open(data, O_RDONLY);
    bool done = file >= 0 && pread(file, copies[0], super_bytes, 0) == super_bytes &&
                pread(file, copies[1], super_bytes, super_copy) == super_bytes;
    if (file >= 0)
        close(file);
    return done ? word_at(copies[word_at(copies[1] + super_sequence) > word_at(copies[0] + super_sequence)] +
                          super_capacity)
                : 0;
}

static long look(const char *name) {
    uint64_t recorded = recorded_capacity(), used = disk_usage(directory);
    if (recorded == 0)
        return 0;
    looks++;
    if (used * 100 / recorded > fullest)
        fullest = used * 100 / recorded;
    if (check_failures < 10)
        check_that(used <= recorded, __FILE__, __LINE__, "more on the disk than the capacity on record",
                   ": %" PRIu64 " of %" PRIu64 " bytes, before %s, %s from %" PRIu64 " to %" PRIu64 " MiB", used,
                   recorded, name, doing, from / mib, to / mib);
    return 0;
}

/* Until it has been full for a while. */
static void fill(shale_cache *cache, random_source *source) {
    static unsigned char bytes[most];
    static const shale_set_options plain = {.struct_size = sizeof plain, .flags = SHALE_SET_UNCOMPRESSED};
    doing = "filled";
    for (uint64_t written = 0; written < 2 * to;) {
        uint64_t key = random_next(source);
        size_t size = sizeof(pattern_head) + random_below(source, most - sizeof(pattern_head));
        pattern_fill(bytes, key, 1, size);
        REQUIRE_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, size, &plain));
        written += size;
    }
}

/* Bytes of the process's memory that are shared: a file's, or a cache's in memory. */
static uint64_t resident_bytes(void) {
    unsigned long long size, resident, shared = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file != NULL && fscanf(file, "%llu %llu %llu", &size, &resident, &shared) == 3);
    fclose(file);
    return shared * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* One cache, from one capacity to the next. */
static void run(uint32_t shards, const uint64_t *capacities) {
    random_source source = {1};
    directory = path_to("disk/cache");
    data = path_to("disk/cache/shale.data");
    shim_faults.call = look;
    to = 0;
    for (size_t i = 0; i < most_steps && capacities[i] != 0 && check_failures == 0; i++) {
        shale_options options = {.struct_size = sizeof options,
                                 .capacity = capacities[i] * mib,
                                 .shards = shards,
                                 .segment_size = 128 << 10};
        shale_cache *cache = NULL;
        from = to, to = options.capacity;
        doing = "opened";
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
        CHECK_EQUAL(to, recorded_capacity());
        look("its end");
        if (!is_locked) /* an audit maps the files, holes too */
            check_account(directory, "another capacity");
        bool is_last = to > 100 * mib;
        if (!is_last) /* only its larger index makes the difference; it is not to be filled */
            fill(cache, &source);
        doing = "used";
        check_still_works(cache);
        doing = "closed";
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        CHECK(is_last || disk_usage(directory) > to / 10 * 8);
    }
    shim_faults.call = NULL;
    remove_tree(directory);
    free(directory);
    free(data);
}

/* A cache in memory takes what it holds, and frees memory that it does not need any more. */
static void run_in_memory(void) {
    enum { capacity = 32 * mib, size = 64 << 10 };
    static unsigned char bytes[size];
    static const shale_set_options plain = {.struct_size = sizeof plain, .flags = SHALE_SET_UNCOMPRESSED};
    shale_options options = {.struct_size = sizeof options, .capacity = capacity};
    shale_cache *cache = NULL;
    uint64_t before = resident_bytes();
    REQUIRE_STATUS(SHALE_OK, shale_open(NULL, &options, &cache));
    CHECK(resident_bytes() - before < 2 * mib);
    /* A table grows into the space of freed segments. */
    for (uint64_t key = 0; key < 2 * capacity / size; key++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, size, &plain));
    for (uint64_t key = 0; key < 200000; key++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes, 1, &plain));
    CHECK(resident_bytes() - before <= capacity + mib);
    shale_stats stats = {.struct_size = sizeof stats};
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    CHECK(stats.entries > 100000);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* (Locking may fail for want of a privilege, and mapping afterwards for a limit.) */
static bool lock_memory(void) {
    shale_cache *cache = NULL;
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &all);
    if (mlockall(MCL_FUTURE) < 0)
        return false;
    shale_status opened = shale_open(NULL, NULL, &cache);
    CHECK(opened == SHALE_OK || shale_last_errno() == EAGAIN);
    shale_close(cache);
    return opened == SHALE_OK;
}

int main(int argument_count, char **arguments) {
    static const struct {
        uint32_t shards;
        uint64_t capacities[most_steps];
    } runs[] = {{1, {4, 2, 3, 12, 5, 40, 9, 2, 2, 128}}, {1, {1, 2, 1}}, {3, {4, 5, 4, 24, 4}}};
    const char *how = argument_count > 1 ? arguments[1] : "";
    watch(patience);
    prefer_memory();
    char *disk = path_to("disk");
    REQUIRE(mkdir(disk, 0700) == 0);
    if (*how && !mount_own_disk_with(disk, 200 << 10, strcmp(how, "huge") == 0 ? ",huge=always" : "")) {
        printf("skipped: such a tmpfs cannot be mounted here\n");
        finish();
        return SKIPPED;
    }
    is_locked = strcmp(how, "locked") == 0;
    if (is_locked) {
        if (!lock_memory()) {
            printf("skipped: memory cannot be locked here\n");
            finish();
            return SKIPPED;
        }
        run_in_memory();
    }
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        run(runs[i].shards, runs[i].capacities);
    printf("%" PRIu64 " looks, at most %" PRIu64 " %% of the capacity on record\n", looks, fullest);
    free(disk);
    return finish();
}
