/* Many processes ask for missing keys at once: each key is loaded once, also when all are being loaded at the same
 * time. A lease ends with the process that holds it, and its cell is free. If no cell is free, a lease is not
 * recorded, or is not given, as the caller chooses. A caller that misses and gets the lease after the value was set
 * gets the value: a hook sets it in between. */
#include "afterwards.h"
#include "faults.h"
#include "files.h"
#include "gate.h"
#include "layout.h"

#include <pthread.h>
#include <sys/wait.h>

enum { processes = 6, keys = 200, patience_ms = 600000, hour_ms = 60 * 60 * 1000, first_at_once = 1000 };

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

/* For an hour, without waiting. The key is missing; the value's flags say whether the lease could not be recorded. */
static uint64_t ask_at_once(shale_cache *cache, uint64_t key, uint32_t flags, uint32_t *value_flags) {
    uint64_t lease = 0;
    shale_value value = SHALE_VALUE_INIT;
    shale_lease_options options = {.struct_size = sizeof options, .flags = flags, .lease_ms = hour_ms};
    CHECK_STATUS(SHALE_MISS, shale_lease(cache, &key, sizeof key, &options, &value, &lease));
    if (value_flags)
        *value_flags = value.flags;
    shale_value_free(&value);
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
            begin_child(patience);
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

/* A child that runs a function on a cache, and then lives until it is killed. */
static pid_t begin_living(const char *where, void (*act)(shale_cache *cache, void *context), void *context) {
    gate done = make_gate();
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        die_with_parent();
        act(require_open(where, (shale_options){.flags = SHALE_OPEN_NO_SYNC}), context);
        if (check_failures)
            _exit(1);
        pass(&done);
        pause();
    }
    await(&done);
    close_gate(&done);
    return child;
}

static void ask_for_all(shale_cache *cache, void *granted) {
    for (uint64_t key = 0; key < keys; key++)
        ((_Atomic uint32_t *)granted)[key] += ask_at_once(cache, first_at_once + key, 0, NULL) != 0;
}

/* Each of four processes gets as many leases of all keys as it can, before any of them has loaded one. */
static void test_all_at_once(void) {
    enum { askers = 4 };
    _Atomic uint32_t *granted = shared_memory(keys * sizeof *granted);
    shale_cache *cache = open_cache();
    for (int i = 0; i < askers; i++)
        begin_living(directory, ask_for_all, granted);
    for (uint64_t key = 0; key < keys; key++)
        CHECK_EQUAL(1, granted[key]);
    CHECK_EQUAL(0, stats_of(cache).leases_unrecorded);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static unsigned looks; /* at processes */
static long count_looks(const char *name) {
    looks += strcmp(name, "owner_has_ended") == 0;
    return 0;
}

static void test_as_many_as_promised(void) {
    enum { most = 4096 };
    char *large = path_to("large");
    shale_cache *cache = require_open(large, (shale_options){.capacity = 16 << 20, .flags = SHALE_OPEN_NO_SYNC});
    static uint64_t leases[most];
    for (uint64_t key = 0; key < most; key++)
        CHECK((leases[key] = ask_at_once(cache, key, SHALE_LEASE_RECORDED, NULL)) != 0);
    looks = 0;
    shim_faults.call = count_looks;
    for (uint64_t key = 0; key < most; key++)
        CHECK_EQUAL(0, ask_at_once(cache, key, 0, NULL));
    shim_faults.call = NULL;
    CHECK_EQUAL(0, looks); /* not for its own */
    for (uint64_t key = 0; key < most; key++) {
        CHECK_STATUS(SHALE_OK, shale_renew(cache, &key, sizeof key, leases[key], 0));
        CHECK_STATUS(SHALE_OK, shale_release(cache, &key, sizeof key, leases[key]));
        CHECK(ask_at_once(cache, key, SHALE_LEASE_RECORDED, NULL) != 0);
    }
    CHECK_EQUAL(0, stats_of(cache).leases_unrecorded);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(large);
}

typedef struct {
    uint64_t first, count;
    _Atomic uint64_t *given;
} wish;

static void take_leases(shale_cache *cache, void *context) {
    const wish *w = context;
    for (uint64_t key = w->first; key < w->first + w->count; key++) {
        uint32_t flags;
        bool is_given = ask_at_once(cache, key, SHALE_LEASE_RECORDED, &flags) != 0;
        *w->given += is_given;
        CHECK_EQUAL(is_given ? 0 : SHALE_VALUE_UNRECORDED, flags);
    }
}

/* A child that asks for this many leases and holds them until it is killed; how many it was given, and whether the
 * others were refused because there was no room. */
static pid_t begin_holder(const char *where, uint64_t first, uint64_t count, _Atomic uint64_t *given) {
    return begin_living(where, take_leases, &(wish){first, count, given});
}

static void end_holder(pid_t child) {
    REQUIRE(kill(child, SIGKILL) == 0);
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
}

static void test_killed(void) {
    enum { first = 2000, count = 100 };
    shale_cache *cache = open_cache();
    shale_value value = SHALE_VALUE_INIT;
    _Atomic uint64_t *given = shared_memory(2 * sizeof *given);
    pid_t doomed = begin_holder(directory, first, count, &given[0]);
    pid_t other = begin_holder(directory, first + count, count, &given[1]);
    CHECK(given[0] == count && given[1] == count);
    for (uint64_t key = first; key < first + 2 * count; key++)
        CHECK_EQUAL(0, ask_at_once(cache, key, 0, NULL));
    end_holder(doomed);
    /* It had them for an hour. */
    for (uint64_t key = first; key < first + count; key++) {
        CHECK(ask_at_once(cache, key, SHALE_LEASE_RECORDED, NULL) != 0);
        CHECK_EQUAL(0, ask_at_once(cache, key, 0, NULL));
    }
    for (uint64_t key = first + count; key < first + 2 * count; key++)
        CHECK_EQUAL(0, ask_at_once(cache, key, 0, NULL));
    end_holder(other);
    /* A caller that waits gets one as well. */
    uint64_t key = first + count, lease = ask(cache, key, 0, SHALE_MISS, &value);
    CHECK(lease != 0);
    CHECK_STATUS(SHALE_OK, shale_release(cache, &key, sizeof key, lease));
    shale_value_free(&value);
    check_afterwards(cache, directory, "after a kill");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* A process that has ended holds no lease, although its parent has not waited for it. */
static void test_zombie(void) {
    const uint64_t key = 2400;
    shale_cache *cache = open_cache();
    _Atomic uint64_t *given = shared_memory(sizeof *given);
    pid_t child = begin_holder(directory, key, 1, given);
    siginfo_t end;
    REQUIRE(kill(child, SIGKILL) == 0 && waitid(P_PID, (id_t)child, &end, WEXITED | WNOWAIT) == 0);
    CHECK(ask_at_once(cache, key, 0, NULL) != 0);
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void *wait_for_ever(void *unused) {
    for (;;)
        pause();
    return unused;
}

/* A process whose main thread has ended, and another one has not, is alive. */
static void test_without_main_thread(void) {
    const uint64_t key = 2450;
    shale_cache *cache = open_cache();
    gate held = make_gate();
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        die_with_parent();
        shale_cache *own = open_cache();
        REQUIRE(ask_at_once(own, key, 0, NULL) != 0);
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
        pass(&held);
        pthread_exit(NULL);
    }
    await(&held);
    close_gate(&held);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
    for (char state = 0; state != 'Z';) {
        FILE *stat = fopen(path, "r");
        REQUIRE(stat && fscanf(stat, "%*d %*s %c", &state) == 1);
        fclose(stat);
    }
    CHECK_EQUAL(0, ask_at_once(cache, key, 0, NULL));
    end_holder(child);
    CHECK(ask_at_once(cache, key, 0, NULL) != 0);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static shale_cache *meanwhile;
static uint64_t key_meanwhile, lease_meanwhile;
static long take_meanwhile(const char *name) {
    if (strcmp(name, "owner_has_ended") == 0) {
        shim_faults.call = NULL;
        lease_meanwhile = ask_at_once(meanwhile, key_meanwhile, 0, NULL);
    }
    return 0;
}

/* Between the check of the holder's process and the taking of its lease, another caller takes it. */
static void test_taken_meanwhile(void) {
    shale_cache *cache = open_cache();
    _Atomic uint64_t *given = shared_memory(sizeof *given);
    key_meanwhile = 2500;
    end_holder(begin_holder(directory, key_meanwhile, 1, given));
    meanwhile = cache;
    shim_faults.call = take_meanwhile;
    CHECK_EQUAL(0, ask_at_once(cache, key_meanwhile, 0, NULL));
    CHECK(!shim_faults.call && lease_meanwhile != 0);
    CHECK_STATUS(SHALE_OK, shale_release(cache, &key_meanwhile, sizeof key_meanwhile, lease_meanwhile));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* A time that is further away than any lease's is damage, and counts as over. */
static void test_damaged(void) {
    const uint64_t key = 2600;
    shale_cache *cache = open_cache();
    mapped_file data = map_file(directory, "shale.data"), index = map_file(directory, "shale.index");
    layout l = layout_of(data.bytes);
    uint64_t lease = ask_at_once(cache, key, 0, NULL), found = 0;
    for (unsigned char *cell = index.bytes + index_head_bytes + l.leases,
                       *end = index.bytes + index_head_bytes + l.writers;
         cell < end; cell += 24)
        if (word_at(cell + 8) == lease) {
            uint64_t holder = word_at(cell + 16) + 60000;
            uint64_t row = word_at(index.bytes + index_owner_rows + (holder >> 34) % 32 * 8);
            CHECK_EQUAL(getpid(), row >> 42);
            CHECK_EQUAL(holder >> 34, row & ((1 << 30) - 1));
            memcpy(cell + 16, &holder, sizeof holder);
            found++;
        }
    CHECK_EQUAL(1, found);
    CHECK_STATUS(SHALE_MISS, shale_renew(cache, &key, sizeof key, lease, 0));
    CHECK(ask_at_once(cache, key, 0, NULL) != 0);
    CHECK_EQUAL(0, ask_at_once(cache, key, 0, NULL));
    unmap_file(&data);
    unmap_file(&index);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* A child of a fork does not hold its parent's leases. With the token it can release one, or renew it: then the
 * child holds it, and it ends with the child. */
static void test_forked(void) {
    enum { renewed = 3000, released, left };
    shale_cache *cache = open_cache();
    uint64_t leases[] = {ask_at_once(cache, renewed, 0, NULL), ask_at_once(cache, released, 0, NULL),
                         ask_at_once(cache, left, 0, NULL)};
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        uint64_t names[] = {renewed, released};
        CHECK_EQUAL(0, ask_at_once(cache, renewed, 0, NULL));
        CHECK_STATUS(SHALE_OK, shale_renew(cache, &names[0], 8, leases[0], hour_ms));
        CHECK_STATUS(SHALE_OK, shale_release(cache, &names[1], 8, leases[1]));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    CHECK(ask_at_once(cache, renewed, 0, NULL) != 0);
    CHECK(ask_at_once(cache, released, 0, NULL) != 0);
    CHECK_EQUAL(0, ask_at_once(cache, left, 0, NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* All of the smallest cache's cells are taken: live holders keep theirs, dead holders' cells are reused. */
static void test_full(void) {
    enum { count = 4000 };
    char *little = path_to("small");
    shale_cache *cache = require_open(little, (shale_options){.capacity = 1 << 20, .flags = SHALE_OPEN_NO_SYNC});
    mapped_file data = map_file(little, "shale.data");
    layout l = layout_of(data.bytes);
    unmap_file(&data);
    const uint64_t cells = (l.writers - l.leases) / 24;
    CHECK(cells >= 256);
    _Atomic uint64_t *given = shared_memory(2 * sizeof *given);
    pid_t holder = begin_holder(little, 0, count, &given[0]);
    CHECK_EQUAL(cells, given[0]);
    for (uint64_t key = count; key < count + 10; key++) {
        uint32_t flags;
        CHECK_EQUAL(0, ask_at_once(cache, key, SHALE_LEASE_RECORDED, &flags));
        CHECK_EQUAL(SHALE_VALUE_UNRECORDED, flags);
    }
    /* Another caller has them, which has its own answer. */
    uint64_t taken = 0;
    for (uint64_t key = 0; key < count; key++) {
        uint32_t flags;
        CHECK_EQUAL(0, ask_at_once(cache, key, SHALE_LEASE_RECORDED, &flags));
        taken += flags == 0;
    }
    CHECK_EQUAL(cells, taken);
    CHECK_EQUAL(0, stats_of(cache).leases_unrecorded);
    for (uint64_t key = count; key < count + 10; key++) {
        uint64_t first = ask_at_once(cache, key, 0, NULL), second = ask_at_once(cache, key, 0, NULL);
        CHECK(first != 0 && second != 0 && first != second);
        CHECK_STATUS(SHALE_MISS, shale_renew(cache, &key, sizeof key, first, 0));
        CHECK_STATUS(SHALE_MISS, shale_release(cache, &key, sizeof key, first));
    }
    CHECK_EQUAL(20, stats_of(cache).leases_unrecorded);
    end_holder(holder);
    holder = begin_holder(little, count + 10, count, &given[1]);
    CHECK_EQUAL(cells, given[1]);
    CHECK_EQUAL(20, stats_of(cache).leases_unrecorded);
    end_holder(holder);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(little);
}

static shale_cache *in_between;

/* Between the read, which takes no lock, and the lease, which does. */
static long before_call(const char *name) {
    shale_cache *cache = in_between;
    in_between = NULL;
    if (cache && strcmp(name, "lock_try") == 0)
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
    loads = shared_memory(keys * sizeof *loads);
    test_stampede();
    test_all_at_once();
    test_as_many_as_promised();
    test_killed();
    test_zombie();
    test_without_main_thread();
    test_taken_meanwhile();
    test_damaged();
    test_forked();
    test_full();
    test_second_look();
    free(directory);
    return finish();
}
