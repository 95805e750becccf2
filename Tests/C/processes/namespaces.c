/* Processes in two PID namespaces share a cache: both write, a lease is one holder's, and what a process of the other
 * namespace holds when it is stopped, killed or gone with its namespace is what it would be in the same one. Needs the
 * right to create namespaces; skipped without it. */
#include "check.h"
#include "faults.h"
#include "gate.h"

#include <fcntl.h>
#include <sched.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { limit = 30, hour = 60 * 60 * 1000 };

static const shale_options four_mib = {.struct_size = sizeof four_mib, .capacity = 4 << 20, .lock_timeout_ms = limit};

/* Runs `work` as the first process of its own namespace. Returns the process in between, whose exit code is the
 * work's. */
static pid_t begin_elsewhere(void (*work)(const char *), const char *directory) {
    pid_t middle = fork();
    if (middle == 0) {
        begin_child(patience);
        if (unshare(CLONE_NEWPID) < 0)
            _exit(SKIPPED);
        pid_t inner = fork();
        if (inner == 0) {
            begin_child(patience);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(directory);
            _exit(check_failures != 0);
        }
        _exit(wait_for(inner));
    }
    return middle;
}

static void nothing(const char *directory UNUSED) {
}

static void check_holds(shale_cache *cache, const char *key, const char *text) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, get_text(cache, key, 0, &value));
    CHECK_TEXT(&value, text);
    shale_value_free(&value);
}

static uint64_t ask(shale_cache *cache, const char *key) {
    shale_lease_options options = {.struct_size = sizeof options, .lease_ms = hour, .flags = SHALE_LEASE_RECORDED};
    shale_value value = SHALE_VALUE_INIT;
    uint64_t lease = 0;
    CHECK_STATUS(SHALE_MISS, shale_lease(cache, key, strlen(key), &options, &value, &lease));
    shale_value_free(&value);
    return lease;
}

static gate ready, go_on;
static shale_cache *inherited;

static void writes(const char *directory) {
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    check_holds(cache, "here", "value");
    CHECK_STATUS(SHALE_OK, set_text(cache, "elsewhere", "value", NULL));
    CHECK_EQUAL(0, ask(cache, "loaded here"));
    CHECK(ask(cache, "loaded elsewhere") != 0);
    pass(&ready);
    await(&go_on);
    check_holds(cache, "here", "again");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* Under the lock of a shard: a store happens there. */
static void wait_at_store(const void *at UNUSED) {
    shim_faults.store = NULL;
    pass(&ready);
    for (;;)
        pause();
}
static long wait_under_lock(const char *name) {
    if (strcmp(name, "lock_try") == 0)
        shim_faults.store = wait_at_store;
    return 0;
}

static void holds_a_lock(const char *directory) {
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    CHECK(ask(cache, "lent") != 0);
    shim_faults.call = wait_under_lock;
    set_text(cache, "here", "unfinished", NULL);
}

/* With the handle that the process was forked with. */
static void holds_as_a_child(const char *directory UNUSED) {
    shim_faults.call = wait_under_lock;
    set_text(inherited, "here", "unfinished", NULL);
}

static void test_forked_into_a_namespace(shale_cache *cache, const char *directory) {
    inherited = cache;
    pid_t other = begin_elsewhere(holds_as_a_child, directory);
    await(&ready);
    CHECK_STATUS(SHALE_E_BUSY, set_text(cache, "here", "in vain", NULL));
    CHECK(strstr(shale_last_error(), "a process in another PID namespace"));
    kill(other, SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(other));
    shale_status status;
    do
        status = set_text(cache, "here", "again", NULL);
    while (status == SHALE_E_BUSY);
    CHECK_STATUS(SHALE_OK, status);
}

/* A process that gives its children another uptime has its own still. */
static void test_uptime_of_children(shale_cache *cache, const char *directory) {
    CHECK(ask(cache, "loaded at any time") != 0);
    pid_t other = fork();
    if (other == 0) {
        begin_child(patience);
        int offsets = unshare(CLONE_NEWTIME) < 0 ? -1 : open("/proc/self/timens_offsets", O_WRONLY);
        if (offsets < 0 || write(offsets, "monotonic 86400 0", 17) != 17)
            _exit(SKIPPED);
        shale_cache *own = NULL;
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &own));
        CHECK_EQUAL(0, ask(own, "loaded at any time"));
        pid_t child = fork();
        if (child == 0) {
            begin_child(patience);
            CHECK_EQUAL(0, ask(own, "loaded at any time"));
            _exit(check_failures != 0);
        }
        CHECK_EQUAL(0, wait_for(child));
        CHECK_STATUS(SHALE_OK, shale_close(own));
        _exit(check_failures != 0);
    }
    int result = wait_for(other);
    if (result == SKIPPED)
        fprintf(stderr, "no right to make time namespaces\n");
    else
        CHECK_EQUAL(0, result);
}

int main(void) {
    watch(patience);
    char *directory = path_to("cache");
    if (wait_for(begin_elsewhere(nothing, directory)) == SKIPPED) {
        fprintf(stderr, "skipped: no right to make PID namespaces\n");
        finish();
        return SKIPPED;
    }
    ready = make_gate();
    go_on = make_gate();
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    CHECK_STATUS(SHALE_OK, set_text(cache, "here", "value", NULL));
    CHECK(ask(cache, "loaded here") != 0);

    pid_t other = begin_elsewhere(writes, directory);
    await(&ready);
    check_holds(cache, "elsewhere", "value");
    CHECK_EQUAL(0, ask(cache, "loaded elsewhere"));
    CHECK_STATUS(SHALE_OK, set_text(cache, "here", "again", NULL));
    pass(&go_on);
    CHECK_EQUAL(0, wait_for(other));
    CHECK(ask(cache, "loaded elsewhere") != 0); /* its holder has closed the cache */

    /* One that holds a lock is waited for as long as it lives, and no longer. */
    for (int i = 0; i < 5; i++) {
        other = begin_elsewhere(holds_a_lock, directory);
        await(&ready);
        CHECK_STATUS(SHALE_E_BUSY, set_text(cache, "here", "in vain", NULL));
        CHECK(strstr(shale_last_error(), directory) &&
              strstr(shale_last_error(), "a process in another PID namespace"));
        check_holds(cache, "here", "again");
        kill(other, SIGKILL); /* and with it, its child's namespace */
        CHECK_EQUAL(128 + SIGKILL, wait_for(other));
        shale_status status;
        do
            status = set_text(cache, "here", "again", NULL);
        while (status == SHALE_E_BUSY); /* until the kernel has ended the child */
        CHECK_STATUS(SHALE_OK, status);
        check_holds(cache, "here", "again");
        CHECK(ask(cache, "lent") != 0);
        CHECK_STATUS(SHALE_OK, shale_remove(cache, "elsewhere", 9, 0));
        CHECK_STATUS(SHALE_OK, set_text(cache, "elsewhere", "value", NULL));
        CHECK_STATUS(SHALE_OK, shale_close(cache)); /* and its leases end */
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    }
    test_forked_into_a_namespace(cache, directory);
    test_uptime_of_children(cache, directory);
    CHECK_EQUAL(0, stats_of(cache).rebuilds);
    CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    close_gate(&ready);
    close_gate(&go_on);
    free(directory);
    return finish();
}
