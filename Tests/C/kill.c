/* kill -9 at any moment loses no completed operation, leaves no lock stuck, and
 * never makes a wrong value readable.
 *
 * A child writes and keeps an account in shared memory: for each key the
 * version that it has started and the one that it has completed. It is killed
 * at a random moment; then every key must read as one of the two. In half of
 * the rounds the survivors are attached throughout (another writer, and this
 * process); in the others the child was alone, and the cache is opened anew.
 *
 * kill [seconds] [seed] */
#include "check.h"
#include "pattern.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { keys_each = 2000, writers = 2, key_count = keys_each * writers, largest = 300000 };

typedef struct {
    _Atomic uint64_t started, completed;
} account;

static struct {
    account keys[key_count];
    account counters[writers];
    _Atomic uint64_t operations[writers];
    _Atomic bool stop;
} *ledger;

static uint64_t seed;

/* What version `v` of a key is: most are sets, some removals, tag invalidations and touches. */
enum kind { kind_set, kind_remove, kind_invalidate, kind_touch };

static enum kind kind_of(uint64_t v) {
    return v % 11 == 0 ? kind_remove : v % 11 == 5 ? kind_invalidate : v % 11 == 7 ? kind_touch : kind_set;
}

/* The version whose value is readable after version `v`; 0: none. */
static uint64_t readable(uint64_t v) {
    if (v == 0)
        return 0;
    switch (kind_of(v)) {
    case kind_set: return v;
    case kind_touch: return v - 1;
    default: return 0;
    }
}

/* Mostly small; some larger than a segment. */
static size_t size_of(uint64_t key, uint64_t v) {
    random_source source = {key * 1000003 + v};
    uint64_t n = random_below(&source, 1000);
    size_t most = n < 900 ? 600 : n < 997 ? 9000 : largest;
    return sizeof(pattern_head) + random_below(&source, most - sizeof(pattern_head));
}

static shale_cache *open_cache(const char *directory) {
    shale_options options = {.struct_size = sizeof options, .capacity = 32 << 20, .segment_size = 128 << 10,
                             .shards = 2, .flags = SHALE_OPEN_NO_SYNC};
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    return cache;
}

static shale_status perform(shale_cache *cache, uint64_t key, uint64_t v) {
    static unsigned char bytes[largest];
    shale_bytes tag = {&key, sizeof key};
    shale_set_options options = {.struct_size = sizeof options, .tags = &tag, .tag_count = 1};
    size_t size = size_of(key, v);
    switch (kind_of(v)) {
    case kind_set:
        pattern_fill(bytes, key, v, size);
        return shale_set(cache, &key, sizeof key, bytes, size, &options);
    case kind_remove: return shale_remove(cache, &key, sizeof key, 0);
    case kind_invalidate: return shale_invalidate(cache, &key, sizeof key);
    default: return shale_touch(cache, &key, sizeof key, 3600000);
    }
}

/* A writer of one range of keys, until it is killed or asked to stop. */
static void write_forever(const char *directory, uint64_t writer, uint64_t round) {
    begin_child(60);
    shale_cache *cache = open_cache(directory);
    random_source source = {seed + round * 131 + writer};
    while (!atomic_load(&ledger->stop)) {
        uint64_t key = writer * keys_each + random_below(&source, keys_each);
        account *entry = &ledger->keys[key];
        uint64_t v = atomic_load(&entry->completed) + 1;
        atomic_store(&entry->started, v);
        REQUIRE_STATUS(SHALE_OK, perform(cache, key, v));
        atomic_store(&entry->completed, v);
        if (random_below(&source, 8) == 0) {
            account *counter = &ledger->counters[writer];
            uint64_t n = atomic_load(&counter->completed) + 1;
            int64_t result = 0;
            uint32_t name = (uint32_t)writer;
            atomic_store(&counter->started, n);
            REQUIRE_STATUS(SHALE_OK, shale_increment(cache, &name, sizeof name, 1, 0, &result));
            CHECK_EQUAL(n, result);
            atomic_store(&counter->completed, n);
        }
        atomic_fetch_add(&ledger->operations[writer], 1);
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    _exit(check_failures != 0);
}

static pid_t start_writer(const char *directory, uint64_t writer, uint64_t round) {
    pid_t child = fork();
    if (child == 0)
        write_forever(directory, writer, round);
    return child;
}

/* What a key or a counter reads as: its completed version, or the one that was
 * under way. The latter may come to light late, when the next writer repairs
 * what the killed one left; but once it has been seen, it stays. `settled`:
 * that repair has been made, so from now on it is one of the two for good. */
static void check_version(account *entry, const char *wrong, const char *what, uint64_t number, uint64_t found,
                          uint64_t (*meaning)(uint64_t), bool settled) {
    uint64_t started = atomic_load(&entry->started), completed = atomic_load(&entry->completed);
    if (!wrong && found != meaning(completed) && found != meaning(started))
        wrong = found ? "another version" : "lost";
    check_that(!wrong, __FILE__, __LINE__, wrong ? wrong : "",
               ": %s %" PRIu64 ", started %" PRIu64 ", completed %" PRIu64 ", found %" PRIu64 ", seed %" PRIu64, what,
               number, started, completed, found, seed);
    if (found == meaning(started))
        atomic_store(&entry->completed, started);
    else if (settled)
        atomic_store(&entry->started, completed);
}

static uint64_t itself(uint64_t v) {
    return v;
}

static void check_range(shale_cache *cache, uint64_t writer, bool settled) {
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t key = writer * keys_each; key < (writer + 1) * keys_each; key++) {
        uint64_t found = 0;
        const char *wrong = NULL;
        shale_status status = shale_get(cache, &key, sizeof key, 0, &value);
        if (status == SHALE_OK)
            wrong = pattern_check(value.data, value.size, key, &found);
        else if (status != SHALE_MISS)
            wrong = shale_last_error();
        check_version(&ledger->keys[key], wrong, "key", key, found, readable, settled);
    }
    uint64_t found = 0;
    uint32_t name = (uint32_t)writer;
    shale_status status = shale_get(cache, &name, sizeof name, 0, &value);
    if (status == SHALE_OK && CHECK_EQUAL(8, value.size))
        memcpy(&found, value.data, 8);
    check_version(&ledger->counters[writer], NULL, "counter", writer, found, itself, settled);
    shale_value_free(&value);
}

/* Reads the keys of a writer while it writes, dies, or is dead: what is found was
 * current at some moment between the two looks at its account. */
static void read_along(shale_cache *cache, uint64_t writer, random_source *source, int64_t duration_us) {
    shale_value value = SHALE_VALUE_INIT;
    int64_t end = monotonic_us() + duration_us;
    do {
        uint64_t key = writer * keys_each + random_below(source, keys_each), found = 0;
        account *entry = &ledger->keys[key];
        uint64_t from = atomic_load(&entry->completed);
        shale_status status = shale_get(cache, &key, sizeof key, 0, &value);
        uint64_t to = atomic_load(&entry->started);
        const char *wrong = NULL;
        if (status == SHALE_OK)
            wrong = pattern_check(value.data, value.size, key, &found);
        else if (status != SHALE_MISS)
            wrong = shale_last_error();
        bool current = false;
        for (uint64_t v = from; v <= to; v++)
            current |= found == readable(v);
        if (!wrong && !current)
            wrong = found ? "not current during the call" : "lost during the call";
        check_that(!wrong, __FILE__, __LINE__, wrong ? wrong : "",
                   ": key %" PRIu64 ", from %" PRIu64 " to %" PRIu64 ", found %" PRIu64 ", seed %" PRIu64, key, from,
                   to, found, seed);
    } while (monotonic_us() < end && check_failures == 0);
    shale_value_free(&value);
}

/* Writes until every shard has certainly been written to. */
static void write_everywhere(shale_cache *cache) {
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t key[3] = {i, i, i};
        CHECK_STATUS(SHALE_OK, shale_set(cache, key, sizeof key, "x", 1, NULL));
    }
}

static bool wait_for_operations(uint64_t writer, uint64_t count, pid_t child) {
    int64_t deadline = monotonic_ms() + 10000;
    while (atomic_load(&ledger->operations[writer]) < count && monotonic_ms() < deadline) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child)
            return false;
        sleep_us(200);
    }
    return atomic_load(&ledger->operations[writer]) >= count;
}

int main(int argument_count, char **arguments) {
    int64_t duration = (argument_count > 1 ? atoi(arguments[1]) : 10) * 1000;
    seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    watch((unsigned)(duration / 1000) + 60);
    ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(ledger != MAP_FAILED);
    char *directory = path_to("killed");
    random_source source = {seed};
    int64_t end = monotonic_ms() + duration;
    shale_stats stats = {.struct_size = sizeof stats};
    uint64_t round = 0, operations = 0, rebuilds = 0;

    for (; monotonic_ms() < end && check_failures == 0; round++) {
        if (round % 25 == 0) { /* anew, so that the index grows while writers die */
            remove_tree(directory);
            memset(ledger, 0, sizeof *ledger);
            rebuilds += stats.rebuilds;
        }
        bool attached = round % 2 == 1;
        shale_cache *cache = attached ? open_cache(directory) : NULL;
        atomic_store(&ledger->stop, false);
        for (int writer = 0; writer < writers; writer++)
            atomic_store(&ledger->operations[writer], 0);

        pid_t victim = start_writer(directory, 0, round);
        pid_t survivor = attached ? start_writer(directory, 1, round) : -1;
        /* Now and then while it opens the cache, otherwise somewhere in its writing. */
        if (random_below(&source, 8) != 0)
            CHECK(wait_for_operations(0, 1 + random_below(&source, 2000), victim));
        int64_t moment = (int64_t)random_below(&source, 3000);
        if (attached)
            read_along(cache, 0, &source, moment);
        else
            sleep_us(moment);
        kill(victim, SIGKILL);
        if (attached)
            read_along(cache, 0, &source, 200);
        CHECK_EQUAL(128 + SIGKILL, wait_for(victim));
        operations += atomic_load(&ledger->operations[0]);

        if (!attached)
            cache = open_cache(directory);
        check_range(cache, 0, false);
        write_everywhere(cache); /* no lock is stuck */
        check_range(cache, 0, true);
        if (attached) {
            uint64_t done = atomic_load(&ledger->operations[1]);
            CHECK(wait_for_operations(1, done + 100, survivor));
            atomic_store(&ledger->stop, true);
            CHECK_EQUAL(0, wait_for(survivor));
        }
        check_range(cache, 1, true);
        CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
        CHECK_EQUAL(0, stats.evictions); /* there is room for all: a miss is a loss */
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        if (round % 8 == 7) {
            cache = open_cache(directory);
            check_range(cache, 0, true);
            check_range(cache, 1, true);
            shale_report report = {.struct_size = sizeof report};
            CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
            CHECK_EQUAL(0, report.corrupt_records);
            CHECK_STATUS(SHALE_OK, shale_close(cache));
        }
    }
    printf("%" PRIu64 " rounds, %" PRIu64 " operations of writers that were killed, %" PRIu64
           " shards rebuilt, seed %" PRIu64 "\n",
           round, operations, rebuilds + stats.rebuilds, seed);
    if (check_failures)
        fprintf(stderr, "seed %" PRIu64 "\n", seed);
    free(directory);
    return finish();
}
