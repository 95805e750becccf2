/* An older library pinned more than today's rule admits, and pinned of a large value the manifest alone. Such caches
 * are made here: entries that are not pinned fill the cache, then their records are marked in the data file, with the
 * head check that format.md gives, and the index is made anew from them.
 *
 * What is promised of them is in space.md, "Pinned entries". And nothing that is pinned is gone meanwhile.
 *
 * older_pins [seed] */
#include "afterwards.h"
#include "excuses.h"
#include "files.h"
#include "pattern.h"
#include "usage.h"

enum { most_keys = 40000, segment = 128 << 10, largest_key = 60000 };
static const uint64_t room = segment - segment_header_bytes - record_header_bytes; /* of a segment, for records */

typedef struct {
    uint64_t capacity;
    size_t value, meta; /* of what is pinned, at most */
    unsigned of_ten; /* so many of ten entries are pinned */
    bool in_pairs; /* two fill a segment, and two others seldom fit one: moving them loses most */
} history;

static const history *now;
static shale_cache *cache;
static char *directory;
static random_source source;
static uint64_t seed;
static unsigned char bytes[400000];

/* What is pinned, by the number of its key; size 0: nothing. */
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

/* ---- the older library's work ---------------------------------------------------------------------------------- */

/* Marks the records of a kind whose keys begin so. Returns how many there are. */
static unsigned pin_records(enum record_kind kind, const char *begin) {
    mapped_file file = map_file(directory, "shale.data");
    unsigned char *data = file.bytes;
    layout l = layout_of(data);
    uint64_t secret = word_at(data + 24) ? word_at(data + 24) : word_at(data + super_copy + 24);
    unsigned marked = 0;
    for (uint64_t base = l.segments; base + segment <= file.size; base += segment) {
        uint64_t number = word_at(data + base + segment_number);
        if (word_at(data + base) != SEGMENT_MAGIC)
            continue;
        for (uint64_t at = segment_header_bytes; at + record_header_bytes <= segment;) {
            record_view r = record_at(data, base + at);
            if (r.kind == 0 || at + r.length > segment ||
                half_at(data + r.offset + 16) != head_check_of(data, &r, number, r.offset, secret))
                break;
            if (r.kind == kind && r.key_size > strlen(begin) && memcmp(data + r.key, begin, strlen(begin)) == 0) {
                data[r.offset + 21] |= 0x10;
                uint32_t check = head_check_of(data, &r, number, r.offset, secret);
                memcpy(data + r.offset + 16, &check, 4);
                marked++;
            }
            at += r.length;
        }
    }
    unmap_file(&file);
    return marked;
}

/* ---- what is looked at all the time ------------------------------------------------------------------------------ */

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

/* Laps of the log with what always finds room; removals of keys that are not there are as long as half a segment. */
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

/* Whoever is killed there leaves it so that the next one goes on. */
static void check_kills(void) {
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            watch(60);
            for (uint64_t n = 0;; n++)
                if (remove_key("nobody has set it", (uint32_t)n) < 0 || shale_invalidate(cache, &n, 1 + n % 8) < 0)
                    _exit(1);
        }
        sleep_us(200 + (int64_t)random_below(&source, 5000));
        kill(child, SIGKILL);
        CHECK_EQUAL(128 + SIGKILL, wait_for(child));
        check_space("after a kill");
    }
    check_goes_on("after kills");
}

/* What is refused changes nothing. */
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

/* ---- more is pinned than may be ------------------------------------------------------------------------------------ */

static void choose_sizes(uint32_t number, size_t *size, size_t *meta) {
    static size_t length;
    *size = now->value / 2 + random_below(&source, now->value / 2);
    *meta = now->meta ? now->meta / 2 + random_below(&source, now->meta / 2) : 0;
    if (!now->in_pairs)
        return;
    length = number % 2 ? room - length : room / 2 - 8000 + random_below(&source, 16000) / 8 * 8;
    *meta = length - record_header_bytes - 28 - *size; /* a tag, a key of up to 12 bytes, and up to 8 of padding */
}

/* As the older library filled a cache: what is to be pinned is never the one that leaves, as all of it is read before.
 * It ends where the first of it goes, or none of the others is left. */
static uint32_t fill(void) {
    shale_value value = SHALE_VALUE_INIT;
    uint32_t count = 0;
    uint64_t evictions = 0;
    for (bool is_full = false; !is_full && count < most_keys; count++) {
        bool is_pinned = count % 10 < now->of_ten;
        size_t size, meta;
        choose_sizes(count, &size, &meta);
        REQUIRE_STATUS(SHALE_OK, set(is_pinned ? "pinned" : "other", count, size, meta, 0));
        if (is_pinned)
            pins[count].size = (uint32_t)size, pins[count].meta = (uint32_t)meta;
        shale_stats stats = stats_of(cache);
        if (stats.evictions == evictions)
            continue;
        evictions = stats.evictions;
        for (uint32_t i = 0; i <= count; i++)
            if (pins[i].size) {
                char key[32];
                snprintf(key, sizeof key, "pinned %u", i);
                if (get_text(cache, key, 0, &value) == SHALE_OK)
                    continue;
                is_full = true;
                CHECK(remove_key("pinned", i) >= 0); /* a rebuild does not bring it back */
                pins[i].size = 0;
            }
    }
    shale_value_free(&value);
    return count;
}

static unsigned make_jam(void) {
    REQUIRE_STATUS(SHALE_OK, open_cache(now->capacity));
    uint32_t count = fill();
    close_cache();
    CHECK(pin_records(record_value, "pinned ") > 0);
    remove_index(directory);
    unsigned pinned = 0;
    for (uint32_t i = 0; i < count; i++)
        pinned += pins[i].size != 0;
    find_loss();
    return pinned;
}

static void run_history(const history *which) {
    now = which;
    source.state = seed;
    most_over = 0;
    memset(pins, 0, sizeof pins);
    directory = path_to("jammed");
    unsigned failures = check_failures, pinned = make_jam();
    REQUIRE_STATUS(SHALE_OK, open_cache(0));
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
    check_goes_on("index made anew again");

    /* A third is invalidated, the others are removed or become entries like any other. None of these calls is refused,
     * and those that are still pinned stay. */
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
    /* It is a cache like any other then. */
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
        {.capacity = 2 << 20, .value = 1000, .of_ten = 10},
        {.capacity = 2 << 20, .value = 16000, .of_ten = 9},
        {.capacity = 4 << 20, .value = 2000, .meta = 60000, .of_ten = 9},
        {.capacity = 16 << 20, .value = 16000, .meta = 30000, .of_ten = 9},
        {.capacity = 4 << 20, .value = 16000, .of_ten = 10, .in_pairs = true},
        {.capacity = 16 << 20, .value = 16000, .of_ten = 10, .in_pairs = true},
    };
    for (size_t i = 0; i < sizeof histories / sizeof *histories; i++)
        run_history(&histories[i]);
}

/* ---- large values whose parts are not pinned ------------------------------------------------------------------------- */

static shale_status get_large(uint32_t number, size_t size) {
    shale_value value = SHALE_VALUE_INIT;
    uint64_t version;
    shale_status status = get("large", number, &value);
    if (status == SHALE_OK)
        CHECK(value.size == size && !pattern_check(value.data, value.size, number, &version));
    else
        CHECK_STATUS(SHALE_MISS, status);
    shale_value_free(&value);
    return status;
}

/* Parts that are not pinned may go: limits.md, "Order, counts and eviction". They are whole or a miss, what else is
 * pinned stays, the others find room, and each stays from when it is set again. */
static void test_large_values_without_pinned_parts(void) {
    enum { count = 20, most = 20000, least = 100 };
    static const history full = {.capacity = 8 << 20};
    now = &full;
    source.state = seed;
    memset(pins, 0, sizeof pins);
    begin_excuses();
    directory = path_to("large");
    REQUIRE_STATUS(SHALE_OK, open_cache(now->capacity));
    for (uint32_t i = 0; i < count; i++) {
        REQUIRE_STATUS(SHALE_OK, set("large", i, 200000 + i, 0, 0));
        REQUIRE_STATUS(SHALE_OK, set("pinned", i, pins[i].size = least + i, 0, 0));
    }
    close_cache();
    CHECK_EQUAL(count, pin_records(record_manifest, "large "));
    CHECK_EQUAL(count, pin_records(record_value, "pinned "));
    remove_index(directory);
    REQUIRE_STATUS(SHALE_OK, open_cache(0));
    for (uint32_t i = 0; i < count; i++)
        CHECK_STATUS(SHALE_OK, get_large(i, 200000 + i));
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < most; i++)
            CHECK_STATUS(SHALE_OK, set("other", i, 100 + random_below(&source, 2000), 0, 0));
        check_pins("beside large values");
        for (uint32_t i = 0; i < count; i++) {
            count_look(); /* (a value that was set again has no excuse: below) */
            if (get_large(i, 200000 + i) == SHALE_MISS)
                excused(0, "its parts were not pinned");
        }
        check_still_works(cache);
        /* What is not whole was dropped by who looked. */
        CHECK_EQUAL(0, check_account(directory, "beside large values").incomplete);
        close_cache();
        remove_index(directory);
        REQUIRE_STATUS(SHALE_OK, open_cache(0));
    }
    /* Fewer than that are pinned, so that all find room. */
    for (uint32_t i = 0; i < count; i++)
        CHECK_STATUS(SHALE_OK, i % 2                         ? set("large", i, 200000, 0, SHALE_SET_PINNED)
                               : remove_key("large", i) >= 0 ? SHALE_OK
                                                             : SHALE_MISS);
    for (uint32_t i = 0; i < most; i++)
        CHECK_STATUS(SHALE_OK, set("other", i, 100 + random_below(&source, 2000), 0, 0));
    for (uint32_t i = 1; i < count; i += 2)
        CHECK_STATUS(SHALE_OK, get_large(i, 200000));
    check_pins("beside large values that were set again");
    check_afterwards(cache, directory, "set again");
    close_cache();
    print_excuses();
    remove_tree(directory);
    free(directory);
}

int main(int argument_count, char **arguments) {
    seed = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 1;
    watch(170);
    RUN(test_more_pins_than_may_be);
    RUN(test_large_values_without_pinned_parts);
    return finish();
}
