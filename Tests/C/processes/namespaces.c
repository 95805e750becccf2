/* Two PID namespaces on one cache: robust locks name their owners by thread id, which differs between namespaces. So
 * a second writer from another namespace gets SHALE_E_BUSY, a reader, which takes no locks, works, and no process
 * hangs: neither when the others leave, nor when they are killed. Needs the right to create namespaces; skipped
 * without it. */
#include "check.h"
#include "gate.h"

#include <sched.h>

static const shale_options four_mib = {.struct_size = sizeof four_mib, .capacity = 4 << 20},
                           read_only = {.struct_size = sizeof read_only, .flags = SHALE_OPEN_READ_ONLY};

/* Runs `work` as the first process of its own namespace; returns its exit code. */
static int elsewhere(int (*work)(const char *), const char *directory) {
    pid_t middle = fork();
    if (middle == 0) {
        begin_child(patience);
        if (unshare(CLONE_NEWPID) < 0)
            _exit(SKIPPED);
        pid_t inner = fork();
        if (inner == 0) {
            begin_child(patience);
            _exit(work(directory) != 0 || check_failures != 0);
        }
        _exit(wait_for(inner));
    }
    return wait_for(middle);
}

static void check_holds(shale_cache *cache, const char *key, const char *text) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, get_text(cache, key, 0, &value));
    CHECK(holds_text(&value, text));
    shale_value_free(&value);
}

static int nothing(const char *directory UNUSED) {
    return 0;
}

static int is_refused(const char *directory) {
    shale_cache *cache = NULL;
    CHECK_STATUS(SHALE_E_BUSY, shale_open(directory, &four_mib, &cache));
    CHECK(strstr(shale_last_error(), directory) && strstr(shale_last_error(), "PID namespace"));
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &read_only, &cache));
    check_holds(cache, "here", "value");
    CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return 0;
}

static int writes(const char *directory) {
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    check_holds(cache, "here", "value");
    CHECK_STATUS(SHALE_OK, set_text(cache, "elsewhere", "value", NULL));
    return shale_close(cache);
}

static gate ready;

static int writes_until_killed(const char *directory) {
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    CHECK_STATUS(SHALE_OK, set_text(cache, "killed", "value", NULL));
    pass(&ready);
    for (uint32_t n = 0;; n = (n + 1) % 1000)
        shale_set(cache, &n, sizeof n, &n, sizeof n, NULL);
}

int main(void) {
    watch(patience);
    char *directory = path_to("cache");
    if (elsewhere(nothing, directory) == SKIPPED) {
        fprintf(stderr, "skipped: no right to make PID namespaces\n");
        finish();
        return SKIPPED;
    }
    ready = make_gate();
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    CHECK_STATUS(SHALE_OK, set_text(cache, "here", "value", NULL));
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(0, elsewhere(is_refused, directory));
        CHECK_STATUS(SHALE_OK, set_text(cache, "here", "value", NULL));
        check_holds(cache, "here", "value");
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    /* One after the other works. */
    CHECK_EQUAL(0, elsewhere(writes, directory));
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    check_holds(cache, "elsewhere", "value");
    CHECK_STATUS(SHALE_OK, shale_close(cache));

    /* While they are in there it is busy here; when they are killed it is free. */
    for (int i = 0; i < 5; i++) {
        pid_t middle = fork();
        if (middle == 0) {
            begin_child(patience);
            REQUIRE(unshare(CLONE_NEWPID) == 0);
            pid_t inner = fork();
            if (inner == 0) {
                begin_child(patience);
                writes_until_killed(directory);
            }
            await(&ready);
            pass(&ready);
            sleep_us(1000 * i);
            shale_cache *other = NULL;
            CHECK_STATUS(SHALE_E_BUSY, shale_open(directory, &four_mib, &other));
            CHECK_STATUS(SHALE_OK, shale_open(directory, &read_only, &other));
            check_holds(other, "killed", "value");
            CHECK_STATUS(SHALE_OK, shale_close(other));
            kill(inner, SIGKILL);
            CHECK_EQUAL(128 + SIGKILL, wait_for(inner));
            _exit(check_failures != 0);
        }
        CHECK_EQUAL(0, wait_for(middle));
        await(&ready);
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
        check_holds(cache, "here", "value");
        check_holds(cache, "killed", "value");
        CHECK_STATUS(SHALE_OK, set_text(cache, "killed", "again", NULL));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
    close_gate(&ready);
    free(directory);
    return finish();
}
