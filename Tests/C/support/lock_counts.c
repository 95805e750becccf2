/* Tests what a test build counts while a shard's lock is held (counts.h): for holds whose work is known, by several
 * threads and processes, some of which are killed.
 *
 * lock_counts Scripts/lock-counts */
#include "killed.h"
#include "threads.h"

/* `head`: of a record, before its key (format.md). */
enum { entries = 3000, head = 48, key_size = 8, value_size = 1000, record_size = head + key_size + value_size };

static struct shim_counts *table;
static shale_cache *cache;

static const struct shim_call_counts *counts_of(const struct shim_counts *counts, const char *call) {
    static const struct shim_call_counts none;
    for (int i = 0; i < SHIM_CALLS; i++)
        if (strcmp((const char *)counts->calls[i].name, call) == 0)
            return &counts->calls[i];
    return &none;
}

static struct shim_call_counts of(const char *call) {
    return *counts_of(table, call);
}

static void start(void) {
    memset(table, 0, sizeof *table);
}

static shale_status set_in(shale_cache *in, uint64_t key, size_t size) {
    static const unsigned char value[1 << 16];
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED};
    return shale_set(in, &key, sizeof key, value, size, &options);
}

static void set(uint64_t key, size_t size) {
    CHECK_STATUS(SHALE_OK, set_in(cache, key, size));
}

static void get(shale_cache *from, uint64_t key) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, shale_get(from, &key, sizeof key, 0, &value));
    shale_value_free(&value);
}

/* All appended records fit into half a segment: later ones would prepare the next segment, which takes the lock
 * twice. */
static shale_cache *open_named(const char *name) {
    char *directory = path_to(name);
    shale_cache *opened = require_open(
        directory,
        (shale_options){.capacity = 128 << 20, .shards = 1, .segment_size = 16 << 20, .flags = SHALE_OPEN_NO_SYNC});
    free(directory);
    return opened;
}

static void known_holds(void) {
    for (uint64_t key = 0; key < entries; key++)
        set(key, value_size);

    start();
    set(entries, value_size);
    struct shim_call_counts found = of("shale_set");
    CHECK_EQUAL(1, found.holds);
    CHECK_EQUAL(record_size, found.most[SHIM_BYTES_APPENDED]);
    CHECK(found.most[SHIM_SLOTS] >= 4 && found.most[SHIM_SLOTS] < 200);
    CHECK_EQUAL(0, found.most[SHIM_RECORDS]);
    CHECK_EQUAL(0, found.bytes_unpaid);

    /* A hit takes no lock; drawing the token of a miss takes one, and looks at no slot. */
    start();
    uint64_t key = 1, absent = UINT64_MAX;
    get(cache, key);
    CHECK_EQUAL(0, of("shale_get").holds);
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_MISS, shale_get(cache, &absent, sizeof absent, SHALE_GET_TOKEN, &value));
    found = of("shale_get");
    CHECK_EQUAL(1, found.holds);
    CHECK_EQUAL(0, found.most[SHIM_SLOTS] + found.most[SHIM_RECORDS] + found.most[SHIM_BYTES_READ]);
    shale_value_free(&value);

    /* Looks at the key's record, but not its value; appends a tombstone. */
    CHECK_STATUS(SHALE_OK, shale_remove(cache, &key, sizeof key, 0));
    found = of("shale_remove");
    CHECK_EQUAL(1, found.holds);
    CHECK(found.most[SHIM_RECORDS] >= 1 && found.most[SHIM_RECORDS] < 10);
    CHECK(found.most[SHIM_BYTES_READ] >= head + key_size && found.most[SHIM_BYTES_READ] < value_size);
    CHECK_EQUAL(head + key_size, found.most[SHIM_BYTES_APPENDED]);

    /* Every slot of the table, in several holds. */
    CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
    found = of("shale_purge");
    CHECK(found.holds > 1);
    CHECK(found.most[SHIM_SLOTS] >= entries / found.holds && found.most[SHIM_SLOTS] <= 2048);
    CHECK_EQUAL(0, found.most[SHIM_BYTES_APPENDED]);

    CHECK_STATUS(SHALE_OK, shale_evict(cache, 100, NULL));
    found = of("shale_evict");
    CHECK(found.most[SHIM_SLOTS] >= 100 / found.holds && found.most[SHIM_RECORDS] >= 100 / found.holds);
    CHECK(found.most[SHIM_BYTES_READ] >= 100 / found.holds * head);
    CHECK_EQUAL(found.most[SHIM_BYTES_READ], found.bytes_unpaid);

    /* The values are hashed: each hold covers many whole records. */
    CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
    found = of("shale_verify");
    CHECK(found.most[SHIM_RECORDS] > 5);
    CHECK(found.most[SHIM_BYTES_READ] >= (uint64_t)5 * record_size);
}

/* A cache for each thread, so that holds end at the same time. */
enum { threads = 3, sets = 2000 };
static shale_cache *caches[threads];

static void *set_some(void *context) {
    uint64_t i = (uint64_t)((shale_cache **)context - caches);
    for (uint64_t key = 0; key < sets; key++)
        CHECK_STATUS(SHALE_OK, set_in(caches[i], key, value_size + 8 * i));
    return NULL;
}

static void by_threads(void) {
    for (int i = 0; i < threads; i++)
        caches[i] = open_named((const char *[]){"first", "second", "third"}[i]);
    start();
    run_threads(threads, set_some, (void *[]){&caches[0], &caches[1], &caches[2]});
    struct shim_call_counts found = of("shale_set");
    CHECK(found.holds >= threads * sets); /* (Some take a second one.) */
    CHECK_EQUAL(record_size + 8 * (threads - 1), found.most[SHIM_BYTES_APPENDED]);
    for (int i = 0; i < threads; i++)
        CHECK_STATUS(SHALE_OK, shale_close(caches[i]));
}

static void children(void) {
    start();
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        set(0, 4 * value_size);
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    CHECK_EQUAL(1, of("shale_set").holds);
    CHECK_EQUAL(head + key_size + 4 * value_size, of("shale_set").most[SHIM_BYTES_APPENDED]);

    /* Its hold never ends. The next process recovers its work, under a name of its own. */
    start();
    kill_a_writer(cache, "key");
    CHECK_EQUAL(0, of("shale_set").holds);
    set(0, value_size);
    CHECK_EQUAL(1, of("shale_set").holds);
    CHECK_EQUAL(1, of("recovery").holds);
    CHECK_EQUAL(0, of("recovery").most[SHIM_BYTES_APPENDED]);
}

static shale_cache *beside;

static void use_beside(const void *at UNUSED) {
    static int stores;
    if (++stores < 5) /* those before the lock */
        return;
    shim_faults.store = NULL;
    CHECK_STATUS(SHALE_OK, set_in(beside, 0, 2 * value_size));
    CHECK_STATUS(SHALE_OK, shale_purge(beside, NULL));
    get(beside, 0);
}

/* A hook of the test uses another cache in the middle of a hold: each cache has its own counts. */
static void call_in_a_hook(void) {
    beside = open_named("beside");
    start();
    shim_faults.store = use_beside;
    set(0, value_size);
    CHECK(shim_faults.store == NULL);
    CHECK_EQUAL(2, of("shale_set").holds);
    CHECK_EQUAL(head + key_size + 2 * value_size, of("shale_set").most[SHIM_BYTES_APPENDED]);
    CHECK(of("shale_set").most[SHIM_SLOTS] < 200);
    CHECK(of("shale_purge").holds >= 1);
    CHECK_EQUAL(0, of("shale_purge").most[SHIM_BYTES_APPENDED]);
    CHECK_EQUAL(0, of("shale_get").holds);
    CHECK_STATUS(SHALE_OK, shale_close(beside));
}

/* Programs that print the file's name. */

static int one_set_and_purge(const char *directory) {
    cache = require_open(directory, (shale_options){.capacity = 4 << 20, .shards = 1, .flags = SHALE_OPEN_NO_SYNC});
    set(0, value_size);
    CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return check_failures != 0;
}

static int run_program(const char *program, const char *file, const char *stop) {
    char *directory = path_to("of_a_program");
    remove_tree(directory);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        setenv("SHALE_LOCK_COUNTS", file, 1);
        if (stop)
            setenv("SHALE_LOCK_STOP", stop, 1);
        execl(program, program, "once", directory, (char *)NULL);
        _exit(2);
    }
    int code = wait_for(child);
    remove_tree(directory);
    free(directory);
    return code;
}

static int run_script(const char *script, const char *file, const char *limits) {
    char *path = path_to("limits.toml");
    FILE *opened = fopen(path, "w");
    REQUIRE(opened != NULL);
    fputs(limits, opened);
    REQUIRE(fclose(opened) == 0);
    pid_t child = fork();
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, 1), dup2(nowhere, 2);
        execl(script, script, file, "--limits", path, (char *)NULL);
        _exit(2);
    }
    free(path);
    return wait_for(child);
}

static void files(const char *program, const char *script) {
    char *file = path_to("counts");
    CHECK_EQUAL(0, run_program(program, file, NULL));
    CHECK_EQUAL(0, run_program(program, file, "shale_purge 1000000 0 0 0"));
    CHECK_EQUAL(0, run_program(program, file, "shale_set 1000 0 0 0"));
    struct shim_counts counts;
    int fd = open(file, O_RDONLY);
    CHECK_EQUAL(sizeof counts, read(fd, &counts, sizeof counts));
    close(fd);
    CHECK_EQUAL(3, counts_of(&counts, "shale_set")->holds);
    CHECK_EQUAL(record_size, counts_of(&counts, "shale_set")->most[SHIM_BYTES_APPENDED]);
    CHECK(counts_of(&counts, "shale_purge")->holds >= 3);

    /* A run is stopped if it crosses a limit. */
    CHECK_EQUAL(128 + SIGABRT, run_program(program, file, "shale_purge 300 0 0 0"));
    CHECK_EQUAL(128 + SIGABRT, run_program(program, file, "shale_set 0 0 0 1000"));

    CHECK_EQUAL(0, run_script(script, file, ""));
    CHECK_EQUAL(0, run_script(script, file, "[default]\nslots = 300\n[shale_purge]\nslots = 2000\n"));
    CHECK_EQUAL(1, run_script(script, file, "[default]\nslots = 300\n"));
    CHECK_EQUAL(1, run_script(script, file, "[shale_set]\nappended = 1055\n"));
    CHECK_EQUAL(1, run_script(script, "/dev/null", ""));
    free(file);
}

int main(int argument_count, char **arguments) {
    if (argument_count == 3 && strcmp(arguments[1], "once") == 0)
        return one_set_and_purge(arguments[2]);
    watch(patience);
    table = shared_memory(sizeof *table);
    shim_counts = table;
    cache = open_named("cache");
    RUN(known_holds);
    RUN(by_threads);
    RUN(children);
    RUN(call_in_a_hook);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    if (argument_count == 2)
        files(arguments[0], arguments[1]);
    return finish();
}
