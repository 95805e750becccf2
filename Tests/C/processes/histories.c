/* Threads and processes use the same few keys at once and record their calls and the answers; some are killed. Then
 * each key's history is checked: it has to be that of a register that loses nothing without a reason (history.h
 * states the model). Four kinds of rounds:
 *
 *   - a cache with room for all, of a few segments, so that the cleaner moves entries all the time: no loss at all;
 *   - the same with shale_evict, and one with a max_entries below the number of keys: as many losses as counted
 *     evictions;
 *   - with clears (then without large values: limits.md, "Not atomic", lets one that is set while a clear runs be a
 *     miss until its set returns).
 *
 * Beside these keys there are some that are always present and fresh: one thread replaces each before its age is
 * over, only then lets the (simulated) clock go on, and invalidates the tag of the value before. Reads of them wait,
 * in the clock that they ask, for that thread. They are pinned if the cache evicts, so a miss is a fault in every
 * round.
 *
 * Meanwhile each thread loads keys of its own by fenced sets, and shared keys, which one thread at a time may load;
 * and after each kill and each round a set, a removal, an eviction, an invalidation and a load succeed.
 *
 * A process is killed by one of its threads, in the first call that asks for the time after a given number of calls;
 * the others are in the middle of theirs. All limits are numbers of calls, so speed decides nothing.
 *
 * histories [rounds, 24] [seed] */
#include "afterwards.h"
#include "history.h"
#include "loads.h"
#include "pattern.h"
#include "progress_cases.h"
#include "threads.h"

#include <sched.h>
#include <stdatomic.h>

enum {
    plain_keys = 12, /* keys 0 to 11: all operations */
    counters = 3,    /* 12 to 14 */
    fresh_keys = 2,  /* 15 and 16: always present */
    key_count = plain_keys + counters + fresh_keys,
    tag_count = 4,   /* of a plain key: key % tag_count + 1 */
    most_processes = 3,
    most_threads = 3,
    calls_each = 300,       /* of a thread */
    most_records = 8000,    /* of a thread: a batch is several */
    most_steps = 2000,      /* of the thread that keeps keys fresh */
    keeper = most_processes * most_threads,
    most_members = keeper + 1,
    small = 6000,
    large = 60000, /* in parts */
    segment_size = 128 << 10,
    fresh_age = 10
};
/* Of a thousand. A load lasts for a call, and 29 to 33 in a thousand are refused, nearly all of them in the rounds
 * that keep 16 entries, where new ones are evicted at once. The lease of a shared key lasts for an hour, and no
 * shard's 64 are taken at once, so no second one is given. */
enum { most_refused = 100, most_duplicates = 0 };

typedef struct {
    call call;
    uint32_t key; /* or all_keys */
} record;
enum { all_keys = UINT32_MAX };

static struct {
    _Atomic uint64_t ticks; /* the clock of the histories */
    _Atomic int64_t ms;     /* the cache's clock */
    _Atomic uint64_t steps; /* of the keeper */
    _Atomic bool keeper_is_done;
    _Atomic uint64_t progress[most_processes];
    struct {
        _Atomic size_t count;
        record records[most_records];
    } members[most_members];
} *shared;

enum round_kind { kind_roomy, kind_evict, kind_tight, kind_clear, round_kinds };
static const char *const kind_names[round_kinds] = {"roomy", "evict", "tight", "clear"};

static struct {
    enum round_kind kind;
    uint64_t seed, number;
    char *directory;
} the_round;

static uint64_t rounds, seed;

/* The clock that the cache asks. A read of a thread that may wait stays in it until the keeper has gone on. */
static _Thread_local random_source *waits;
static _Thread_local bool dies; /* in the next call that asks for the time */
static uint64_t own_process;

static int64_t now_ms(void *context UNUSED) {
    if (dies) {
        for (uint32_t i = 0; i < most_threads; i++)
            atomic_store(&all_loads->is_dead[own_process * most_threads + i], true);
        kill(getpid(), SIGKILL);
    }
    if (waits && random_below(waits, 3) == 0) {
        uint64_t aim = atomic_load(&shared->steps) + 2;
        for (int i = 0; i < 3000 && atomic_load(&shared->steps) < aim && !atomic_load(&shared->keeper_is_done); i++)
            sched_yield();
    }
    return atomic_load(&shared->ms);
}

static shale_cache *open_cache(void) {
    return require_open(the_round.directory, (shale_options){.capacity = 6 << 20,
                                                             .segment_size = segment_size,
                                                             .shards = 2,
                                                             .eviction = policy_of(the_round.number / round_kinds),
                                                             .flags = SHALE_OPEN_NO_SYNC,
                                                             .now_ms = now_ms,
                                                             .max_entries = the_round.kind == kind_tight ? 16 : 0});
}

/* Recording */

typedef struct {
    shale_cache *cache;
    random_source source;
    uint64_t member, calls, kill_at;
    bool is_loading;
    uint64_t versions[key_count]; /* last seen of each key, and perhaps replaced since */
    shale_value value;
    unsigned char bytes[large];
} worker;

/* The beginning is recorded before the call, so that a kill leaves it behind. */
static record *begin_call(worker *w, enum call_kind kind, uint32_t key) {
    size_t n = atomic_load(&shared->members[w->member].count);
    REQUIRE(n < most_records);
    record *r = &shared->members[w->member].records[n];
    *r = (record){.key = key, .call = {.kind = kind, .end = NEVER_ENDED, .who = w->member}};
    r->call.begin = atomic_fetch_add(&shared->ticks, 1);
    return r;
}

/* The call counts from here on, also if its end is never written. */
static void note(worker *w) {
    atomic_fetch_add(&shared->members[w->member].count, 1);
}

static void end_call(record *r, shale_status status) {
    r->call.status = status;
    r->call.end = atomic_fetch_add(&shared->ticks, 1);
}

static bool is_counter(uint32_t key) {
    return key >= plain_keys && key < plain_keys + counters;
}

static void note_found(record *r, shale_status status, const shale_value *value) {
    if (status == SHALE_OK) {
        r->call.version = value->version;
        if (is_counter(r->key)) {
            if (CHECK_EQUAL(8, value->size))
                memcpy(&r->call.value, value->data, 8);
        } else {
            const char *fault = pattern_check(value->data, value->size, r->key, &r->call.value);
            check_that(!fault, __FILE__, __LINE__, "get", ": %s, again: histories %" PRIu64 " %" PRIu64, fault, rounds,
                       seed);
        }
    }
    r->call.status = status;
}

static void get(worker *w, uint32_t key) {
    record *r = begin_call(w, call_get, key);
    note(w);
    waits = key >= plain_keys + counters ? &w->source : NULL;
    shale_status status = shale_get(w->cache, &key, sizeof key, random_below(&w->source, 4) ? 0 : SHALE_GET_PEEK,
                                    &w->value);
    waits = NULL;
    uint64_t end = atomic_fetch_add(&shared->ticks, 1);
    CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
    note_found(r, status, &w->value);
    r->call.end = end;
}

static void get_many(worker *w) {
    uint32_t keys[6];
    size_t count = 1 + random_below(&w->source, 6);
    shale_bytes names[6];
    shale_value values[6];
    shale_status statuses[6];
    record *records[6];
    for (size_t i = 0; i < count; i++) {
        keys[i] = (uint32_t)random_below(&w->source, key_count);
        names[i] = (shale_bytes){&keys[i], sizeof keys[i]};
        values[i] = (shale_value)SHALE_VALUE_INIT;
        records[i] = begin_call(w, call_get, keys[i]);
        note(w);
    }
    waits = &w->source;
    CHECK_STATUS(SHALE_OK, shale_get_many(w->cache, count, names, 0, values, statuses));
    waits = NULL;
    uint64_t end = atomic_fetch_add(&shared->ticks, 1);
    for (size_t i = 0; i < count; i++) {
        note_found(records[i], statuses[i], &values[i]);
        shale_value_free(&values[i]);
        records[i]->call.end = end;
    }
}

/* A read, and a lease that is released at once. */
static void lease(worker *w, uint32_t key) {
    shale_lease_options options = {.struct_size = sizeof options};
    uint64_t token = 0;
    record *r = begin_call(w, call_get, key);
    note(w);
    waits = &w->source;
    shale_status status = shale_lease(w->cache, &key, sizeof key, &options, &w->value, &token);
    waits = NULL;
    uint64_t end = atomic_fetch_add(&shared->ticks, 1);
    CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
    note_found(r, status, &w->value);
    r->call.end = end;
    if (token)
        CHECK(shale_release(w->cache, &key, sizeof key, token) >= 0);
}

static uint64_t next_value(worker *w) {
    return w->member << 32 | ++w->calls;
}

/* The version of the key now, or one that was seen before. */
static uint64_t seen_version(worker *w, uint32_t key) {
    uint64_t before = w->versions[key];
    if (shale_get(w->cache, &key, sizeof key, SHALE_GET_PEEK, &w->value) == SHALE_OK)
        w->versions[key] = w->value.version;
    return before && random_below(&w->source, 2) ? before : w->versions[key];
}

static void set(worker *w, uint32_t key, enum call_kind kind, int64_t age, uint64_t tag, size_t size) {
    shale_set_options options = {.struct_size = sizeof options, .max_age_ms = age, .tag_count = tag != 0};
    uint64_t version = 0, value = next_value(w);
    shale_bytes tags = {&tag, sizeof tag};
    options.tags = &tags;
    options.new_version = &version;
    if (kind == call_set_version) {
        options.version = seen_version(w, key);
        if (options.version == 0)
            return;
    }
    options.flags = kind == call_set_absent    ? SHALE_SET_IF_ABSENT
                    : kind == call_set_present ? SHALE_SET_IF_PRESENT
                    : kind == call_set_version ? SHALE_SET_IF_VERSION
                                               : 0;
    if (key >= plain_keys + counters && the_round.kind != kind_roomy)
        options.flags |= SHALE_SET_PINNED;
    if (random_below(&w->source, 4) == 0)
        options.flags |= SHALE_SET_UNCOMPRESSED;
    pattern_fill(w->bytes, key, value, size);
    record *r = begin_call(w, kind, key);
    r->call.value = value;
    r->call.tag = tag;
    r->call.asked = options.version;
    note(w);
    shale_status status = shale_set(w->cache, &key, sizeof key, w->bytes, size, &options);
    CHECK_EITHER(SHALE_OK, kind == call_set ? SHALE_OK : SHALE_CONFLICT, status);
    r->call.version = status == SHALE_OK ? version : 0;
    end_call(r, status);
}

static void remove_key(worker *w, uint32_t key) {
    uint64_t version = 0;
    if (random_below(&w->source, 3) == 0)
        version = seen_version(w, key);
    record *r = begin_call(w, call_remove, key);
    r->call.asked = version;
    note(w);
    end_call(r, shale_remove(w->cache, &key, sizeof key, version));
    CHECK_ANSWER(r->call.status);
}

static void touch(worker *w, uint32_t key) {
    record *r = begin_call(w, call_touch, key);
    note(w);
    end_call(r, shale_touch(w->cache, &key, sizeof key, 1000000000));
    CHECK_ANSWER(r->call.status);
}

static void increment(worker *w, uint32_t key) {
    int64_t result = 0;
    record *r = begin_call(w, call_increment, key);
    note(w);
    shale_status status = shale_increment(w->cache, &key, sizeof key, 1, 0, &result);
    r->call.value = (uint64_t)result;
    end_call(r, status);
    CHECK_STATUS(SHALE_OK, status);
}

static void invalidate(worker *w, uint64_t tag) {
    record *r = begin_call(w, call_invalidate, all_keys);
    r->call.tag = tag;
    note(w);
    end_call(r, shale_invalidate(w->cache, &tag, sizeof tag));
    CHECK_STATUS(SHALE_OK, r->call.status);
}

static size_t size_of(random_source *source) {
    size_t most = the_round.kind != kind_clear && random_below(source, 50) == 0 ? large
                  : random_below(source, 3)                                     ? 200
                                                                                : small;
    return sizeof(pattern_head) + random_below(source, most - sizeof(pattern_head));
}

/* A clear and a rebuild refuse fenced sets (shale.h, SHALE_SET_IF_UNCHANGED). */
static void explain_refusal(shale_cache *cache) {
    if (the_round.kind != kind_clear && stats_of(cache).rebuilds == 0)
        note_refusal(cache);
}

static void perform(worker *w);

/* A load takes as long as another call. Its key is the thread's own, or one whose lease all threads want. */
static void load(worker *w) {
    uint32_t slot = (uint32_t)random_below(&w->source, 3); /* (few, so that threads meet) */
    uint64_t shared_key[2] = {slot, UINT64_MAX}, own_key[2] = {w->member, 0}, lease = 0;
    bool is_shared = random_below(&w->source, 2);
    if (is_shared)
        lease = begin_load(w->cache, shared_key, slot, (uint32_t)w->member);
    else
        begin_own_load(w->cache, own_key, &w->value);
    uint64_t token = w->value.version;
    w->is_loading = true; /* (A load within a load may be of the same key.) */
    perform(w);
    w->is_loading = false;
    if (lease)
        end_load(w->cache, shared_key, slot, lease);
    if (!is_shared && set_fenced(w->cache, own_key, sizeof own_key, token) == SHALE_CONFLICT)
        explain_refusal(w->cache);
}

/* One call, on a key that half the time is one of two. */
static void perform(worker *w) {
    uint32_t key = (uint32_t)random_below(&w->source, random_below(&w->source, 2) ? 2 : plain_keys);
    uint32_t counter = plain_keys + (uint32_t)random_below(&w->source, counters);
    uint32_t fresh = plain_keys + counters + (uint32_t)random_below(&w->source, fresh_keys);
    uint64_t n = random_below(&w->source, 1000);
    if (n < 200)
        set(w, key, call_set, SHALE_NEVER, key % tag_count + 1, size_of(&w->source));
    else if (n < 260)
        set(w, key, call_set_absent + (enum call_kind)random_below(&w->source, 3), SHALE_NEVER, key % tag_count + 1,
            size_of(&w->source));
    else if (n < 340)
        remove_key(w, random_below(&w->source, 8) ? key : counter);
    else if (n < 400)
        touch(w, random_below(&w->source, 4) ? key : counter);
    else if (n < 500)
        increment(w, counter);
    else if (n < 515)
        invalidate(w, 1 + random_below(&w->source, tag_count));
    else if (n < 520 && the_round.kind == kind_clear) {
        record *r = begin_call(w, call_clear, all_keys);
        note(w);
        end_call(r, shale_clear(w->cache));
        CHECK_STATUS(SHALE_OK, r->call.status);
    } else if (n < 540 && the_round.kind == kind_evict)
        CHECK_STATUS(SHALE_OK, shale_evict(w->cache, 1, NULL));
    else if (n < 600)
        get_many(w);
    else if (n < 640)
        lease(w, random_below(&w->source, 2) ? key : fresh);
    else if (n < 690 && !w->is_loading)
        load(w);
    else
        get(w, n < 800 ? key : n < 840 ? counter : fresh);
}

static void *work(void *context) {
    worker *w = context;
    for (int i = 0; i < calls_each && check_failures == 0; i++) {
        perform(w);
        if (atomic_fetch_add(&shared->progress[w->member / most_threads], 1) + 1 == w->kill_at)
            dies = true;
    }
    shale_value_free(&w->value);
    free(w);
    return NULL;
}

static worker *make_worker(shale_cache *cache, uint64_t member, uint64_t kill_at) {
    worker *w = malloc(sizeof *w);
    REQUIRE(w);
    *w = (worker){.cache = cache,
                  .member = member,
                  .kill_at = kill_at,
                  .value = SHALE_VALUE_INIT,
                  .source = {the_round.seed * 100 + member}};
    return w;
}

static void live(uint64_t process, uint64_t threads, uint64_t kill_at, shale_cache *inherited) {
    begin_child(patience);
    own_process = process;
    shale_cache *cache = inherited ? inherited : open_cache();
    void *workers[most_threads];
    for (uint64_t i = 0; i < threads; i++)
        workers[i] = make_worker(cache, process * most_threads + i, kill_at);
    run_threads(threads, work, workers);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    _exit(check_failures != 0);
}

/* Replaces each fresh key; only then time goes on, and its last tag is invalidated. */
static void keep_fresh(worker *w, uint64_t step) {
    for (uint32_t i = 0; i < fresh_keys; i++) /* a tag of this step */
        set(w, plain_keys + counters + i, call_set, fresh_age, 1000 + step,
            sizeof(pattern_head) + random_below(&w->source, 400));
    atomic_fetch_add(&shared->ms, fresh_age * 6 / 10);
    if (step > 0)
        invalidate(w, 1000 + step - 1);
    atomic_fetch_add(&shared->steps, 1);
}

static struct {
    uint64_t killed, cut_off, calls, histories, losses, evictions, rebuilds, steps, longest;
} total;

/* All members at once; the parent keeps the fresh keys. Processes of several threads die after the given number of
 * calls. */
static void play(worker *w, random_source *source) {
    uint64_t processes = 1 + random_below(source, most_processes), threads[most_processes];
    pid_t members[most_processes];
    fflush(stdout);
    for (uint64_t i = 0; i < processes; i++) {
        threads[i] = 1 + random_below(source, most_threads);
        uint64_t kill_at = threads[i] > 1 ? 1 + random_below(source, calls_each * threads[i]) : 0;
        bool inherits = random_below(source, 3) == 0;
        if ((members[i] = fork()) == 0)
            live(i, threads[i], kill_at, inherits ? w->cache : NULL);
    }
    bool evicts = the_round.kind == kind_evict || the_round.kind == kind_tight;
    uint64_t ended = 0;
    for (uint64_t step = 1; ended < processes; step++) {
        uint64_t before = ended;
        if (step < most_steps)
            keep_fresh(w, step);
        else
            atomic_store(&shared->keeper_is_done, true), sched_yield();
        ended = 0;
        for (uint64_t i = 0; i < processes; i++)
            ended += !is_alive(members[i]);
        if (ended > before && try_everything(w->cache, evicts, evicts || the_round.kind == kind_clear))
            explain_refusal(w->cache);
    }
    atomic_store(&shared->keeper_is_done, true);
    for (uint64_t i = 0; i < processes; i++) {
        int code = wait_for(members[i]);
        CHECK(code == 0 || code == 128 + SIGKILL);
        total.killed += code != 0;
    }
}

/* Checking */

static size_t history_of(uint32_t key, call *calls) {
    size_t count = 0;
    for (int m = 0; m < most_members; m++)
        for (size_t i = 0; i < atomic_load(&shared->members[m].count); i++) {
            const record *r = &shared->members[m].records[i];
            bool concerns = r->key == key ||
                            (r->key == all_keys && (r->call.kind == call_clear || r->call.tag == key % tag_count + 1 ||
                                                    r->call.tag > tag_count));
            /* Calls that failed, and those that were cut off and change nothing, did not happen. */
            if (!concerns || (r->call.end == NEVER_ENDED && (r->call.kind == call_get || r->call.kind == call_touch)) ||
                (r->call.end != NEVER_ENDED && r->call.status < 0))
                continue;
            total.cut_off += r->call.end == NEVER_ENDED;
            calls[count++] = r->call;
        }
    return count;
}

static void check_histories(const shale_stats *stats) {
    static call calls[most_members * most_records];
    uint64_t losses = 0, allowed = the_round.kind == kind_evict || the_round.kind == kind_tight ? stats->evictions : 0;
    for (uint32_t key = 0; key < key_count && check_failures == 0; key++) {
        size_t count = history_of(key, calls);
        bool is_fresh = key >= plain_keys + counters;
        history_result result = history_check(calls, count, (register_state){0}, is_fresh ? 0 : allowed,
                                              !is_fresh && stats->rebuilds > 0 && allowed > 0);
        total.calls += count;
        total.histories++;
        total.steps += result.steps;
        if (count > total.longest)
            total.longest = count;
        losses += result.losses;
        if (!check_that(result.outcome == history_possible, __FILE__, __LINE__,
                        result.outcome == history_impossible ? "this history cannot be" : "not decided",
                        ": key %" PRIu32 " of a %s round, %zu calls, again: histories %" PRIu64 " %" PRIu64, key,
                        kind_names[the_round.kind], count, rounds, seed))
            history_explain(calls, count, &result, stderr);
    }
    check_that(losses <= stats->evictions, __FILE__, __LINE__, "every loss is an eviction",
               ": %" PRIu64 " losses, %" PRIu64 " evictions", losses, stats->evictions);
    total.losses += losses;
    total.evictions += stats->evictions;
    total.rebuilds += stats->rebuilds;
}

static void play_round(random_source *source) {
    for (int m = 0; m < most_members; m++)
        atomic_store(&shared->members[m].count, 0);
    for (int i = 0; i < most_processes; i++)
        atomic_store(&shared->progress[i], 0);
    atomic_store(&shared->ticks, 1);
    atomic_store(&shared->steps, 0);
    atomic_store(&shared->ms, 1700000000000);
    atomic_store(&shared->keeper_is_done, false);
    begin_round_of_loads();
    remove_tree(the_round.directory);
    worker *w = make_worker(open_cache(), keeper, 0);
    keep_fresh(w, 0);
    play(w, source);

    /* Checks the final state: beside the members, recovered, and rebuilt. */
    for (int look = 0; look < 3; look++) {
        for (uint32_t i = 0; look == 1 && i < 16; i++) {
            uint32_t other[3] = {i, i, i};
            CHECK_STATUS(SHALE_OK, shale_set(w->cache, other, sizeof other, "x", 1, NULL));
            CHECK(shale_remove(w->cache, other, sizeof other, 0) >= 0);
        }
        for (uint32_t key = 0; key < key_count; key++)
            get(w, key);
        if (look == 1) {
            CHECK_STATUS(SHALE_OK, shale_close(w->cache));
            w->cache = open_cache();
        }
    }
    shale_stats stats = stats_of(w->cache);
    CHECK_EQUAL(0, stats.corrupt_records);
    CHECK(the_round.kind == kind_evict || the_round.kind == kind_tight || stats.evictions == 0);
    check_afterwards(w->cache, the_round.directory, kind_names[the_round.kind]);
    CHECK_STATUS(SHALE_OK, shale_close(w->cache));
    shale_value_free(&w->value);
    free(w);
    if (check_failures == 0)
        check_histories(&stats);
}

/* The checker, with handmade histories */

#define OPEN NEVER_ENDED
/* clang-format off */
static const struct {
    const char *name;
    bool is_possible;
    uint64_t losses; /* allowed */
    call calls[8];
} by_hand[] = {
    {"one after the other", true, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 4, call_get, SHALE_OK, 7, 10, 0, 0, 0},
        {5, 6, call_remove, SHALE_OK, 0, 0, 0, 0, 0}, {7, 8, call_get, SHALE_MISS, 0, 0, 0, 0, 0}}},
    {"a get beside a set sees it", true, 0, {{1, 4, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {2, 3, call_get, SHALE_OK, 7, 10, 0, 0, 0}}},
    {"or does not", true, 0, {{1, 4, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {2, 3, call_get, SHALE_MISS, 0, 0, 0, 0, 0}}},
    {"two sets at once, in the order of their versions", true, 0, {{1, 5, call_set, SHALE_OK, 7, 11, 0, 0, 0}, {2, 4, call_set, SHALE_OK, 8, 10, 0, 0, 0},
        {6, 7, call_get, SHALE_OK, 7, 11, 0, 0, 0}}},
    {"and not in the other", false, 0, {{1, 5, call_set, SHALE_OK, 7, 11, 0, 0, 0}, {2, 4, call_set, SHALE_OK, 8, 10, 0, 0, 0},
        {6, 7, call_get, SHALE_OK, 8, 10, 0, 0, 0}}},
    {"a set that was cut off shows", true, 0, {{1, OPEN, call_set, 0, 7, 0, 0, 0, 0}, {2, 3, call_get, SHALE_MISS, 0, 0, 0, 0, 0},
        {4, 5, call_get, SHALE_OK, 7, 10, 0, 0, 0}}},
    {"or never", true, 0, {{1, OPEN, call_set, 0, 7, 0, 0, 0, 0}, {2, 3, call_get, SHALE_MISS, 0, 0, 0, 0, 0}}},
    {"but not and then not", false, 0, {{1, OPEN, call_set, 0, 7, 0, 0, 0, 0}, {2, 3, call_get, SHALE_OK, 7, 10, 0, 0, 0},
        {4, 5, call_get, SHALE_MISS, 0, 0, 0, 0, 0}}},
    {"a lost update", false, 0, {{1, 4, call_increment, SHALE_OK, 1, 0, 0, 0, 0}, {2, 5, call_increment, SHALE_OK, 1, 0, 0, 0, 0}}},
    {"two increments", true, 0, {{1, 4, call_increment, SHALE_OK, 2, 0, 0, 0, 0}, {2, 5, call_increment, SHALE_OK, 1, 0, 0, 0, 0}}},
    {"a stale read", false, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 4, call_set, SHALE_OK, 8, 11, 0, 0, 0},
        {5, 6, call_get, SHALE_OK, 7, 10, 0, 0, 0}}},
    {"new, then old, beside a set", false, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 9, call_set, SHALE_OK, 8, 11, 0, 0, 0},
        {4, 5, call_get, SHALE_OK, 8, 11, 0, 0, 0}, {6, 7, call_get, SHALE_OK, 7, 10, 0, 0, 0}}},
    {"old, then new", true, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 9, call_set, SHALE_OK, 8, 11, 0, 0, 0},
        {4, 5, call_get, SHALE_OK, 7, 10, 0, 0, 0}, {6, 7, call_get, SHALE_OK, 8, 11, 0, 0, 0}}},
    {"a removed value comes back", false, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 4, call_remove, SHALE_OK, 0, 0, 0, 0, 0},
        {5, 6, call_get, SHALE_OK, 7, 10, 0, 0, 0}}},
    {"an invalidated value comes back", false, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 3, 0}, {3, 4, call_invalidate, SHALE_OK, 0, 0, 0, 3, 0},
        {5, 6, call_get, SHALE_OK, 7, 10, 0, 3, 0}}},
    {"another tag is invalidated", true, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 3, 0}, {3, 4, call_invalidate, SHALE_OK, 0, 0, 0, 4, 0},
        {5, 6, call_get, SHALE_OK, 7, 10, 0, 3, 0}}},
    {"a cleared value comes back", false, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 4, call_clear, SHALE_OK, 0, 0, 0, 0, 0},
        {5, 6, call_get, SHALE_OK, 7, 10, 0, 0, 0}}},
    {"a version goes back", false, 0, {{1, 2, call_set, SHALE_OK, 7, 11, 0, 0, 0}, {3, 4, call_set, SHALE_OK, 8, 10, 0, 0, 0}}},
    {"a value changes its version", false, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 4, call_get, SHALE_OK, 7, 12, 0, 0, 0}}},
    {"a counter's version goes back", false, 0, {{1, 2, call_increment, SHALE_OK, 1, 0, 0, 0, 0}, {3, 4, call_get, SHALE_OK, 1, 12, 0, 0, 0},
        {5, 6, call_increment, SHALE_OK, 2, 0, 0, 0, 0}, {7, 8, call_get, SHALE_OK, 2, 11, 0, 0, 0}}},
    {"a miss without reason", false, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 4, call_get, SHALE_MISS, 0, 0, 0, 0, 0}}},
    {"a miss while it is replaced", false, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 6, call_set, SHALE_OK, 8, 11, 0, 0, 0},
        {4, 5, call_get, SHALE_MISS, 0, 0, 0, 0, 0}}},
    {"a miss after an eviction", true, 1, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 4, call_get, SHALE_MISS, 0, 0, 0, 0, 0}}},
    {"back after an eviction", false, 1, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 4, call_get, SHALE_MISS, 0, 0, 0, 0, 0},
        {5, 6, call_get, SHALE_OK, 7, 10, 0, 0, 0}}},
    {"two losses and one eviction", false, 1, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 4, call_get, SHALE_MISS, 0, 0, 0, 0, 0},
        {5, 6, call_set, SHALE_OK, 8, 11, 0, 0, 0}, {7, 8, call_get, SHALE_MISS, 0, 0, 0, 0, 0}}},
    {"an eviction before an increment that was cut off", true, 1, {{1, 2, call_increment, SHALE_OK, 1, 0, 0, 0, 0}, {3, 4, call_increment, SHALE_OK, 2, 0, 0, 0, 0},
        {5, OPEN, call_increment, 0, 0, 0, 0, 0, 0}, {6, 7, call_get, SHALE_OK, 1, 10, 0, 0, 0}}},
    {"a counter that goes back", false, 0, {{1, 2, call_increment, SHALE_OK, 1, 0, 0, 0, 0}, {3, 4, call_increment, SHALE_OK, 2, 0, 0, 0, 0},
        {5, OPEN, call_increment, 0, 0, 0, 0, 0, 0}, {6, 7, call_get, SHALE_OK, 1, 10, 0, 0, 0}}},
    {"two sets of an absent key", false, 0, {{1, 5, call_set_absent, SHALE_OK, 7, 10, 0, 0, 0}, {2, 4, call_set_absent, SHALE_OK, 8, 11, 0, 0, 0}}},
    {"one of them finds a conflict", true, 0, {{1, 5, call_set_absent, SHALE_CONFLICT, 7, 0, 0, 0, 0}, {2, 4, call_set_absent, SHALE_OK, 8, 11, 0, 0, 0}}},
    {"a conflict without reason", false, 0, {{1, 2, call_set_absent, SHALE_CONFLICT, 7, 0, 0, 0, 0}}},
    {"two sets of one version", false, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 6, call_set_version, SHALE_OK, 8, 11, 10, 0, 0},
        {4, 5, call_set_version, SHALE_OK, 9, 12, 10, 0, 0}}},
    {"a present key that is not", false, 0, {{1, 2, call_set_present, SHALE_OK, 7, 10, 0, 0, 0}}},
    {"a removal of nothing", false, 0, {{1, 2, call_remove, SHALE_OK, 0, 0, 0, 0, 0}}},
    {"a removal of another version", false, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 4, call_remove, SHALE_OK, 0, 0, 9, 0, 0}}},
    {"a touch of nothing", false, 0, {{1, 2, call_touch, SHALE_OK, 0, 0, 0, 0, 0}}},
    {"a touch that misses", false, 0, {{1, 2, call_set, SHALE_OK, 7, 10, 0, 0, 0}, {3, 4, call_touch, SHALE_MISS, 0, 0, 0, 0, 0}}},
};
/* clang-format on */

static void check_the_checker(void) {
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
        size_t count = 0;
        while (count < 8 && by_hand[i].calls[count].begin)
            count++;
        history_result result = history_check(by_hand[i].calls, count, (register_state){0}, by_hand[i].losses, false);
        check_that((result.outcome == history_possible) == by_hand[i].is_possible, __FILE__, __LINE__, by_hand[i].name,
                   " %s", by_hand[i].is_possible ? "is possible" : "has to be refused");
    }
}

static const progress_case cases[] = {{"invalidated", "fence", case_invalidated}};

int main(int argument_count, char **arguments) {
    rounds = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 24;
    seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    shared = shared_memory(sizeof *shared);
    begin_loads();
    read_known_failures("histories");
    check_cases(cases, sizeof cases / sizeof *cases);
    *load_shares = (shares){0};
    check_the_checker();
    random_source source = {seed};
    the_round.directory = path_to("cache");
    uint64_t played = 0;
    for (; played < rounds && check_failures == 0; played++) {
        watch(patience);
        the_round.number = played;
        the_round.kind = (enum round_kind)(played % round_kinds);
        the_round.seed = random_next(&source);
        play_round(&source);
    }
    printf("%" PRIu64 " rounds, %" PRIu64 " processes killed, %" PRIu64 " histories of %" PRIu64 " calls (%" PRIu64
           " cut off, %" PRIu64 " in the longest), %" PRIu64 " steps, %" PRIu64 " losses of %" PRIu64
           " evictions, %" PRIu64 " shards rebuilt; seed %" PRIu64 "; %" PRIu64 " refusals for a shared line",
           played, total.killed, total.histories, total.calls, total.cut_off, total.longest, total.steps, total.losses,
           total.evictions, total.rebuilds, seed, atomic_load(&all_loads->line_shared));
    CHECK(print_shares(load_shares, most_refused, most_duplicates));
    CHECK(check_failures > 0 || played < 8 || (total.killed * 3 > played && total.cut_off > 0));
    free(the_round.directory);
    return finish();
}
