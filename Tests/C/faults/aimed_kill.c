/* Kills a process at every store and every system call of every kind of operation, in the situations that matter,
 * and evaluates what it leaves (evaluate.h).
 *
 * aimed_kill [places of each situation, 0: all] [seed] [situation] */
#include "aimed.h"
#include "evaluate.h"

static void pretend_boot(const char *id) {
    shim_faults.boot_id = id;
}

static uint64_t places;
static random_source source;

/* Spread evenly; the exact place is random. */
static uint64_t choose(uint64_t count, uint64_t *chosen) {
    uint64_t tries = places && places < count ? places : count;
    for (uint64_t k = 0; k < tries; k++) {
        uint64_t from = 1 + k * count / tries, to = 1 + (k + 1) * count / tries;
        chosen[k] = from + random_below(&source, to - from);
    }
    return tries;
}

int main(int argument_count, char **arguments) {
    places = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 85;
    uint64_t seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL);
    const char *only = argument_count > 3 ? arguments[3] : NULL;
    source.state = seed;
    toll all = {0, 0};
    aimed_begin();
    for (int i = 0; i < situation_count && check_failures == 0; i++) {
        const situation *s = &situations[i];
        if (only && strcmp(only, s->name) != 0)
            continue;
        toll one = kill_in(s, choose);
        all.struck += one.struck;
        all.events += one.events;
        if (check_failures)
            fprintf(stderr, "again: aimed_kill %" PRIu64 " %" PRIu64 "%s%s%s\n", places, seed, only ? " '" : "",
                    only ? only : "", only ? "'" : "");
    }
    printf("%" PRIu64 " of %" PRIu64 " places in %d situations, seed %" PRIu64 "\n", all.struck, all.events,
           only ? 1 : (int)situation_count, seed);
    print_tolerances();
    munmap(shared, sizeof *shared);
    free(aimed_directory);
    return finish();
}
