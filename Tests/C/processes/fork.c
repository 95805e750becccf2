/* A handle survives fork(): parent and child both keep using it, and each closes its own copy, in either order. */
#include "check.h"
#include "gate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

static const shale_options four_mib = {.struct_size = sizeof four_mib, .capacity = 4 << 20};

static shale_cache *open_cache(const char *directory) {
    return require_open(directory, four_mib);
}

/* `count` entries of a range that belongs to the caller. */
static void write_range(shale_cache *cache, uint32_t range, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key[2] = {range, i};
        CHECK_STATUS(SHALE_OK, shale_set(cache, key, sizeof key, key, sizeof key, NULL));
    }
}

static void check_range(shale_cache *cache, uint32_t range, uint32_t count) {
    shale_value value = SHALE_VALUE_INIT;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key[2] = {range, i};
        CHECK_STATUS(SHALE_OK, shale_get(cache, key, sizeof key, 0, &value));
        CHECK_BYTES(&value, key, sizeof key);
    }
    shale_value_free(&value);
}

static void check_reopens_trusted(const char *directory, uint32_t ranges) {
    shale_cache *cache = open_cache(directory);
    for (uint32_t range = 1; range <= ranges; range++)
        check_range(cache, range, 500);
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(0, stats.rebuilds);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void test_child_closes_first(void) {
    char *directory = path_to("child-first");
    shale_cache *cache = open_cache(directory);
    write_range(cache, 1, 500);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        check_range(cache, 1, 500);
        write_range(cache, 2, 500);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        _exit(check_failures != 0);
    }
    write_range(cache, 3, 500);
    CHECK_EQUAL(0, wait_for(child));
    check_range(cache, 2, 500);
    write_range(cache, 4, 500);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_reopens_trusted(directory, 4);
    free(directory);
}

static void test_parent_closes_first(void) {
    char *directory = path_to("parent-first");
    shale_cache *cache = open_cache(directory);
    gate closed = make_gate(), reopened = make_gate();
    write_range(cache, 1, 500);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        await(&closed);
        check_range(cache, 1, 500);
        write_range(cache, 2, 500);
        pass(&reopened);
        await(&closed);
        check_range(cache, 3, 500);
        write_range(cache, 4, 500);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        _exit(check_failures != 0);
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    pass(&closed);
    await(&reopened);
    cache = open_cache(directory); /* the child is still attached */
    check_range(cache, 2, 500);
    write_range(cache, 3, 500);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    pass(&closed);
    CHECK_EQUAL(0, wait_for(child));
    check_reopens_trusted(directory, 4);
    close_gate(&closed);
    close_gate(&reopened);
    free(directory);
}

static void test_child_leaves_without_closing(void) {
    char *directory = path_to("no-close");
    shale_cache *cache = open_cache(directory);
    write_range(cache, 1, 500);
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0) {
            begin_child(patience);
            write_range(cache, 2, 500);
            if (i % 2)
                kill(getpid(), SIGKILL);
            _exit(check_failures != 0);
        }
        CHECK_EQUAL(i % 2 ? 128 + SIGKILL : 0, wait_for(child));
    }
    check_range(cache, 2, 500);
    write_range(cache, 3, 500);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_reopens_trusted(directory, 3);
    free(directory);
}

static void test_parent_is_killed(void) {
    char *directory = path_to("orphan");
    gate ready = make_gate(), done = make_gate();
    pid_t middle = fork();
    if (middle == 0) {
        begin_child(patience);
        shale_cache *cache = open_cache(directory);
        write_range(cache, 1, 500);
        if (fork() == 0) {
            begin_child(patience);
            pid_t parent = getppid();
            pass(&ready);
            for (int i = 0; i < 5000 && getppid() == parent; i++)
                sleep_us(1000);
            check_range(cache, 1, 500);
            write_range(cache, 2, 500);
            CHECK_STATUS(SHALE_OK, shale_close(cache));
            if (check_failures == 0)
                pass(&done);
            _exit(0);
        }
        for (;;)
            pause();
    }
    await(&ready);
    kill(middle, SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(middle));
    close(done.ends[1]); /* only the grandchild holds it now: end of file if it fails */
    char byte;
    CHECK(read(done.ends[0], &byte, 1) == 1);
    check_reopens_trusted(directory, 2);
    close(done.ends[0]);
    close_gate(&ready);
    free(directory);
}

static void test_memory_is_shared_with_children(void) {
    shale_cache *cache = open_cache(NULL);
    write_range(cache, 1, 500);
    pid_t children[3];
    for (uint32_t i = 0; i < 3; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            begin_child(patience);
            check_range(cache, 1, 500);
            write_range(cache, 2 + i, 500);
            for (int n = 0; n < 1000; n++)
                CHECK_STATUS(SHALE_OK, shale_increment(cache, "count", 5, 1, 0, NULL));
            CHECK_STATUS(SHALE_OK, shale_close(cache));
            _exit(check_failures != 0);
        }
    }
    for (int i = 0; i < 3; i++)
        CHECK_EQUAL(0, wait_for(children[i]));
    int64_t count = 0;
    for (uint32_t range = 1; range <= 4; range++)
        check_range(cache, range, 500);
    CHECK_STATUS(SHALE_OK, shale_increment(cache, "count", 5, 0, 0, &count));
    CHECK_EQUAL(3000, count);

    /* A child that is killed while it writes leaves no lock behind. */
    for (int round = 0; round < 30; round++) {
        pid_t child = fork();
        if (child == 0) {
            begin_child(patience);
            for (;;)
                write_range(cache, 9, 500);
        }
        sleep_us(round * 300);
        kill(child, SIGKILL);
        wait_for(child);
        write_range(cache, 10, 5);
        check_range(cache, 10, 5);
        for (uint32_t range = 1; range <= 4; range++)
            check_range(cache, range, 500);
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* fork() while other threads are in the middle of calls. */

static atomic_bool stop;

static void *write_large_until_stopped(void *cache) {
    static const size_t size = 300000;
    char *data = calloc(1, size);
    for (uint32_t n = 0; !atomic_load(&stop); n = (n + 1) % 3) {
        uint32_t key[2] = {101, n};
        memcpy(data, key, sizeof key);
        if (shale_set(cache, key, sizeof key, data, size, NULL) != SHALE_OK) {
            free(data);
            return "a large set failed";
        }
    }
    free(data);
    return NULL;
}

static void *look_until_stopped(void *cache) {
    const char *failure = NULL;
    shale_value key = SHALE_VALUE_INIT, value = SHALE_VALUE_INIT;
    while (!failure && !atomic_load(&stop)) {
        shale_cursor *cursor = NULL;
        shale_status status = shale_cursor_open(cache, &cursor);
        while (status == SHALE_OK && !atomic_load(&stop))
            status = shale_cursor_next(cursor, 0, &key, &value);
        if (status < 0)
            failure = "a cursor failed";
        shale_cursor_close(cursor);
    }
    shale_value_free(&key);
    shale_value_free(&value);
    return (void *)failure;
}

static void *write_until_stopped(void *cache) {
    for (uint32_t n = 0; !atomic_load(&stop); n = (n + 1) % 2000) {
        uint32_t key[2] = {100, n};
        if (shale_set(cache, key, sizeof key, key, sizeof key, NULL) != SHALE_OK)
            return "a set failed";
    }
    return NULL;
}

static void kill_when_writing(shale_cache *cache) {
    if (fork() == 0) {
        pid_t writer = getppid();
        sleep_us(2000);
        kill(writer, SIGKILL);
        _exit(0);
    }
    for (;;)
        write_range(cache, 1, 100);
}

static void test_fork_among_threads(void) {
    char *directory = path_to("threads");
    shale_cache *caches[2] = {open_cache(directory), open_cache(NULL)};
    for (int i = 0; i < 2; i++) {
        shale_cache *cache = caches[i];
        pthread_t threads[3];
        void *(*const work[3])(void *) = {write_until_stopped, write_large_until_stopped, look_until_stopped};
        atomic_store(&stop, false);
        for (int t = 0; t < 3; t++)
            REQUIRE(pthread_create(&threads[t], NULL, work[t], cache) == 0);
        for (int round = 0; round < 20; round++) {
            pid_t child = fork();
            if (child == 0) {
                begin_child(patience);
                write_range(cache, 1, 100);
                check_range(cache, 1, 100);
                if (round % 5 == 4) /* in the middle of a set: the parent's threads find a shard to rebuild */
                    kill_when_writing(cache);
                CHECK_STATUS(SHALE_OK, shale_close(cache));
                _exit(check_failures != 0);
            }
            CHECK_EQUAL(round % 5 == 4 ? 128 + SIGKILL : 0, wait_for(child));
        }
        atomic_store(&stop, true);
        for (int t = 0; t < 3; t++) {
            void *failure = NULL;
            pthread_join(threads[t], &failure);
            CHECK(failure == NULL);
        }
        check_range(cache, 1, 100);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    free(directory);
}

/* A cursor that is open when its process forks works in both. */
static void test_open_cursors(void) {
    char *directory = path_to("cursors");
    shale_cache *cache = open_cache(directory);
    write_range(cache, 1, 500);
    shale_cursor *cursor = NULL;
    shale_value key = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
    for (int i = 0; i < 100; i++)
        CHECK_STATUS(SHALE_OK, shale_cursor_next(cursor, 0, &key, NULL));
    for (int closes = 0; closes < 2; closes++) {
        pid_t child = fork();
        if (child == 0) {
            begin_child(patience);
            int rest = 0;
            while (shale_cursor_next(cursor, 0, &key, NULL) == SHALE_OK)
                rest++;
            CHECK_EQUAL(400, rest);
            if (closes) {
                shale_cursor_close(cursor);
                CHECK_STATUS(SHALE_OK, shale_close(cache));
            }
            _exit(check_failures != 0);
        }
        CHECK_EQUAL(0, wait_for(child));
    }
    int rest = 0;
    while (shale_cursor_next(cursor, 0, &key, NULL) == SHALE_OK)
        rest++;
    CHECK_EQUAL(400, rest);
    shale_cursor_close(cursor);
    shale_value_free(&key);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_reopens_trusted(directory, 1);
    free(directory);
}

/* Each generation writes, forks the next and closes, some before their child and some after it. */
static void live_generation(shale_cache *cache, uint32_t generation) {
    write_range(cache, generation, 500);
    check_range(cache, generation - 1, 500);
    pid_t child = -1;
    if (generation < 6) {
        child = fork();
        if (child == 0) {
            begin_child(patience);
            live_generation(cache, generation + 1);
            _exit(check_failures != 0);
        }
    }
    if (generation % 2)
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    if (child > 0)
        CHECK_EQUAL(0, wait_for(child));
    if (generation % 2 == 0)
        CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void test_forks_of_forks(void) {
    char *directory = path_to("generations");
    shale_cache *cache = open_cache(directory);
    write_range(cache, 1, 500);
    live_generation(cache, 2);
    check_reopens_trusted(directory, 6);
    free(directory);
}

int main(void) {
    watch(patience);
    RUN(test_child_closes_first);
    RUN(test_parent_closes_first);
    RUN(test_child_leaves_without_closing);
    RUN(test_parent_is_killed);
    RUN(test_memory_is_shared_with_children);
    RUN(test_fork_among_threads);
    RUN(test_open_cursors);
    RUN(test_forks_of_forks);
    return finish();
}
