/* No old value comes back: a key that was removed, or has another value, never has an earlier one, whatever is
 * killed and however the index is rebuilt.
 *
 *   - keys that were evicted, cleaned away and then removed, before the log's next segment says so;
 *   - keys that were removed, whose value and tombstone leave the log at once;
 *   - keys that were removed, or set again, after their record's key was damaged;
 *   - random sets and removals, killed at any store, or in the header of a new segment; then opened again by a
 *     process that was attached, with another capacity, or without the index.
 *
 * nothing_comes_back [runs, 60] [seed] */
#include "afterwards.h"
#include "faults.h"
#include "files.h"
#include "pattern.h"

enum { segment_size = 128 << 10, header_size = 64, most_keys = 320, most_value = 16000, lives = 40 };

static char *directory;
static random_source source, numbers; /* of the test's work; of the library: its secrets, and how far numbers go on */
static uint64_t stores_left;
static bool in_headers; /* segments are aligned to their size in memory, too */

static unsigned long long next_number(void) {
    return random_next(&numbers);
}

static void before_store(const void *at) {
    if ((!in_headers || (uintptr_t)at % segment_size < header_size) && --stores_left == 0)
        kill(getpid(), SIGKILL);
}

static int32_t policy; /* of the run's cache */
static shale_cache *open_cache(uint64_t capacity) {
    return require_open(directory, (shale_options){.capacity = capacity,
                                                   .segment_size = segment_size,
                                                   .eviction = policy,
                                                   .flags = SHALE_OPEN_NO_SYNC});
}

static void remove_file(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    unlink(path);
}

static void start_over(void) {
    remove_file("shale.data");
    remove_file("shale.index");
}

static shale_status put(shale_cache *cache, uint64_t key, uint64_t version, size_t size) {
    static unsigned char bytes[most_value];
    pattern_fill(bytes, key, version, size);
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED};
    return shale_set(cache, &key, sizeof key, bytes, size, &options);
}

/* ---- damaged, removed --------------------------------------------------------- */

/* Flips a bit after the last place in the data file that has these bytes, of a key, where the head's check covers
 * it. */
static void damage_key(const void *key, size_t size) {
    mapped_file data = map_file(directory, "shale.data");
    last_in(&data, key, size)[3] ^= 1;
    unmap_file(&data);
}

static void test_the_damaged_stay_removed(void) {
    static const char key[] = "the key of the damaged entry";
    start_over();
    pid_t child = fork();
    if (child == 0) {
        shale_cache *cache = open_cache(1 << 20);
        CHECK_STATUS(SHALE_OK, set_text(cache, key, "the first value", NULL));
        CHECK_STATUS(SHALE_OK, set_text(cache, key, "the second value", NULL));
        damage_key(key, strlen(key));
        CHECK_STATUS(SHALE_MISS, shale_remove(cache, key, strlen(key), 0));
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    remove_file("shale.index");
    shale_cache *cache = open_cache(0);
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_MISS, get_text(cache, key, 0, &value));
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    start_over();
}

/* A get, a counter, a touch and a removal find a value that was set after a damaged record of the key. */
static void test_a_set_behind_damage_is_found(void) {
    static const char key[] = "the key of the damaged entry";
    for (int way = 0; way < 3; way++) {
        start_over();
        shale_cache *cache = open_cache(1 << 20);
        CHECK_STATUS(SHALE_OK, set_text(cache, key, "the first value", NULL));
        damage_key(key, strlen(key));
        CHECK_STATUS(SHALE_OK, set_text(cache, key, "the second value", NULL));
        shale_value value = SHALE_VALUE_INIT;
        if (way == 0)
            CHECK_STATUS(SHALE_OK, shale_touch(cache, key, strlen(key), SHALE_NEVER));
        if (way < 2)
            for (int i = 0; i < 2; i++)
                CHECK(get_text(cache, key, 0, &value) == SHALE_OK && holds_bytes(&value, "the second value", 16));
        else
            CHECK_STATUS(SHALE_OK, shale_remove(cache, key, strlen(key), 0));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_file("shale.index");
        cache = open_cache(0);
        CHECK_STATUS(way < 2 ? SHALE_OK : SHALE_MISS, get_text(cache, key, 0, &value));
        shale_value_free(&value);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    start_over();
}

/* A read of a value whose meta is damaged reveals nothing of it. */
static void test_damaged_meta_is_a_miss(void) {
    start_over();
    shale_cache *cache = open_cache(1 << 20);
    shale_set_options options = {.struct_size = sizeof options, .meta = "the meta of it", .meta_size = 14};
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "the value", &options));
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", SHALE_GET_INFO, &value));
    CHECK(value.meta_size == 14 && memcmp(value.meta, "the meta of it", 14) == 0);
    damage_key("the meta of it", 14);
    CHECK_STATUS(SHALE_MISS, get_text(cache, "key", SHALE_GET_INFO, &value));
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    start_over();
}

/* ---- evicted, cleaned away, removed ------------------------------------------ */

enum { victims = 8, filler_size = 9000 };
static enum { killed, without_index, with_another_capacity, ways } way;

/* The fillers push the victims' records out of the log; how many that takes is found by trial. */
static void remove_the_evicted(uint64_t fillers, bool with_version) {
    start_over();
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        shale_cache *cache = open_cache(1 << 20);
        uint64_t versions[victims];
        for (uint64_t key = 0; key < victims; key++) {
            shale_set_options options = {.struct_size = sizeof options, .new_version = &versions[key]};
            CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, "back", 4, &options));
        }
        CHECK_STATUS(SHALE_OK, shale_evict(cache, victims, NULL));
        for (uint64_t i = 0; i < fillers; i++)
            CHECK_STATUS(SHALE_OK, put(cache, 100 + i % 20, i, filler_size));
        for (uint64_t key = 0; key < victims; key++)
            CHECK_STATUS(SHALE_MISS, shale_remove(cache, &key, sizeof key, with_version ? versions[key] : 0));
        if (check_failures == 0 && way == killed) {
            stores_left = 5;
            shim_faults.store = before_store;
            put(cache, 100, fillers, filler_size);
            _exit(1);
        }
        if (way == with_another_capacity)
            CHECK_STATUS(SHALE_OK, shale_close(cache));
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(way == killed ? 128 + SIGKILL : 0, wait_for(child));
    if (way == without_index)
        remove_file("shale.index");
    shale_cache *cache = open_cache(way == with_another_capacity ? 16 << 20 : 1 << 20);
    CHECK_STATUS(SHALE_OK, put(cache, 1000, 0, filler_size)); /* recovers */
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t key = 0; key < victims; key++)
        if (!CHECK_STATUS(SHALE_MISS, shale_get(cache, &key, sizeof key, 0, &value)))
            fprintf(stderr, "  removed after %" PRIu64 " others, way %d\n", fillers, (int)way);
    shale_value_free(&value);
    check_afterwards(cache, directory, "after a removal of evicted entries");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void test_the_evicted_stay_removed(void) {
    for (way = 0; way < ways; way++)
        for (uint64_t fillers = 0; fillers < 120 && check_failures == 0; fillers += 2)
            remove_the_evicted(fillers, fillers % 4 == 0);
}

/* ---- removed after a rebuild found it expired, and read by an earlier clock ------- */

static int64_t clock_ms;
static int64_t read_clock(void *context) {
    (void)context;
    return clock_ms;
}

static shale_cache *open_at(int64_t time_ms) {
    clock_ms = time_ms;
    return require_open(directory, (shale_options){.capacity = 1 << 20, .now_ms = read_clock});
}

static void test_the_expired_stay_removed(void) {
    const int64_t begin = 1700000000000;
    start_over();
    shale_cache *cache = open_at(begin);
    shale_set_options options = {.struct_size = sizeof options, .max_age_ms = 1000};
    REQUIRE_STATUS(SHALE_OK, shale_set(cache, "key", 3, "back", 4, &options));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    remove_index(directory);
    cache = open_at(begin + 2000);
    CHECK_STATUS(SHALE_MISS, shale_remove(cache, "key", 3, 0));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    remove_index(directory);
    cache = open_at(begin);
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_MISS, shale_get(cache, "key", 3, 0, &value));
    shale_value_free(&value);
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
}

/* ---- removed, and several segments cleaned at once ------------------------------- */

enum { segments = 8, fillers_of_a_segment = 14 };

static long refuse_space(const char *name) {
    return strcmp(name, "fallocate") == 0 ? -ENOSPC : 0;
}

/* One segment has the values, each later one a tombstone and an entry that the next one replaces. Then the disk is
 * full, and a few of them are cleaned before the next head says so. Whatever segment the kill in a header destroys,
 * it is the oldest. */
static void fill_the_disk(uint64_t kill_at) {
    start_over();
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        shale_cache *cache = open_cache(8 << 20);
        for (uint64_t key = 0; key < segments; key++)
            CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, "back", 4, NULL));
        for (uint64_t key = 0; key < segments; key++) {
            for (uint64_t i = 0; i < fillers_of_a_segment; i++)
                CHECK_STATUS(SHALE_OK, put(cache, 100 + i, key, filler_size));
            CHECK_STATUS(SHALE_OK, shale_remove(cache, &key, sizeof key, 0));
        }
        shim_faults.call = refuse_space;
        stores_left = kill_at;
        in_headers = true;
        shim_faults.store = before_store;
        for (uint64_t i = 0; check_failures == 0; i++)
            CHECK_STATUS(SHALE_OK, put(cache, 100 + i % fillers_of_a_segment, segments + i, filler_size));
        _exit(1);
    }
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
    remove_file("shale.index");
    shale_cache *cache = open_cache(0);
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t key = 0; key < segments; key++)
        if (!CHECK_STATUS(SHALE_MISS, shale_get(cache, &key, sizeof key, 0, &value)))
            fprintf(stderr, "  key %" PRIu64 " is back, killed at store %" PRIu64 " into a header\n", key, kill_at);
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void test_the_oldest_place_is_reused_first(void) {
    for (uint64_t kill_at = 1; kill_at <= 60 && check_failures == 0; kill_at++)
        fill_the_disk(kill_at);
}

/* ---- random work, killed -------------------------------------------------------- */

/* For each key the completed version and the one that was begun; 0: none. Shared by the processes. */
static struct {
    uint64_t completed[most_keys], begun[most_keys], version, keys, mean;
} *ledger;

static void work(shale_cache *cache, uint64_t operations) {
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t key = random_below(&source, ledger->keys);
        if (random_below(&source, 3) == 0) {
            ledger->begun[key] = 0;
            shale_status status = shale_remove(cache, &key, sizeof key, 0);
            CHECK_STATUS(ledger->completed[key] ? SHALE_OK : SHALE_MISS, status);
        } else {
            ledger->begun[key] = ++ledger->version;
            CHECK_STATUS(SHALE_OK, put(cache, key, ledger->version,
                                       sizeof(pattern_head) + random_below(&source, 2 * ledger->mean)));
        }
        ledger->completed[key] = ledger->begun[key];
    }
}

/* Each key is as it was completed, or as the one operation that was running would have left it. */
static void check_keys(shale_cache *cache, const char *when) {
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t key = 0; key < ledger->keys; key++) {
        uint64_t version = 0;
        shale_status status = shale_get(cache, &key, sizeof key, 0, &value);
        CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
        const char *wrong = status == SHALE_OK ? pattern_check(value.data, value.size, key, &version) : NULL;
        check_that(!wrong && (version == ledger->completed[key] || version == ledger->begun[key]), __FILE__, __LINE__,
                   when, ": key %" PRIu64 " has version %" PRIu64 ", not %" PRIu64 " nor %" PRIu64 "%s", key, version,
                   ledger->completed[key], ledger->begun[key], wrong ? wrong : "");
        ledger->completed[key] = ledger->begun[key] = version;
    }
    shale_value_free(&value);
}

static bool live(uint64_t capacity) {
    uint64_t operations = random_below(&source, 30), stores = 1 + random_below(&source, in_headers ? 40 : 300),
             go_on = random_next(&source);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        shale_cache *cache = open_cache(capacity);
        check_keys(cache, "opened");
        work(cache, operations);
        if (check_failures)
            _exit(1);
        stores_left = stores;
        shim_faults.store = before_store;
        work(cache, UINT64_MAX);
        _exit(1);
    }
    source.state = go_on;
    numbers.state = ~go_on;
    return CHECK_EQUAL(128 + SIGKILL, wait_for(child));
}

static void run(uint64_t seed) {
    policy = policy_of(seed);
    static const uint64_t capacities[] = {3 << 19, 2 << 20, 3 << 20, 12 << 20};
    source.state = seed * 0x9e3779b97f4a7c15u;
    numbers.state = ~seed;
    start_over();
    memset(ledger, 0, sizeof *ledger);
    ledger->mean = 4000 + random_below(&source, 4000);
    uint64_t capacity = capacities[random_below(&source, 3)], share = 20 + random_below(&source, 20);
    ledger->keys = (3 << 19) * share / 100 / ledger->mean;
    bool changes = random_below(&source, 2);
    for (int i = 0; i < lives && check_failures == 0; i++) {
        in_headers = random_below(&source, 4) > 0;
        if (!live(capacity))
            return;
        if (changes && random_below(&source, 3) == 0)
            capacity = capacities[random_below(&source, 4)];
        if (changes && random_below(&source, 8) == 0)
            remove_file("shale.index");
    }
    shale_cache *cache = open_cache(capacity);
    check_keys(cache, "opened at last");
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(0, stats.evictions); /* otherwise a miss would prove nothing */
    check_afterwards(cache, directory, "after kills");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

int main(int argument_count, char **arguments) {
    uint64_t runs = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 60;
    uint64_t seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL);
    prefer_memory();
    directory = path_to("cache");
    shim_faults.random = next_number;
    ledger = shared_memory(sizeof *ledger);
    if (argument_count <= 3) {
        RUN(test_the_damaged_stay_removed);
        RUN(test_a_set_behind_damage_is_found);
        RUN(test_damaged_meta_is_a_miss);
        RUN(test_the_evicted_stay_removed);
        RUN(test_the_expired_stay_removed);
        RUN(test_the_oldest_place_is_reused_first);
    }
    for (uint64_t i = 0; i < runs && check_failures == 0; i++) {
        run(seed + i);
        if (check_failures)
            fprintf(stderr, "again: nothing_comes_back 1 %" PRIu64 "\n", seed + i);
    }
    printf("%" PRIu64 " runs of %d lives, from seed %" PRIu64 "\n", runs, lives, seed);
    free(directory);
    return finish();
}
