/* A writer that is stopped in the middle of an operation stops no reader: with SIGSTOP at a store or system call of
 * every kind of operation (aimed.h), another process finds every key as the completed or the intended operation left
 * it, by get, by batch and by cursor. Then the writer continues, and completes its operation.
 *
 * Exception: readers wait while a shard is being recovered, by design, and a reader that finds damaged records waits
 * for the lock, to remove them.
 *
 * stopped_writer [places of each situation, 0: all] [seed] */
#include "afterwards.h"
#include "aimed.h"

static void read_everything(shale_cache *cache, const situation *s, uint64_t n) {
    check_keys(cache, s, n, "while the writer is stopped", NULL);

    static shale_bytes names[most_keys];
    static uint64_t keys[most_keys];
    static shale_value values[most_keys];
    static shale_status statuses[most_keys];
    uint64_t count = shared->ledger.keys, walked = 0;
    for (uint64_t key = 0; key < count; key++) {
        keys[key] = key;
        names[key] = (shale_bytes){&keys[key], sizeof keys[key]};
        values[key] = (shale_value)SHALE_VALUE_INIT;
    }
    CHECK_STATUS(SHALE_OK, shale_get_many(cache, count, names, SHALE_GET_PEEK, values, statuses));
    for (uint64_t key = counters; key < count; key++) {
        uint64_t found = 0;
        if (statuses[key] == SHALE_OK)
            CHECK(!pattern_check(values[key].data, values[key].size, key, &found));
        CHECK(found == shared->ledger.completed[key] || found == shared->ledger.intended[key] ||
              (s->evicts && !found && tolerated(0, "evicted"))); /* design.md, "Eviction" */
    }
    for (uint64_t key = 0; key < count; key++)
        shale_value_free(&values[key]);

    shale_cursor *cursor = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    while (shale_cursor_next(cursor, 0, NULL, NULL) == SHALE_OK)
        walked++;
    shale_cursor_close(cursor);
    CHECK(walked <= count);
}

/* True if it was stopped. */
static bool play(const situation *s, uint64_t n, saved_file *data, saved_file *idx, const ledger *prepared) {
    shale_cache *cache = NULL;
    int status = 0;
    set_up(s, data, idx, prepared);
    REQUIRE_STATUS(SHALE_OK, try_open(s, false, &cache));
    pid_t child = start_child(s, n, SIGSTOP, s->closes ? NULL : cache);
    REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    bool stopped = WIFSTOPPED(status);
    if (stopped) {
        read_everything(cache, s, n);
        kill(child, SIGCONT);
        CHECK_EQUAL(0, wait_for(child));
    } else
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(memcmp(shared->ledger.completed, shared->ledger.intended, sizeof shared->ledger.completed) == 0);
    check_keys(cache, s, n, "at the end", NULL);
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(0, stats.rebuilds);
    CHECK_EQUAL(0, stats.corrupt_records);
    check_afterwards(cache, aimed_directory, s->name);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return stopped;
}

int main(int argument_count, char **arguments) {
    uint64_t places = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 30, stops = 0, all = 0;
    uint64_t seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL);
    int played = 0;
    random_source source = {seed};
    aimed_begin();
    for (int i = 0; i < situation_count && check_failures == 0; i++) {
        const situation *s = &situations[i];
        if (s->killed_in || s->spoil || (s->closes && !s->beside))
            continue;
        saved_file data = {0}, idx = {0};
        ledger *prepared = malloc(sizeof *prepared);
        REQUIRE(prepared);
        watch(patience);
        prepare(s);
        *prepared = shared->ledger;
        if (!s->closes) {
            save_file(&data, "shale.data");
            save_file(&idx, "shale.index");
        }
        CHECK(!play(s, 0, &data, &idx, prepared));
        uint64_t count = atomic_load(&shared->events), tries = places && places < count ? places : count, hits = 0;
        for (uint64_t k = 0; k < tries && check_failures < 10; k++) {
            watch(patience); /* a reader that waits for the writer waits for ever */
            uint64_t from = 1 + k * count / tries, to = 1 + (k + 1) * count / tries;
            hits += play(s, from + random_below(&source, to - from), &data, &idx, prepared);
        }
        CHECK(hits * 10 >= tries * 9); /* random choices may end it earlier */
        stops += hits;
        all += count;
        played++;
        if (!s->closes) {
            free_file(&data);
            free_file(&idx);
        }
        free(prepared);
    }
    printf("stopped at %" PRIu64 " of %" PRIu64 " places in %d situations, seed %" PRIu64 "\n", stops, all, played,
           seed);
    if (check_failures)
        fprintf(stderr, "again: stopped_writer %" PRIu64 " %" PRIu64 "\n", places, seed);
    munmap(shared, sizeof *shared);
    free(aimed_directory);
    return finish();
}
