/* Owners of locks: a lock ends with its thread, its process, and with no descriptor; a child is an owner of its own; a
 * dead owner's number may come again. */
#include "afterwards.h"
#include "faults.h"
#include "files.h"
#include "gate.h"

#include <pthread.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { limit = 30, owner_mask = (1 << 30) - 1, thread_has_ended = owner_mask };

static const shale_options one_shard = {
    .struct_size = sizeof one_shard, .capacity = 4 << 20, .flags = SHALE_OPEN_NO_SYNC, .lock_timeout_ms = limit};

static char *directory;

static uint32_t *lock_of(const mapped_file *index) {
    return (uint32_t *)(void *)(index->bytes + index_head_bytes + shard_lock);
}
static uint32_t last_number(const mapped_file *index) {
    return (uint32_t)word_at(index->bytes + index_owners);
}

/* Until the kernel has ended the owner's lock. */
static void set_once_free(shale_cache *cache, const char *text) {
    shale_status status;
    do
        status = set_text(cache, "key", text, NULL);
    while (status == SHALE_E_BUSY);
    CHECK_STATUS(SHALE_OK, status);
}

/* ---- a holder, of each kind ---- */

static gate held;

/* At the first store under the lock. */
static void (*in_hold)(void);
static pthread_t holder;
static void at_store(const void *at UNUSED) {
    if (!pthread_equal(pthread_self(), holder))
        return;
    shim_faults.store = NULL;
    in_hold();
}
static long under_lock(const char *name) {
    if (strcmp(name, "lock_try") == 0 && pthread_equal(pthread_self(), holder))
        shim_faults.store = at_store;
    return 0;
}
static void hold(shale_cache *cache) {
    holder = pthread_self();
    shim_faults.call = under_lock;
    set_text(cache, "key", "unfinished", NULL);
    shim_faults.call = NULL;
}

static void stay(void) {
    pass(&held);
    for (;;)
        pause();
}

static pid_t begin_holder(shale_cache *cache, void (*what)(void)) {
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        die_with_parent();
        in_hold = what;
        hold(cache);
        _exit(1);
    }
    await(&held);
    return child;
}

static void test_process(shale_cache *cache) {
    pid_t child = begin_holder(cache, stay);
    CHECK_STATUS(SHALE_E_BUSY, set_text(cache, "key", "in vain", NULL));
    kill(child, SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
    set_once_free(cache, "after a kill");
}

/* Its descriptors do not matter. */
static void close_and_stay(void) {
    int written = fcntl(held.ends[1], F_DUPFD, 500);
    for (int fd = 3; fd < 500; fd++)
        close(fd);
    held.ends[1] = written;
    stay();
}

static void test_closed_descriptors(shale_cache *cache) {
    pid_t child = begin_holder(cache, close_and_stay);
    for (int i = 0; i < 5; i++)
        CHECK_STATUS(SHALE_E_BUSY, set_text(cache, "key", "in vain", NULL));
    kill(child, SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
    set_once_free(cache, "after closed descriptors");
}

/* A caller whose descriptor leads to another file asks nothing of that file. */
static void test_reused_descriptor(shale_cache *cache) {
    pid_t child = begin_holder(cache, stay), asker = fork();
    if (asker == 0) {
        begin_child(patience);
        int other = open("/dev/null", O_RDWR);
        for (int fd = 3; fd < 200; fd++)
            if (fd != other)
                dup2(other, fd);
        for (int i = 0; i < 5; i++)
            CHECK_STATUS(SHALE_E_BUSY, set_text(cache, "key", "in vain", NULL));
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(asker));
    kill(child, SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
    set_once_free(cache, "after reused descriptors");
}

/* ---- threads ---- */

static void end_thread(void) {
    pthread_exit(NULL);
}
static void *hold_in_thread(void *cache) {
    hold(cache);
    return NULL;
}
static void test_thread(shale_cache *cache, const mapped_file *index) {
    pthread_t thread;
    in_hold = end_thread;
    REQUIRE(pthread_create(&thread, NULL, hold_in_thread, cache) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    shim_faults.call = NULL;
    CHECK_EQUAL(thread_has_ended, *lock_of(index) & owner_mask);
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "after a thread", NULL));
    CHECK_EQUAL(0, *lock_of(index));
}

/* A waiter is woken, and the next one too: nothing waits for a time limit. */
static _Atomic int unfinished;
static void *set_in_thread(void *cache) {
    for (int i = 0; i < 2000; i++)
        if (set_text(cache, "key", "by a thread", NULL) == SHALE_E_BUSY)
            i--;
    atomic_fetch_sub(&unfinished, 1);
    return NULL;
}
static void test_waiters(shale_cache *cache, const mapped_file *index) {
    pthread_t threads[8];
    atomic_store(&unfinished, 8);
    for (int i = 0; i < 8; i++)
        REQUIRE(pthread_create(&threads[i], NULL, set_in_thread, cache) == 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQUAL(0, atomic_load(&unfinished));
    CHECK_EQUAL(0, *lock_of(index));
}

/* A thread that got the lock after it had waited says that others may still wait. */
static uint32_t word_in_hold;
static const mapped_file *watched;
static void note_word(void) {
    word_in_hold = *lock_of(watched);
}
static void *hold_after_wait(void *cache) {
    in_hold = note_word;
    hold(cache);
    return NULL;
}
static void test_mark(shale_cache *cache, const mapped_file *index) {
    pthread_t thread;
    watched = index;
    pid_t child = begin_holder(cache, stay);
    REQUIRE(pthread_create(&thread, NULL, hold_after_wait, cache) == 0);
    while (!(__atomic_load_n(lock_of(index), __ATOMIC_RELAXED) >> 31))
        sleep_us(100);
    kill(child, SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
    pthread_join(thread, NULL);
    if (word_in_hold) /* it was not refused before the kernel had ended the child */
        CHECK(word_in_hold >> 31);
    set_once_free(cache, "after a mark");
}

/* ---- children ---- */

/* A child has a number of its own from the fork on, although it may open nothing any more; and what it holds ends with
 * it. */
static void test_child(shale_cache *cache, const mapped_file *index) {
    uint32_t before = last_number(index);
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        struct rlimit none = {0, 0};
        CHECK_EQUAL(before + 1, last_number(index));
        REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
        CHECK_STATUS(SHALE_OK, set_text(cache, "key", "by a child", NULL));
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    CHECK_EQUAL(before + 1, last_number(index));
}

/* A child that lives on keeps no lock of its parent's alive. */
static void test_orphan(shale_cache *cache) {
    gate living = make_gate();
    pid_t parent = fork();
    if (parent == 0) {
        begin_child(patience);
        die_with_parent();
        in_hold = stay;
        pid_t child = fork();
        if (child == 0) {
            begin_child(patience);
            await(&living);
            CHECK_STATUS(SHALE_OK, set_text(cache, "key", "by the orphan", NULL));
            pass(&held);
            _exit(check_failures != 0);
        }
        hold(cache);
        _exit(1);
    }
    await(&held);
    CHECK_STATUS(SHALE_E_BUSY, set_text(cache, "key", "in vain", NULL));
    kill(parent, SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(parent));
    set_once_free(cache, "beside an orphan");
    pass(&living);
    await(&held);
    close_gate(&living);
}

/* Made by the system call alone: it gets a number at its first call. */
static void test_raw_child(shale_cache *cache, const mapped_file *index) {
    uint32_t before = last_number(index);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        bool is_ok = last_number(index) == before && set_text(cache, "key", "by a raw child", NULL) == SHALE_OK &&
                     last_number(index) == before + 1;
        _exit(!is_ok);
    }
    CHECK_EQUAL(0, wait_for(child));
}

/* The same from within a call, as a signal's handler may do: its thread's end ends no lock of the parent's. */
static void end_raw_child(void) {
    uint32_t word = *lock_of(watched);
    CHECK(word & owner_mask);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        pthread_exit(NULL);
    CHECK_EQUAL(0, wait_for(child));
    CHECK_EQUAL(word, *lock_of(watched));
}
static void test_raw_child_in_call(shale_cache *cache, const mapped_file *index) {
    pthread_t thread;
    watched = index;
    in_hold = end_raw_child;
    REQUIRE(pthread_create(&thread, NULL, hold_in_thread, cache) == 0);
    pthread_join(thread, NULL);
    CHECK_EQUAL(0, *lock_of(index));
}

/* ---- forks while a handle is opened ---- */

static void (*in_open)(void);
static long within_open(const char *name) {
    if (strcmp(name, "owner_open") == 0 && in_open) {
        void (*what)(void) = in_open;
        in_open = NULL;
        what();
    }
    return 0;
}
static void *open_with_hook(void *hook) {
    shale_cache *second = NULL;
    in_open = *(void (**)(void))hook;
    shim_faults.call = within_open;
    CHECK_STATUS(SHALE_OK, shale_open(directory, &one_shard, &second));
    shim_faults.call = NULL;
    CHECK_STATUS(SHALE_OK, shale_close(second));
    return NULL;
}

/* A handler that interrupts it may fork. */
static volatile sig_atomic_t forks_in_handler;
static void fork_in_handler(int signal UNUSED) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK_EQUAL(0, wait_for(child));
    forks_in_handler++;
}
static void interrupt(void) {
    raise(SIGUSR1);
}
static void test_fork_in_handler(void) {
    void (*hook)(void) = interrupt;
    signal(SIGUSR1, fork_in_handler);
    forks_in_handler = 0;
    open_with_hook(&hook);
    CHECK_EQUAL(1, forks_in_handler);
    signal(SIGUSR1, SIG_DFL);
}

/* A thread that is cancelled there keeps no process from forking. (In a child, because the lock of opening and closing
 * stays with the process.) */
static void cancel(void) {
    pthread_cancel(pthread_self());
}
static void test_cancelled_open(void) {
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        void (*hook)(void) = cancel;
        begin_child(patience);
        REQUIRE(pthread_create(&thread, NULL, open_with_hook, &hook) == 0);
        pthread_join(thread, NULL);
        shim_faults.call = NULL;
        CHECK(!in_open);
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(0);
        CHECK_EQUAL(0, wait_for(grandchild));
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
}

/* A program's handler of forks, older than any handle, waits for a thread that opens one. */
static pthread_mutex_t of_program = PTHREAD_MUTEX_INITIALIZER;
static gate program_has_it, program_forks;
static bool waits_at_fork;
static void before_fork(void) {
    if (!waits_at_fork)
        return;
    pass(&program_forks);
    pthread_mutex_lock(&of_program);
}
static void after_fork(void) {
    if (waits_at_fork)
        pthread_mutex_unlock(&of_program);
}
static void *open_at_fork(void *unused UNUSED) {
    shale_cache *second = NULL;
    pthread_mutex_lock(&of_program);
    pass(&program_has_it);
    await(&program_forks);
    CHECK_STATUS(SHALE_OK, shale_open(directory, &one_shard, &second));
    CHECK_STATUS(SHALE_OK, shale_close(second));
    pthread_mutex_unlock(&of_program);
    return NULL;
}
static void test_handler_of_program(void) {
    pthread_t thread;
    program_has_it = make_gate();
    program_forks = make_gate();
    REQUIRE(pthread_create(&thread, NULL, open_at_fork, NULL) == 0);
    await(&program_has_it);
    waits_at_fork = true;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waits_at_fork = false;
    pthread_join(thread, NULL);
    CHECK_EQUAL(0, wait_for(child));
    close_gate(&program_has_it);
    close_gate(&program_forks);
}

/* ---- numbers ---- */

/* All numbers were given, and the next one is that of an owner that died with the lock. The one after it is alive. */
static void test_numbers_come_again(shale_cache *cache, const mapped_file *index) {
    uint32_t *counter = (uint32_t *)(void *)(index->bytes + index_owners);
    shale_cache *second = NULL;
    *counter = owner_mask - 3;
    pid_t child = begin_holder(cache, stay); /* its number: owner_mask - 2 */
    uint32_t number = *lock_of(index) & owner_mask;
    CHECK_EQUAL(owner_mask - 2, number);
    kill(child, SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
    *counter = number - 1;
    do { /* until the kernel has ended the lock */
        *counter = number - 1;
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &one_shard, &second));
        if (*counter != number)
            CHECK_STATUS(SHALE_OK, shale_close(second));
    } while (*counter != number);
    CHECK_EQUAL(thread_has_ended, *lock_of(index) & owner_mask);
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "after a number", NULL));
    CHECK_STATUS(SHALE_OK, shale_close(second));

    /* Around, past the mark of a thread, 0 and those that live. */
    *counter = owner_mask - 1;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &one_shard, &second));
    CHECK_EQUAL(2, *counter & owner_mask); /* `cache` has 1 */
    CHECK_STATUS(SHALE_OK, set_text(second, "key", "after all numbers", NULL));
    CHECK_STATUS(SHALE_OK, shale_close(second));
}

/* ---- in memory ---- */

static void test_memory(void) {
    shale_cache *cache = require_open(NULL, (shale_options){.capacity = 4 << 20, .lock_timeout_ms = limit});
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    for (int i = 0; i < 3; i++) {
        pid_t child = begin_holder(cache, stay);
        CHECK_STATUS(SHALE_E_BUSY, set_text(cache, "key", "in vain", NULL));
        CHECK(strstr(shale_last_error(), "process"));
        kill(child, SIGKILL);
        CHECK_EQUAL(128 + SIGKILL, wait_for(child));
        set_once_free(cache, "after a kill");
    }
    CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void test_in(const char *place, bool may_close_descriptors) {
    directory = path_to(place);
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &one_shard, &cache));
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    mapped_file index = map_file(directory, "shale.index");
    test_process(cache);
    if (may_close_descriptors) {
        test_closed_descriptors(cache);
        test_reused_descriptor(cache);
    }
    test_thread(cache, &index);
    test_waiters(cache, &index);
    test_mark(cache, &index);
    test_child(cache, &index);
    test_orphan(cache);
    test_raw_child(cache, &index);
    test_raw_child_in_call(cache, &index);
    test_fork_in_handler();
    test_cancelled_open();
    test_handler_of_program();
    test_numbers_come_again(cache, &index);
    CHECK_EQUAL(0, stats_of(cache).rebuilds);
    check_afterwards(cache, directory, "after all");
    unmap_file(&index);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
}

/* The directory "merged" becomes an overlay, in a mount namespace of this process. */
static bool make_overlay(void) {
    char *lower = path_to("lower"), *upper = path_to("upper"), *work = path_to("work"), *merged = path_to("merged");
    char options[1024];
    REQUIRE(mkdir(lower, 0700) == 0 && mkdir(upper, 0700) == 0 && mkdir(work, 0700) == 0 && mkdir(merged, 0700) == 0);
    snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s", lower, upper, work);
    bool is_made = unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                   mount("overlay", merged, "overlay", 0, options) == 0;
    if (!is_made)
        fprintf(stderr, "not tested: overlayfs (%s)\n", strerror(errno));
    free(lower), free(upper), free(work), free(merged);
    return is_made;
}

int main(void) {
    watch(patience);
    held = make_gate();
    REQUIRE(pthread_atfork(before_fork, after_fork, after_fork) == 0); /* before the first handle */
    test_in("cache", true);
    test_memory();
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        if (make_overlay())
            test_in("merged", false);
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    close_gate(&held);
    return finish();
}
