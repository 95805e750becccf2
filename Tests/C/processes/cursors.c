/* Walks beside writers that replace pinned keys, set and remove others, end them by tags, and are killed, in a log
 * that goes round all the time; through handles that write and through a read-only one, and through deletions of the
 * index. A pinned key, which is only ever replaced, comes exactly once in each walk that ends. No key comes twice,
 * and a key removed before the walk does not come. A walk of a read-only handle whose index was replaced ends with
 * an error.
 *
 * The test ends after a number of walks, however long they take.
 *
 * cursors [rounds] [seed] */
#include "check.h"
#include "files.h"

#include <stdatomic.h>

enum { pinned_count = 64, guest_count = 1500, removed_count = 100, writer_count = 2, walks_in_round = 30, tags = 8 };
enum {
    first_guest = pinned_count,
    first_removed = first_guest + guest_count,
    key_count = first_removed + removed_count
};

static struct {
    /* How often the index was about to be deleted, or has been rebuilt. */
    _Atomic uint64_t changes;
    _Atomic uint64_t reader_walks, writer_walks, refusals;
    _Atomic bool is_over;
} *shared;

static char *directory;
static shale_cache *cache; /* of the process that is the parent of the others */
static uint64_t seed;
static random_source chance;
static pid_t writers[writer_count];
static uint64_t started, kills;

static void set_key(random_source *source, uint64_t key) {
    static unsigned char bytes[3000];
    shale_bytes tag = {&(uint64_t){key % tags}, 8};
    shale_set_options options = {.struct_size = sizeof options,
                                 .flags = SHALE_SET_UNCOMPRESSED | (key < pinned_count ? SHALE_SET_PINNED : 0),
                                 .tags = &tag,
                                 .tag_count = key >= pinned_count};
    CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, bytes,
                                     1 + random_below(source, key < pinned_count ? 800 : sizeof bytes), &options));
}

/* The status at its end: END, or an error. `between` may act at a step. */
static shale_status walk(void (*between)(void)) {
    static unsigned char times[key_count];
    memset(times, 0, sizeof times);
    shale_cursor *cursor = NULL;
    shale_value name = SHALE_VALUE_INIT;
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    shale_status status;
    while ((status = shale_cursor_next(cursor, SHALE_GET_INFO, &name, NULL)) == SHALE_OK) {
        uint64_t key = key_count;
        REQUIRE(name.size == sizeof key);
        memcpy(&key, name.data, sizeof key);
        REQUIRE(key < key_count);
        times[key]++;
        if (between)
            between();
    }
    shale_cursor_close(cursor);
    shale_value_free(&name);
    for (uint64_t key = 0; key < key_count; key++) {
        bool is_right = key >= first_removed                        ? times[key] == 0
                        : key < pinned_count && status == SHALE_END ? times[key] == 1
                                                                    : times[key] <= 1;
        check_that(is_right, __FILE__, __LINE__, "times", ": key %" PRIu64 " came %u times, seed %" PRIu64, key,
                   times[key], seed);
    }
    return status;
}

/* (While a child has its parent's handle, that one is attached.) */
static void begin_other_process(void) {
    begin_child(patience);
    die_with_parent();
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    cache = NULL;
}

static void write_until_killed(uint64_t number) {
    begin_other_process();
    random_source source = {seed + number};
    cache = require_open(directory, (shale_options){0});
    while (!check_failures && !atomic_load(&shared->is_over)) {
        uint64_t choice = random_below(&source, 1000), guest = first_guest + random_below(&source, guest_count);
        if (choice < 400)
            set_key(&source, random_below(&source, pinned_count));
        else if (choice < 900)
            set_key(&source, guest);
        else if (choice < 990)
            CHECK_ANSWER(shale_remove(cache, &guest, sizeof guest, 0));
        else if (choice < 997)
            CHECK_STATUS(SHALE_OK, shale_invalidate(cache, &(uint64_t){guest % tags}, 8));
        else {
            CHECK_STATUS(SHALE_END, walk(NULL));
            atomic_fetch_add(&shared->writer_walks, 1);
        }
    }
    _exit(check_failures != 0); /* as abruptly as a kill */
}

static void read_until_over(void) {
    begin_other_process();
    while (!check_failures && !atomic_load(&shared->is_over)) {
        uint64_t changes = atomic_load(&shared->changes);
        shale_options options = {.struct_size = sizeof options, .flags = SHALE_OPEN_READ_ONLY};
        shale_status status = shale_open(directory, &options, &cache);
        while (status >= 0 && !check_failures && !atomic_load(&shared->is_over)) {
            status = walk(NULL);
            atomic_fetch_add(&shared->reader_walks, 1);
        }
        /* Only a new index ends a walk, and only while one is being made the handle fails to open. */
        if (status < 0) {
            CHECK_STATUS(SHALE_E_BUSY, status);
            CHECK(changes % 2 || atomic_load(&shared->changes) != changes);
            atomic_fetch_add(&shared->refusals, 1);
        }
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    _exit(check_failures != 0);
}

static void start(int i) {
    uint64_t number = ++started;
    writers[i] = fork();
    if (writers[i] == 0)
        write_until_killed(number);
}

static void kill_writer(int i) {
    kill(writers[i], SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(writers[i]));
    kills++;
}

static void kill_one_now_and_then(void) {
    if (random_below(&chance, 1000) != 0)
        return;
    int i = (int)random_below(&chance, writer_count);
    kill_writer(i);
    start(i);
}

static void run(uint64_t round) {
    directory = path_to(round % 2 ? "odd" : "even");
    shale_options options = {.struct_size = sizeof options,
                             .capacity = 2 << 20,
                             .shards = 1 + (uint32_t)(round / 2 % 2),
                             .segment_size = 128 << 10,
                             .eviction = policy_of(round),
                             .flags = SHALE_OPEN_NO_SYNC};
    cache = require_open(directory, options);
    for (uint64_t key = 0; key < key_count; key++)
        set_key(&chance, key);
    for (uint64_t key = first_removed; key < key_count; key++)
        CHECK_ANSWER(shale_remove(cache, &key, sizeof key, 0));
    atomic_store(&shared->is_over, false);
    uint64_t reads = atomic_load(&shared->reader_walks);
    pid_t reader = fork();
    if (reader == 0)
        read_until_over();
    for (int i = 0; i < writer_count; i++)
        start(i);
    for (int n = 1; n <= walks_in_round && !check_failures; n++) {
        CHECK_STATUS(SHALE_END, walk(kill_one_now_and_then));
        if (n % (walks_in_round / 3) != 0)
            continue;
        /* The reader stays. */
        for (int i = 0; i < writer_count; i++)
            kill_writer(i);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        atomic_fetch_add(&shared->changes, 1);
        remove_index(directory);
        cache = require_open(directory, options);
        atomic_fetch_add(&shared->changes, 1);
        CHECK_STATUS(SHALE_END, walk(NULL));
        for (int i = 0; i < writer_count; i++)
            start(i);
    }
    while (!check_failures && atomic_load(&shared->reader_walks) < reads + 10 && is_alive(reader))
        sleep_us(1000);
    atomic_store(&shared->is_over, true);
    CHECK_EQUAL(0, wait_for(reader));
    for (int i = 0; i < writer_count; i++)
        CHECK_EQUAL(0, wait_for(writers[i]));
    shale_report report = {.struct_size = sizeof report};
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.corrupt_records);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

int main(int count, char **arguments) {
    uint64_t rounds = count > 1 ? strtoull(arguments[1], NULL, 10) : 4;
    seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    watch((unsigned)rounds * patience);
    prefer_memory();
    shared = shared_memory(sizeof *shared);
    chance.state = seed;
    for (uint64_t round = 0; round < rounds && !check_failures; round++)
        run(round);
    printf("%" PRIu64 " walks beside %" PRIu64 " kills, %" PRIu64 " of writers, %" PRIu64 " of readers, %" PRIu64
           " refused\n",
           rounds * walks_in_round, kills, atomic_load(&shared->writer_walks), atomic_load(&shared->reader_walks),
           atomic_load(&shared->refusals));
    if (check_failures)
        fprintf(stderr, "cursors %" PRIu64 " %" PRIu64 "\n", rounds, seed);
    return finish();
}
