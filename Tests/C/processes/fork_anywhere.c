/* A fork at any moment: before each system call, allocation and lock of a whole life of a cache (as another thread's
 * fork would come), the process forks a child that keeps everything it inherited. The parent goes on, closes and
 * opens again while the child lives; no lock that the child inherited may block any process. Then the child uses
 * what it inherited, as far as the handle was complete, or leaves by exit or exec.
 *
 * fork_anywhere [one in how many of the moments] [the first] */
#include "check.h"
#include "files.h"
#include "gate.h"
#include "killed.h"

enum { entries = 60, value_size = 3000, large_size = 200000 };

static shale_options options = {.struct_size = sizeof options, .capacity = 4 << 20, .max_entries = 5000};
static const shale_options read_only = {.struct_size = sizeof read_only, .flags = SHALE_OPEN_READ_ONLY};

static unsigned char bytes[large_size];

/* ---- the hook ---- */

static shale_cache *usable; /* the handle, while the interrupted call neither opens nor closes it */
static uint64_t call_count, fork_at;
static char fork_place[64];
static pid_t child;
static gate go_on;

static void live_on(void) __attribute__((noreturn));

static long maybe_fork(const char *name) {
    /* (Another thread's fork waits until an owner has its number.) */
    if (strcmp(name, "owner_open") == 0 || strcmp(name, "owner_lock") == 0 || strcmp(name, "owner_map") == 0)
        return 0;
    if (++call_count != fork_at)
        return 0;
    snprintf(fork_place, sizeof fork_place, "%s", name);
    child = fork();
    if (child == 0)
        live_on();
    return 0;
}

/* ---- the contents ---- */

static void write_entries(shale_cache *cache, uint32_t from) {
    for (uint32_t i = from; i < from + entries; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, bytes + i, value_size, NULL));
}

static void check_entries(shale_cache *cache, uint32_t from) {
    shale_value value = SHALE_VALUE_INIT;
    for (uint32_t i = from; i < from + entries; i++) {
        CHECK_STATUS(SHALE_OK, shale_get(cache, &i, sizeof i, 0, &value));
        CHECK_BYTES(&value, bytes + i, value_size);
    }
    shale_value_free(&value);
}

static void check_large(shale_cache *cache) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, get_text(cache, "large", 0, &value));
    CHECK_BYTES(&value, bytes, large_size);
    shale_value_free(&value);
}

static void live_on(void) {
    begin_child(patience);
    shim_faults.call = NULL;
    await(&go_on);
    if (call_count % 3 == 1) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    if (usable) {
        check_entries(usable, 0);
        write_entries(usable, 2000);
        check_entries(usable, 2000);
        CHECK_STATUS(SHALE_OK, shale_sync(usable));
        if (call_count % 3 == 2)
            CHECK_STATUS(SHALE_OK, shale_close(usable));
    }
    _exit(check_failures != 0);
}

/* ---- the lives ---- */

static void prepare_nothing(const char *directory UNUSED) {
}

static void create_and_use(const char *directory) {
    shale_cache *cache = require_open(directory, options);
    usable = cache;
    write_entries(cache, 0);
    CHECK_STATUS(SHALE_OK, shale_set(cache, "large", 5, bytes, large_size, NULL));
    check_large(cache);
    shale_cursor *cursor = NULL;
    shale_value key = SHALE_VALUE_INIT, value = SHALE_VALUE_INIT;
    int walked = 0;
    CHECK_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    while (shale_cursor_next(cursor, 0, &key, &value) == SHALE_OK)
        walked++;
    CHECK_EQUAL(entries + 1, walked);
    shale_cursor_close(cursor);
    shale_value_free(&key);
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_sync(cache));
    kill_a_writer(cache, "killed");
    write_entries(cache, 1000); /* after a rebuild */
    usable = NULL;
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* A cache without its index: the next open makes a new one. */
static void prepare_without_index(const char *directory) {
    create_and_use(directory);
    remove_index(directory);
}

static void open_and_fail(const char *directory) {
    shale_cache *cache = require_open(directory, options);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shale_options other = options;
    other.shards = 2;
    CHECK_STATUS(SHALE_E_INVALID, shale_open(directory, &other, &cache));
    CHECK_STATUS(SHALE_OK, shale_close(require_open(directory, read_only)));
}

static void say_where(int signal UNUSED) {
    dprintf(2, "hangs after a fork before %s; reproduce: fork_anywhere 1000000 %" PRIu64 "\n", fork_place, fork_at);
    _exit(1);
}

/* Whether there was such a moment. */
static bool fork_at_moment(void (*prepare)(const char *), void (*life)(const char *), uint64_t moment) {
    char *directory = path_to("cache");
    options.flags = SHALE_OPEN_NO_SYNC;
    prepare(directory);
    call_count = 0;
    fork_at = moment;
    child = 0;
    go_on = make_gate();
    signal(SIGALRM, say_where);
    alarm(patience);
    options.flags = 0; /* a close that syncs has more moments */
    shim_faults.call = maybe_fork;
    life(directory);
    shim_faults.call = NULL;
    options.flags = SHALE_OPEN_NO_SYNC;
    if (child) {
        /* The child keeps all that it inherited. */
        shale_cache *cache = require_open(directory, options);
        check_entries(cache, 0);
        check_entries(cache, 1000);
        check_large(cache);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        CHECK_STATUS(SHALE_OK, shale_close(require_open(directory, read_only)));
        pass(&go_on);
        CHECK_EQUAL(0, wait_for(child));
    }
    /* The child has ended: no lock is left. */
    shale_options changed = options;
    changed.max_entries = 6000;
    shale_cache *cache = require_open(directory, changed);
    shale_report report = {.struct_size = sizeof report};
    check_entries(cache, 0);
    check_entries(cache, 1000);
    check_large(cache);
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.corrupt_records);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    close_gate(&go_on);
    remove_tree(directory);
    free(directory);
    return child != 0;
}

static uint64_t fork_at_moments(void (*prepare)(const char *), void (*life)(const char *), uint64_t first,
                                uint64_t step) {
    uint64_t forks = 0;
    for (uint64_t moment = first; check_failures == 0 && fork_at_moment(prepare, life, moment); moment += step)
        forks++;
    if (check_failures)
        fprintf(stderr, "forked before %s; reproduce: fork_anywhere 1000000 %" PRIu64 "\n", fork_place, fork_at);
    return forks;
}

/* ---- a fork while a dictionary is being prepared ---- */

/* The forking thread holds the handle's lock for dictionaries then, and in the child no thread ever releases it: the
 * child makes no new ones, and reads values that were stored with the existing ones. */

static shale_cache *texts;
static uint32_t text_count;
static uint64_t dictionary_forks, forks_beside_dictionary;

static int make_text(char *text, size_t size, uint32_t number) {
    return snprintf(text, size,
                    "{\"identifier\": %" PRIu32 ", \"name\": \"customer %" PRIu32 "\", \"street\": \"%" PRIu32
                    " long avenue\", \"country\": \"far away\", \"orders\": [%" PRIu32 ", %" PRIu32 "]}",
                    number, number * 7919, number % 97, number * 31, number * 37);
}

static void set_text_number(uint32_t number) {
    char text[400];
    int size = make_text(text, sizeof text, number);
    CHECK_STATUS(SHALE_OK, shale_set(texts, &number, sizeof number, text, (size_t)size, NULL));
}

static void check_texts(uint32_t from, uint32_t to) {
    char text[400];
    shale_value value = SHALE_VALUE_INIT;
    for (uint32_t number = from; number < to; number++) {
        int size = make_text(text, sizeof text, number);
        CHECK_STATUS(SHALE_OK, shale_get(texts, &number, sizeof number, 0, &value));
        CHECK_BYTES(&value, text, (size_t)size);
    }
    shale_value_free(&value);
}

static uint64_t dictionaries(void) {
    shale_stats stats = stats_of(texts);
    return stats.dictionaries;
}

static long fork_at_allocation(const char *name) {
    if (strcmp(name, "malloc") != 0)
        return 0;
    dictionary_forks++;
    forks_beside_dictionary += dictionaries() > 0;
    pid_t user = fork();
    if (user == 0) {
        begin_child(patience);
        shim_faults.call = NULL;
        check_texts(0, text_count);
        uint32_t more = 1000000 * (uint32_t)dictionary_forks;
        for (uint32_t i = 0; i < 3000; i++)
            set_text_number(more + i);
        check_texts(more, more + 3000);
        CHECK_STATUS(SHALE_OK, shale_close(texts));
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(user));
    return 0;
}

static void test_fork_with_the_dictionarys_lock(void) {
    char *directory = path_to("dictionaries");
    alarm(patience);
    texts = require_open(directory, (shale_options){.capacity = 16 << 20});
    shim_faults.call = fork_at_allocation;
    for (; text_count < 20000 && dictionaries() == 0; text_count++)
        set_text_number(text_count);
    for (int i = 0; i < 1000; i++, text_count++)
        set_text_number(text_count);
    shim_faults.call = NULL;
    CHECK(dictionaries() > 0 && forks_beside_dictionary > 0);
    check_texts(0, text_count);
    CHECK_STATUS(SHALE_OK, shale_close(texts));
    free(directory);
}

int main(int argument_count, char **arguments) {
    uint64_t step = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 8;
    uint64_t first = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)getpid() % step + 1;
    for (size_t at = 0; at < sizeof bytes; at++)
        bytes[at] = (unsigned char)(at * at % 251 + at / 1000);
    uint64_t used = fork_at_moments(prepare_nothing, create_and_use, first, step);
    uint64_t opened = fork_at_moments(prepare_without_index, open_and_fail, first, step);
    RUN(test_fork_with_the_dictionarys_lock);
    printf("%" PRIu64 " forks in the middle of a life, %" PRIu64 " in the middle of openings, %" PRIu64
           " while dictionaries are made\n",
           used, opened, dictionary_forks);
    return finish();
}
