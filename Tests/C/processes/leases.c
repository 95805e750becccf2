/* Many processes ask for missing keys at once: each key is loaded once. A process
 * that is killed while it loads keeps the others waiting for its lease's time, no
 * longer. Whoever misses and gets the lease after the value was set gets the
 * value: a hook sets it in between. */
#include "afterwards.h"
#include "faults.h"
#include "gate.h"

enum { processes = 6, keys = 200, patience_ms = 60000 };

static char *directory;
static _Atomic uint32_t *loads; /* of each key, by all processes */

static shale_cache *open_cache(void) {
    return require_open(directory, (shale_options){.capacity = 4 << 20, .flags = SHALE_OPEN_NO_SYNC});
}

static uint64_t ask(shale_cache *cache, uint64_t key, int64_t lease_ms, shale_status expected, shale_value *value) {
    uint64_t lease = 0;
    shale_lease_options options = {.struct_size = sizeof options, .lease_ms = lease_ms, .wait_ms = patience_ms};
    shale_status status = shale_lease(cache, &key, sizeof key, &options, value, &lease);
    CHECK_STATUS(lease ? SHALE_MISS : expected, status);
    return lease;
}

static void load(shale_cache *cache, uint64_t key, uint64_t lease) {
    loads[key]++;
    usleep(1000);
    CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, &key, sizeof key, NULL));
    CHECK_STATUS(SHALE_OK, shale_release(cache, &key, sizeof key, lease));
}

static void test_stampede(void) {
    gate go = make_gate();
    pid_t children[processes];
    for (int i = 0; i < processes; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            begin_child(120);
            shale_cache *cache = open_cache();
            shale_value value = SHALE_VALUE_INIT;
            await(&go);
            for (uint64_t key = 0; key < keys; key++) {
                uint64_t lease = ask(cache, key, 0, SHALE_OK, &value);
                if (lease)
                    load(cache, key, lease);
                else
                    CHECK(value.size == sizeof key && memcmp(value.data, &key, sizeof key) == 0);
            }
            shale_value_free(&value);
            CHECK_STATUS(SHALE_OK, shale_close(cache));
            _exit(check_failures != 0);
        }
    }
    for (int i = 0; i < processes; i++)
        pass(&go);
    for (int i = 0; i < processes; i++)
        CHECK_EQUAL(0, wait_for(children[i]));
    for (uint64_t key = 0; key < keys; key++)
        CHECK_EQUAL(1, loads[key]);
    close_gate(&go);
}

static void test_killed(void) {
    enum { lease_ms = 300 };
    const uint64_t key = keys;
    gate held = make_gate();
    shale_value value = SHALE_VALUE_INIT;
    shale_cache *cache = open_cache();
    pid_t child = fork();
    if (child == 0) {
        begin_child(60);
        CHECK(ask(open_cache(), key, lease_ms, SHALE_MISS, &value) != 0);
        pass(&held);
        pause();
        _exit(1);
    }
    await(&held);
    int64_t killed = monotonic_ms();
    REQUIRE(kill(child, SIGKILL) == 0);
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
    uint64_t lease = ask(cache, key, 0, SHALE_MISS, &value);
    CHECK(lease != 0);
    /* At most its time, and what a busy machine adds. */
    CHECK(monotonic_ms() - killed < patience_ms / 2);
    load(cache, key, lease);
    CHECK_EQUAL(0, ask(cache, key, 0, SHALE_OK, &value));
    shale_value_free(&value);
    check_afterwards(cache, directory, "after a kill");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    close_gate(&held);
}

static shale_cache *in_between;

/* Between the look, which takes no lock, and the lease, which does. */
static long before_call(const char *name) {
    shale_cache *cache = in_between;
    in_between = NULL;
    if (cache && strcmp(name, "mutex_lock") == 0)
        CHECK_STATUS(SHALE_OK, shale_set(cache, "late", 4, "value", 5, NULL));
    else
        in_between = cache;
    return 0;
}

static void test_second_look(void) {
    shale_cache *cache = open_cache();
    shale_value value = SHALE_VALUE_INIT;
    uint64_t lease = 77;
    shim_faults.call = before_call;
    in_between = cache;
    CHECK_STATUS(SHALE_OK, shale_lease(cache, "late", 4, NULL, &value, &lease));
    CHECK(in_between == NULL && lease == 0 && value.size == 5);
    shim_faults.call = NULL;
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

int main(void) {
    directory = path_to("cache");
    loads = shared_memory((keys + 1) * sizeof *loads);
    test_stampede();
    test_killed();
    test_second_look();
    free(directory);
    return finish();
}
