/* A power cut brings back pinned entries whose removal was not on the disk yet, beside those that were pinned since:
 * together more than may be pinned. The test makes such caches: it removes pinned entries, pins others in their
 * place, erases the tombstones from the data file, and lets the index be rebuilt.
 *
 * space.md, "Pinned entries", has the promises. No pinned entry is lost meanwhile.
 *
 * returned_pins [seed] */
#include "afterwards.h"
#include "files.h"
#include "pattern.h"
#include "usage.h"

enum { most_keys = 40000, segment = 128 << 10, largest_key = 60000 };
static const uint64_t room = segment - segment_header_bytes - record_header_bytes; /* of a segment, for records */

typedef struct {
    uint64_t capacity;
    size_t value, meta; /* of pinned entries, at most */
    bool in_pairs; /* two fill a segment, and two others seldom fit one: moving them loses most */
} history;

static const history *now;
static shale_cache *cache;
static char *directory;
static random_source source;
static uint64_t seed;
static unsigned char bytes[400000];

/* The pinned entries, by the number of the key; size 0: none. */
static struct {
    uint32_t size, meta;
} pins[most_keys];

static uint64_t most_over; /* bytes above the capacity, and how many the loss allows */
static uint64_t loss_bytes;

static bool has_tag(uint32_t number) {
    return number % 3 == 0;
}

static shale_status set(const char *kind, uint32_t number, size_t size, size_t meta, uint32_t flags) {
    static const shale_bytes tag = {"a third", 7};
    char key[32];
    snprintf(key, sizeof key, "%s %u", kind, number);
    pattern_fill(bytes, number, 0, size);
    shale_set_options options = {.struct_size = sizeof options,
                                 .flags = flags | SHALE_SET_UNCOMPRESSED,
                                 .meta = bytes,
                                 .meta_size = meta,
                                 .tags = &tag,
                                 .tag_count = has_tag(number)};
    return shale_set(cache, key, strlen(key), bytes, size, &options);
}

static shale_status get(const char *kind, uint32_t number, shale_value *value) {
    char key[32];
    snprintf(key, sizeof key, "%s %u", kind, number);
    return shale_get(cache, key, strlen(key), SHALE_GET_PEEK, value);
}

static shale_status remove_key(const char *kind, uint32_t number) {
    char key[32];
    snprintf(key, sizeof key, "%s %u", kind, number);
    return shale_remove(cache, key, strlen(key), 0);
}

static shale_status open_cache(uint64_t capacity) {
    shale_options options = {.struct_size = sizeof options,
                             .capacity = capacity,
                             .shards = 1,
                             .segment_size = segment,
                             .compression = SHALE_COMPRESSION_NONE,
                             .flags = SHALE_OPEN_NO_SYNC};
    return shale_open(directory, &options, &cache);
}

static void close_cache(void) {
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    cache = NULL;
}

/* ---- what the power cut leaves -------------------------------------------------------------------------------- */

/* Erases the tombstones, as if their pages had never been written. Returns how many there were. */
static unsigned erase_tombstones(void) {
    mapped_file file = map_file(directory, "shale.data");
    unsigned char *data = file.bytes;
    layout l = layout_of(data);
    uint64_t secret = word_at(data + 24) ? word_at(data + 24) : word_at(data + super_copy + 24);
    unsigned erased = 0;
    for (uint64_t base = l.segments; base + segment <= file.size; base += segment) {
        uint64_t number = word_at(data + base + segment_number);
        if (word_at(data + base) != SEGMENT_MAGIC)
            continue;
        for (uint64_t at = segment_header_bytes; at + record_header_bytes <= segment;) {
            record_view r = record_at(data, base + at);
            if (r.kind == 0 || at + r.length > segment ||
                half_at(data + r.offset + 16) != head_check_of(data, &r, number, r.offset, secret))
                break;
            if (r.kind == record_tombstone) {
                memset(data + r.offset, 0, r.length);
                erased++;
            }
            at += r.length;
        }
    }
    unmap_file(&file);
    return erased;
}

/* ---- checks after every step ------------------------------------------------------------------------------ */

static void check_space(const char *when) {
    uint64_t used = disk_usage(directory), over = used > now->capacity ? used - now->capacity : 0;
    if (over > most_over)
        most_over = over;
    check_that(over <= loss_bytes, __FILE__, __LINE__, when, ": %" PRIu64 " bytes of %" PRIu64 ", the loss is %" PRIu64,
               used, now->capacity, loss_bytes);
}

static void check_pins(const char *when) {
    shale_value value = SHALE_VALUE_INIT;
    unsigned missing = 0, wrong = 0;
    for (uint32_t i = 0; i < most_keys; i++) {
        if (pins[i].size == 0)
            continue;
        shale_status status = get("pinned", i, &value);
        pattern_fill(bytes, i, 0, pins[i].size);
        missing += status != SHALE_OK;
        wrong += status == SHALE_OK && (!holds_bytes(&value, bytes, pins[i].size) || value.meta_size != pins[i].meta ||
                                        !(value.flags & SHALE_VALUE_PINNED));
    }
    check_that(missing + wrong == 0, __FILE__, __LINE__, when, ": %u pinned entries are missing, and %u wrong", missing,
               wrong);
    shale_value_free(&value);
}

/* What pinned entries take, and what moving them may lose: space.md, "Pinned entries". */
static void find_loss(void) {
    uint64_t pinned = 0, longest = 0;
    for (uint32_t i = 0; i < most_keys; i++) {
        char key[32];
        if (pins[i].size == 0)
            continue;
        uint64_t length = round_up(record_header_bytes + 8 * has_tag(i) +
                                       (uint64_t)snprintf(key, sizeof key, "pinned %u", i) + pins[i].meta +
                                       pins[i].size,
                                   8);
        pinned += length;
        longest = larger(longest, length);
    }
    uint64_t least = room - (longest < room / 2 ? longest : room / 2);
    loss_bytes = (pinned * (room - least) + room * least - 1) / (room * least) * segment;
}

/* Laps of the log with calls that always find room; removals of absent keys are as long as half a segment. */
static void check_goes_on(const char *when) {
    static char key[largest_key];
    unsigned before = check_failures;
    uint64_t rounds = 4 * now->capacity / sizeof key;
    memset(key, 'k', sizeof key);
    for (uint64_t i = 0; i < rounds && check_failures == before; i++) {
        char tag[32];
        snprintf(tag, sizeof tag, "tag %" PRIu64, i % 100);
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, tag, strlen(tag)));
        CHECK(remove_key("other", (uint32_t)random_below(&source, most_keys)) >= 0);
        CHECK(shale_remove(cache, key, sizeof key - i % 1000, 0) >= 0);
        check_space(when);
    }
    check_pins(when);
}

/* A process killed there leaves it so that the next one can continue. */
static void check_kills(void) {
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            watch(patience);
            for (uint64_t n = 0;; n++)
                if (remove_key("it was never set", (uint32_t)n) < 0 || shale_invalidate(cache, &n, 1 + n % 8) < 0)
                    _exit(1);
        }
        sleep_us(200 + (int64_t)random_below(&source, 5000));
        kill(child, SIGKILL);
        CHECK_EQUAL(128 + SIGKILL, wait_for(child));
        check_space("after a kill");
    }
    check_goes_on("after kills");
}

/* A refusal changes nothing. */
static void check_refuses(void) {
    uint64_t before = stats_of(cache).entries;
    CHECK_STATUS(SHALE_E_FULL, set("new", 0, now->value, now->meta, SHALE_SET_PINNED));
    CHECK(strstr(shale_last_error(), "pinned") != NULL);
    CHECK_EQUAL(before, stats_of(cache).entries);
    uint32_t n = 0;
    while (pins[n].size == 0)
        n++;
    CHECK_STATUS(SHALE_E_FULL, set("pinned", n, pins[n].size, pins[n].meta, SHALE_SET_PINNED));
    check_pins("refused");
}

/* ---- more pinned entries than allowed
 * ------------------------------------------------------------------------------------ */

static void choose_sizes(uint32_t number, size_t *size, size_t *meta) {
    static size_t length;
    *size = now->value / 2 + random_below(&source, now->value / 2);
    *meta = now->meta ? now->meta / 2 + random_below(&source, now->meta / 2) : 0;
    if (!now->in_pairs)
        return;
    length = number % 2 ? room - length : room / 2 - 8000 + random_below(&source, 16000) / 8 * 8;
    *meta = length - record_header_bytes - 28 - *size; /* a tag, a key of up to 12 bytes, and up to 8 of padding */
}

static uint64_t tail_number(void) {
    mapped_file index = map_file(directory, "shale.index");
    uint64_t number = word_at(index.bytes + index_head_bytes + shard_tail_number);
    unmap_file(&index);
    return number;
}

/* Pins entries from number `first` on, until one is refused or a segment leaves the log. Returns the end. */
static uint32_t pin_from(uint32_t first) {
    for (uint32_t i = first; i < most_keys; i++) {
        size_t size, meta;
        choose_sizes(i, &size, &meta);
        shale_status status = set("pinned", i, size, meta, SHALE_SET_PINNED);
        REQUIRE(status == SHALE_OK || status == SHALE_E_FULL);
        if (status == SHALE_E_FULL)
            return i;
        pins[i].size = (uint32_t)size, pins[i].meta = (uint32_t)meta;
        if (tail_number() > 1)
            return i + 1;
    }
    return most_keys;
}

/* Leaves the cache open. Returns how many entries are pinned. */
static unsigned make_jam(void) {
    REQUIRE_STATUS(SHALE_OK, open_cache(now->capacity));
    uint32_t removed = 0, end = pin_from(0);
    while (tail_number() == 1) {
        for (; removed < end; removed++)
            CHECK_STATUS(SHALE_OK, remove_key("pinned", removed));
        end = pin_from(end);
    }
    close_cache();
    CHECK_EQUAL(removed, erase_tombstones());
    remove_index(directory);
    REQUIRE_STATUS(SHALE_OK, open_cache(0));

    /* The first of them have left the log. */
    shale_value value = SHALE_VALUE_INIT;
    uint32_t missing = 0;
    while (missing < removed && get("pinned", missing, &value) == SHALE_MISS)
        pins[missing++].size = 0;
    shale_value_free(&value);
    CHECK(missing < removed / 4);
    find_loss();
    return end - missing;
}

static void run_history(const history *which) {
    now = which;
    source.state = seed;
    most_over = 0;
    memset(pins, 0, sizeof pins);
    directory = path_to("jammed");
    unsigned failures = check_failures, pinned = make_jam();
    check_space("opened");
    check_pins("opened");
    check_refuses();
    check_goes_on("opened");
    check_refuses();
    check_kills();
    close_cache();
    REQUIRE_STATUS(SHALE_OK, open_cache(0));
    check_goes_on("opened again");
    close_cache();
    remove_index(directory);
    REQUIRE_STATUS(SHALE_OK, open_cache(0));
    check_goes_on("index rebuilt again");

    /* A third is invalidated, the others are removed or become ordinary entries. None of these calls is refused, and
     * those that are still pinned stay. */
    CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "a third", 7));
    for (uint32_t i = 0; i < most_keys; i += 3)
        pins[i].size = 0;
    check_pins("after an invalidation");
    for (uint32_t i = 0; i < most_keys; i++) {
        if (pins[i].size == 0)
            continue;
        CHECK_STATUS(SHALE_OK, i % 3 == 1 ? remove_key("pinned", i) : set("pinned", i, pins[i].size, pins[i].meta, 0));
        pins[i].size = 0;
        check_space("while entries are unpinned");
        if (i % 64 == 0)
            check_pins("while entries are unpinned");
    }
    /* The cache then works like any other. */
    for (uint32_t i = 0; i < 3000; i++)
        CHECK_STATUS(SHALE_OK, set("other", i, 1000, 0, 0));
    CHECK_STATUS(SHALE_OK, set("new", 0, now->value, now->meta, SHALE_SET_PINNED));
    check_afterwards(cache, directory, "unpinned");
    close_cache();
    printf("%" PRIu64 " MiB, %u entries pinned with values up to %zu and metas up to %zu: %" PRIu64
           " bytes over the capacity, %" PRIu64 " are the loss\n",
           now->capacity >> 20, pinned, now->value, now->meta, most_over, loss_bytes);
    if (check_failures != failures)
        fprintf(stderr, "  in a cache of %" PRIu64 " MiB with values up to %zu and metas up to %zu\n",
                now->capacity >> 20, now->value, now->meta);
    remove_tree(directory);
    free(directory);
}

static void test_more_pins_than_may_be(void) {
    static const history histories[] = {
        {.capacity = 2 << 20, .value = 1000},
        {.capacity = 2 << 20, .value = 16000},
        {.capacity = 4 << 20, .value = 2000, .meta = 60000},
        {.capacity = 16 << 20, .value = 16000, .meta = 30000},
        {.capacity = 4 << 20, .value = 16000, .in_pairs = true},
        {.capacity = 16 << 20, .value = 16000, .in_pairs = true},
    };
    for (size_t i = 0; i < sizeof histories / sizeof *histories; i++)
        run_history(&histories[i]);
}

/* Where many small ones fill the table, the cache's secret decides whether there is a slot for each: one rebuild in
 * some sixty had none. */
static void test_small_pins_fill_the_table(void) {
    static const history small = {.capacity = 2 << 20, .value = 1000};
    now = &small;
    source.state = seed;
    directory = path_to("jammed");
    for (int i = 0; i < 60; i++) {
        memset(pins, 0, sizeof pins);
        make_jam();
        check_pins("opened");
        close_cache();
        remove_tree(directory);
    }
    free(directory);
}

int main(int argument_count, char **arguments) {
    seed = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 1;
    watch(patience);
    RUN(test_more_pins_than_may_be);
    RUN(test_small_pins_fill_the_table);
    return finish();
}
