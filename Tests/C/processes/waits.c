/* A process is stopped while it holds a lock: a caller that needs the lock reports that process after a second,
 * once, and gets SHALE_E_BUSY after lock_timeout_ms, with nothing changed. Readers do not wait, unless they meet a
 * rebuild or damage, or draw a token. Work after a call that has succeeded is left undone. The same for callers that
 * open and close beside a process that is stopped while it opens. */
#define _GNU_SOURCE
#include "afterwards.h"
#include "gate.h"
#include "killed.h"

#include <pthread.h>
#include <stdatomic.h>

enum { limit = 30, hour = 60 * 60 * 1000, large = 1 << 20, spread = 700 << 10 };

static const shale_options two_shards = {
    .capacity = 8 << 20, .shards = 2, .segment_size = 128 << 10, .flags = SHALE_OPEN_NO_SYNC, .lock_timeout_ms = limit};

static unsigned char bytes[large];

/* ---- the report of a wait ---- */

typedef struct {
    _Atomic unsigned count;
    char last[1024];
} told_waits;

static void note_wait(void *context, const char *message) {
    told_waits *told = context;
    snprintf(told->last, sizeof told->last, "%s", message);
    atomic_fetch_add(&told->count, 1);
}

static void check_names(const char *sentence, const char *file, pid_t holder, const char *advice) {
    char process[64];
    snprintf(process, sizeof process, "process %d (test_waits)", (int)holder);
    bool names = strstr(sentence, file) && strstr(sentence, holder ? process : "another thread of this process") &&
                 strstr(sentence, advice);
    check_that(names, __FILE__, __LINE__, "names the file, the process and what to do", ": %s", sentence);
}

static bool check_busy(shale_status status, const char *directory, pid_t holder, const char *what) {
    char file[512];
    snprintf(file, sizeof file, "%s/shale.index", directory);
    if (!check_that(status == SHALE_E_BUSY, __FILE__, __LINE__, "busy", ": %s answers %d", what, status))
        return false;
    check_names(shale_last_error(), file, holder, "continue or end it, or raise lock_timeout_ms");
    return CHECK_EQUAL(0, shale_last_errno());
}

/* ---- a process that is stopped in the middle ---- */

static void stop_at_store(const void *at UNUSED) {
    shim_faults.store = NULL;
    raise(SIGSTOP);
}
/* A store is under the lock once it is taken. */
static long stop_under_lock(const char *name) {
    if (strcmp(name, "lock_try") == 0)
        shim_faults.store = stop_at_store;
    return 0;
}

static void wait_until_stopped(pid_t child) {
    int status = 0;
    REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    REQUIRE(WIFSTOPPED(status));
}

/* Holds the lock of the key's shard. */
static pid_t stop_writer(shale_cache *cache, const char *key) {
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        die_with_parent();
        shim_faults.call = stop_under_lock;
        CHECK_STATUS(SHALE_OK, set_text(cache, key, "of the stopped", NULL));
        _exit(check_failures != 0);
    }
    wait_until_stopped(child);
    return child;
}

static void let_go_on(pid_t child) {
    kill(child, SIGCONT);
    CHECK_EQUAL(0, wait_for(child));
}

/* Keys of either shard, while a lock is held. */
static const char *key_where(shale_cache *cache, shale_status expected) {
    static char names[2][16];
    char *name = names[expected == SHALE_OK];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof names[0], "key %d", i);
        if (shale_remove(cache, name, strlen(name), 0) == (expected == SHALE_OK ? SHALE_MISS : expected))
            return name;
    }
    REQUIRE(false);
    return NULL;
}

static void check_text(shale_cache *cache, const char *key, const char *text) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, get_text(cache, key, 0, &value));
    CHECK_TEXT(&value, text);
    shale_value_free(&value);
}

/* ---- every call that takes a lock ---- */

#define BUSY(call) check_busy((call), directory, holder, #call)

static void test_every_call(void) {
    char *directory = path_to("every call");
    shale_cache *cache = require_open(directory, two_shards);
    shale_value value = SHALE_VALUE_INIT;
    shale_lease_options lease_options = {.struct_size = sizeof lease_options};
    uint64_t lease = 0;

    pid_t holder = stop_writer(cache, "holder");
    char taken[16], of_other[16];
    snprintf(taken, sizeof taken, "%s", key_where(cache, SHALE_E_BUSY));
    snprintf(of_other, sizeof of_other, "%s", key_where(cache, SHALE_OK));
    let_go_on(holder);
    size_t size = strlen(taken);
    CHECK_STATUS(SHALE_OK, set_text(cache, taken, "before", NULL));
    CHECK_STATUS(SHALE_OK, set_text(cache, of_other, "before", NULL));
    lease = lease_of_missing(cache, "leased", 6);
    holder = stop_writer(cache, taken);

    int64_t begin = monotonic_ms();
    BUSY(set_text(cache, taken, "after", NULL));
    CHECK(monotonic_ms() - begin >= limit);
    shale_set_options pinned = {.struct_size = sizeof pinned, .flags = SHALE_SET_PINNED};
    BUSY(set_text(cache, taken, "after", &pinned));
    BUSY(shale_set(cache, taken, size, bytes, large, NULL));
    BUSY(shale_remove(cache, taken, size, 0));
    BUSY(shale_touch(cache, taken, size, 1000));
    BUSY(shale_expire(cache, taken, size));
    BUSY(shale_increment(cache, taken, size, 1, 0, NULL));
    BUSY(shale_invalidate(cache, "tag", 3));
    BUSY(shale_evict(cache, 100, NULL));
    BUSY(shale_purge(cache, NULL));
    BUSY(shale_verify(cache, NULL));
    BUSY(shale_sync(cache));
    const shale_bytes keys[] = {{of_other, strlen(of_other)}, {taken, size}};
    shale_status statuses[2];
    BUSY(shale_remove_many(cache, 2, keys, statuses));
    CHECK_STATUS(SHALE_E_BUSY, statuses[1]);

    /* Readers, and callers that need the other shard, do not wait. */
    check_text(cache, taken, "before");
    CHECK_STATUS(SHALE_OK, set_text(cache, of_other, "beside", NULL));
    check_text(cache, of_other, "beside");
    char absent[16];
    bool waits = false, does_not = false;
    for (int i = 0; i < 100 && !(waits && does_not); i++) { /* keys of both shards */
        snprintf(absent, sizeof absent, "absent %d", i);
        CHECK_STATUS(SHALE_MISS, get_text(cache, absent, 0, &value));
        shale_status status = get_text(cache, absent, SHALE_GET_TOKEN, &value);
        if (status == SHALE_MISS) {
            does_not = CHECK(value.version != 0);
            continue;
        }
        waits = check_busy(status, directory, holder, "a miss with a token");
        CHECK_EQUAL(0, value.size);
        BUSY(shale_lease(cache, absent, strlen(absent), &lease_options, &value, &lease));
        CHECK_EQUAL(0, lease);
        BUSY(shale_renew(cache, absent, strlen(absent), 1, 1000));
        BUSY(shale_release(cache, absent, strlen(absent), 1));
    }
    CHECK(waits && does_not);

    BUSY(shale_clear(cache)); /* the other shard may be cleared, this one is not */
    check_text(cache, taken, "before");

    let_go_on(holder);
    check_text(cache, taken, "of the stopped");
    CHECK_STATUS(SHALE_OK, shale_sync(cache));
    check_afterwards(cache, directory, "every call");
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

/* ---- readers that have to wait ---- */

static void test_readers(void) {
    char *directory = path_to("readers");
    shale_options one_shard = {.capacity = 4 << 20, .flags = SHALE_OPEN_NO_SYNC, .lock_timeout_ms = limit};
    shale_cache *cache = require_open(directory, one_shard);
    one_shard.lock_timeout_ms = 0;
    shale_cache *patient = require_open(directory, one_shard);
    shale_set_options plain = {.struct_size = sizeof plain, .flags = SHALE_SET_UNCOMPRESSED};
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, set_text(cache, "sound", "a value of its own", NULL));
    CHECK_STATUS(SHALE_OK, set_text(cache, "damaged", "a value that is damaged", &plain));
    mapped_file data = map_file(directory, "shale.data"), index = map_file(directory, "shale.index");

    /* Stamps are to be renumbered: a reader does so if the lock is free. */
    uint64_t *stamp = (void *)(index.bytes + index_head_bytes + shard_stamp), high = UINT64_C(1) << 37;
    pid_t holder = stop_writer(cache, "sound");
    *stamp = high - 1;
    check_text(patient, "sound", "a value of its own");
    CHECK_EQUAL((int64_t)high, (int64_t)*stamp);
    let_go_on(holder);

    *last_in(&data, "a value that is damaged", 23) ^= 1;
    holder = stop_writer(cache, "sound");
    check_busy(get_text(cache, "damaged", 0, &value), directory, holder, "a get that meets damage");
    CHECK_EQUAL(0, value.size);
    let_go_on(holder);
    CHECK_STATUS(SHALE_MISS, get_text(cache, "damaged", 0, &value));
    CHECK(value.flags & SHALE_VALUE_DAMAGED);
    shale_value_free(&value);
    unmap_file(&data);
    unmap_file(&index);
    CHECK_STATUS(SHALE_OK, shale_close(patient));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

static void stop_at_hundredth_store(const void *at UNUSED) {
    static int stores;
    if (++stores == 100)
        raise(SIGSTOP);
}
static void stop_in_rebuild(enum shim_event event, const void *at UNUSED) {
    if (event == SHIM_REPLAYED)
        shim_faults.store = stop_at_hundredth_store;
}

/* A large value whose parts are in a shard that is being rebuilt is busy, and stays. */
static void test_rebuild(void) {
    char *directory = path_to("rebuild");
    shale_options options = two_shards, reader = {.flags = SHALE_OPEN_READ_ONLY, .lock_timeout_ms = limit};
    shale_cache *cache = require_open(directory, options), *reading = require_open(directory, reader);
    shale_set_options plain = {.struct_size = sizeof plain, .flags = SHALE_SET_UNCOMPRESSED};
    shale_value value = SHALE_VALUE_INIT;
    char key[16];
    unsigned found = 0;
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "large %d", i);
        CHECK_STATUS(SHALE_OK, shale_set(cache, key, strlen(key), bytes, spread, &plain));
    }
    mark_as_being_rebuilt(directory); /* the first shard */
    pid_t holder = fork();
    if (holder == 0) {
        begin_child(patience);
        die_with_parent();
        shim_faults.event = stop_in_rebuild;
        CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
        _exit(check_failures != 0);
    }
    wait_until_stopped(holder);
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "large %d", i);
        found += check_busy(get_text(cache, key, 0, &value), directory, holder, "a get in a rebuild");
        CHECK_EQUAL(0, value.size);
        CHECK_STATUS(SHALE_E_BUSY, get_text(reading, key, 0, &value));
        CHECK(strstr(shale_last_error(), "being rebuilt"));
    }
    CHECK_EQUAL(4, found);
    let_go_on(holder);
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "large %d", i);
        CHECK_STATUS(SHALE_OK, get_text(cache, key, 0, &value));
        CHECK_BYTES(&value, bytes, spread);
    }
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(reading));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

static void stop_in_second_replay(enum shim_event event, const void *at UNUSED) {
    static int replays;
    if (event == SHIM_REPLAYED && ++replays == 2)
        raise(SIGSTOP);
}

/* A new index, whose opener is stopped in a shard: calls that need that shard, or the manifests in it, are busy. */
static void test_opener_rebuilds(int signal_number) {
    char *directory = path_to("opener rebuilds");
    shale_options options = two_shards, reader = {.flags = SHALE_OPEN_READ_ONLY, .lock_timeout_ms = limit};
    shale_cache *cache = require_open(directory, options);
    shale_set_options plain = {.struct_size = sizeof plain, .flags = SHALE_SET_UNCOMPRESSED};
    shale_value value = SHALE_VALUE_INIT;
    char key[16];
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "large %d", i);
        CHECK_STATUS(SHALE_OK, shale_set(cache, key, strlen(key), bytes, spread, &plain));
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_index(directory);
    pid_t holder = fork();
    if (holder == 0) {
        begin_child(patience);
        die_with_parent();
        shim_faults.event = stop_in_second_replay;
        CHECK_STATUS(SHALE_OK, shale_close(require_open(directory, options)));
        _exit(check_failures != 0);
    }
    wait_until_stopped(holder);
    cache = require_open(directory, options);
    shale_cache *reading = require_open(directory, reader);
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "large %d", i);
        check_busy(get_text(cache, key, 0, &value), directory, holder, "a get beside an opener");
        check_busy(set_text(cache, key, "changed", NULL), directory, holder, "a set beside an opener");
        CHECK_STATUS(SHALE_E_BUSY, get_text(reading, key, 0, &value));
        CHECK(strstr(shale_last_error(), "being rebuilt"));
        CHECK_STATUS(SHALE_E_BUSY, shale_verify(reading, NULL));
    }
    kill(holder, signal_number);
    CHECK_EQUAL(signal_number == SIGCONT ? 0 : 128 + signal_number, wait_for(holder));
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "large %d", i);
        CHECK_STATUS(SHALE_OK, get_text(cache, key, 0, &value));
        CHECK_BYTES(&value, bytes, spread);
    }
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_verify(reading, NULL));
    CHECK_STATUS(SHALE_OK, shale_close(reading));
    check_afterwards(cache, directory, "an opener that was stopped");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

/* ---- work after a call ---- */

/* A set of a small value replaces a large one, parts of which are in a shard whose lock is held. */
static void test_what_follows(void) {
    char *directory = path_to("follows");
    shale_options options = two_shards;
    options.lock_timeout_ms = 0; /* the work after the call is given up all the same */
    shale_cache *cache = require_open(directory, two_shards), *patient = require_open(directory, options);
    shale_set_options plain = {.struct_size = sizeof plain, .flags = SHALE_SET_UNCOMPRESSED};
    pid_t holder = stop_writer(cache, "holder");
    char key[16];
    snprintf(key, sizeof key, "%s", key_where(cache, SHALE_OK));
    let_go_on(holder);
    CHECK_STATUS(SHALE_OK, shale_set(cache, key, strlen(key), bytes, spread, &plain));
    holder = stop_writer(cache, "holder");
    CHECK_STATUS(SHALE_OK, set_text(patient, key, "small", NULL));
    check_text(cache, key, "small");
    let_go_on(holder);
    accounts left = take_account(directory, account_own_files);
    CHECK_EQUAL(0, left.faults);
    CHECK(left.orphans > 0);

    /* The cleaner removes them. */
    for (int i = 0; i < 60; i++) {
        snprintf(key, sizeof key, "filling %d", i);
        for (int round = 0; round < 3; round++)
            CHECK_STATUS(SHALE_OK, shale_set(cache, key, strlen(key), bytes, 100 << 10, &plain));
    }
    left = take_account(directory, account_own_files);
    CHECK_EQUAL(0, left.faults);
    CHECK_EQUAL(0, left.orphans);
    CHECK_STATUS(SHALE_OK, shale_close(patient));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

/* ---- the report ---- */

typedef struct {
    shale_cache *cache;
    const char *key;
    pthread_t thread;
    _Atomic bool has_ended;
} waiter;

static void *wait_in_set(void *context) {
    waiter *w = context;
    CHECK_STATUS(SHALE_OK, set_text(w->cache, w->key, "waited", NULL));
    atomic_store(&w->has_ended, true);
    return NULL;
}

static void test_word(void) {
    char *directory = path_to("word"), file[512];
    snprintf(file, sizeof file, "%s/shale.index", directory);
    told_waits told = {0};
    shale_options options = {
        .capacity = 4 << 20, .flags = SHALE_OPEN_NO_SYNC, .on_wait = note_wait, .wait_context = &told};
    shale_cache *cache = require_open(directory, options);
    pid_t holder = stop_writer(cache, "holder");

    /* Several callers wait without end: one reports it, once, however long it takes. */
    waiter waiters[3];
    for (int i = 0; i < 3; i++) {
        waiters[i] = (waiter){.cache = cache, .key = "waited for"};
        REQUIRE(pthread_create(&waiters[i].thread, NULL, wait_in_set, &waiters[i]) == 0);
    }
    while (atomic_load(&told.count) == 0)
        sleep_us(1000);
    check_names(told.last, file, holder, "continue or end it");
    CHECK(!strstr(told.last, "lock_timeout"));
    sleep_us(1300000); /* (the others' second) */
    CHECK_EQUAL(1, atomic_load(&told.count));
    __atomic_store_n(&shim_faults.uptime_ahead, (long long)hour, __ATOMIC_RELAXED);
    sleep_us(100000);
    CHECK_EQUAL(1, atomic_load(&told.count));
    for (int i = 0; i < 3; i++)
        CHECK(!atomic_load(&waiters[i].has_ended));
    let_go_on(holder);
    for (int i = 0; i < 3; i++)
        pthread_join(waiters[i].thread, NULL);
    check_text(cache, "waited for", "waited");
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    /* Call after call: once a minute. The last error does not come from the wait before the call fails. */
    options.lock_timeout_ms = 1001;
    cache = require_open(directory, options);
    told.count = 0;
    holder = stop_writer(cache, "holder");
    check_busy(set_text(cache, "waited for", "again", NULL), directory, holder, "the first");
    CHECK_EQUAL(1, told.count);
    check_busy(set_text(cache, "waited for", "again", NULL), directory, holder, "the second");
    CHECK_EQUAL(1, told.count);
    shim_faults.uptime_ahead += 60000;
    check_busy(set_text(cache, "waited for", "again", NULL), directory, holder, "a minute later");
    CHECK_EQUAL(2, told.count);
    let_go_on(holder);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shim_faults.uptime_ahead = 0;
    free(directory);
}

/* ---- a holder that is a thread ---- */

static gate is_held, may_go_on;
static pthread_t holding_thread;

static void hold_at_store(const void *at UNUSED) {
    if (!pthread_equal(pthread_self(), holding_thread))
        return;
    shim_faults.store = NULL;
    pass(&is_held);
    await(&may_go_on);
}

static void *hold(void *cache) {
    holding_thread = pthread_self();
    shim_faults.store = hold_at_store;
    CHECK_STATUS(SHALE_OK, set_text(cache, "held", "by a thread", NULL));
    return NULL;
}

static void test_thread(void) {
    char *directory = path_to("thread");
    shale_options options = {.capacity = 4 << 20, .flags = SHALE_OPEN_NO_SYNC, .lock_timeout_ms = limit};
    shale_cache *cache = require_open(directory, options);
    is_held = make_gate(), may_go_on = make_gate();
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, hold, cache) == 0);
    await(&is_held);
    check_busy(set_text(cache, "held", "by the other", NULL), directory, 0, "beside a thread");

    /* In a child, the same thread id is another process's; and so is one of a process with a name like this. */
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        begin_child(patience);
        check_busy(set_text(cache, "held", "by a child", NULL), directory, parent, "in a child");
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    REQUIRE(prctl(PR_SET_NAME, "a\nb") == 0);
    child = fork();
    if (child == 0) {
        begin_child(patience);
        CHECK_STATUS(SHALE_E_BUSY, set_text(cache, "held", "by a child", NULL));
        CHECK(strstr(shale_last_error(), "(a?b)") && !strchr(shale_last_error(), '\n'));
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    REQUIRE(prctl(PR_SET_NAME, "test_waits") == 0);
    pass(&may_go_on);
    pthread_join(thread, NULL);
    check_text(cache, "held", "by a thread");
    close_gate(&is_held);
    close_gate(&may_go_on);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

/* ---- opening and closing ---- */

static long stop_at_map(const char *name) {
    if (strcmp(name, "mmap") == 0)
        raise(SIGSTOP);
    return 0;
}

/* In the middle of opening; it closes as soon as it is open. */
static pid_t stop_opener(const char *directory, uint32_t flags) {
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        die_with_parent();
        shim_faults.call = stop_at_map;
        shale_options options = {.struct_size = sizeof options, .flags = flags | SHALE_OPEN_NO_SYNC};
        shale_cache *cache = NULL;
        CHECK_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
        shim_faults.call = NULL;
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        _exit(check_failures != 0);
    }
    wait_until_stopped(child);
    return child;
}

/* It maps several times. */
static void let_opener_go_on(pid_t child) {
    int status = 0;
    do {
        kill(child, SIGCONT);
        REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    } while (WIFSTOPPED(status));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_opening(void) {
    char *directory = path_to("opening"), file[512];
    snprintf(file, sizeof file, "%s/shale.data", directory);
    told_waits told = {0};
    shale_options options = {.struct_size = sizeof options, .capacity = 4 << 20, .lock_timeout_ms = limit};
    shale_cache *cache = require_open(directory, options), *second = NULL;
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "before", NULL));
    const uint32_t kinds[] = {0, SHALE_OPEN_READ_ONLY};
    for (int i = 0; i < 2; i++) {
        pid_t holder = stop_opener(directory, kinds[i]);
        CHECK_STATUS(SHALE_E_BUSY, shale_open(directory, &options, &second));
        check_names(shale_last_error(), file, holder, "continue or end it, or raise lock_timeout_ms");
        CHECK(!second);
        options.flags = SHALE_OPEN_READ_ONLY, options.capacity = 0;
        if (i == 0) {
            CHECK_STATUS(SHALE_E_BUSY, shale_open(directory, &options, &second));
        } else { /* readers share the lock */
            CHECK_STATUS(SHALE_OK, shale_open(directory, &options, &second));
            CHECK_STATUS(SHALE_OK, shale_close(second));
            second = NULL;
        }
        options.flags = 0, options.capacity = 4 << 20;
        check_text(cache, "key", "before"); /* a process that is attached already needs no such lock */
        CHECK_STATUS(SHALE_OK, set_text(cache, "key", "before", NULL));

        options.lock_timeout_ms = 1001;
        options.on_wait = note_wait, options.wait_context = &told;
        CHECK_STATUS(SHALE_E_BUSY, shale_open(directory, &options, &second));
        CHECK_EQUAL(i + 1, told.count);
        check_names(told.last, file, holder, "continue or end it");
        options.lock_timeout_ms = limit, options.on_wait = NULL;
        let_opener_go_on(holder);
    }
    /* A close gives up as well, and makes everything durable: nothing is lost. */
    pid_t holder = stop_opener(directory, 0);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    let_opener_go_on(holder);
    cache = require_open(directory, options);
    check_text(cache, "key", "before");
    check_afterwards(cache, directory, "opening");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    options.lock_timeout_ms = -1;
    CHECK_STATUS(SHALE_E_INVALID, shale_open(directory, &options, &second));
    free(directory);
}

int main(void) {
    prefer_memory();
    watch(patience);
    REQUIRE(prctl(PR_SET_NAME, "test_waits") == 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    test_every_call();
    test_readers();
    test_rebuild();
    test_opener_rebuilds(SIGCONT);
    test_opener_rebuilds(SIGKILL);
    test_what_follows();
    test_word();
    test_thread();
    test_opening();
    return finish();
}
