/* Readers are stopped in the middle of a call, for as long as it takes the writers to go round the log several
 * times, and then continue: they return bytes that were current during the call, or a miss if there was one; never a
 * mixture. Readers that come while a shard is being rebuilt wait for it, if a process rebuilds it. And readers that
 * read everything while everything changes.
 *
 * readers [seconds] [seed] */
#include "check.h"
#include "tolerances.h"
#include "killed.h"
#include "pattern.h"

#include <stdatomic.h>

enum { capacity = 4 << 20, large_size = 700000, small_size = 3000 };

static const shale_options options = {.struct_size = sizeof options, .capacity = capacity, .flags = SHALE_OPEN_NO_SYNC},
                           read_only = {.struct_size = sizeof read_only, .flags = SHALE_OPEN_READ_ONLY};

static uint64_t seed, stops, wraps, looks, rebuilds, waits;

/* ---- one entry, whose versions are numbered; the answers that readers may get ---- */

static struct {
    _Atomic uint64_t begun, completed; /* of the last set */
    _Atomic uint64_t gets;
    _Atomic bool is_waiting; /* a reader, for a rebuild */
} *ledger;

static unsigned char bytes[large_size];

static void set_next(shale_cache *cache, size_t size, uint32_t flags) {
    uint64_t version = atomic_load(&ledger->begun) + 1;
    pattern_fill(bytes, 1, version, size);
    atomic_store(&ledger->begun, version);
    shale_set_options how = {.struct_size = sizeof how, .flags = flags};
    CHECK_STATUS(SHALE_OK, shale_set(cache, "entry", 5, bytes, size, &how));
    atomic_store(&ledger->completed, version);
}

/* `may_miss`: it is removed, cleared or evicted (design.md, "Eviction") while the reader is stopped in its call,
 * which may see it before or after. The changes overwritten, moved, recovered and rebuilt do without. */
static void get_and_check(shale_cache *cache, bool may_miss) {
    shale_value value = SHALE_VALUE_INIT; /* a new one: its memory is allocated in the middle of the call */
    uint64_t oldest = atomic_load(&ledger->completed), version = 0;
    shale_status status = get_text(cache, "entry", 0, &value);
    uint64_t newest = atomic_load(&ledger->begun);
    count_look();
    if (status == SHALE_MISS && may_miss && tolerated(0, "removed, cleared or evicted"))
        return;
    CHECK_STATUS(SHALE_OK, status);
    const char *wrong = pattern_check(value.data, value.size, 1, &version);
    if (!wrong && (version < oldest || version > newest))
        wrong = "not current during the call";
    check_that(!wrong, __FILE__, __LINE__, "value", ": %s (%" PRIu64 " of %" PRIu64 "...%" PRIu64 ", seed %" PRIu64 ")",
               wrong ? wrong : "", version, oldest, newest, seed);
    atomic_fetch_add(&ledger->gets, 1);
    shale_value_free(&value);
}

/* Other entries, until the log has gone round twice. */
static void go_round(shale_cache *cache) {
    static unsigned char other[20000];
    static uint32_t number;
    for (size_t written = 0; written < 2 * capacity; written += sizeof other, number++) {
        memcpy(other, &number, sizeof number);
        uint32_t key = number % 100;
        CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, other, sizeof other,
                                         &(shale_set_options){.struct_size = sizeof(shale_set_options),
                                                              .flags = SHALE_SET_UNCOMPRESSED}));
    }
    wraps += 2;
}

/* ---- stopped while a buffer is allocated: between the header and the bytes ---- */

static unsigned allocations, stop_at;

static long stop_at_allocation(const char *name) {
    if (strcmp(name, "malloc") == 0 && ++allocations == stop_at)
        raise(SIGSTOP);
    return 0;
}

enum change { overwritten, removed, cleared, moved, recovered, rebuilt, evicted, change_count };

/* By the next writer, as the last one was killed in a change. */
static void rebuild(shale_cache *cache, const char *directory) {
    shale_stats before = {.struct_size = sizeof before}, after = before;
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &before));
    mark_as_being_rebuilt(directory);
    CHECK_STATUS(SHALE_OK, set_text(cache, "entry 2", "rebuilt", NULL));
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &after));
    CHECK_EQUAL(before.rebuilds + 1, after.rebuilds);
    rebuilds++;
}

static void make_change(shale_cache *cache, const char *directory, enum change change, size_t size) {
    switch (change) {
    case overwritten: set_next(cache, size, SHALE_SET_PINNED); break;
    case removed: CHECK_STATUS(SHALE_OK, shale_remove(cache, "entry", 5, 0)); break;
    case cleared: CHECK_STATUS(SHALE_OK, shale_clear(cache)); break;
    case evicted: CHECK_STATUS(SHALE_OK, shale_evict(cache, 1000, NULL)); break;
    case recovered: kill_a_writer(cache, "entry 2"); break;
    case rebuilt: rebuild(cache, directory); break;
    default: break;
    }
    go_round(cache);
}

static void test_stopped_between_header_and_bytes(void) {
    char *directory = path_to("stopped");
    shale_cache *cache = require_open(directory, options);
    for (int n = 0; n < 2 * 2 * 2 * change_count; n++) {
        size_t size = n % 2 ? large_size : small_size;
        enum change change = n / 8;
        set_next(cache, size, change == evicted ? 0 : SHALE_SET_PINNED);
        pid_t reader = fork();
        if (reader == 0) {
            begin_child(patience);
            die_with_parent();
            shale_cache *own = n / 4 % 2 ? require_open(directory, read_only) : cache;
            stop_at = 1 + (unsigned)n / 2 % 2;
            shim_faults.call = stop_at_allocation;
            get_and_check(own, change == removed || change == cleared || change == evicted);
            shim_faults.call = NULL;
            get_and_check(own, change == removed || change == cleared || change == evicted);
            _exit(check_failures != 0);
        }
        int status = 0;
        CHECK(waitpid(reader, &status, WUNTRACED) == reader);
        if (WIFSTOPPED(status)) { /* a small value's reader allocates once */
            stops++;
            make_change(cache, directory, change, size);
            kill(reader, SIGCONT);
            CHECK_EQUAL(0, wait_for(reader));
        } else {
            CHECK(size == small_size && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        shale_remove(cache, "entry", 5, 0);
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

/* ---- while a shard is being rebuilt ---- */

static uint64_t rebuild_stores, stop_rebuild_at;

static void stop_in_rebuild(const void *at UNUSED) {
    if (++rebuild_stores == stop_rebuild_at)
        raise(SIGSTOP);
}
static void on_rebuild(enum shim_event event, const void *at UNUSED) {
    if (event == SHIM_REPLAYED)
        shim_faults.store = stop_in_rebuild;
}
static bool is_reader;

/* A handle that may write waits for the lock, a read-only one sleeps. */
static long note_wait(const char *name) {
    if (strcmp(name, "lock_try") == 0)
        atomic_store(&ledger->is_waiting, true);
    return 0;
}
int nanosleep(const struct timespec *time, struct timespec *left) {
    if (is_reader)
        atomic_store(&ledger->is_waiting, true);
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left) == 0 ? 0 : -1;
}

static bool is_being_rebuilt(const char *directory) {
    uint64_t epoch = 0;
    int fd = open_file(directory, "shale.index", O_RDONLY);
    CHECK_EQUAL(8, pread(fd, &epoch, 8, index_head_bytes + shard_epoch));
    close(fd);
    return epoch % 2 != 0;
}

/* A writer that rebuilds the shard, stopped at the n-th of its stores; 0: at none, and its exit code is the number
 * of them in hundreds. */
static pid_t start_rebuild(shale_cache *cache, const char *directory, uint64_t n) {
    mark_as_being_rebuilt(directory);
    pid_t child = fork();
    if (child != 0)
        return child;
    begin_child(patience);
    die_with_parent();
    stop_rebuild_at = n;
    shim_faults.event = on_rebuild;
    CHECK_STATUS(SHALE_OK, set_text(cache, "entry 2", "rebuilt", NULL));
    _exit(check_failures ? 255 : n ? 0 : (int)(rebuild_stores / 100 < 254 ? rebuild_stores / 100 : 254));
}

static void test_while_being_rebuilt(void) {
    char *directory = path_to("rebuilt");
    shale_cache *cache = require_open(directory, options), *reading = require_open(directory, read_only);
    for (int n = 0; n < 2 * 2 * 5; n++) {
        set_next(cache, n % 2 ? large_size : small_size, SHALE_SET_PINNED);
        uint64_t stores = (uint64_t)wait_for(start_rebuild(cache, directory, 0)) * 100;
        REQUIRE(stores > 500 && stores < 25500);
        int status = 0;
        pid_t writer = start_rebuild(cache, directory, 3 + stores * (uint64_t)(n / 4) / 6);
        REQUIRE(waitpid(writer, &status, WUNTRACED) == writer && WIFSTOPPED(status));
        CHECK(is_being_rebuilt(directory));
        atomic_store(&ledger->is_waiting, false);
        pid_t reader = fork();
        if (reader == 0) {
            begin_child(patience);
            die_with_parent();
            is_reader = true;
            shim_faults.call = note_wait;
            get_and_check(n / 2 % 2 ? reading : cache, false);
            _exit(check_failures != 0);
        }
        /* Readers answer nothing before the rebuild has ended: a half-made table knows of no entry. */
        bool has_answered = false;
        while (!has_answered && !atomic_load(&ledger->is_waiting)) {
            has_answered = waitpid(reader, &status, WNOHANG) == reader;
            sleep_us(100);
        }
        CHECK(!has_answered);
        kill(writer, SIGCONT);
        CHECK_EQUAL(0, wait_for(writer));
        CHECK(has_answered || wait_for(reader) == 0);
        CHECK(!is_being_rebuilt(directory));
        rebuilds += 2;
        waits++;
    }
    CHECK_STATUS(SHALE_OK, shale_close(reading));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

/* A handle whose index is no longer the cache's answers an error to every read. Closes it and its cursor. */
static void check_left_behind(shale_cache *reading, shale_cursor *cursor) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = SHALE_OK;
    uint64_t lease = 0;
    CHECK_STATUS(SHALE_E_BUSY, get_text(reading, "entry", 0, &value));
    CHECK_STATUS(SHALE_E_BUSY, get_text(reading, "another", SHALE_GET_PEEK, &value));
    CHECK_STATUS(SHALE_E_BUSY, shale_get_many(reading, 1, &(shale_bytes){"entry", 5}, 0, &value, &status));
    CHECK_STATUS(SHALE_E_BUSY, shale_lease(reading, "entry", 5, NULL, &value, &lease));
    CHECK_STATUS(SHALE_E_BUSY, shale_cursor_next(cursor, 0, &value, NULL));
    CHECK_STATUS(SHALE_E_BUSY, shale_get_stats(reading, &(shale_stats){.struct_size = sizeof(shale_stats)}));
    CHECK_STATUS(SHALE_E_BUSY, shale_verify(reading, NULL));
    CHECK(strstr(shale_last_error(), "open it again"));
    shale_value_free(&value);
    shale_cursor_close(cursor);
    CHECK_STATUS(SHALE_OK, shale_close(reading));
}

/* The writer that rebuilt has died, and no other is attached: a read-only handle has a private index, and does not
 * wait. */
static void test_abandoned_rebuild(void) {
    char *directory = path_to("killed");
    shale_cache *cache = require_open(directory, options);
    set_next(cache, large_size, SHALE_SET_PINNED);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    pid_t writer = fork();
    if (writer == 0) {
        begin_child(patience);
        cache = require_open(directory, options);
        mark_as_being_rebuilt(directory);
        stop_rebuild_at = 100;
        shim_faults.event = on_rebuild;
        set_text(cache, "other", "rebuilt", NULL);
        _exit(1);
    }
    int status = 0;
    REQUIRE(waitpid(writer, &status, WUNTRACED) == writer && WIFSTOPPED(status));
    kill(writer, SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(writer));
    CHECK(is_being_rebuilt(directory));

    shale_cache *reading = require_open(directory, read_only);
    atomic_store(&ledger->is_waiting, false);
    is_reader = true;
    get_and_check(reading, false);
    is_reader = false;
    CHECK(!atomic_load(&ledger->is_waiting));
    CHECK(is_being_rebuilt(directory));
    shale_cursor *cursor = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(reading, &cursor));

    cache = require_open(directory, options);
    CHECK(!is_being_rebuilt(directory));
    get_and_check(cache, false);
    check_left_behind(reading, cursor);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

/* The index that a handle uses is deleted, and a writer makes another: the handle's index is retired. */
static void test_index_that_was_replaced(void) {
    char *directory = path_to("replaced");
    shale_cache *cache = require_open(directory, options);
    set_next(cache, small_size, 0);
    shale_cache *reading = require_open(directory, read_only);
    shale_cursor *cursor = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(reading, &cursor));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_index(directory);
    get_and_check(reading, false); /* the index exists as long as a handle uses it */
    cache = require_open(directory, options);
    check_left_behind(reading, cursor);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

/* ---- stopped anywhere ---- */

static void test_stopped_anywhere(int64_t duration) {
    char *directory = path_to("anywhere");
    shale_cache *cache = require_open(directory, options);
    random_source source = {seed};
    set_next(cache, large_size, SHALE_SET_PINNED);
    pid_t reader = fork();
    if (reader == 0) {
        begin_child((unsigned)(duration / 1000) + patience);
        die_with_parent();
        for (;;) {
            get_and_check(cache, false);
            if (check_failures)
                _exit(1);
        }
    }
    int64_t end = monotonic_ms() + duration;
    for (bool is_over = false; !is_over;) {
        uint64_t before = atomic_load(&ledger->gets);
        while (atomic_load(&ledger->gets) == before && waitpid(reader, NULL, WNOHANG) == 0)
            sleep_us(50);
        sleep_us((int64_t)random_below(&source, 2000));
        int status = 0;
        kill(reader, SIGSTOP);
        CHECK(waitpid(reader, &status, WUNTRACED) == reader);
        is_over = monotonic_ms() >= end || !CHECK(WIFSTOPPED(status));
        stops++;
        size_t size = random_below(&source, 4) ? large_size - random_below(&source, 100000) : small_size;
        if (random_below(&source, 3))
            set_next(cache, size, SHALE_SET_PINNED);
        if (random_below(&source, 3))
            go_round(cache);
        if (random_below(&source, 10) == 0) {
            /* In a sound shard: a writer that is killed while it recovers one leaves that to the reader, which would
             * be stopped under the lock then, and all others would wait for it. */
            CHECK_STATUS(SHALE_OK, set_text(cache, "entry 2", "finished", NULL));
            kill_a_writer(cache, "entry 2");
        }
        if (random_below(&source, 10) == 0)
            rebuild(cache, directory);
        kill(reader, SIGCONT);
    }
    kill(reader, SIGKILL);
    wait_for(reader);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

/* ---- reading everything while everything changes ---- */

static void write_for_ever(shale_cache *cache, uint64_t number) {
    random_source source = {seed + number};
    static unsigned char data[6000];
    for (;;) {
        uint32_t key = (uint32_t)random_below(&source, 2000);
        size_t size = random_below(&source, sizeof data);
        pattern_fill(data, key, 1, sizeof data);
        shale_set_options how = {.struct_size = sizeof how, .max_age_ms = 1 + (int64_t)random_below(&source, 1000)};
        if (shale_set(cache, &key, sizeof key, data, size, &how) < 0 ||
            shale_touch(cache, &key, sizeof key, 5000) < 0 ||
            (key % 50 == 0 && shale_remove(cache, &key, sizeof key, 0) < 0))
            _exit(1);
    }
}

static void test_verify_beside_writers(int64_t duration) {
    char *directory = path_to("verify");
    shale_cache *cache = require_open(directory, options), *reader = require_open(directory, read_only);
    pid_t writers[2];
    for (uint64_t i = 0; i < 2; i++) {
        writers[i] = fork();
        if (writers[i] == 0) {
            begin_child((unsigned)(duration / 1000) + patience);
            write_for_ever(cache, i);
        }
    }
    shale_stats stats = {.struct_size = sizeof stats};
    shale_report report = {.struct_size = sizeof report};
    for (int64_t end = monotonic_ms() + duration;
         check_failures == 0 && (monotonic_ms() < end || stats_of(cache).cleaned_bytes == 0); looks++) {
        CHECK_STATUS(SHALE_OK, shale_verify(looks % 8 ? reader : cache, &report));
        check_that(report.corrupt_records == 0, __FILE__, __LINE__, "verify",
                   ": %" PRIu64 " of %" PRIu64 " records are called damaged, seed %" PRIu64, report.corrupt_records,
                   report.records, seed);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(0, waitpid(writers[i], NULL, WNOHANG)); /* they never failed */
        kill(writers[i], SIGKILL);
        wait_for(writers[i]);
    }
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.corrupt_records);
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    CHECK_EQUAL(0, stats.corrupt_records);
    CHECK_STATUS(SHALE_OK, shale_close(reader));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

int main(int argument_count, char **arguments) {
    int64_t duration = (argument_count > 1 ? atoi(arguments[1]) : 5) * 1000;
    seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    watch((unsigned)(duration / 1000) + patience);
    ledger = shared_memory(sizeof *ledger);
    begin_tolerances();
    RUN(test_stopped_between_header_and_bytes);
    RUN(test_while_being_rebuilt);
    RUN(test_abandoned_rebuild);
    RUN(test_index_that_was_replaced);
    test_stopped_anywhere(duration * 2 / 5);
    test_verify_beside_writers(duration * 2 / 5);
    if (check_failures)
        fprintf(stderr, "reproduce: readers %" PRId64 " %" PRIu64 "\n", duration / 1000, seed);
    printf("%" PRIu64 " stops of a reader in a call, %" PRIu64 " times round the log, %" PRIu64 " rebuilds, %" PRIu64
           " of them waited for, %" PRIu64 " whole values, %" PRIu64 " looks at all records\n",
           stops, wraps, rebuilds, waits, (uint64_t)ledger->gets, looks);
    print_tolerances();
    return finish();
}
