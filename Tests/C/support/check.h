/* Checks for the C tests: a failed one prints its place and the test goes on; a failed REQUIRE ends it. main returns
 * finish(). */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shale.h"

#define UNUSED __attribute__((unused))
#define SKIPPED 77 /* the exit code that ctest takes for "skipped" */

static _Atomic unsigned check_count UNUSED, check_failures UNUSED; /* threads check too */

static inline bool check_that(bool holds, const char *file, int line, const char *expression, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static inline bool check_that(bool holds, const char *file, int line, const char *expression, const char *format, ...) {
    check_count++;
    if (holds)
        return true;
    if (check_failures++ < 50) {
        fprintf(stderr, "%s:%d: %s", file, line, expression);
        va_list arguments;
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        fputc('\n', stderr);
    }
    return false;
}

static inline bool check_status(shale_status expected, shale_status got, const char *file, int line,
                                const char *expression) {
    /* "oracle: " makes the failure final (Scripts/suites.py). */
    const char *fault = expected == SHALE_OK && got == SHALE_MISS   ? " (oracle: a lost value)"
                        : expected == SHALE_MISS && got == SHALE_OK ? " (oracle: a value that was removed)"
                                                                    : "";
    return check_that(expected == got, file, line, expression, ": expected %d (%s), got %d (%s) %s%s", expected,
                      shale_status_text(expected), got, shale_status_text(got), got < 0 ? shale_last_error() : "",
                      fault);
}

/* One of two answers. */
static inline bool check_either(shale_status first, shale_status second, shale_status got, const char *file, int line,
                                const char *expression) {
    return check_status(got == second ? second : first, got, file, line, expression);
}

/* Any answer, but no error. */
static inline bool check_answer(shale_status got, const char *file, int line, const char *expression) {
    return check_status(got >= 0 ? got : SHALE_OK, got, file, line, expression);
}

#define CHECK(expression) check_that((expression), __FILE__, __LINE__, #expression, "%s", "")
#define CHECK_TEXT(value, text) CHECK_BYTES(value, text, strlen(text))
#define CHECK_BYTES(value, data, size)                                                                                 \
    check_that(holds_bytes((value), (data), (size)), __FILE__, __LINE__, #value " holds " #data, "%s",                 \
               " (oracle: a wrong value)")
#define CHECK_EQUAL(expected, got)                                                                                     \
    check_equal((int64_t)(expected), (int64_t)(got), __FILE__, __LINE__, #expected " == " #got)
#define CHECK_STATUS(expected, call) check_status((expected), (call), __FILE__, __LINE__, #call)
#define CHECK_EITHER(first, second, call) check_either((first), (second), (call), __FILE__, __LINE__, #call)
#define CHECK_ANSWER(call) check_answer((call), __FILE__, __LINE__, #call)
#define REQUIRE(expression)                                                                                            \
    do {                                                                                                               \
        if (!CHECK(expression))                                                                                        \
            exit(finish());                                                                                            \
    } while (0)
#define REQUIRE_STATUS(expected, call)                                                                                 \
    do {                                                                                                               \
        if (!CHECK_STATUS(expected, call))                                                                             \
            exit(finish());                                                                                            \
    } while (0)

static inline bool check_equal(int64_t expected, int64_t got, const char *file, int line, const char *expression) {
    return check_that(expected == got, file, line, expression, ": expected %" PRId64 ", got %" PRId64, expected, got);
}

/* Runs one test function, and names it if it fails. */
#define RUN(test)                                                                                                      \
    do {                                                                                                               \
        unsigned failures_before = check_failures;                                                                     \
        test();                                                                                                        \
        if (check_failures != failures_before)                                                                         \
            fprintf(stderr, "  in %s\n", #test);                                                                       \
    } while (0)

/* Directories: one temporary directory for each test program, removed by finish(). */

static char check_directory[256];
static pid_t check_owner;

static inline int check_remove_file(const char *path, const struct stat *status UNUSED, int type UNUSED,
                                    struct FTW *walk UNUSED) {
    return remove(path);
}

static inline void remove_tree(const char *path) {
    nftw(path, check_remove_file, 16, FTW_DEPTH | FTW_PHYS);
}

/* Call before the first path: the temporary directory is then in memory, where possible. */
static inline void prefer_memory(void) {
    if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1);
}

/* A path inside the temporary directory; the caller frees it. Creates nothing. */
static inline char *path_to(const char *name) {
    if (!check_directory[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(check_directory, sizeof check_directory, "%s/shale-c-test-XXXXXX", base && *base ? base : "/tmp");
        if (!mkdtemp(check_directory)) {
            perror("mkdtemp");
            exit(1);
        }
        check_owner = getpid();
    }
    size_t size = strlen(check_directory) + strlen(name) + 2;
    char *path = malloc(size);
    if (!path)
        abort();
    snprintf(path, size, "%s/%s", check_directory, name);
    return path;
}

static inline int finish(void) {
    if (check_directory[0] && check_owner == getpid())
        remove_tree(check_directory);
    if (check_failures)
        fprintf(stderr, "%u of %u checks failed\n", check_failures, check_count);
    else
        printf("%u checks\n", check_count);
    return check_failures ? 1 : 0;
}

/* Time */

static inline int64_t monotonic_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static inline int64_t monotonic_ms(void) {
    return monotonic_us() / 1000;
}

static inline void sleep_us(int64_t us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&time, &time) < 0 && errno == EINTR) {
    }
}

/* Seconds, for watch(): a busy machine takes a test's processor away for a long time. Less than ctest's limit. */
enum { patience = 600 };

static void check_watchdog(int signal UNUSED) {
    static const char message[] = "watchdog: the test hangs\n";
    if (write(2, message, sizeof message - 1) < 0) {
    }
    _exit(1);
}

/* Ends the process as a failure unless it ends in time. Children need their own. */
static inline void watch(unsigned seconds) {
    signal(SIGALRM, check_watchdog);
    alarm(seconds);
}

/* Random numbers: one seed, which a failing test prints. */

typedef struct {
    uint64_t state;
} random_source;

static inline uint64_t random_next(random_source *source) { /* splitmix64 */
    uint64_t z = source->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint64_t random_below(random_source *source, uint64_t bound) {
    return random_next(source) % bound;
}

/* Children */

/* Memory shared with all children forked later; it is zeroed. */
static inline void *shared_memory(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    return memory;
}

/* Call first in a forked child: it counts its own failures. */
static inline void begin_child(unsigned seconds) {
    check_failures = 0;
    watch(seconds);
}

/* For a child that may be stopped: its alarm would stay pending until it is continued. (Its parent is the thread
 * that forked it.) */
static inline void die_with_parent(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Makes the library start no threads: for a test that hooks into it. */
static inline void stay_on_one_processor(void) {
    cpu_set_t set, one;
    CPU_ZERO(&one);
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &set))
            CPU_SET(i, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

/* The exit code of a child; 128 + the signal that ended it. */
static inline int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGTRAP ||
        signal == SIGABRT)
        fprintf(stderr, "crash: %s\n", strsignal(signal));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Whether a child still runs. Its exit code stays for wait_for(). */
static inline bool is_alive(pid_t child) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

/* Caches */

/* Opens a cache that must open. */
static inline shale_cache *require_open(const char *directory, shale_options options) {
    options.struct_size = sizeof options;
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    return cache;
}

/* Tests with many rounds use both eviction policies in turn. */
static inline int32_t policy_of(uint64_t round) {
    return round % 2 == 0 ? SHALE_EVICTION_LRU : SHALE_EVICTION_CLOCK;
}

static inline shale_stats stats_of(shale_cache *cache) {
    shale_stats stats = {.struct_size = sizeof stats};
    CHECK_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    return stats;
}

/* Strings as keys and values */

static inline shale_status set_text(shale_cache *cache, const char *key, const char *text,
                                    const shale_set_options *options) {
    return shale_set(cache, key, strlen(key), text, strlen(text), options);
}

static inline shale_status get_text(shale_cache *cache, const char *key, uint32_t flags, shale_value *value) {
    return shale_get(cache, key, strlen(key), flags, value);
}

static inline bool holds_bytes(const shale_value *value, const void *data, size_t size) {
    return value->size == size && (size == 0 || memcmp(value->data, data, size) == 0);
}

static inline bool holds_text(const shale_value *value, const char *text) {
    return holds_bytes(value, text, strlen(text));
}

#endif
