/* The disk holds no more than the capacity on record, at no moment at which a process may be killed: a full cache is
 * opened with smaller and larger capacities, and before each system call on the way what is on the disk is compared with
 * what is on record. Then the audit, and a look whether all goes on. */
#include "afterwards.h"
#include "faults.h"
#include "pattern.h"
#include "usage.h"

#include <fcntl.h>

enum { mib = 1 << 20, most = 9000 };

static char *directory, *data;
static const char *doing;
static uint64_t from, to, looks, fullest; /* per cent */

/* What the superblock says that is in force: of two copies the one with the higher sequence; 0: there is none yet. */
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

int main(void) {
    static const uint64_t capacities[] = {4, 2, 3, 12, 5, 40, 9, 2, 2, 1 << 10};
    random_source source = {1};
    watch(120);
    prefer_memory();
    directory = path_to("cache");
    data = path_to("cache/shale.data");
    shim_faults.call = look;
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities && check_failures == 0; i++) {
        shale_options options = {
            .struct_size = sizeof options, .capacity = capacities[i] * mib, .shards = 1, .segment_size = 128 << 10};
        shale_cache *cache = NULL;
        from = to, to = options.capacity;
        doing = "opened";
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
        CHECK_EQUAL(to, recorded_capacity());
        look("its end");
        check_account(directory, "another capacity");
        bool is_last = i == sizeof capacities / sizeof *capacities - 1;
        if (!is_last) /* its larger index alone makes the difference, and 1 GiB is not to be filled */
            fill(cache, &source);
        doing = "used";
        check_still_works(cache);
        doing = "closed";
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        CHECK(is_last || disk_usage(directory) > to / 10 * 8);
    }
    printf("%" PRIu64 " looks, at most %" PRIu64 " %% of the capacity on record\n", looks, fullest);
    free(directory);
    free(data);
    return finish();
}
