/* Processes open and close a cache at the same time, in any order and with kills in between: no open or close fails,
 * and no entry is lost.
 *
 * attach [seconds] [seed] */
#include "afterwards.h"

#include <stdatomic.h>

enum { most_processes = 20, keys_each = 20 };

static struct {
    _Atomic uint64_t completed[most_processes][keys_each];
    _Atomic uint64_t openings;
} *ledger;

static uint64_t seed;

static void come_and_go(const char *directory, uint64_t process, uint64_t life, int64_t end) {
    random_source source = {seed + process * 7919 + life};
    shale_value value = SHALE_VALUE_INIT;
    while (monotonic_ms() < end) {
        bool read_only = random_below(&source, 4) == 0;
        shale_options options = {.struct_size = sizeof options,
                                 .flags = random_below(&source, 2) ? SHALE_OPEN_NO_SYNC : 0};
        if (read_only)
            options.flags = SHALE_OPEN_READ_ONLY;
        shale_cache *cache = NULL;
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
        atomic_fetch_add(&ledger->openings, 1);
        for (uint64_t n = random_below(&source, 60); n > 0; n--) {
            uint64_t number = random_below(&source, keys_each), key[2] = {process, number}, found = 0;
            uint64_t completed = atomic_load(&ledger->completed[process][number]);
            shale_status status = shale_get(cache, key, sizeof key, 0, &value);
            if (status == SHALE_OK && value.size == sizeof found)
                memcpy(&found, value.data, sizeof found);
            else
                CHECK_STATUS(SHALE_MISS, status);
            /* One more than completed if an earlier life was killed before it could record it. */
            check_that(found == completed || found == completed + 1, __FILE__, __LINE__, "lost",
                       ": process %" PRIu64 ", key %" PRIu64 ", completed %" PRIu64 ", found %" PRIu64
                       ", seed %" PRIu64,
                       process, number, completed, found, seed);
            if (!read_only) {
                found++;
                CHECK_STATUS(SHALE_OK, shale_set(cache, key, sizeof key, &found, sizeof found, NULL));
                atomic_store(&ledger->completed[process][number], found);
            }
        }
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    shale_value_free(&value);
    _exit(check_failures != 0);
}

static pid_t start(const char *directory, uint64_t process, uint64_t life, int64_t end) {
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        come_and_go(directory, process, life, end);
    }
    return child;
}

static void run(const char *directory, int64_t duration, uint64_t process_count, bool kills) {
    shale_options options = {.struct_size = sizeof options, .capacity = 4 << 20};
    shale_cache *cache = NULL;
    memset(ledger, 0, sizeof *ledger);
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    int64_t end = monotonic_ms() + duration;
    random_source source = {seed};
    pid_t children[most_processes];
    uint64_t life = 0, killed = 0;
    for (uint64_t i = 0; i < process_count; i++)
        children[i] = start(directory, i, life++, end);
    while (kills && monotonic_ms() < end - 50) {
        sleep_us((int64_t)random_below(&source, 10000));
        uint64_t victim = random_below(&source, process_count);
        kill(children[victim], SIGKILL);
        int code = wait_for(children[victim]);
        CHECK(code == 128 + SIGKILL || code == 0);
        killed++;
        children[victim] = start(directory, victim, life++, end);
    }
    for (uint64_t i = 0; i < process_count; i++)
        CHECK_EQUAL(0, wait_for(children[i]));

    REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &cache));
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(0, stats.evictions);
    if (!kills)
        CHECK_EQUAL(0, stats.rebuilds);
    check_afterwards(cache, directory, kills ? "after kills" : "after many openings");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    printf("%" PRIu64 " processes: %" PRIu64 " openings, %" PRIu64 " killed, %" PRIu64 " shards rebuilt\n",
           process_count, (uint64_t)ledger->openings, killed, stats.rebuilds);
}

int main(int argument_count, char **arguments) {
    int64_t duration = (argument_count > 1 ? atoi(arguments[1]) : 6) * 1000;
    seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    watch((unsigned)(duration / 1000) + patience);
    ledger = shared_memory(sizeof *ledger);
    static const struct {
        const char *name;
        uint64_t processes;
        bool kills;
    } runs[] = {{"few", 4, false}, {"few-killed", 4, true}, {"many", 20, false}, {"many-killed", 20, true}};
    for (int i = 0; i < 4; i++) {
        char *directory = path_to(runs[i].name);
        run(directory, duration / 4, runs[i].processes, runs[i].kills);
        free(directory);
    }
    if (check_failures)
        fprintf(stderr, "reproduce: attach %" PRId64 " %" PRIu64 "\n", duration / 1000, seed);
    return finish();
}
