/* Threads that end within calls: at each instruction around a change of a lock's word, by pthread_exit in a signal's
 * handler; and at random places, by that or by asynchronous cancellation, beside other threads of the same handle. No
 * lock stays held, and none that another thread holds is given away.
 *
 * ending_threads [threads that end at random places] [seed] */
#include "check.h"
#include "files.h"
#include "gate.h"
#include "layout.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <ucontext.h>

#include "faults.h"

enum { owner_mask = (1 << 30) - 1, thread_has_ended = owner_mask };

static shale_cache *cache;
static _Atomic uint64_t *lock; /* of the only shard */

static void check_free(const char *what, uint64_t place) {
    int number = 0;
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = shale_set(cache, "key", 3, &number, sizeof number, NULL);
    check_that(status == SHALE_OK, __FILE__, __LINE__, what, ": place %" PRIu64 ", the next set answers %d: %s", place,
               status, status < 0 ? shale_last_error() : "");
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    check_that(*lock == 0, __FILE__, __LINE__, what, ": place %" PRIu64 ", the lock's word is %" PRIx64, place, *lock);
    shale_value_free(&value);
}

/* ---- a thread that holds the lock, of this handle or of another process ---- */

static gate holds, may_go_on;
static _Thread_local bool pauses;
static bool dies;

static long before_call(const char *name) {
    if (pauses && strcmp(name, "lock_release") == 0) {
        pauses = false;
        if (dies)
            kill(getpid(), SIGKILL);
        pass(&holds);
        await(&may_go_on);
    }
    return 0;
}

static void *hold(void *unused) {
    pauses = true;
    CHECK_STATUS(SHALE_OK, set_text(cache, "held", "by a thread", NULL));
    return unused;
}

#ifdef __x86_64__

/* ---- a thread that is stepped through a call ---- */

enum { trap_flag = 0x100, around = 24, most_changes = 8 };

static struct {
    bool is_on;
    uint64_t count, end_at;
    uint64_t changes[most_changes]; /* where a word of 64 bits was compared and exchanged under a lock prefix */
    unsigned change_count, changes_wanted;
} steps; /* of the only thread that is stepped */

static bool is_change(const unsigned char *code) {
    return code[0] == 0xf0 && (code[1] & 0xf8) == 0x48 && code[2] == 0x0f && code[3] == 0xb1;
}

static void on_step(int number UNUSED, siginfo_t *info UNUSED, void *context) {
    ucontext_t *state = context;
    if (!steps.is_on) {
        state->uc_mcontext.gregs[REG_EFL] &= ~trap_flag;
        return;
    }
    state->uc_mcontext.gregs[REG_EFL] |= trap_flag;
    steps.count++;
    if (is_change((const unsigned char *)state->uc_mcontext.gregs[REG_RIP]) &&
        steps.change_count < steps.changes_wanted)
        steps.changes[steps.change_count++] = steps.count;
    bool has_all = steps.change_count == steps.changes_wanted;
    if (steps.end_at ? steps.count == steps.end_at
                     : has_all && steps.count == steps.changes[steps.change_count - 1] + around)
        pthread_exit(NULL);
}

static void *set_in_steps(void *unused) {
    steps.is_on = true;
    raise(SIGTRAP);
    set_text(cache, "key", "stepped", NULL);
    steps.is_on = false;
    raise(SIGTRAP);
    return unused;
}

static void end_at(uint64_t place) {
    pthread_t thread;
    steps.count = steps.change_count = 0;
    steps.end_at = place;
    REQUIRE(pthread_create(&thread, NULL, set_in_steps, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    steps.is_on = false;
}

/* Ends a thread at each instruction around the first changes of the lock, which a first run finds. */
static void end_everywhere(const char *what, unsigned changes_wanted, uint64_t word, bool is_held) {
    uint64_t changes[most_changes], struck = 0, tried = 0, next = 1;
    steps.changes_wanted = changes_wanted;
    for (int i = 0; i < 2; i++) { /* the first run is longer */
        if (!is_held)
            check_free(what, 0);
        *lock = word;
        end_at(0);
    }
    unsigned count = steps.change_count;
    memcpy(changes, steps.changes, sizeof changes);
    if (!is_held)
        check_free(what, 0);
    CHECK(count > 1);
    for (unsigned i = 0; i < count && check_failures < 10; i++)
        for (next = next + around > changes[i] ? next : changes[i] - around; next < changes[i] + around; next++) {
            if (!is_held)
                *lock = word;
            end_at(next);
            struck += steps.count == next;
            tried++;
            if (is_held)
                check_that((*lock & owner_mask) == (word & owner_mask), __FILE__, __LINE__, what,
                           ": place %" PRIu64 ", the lock's word was %" PRIx64 ", is %" PRIx64, next, word, *lock);
            else
                check_free(what, next);
        }
    CHECK(struck * 10 > tried * 9);
    printf("%-28s %2u changes, %5" PRIu64 " of %" PRIu64 " places\n", what, count, struck, tried);
}

static void test_each_instruction(void) {
    struct sigaction step = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &step, NULL);
    end_everywhere("a free lock", most_changes, 0, false);
    end_everywhere("an ended thread's lock", 2, thread_has_ended, false);

    dies = true;
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        hold(NULL);
        _exit(0);
    }
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
    dies = false;
    uint64_t word = *lock;
    CHECK((word & owner_mask) != 0);
    check_free("a dead process's lock", 0);
    end_everywhere("a dead process's lock", 3, word, false);

    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, hold, NULL) == 0);
    await(&holds);
    end_everywhere("another thread's lock", 2, *lock, true);
    pass(&may_go_on);
    pthread_join(thread, NULL);
    check_free("another thread's lock", 0);
    signal(SIGTRAP, SIG_DFL);
}

#else

static void test_each_instruction(void) {
    printf("not tested: single steps within a process are known for x86-64 alone\n");
}

#endif

/* ---- at random places ---- */

static _Atomic bool is_ready, is_over;

static void end_thread(int number UNUSED) {
    pthread_exit(NULL);
}

static void *set_until_ended(void *is_cancelled) {
    if (is_cancelled)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    is_ready = true;
    for (uint64_t i = 0;; i++) {
        char key[2] = {'k', (char)('0' + i % 10)};
        shale_set(cache, key, sizeof key, &i, sizeof i, NULL);
    }
    return NULL;
}

static void *set_beside(void *unused) {
    for (uint64_t i = 0; !is_over && check_failures < 10; i++) {
        CHECK_STATUS(SHALE_OK, shale_set(cache, "beside", 6, &i, sizeof i, NULL));
        sleep_us(20);
    }
    return unused;
}

static void test_random_places(uint64_t count, uint64_t seed) {
    random_source source = {seed};
    pthread_t beside;
    signal(SIGUSR1, end_thread);
    is_over = false;
    REQUIRE(pthread_create(&beside, NULL, set_beside, NULL) == 0);
    for (uint64_t i = 0; i < count && check_failures < 10; i++) {
        bool is_cancelled = i % 2;
        pthread_t thread;
        is_ready = false;
        REQUIRE(pthread_create(&thread, NULL, set_until_ended, is_cancelled ? &is_over : NULL) == 0);
        while (!is_ready)
            sched_yield();
        for (uint64_t spin = random_below(&source, 20000); spin > 0; spin--)
            atomic_signal_fence(memory_order_seq_cst);
        if (is_cancelled)
            pthread_cancel(thread);
        else
            pthread_kill(thread, SIGUSR1);
        pthread_join(thread, NULL);
        shale_status status = set_text(cache, "main", "x", NULL);
        check_that(status == SHALE_OK, __FILE__, __LINE__, "a set after a thread has ended",
                   ": thread %" PRIu64 ", %d: %s", i, status, status < 0 ? shale_last_error() : "");
    }
    is_over = true;
    pthread_join(beside, NULL);
    check_free("at random places", count);
}

int main(int argument_count, char **arguments) {
    uint64_t count = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 2000;
    uint64_t seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL);
    watch(patience);
    setvbuf(stdout, NULL, _IOLBF, 0);
    prefer_memory();
    char *directory = path_to("cache");
    /* A lock that stays held is an error after this time, which a busy machine does not exceed. */
    shale_options options = {.capacity = 4 << 20,
                             .shards = 1,
                             .compression = SHALE_COMPRESSION_NONE,
                             .lock_timeout_ms = 60000,
                             .flags = SHALE_OPEN_NO_SYNC};
    cache = require_open(directory, options);
    mapped_file data = map_file(directory, "shale.data"), index = map_file(directory, "shale.index");
    layout found = layout_of(data.bytes);
    lock = (_Atomic uint64_t *)(void *)(index.bytes + shard_offset(&found, 0) + shard_lock);
    shim_faults.call = before_call;
    shim_faults.may_start_threads = true;
    check_free("a new cache", 0);
    holds = make_gate();
    may_go_on = make_gate();
    test_each_instruction();
    close_gate(&holds);
    close_gate(&may_go_on);
    test_random_places(count, seed);
    shim_faults.call = NULL;
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    if (check_failures)
        fprintf(stderr, "again: ending_threads %" PRIu64 " %" PRIu64 "\n", count, seed);
    unmap_file(&data);
    unmap_file(&index);
    free(directory);
    return finish();
}
