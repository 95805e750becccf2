/* Time at its limits, on the test's own clock: the largest possible ages and points in time, a clock that is
 * negative, far away, or jumps, and caches of another century. An oracle says for each moment whether an entry is
 * fresh, stale or dead, to the millisecond.
 *
 * clocks [seconds] [seed] */
#include "check.h"
#include "tolerances.h"
#include "files.h"

/* The last point in time that a record can hold; later ends mean never. */
enum { unit = 64000, far_units = 0xffffff };
#define BITS_48 ((int64_t)1 << 48)
#define YEAR ((int64_t)31557600000)
static const int64_t last_point = BITS_48 - 2;

static int64_t clock_ms;
static uint64_t seed, moments;

static int64_t read_clock(void *context) {
    return *(int64_t *)context;
}

static shale_cache *open_cache(const char *directory) {
    return require_open(directory, (shale_options){.flags = SHALE_OPEN_NO_SYNC,
                                                   .capacity = 4 << 20,
                                                   .now_ms = read_clock,
                                                   .now_context = &clock_ms});
}

static shale_cache *reopen(shale_cache *cache, const char *directory, bool with_index) {
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    if (!with_index)
        remove_index(directory);
    return open_cache(directory);
}

/* ---- the oracle ---- */

typedef struct {
    int64_t created, expires, dead_at; /* SHALE_NEVER: never */
    int64_t stale;                  /* as it was set, for a later touch */
    bool exists;
    /* The clock passed the entry's end, and jumped back. The entry is there again, unless a sweep or the cleaner has
     * found it meanwhile: limits.md, "Order, counts and eviction". test_limits, and test_jumps with a clock that
     * goes forward only, do without. */
    bool may_be_swept;
} known;

static int64_t point(int64_t ms) {
    return ms < 0 ? 0 : ms > last_point ? last_point : ms;
}

static int64_t after(int64_t start, int64_t age) {
    if (age == SHALE_NEVER || start == SHALE_NEVER)
        return SHALE_NEVER;
    return age == SHALE_NONE ? start : age > last_point - start ? SHALE_NEVER : start + age;
}

static void age_from_now(known *entry, int64_t max_age, int64_t stale) {
    entry->expires = after(point(clock_ms), max_age ? max_age : SHALE_NEVER);
    entry->dead_at = after(entry->expires, stale ? stale : SHALE_NONE);
}

static known set_now(int64_t max_age, int64_t stale) {
    known entry = {.created = point(clock_ms), .stale = stale, .exists = true};
    age_from_now(&entry, max_age, stale);
    return entry;
}

static bool is_fresh(const known *entry) {
    return entry->exists && point(clock_ms) < entry->expires;
}

static bool is_kept(const known *entry) {
    return entry->exists && point(clock_ms) < entry->dead_at;
}

static void check_now(shale_cache *cache, uint32_t key, known *entry, shale_value *value) {
    shale_status expected = is_fresh(entry) ? SHALE_OK : SHALE_MISS;
    shale_status expected_stale = is_fresh(entry) ? SHALE_OK : is_kept(entry) ? SHALE_STALE : SHALE_MISS;
    shale_status got = shale_get(cache, &key, sizeof key, 0, value);
    shale_status got_stale = shale_get(cache, &key, sizeof key, SHALE_GET_STALE | SHALE_GET_PEEK, value);
    moments++;
    count_look();
    if ((expected != SHALE_MISS || expected_stale != SHALE_MISS) && entry->may_be_swept && got == SHALE_MISS &&
        got_stale == SHALE_MISS && tolerated(0, "swept before the clock jumped back"))
        return;
    check_that(got == expected && got_stale == expected_stale, __FILE__, __LINE__, "age",
               ": at %" PRId64 " an entry of %" PRId64 " that expires %" PRId64 " and is dead %" PRId64
               " is %s, with stale %s; seed %" PRIu64,
               clock_ms, entry->created, entry->expires, entry->dead_at, shale_status_text(got),
               shale_status_text(got_stale), seed);
    if (got_stale == SHALE_OK || got_stale == SHALE_STALE) {
        CHECK_EQUAL(entry->created, value->created_ms);
        CHECK_EQUAL(entry->expires, value->expires_ms);
        CHECK_BYTES(value, &key, sizeof key);
    }
}

static void check_kept(const known *entry, shale_status status) {
    count_look();
    if (is_kept(entry) && status == SHALE_MISS && entry->may_be_swept &&
        tolerated(0, "swept before the clock jumped back"))
        return;
    CHECK_STATUS(is_kept(entry) ? SHALE_OK : SHALE_MISS, status);
}

/* ---- every limit against every other ---- */

/* clang-format off */
static const int64_t starts[] = {INT64_MIN, -1, 0, 1, unit - 1, 1700000000123, 4000000000000, BITS_48 - 100000,
                                 BITS_48 - 3, BITS_48 - 2, BITS_48 - 1, BITS_48, INT64_MAX - 1, INT64_MAX};
static const int64_t ages[] = {SHALE_NONE, 1, 2, unit - 1, unit, unit + 1, 40 * YEAR, far_units * (int64_t)unit,
                               BITS_48 - 2, BITS_48 - 1, BITS_48, (int64_t)1 << 62, SHALE_NEVER - 1, SHALE_NEVER};
/* clang-format on */
static const int64_t stales[] = {SHALE_NONE, 1, unit, 40 * YEAR, BITS_48 - 2, SHALE_NEVER - 1, SHALE_NEVER};

enum {
    start_count = sizeof starts / sizeof *starts,
    age_count = sizeof ages / sizeof *ages,
    stale_count = sizeof stales / sizeof *stales,
    grid_count = start_count * age_count * stale_count
};

static known grid[grid_count];

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The moments around some of the grid's ends, ascending. */
static size_t choose_moments(int64_t *chosen, size_t most, random_source *source) {
    size_t count = 0;
    static const int64_t always[] = {INT64_MIN, -1, 0, 1, BITS_48 - 1, INT64_MAX};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        chosen[count++] = always[i];
    while (count < most) {
        const known *entry = &grid[random_below(source, grid_count)];
        int64_t end = random_below(source, 2) ? entry->expires : entry->dead_at;
        if (end != SHALE_NEVER)
            chosen[count++] = end - (int64_t)random_below(source, 2);
    }
    qsort(chosen, count, sizeof *chosen, by_value);
    return count;
}

static void check_grid(shale_cache *cache, shale_value *value) {
    for (uint32_t key = 0; key < grid_count; key++)
        check_now(cache, key, &grid[key], value);
}

/* A cache that was made at `base`: its slots count their ends from there. */
static void test_limits_from(int64_t base) {
    random_source source = {seed + (uint64_t)base};
    shale_value value = SHALE_VALUE_INIT;
    char *directory = path_to("limits");
    clock_ms = base;
    shale_cache *cache = open_cache(directory);
    uint32_t key = 0;
    for (int s = 0; s < start_count; s++)
        for (int a = 0; a < age_count; a++)
            for (int t = 0; t < stale_count; t++, key++) {
                shale_set_options options = {
                    .struct_size = sizeof options, .max_age_ms = ages[a], .stale_ms = stales[t]};
                clock_ms = starts[s];
                CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, &key, sizeof key, &options));
                grid[key] = set_now(ages[a], stales[t]);
                clock_ms = grid[key].expires == SHALE_NEVER ? INT64_MAX : grid[key].expires - 1;
                check_now(cache, key, &grid[key], &value);
                clock_ms++, clock_ms -= clock_ms == INT64_MIN;
                check_now(cache, key, &grid[key], &value);
            }
    int64_t chosen[24];
    size_t count = choose_moments(chosen, 24, &source);
    /* Ahead, back, and once more after a rebuild: a cache with room sweeps nothing, and nothing changes. */
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++) {
            clock_ms = chosen[round == 1 ? count - 1 - i : i];
            if (i % 4 == (size_t)round)
                check_grid(cache, &value);
        }
        clock_ms = base;
        cache = reopen(cache, directory, round == 0);
    }
    /* A purge removes exactly the dead entries. */
    for (size_t i = 0; i < count; i++) {
        uint64_t left = 0;
        clock_ms = chosen[i];
        CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
        for (uint32_t k = 0; k < grid_count; k++) {
            grid[k].exists &= is_kept(&grid[k]);
            left += grid[k].exists;
        }
        shale_stats stats = stats_of(cache);
        check_that(stats.entries == left, __FILE__, __LINE__, "purge",
                   ": %" PRIu64 " entries are left at %" PRId64 ", not %" PRIu64 "; seed %" PRIu64, stats.entries,
                   clock_ms, left, seed);
    }
    clock_ms = base;
    check_grid(cache, &value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shale_value_free(&value);
    remove_tree(directory);
    free(directory);
}

static void test_limits(void) {
    static const int64_t bases[] = {INT64_MIN, 0, 1700000000000, BITS_48 / 2, BITS_48 - 1, INT64_MAX};
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        test_limits_from(bases[i]);
}

/* ---- a clock that jumps between calls ---- */

enum { key_count = 400 };

static int64_t random_clock(random_source *source) {
    switch (random_below(source, 12)) {
    case 0: return starts[random_below(source, start_count)];
    case 1: return clock_ms > 0 ? clock_ms / 2 : 0;
    case 2: return 1700000000000 + (int64_t)random_below(source, 3000) * YEAR;
    case 3: return clock_ms < last_point ? clock_ms - (int64_t)random_below(source, 10 * unit) : last_point;
    default: return point(clock_ms) + (int64_t)random_below(source, random_below(source, 3) ? 3 * unit : 100);
    }
}

static int64_t random_age(random_source *source, bool of_stale) {
    switch (random_below(source, 6)) {
    case 0: return of_stale ? stales[random_below(source, stale_count)] : ages[random_below(source, age_count)];
    case 1: return SHALE_NONE;
    default: return 1 + (int64_t)random_below(source, random_below(source, 2) ? 3 * unit : 50);
    }
}

/* `back`: it jumps in both directions; otherwise only forward, and then no entry has a tolerance. */
static void test_jumps(int64_t duration, bool back) {
    random_source source = {seed};
    shale_value value = SHALE_VALUE_INIT;
    static known entries[key_count];
    static unsigned char padding[20000];
    memset(entries, 0, sizeof entries);
    char *directory = path_to(back ? "jumps" : "forward");
    clock_ms = 1700000000000;
    shale_cache *cache = open_cache(directory);
    for (int64_t end = monotonic_ms() + duration; check_failures == 0 && monotonic_ms() < end;) {
        if (random_below(&source, 4) == 0)
            clock_ms = back ? random_clock(&source)
                            : clock_ms + (int64_t)random_below(&source, random_below(&source, 3) ? 3 * unit : 100);
        for (uint32_t i = 0; i < key_count && back; i++)
            entries[i].may_be_swept |= entries[i].exists && !is_kept(&entries[i]);
        uint32_t key = (uint32_t)random_below(&source, key_count), choice = (uint32_t)random_below(&source, 1000);
        known *entry = &entries[key];
        if (choice < 300) {
            int64_t age = random_age(&source, false), stale = random_age(&source, true);
            shale_set_options options = {
                .struct_size = sizeof options, .max_age_ms = age, .stale_ms = stale, .flags = SHALE_SET_PINNED};
            CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, &key, sizeof key, &options));
            *entry = set_now(age, stale);
        } else if (choice < 400) {
            int64_t age = random_age(&source, false);
            shale_status status = shale_touch(cache, &key, sizeof key, age);
            check_kept(entry, status);
            if (status == SHALE_OK) {
                if (entry->expires != SHALE_NEVER && entry->dead_at == SHALE_NEVER)
                    entry->stale = SHALE_NEVER; /* an end that no record can hold */
                age_from_now(entry, age, entry->stale);
                entry->may_be_swept = false;
            }
        } else if (choice < 450) {
            shale_status status = shale_remove(cache, &key, sizeof key, 0);
            check_kept(entry, status);
            *entry = (known){0};
        } else if (choice < 460) {
            CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
        } else if (choice < 464) {
            cache = reopen(cache, directory, choice % 2);
        } else if (choice < 600) { /* the log goes round, and is cleaned */
            uint32_t other = 1000000 + (uint32_t)random_below(&source, 100);
            CHECK_STATUS(SHALE_OK, shale_set(cache, &other, sizeof other, padding, sizeof padding,
                                             &(shale_set_options){.struct_size = sizeof(shale_set_options),
                                                                  .flags = SHALE_SET_UNCOMPRESSED}));
        } else if (choice < 610) {
            CHECK_STATUS(SHALE_OK, shale_evict(cache, 3, NULL));
        } else {
            check_now(cache, key, entry, &value);
        }
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shale_value_free(&value);
    free(directory);
}

/* ---- callers' arguments ---- */

static void test_ages_below_none_are_refused(void) {
    static const int64_t wrong[] = {-2, -1000, INT64_MIN + 1, INT64_MIN};
    clock_ms = 1700000000000;
    shale_cache *cache = open_cache(NULL);
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        shale_set_options options = {.struct_size = sizeof options, .max_age_ms = wrong[i]};
        CHECK_STATUS(SHALE_E_INVALID, set_text(cache, "key", "other", &options));
        options = (shale_set_options){.struct_size = sizeof options, .stale_ms = wrong[i]};
        CHECK_STATUS(SHALE_E_INVALID, set_text(cache, "key", "other", &options));
        CHECK_STATUS(SHALE_E_INVALID, shale_touch(cache, "key", 3, wrong[i]));
    }
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_TEXT(&value, "value");
    CHECK_EQUAL(SHALE_NEVER, value.expires_ms);
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

int main(int argument_count, char **arguments) {
    int64_t duration = (argument_count > 1 ? atoi(arguments[1]) : 2) * 1000;
    seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    watch((unsigned)(duration / 1000) + patience);
    begin_tolerances();
    RUN(test_ages_below_none_are_refused);
    RUN(test_limits);
    uint64_t limits = moments;
    test_jumps(duration / 2, false);
    test_jumps(duration / 2, true);
    if (check_failures)
        fprintf(stderr, "reproduce: clocks %" PRId64 " %" PRIu64 "\n", duration / 1000, seed);
    printf("%" PRIu64 " looks at entries around limits, %" PRIu64
           " under a clock that jumps, half of them forward only\n",
           limits, moments - limits);
    print_tolerances();
    return finish();
}
