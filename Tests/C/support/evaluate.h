/* Evaluates what a kill leaves in a situation (situations.h), with a survivor that was attached all along or with
 * the next process that opens the cache:
 *
 *   - every key is as the completed or the intended operation left it, before the shard is recovered, after it, and
 *     when the cache is opened later;
 *   - after the shard has been recovered no other value appears;
 *   - no lock is stuck, and nothing is rebuilt;
 *   - a rebuilt index shows the same;
 *   - nothing counts as damaged, and the counters match a walk from inside and from outside (account.h);
 *   - the cache takes no more disk space than its recorded capacity. */
#ifndef EVALUATE_H
#define EVALUATE_H

#include "afterwards.h"
#include "situations.h"
#include "usage.h"

/* Simulates another boot from here on; NULL: the real one. */
static void pretend_boot(const char *id);

static uint64_t seen[most_keys], seen_recovered[most_keys], seen_later[most_keys], last[most_keys];

static int run_child(const situation *s, uint64_t n, shale_cache *cache) {
    return wait_for(start_child(s, n, SIGKILL, cache));
}

/* Locks every shard, and does nothing else. */
static void lock_all(shale_cache *cache) {
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t key[3] = {i, i, i};
        CHECK_STATUS(SHALE_MISS, shale_release(cache, key, sizeof key, 1));
    }
}

/* Writes to every shard, which removes entries that are counted and not visible. */
static void write_all(shale_cache *cache) {
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t key[3] = {i, i, i};
        CHECK_STATUS(SHALE_OK, shale_set(cache, key, sizeof key, "x", 1, NULL));
        CHECK_STATUS(SHALE_OK, shale_remove(cache, key, sizeof key, 0));
    }
}

static void check_sums(shale_cache *cache, const situation *s, uint64_t n) {
    for (uint32_t tag = 1000; tag < 1400; tag++)
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &tag, sizeof tag));
    CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
    shale_stats stats = {.struct_size = sizeof stats};
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    uint64_t entries = 0, raw = 0;
    shale_cursor *cursor = NULL;
    shale_value value = SHALE_VALUE_INIT;
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    while (shale_cursor_next(cursor, SHALE_GET_INFO, NULL, &value) == SHALE_OK) {
        entries++;
        raw += value.size;
    }
    shale_cursor_close(cursor);
    shale_value_free(&value);
    shale_report report = {.struct_size = sizeof report};
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    bool holds = CHECK_EQUAL(0, report.corrupt_records) & CHECK_EQUAL(entries, stats.entries) &
                 CHECK_EQUAL(raw, stats.raw_bytes) & CHECK(report.records >= entries);
    if (!holds)
        fprintf(stderr, "  %s, event %" PRIu64 "\n", s->name, n);
}

/* The capacity in the superblock that is in force: the copy with the higher sequence. */
static uint64_t recorded_capacity(void) {
    uint64_t words[2][16] = {{0}};
    char path[512];
    snprintf(path, sizeof path, "%s/shale.data", aimed_directory);
    int fd = open(path, O_RDONLY);
    for (int i = 0; fd >= 0 && i < 2; i++)
        if (pread(fd, words[i], sizeof words[i], i * 2048) != sizeof words[i])
            memset(words[i], 0, sizeof words[i]);
    if (fd >= 0)
        close(fd);
    return words[words[1][2] > words[0][2]][4];
}

static void check_space(const situation *s, uint64_t n) {
    uint64_t recorded = recorded_capacity(), used = disk_usage(aimed_directory);
    check_that(recorded == 0 || used <= recorded, __FILE__, __LINE__, "more on the disk than the capacity on record",
               ": %s, event %" PRIu64 ", %" PRIu64 " of %" PRIu64 " bytes", s->name, n, used, recorded);
}

/* An index rebuilt from the log shows the same. */
static bool check_new_index(const situation *s, uint64_t n, bool writes) {
    char path[512], aside[512];
    shale_cache *cache = NULL;
    bool holds = true;
    uint64_t evicted = 0, displaced = 0;
    snprintf(path, sizeof path, "%s/shale.index", aimed_directory);
    snprintf(aside, sizeof aside, "%s.index", aimed_directory);
    REQUIRE(rename(path, aside) == 0); /* (the same file is restored for the next kill) */
    REQUIRE_STATUS(SHALE_OK, try_open(s, true, &cache));
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t key = 0; key < shared->ledger.keys; key++) {
        const char *fault;
        seen_later[key] = look(cache, key, &value, &fault);
        CHECK(!fault);
        /* Evicted entries may be in the index again: limits.md, "After the index is rebuilt". */
        bool is_back = s->evicts && !seen_recovered[key] && seen_later[key] == last[key];
        evicted += !seen_recovered[key] && last[key];
        /* With the CLOCK policy a smaller capacity evicts all over the log, and a large value has parts all over it.
         * Entries that come back from there displace others, as recency is the order of writing now: recovery.md, "A
         * rebuild". */
        bool is_displaced = s->policy != SHALE_EVICTION_LRU && s->evicts && (s->other_capacity || s->shards > 1) &&
                            !seen_later[key] && seen_recovered[key] && (s->shards > 1 || ++displaced <= evicted) &&
                            tolerated(3, "displaced by returned entries");
        holds &= check_that(seen_later[key] == seen_recovered[key] || is_back || is_displaced, __FILE__, __LINE__,
                            "a new index shows something else",
                            ": %s, event %" PRIu64 ", key %" PRIu64 ", was %" PRIu64 ", is %" PRIu64, s->name, n, key,
                            seen_recovered[key], seen_later[key]);
    }
    shale_value_free(&value);
    if (writes)
        check_still_works(cache);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    REQUIRE(rename(aside, path) == 0);
    return holds;
}

/* The earlier kill: in an operation that marks the shard. */
static uint64_t first_kill;

static void kill_before(const situation *s, uint64_t n, shale_cache *cache) {
    situation before = *s;
    before.act = s->killed_in;
    before.killed_in = NULL;
    before.closes = false;
    CHECK_EQUAL(n ? 128 + SIGKILL : 0, run_child(&before, n, cache));
}

/* The first kill from the middle on that leaves what the situation wants, or the first of all. */
static void find_first_kill(const situation *s, const saved_file *data, const saved_file *idx, const ledger *prepared) {
    kill_before(s, 0, NULL);
    sought.from = atomic_load(&shared->events) / 2;
    for (first_kill = 0; first_kill == 0; sought.from = 1) {
        bool is_last = sought.from == 1;
        set_up(s, data, idx, prepared);
        mapped_file data_file = map_file(aimed_directory, "shale.data"),
                    index_file = map_file(aimed_directory, "shale.index");
        sought.l = layout_of(data_file.bytes);
        sought.header = index_file.bytes + shard_offset(&sought.l, 0);
        sought.when = s->killed_when;
        atomic_store(&shared->found, 0);
        kill_before(s, 0, NULL);
        sought.when = NULL;
        first_kill = atomic_load(&shared->found);
        unmap_file(&data_file);
        unmap_file(&index_file);
        REQUIRE(first_kill != 0 || !is_last);
    }
    set_up(s, data, idx, prepared);
}

/* True if the kill was delivered. */
static bool play(const situation *s, uint64_t n, bool attached, saved_file *data, saved_file *idx,
                 const ledger *prepared) {
    shale_cache *cache = NULL;
    pretend_boot(NULL);
    set_up(s, data, idx, prepared);
    if (s->closes || s->killed_in)
        attached = s->beside;
    if (attached)
        REQUIRE_STATUS(SHALE_OK, try_open(s, false, &cache));
    if (s->killed_in)
        kill_before(s, first_kill, s->closes ? NULL : cache);
    pretend_boot(s->boot_id);
    int code = run_child(s, n, s->closes ? NULL : cache);
    CHECK(code == 128 + SIGKILL || code == 0);
    check_space(s, n);

    if (!attached)
        REQUIRE_STATUS(SHALE_OK, try_open(s, true, &cache));
    bool holds = check_keys(cache, s, n, attached ? "seen by the survivor" : "when opened", seen);
    bool writes = n % 2; /* otherwise the last record stays the last */
    lock_all(cache);
    if (writes)
        write_all(cache);
    holds &= check_keys(cache, s, n, "recovered", seen_recovered);
    memcpy(last, shared->ledger.completed, sizeof last);
    for (uint64_t key = 0; key < shared->ledger.keys; key++) {
        /* Recovery may evict (design.md, "Eviction"), and finishes a clear that had begun (limits.md, "Not atomic").
         * Nothing comes back. */
        bool was_evicted = !seen_recovered[key] && s->evicts && writes,
             came_to_its_end = !seen_recovered[key] && (s->act == clear_all || s->killed_in == clear_all);
        holds &= check_that(seen[key] == seen_recovered[key] || (was_evicted && tolerated(1, "evicted by recovery")) ||
                                (came_to_its_end && tolerated(2, "cleared by recovery")),
                            __FILE__, __LINE__, "changed by recovery",
                            ": %s, event %" PRIu64 ", key %" PRIu64 ", was %" PRIu64 ", is %" PRIu64, s->name, n, key,
                            seen[key], seen_recovered[key]);
        shared->ledger.completed[key] = shared->ledger.intended[key] = seen_recovered[key];
    }
    bool is_new = s->closes && (s->boot_id || s->other_capacity || s->prepare == prepare_empty);
    if (!s->spoil && check_account(aimed_directory, s->name).faults) /* (the audit cannot walk a damaged log) */
        fprintf(stderr, "  event %" PRIu64 "\n", n);
    if (writes)
        check_sums(cache, s, n);
    shale_stats stats = {.struct_size = sizeof stats};
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    /* (A damaged record counts when it is read, and again when the cleaner passes it.) */
    if (!CHECK(stats.rebuilds <= (is_new ? (s->shards ? s->shards : 1) + 1 : 0)) |
        !CHECK(stats.corrupt_records <= (s->spoil ? 2 * spoiled : 0)))
        fprintf(stderr, "  %s, event %" PRIu64 "\n", s->name, n);
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    REQUIRE_STATUS(SHALE_OK, try_open(s, true, &cache));
    holds &= check_keys(cache, s, n, "opened later", seen_later);
    if (writes) { /* (only a few changes, as a new index has to show the same) */
        check_set_and_remove(cache, false);
        check_eviction(cache);
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    holds &= check_new_index(s, n, writes);
    if (!holds)
        fprintf(stderr, "  in %s\n", s->name);
    return code != 0;
}

typedef struct {
    uint64_t struck, events;
} toll;

/* Kills at those of a situation's events that `choose` picks out of `count`; it returns how many. Alternates between
 * a survivor and a cache opened later; if all events are chosen, tries each in both ways. */
static toll kill_in(const situation *s, uint64_t (*choose)(uint64_t count, uint64_t *places)) {
    saved_file data = {0}, idx = {0};
    ledger *prepared = malloc(sizeof *prepared);
    REQUIRE(prepared);
    watch(600);
    int64_t start = monotonic_ms();
    prepare(s);
    *prepared = shared->ledger;
    if (!s->closes) {
        save_file(&data, "shale.data");
        save_file(&idx, "shale.index");
    }
    if (s->killed_in)
        find_first_kill(s, &data, &idx, prepared);
    CHECK(!play(s, 0, false, &data, &idx, prepared));
    uint64_t count = atomic_load(&shared->events), hits = 0, *places = malloc((count + 1) * sizeof *places);
    REQUIRE(places);
    uint64_t tries = choose(count, places), ways = tries == count && !s->closes && !s->killed_in ? 2 : 1;
    for (uint64_t k = 0; k < tries * ways && check_failures < 10; k++) {
        watch(120);
        hits += play(s, places[k / ways], ways == 2 ? k % 2 : k / 2 % 2, &data, &idx, prepared);
    }
    hits /= ways;
    printf("%-26s %5" PRIu64 " of %6" PRIu64 " places, %6" PRId64 " ms\n", s->name, hits, count,
           monotonic_ms() - start);
    CHECK(hits * 10 >= tries * 9); /* random choices may end it earlier */
    if (!s->closes) {
        free_file(&data);
        free_file(&idx);
    }
    free(places);
    free(prepared);
    return (toll){hits, count};
}

#endif
