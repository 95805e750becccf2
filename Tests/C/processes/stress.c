/* Processes with threads do everything at once, to the same keys, and are killed at random moments while others go
 * on. Then, and all the time meanwhile:
 *
 *   - a read of a key returns the result of a completed or an intended operation, never an older one, that of
 *     another key, of a refused call, or a torn one;
 *   - no lock is stuck: the survivors go on;
 *   - after each kill beside an open handle, and after each round, a set, a removal, an invalidation and a load
 *     succeed, and an eviction in the rounds that allow one;
 *   - fenced sets of unchanged keys are rarely refused, and no key is loaded by two at once;
 *   - no more shards are rebuilt than threads were killed;
 *   - nothing is damaged, and the counters agree with a cursor's walk, and with the audit of both files.
 *
 * stress [seconds] [seed] */
#include "stressing.h"

enum { processes_each = 4 };

static int64_t end;

static void play_round(random_source *source, shale_stats *before) {
    bool attached = random_below(source, 2);
    shale_cache *cache = attached ? open_cache(0) : NULL;
    uint64_t processes = 1 + random_below(source, processes_each), threads[processes_each], killed_threads = 0;
    pid_t members[processes_each];
    begin_round();
    for (uint64_t i = 0; i < processes; i++) {
        threads[i] = 1 + random_below(source, most_threads);
        bool inherits = attached && random_below(source, 4) == 0;
        if ((members[i] = fork()) == 0)
            live(i, threads[i], inherits ? cache : NULL);
    }

    /* Some die early, while they open the cache; most live on. */
    uint64_t victims = random_below(source, 4) ? 1 + random_below(source, processes) : processes;
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t i = 0; i < victims; i++) {
        if (random_below(source, 8))
            wait_for_progress(i, random_below(source, 3000), members[i]);
        int64_t moment = monotonic_us() + (int64_t)random_below(source, 5000);
        while (attached && monotonic_us() < moment) /* the parent reads their progress */
            read_key(cache, random_below(source, hot_keys), SHALE_GET_PEEK, &value);
        if (!attached)
            sleep_us(moment - monotonic_us());
        for (uint64_t n = 0; n < threads[i]; n++)
            atomic_store(&all_loads->is_dead[i * most_threads + n], true);
        kill(members[i], SIGKILL);
        /* (Where there is room for all, an eviction would be a loss.) */
        if (attached && try_everything(cache, the_round.is_tight, the_round.is_tight || the_round.has_clears))
            explain_refusal(cache);
        for (int n = 0; attached && n < 200; n++)
            read_key(cache, random_below(source, hot_keys), SHALE_GET_PEEK, &value);
    }
    for (uint64_t i = 0; i < processes; i++) {
        if (i >= victims) {
            wait_for_progress(i, 300, members[i]);
            continue;
        }
        int code = wait_for(members[i]);
        if (code == 128 + SIGKILL) {
            total.killed++;
            killed_threads += threads[i];
        } else
            CHECK_EQUAL(0, code); /* it had done all operations of its round */
    }
    atomic_store(&ledger->stop, true);
    for (uint64_t i = victims; i < processes; i++)
        CHECK_EQUAL(0, wait_for(members[i]));
    shale_value_free(&value);
    check_round(cache, killed_threads, before);
}

static const progress_case cases[] = {{"age", "fence", case_age},
                                      {"purge", "fence", case_purge},
                                      {"removals", "fence", case_removals},
                                      {"tags", "fence", case_tags}};

static bool is_over(void) {
    return monotonic_ms() >= end;
}

int main(int argument_count, char **arguments) {
    uint64_t seconds = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 60,
             seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0)
                                       : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    snprintf(repeat_command, sizeof repeat_command, "stress %" PRIu64 " %" PRIu64, seconds, seed);
    watch((unsigned)seconds + patience);
    ledger = shared_memory(sizeof *ledger);
    begin_tolerances();
    begin_loads();
    read_known_failures("stress");
    check_cases(cases, sizeof cases / sizeof *cases);
    *load_shares = (shares){0};
    the_round.directory = path_to("stressed");
    end = monotonic_ms() + (int64_t)seconds * 1000;
    random_source source = {seed};
    uint64_t rounds = play_rounds(&source, is_over, play_round);
    printf("%" PRIu64 " rounds, %" PRIu64 " processes of %" PRIu64 " threads killed, %" PRIu64
           " shards rebuilt, %" PRIu64 " evictions;",
           rounds, total.killed, total.killed_threads, total.rebuilds, total.evictions);
    print_operations();
    printf("; seed %" PRIu64 "; %" PRIu64 " refusals for a shared line", seed, atomic_load(&all_loads->line_shared));
    CHECK(print_shares(load_shares, most_refused, most_duplicates));
    print_tolerances();
    if (check_failures)
        fprintf(stderr, "again: %s\n", repeat_command);
    free(the_round.directory);
    return finish();
}
