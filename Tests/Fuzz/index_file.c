/* The index is believed, and has any content: the commands change words of a sound shale.index whose identity is
 * right. The records are unchanged, so every value that is read is a value of its key. No call may crash or hang. */
#include "exercise.h"

#include "../C/support/birth.h"

/* format.md */
enum {
    index_head = 3 * page_size,
    shard_header = 2304,
    queue_region = 4,
    state_region = 5,
    slot_region = 8,
    region_count
};

static size_t round_to_page(size_t size) {
    return (size + page_size - 1) & ~(size_t)(page_size - 1);
}

static struct {
    size_t at, size;
} regions[2][region_count];

static size_t limited(size_t value, size_t least, size_t most) {
    return value < least ? least : value > most ? most : value;
}

/* Where everything is in an index of this data file's geometry. */
static void find_regions(const template *t) {
    size_t rows = get32(t->data.bytes + 2048 + 80), queue = shard_header + rows * 8,
           states = (queue + rows * 4 + 7) & ~(size_t)7;
    size_t tables = (states + rows + 63) & ~(size_t)63, frames = rows * get32(t->data.bytes + 2048 + 52);
    size_t leases = limited(frames / 4 / (48 << 10), 5, 320) * 384,
           writers = limited(frames / 4 / (240 << 10), 4, 64) * 256,
           fences = limited(frames / 4 / 100 / 64, 128, 65536) * 64;
    size_t region = round_to_page(tables + leases + writers + fences + 1024);
    for (uint32_t shard = 0; shard < t->data.shards; shard++) {
        size_t base = index_head + shard * region,
               chunk = index_head + t->data.shards * region + shard * (3 * page_size + 1024 * 64);
        regions[shard][0].at = base + 64, regions[shard][0].size = 192;   /* shape, epoch, stamps, state, sums */
        regions[shard][1].at = base + 256, regions[shard][1].size = 128;  /* the log */
        regions[shard][2].at = base + 384, regions[shard][2].size = 256;  /* sweeps, counters, dictionaries */
        regions[shard][3].at = base + shard_header, regions[shard][3].size = rows * 8;
        regions[shard][queue_region].at = base + queue, regions[shard][queue_region].size = rows * 4;
        regions[shard][state_region].at = base + states, regions[shard][state_region].size = rows;
        regions[shard][6].at = chunk, regions[shard][6].size = 8192; /* generations of tags */
        regions[shard][7].at = chunk + 2 * page_size, regions[shard][7].size = 4096;
        regions[shard][slot_region].at = chunk + 3 * page_size, regions[shard][slot_region].size = (256 + 16) * 64;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    command c = {0};
    read_command(data, size, 0, &c);
    const template *t = template_of(c.code % template_count);
    random_state = c.e;
    clock_value = CLOCK_START;
    const command first = c;

    static uint8_t *index;
    static size_t index_size;
    if (index_size < t->index_size) {
        free(index);
        index = calloc(1, index_size = t->index_size);
        ASSERT(index);
    }
    for (int i = 0; i < t->part_count; i++)
        memcpy(index + t->parts[i].at, t->index + t->parts[i].at, t->parts[i].size);
    find_regions(t);
    uint32_t shards = t->data.shards;

    for (size_t n = 1; read_command(data, size, n, &c); n++) {
        uint32_t shard = c.a >> 5 & 1;
        size_t region = c.a % (region_count + 1), at, unit = c.b & 8 ? 4 : 8;
        if (shard >= shards)
            shard = 0;
        if (region == region_count) { /* the head: what all shards share, and the identity less often */
            at = c.b & 16 ? c.d % (512 / unit) * unit : 512 + c.d % (1024 / unit) * unit;
        } else {
            unit = region == state_region ? 1 : region == queue_region ? 4 : unit;
            if (region == slot_region && !(c.b & 4)) { /* a slot in use */
                uint32_t left = c.d % 64;
                for (at = regions[shard][slot_region].at;
                     at < regions[shard][slot_region].at + regions[shard][slot_region].size - 16; at += 16)
                    if (get32(index + at) != 0 && left-- == 0)
                        break;
                at += c.b & 2 ? 8 : 0;
            } else {
                at = regions[shard][region].at + c.d % (regions[shard][region].size / unit) * unit;
            }
        }
        if (at + 8 > index_size)
            continue;
        uint64_t word = get64(index + at), value = c.e;
        switch (c.code % 5) {
        case 0: break;
        case 1: value = word + c.e; break;
        case 2: value = word ^ c.e; break;
        case 3: value = word ^ UINT64_C(1) << c.e % (unit * 8); break;
        case 4: value = get64(index + (at + c.e % 64 * 8 + 8 <= index_size ? at + c.e % 64 * 8 : at)); break;
        }
        memcpy(index + at, &value, unit);
    }

    int descriptor = lowest_descriptor();
    write_image(&t->data, t->data_size);
    int fd = scratch_open("shale.index", O_RDWR | O_CREAT | O_TRUNC);
    struct stat own, other;
    int data_fd = scratch_open("shale.data", O_RDONLY);
    fstat(fd, &own);
    fstat(data_fd, &other);
    uint64_t data_birth = birth_of(data_fd), data_changed = change_of(data_fd);
    close(data_fd);
    if (!(c.b & 128)) {
        set64(index + 48, own.st_dev), set64(index + 56, own.st_ino);
        set64(index + 64, other.st_dev), set64(index + 72, other.st_ino);
        set64(index + 120, birth_of(fd)), set64(index + 128, data_birth), set64(index + 144, data_changed);
    }
    if (ftruncate(fd, (off_t)t->index_size) < 0)
        FAIL("ftruncate: %s", strerror(errno));
    for (int i = 0; i < t->part_count; i++)
        write_all(fd, index + t->parts[i].at, t->parts[i].size, t->parts[i].at);
    close(fd);

    exercise_file(&first, true);
    expect_nothing_left(descriptor);
    return 0;
}
