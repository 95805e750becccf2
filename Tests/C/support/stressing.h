/* The members, the operations and the oracle of stress.c and containers.c.
 *
 * The ledger in shared memory knows the right answers although writers of one key overlap. Each operation that
 * changes something draws a number from one counter when it starts, and records the counter when it has ended; the
 * number is part of the value. So of two operations it is known whether one had ended before the other started. A
 * read's result is wrong if its operation had ended before another operation started that had itself ended before
 * the read began. A killed thread's operation never ends: it may show or not, but the cache's own versions ensure
 * that a version once seen is never followed by an older one. */
#ifndef STRESSING_H
#define STRESSING_H

#include "afterwards.h"
#include "tolerances.h"
#include "loads.h"
#include "pattern.h"
#include "progress_cases.h"
#include "threads.h"

#include <stdatomic.h>

enum {
    key_count = 1200,
    hot_keys = 32, /* half of all operations use these */
    group_count = 40, /* a tag each */
    counter_count = 8,
    most_processes = 12,
    most_threads = 4,
    most_operations = 1 << 20, /* of a round */
    rounds_each = 5, /* with one directory */
    segment_size = 128 << 10,
    in_parts = segment_size / 8, /* larger values are in parts */
    largest = 200000,
    refused = -1
};
/* Of a thousand. A load lasts for an operation, and two in a thousand are refused: those during which their thread
 * lost the processor, so the share hardly depends on the machine's load. The lease of a shared key lasts for an
 * hour, and no shard's 64 are taken at once, so no second one is given. */
enum { most_refused = 20, most_duplicates = 0 };

/* The effects of operations on a key, on all keys of a tag, or on all. */
typedef struct {
    _Atomic uint64_t floor;       /* latest start of the ended operations */
    _Atomic uint64_t removed_until;  /* latest end of the operations that removed it */
    _Atomic uint64_t being_taken; /* how many run, or were killed in it */
} account;

typedef struct {
    account account;
    _Atomic uint64_t newest; /* the cache's own version: the highest that was completed or seen */
    uint64_t base;           /* its state when the round began; 0: absent */
    uint64_t since; /* absent and perhaps evicted: the values of this round and later ones that may return */
} key_state;

typedef struct {
    _Atomic uint64_t started, completed;
} counter_state;

enum operation {
    op_set,
    op_conditional,
    op_remove,
    op_touch,
    op_increment,
    op_invalidate,
    op_clear,
    op_get,
    op_get_many,
    op_cursor,
    op_handle,
    op_verify,
    op_sync,
    op_evict,
    op_purge,
    op_load,
    op_kinds
};
static const char *const operation_names[op_kinds] = {
    "sets",    "conditional", "removals", "touches",       "increments", "invalidations", "clears", "gets",
    "batches", "cursors",     "handles",  "verifications", "syncs",      "evictions",     "purges", "loads"};

typedef struct {
    key_state keys[key_count];
    account groups[group_count];
    account all;
    counter_state counters[counter_count];
    _Atomic uint64_t issued; /* the numbers of this round's operations: 1, 2, 3, ... */
    struct {
        _Atomic int64_t end; /* 0: not ended; refused: it did nothing */
        _Atomic uint64_t version;
        _Atomic int kind; /* for the message of a failure */
    } operations[most_operations + 64];
    _Atomic uint64_t progress[most_processes];
    _Atomic uint64_t thread_progress[most_processes * most_threads];
    _Atomic uint64_t done[op_kinds];
    _Atomic bool stop;
} ledger_of_all;

static ledger_of_all *ledger;

/* The round's settings */
typedef struct {
    uint64_t number, seed;
    /* The cache is too small: entries are evicted, so any may be missing (design.md, "Eviction"). Half of the rounds
     * have room for all, and histories.c counts the losses of a cache that evicts against its evictions. */
    bool is_tight;
    int32_t policy;
    bool has_clears; /* so counters start again; three of four rounds have none */
    uint64_t rebuilds; /* before it */
    int64_t lock_timeout_ms; /* 0: calls wait for locks without limit */
    char *directory;
} round_settings;

static round_settings the_round;

static char repeat_command[200]; /* for the message of a failure */

static struct {
    uint64_t killed, killed_threads, rebuilds, evictions;
} total;

/* `floor`: the operation that had ended before and rules it out. */
static void wrong(const char *what, const char *name, uint64_t number, uint64_t found, uint64_t floor) {
    check_that(false, __FILE__, __LINE__, what,
               ": %s %" PRIu64 ", found %" PRIu64 ":%" PRIu64 ", after operation %" PRIu64 " (%s) of round %" PRIu64
               ", again: %s",
               name, number, found >> 32, found & UINT32_MAX, floor,
               floor <= most_operations ? operation_names[atomic_load(&ledger->operations[floor].kind)] : "",
               the_round.number, repeat_command);
}

static void raise_to(_Atomic uint64_t *word, uint64_t value) {
    uint64_t known = atomic_load(word);
    while (known < value && !atomic_compare_exchange_weak(word, &known, value)) {
    }
}

static uint64_t highest(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Operations that change something */

static uint64_t begin_change(account *account, enum operation kind, bool takes_away) {
    if (takes_away)
        atomic_fetch_add(&account->being_taken, 1);
    uint64_t number = atomic_fetch_add(&ledger->issued, 1) + 1;
    atomic_store(&ledger->operations[number].kind, kind);
    return number;
}

static void end_change(account *account, uint64_t number, bool takes_away, bool happened) {
    uint64_t end = atomic_load(&ledger->issued);
    atomic_store(&ledger->operations[number].end, happened ? (int64_t)end : refused);
    if (happened)
        raise_to(&account->floor, number);
    if (takes_away) {
        if (happened)
            raise_to(&account->removed_until, end);
        atomic_fetch_sub(&account->being_taken, 1);
    }
}

/* Reading, checked */

typedef struct {
    uint64_t floor, newest;
} reading;

static account *group_of(uint64_t key) {
    return &ledger->groups[key % group_count];
}

static reading begin_reading(uint64_t key) {
    return (reading){highest(atomic_load(&ledger->keys[key].account.floor),
                             highest(atomic_load(&group_of(key)->floor), atomic_load(&ledger->all.floor))),
                     atomic_load(&ledger->keys[key].newest)};
}

static bool may_be_missing(uint64_t key, reading before) {
    account *accounts[] = {&ledger->keys[key].account, group_of(key), &ledger->all};
    uint64_t until = 0;
    for (int i = 0; i < 3; i++) {
        if (atomic_load(&accounts[i]->being_taken) > 0)
            return true;
        until = highest(until, atomic_load(&accounts[i]->removed_until));
    }
    return until >= before.floor && (until > 0 || ledger->keys[key].base == 0);
}

/* What a call found: returns the value's version, 0 if there was none. */
static uint64_t end_reading(uint64_t key, reading before, shale_status status, const shale_value *value) {
    uint64_t found = 0;
    count_look();
    if (status == SHALE_MISS) {
        if (!may_be_missing(key, before) && !(the_round.is_tight && tolerated(0, "evicted")))
            wrong("lost", "key", key, 0, before.floor);
        return 0;
    }
    if (status != SHALE_OK) {
        wrong(shale_last_error(), "key", key, 0, before.floor);
        return 0;
    }
    const char *fault = pattern_check(value->data, value->size, key, &found);
    if (!fault && (value->meta_size != (found % 2 ? sizeof found : 0) || memcmp(value->meta, &found, value->meta_size)))
        fault = "another value's meta";
    uint64_t number = found & UINT32_MAX;
    if (fault) {
    } else if (found >> 32 != the_round.number) {
        key_state *state = &ledger->keys[key];
        /* Evicted or expired entries may be indexed again: recovery.md, "A rebuild". */
        bool returns = the_round.is_tight && state->base == 0 && found >> 32 >= state->since;
        if ((found != state->base && !(returns && tolerated(1, "back after a rebuild"))) || before.floor > 0)
            fault = "older: of an earlier round";
    } else if (number == 0 || number > atomic_load(&ledger->issued)) {
        fault = "never set";
    } else {
        int64_t end = atomic_load(&ledger->operations[number].end);
        uint64_t version = atomic_load(&ledger->operations[number].version);
        if (end == refused)
            fault = "refused, and there all the same";
        else if (end != 0 && (uint64_t)end < before.floor)
            fault = "older: replaced before the call";
        else if (version != 0 && version != value->version)
            fault = "of another version than its set said";
    }
    if (!fault && value->version < before.newest)
        fault = "older than a version seen before";
    if (fault)
        wrong(fault, "key", key, found, before.floor);
    raise_to(&ledger->keys[key].newest, value->version);
    return found;
}

static uint64_t read_key(shale_cache *cache, uint64_t key, uint32_t flags, shale_value *value) {
    reading before = begin_reading(key);
    return end_reading(key, before, shale_get(cache, &key, sizeof key, flags, value), value);
}

static void read_many(shale_cache *cache, random_source *source, uint64_t *keys, uint64_t count) {
    shale_value values[16];
    shale_bytes names[16];
    shale_status statuses[16];
    reading before[16];
    for (uint64_t i = 0; i < count; i++) {
        keys[i] = random_below(source, key_count);
        names[i] = (shale_bytes){&keys[i], sizeof keys[i]};
        values[i] = (shale_value)SHALE_VALUE_INIT;
        before[i] = begin_reading(keys[i]);
    }
    CHECK_STATUS(SHALE_OK, shale_get_many(cache, count, names, 0, values, statuses));
    for (uint64_t i = 0; i < count; i++) {
        end_reading(keys[i], before[i], statuses[i], &values[i]);
        shale_value_free(&values[i]);
    }
}

/* Checks every entry that a cursor finds like a read; returns how many there were. */
static uint64_t walk(shale_cache *cache, uint64_t most) {
    shale_cursor *cursor = NULL;
    shale_value name = SHALE_VALUE_INIT, value = SHALE_VALUE_INIT;
    uint64_t count = 0;
    reading *before = malloc(key_count * sizeof *before);
    REQUIRE(before);
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    for (uint64_t key = 0; key < key_count; key++)
        before[key] = begin_reading(key);
    while (count < most && shale_cursor_next(cursor, 0, &name, &value) == SHALE_OK) {
        uint64_t key = 0;
        count++;
        if (name.size != sizeof key)
            continue; /* a counter, or an entry set to write to every shard */
        memcpy(&key, name.data, sizeof key);
        if (CHECK(key < key_count))
            end_reading(key, before[key], SHALE_OK, &value);
    }
    shale_cursor_close(cursor);
    shale_value_free(&name);
    shale_value_free(&value);
    free(before);
    return count;
}

/* Large values without all of their parts: a clear came between, and their writer was killed before it checked
 * again. They count, and are a miss (limits.md, "Not atomic"). */
static uint64_t count_incomplete(shale_cache *cache) {
    shale_cursor *cursor = NULL;
    shale_value name = SHALE_VALUE_INIT, info = SHALE_VALUE_INIT, value = SHALE_VALUE_INIT;
    uint64_t count = 0;
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    while (shale_cursor_next(cursor, SHALE_GET_INFO, &name, &info) == SHALE_OK)
        if (info.size > in_parts && shale_get(cache, name.data, name.size, SHALE_GET_PEEK, &value) == SHALE_MISS)
            count++;
    shale_cursor_close(cursor);
    shale_value_free(&name);
    shale_value_free(&info);
    shale_value_free(&value);
    return count;
}

/* A counter that was evicted (design.md, "Eviction") or cleared. */
static bool starts_over(void) {
    return (the_round.is_tight || the_round.has_clears) && tolerated(2, "a counter started again");
}

static void read_counter(shale_cache *cache, uint32_t counter, shale_value *value) {
    counter_state *state = &ledger->counters[counter];
    uint64_t least = atomic_load(&state->completed), found = 0;
    shale_status status = shale_get(cache, &counter, sizeof counter, 0, value);
    if (status == SHALE_OK && CHECK_EQUAL(sizeof found, value->size))
        memcpy(&found, value->data, sizeof found);
    uint64_t most = atomic_load(&state->started);
    count_look();
    if (found > most || (found < least && !starts_over()))
        wrong("not a sum of its increments", "counter", counter, found, least);
}

/* Changes */

/* Mostly small; some in parts. */
static size_t size_of(random_source *source) {
    uint64_t n = random_below(source, 1000);
    size_t most = n < 880 ? 600 : n < 994 ? 9000 : largest;
    return sizeof(pattern_head) + random_below(source, most - sizeof(pattern_head));
}

typedef struct {
    shale_cache *cache;
    random_source source;
    uint64_t process, member;
    shale_value value;
    unsigned char bytes[largest];
} worker;

/* Either a longer age, or none at all, which removes the key. A call evaluates ages by the clock at its beginning:
 * so a key that is given no age must not be touched at the same time by a call that would prolong it. */
static bool expires(uint64_t key) {
    return key % 4 == 0;
}

static void set(worker *w, uint64_t key, uint32_t flags) {
    shale_set_options options = {.struct_size = sizeof options, .flags = flags};
    if (flags & SHALE_SET_IF_VERSION) {
        read_key(w->cache, key, SHALE_GET_PEEK, &w->value);
        options.version = w->value.version;
    }
    if (random_below(&w->source, 16) == 0)
        options.flags |= SHALE_SET_UNCOMPRESSED;
    bool expires_at_once = !flags && expires(key) && random_below(&w->source, 8) == 0; /* removes the key */
    options.max_age_ms = expires_at_once ? SHALE_NONE : 0;
    uint64_t tag = key % group_count, version = 0;
    shale_bytes tags = {&tag, sizeof tag};
    options.tags = &tags;
    options.tag_count = 1;
    options.new_version = &version;
    size_t size = size_of(&w->source);
    account *account = &ledger->keys[key].account;
    /* A large value may be a miss until its set returns, if a clear runs beside: limits.md, "Not atomic". */
    bool may_be_missed = expires_at_once || (the_round.has_clears && size > in_parts);

    uint64_t number = begin_change(account, flags ? op_conditional : op_set, may_be_missed),
             mark = the_round.number << 32 | number;
    pattern_fill(w->bytes, key, mark, size);
    if (mark % 2) {
        options.meta = &mark;
        options.meta_size = sizeof mark;
    }
    shale_status status = shale_set(w->cache, &key, sizeof key, w->bytes, size, &options);
    CHECK_EITHER(SHALE_OK, flags ? SHALE_CONFLICT : SHALE_OK, status);
    if (status == SHALE_OK) {
        atomic_store(&ledger->operations[number].version, version);
        raise_to(&ledger->keys[key].newest, version);
    }
    end_change(account, number, may_be_missed, status == SHALE_OK);
}

static void remove_key(worker *w, uint64_t key) {
    uint64_t version = 0;
    if (random_below(&w->source, 4) == 0 && read_key(w->cache, key, SHALE_GET_PEEK, &w->value))
        version = w->value.version;
    account *account = &ledger->keys[key].account;
    uint64_t number = begin_change(account, op_remove, true);
    shale_status status = shale_remove(w->cache, &key, sizeof key, version);
    CHECK(version || status != SHALE_CONFLICT);
    CHECK_ANSWER(status);
    end_change(account, number, true, status == SHALE_OK || (status == SHALE_MISS && !version));
}

static void touch(worker *w, uint64_t key) {
    if (!expires(key)) {
        shale_status status = shale_touch(w->cache, &key, sizeof key,
                                          3600000 + (int64_t)random_below(&w->source, 1000));
        CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
        return;
    }
    account *account = &ledger->keys[key].account;
    uint64_t number = begin_change(account, op_touch, true);
    shale_status status = shale_touch(w->cache, &key, sizeof key, SHALE_NONE);
    CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
    end_change(account, number, true, status == SHALE_OK);
}

static void increment(worker *w, uint32_t counter) {
    counter_state *state = &ledger->counters[counter];
    int64_t result = 0;
    uint64_t least = atomic_load(&state->completed);
    atomic_fetch_add(&state->started, 1);
    shale_status status = shale_increment(w->cache, &counter, sizeof counter, 1, 0, &result);
    if (!CHECK_STATUS(SHALE_OK, status))
        return;
    uint64_t most = atomic_load(&state->started);
    count_look();
    if ((uint64_t)result > most || ((uint64_t)result <= least && !starts_over()))
        wrong("not a sum of its increments", "counter", counter, (uint64_t)result, least);
    atomic_fetch_add(&state->completed, 1);
}

static void take_away(worker *w, account *account, const uint64_t *tag) {
    uint64_t number = begin_change(account, tag ? op_invalidate : op_clear, true);
    shale_status status = tag ? shale_invalidate(w->cache, tag, sizeof *tag) : shale_clear(w->cache);
    CHECK_STATUS(SHALE_OK, status);
    if (status == SHALE_OK) /* otherwise some shards have done it and some have not */
        end_change(account, number, true, true);
}

static shale_cache *open_cache(uint32_t flags) {
    shale_options options = {
        .struct_size = sizeof options, .flags = flags, .lock_timeout_ms = the_round.lock_timeout_ms};
    if (!(flags & SHALE_OPEN_READ_ONLY)) {
        options.capacity = the_round.is_tight ? 6 << 20 : 40 << 20;
        options.segment_size = segment_size;
        options.eviction = the_round.policy;
        options.shards = the_round.is_tight ? 2 : 4;
        options.flags |= SHALE_OPEN_NO_SYNC;
    }
    return require_open(the_round.directory, options);
}

/* Another handle for a short while: opens, reads, writes, closes. */
static void come_and_go(worker *w) {
    bool read_only = random_below(&w->source, 2);
    shale_cache *own = w->cache, *cache = open_cache(read_only ? SHALE_OPEN_READ_ONLY : 0);
    w->cache = cache;
    for (int i = 0; i < 20; i++) {
        uint64_t key = random_below(&w->source, key_count);
        if (read_only || i % 2)
            read_key(cache, key, 0, &w->value);
        else
            set(w, key, 0);
    }
    w->cache = own;
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static enum operation choose(random_source *source) {
    static const struct {
        enum operation operation;
        unsigned weight;
    } choices[] = {
        {op_set, 3500},      {op_conditional, 700}, {op_remove, 700},   {op_touch, 600},
        {op_increment, 500}, {op_get, 3000},        {op_get_many, 400}, {op_invalidate, 200},
        {op_cursor, 20},     {op_handle, 8},        {op_verify, 3},     {op_sync, 2},
        {op_evict, 20},      {op_purge, 10},        {op_clear, 2},      {op_load, 300},
    };
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        sum += choices[i].weight;
    uint64_t n = random_below(source, sum);
    size_t i = 0;
    while (n >= choices[i].weight)
        n -= choices[i++].weight;
    return choices[i].operation;
}

static bool is_allowed(enum operation operation) {
    return (operation != op_clear || the_round.has_clears) && (operation != op_evict || the_round.is_tight);
}

/* A clear and a rebuild refuse fenced sets (shale.h, SHALE_SET_IF_UNCHANGED). Most rounds have no clears. */
static void explain_refusal(shale_cache *cache) {
    bool is_explained = the_round.has_clears || stats_of(cache).rebuilds > the_round.rebuilds;
    if (!(is_explained && tolerated(6, "fenced set refused")))
        note_refusal(cache);
}

static void perform(worker *w, enum operation operation);

/* A load takes as long as another operation. Its key is the worker's own, or one whose lease all workers want. */
static void load(worker *w) {
    enum operation meanwhile = choose(&w->source);
    uint32_t slot = (uint32_t)random_below(&w->source, load_keys);
    uint64_t shared_key[2] = {slot, the_round.number}, own_key[2] = {w->member, UINT64_MAX}, lease = 0;
    bool is_shared = random_below(&w->source, 2);
    if (is_shared)
        lease = begin_load(w->cache, shared_key, slot, (uint32_t)w->member);
    else
        begin_own_load(w->cache, own_key, &w->value);
    uint64_t token = w->value.version;
    if (meanwhile != op_load && is_allowed(meanwhile))
        perform(w, meanwhile);
    if (lease)
        end_load(w->cache, shared_key, slot, lease);
    count_look();
    if (!is_shared && set_fenced(w->cache, own_key, sizeof own_key, token) == SHALE_CONFLICT)
        explain_refusal(w->cache);
}

static void perform(worker *w, enum operation operation) {
    static const uint32_t conditions[] = {SHALE_SET_IF_ABSENT, SHALE_SET_IF_PRESENT, SHALE_SET_IF_VERSION};
    uint64_t key = random_below(&w->source, random_below(&w->source, 2) ? hot_keys : key_count), keys[16];
    switch (operation) {
    case op_set: set(w, key, 0); break;
    case op_conditional: set(w, key, conditions[random_below(&w->source, 3)]); break;
    case op_remove: remove_key(w, key); break;
    case op_touch: touch(w, key); break;
    case op_increment: increment(w, (uint32_t)random_below(&w->source, counter_count)); break;
    case op_invalidate: key %= group_count, take_away(w, &ledger->groups[key], &key); break;
    case op_clear: take_away(w, &ledger->all, NULL); break;
    case op_get: read_key(w->cache, key, random_below(&w->source, 4) ? 0 : SHALE_GET_PEEK, &w->value); break;
    case op_get_many: read_many(w->cache, &w->source, keys, 1 + random_below(&w->source, 16)); break;
    case op_cursor: walk(w->cache, random_below(&w->source, 300)); break;
    case op_handle: come_and_go(w); break;
    case op_sync: CHECK_STATUS(SHALE_OK, shale_sync(w->cache)); break;
    case op_evict: CHECK_STATUS(SHALE_OK, shale_evict(w->cache, random_below(&w->source, 20), NULL)); break;
    case op_purge: CHECK_STATUS(SHALE_OK, shale_purge(w->cache, NULL)); break;
    case op_load: load(w); break;
    case op_verify: {
        shale_report report = {.struct_size = sizeof report};
        CHECK_STATUS(SHALE_OK, shale_verify(w->cache, &report));
        CHECK_EQUAL(0, report.corrupt_records);
        break;
    }
    case op_kinds: break;
    }
}

static void *work(void *context) {
    worker *w = context;
    while (!atomic_load(&ledger->stop) && atomic_load(&ledger->issued) < most_operations && check_failures == 0) {
        enum operation operation = choose(&w->source);
        if (!is_allowed(operation))
            continue;
        perform(w, operation);
        atomic_fetch_add(&ledger->done[operation], 1);
        atomic_fetch_add(&ledger->progress[w->process], 1);
        atomic_fetch_add(&ledger->thread_progress[w->member], 1);
    }
    shale_value_free(&w->value);
    free(w);
    return NULL;
}

/* A member: threads that share one handle, its own or its parent's. */
static void live(uint64_t process, uint64_t threads, shale_cache *inherited) {
    begin_child(patience);
    shale_cache *cache = inherited ? inherited : open_cache(0);
    void *workers[most_threads];
    for (uint64_t i = 0; i < threads; i++) {
        worker *w = workers[i] = malloc(sizeof *w);
        REQUIRE(w);
        *w = (worker){.cache = cache,
                      .process = process,
                      .member = process * most_threads + i,
                      .value = SHALE_VALUE_INIT,
                      .source = {the_round.seed * 1000 + process * 10 + i}};
    }
    run_threads(threads, work, workers);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    _exit(check_failures != 0);
}

/* Waits until a member has done this many more operations, or has ended: then its exit code says why. */
static void wait_for_progress(uint64_t process, uint64_t count, pid_t child) {
    uint64_t aim = atomic_load(&ledger->progress[process]) + count;
    int64_t deadline = monotonic_ms() + 500000;
    while (atomic_load(&ledger->progress[process]) < aim && atomic_load(&ledger->issued) < most_operations &&
           is_alive(child))
        if (CHECK(monotonic_ms() < deadline))
            sleep_us(200);
        else
            return;
}

/* Writes until every shard has certainly been written to, so that killed operations are recovered. */
static void write_everywhere(shale_cache *cache) {
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t key[3] = {i, i, i};
        CHECK_STATUS(SHALE_OK, shale_set(cache, key, sizeof key, "x", 1, NULL));
        CHECK_STATUS(SHALE_OK, shale_remove(cache, key, sizeof key, 0));
    }
}

/* Entries made invisible by tags are still counted, until a shard has recorded 384 tags; then they are removed. */
static void sweep_tags(shale_cache *cache) {
    for (uint32_t tag = 0; tag < 400; tag++)
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &tag, sizeof tag));
}

/* No process works any more: each key now has its final value. */
static void settle(shale_cache *cache) {
    static uint64_t first[key_count];
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t key = 0; key < key_count; key++)
        first[key] = read_key(cache, key, 0, &value);
    write_everywhere(cache);
    for (uint64_t key = 0; key < key_count; key++) {
        uint64_t found = read_key(cache, key, 0, &value);
        /* Evicted entries may be back (recovery.md, "A rebuild"), or others be evicted (design.md, "Eviction"), and
         * a clear that was cut off in some shards is finished in the others (limits.md, "Not atomic"). */
        bool may_return = !first[key] && the_round.is_tight,
             may_go = !found && atomic_load(&ledger->all.being_taken) > 0;
        if (found != first[key] && !(may_return && tolerated(3, "back after recovery")) &&
            !(may_go && tolerated(4, "cleared by recovery")))
            wrong("changed by recovery", "key", key, found, first[key]);
        ledger->keys[key].base = found;
        if (begin_reading(key).floor > 0)
            ledger->keys[key].since = the_round.number;
    }
    for (uint32_t counter = 0; counter < counter_count; counter++) {
        read_counter(cache, counter, &value);
        uint64_t found = 0;
        if (value.size == sizeof found)
            memcpy(&found, value.data, sizeof found);
        atomic_store(&ledger->counters[counter].started, found);
        atomic_store(&ledger->counters[counter].completed, found);
    }
    shale_value_free(&value);
}

/* The next round counts from 1 again; the entries stay. */
static void begin_round(void) {
    for (uint64_t key = 0; key < key_count; key++)
        memset(&ledger->keys[key].account, 0, sizeof(account));
    memset(ledger->groups, 0, sizeof ledger->groups);
    memset(&ledger->all, 0, sizeof ledger->all);
    memset(ledger->operations, 0, sizeof ledger->operations[0] * (atomic_load(&ledger->issued) + 1));
    memset(ledger->progress, 0, sizeof ledger->progress);
    memset(ledger->thread_progress, 0, sizeof ledger->thread_progress);
    atomic_store(&ledger->issued, 0);
    atomic_store(&ledger->stop, false);
    begin_round_of_loads();
}

/* No member works any more. `cache`: a handle, or NULL. Closes it. */
static void check_round(shale_cache *cache, uint64_t killed_threads, shale_stats *before) {
    if (!cache)
        cache = open_cache(0);
    settle(cache);
    CHECK(!try_everything(cache, the_round.is_tight, false));
    CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL)); /* expired entries are counted until then */
    sweep_tags(cache);
    shale_stats stats = stats_of(cache);
    CHECK(stats.rebuilds - before->rebuilds <= killed_threads);
    CHECK_EQUAL(0, stats.corrupt_records);
    CHECK(the_round.is_tight || stats.evictions == 0); /* there is room for all: a miss is a loss */
    uint64_t found = walk(cache, UINT64_MAX);
    /* A large value that a clear or an eviction left without parts counts until it is read or evicted: limits.md, "Not
     * atomic". */
    if (found < stats.entries && (the_round.has_clears || the_round.is_tight) &&
        tolerated(5, "incomplete values counted"))
        found += count_incomplete(cache);
    CHECK_EQUAL(stats.entries, found);
    shale_report report = {.struct_size = sizeof report};
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.corrupt_records);
    CHECK(report.records >= stats.entries);
    accounts found_outside = check_account(the_round.directory, "after the round");
    CHECK_EQUAL(stats.entries, found_outside.entries);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    total.killed_threads += killed_threads;
    total.rebuilds += stats.rebuilds - before->rebuilds;
    total.evictions += stats.evictions - before->evictions;
    *before = stats;
}

/* Plays rounds until `is_over`. Deletes the directory after each five: it is small and growing, then full, and every
 * second one is too small. Returns the number of rounds. */
static uint64_t play_rounds(random_source *source, bool (*is_over)(void),
                            void (*play)(random_source *source, shale_stats *before)) {
    shale_stats stats = {.struct_size = sizeof stats};
    uint64_t rounds = 0;
    for (; !is_over() && check_failures == 0; rounds++) {
        if (rounds % rounds_each == 0) {
            remove_tree(the_round.directory);
            memset(ledger->keys, 0, sizeof ledger->keys);
            memset(ledger->counters, 0, sizeof ledger->counters);
            stats = (shale_stats){.struct_size = sizeof stats};
            the_round.is_tight = rounds / rounds_each % 2;
            the_round.policy = policy_of(rounds / rounds_each / 2);
            CHECK_STATUS(SHALE_OK, shale_close(open_cache(0)));
        }
        the_round.number = rounds + 1;
        the_round.seed = random_next(source);
        the_round.has_clears = random_below(source, 4) == 0;
        the_round.rebuilds = stats.rebuilds;
        play(source, &stats);
        /* This directory's last round: an eviction would be missed later. */
        if (rounds % rounds_each == rounds_each - 1) {
            shale_cache *cache = open_cache(0);
            check_still_works(cache);
            check_account(the_round.directory, "afterwards");
            CHECK_STATUS(SHALE_OK, shale_close(cache));
        }
    }
    return rounds;
}

/* The part of the last line that all programs have in common. */
static void print_operations(void) {
    for (int i = 0; i < op_kinds; i++)
        printf("%s %" PRIu64 " %s", i ? "," : "", atomic_load(&ledger->done[i]), operation_names[i]);
}

#endif
