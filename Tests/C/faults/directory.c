/* Other programs change the directory of a cache that is in use: they delete its files, copy them, rename the
 * directory and put another in its place. A handle keeps using the files that it opened until its next check, once a
 * second of a clock that stands still here unless a test moves it; then it answers an error. A later open gets the
 * files at the path, or an error; the two caches are never mixed.
 *
 * directory [number of copies] [seed] */
#include "changes.h"
#include "check.h"
#include "faults.h"
#include "files.h"
#include "gate.h"
#include "layout.h"
#include "pattern.h"
#include "threads.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { entries = 300 };

static const shale_options four_mib = {.struct_size = sizeof four_mib, .capacity = 4 << 20},
                           read_only = {.struct_size = sizeof read_only, .flags = SHALE_OPEN_READ_ONLY};

static uint64_t seed, found_in_copies, missing_in_copies;
static int copies;

static shale_cache *open_cache(const char *directory) {
    return require_open(directory, four_mib);
}

static void delete_file(const char *directory, const char *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, file);
    CHECK(unlink(path) == 0);
}

static void run_program(const char *const *arguments) {
    pid_t child = fork();
    if (child == 0) {
        execvp(arguments[0], (char *const *)arguments);
        _exit(1);
    }
    CHECK_EQUAL(0, wait_for(child));
}

/* Entries whose keys and values name the cache that they belong to. */

static void fill(shale_cache *cache, const char *owner, uint32_t round) {
    char key[64], text[400];
    for (uint32_t i = 0; i < entries; i++) {
        snprintf(key, sizeof key, "%u", i);
        int size = snprintf(text, sizeof text, "%s %u %u %0*d", owner, i, round, (int)(i % 200) + 1, 0);
        CHECK_STATUS(SHALE_OK, shale_set(cache, key, strlen(key), text, (size_t)size, NULL));
    }
    CHECK_STATUS(SHALE_OK, set_text(cache, "removed", owner, NULL));
    CHECK_STATUS(SHALE_OK, shale_remove(cache, "removed", 7, 0));
}

static void check_filled(shale_cache *cache, const char *owner, uint32_t round) {
    char key[64], text[400];
    shale_value value = SHALE_VALUE_INIT;
    shale_report report = {.struct_size = sizeof report};
    for (uint32_t i = 0; i < entries; i++) {
        snprintf(key, sizeof key, "%u", i);
        int size = snprintf(text, sizeof text, "%s %u %u %0*d", owner, i, round, (int)(i % 200) + 1, 0);
        CHECK_STATUS(SHALE_OK, shale_get(cache, key, strlen(key), 0, &value));
        CHECK_BYTES(&value, text, (size_t)size);
    }
    CHECK_STATUS(SHALE_MISS, get_text(cache, "removed", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.corrupt_records);
    shale_value_free(&value);
}

/* An untrusted index is replaced by a new file. */
static ino_t index_at(const char *directory) {
    char path[512];
    struct stat status;
    snprintf(path, sizeof path, "%s/shale.index", directory);
    return stat(path, &status) == 0 ? status.st_ino : 0;
}

static void check_at(const char *directory, const char *owner, uint32_t round, bool is_trusted) {
    ino_t before = index_at(directory);
    shale_cache *cache = open_cache(directory);
    CHECK_EQUAL(is_trusted, before == index_at(directory));
    check_filled(cache, owner, round);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* ---- a handle checks whether its files are still in place ---- */

static void let_a_second_pass(void) {
    shim_faults.uptime_ahead += 1000;
}

/* The clock says that a check is due, and the files are not in place: all calls that are not hits answer an error. */
static void check_is_away(shale_cache *cache, const char *directory, bool may_write) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = SHALE_OK;
    shale_cursor *cursor = NULL;
    uint64_t lease = 0;
    const shale_bytes absent = {"absent", 6};
    REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    CHECK_STATUS(SHALE_OK, get_text(cache, "1", 0, &value)); /* mapped entries are served */
    CHECK_STATUS(SHALE_E_BUSY, shale_get_stats(cache, &(shale_stats){.struct_size = sizeof(shale_stats)}));
    CHECK(strstr(shale_last_error(), directory) && strstr(shale_last_error(), "was removed or replaced"));
    CHECK_EQUAL(0, shale_last_errno());
    CHECK_STATUS(SHALE_E_BUSY, get_text(cache, "absent", 0, &value)); /* from now on every miss answers the error */
    CHECK_STATUS(SHALE_E_BUSY, get_text(cache, "absent", 0, &value));
    CHECK_STATUS(SHALE_E_BUSY, get_text(cache, "absent", SHALE_GET_PEEK, &value));
    CHECK_STATUS(SHALE_E_BUSY, get_text(cache, "absent", SHALE_GET_TOKEN, &value));
    CHECK_STATUS(SHALE_E_BUSY, shale_get_many(cache, 1, &absent, 0, &value, &status));
    CHECK_STATUS(SHALE_E_BUSY, shale_lease(cache, "absent", 6, NULL, &value, &lease));
    CHECK_STATUS(SHALE_E_BUSY, shale_cursor_next(cursor, 0, NULL, NULL));
    CHECK_STATUS(SHALE_E_BUSY, shale_verify(cache, NULL));
    check_changes_answer(may_write ? SHALE_E_BUSY : SHALE_E_PERMISSION, cache, "1");
    CHECK_STATUS(SHALE_OK, get_text(cache, "1", 0, &value));
    shale_value_free(&value);
    shale_cursor_close(cursor);
}

static _Atomic unsigned looks;
static _Atomic long answer; /* of the next second */

static long note_look(const char *name) {
    if (strcmp(name, "stat") != 0)
        return 0;
    looks++;
    return atomic_exchange(&answer, 0);
}

static void *set_often(void *cache) {
    for (int i = 0; i < 1000; i++)
        CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    return NULL;
}

/* Once a second, by one thread of all; and never for a cache without a path. */
static void test_looks_are_rare(void) {
    char *directory = path_to("looks");
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        shale_cache *cache = require_open(in_memory ? NULL : directory, four_mib);
        shale_value value = SHALE_VALUE_INIT;
        looks = 0;
        run_threads(4, set_often, (void *[]){cache, cache, cache, cache});
        CHECK_EQUAL(0, looks); /* it was opened in this second */
        for (unsigned second = 1; second <= 3; second++) {
            let_a_second_pass();
            run_threads(4, set_often, (void *[]){cache, cache, cache, cache});
            CHECK_EQUAL(in_memory ? 0 : second, looks);
        }
        let_a_second_pass();
        for (int i = 0; i < 100; i++)
            CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
        CHECK_EQUAL(in_memory ? 0 : 3, looks); /* a hit does not look */
        for (int i = 0; i < 16; i++)
            CHECK_STATUS(SHALE_MISS, get_text(cache, "absent", 0, &value));
        CHECK_EQUAL(in_memory ? 0 : 4, looks); /* some misses do */
        shale_value_free(&value);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    free(directory);
}

/* A handle goes on if it cannot find out. */
static void test_failed_checks(void) {
    char *parent = path_to("parent"), *directory = path_to("parent/cache");
    CHECK_STATUS(SHALE_OK, shale_close(open_cache(directory)));
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        shale_cache *absolute = open_cache(directory);
        REQUIRE(chdir(parent) == 0);
        shale_cache *relative = open_cache("cache");
        /* The parent directory is not searchable. */
        answer = -EACCES;
        looks = 0;
        let_a_second_pass();
        CHECK_STATUS(SHALE_OK, set_text(absolute, "key", "value", NULL));
        CHECK(looks > 0 && answer == 0);
        /* The index alone was deleted. */
        delete_file(directory, "shale.index");
        let_a_second_pass();
        CHECK_STATUS(SHALE_OK, set_text(absolute, "key", "value", NULL));
        /* A daemon changes to the root directory, and has fewer privileges from then on. */
        REQUIRE(chdir("/") == 0);
        let_a_second_pass();
        CHECK_STATUS(SHALE_OK, set_text(relative, "key", "value", NULL));
        if (chroot(parent) == 0) { /* (not without privileges) */
            let_a_second_pass();
            CHECK_STATUS(SHALE_OK, set_text(absolute, "key", "value", NULL));
        }
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    /* Without a path that leads there, only the removal of a file can be noticed. */
    child = fork();
    if (child == 0) {
        begin_child(patience);
        REQUIRE(chdir(parent) == 0);
        shale_cache *relative = open_cache("cache");
        REQUIRE(chdir("/") == 0);
        CHECK_STATUS(SHALE_OK, set_text(relative, "1", "value", NULL));
        remove_tree(directory);
        CHECK_STATUS(SHALE_OK, set_text(relative, "1", "value", NULL));
        let_a_second_pass();
        check_is_away(relative, "cache", true);
        CHECK_STATUS(SHALE_OK, shale_close(relative));
        CHECK(access(directory, F_OK) < 0 && errno == ENOENT);
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    free(parent);
    free(directory);
}

/* A path may lead by way of a link, and elsewhere later. */
static void test_a_link_leads_elsewhere(void) {
    char *link = path_to("current"), *first = path_to("first"), *second = path_to("second");
    CHECK_STATUS(SHALE_OK, shale_close(open_cache(first)));
    CHECK_STATUS(SHALE_OK, shale_close(open_cache(second)));
    CHECK(symlink(first, link) == 0);
    shale_cache *cache = open_cache(link);
    CHECK_STATUS(SHALE_OK, set_text(cache, "1", "value", NULL));
    let_a_second_pass();
    CHECK_STATUS(SHALE_OK, set_text(cache, "1", "value", NULL));
    CHECK(unlink(link) == 0 && symlink(second, link) == 0);
    CHECK_STATUS(SHALE_OK, set_text(cache, "1", "value", NULL));
    let_a_second_pass();
    check_is_away(cache, link, true);
    CHECK(unlink(link) == 0 && symlink(first, link) == 0);
    let_a_second_pass();
    check_is_away(cache, link, true); /* it missed what happened meanwhile, and remembers that */
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    cache = open_cache(link);
    let_a_second_pass();
    CHECK_STATUS(SHALE_OK, set_text(cache, "1", "value", NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(link);
    free(first);
    free(second);
}

/* ---- files are deleted ---- */

static void test_the_index_is_deleted(void) {
    for (int killed = 0; killed < 2; killed++) {
        char *directory = path_to(killed ? "index-killed" : "index-closed");
        gate ready = make_gate(), go_on = make_gate();
        pid_t writer = fork();
        if (writer == 0) {
            begin_child(patience);
            shale_cache *cache = open_cache(directory);
            fill(cache, "first", 1);
            pass(&ready);
            await(&go_on);
            let_a_second_pass(); /* the data file is in place */
            check_filled(cache, "first", 1);
            fill(cache, "first", 2);
            if (check_failures == 0 && killed)
                kill(getpid(), SIGKILL);
            CHECK_STATUS(SHALE_OK, shale_close(cache));
            _exit(check_failures != 0);
        }
        await(&ready);
        shale_cache *reader = NULL, *refused = NULL;
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &read_only, &reader));
        delete_file(directory, "shale.index");
        CHECK_STATUS(SHALE_E_BUSY, shale_open(directory, &four_mib, &refused));
        CHECK(strstr(shale_last_error(), directory) && strstr(shale_last_error(), "shale.index"));
        CHECK_STATUS(SHALE_E_BUSY, shale_open(directory, &read_only, &refused));
        CHECK(strstr(shale_last_error(), directory) != NULL);
        check_filled(reader, "first", 1);
        pass(&go_on);
        CHECK_EQUAL(killed ? 128 + SIGKILL : 0, wait_for(writer));
        check_filled(reader, "first", 2); /* its index is the deleted one, which the writer kept up to date */
        check_at(directory, "first", 2, false);
        CHECK_STATUS(SHALE_OK, shale_close(reader));
        check_at(directory, "first", 2, true);
        close_gate(&ready);
        close_gate(&go_on);
        free(directory);
    }
}

static void test_the_data_is_deleted(void) {
    static const char *const names[] = {"data-deleted", "all-deleted", "data-moved"};
    for (int way = 0; way < 3; way++) {
        bool both = way == 1;
        char *directory = path_to(names[way]), *data = path_to("data-moved/shale.data"), *away = path_to("moved.data");
        shale_cache *old = open_cache(directory), *reader = NULL;
        shale_value value = SHALE_VALUE_INIT;
        fill(old, "old", 1);
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &read_only, &reader));
        if (both)
            remove_tree(directory);
        else if (way == 0)
            delete_file(directory, "shale.data");
        else
            CHECK(rename(data, away) == 0);
        check_filled(old, "old", 1);
        shale_cache *new = open_cache(directory);
        CHECK_STATUS(SHALE_MISS, get_text(new, "1", 0, &value));
        fill(new, "new", 1);
        fill(old, "old", 2);
        CHECK_STATUS(SHALE_OK, shale_sync(old));
        check_filled(old, "old", 2);
        check_filled(new, "new", 1);
        if (both)
            check_filled(reader, "old", 2);
        let_a_second_pass();
        check_is_away(old, directory, true);
        if (both) {
            check_is_away(reader, directory, false);
        } else { /* the new index replaced the one that it reads */
            CHECK_STATUS(SHALE_E_BUSY, get_text(reader, "1", 0, &value));
            CHECK(strstr(shale_last_error(), "open it again") != NULL);
        }
        CHECK_STATUS(SHALE_OK, shale_close(reader));
        CHECK_STATUS(SHALE_OK, shale_close(old));
        check_filled(new, "new", 1);
        fill(new, "new", 2);
        CHECK_STATUS(SHALE_OK, shale_close(new));
        check_at(directory, "new", 2, true);
        shale_value_free(&value);
        free(directory);
        free(data);
        free(away);
    }
}

/* ---- the directory is replaced ---- */

static void test_the_directory_is_renamed(void) {
    char *path = path_to("path"), *away = path_to("away"), *next = path_to("next");
    shale_cache *first = open_cache(path), *second = open_cache(next);
    fill(first, "first", 1);
    fill(second, "second", 1);
    CHECK(rename(path, away) == 0);
    CHECK(rename(next, path) == 0);
    check_at(path, "second", 1, true); /* both are in use under their other names */
    check_at(away, "first", 1, true);
    fill(first, "first", 2);
    fill(second, "second", 2);
    CHECK_STATUS(SHALE_OK, shale_sync(first));
    shale_cache *renamed = open_cache(away);
    check_filled(renamed, "first", 2);
    fill(renamed, "first", 3);
    check_filled(first, "first", 3);
    let_a_second_pass();
    check_is_away(first, path, true);
    check_is_away(second, next, true);
    CHECK_STATUS(SHALE_OK, set_text(renamed, "absent", "value", NULL));
    CHECK_STATUS(SHALE_OK, shale_remove(renamed, "absent", 6, 0));
    CHECK_STATUS(SHALE_OK, shale_close(first));
    CHECK_STATUS(SHALE_OK, shale_close(renamed));
    CHECK_STATUS(SHALE_OK, shale_close(second));
    check_at(away, "first", 3, true);
    check_at(path, "second", 2, true);
    free(path);
    free(away);
    free(next);
}

/* ---- copies ---- */

static void copy(const char *from, const char *to) {
    remove_tree(to);
    run_program((const char *const[]){"cp", "-a", from, to, NULL});
}

/* An index that was elsewhere while the cache was written to says nothing about it. */
static void test_an_index_comes_back(void) {
    char *path = path_to("comes-back"), *there = path_to("comes-back/shale.index"), *kept = path_to("kept.index");
    shale_cache *cache = open_cache(path);
    fill(cache, "it", 1);
    CHECK_STATUS(SHALE_OK, set_text(cache, "to remove", "value", NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    for (int other = 0; other < 2; other++) {
        CHECK(rename(there, kept) == 0);
        cache = open_cache(path);
        fill(cache, "it", 2);
        CHECK_STATUS(SHALE_OK, set_text(cache, "to remove", "value", NULL));
        CHECK_STATUS(SHALE_OK, shale_remove(cache, "to remove", 9, 0));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        CHECK(rename(kept, there) == 0);
        cache = other == 0 ? open_cache(path) : require_open(path, read_only);
        check_filled(cache, "it", 2);
        shale_value value = SHALE_VALUE_INIT;
        CHECK_STATUS(SHALE_MISS, shale_get(cache, "to remove", 9, SHALE_GET_PEEK, &value));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    free(path);
    free(there);
    free(kept);
}

/* A file that a read-only handle has mapped and that is no longer the cache's index (deleted, or moved) is not
 * written to. */
static void test_readers_of_a_deleted_index(void) {
    for (int moved = 0; moved < 2; moved++) {
        char *path = path_to("went"), *there = path_to("went/shale.index"), *away = path_to("away.index");
        shale_cache *cache = open_cache(path);
        fill(cache, "it", 1);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        shale_cache *reader = require_open(path, read_only);
        check_filled(reader, "it", 1);
        CHECK((moved ? rename(there, away) : unlink(there)) == 0);
        check_filled(reader, "it", 1); /* no process has written since */
        cache = open_cache(path);
        shale_value value = SHALE_VALUE_INIT;
        CHECK_STATUS(SHALE_E_BUSY, shale_get(reader, "1", 1, 0, &value));
        fill(cache, "it", 2);
        CHECK_STATUS(SHALE_E_BUSY, shale_get(reader, "1", 1, 0, &value));
        shale_value_free(&value);
        CHECK_STATUS(SHALE_OK, shale_close(reader));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(path);
        free(path);
        free(there);
        free(away);
    }
}

/* Whether the index whose generation was raised by `change` is the one that is used. */
static bool is_kept(const char *path, uint64_t change) {
    shale_cache *cache = open_cache(path);
    fill(cache, "it", 1);
    check_filled(cache, "it", 1);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    mapped_file index = map_file(path, "shale.index");
    *(uint64_t *)(void *)(index.bytes + index_generation) += change;
    unmap_file(&index);
    cache = open_cache(path);
    bool kept = stats_of(cache).hits > 0;
    check_filled(cache, "it", 1);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return kept;
}

/* A sole writer raises the index's generation, then the data file's. */
static void test_a_sole_writer_is_killed_between_generations(void) {
    char *path = path_to("generations");
    CHECK(is_kept(path, 0));
    CHECK(is_kept(path, 1));
    CHECK(is_kept(path, 0));
    CHECK(!is_kept(path, 2));
    CHECK(!is_kept(path, (uint64_t)-1));
    CHECK(is_kept(path, 0));
    free(path);
}

static void test_a_copy_at_rest(void) {
    char *original = path_to("original"), *copied = path_to("copied"), *foreign = path_to("foreign");
    shale_cache *cache = open_cache(original);
    fill(cache, "original", 1);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    copy(original, copied);
    check_at(copied, "original", 1, true);
    cache = open_cache(copied);
    fill(cache, "copy", 2);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_at(copied, "copy", 2, true);
    check_at(original, "original", 1, true);

    /* A copy of a copy's index beside the original's data: same geometry, same secret, another file. */
    char index[512], target[512];
    snprintf(index, sizeof index, "%s/shale.index", copied);
    snprintf(target, sizeof target, "%s/shale.index", original);
    run_program((const char *const[]){"cp", "-a", "--remove-destination", index, target, NULL});
    check_at(original, "original", 1, false);
    /* The index of an unrelated cache. */
    cache = open_cache(foreign);
    fill(cache, "foreign", 1);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    snprintf(index, sizeof index, "%s/shale.index", foreign);
    run_program((const char *const[]){"mv", "-f", index, target, NULL});
    check_at(original, "original", 1, false);
    check_at(foreign, "foreign", 1, false);
    free(original);
    free(copied);
    free(foreign);
}

/* A copy that was taken during writes is no snapshot, but still a cache: it holds whole values that were set once. */

enum { key_count = 3000, largest = 3000 };

static void write_for_ever(const char *directory, _Atomic uint64_t *highest) {
    random_source source = {seed};
    static unsigned char bytes[largest];
    shale_cache *cache = open_cache(directory);
    for (uint64_t n = 1;; n++) {
        uint64_t key = random_below(&source, key_count);
        size_t size = sizeof(pattern_head) + random_below(&source, largest - sizeof(pattern_head));
        pattern_fill(bytes, key, n, size);
        atomic_store(highest, n);
        if (shale_set(cache, &key, sizeof key, bytes, size, NULL) != SHALE_OK ||
            (n % 5000 == 0 && shale_sync(cache) != SHALE_OK))
            _exit(1);
    }
}

static void check_copy(const char *directory, uint64_t highest) {
    shale_cache *cache = open_cache(directory);
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t key = 0; key < key_count; key++) {
        uint64_t version = 0;
        shale_status status = shale_get(cache, &key, sizeof key, 0, &value);
        missing_in_copies += status == SHALE_MISS;
        if (status == SHALE_MISS)
            continue;
        CHECK_STATUS(SHALE_OK, status);
        found_in_copies++;
        const char *wrong = pattern_check(value.data, value.size, key, &version);
        check_that(!wrong && version <= highest, __FILE__, __LINE__, "copied value", ": %s; seed %" PRIu64,
                   wrong ? wrong : "from the future", seed);
    }
    shale_report report = {.struct_size = sizeof report};
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.corrupt_records);
    fill(cache, "copy", 1);
    check_filled(cache, "copy", 1);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_at(directory, "copy", 1, true);
}

static void test_copies_in_use(void) {
    char *directory = path_to("in-use"), *copied = path_to("copy-in-use");
    _Atomic uint64_t *highest = shared_memory(sizeof *highest);
    pid_t writer = fork();
    if (writer == 0) {
        begin_child((unsigned)copies + patience);
        write_for_ever(directory, highest);
    }
    while (atomic_load(highest) < 3000)
        sleep_us(1000);
    random_source source = {seed};
    for (int i = 0; i < copies && check_failures == 0; i++) {
        for (uint64_t next = atomic_load(highest) + random_below(&source, 3000); atomic_load(highest) < next;)
            sleep_us(100);
        copy(directory, copied);
        check_copy(copied, atomic_load(highest));
    }
    CHECK_EQUAL(0, waitpid(writer, NULL, WNOHANG)); /* it never failed */
    kill(writer, SIGKILL);
    wait_for(writer);
    munmap((void *)highest, sizeof *highest);
    free(directory);
    free(copied);
}

int main(int argument_count, char **arguments) {
    copies = argument_count > 1 ? atoi(arguments[1]) : 5;
    seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    watch((unsigned)copies + patience);
    shim_faults.call = note_look;
    RUN(test_looks_are_rare);
    RUN(test_failed_checks);
    RUN(test_a_link_leads_elsewhere);
    RUN(test_the_index_is_deleted);
    RUN(test_the_data_is_deleted);
    RUN(test_the_directory_is_renamed);
    RUN(test_an_index_comes_back);
    RUN(test_readers_of_a_deleted_index);
    RUN(test_a_sole_writer_is_killed_between_generations);
    RUN(test_a_copy_at_rest);
    RUN(test_copies_in_use);
    if (check_failures)
        fprintf(stderr, "reproduce: directory %d %" PRIu64 "\n", copies, seed);
    printf("%d copies in use: %" PRIu64 " whole values, %" PRIu64 " misses\n", copies, found_in_copies,
           missing_in_copies);
    return finish();
}
