/* Pinned entries stay, and the cache works whatever is pinned: no accepted entry is lost, a refusal changes nothing,
 * and calls that need no room of their own always succeed. */
#include "afterwards.h"
#include "files.h"
#include "pattern.h"

enum { most_pins = 20000 };

typedef struct {
    uint64_t capacity;
    uint32_t shards, segment_size;
    size_t pinned_size, other_size; /* values, at most */
    size_t meta_size;               /* of a pinned entry, at most */
    size_t other_meta;              /* of another entry, at most */
    unsigned every;                 /* one set for this many pins */
} history;

static const history *now;
static shale_cache *cache;
static random_source source;
static unsigned char bytes[2 << 20];

/* A pinned entry: a key's number and the sizes of its value and meta. */
static struct {
    uint32_t size, meta;
} pins[most_pins];
static uint32_t pin_count, other_count;

static uint32_t size_up_to(size_t most) {
    return (uint32_t)(most / 2 + random_below(&source, most - most / 2 + 1));
}

static shale_status set_pinned(uint32_t number, uint32_t size, uint32_t meta, uint32_t flags) {
    char key[32];
    snprintf(key, sizeof key, "pinned %u", number);
    pattern_fill(bytes, number, 0, size);
    const char *name = "a tag";
    shale_bytes tag = {name, strlen(name)};
    shale_set_options options = {.struct_size = sizeof options,
                                 .flags = flags | SHALE_SET_UNCOMPRESSED,
                                 .meta = bytes,
                                 .meta_size = meta,
                                 .tags = &tag,
                                 .tag_count = number % 3 == 0};
    return shale_set(cache, key, strlen(key), bytes, size, &options);
}

static shale_status set_other(uint32_t number, uint32_t size) {
    char key[32];
    snprintf(key, sizeof key, "other %u", number);
    pattern_fill(bytes, number, 0, size);
    shale_set_options options = {.struct_size = sizeof options,
                                 .flags = SHALE_SET_UNCOMPRESSED,
                                 .meta = bytes,
                                 .meta_size = now->other_meta ? random_below(&source, now->other_meta) : 0};
    return shale_set(cache, key, strlen(key), bytes, size, &options);
}

static bool is_there(const char *key) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = shale_get(cache, key, strlen(key), 0, &value);
    shale_value_free(&value);
    return status == SHALE_OK;
}

static void check_pins(const char *when) {
    shale_value value = SHALE_VALUE_INIT;
    unsigned missing = 0, wrong = 0;
    for (uint32_t i = 0; i < pin_count; i++) {
        char key[32];
        snprintf(key, sizeof key, "pinned %u", i);
        shale_status status = shale_get(cache, key, strlen(key), SHALE_GET_PEEK, &value);
        pattern_fill(bytes, i, 0, pins[i].size);
        missing += status != SHALE_OK;
        wrong += status == SHALE_OK && (!holds_bytes(&value, bytes, pins[i].size) || value.meta_size != pins[i].meta ||
                                        !(value.flags & SHALE_VALUE_PINNED));
    }
    check_that(missing + wrong == 0, __FILE__, __LINE__, when, ": of %u pinned entries %u are missing and %u wrong",
               pin_count, missing, wrong);
    shale_value_free(&value);
}

/* Pins until several pins are refused: then a few must have been accepted, and nothing else have happened. */
static void fill(void) {
    unsigned refused = 0;
    for (uint32_t i = 0; refused < 20 && i < 40000 && pin_count < most_pins; i++) {
        if (i % now->every != 0) {
            CHECK_STATUS(SHALE_OK, set_other(other_count++ % 50000, size_up_to(now->other_size)));
            continue;
        }
        uint32_t size = size_up_to(now->pinned_size), meta = now->meta_size ? size_up_to(now->meta_size) : 0;
        shale_stats before = stats_of(cache);
        shale_status status = set_pinned(pin_count, size, meta, SHALE_SET_PINNED);
        if (status == SHALE_OK) {
            pins[pin_count].size = size;
            pins[pin_count++].meta = meta;
            continue;
        }
        CHECK_STATUS(SHALE_E_FULL, status);
        refused++;
        shale_stats after = stats_of(cache);
        CHECK_EQUAL(before.entries, after.entries);
        CHECK_EQUAL(before.evictions, after.evictions);
        CHECK_EQUAL(before.live_bytes, after.live_bytes);
        CHECK(strstr(shale_last_error(), "pinned") != NULL);
    }
    CHECK(refused == 20);
}

/* Calls that take no lasting room, whatever is pinned. */
static void check_goes_on(const char *when) {
    unsigned before = check_failures;
    char key[60000];
    memset(key, 'k', sizeof key);
    for (uint32_t i = 0; i < 300; i++) {
        char tag[32];
        snprintf(tag, sizeof tag, "tag %u", i);
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, tag, strlen(tag)));
        /* Of a key that may still be in the log: a tombstone. */
        snprintf(key, sizeof key, "other %u", (unsigned)random_below(&source, 50000));
        CHECK(shale_remove(cache, key, strlen(key), 0) >= 0);
        memset(key, 'k', 32);
        if (i % 10 == 0)
            CHECK(shale_remove(cache, key, sizeof key - i, 0) >= 0);
    }
    check_pins(when);
    if (check_failures != before)
        fprintf(stderr, "  %s\n", when);
}

static void check_takes_others(const char *when) {
    unsigned before = check_failures;
    int64_t sum = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        CHECK_STATUS(SHALE_OK, set_other(other_count++ % 50000, 100));
        CHECK_STATUS(SHALE_OK, shale_increment(cache, "sum", 3, 1, 0, &sum));
        CHECK_STATUS(SHALE_OK, shale_touch(cache, "sum", 3, 1000000));
    }
    check_pins(when);
    if (check_failures != before)
        fprintf(stderr, "  %s\n", when);
}

static void open_again(const char *directory) {
    shale_options options = {.struct_size = sizeof options};
    if (cache)
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    options.capacity = now->capacity, options.shards = now->shards, options.segment_size = now->segment_size;
    options.compression = SHALE_COMPRESSION_NONE;
    options.flags = SHALE_OPEN_NO_SYNC;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
}

/* Every other pinned entry becomes an ordinary one, the others are removed: each of these calls succeeds. */
static void check_unpins(void) {
    for (uint32_t i = 0; i < pin_count; i++) {
        char key[32];
        snprintf(key, sizeof key, "pinned %u", i);
        CHECK_STATUS(SHALE_OK,
                     i % 2 ? shale_remove(cache, key, strlen(key), 0) : set_pinned(i, pins[i].size, pins[i].meta, 0));
    }
    uint32_t count = pin_count;
    pin_count = 0;
    for (; pin_count < count / 2; pin_count++) {
        pins[pin_count].size = size_up_to(now->pinned_size), pins[pin_count].meta = 0;
        CHECK_STATUS(SHALE_OK, set_pinned(pin_count, pins[pin_count].size, 0, SHALE_SET_PINNED));
    }
    check_pins("pinned again");
}

static void run_history(const history *which) {
    now = which;
    unsigned before = check_failures;
    pin_count = other_count = 0;
    cache = NULL;
    source.state = 1;
    char *directory = path_to("pins");
    open_again(directory);
    fill();
    uint64_t pinned_bytes = 0;
    for (uint32_t i = 0; i < pin_count; i++)
        pinned_bytes += pins[i].size + pins[i].meta;
    printf("%u MiB, pins of %zu and meta of %zu: %u pinned, %.0f %%\n", (unsigned)(now->capacity >> 20),
           now->pinned_size, now->meta_size, pin_count, 100.0 * (double)pinned_bytes / (double)now->capacity);
    check_goes_on("filled");
    check_takes_others("filled");
    open_again(directory);
    check_goes_on("opened again");
    check_takes_others("opened again");
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    remove_index(directory);
    cache = NULL;
    open_again(directory);
    check_goes_on("index rebuilt");
    fill();
    check_goes_on("filled again");
    check_unpins();
    check_afterwards(cache, directory, "pinned again");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    if (check_failures != before)
        fprintf(stderr, "  in a cache of %u MiB with pins of %zu\n", (unsigned)(now->capacity >> 20), now->pinned_size);
    remove_tree(directory);
    free(directory);
}

static void test_pins_never_jam_a_shard(void) {
    static const history histories[] = {
        {.capacity = 64 << 20, .pinned_size = 100000, .other_size = 130000, .every = 2},
        {.capacity = 4 << 20, .pinned_size = 1000, .meta_size = 60000, .other_size = 16000, .every = 3},
        {.capacity = 16 << 20, .pinned_size = 30000, .meta_size = 65000, .other_size = 40000, .every = 2},
        {.capacity = 2 << 20, .pinned_size = 4000, .other_size = 16000, .every = 2},
        {.capacity = 1 << 20, .pinned_size = 16000, .meta_size = 65000, .other_size = 16000, .every = 3},
        {.capacity = 8 << 20, .shards = 4, .pinned_size = 9000, .other_size = 14000, .every = 2},
    };
    for (size_t i = 0; i < sizeof histories / sizeof *histories; i++)
        run_history(&histories[i]);
}

/* Their parts are pinned as well: later writes take none of them. */
static void test_pinned_large_values_stay(void) {
    static const history full = {.capacity = 8 << 20, .shards = 1, .segment_size = 128 << 10, .other_meta = 64000};
    now = &full;
    pin_count = 0;
    cache = NULL;
    const uint32_t size = 100000;
    char *directory = path_to("large");
    open_again(directory);
    for (; pin_count < 18; pin_count++) {
        pins[pin_count].size = size, pins[pin_count].meta = 0;
        CHECK_STATUS(SHALE_OK, set_pinned(pin_count, size, 0, SHALE_SET_PINNED));
    }
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 6000; i++)
            CHECK_STATUS(SHALE_OK, set_other(i, (uint32_t)random_below(&source, 15000)));
        check_pins(round ? "after the index was rebuilt" : "beside many others");
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        cache = NULL;
        remove_index(directory);
        open_again(directory);
    }
    for (uint32_t i = 0; i < pin_count; i++)
        CHECK_STATUS(SHALE_OK, set_pinned(i, size, 0, 0));
    for (uint32_t i = 0; i < 6000; i++)
        CHECK_STATUS(SHALE_OK, set_other(i, (uint32_t)random_below(&source, 15000)));
    CHECK(!is_there("pinned 0"));
    check_afterwards(cache, directory, "unpinned");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

static shale_status set_large(const char *key, size_t size, uint32_t flags, uint64_t version, uint64_t *new_version) {
    shale_set_options options = {.struct_size = sizeof options,
                                 .flags = flags | SHALE_SET_UNCOMPRESSED,
                                 .version = version,
                                 .new_version = new_version};
    return shale_set(cache, key, strlen(key), bytes, size, &options);
}

/* A large value whose condition does not hold evicts nothing, and one whose condition holds replaces its entry. */
static void test_a_condition_comes_first(void) {
    static const history small = {.capacity = 4 << 20, .segment_size = 128 << 10};
    now = &small;
    cache = NULL;
    char *directory = path_to("conditions");
    open_again(directory);
    uint64_t version = 0;
    CHECK_STATUS(SHALE_OK, set_large("large", 1 << 20, 0, 0, &version));
    for (uint32_t i = 0; i < 4000; i++)
        CHECK_STATUS(SHALE_OK, set_other(i, 1000 - i % 2)), CHECK(i % 50 || is_there("large"));
    shale_stats before = stats_of(cache);
    CHECK_STATUS(SHALE_CONFLICT, set_large("large", 1 << 20, SHALE_SET_IF_ABSENT, 0, NULL));
    CHECK_STATUS(SHALE_CONFLICT, set_large("absent", 1 << 20, SHALE_SET_IF_PRESENT, 0, NULL));
    CHECK_STATUS(SHALE_CONFLICT, set_large("large", 1 << 20, SHALE_SET_IF_VERSION, version + 1, NULL));
    shale_stats after = stats_of(cache);
    CHECK_EQUAL(before.evictions, after.evictions);
    CHECK_EQUAL(before.entries, after.entries);
    /* The entry itself is the oldest of all, and the parts of its replacement need room. */
    for (int i = 0; i < 4; i++) {
        for (uint32_t n = 0; n < 300; n++)
            CHECK_STATUS(SHALE_OK, set_other(n, 100));
        CHECK_STATUS(SHALE_OK, set_large("large", 1 << 20, i % 2 ? SHALE_SET_IF_PRESENT : SHALE_SET_IF_VERSION, version,
                                         &version));
        CHECK_STATUS(SHALE_CONFLICT, set_large("large", 1 << 20, SHALE_SET_IF_ABSENT, 0, NULL));
    }
    check_afterwards(cache, directory, "after conditions");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

/* With a new index, whose table is larger than the one beside which they were admitted, and with a smaller capacity,
 * the pinned entries can be set again, and a byte more. */
static shale_status put_number(uint32_t number, size_t size, uint32_t flags) {
    shale_set_options options = {.struct_size = sizeof options, .flags = flags | SHALE_SET_UNCOMPRESSED};
    return shale_set(cache, &number, sizeof number, bytes, size, &options);
}
static void set_all_again(uint32_t count, size_t size, uint64_t capacity) {
    uint32_t refused = 0, missing = 0;
    shale_value value = SHALE_VALUE_INIT;
    for (uint32_t i = 0; i < count; i++) {
        missing += shale_get(cache, &i, sizeof i, SHALE_GET_INFO, &value) != SHALE_OK;
        refused += put_number(i, size, SHALE_SET_PINNED) != SHALE_OK;
    }
    shale_value_free(&value);
    for (uint32_t i = 0; i < 100; i++)
        refused += put_number(count + i, 1, 0) != SHALE_OK;
    if (!CHECK_EQUAL(0, refused) | !CHECK_EQUAL(0, missing))
        fprintf(stderr, "  %" PRIu64 " bytes, pins of %zu\n", capacity, size);
}
static void test_full_of_pins(void) {
    static const struct {
        uint64_t capacity;
        size_t size;
    } cases[] = {{1 << 20, 203}, {1 << 20, 800}, {1148576, 20}, {1323576, 203},
                 {3298576, 813}, {3448576, 20},  {5 << 20, 100}};
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        uint64_t capacity = cases[i / 2].capacity;
        size_t size = cases[i / 2].size;
        char *directory = path_to("full of pins");
        cache = require_open(directory,
                             (shale_options){.capacity = capacity, .shards = 1, .eviction = (int32_t)(i % 2)});
        uint32_t count = 0;
        while (put_number(count, size, SHALE_SET_PINNED) == SHALE_OK)
            count++;
        /* A touch takes no slot. (Where bytes are the limit, its record has no room either.) */
        uint32_t first = 0;
        if (capacity == 1148576)
            CHECK_STATUS(SHALE_OK, shale_touch(cache, &first, sizeof first, SHALE_NEVER));
        set_all_again(count, size, capacity);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_index(directory);
        cache = require_open(directory, (shale_options){0});
        set_all_again(count, size, capacity);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(directory);
        free(directory);
    }
}
static void test_smaller_and_smaller(void) {
    static const struct {
        uint32_t count;
        size_t size;
    } cases[] = {{4000, 100}, {3000, 203}, {500, 1500}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t count = cases[i].count;
        size_t size = cases[i].size;
        char *directory = path_to("smaller");
        uint64_t capacity = 2 << 20;
        unsigned accepted = 0;
        cache = require_open(directory, (shale_options){.capacity = capacity, .shards = 1});
        for (uint32_t n = 0; n < count; n++)
            CHECK_STATUS(SHALE_OK, put_number(n, size, SHALE_SET_PINNED));
        for (uint32_t n = 0; n < 1000; n++)
            CHECK_STATUS(SHALE_OK, put_number(10000 + n, 0, 0));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        for (; capacity > 1 << 20; capacity -= 5000) {
            shale_options options = {.struct_size = sizeof options, .capacity = capacity};
            if (shale_open(directory, &options, &cache) != SHALE_OK)
                break;
            accepted++;
            set_all_again(count, size, capacity);
            CHECK_STATUS(SHALE_OK, shale_close(cache));
        }
        CHECK(accepted > 50);
        remove_tree(directory);
        free(directory);
    }
}

/* Large values are in one of eight shards: a shard without room for both values beside its pins spreads the new one
 * over all. So more than a third of the capacity can be pinned, although each third pin replaces a value that is not
 * pinned. */
static void test_pins_that_replace(void) {
    static char noise[190 << 10];
    random_source source = {3};
    for (size_t i = 0; i + 8 <= sizeof noise; i += 8) {
        uint64_t word = random_next(&source);
        memcpy(noise + i, &word, 8);
    }
    enum { rounds = 10 };
    size_t all = 0;
    for (int round = 0; round < rounds; round++) {
        cache = require_open(NULL, (shale_options){.capacity = 24 << 20, .shards = 8, .segment_size = 128 << 10});
        uint32_t small = 1 << 20, pinned = 0;
        for (; small < (1 << 20) + 140000; small++)
            CHECK_STATUS(SHALE_OK, put_number(small, 40, 0));
        for (shale_status status = SHALE_OK; status == SHALE_OK; pinned++) {
            if (pinned % 3 == 0)
                CHECK_STATUS(SHALE_OK, shale_set(cache, &pinned, sizeof pinned, noise, sizeof noise / 2, NULL));
            shale_set_options how = {.struct_size = sizeof how, .flags = SHALE_SET_PINNED};
            status = shale_set(cache, &pinned, sizeof pinned, noise, sizeof noise, &how);
            for (uint32_t end = small + 300; small < end; small++)
                CHECK_STATUS(SHALE_OK, put_number(small, 40, 0));
        }
        all += (pinned - 1) * sizeof noise;
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    /* (The secret decides which shard a key is in: of 120 rounds the worst had 34 % pinned, and all in the mean 44
     * %.) */
    check_that(all / rounds > 9 << 20, __FILE__, __LINE__, "refused too early", ": %zu bytes pinned in the mean",
               all / rounds);
}

/* One small pin makes no set dearer: the bytes copied for each stored byte are as many as without it, and a half at
 * most. */
static double copied_for_each_byte(bool is_pinned, int32_t policy) {
    enum { sets = 50000, size = 100 };
    cache = require_open(NULL, (shale_options){.capacity = 1 << 20, .shards = 1, .eviction = policy});
    if (is_pinned)
        CHECK_STATUS(SHALE_OK, put_number(UINT32_MAX, 1, SHALE_SET_PINNED));
    random_source keys = {7};
    for (uint32_t i = 0; i < sets; i++)
        CHECK_STATUS(SHALE_OK, put_number((uint32_t)random_below(&keys, 20000), size, 0));
    double copied = (double)stats_of(cache).cleaned_bytes / (sets * size);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return copied;
}
static void test_cost_of_a_pin(void) {
    for (int32_t policy = 0; policy < 2; policy++)
        CHECK(copied_for_each_byte(true, policy) <= copied_for_each_byte(false, policy) * 1.5 + 0.5);
}

int main(void) {
    watch(patience);
    RUN(test_full_of_pins);
    RUN(test_smaller_and_smaller);
    RUN(test_pins_that_replace);
    RUN(test_cost_of_a_pin);
    RUN(test_pinned_large_values_stay);
    RUN(test_a_condition_comes_first);
    RUN(test_pins_never_jam_a_shard);
    return finish();
}
