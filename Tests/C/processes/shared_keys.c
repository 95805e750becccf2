/* Several processes on the same keys, in a cache that is too small for them:
 * no value is ever another key's, torn, or older than one seen before. In the
 * last run they are killed, one after another, and replaced.
 *
 * shared_keys [seconds] [seed] */
#include "afterwards.h"
#include "tolerances.h"
#include "pattern.h"

#include <stdatomic.h>

enum { process_count = 4, key_count = 4000, largest = 4000, batch = 16 };

static struct {
    _Atomic uint64_t sets, gets, removes;
} *totals;

static uint64_t seed;

typedef struct {
    uint64_t version, written;
} sighting;

static sighting seen[key_count]; /* the newest version of each key that this process has seen */

static void check_value(uint64_t key, const shale_value *value) {
    uint64_t written = 0;
    const char *wrong = pattern_check(value->data, value->size, key, &written);
    if (!wrong && value->version < seen[key].version)
        wrong = "older than one seen before";
    if (!wrong && value->version == seen[key].version && written != seen[key].written)
        wrong = "two values of one version";
    check_that(!wrong, __FILE__, __LINE__, wrong ? wrong : "", ": key %" PRIu64 ", seed %" PRIu64, key, seed);
    seen[key] = (sighting){value->version, written};
}

/* A miss is right for a key that was removed or invalidated by another process, or evicted (design.md, "Eviction"):
 * this test does not know which. stress knows the removals, and histories counts each loss against the evictions. */
static bool is_found(shale_status status) {
    count_look();
    if (status == SHALE_OK)
        return true;
    CHECK_STATUS(SHALE_MISS, status);
    tolerated(0, "removed or evicted");
    return false;
}

static bool has_evicted_and_cleaned(shale_cache *cache) {
    shale_stats stats = stats_of(cache);
    return stats.evictions > 0 && stats.cleaned_bytes > 0;
}

/* Until that time, and until the cache has been too small. */
static void work(shale_cache *cache, uint64_t process, int64_t end) {
    static unsigned char bytes[batch][largest];
    random_source source = {seed + process};
    shale_value value = SHALE_VALUE_INIT, name = SHALE_VALUE_INIT, values[batch];
    for (int i = 0; i < batch; i++)
        values[i] = (shale_value)SHALE_VALUE_INIT;
    uint64_t written = process << 48, sets = 0, gets = 0, removes = 0;
    for (uint64_t n = 0;
         check_failures == 0 && (n % 256 != 0 || monotonic_ms() < end || !has_evicted_and_cleaned(cache)); n++) {
        uint64_t key = random_below(&source, key_count), choice = random_below(&source, 1000);
        size_t size = sizeof(pattern_head) + random_below(&source, random_below(&source, 20) ? 400 : largest - 400);
        uint64_t new_version = 0;
        shale_bytes tag = {&(uint64_t){key % 64}, 8};
        shale_set_options options = {
            .struct_size = sizeof options, .tags = &tag, .tag_count = 1, .new_version = &new_version};
        if (choice < 550) {
            shale_status status = shale_get(cache, &key, sizeof key, 0, &value);
            gets++;
            if (is_found(status))
                check_value(key, &value);
        } else if (choice < 850) {
            pattern_fill(bytes[0], key, ++written, size);
            CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes[0], size, &options));
            sets++;
            CHECK(new_version > seen[key].version);
            seen[key] = (sighting){new_version, written};
        } else if (choice < 900) {
            shale_status status = shale_remove(cache, &key, sizeof key, 0);
            removes += is_found(status);
        } else if (choice < 940) {
            is_found(shale_touch(cache, &key, sizeof key, 3600000));
        } else if (choice < 996) {
            uint64_t keys[batch];
            shale_bytes names[batch], contents[batch];
            shale_status statuses[batch];
            for (int i = 0; i < batch; i++) {
                keys[i] = random_below(&source, key_count);
                names[i] = (shale_bytes){&keys[i], sizeof keys[i]};
            }
            if (choice < 970) {
                CHECK_STATUS(SHALE_OK, shale_get_many(cache, batch, names, 0, values, statuses));
                gets += batch;
                for (int i = 0; i < batch; i++)
                    if (is_found(statuses[i]))
                        check_value(keys[i], &values[i]);
            } else {
                for (int i = 0; i < batch; i++) {
                    pattern_fill(bytes[i], keys[i], ++written, size);
                    contents[i] = (shale_bytes){bytes[i], size};
                }
                CHECK_STATUS(SHALE_OK, shale_set_many(cache, batch, names, contents, NULL, statuses));
                sets += batch;
            }
        } else if (choice < 998) {
            CHECK_STATUS(SHALE_OK, shale_invalidate(cache, tag.data, tag.size));
        } else if (random_below(&source, 20) == 0) {
            shale_cursor *cursor = NULL;
            CHECK_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
            shale_status status;
            while ((status = shale_cursor_next(cursor, 0, &name, &value)) == SHALE_OK) {
                uint64_t found = 0;
                REQUIRE(name.size == sizeof found);
                memcpy(&found, name.data, sizeof found);
                REQUIRE(found < key_count);
                check_value(found, &value);
            }
            CHECK_STATUS(SHALE_END, status);
            shale_cursor_close(cursor);
        } else if (random_below(&source, 100) == 0) {
            CHECK_STATUS(SHALE_OK, shale_clear(cache));
        } else {
            CHECK_STATUS(SHALE_OK, shale_evict(cache, 5, NULL));
        }
    }
    atomic_fetch_add(&totals->sets, sets);
    atomic_fetch_add(&totals->gets, gets);
    atomic_fetch_add(&totals->removes, removes);
    for (int i = 0; i < batch; i++)
        shale_value_free(&values[i]);
    shale_value_free(&value);
    shale_value_free(&name);
}

static pid_t start(const char *directory, shale_cache *cache, uint64_t number, int64_t end) {
    pid_t child = fork();
    if (child != 0)
        return child;
    begin_child(patience);
    /* Half of them use the inherited handle; if there is a directory, the others open it. */
    if (directory && number % 2) {
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &cache));
    }
    work(cache, number, end);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    _exit(check_failures != 0);
}

static void run(const char *directory, const shale_options *options, int64_t duration, bool kills) {
    memset(totals, 0, sizeof *totals);
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, options, &cache));
    int64_t end = monotonic_ms() + duration;
    random_source source = {seed};
    pid_t children[process_count];
    uint64_t started = 0, killed = 0;
    while (started < process_count) {
        children[started] = start(directory, cache, started + 1, end);
        started++;
    }
    while (kills && monotonic_ms() < end - 100) {
        sleep_us((int64_t)random_below(&source, 20000));
        uint64_t victim = random_below(&source, process_count);
        kill(children[victim], SIGKILL);
        int code = wait_for(children[victim]);
        CHECK(code == 128 + SIGKILL || code == 0); /* it may have come to its end before */
        killed++;
        children[victim] = start(directory, cache, ++started, end);
    }
    for (int i = 0; i < process_count; i++)
        CHECK_EQUAL(0, wait_for(children[i]));

    shale_report report = {.struct_size = sizeof report};
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.corrupt_records);
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(0, stats.corrupt_records);
    CHECK(stats.evictions > 0 && stats.cleaned_bytes > 0);
    if (!kills) {
        /* The counters are of all processes together. */
        CHECK_EQUAL(0, stats.rebuilds);
        CHECK_EQUAL(totals->sets, stats.sets);
        CHECK_EQUAL(totals->gets, stats.hits + stats.misses);
        CHECK_EQUAL(totals->removes, stats.removes);
    }
    if (directory)
        check_afterwards(cache, directory, kills ? "after kills" : "after many processes");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    printf("%u shards: %" PRIu64 " sets, %" PRIu64 " hits, %" PRIu64 " misses, %" PRIu64 " evictions, %" PRIu64
           " killed, %" PRIu64 " shards rebuilt\n",
           stats.shards, stats.sets, stats.hits, stats.misses, stats.evictions, killed, stats.rebuilds);
}

int main(int argument_count, char **arguments) {
    int64_t duration = (argument_count > 1 ? atoi(arguments[1]) : 8) * 1000;
    seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    watch((unsigned)(duration / 1000) + patience);
    begin_tolerances();
    totals = shared_memory(sizeof *totals);
    shale_options options = {.struct_size = sizeof options, .capacity = 1 << 20, .flags = SHALE_OPEN_NO_SYNC};
    char *directory = path_to("one-shard"), *sharded = path_to("four-shards"), *killed = path_to("killed");
    run(directory, &options, duration / 4, false);
    run(NULL, &options, duration / 4, false);
    options.capacity = 4 << 20;
    options.max_entries = 2000;
    options.shards = 4;
    options.segment_size = 128 << 10;
    run(sharded, &options, duration / 4, false);
    run(killed, &options, duration / 4, true);
    print_tolerances();
    if (check_failures)
        fprintf(stderr, "seed %" PRIu64 "\n", seed);
    free(directory);
    free(sharded);
    free(killed);
    return finish();
}
