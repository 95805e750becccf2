/* The order of eviction, beside readers that are stopped between drawing a stamp and storing it, and writers that
 * are stopped at any store: an entry whose last use ended before another's began is evicted first.
 *
 * Each actor is a thread, and one of them runs at a time: it hands over when the library allocates, locks or stores.
 * So the place or the seed alone decides the schedule, and not the machine's load.
 *
 * eviction_order [operations of each random run] [seed] */
#include "check.h"
#include "faults.h"

#include <pthread.h>
#include <semaphore.h>

enum { most_keys = 1500 };

static shale_cache *cache;

/* ---- the oracle: when each key was used ---- */

static uint64_t now; /* counts begins and ends */

static struct use {
    uint64_t begun, ended; /* the latest of its uses that have ended */
    unsigned under_way;
    bool is_present;
} uses[most_keys];
static uint64_t begun_before[most_keys];
static uint32_t key_count;
static bool is_looking; /* the test itself reads the cache */
static uint64_t left, last_left;

static void end_use(uint32_t key, uint64_t begun, bool counts) {
    struct use *u = &uses[key];
    u->under_way--;
    if (!counts)
        return;
    if (begun > u->begun)
        u->begun = begun;
    u->ended = ++now;
}

static uint64_t begin_use(uint32_t key) {
    uses[key].under_way++;
    return ++now;
}

static void get(uint32_t key) {
    shale_value value = SHALE_VALUE_INIT; /* a new one: its memory is allocated in the middle of the call */
    uint64_t begun = begin_use(key);
    shale_status status = shale_get(cache, &key, sizeof key, 0, &value);
    CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
    end_use(key, begun, status == SHALE_OK);
    shale_value_free(&value);
}

static bool is_there(uint32_t key) {
    static shale_value value = SHALE_VALUE_INIT;
    return shale_get(cache, &key, sizeof key, SHALE_GET_PEEK, &value) == SHALE_OK;
}

/* For a call that may evict: which keys have been evicted since, and whether it was their turn. A use that was under
 * way when the call began does not save its entry, and one that has not ended has no order. */
static void begin_evicting(void) {
    for (uint32_t key = 0; key < key_count; key++)
        begun_before[key] = uses[key].begun;
}

static void check_order(void) {
    uint64_t oldest = UINT64_MAX;
    uint32_t oldest_key = 0;
    static uint32_t victims[most_keys];
    uint32_t count = 0;
    is_looking = true;
    for (uint32_t key = 0; key < key_count; key++) {
        struct use *u = &uses[key];
        if (!u->is_present)
            continue;
        if (!is_there(key)) {
            u->is_present = false;
            victims[count++] = key;
        } else if (!u->under_way && u->ended < oldest) {
            oldest = u->ended;
            oldest_key = key;
        }
    }
    is_looking = false;
    for (uint32_t i = 0; i < count; i++)
        check_that(begun_before[victims[i]] <= oldest, __FILE__, __LINE__, "order",
                   ": key %u left, whose last use began at %" PRIu64 "; key %u stayed, last used until %" PRIu64,
                   victims[i], begun_before[victims[i]], oldest_key, oldest);
    left += count;
}

static void set(uint32_t key) {
    begin_evicting();
    uint64_t begun = begin_use(key);
    CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, "v", 1, NULL));
    end_use(key, begun, true);
    uses[key].is_present = true;
    is_looking = true;
    shale_stats stats = stats_of(cache);
    is_looking = false;
    if (stats.evictions != last_left)
        check_order();
    last_left = stats.evictions;
}

static void evict(uint32_t count) {
    begin_evicting();
    uint64_t evicted = 0;
    CHECK_STATUS(SHALE_OK, shale_evict(cache, count, &evicted));
    last_left += evicted;
    check_order();
}

static void touch(uint32_t key) {
    shale_status status = shale_touch(cache, &key, sizeof key, SHALE_NEVER);
    CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
}

static void take_out(uint32_t key) {
    shale_status status = shale_remove(cache, &key, sizeof key, 0);
    CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
    uses[key].is_present = false;
}

/* ---- actors ---- */

typedef struct {
    pthread_t thread;
    sem_t go, back;
    void (*work)(uint32_t key);
    uint32_t key;
    uint64_t steps, stop_at, frozen_until;
    bool is_done;
} actor;

static _Thread_local actor *self;
static void (*at_step)(void);
static const void **heard; /* where a recording of stores goes */
static unsigned heard_count, most_heard;

static void step(void) {
    if (self && !is_looking)
        at_step();
}

static void hear_store(const void *at) {
    if (heard && heard_count < most_heard)
        heard[heard_count++] = at;
    step();
}

static long hear_call(const char *name UNUSED) {
    step();
    return 0;
}

static void begin_semaphores(actor *a) {
    REQUIRE(sem_init(&a->go, 0, 0) == 0 && sem_init(&a->back, 0, 0) == 0);
}

static void take(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0) {
    }
}

static void stop_once(void) {
    if (self->steps++ != self->stop_at)
        return;
    actor *me = self;
    sem_post(&me->back);
    take(&me->go);
}

static void *play_actor(void *context) {
    self = context;
    self->work(self->key);
    self->is_done = true;
    sem_post(&self->back);
    return NULL;
}

/* Runs an operation up to its n-th step. */
static void start(actor *a, void (*work)(uint32_t), uint32_t key, uint64_t n) {
    *a = (actor){.work = work, .key = key, .stop_at = n};
    begin_semaphores(a);
    at_step = stop_once;
    REQUIRE(pthread_create(&a->thread, NULL, play_actor, a) == 0);
    take(&a->back);
}

/* And from there to its end. False if it had ended. */
static bool finish_actor(actor *a) {
    bool was_stopped = !a->is_done;
    if (was_stopped) {
        sem_post(&a->go);
        take(&a->back);
    }
    pthread_join(a->thread, NULL);
    sem_destroy(&a->go);
    sem_destroy(&a->back);
    return was_stopped;
}

/* ---- caches ---- */

static unsigned long long fixed_random(void) {
    static unsigned long long state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static unsigned long long same_random(void) {
    return 0x9e3779b97f4a7c15u; /* the same secret: runs repeat exactly */
}

static void open_cache(uint64_t max_entries, uint32_t keys) {
    shale_options options = {.struct_size = sizeof options, .capacity = 4 << 20, .max_entries = max_entries};
    REQUIRE_STATUS(SHALE_OK, shale_open(NULL, &options, &cache));
    memset(uses, 0, sizeof uses);
    key_count = keys;
    last_left = 0;
}

static void close_cache(void) {
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* The stores of a get: the counter of stamps first, then the slot. */
static const void *hear_get(uint32_t key, unsigned which) {
    const void *stores[4] = {0};
    heard = stores;
    most_heard = 4;
    heard_count = 0;
    get(key);
    heard = NULL;
    REQUIRE(heard_count >= 2);
    return stores[which];
}

/* ---- one reader stopped before each of its steps, and a sweep in between ---- */

/* The limit is 64 entries: a sweep begins with the 63rd, and ends before the first of them is evicted. Then the next
 * one begins, which ends some sets later. The keys from `used` on are used once more. */
static bool play_late(uint64_t n, uint32_t key, uint32_t filled, uint32_t used, uint32_t leaving) {
    actor reader;
    open_cache(64, most_keys);
    for (uint32_t i = 0; i < filled; i++)
        set(i);
    start(&reader, get, key, n);
    for (uint32_t i = used; i < filled; i++)
        get(i);
    uint32_t next = filled;
    while (uses[leaving - 1].is_present)
        set(next++);
    CHECK(uses[key].is_present);
    bool was_stopped = finish_actor(&reader);
    for (uint32_t end = next + 200; next < end; next++)
        set(next);
    CHECK(!uses[key].is_present);
    close_cache();
    return was_stopped;
}

static unsigned plays;

/* Nearly all others are used after the stamp is drawn, so that it is below the limit of the sweep that begins then. */
static void test_sweep_between_stamp_and_slot(void) {
    for (uint64_t n = 0; play_late(n, 10, 60, 11, 1); n++)
        plays++;
}

/* The entry is in the heap in use when the sweep for the next one passes it; its stamp is one for the next. */
static void test_next_sweep_between_stamp_and_slot(void) {
    for (uint64_t n = 0; play_late(n, 15, 64, 40, 10); n++)
        plays++;
}

/* ---- two operations, each stopped before each of its steps ---- */

enum { key_x = 5, key_z = 6, key_other = 7 };

static void evict_all(void) {
    for (uint32_t i = 0; i < key_count; i++)
        evict(1);
}

static uint32_t work_key(void (*work)(uint32_t)) {
    return work == get || work == touch ? key_x : key_other;
}

static void set_x(uint32_t key UNUSED) {
    set(key_x);
}

typedef struct {
    bool a, b;
} stopped;

/* `a` is under way when Z is used; then `b` uses X, and `a` ends first: Z is evicted before X. */
static stopped play_used_later(void (*a)(uint32_t), uint64_t n, void (*b)(uint32_t), uint64_t m) {
    actor first, second;
    stopped was;
    start(&first, a, work_key(a), n);
    get(key_z);
    start(&second, b, work_key(b), m);
    was.a = finish_actor(&first);
    was.b = finish_actor(&second);
    return was;
}

/* `b` uses X, and `a` is under way when that ends; then Z is used: X is evicted before Z. */
static stopped play_used_before(void (*a)(uint32_t), uint64_t n, void (*b)(uint32_t), uint64_t m) {
    actor first, second;
    stopped was;
    start(&second, b, work_key(b), m);
    start(&first, a, work_key(a), n);
    was.b = finish_actor(&second);
    get(key_z);
    was.a = finish_actor(&first);
    return was;
}

static void fill_few(uint64_t stamp) {
    open_cache(0, 20);
    for (uint32_t i = 0; i < key_count; i++)
        set(i);
    for (uint32_t i = 0; i < key_count; i++)
        get(key_count - 1 - i);
    if (stamp)
        *(uint64_t *)(uintptr_t)hear_get(0, 0) = stamp;
}

static void play_all(void (*a)(uint32_t), void (*b)(uint32_t), uint64_t stamp) {
    for (int order = 0; order < 2; order++) {
        if (order == 1 && b != get)
            continue; /* would wait for the lock of `a` */
        stopped was = {true, true};
        for (uint64_t n = 0; was.a && check_failures < 20; n++) {
            was.b = true;
            for (uint64_t m = 0; was.b && check_failures < 20; m++, plays++) {
                fill_few(stamp);
                was = (order ? play_used_before : play_used_later)(a, n, b, m);
                evict_all();
                close_cache();
            }
        }
    }
}

static void kill_once(void) {
    if (self->steps++ == self->stop_at)
        kill(getpid(), SIGKILL);
}

/* A writer is killed before one of its steps, and Z is used before its work is recovered. Its own use never ended. */
static bool play_killed(void (*work)(uint32_t), uint64_t n, uint64_t stamp) {
    fill_few(stamp);
    pid_t child = fork();
    if (child == 0) {
        actor own = {.stop_at = n};
        self = &own;
        at_step = kill_once;
        work(work_key(work));
        _exit(0);
    }
    int code = wait_for(child);
    CHECK(code == 0 || code == 128 + SIGKILL);
    begin_use(key_x);
    begin_use(key_other);
    get(key_z);
    evict_all();
    close_cache();
    return code != 0;
}

static void play_kills(void (*work)(uint32_t), uint64_t stamp) {
    for (uint64_t n = 0; check_failures < 20 && play_killed(work, n, stamp); n++)
        plays++;
}

static void test_killed_while_renumbering(void) {
    play_kills(set, (uint64_t)1 << 37);
}
static void test_killed_in_a_set(void) {
    play_kills(set, 0);
}
static void test_killed_in_a_touch(void) {
    play_kills(touch, 0);
}
static void test_two_readers(void) {
    play_all(get, get, 0);
}
static void test_reader_and_set(void) {
    play_all(get, set_x, 0);
}
static void test_touch_and_reader(void) {
    play_all(touch, get, 0);
}
static void test_set_and_reader(void) {
    play_all(set_x, get, 0);
}

/* The next change replaces all stamps by ranks. */
static void test_renumbering_and_reader(void) {
    play_all(set, get, (uint64_t)1 << 37);
}

/* ---- an entry that moves to another slot ---- */

enum { moving_keys = 880 }; /* the table has begun to grow, and is not done */

static void fill_moving(void) {
    open_cache(0, moving_keys + 1);
    for (uint32_t i = 0; i < moving_keys; i++)
        set(i);
}

static uint32_t moved_key, unmoved_key;
static const void *stores_of_set[4096];

static bool is_stored_to(const char *at) {
    for (unsigned i = 0; i < heard_count; i++)
        if (stores_of_set[i] == at)
            return true;
    return false;
}

/* Which keys one more set moves, and which of its stores first affects them: the number of the store, counted from
 * one; the others are 0. */
static unsigned find_moved(bool *matters, unsigned most) {
    static const char *slots[moving_keys];
    fill_moving();
    for (uint32_t i = 0; i < moving_keys; i++)
        slots[i] = (const char *)hear_get(i, 1) - 8;
    heard = stores_of_set;
    most_heard = 4096;
    heard_count = 0;
    set(moving_keys);
    heard = NULL;
    unsigned count = heard_count;
    REQUIRE(count < most);
    moved_key = unmoved_key = UINT32_MAX;
    for (uint32_t i = 0; i < moving_keys; i++)
        if (!is_stored_to(slots[i]) && !is_stored_to(slots[i] + 8))
            unmoved_key = i;
        else if (moved_key == UINT32_MAX)
            moved_key = i;
    REQUIRE(moved_key != UINT32_MAX && unmoved_key != UINT32_MAX);
    const char *from = slots[moved_key];
    const char *to = (const char *)hear_get(moved_key, 1) - 8; /* its stamp is in the second word */
    REQUIRE(to != from);
    for (unsigned i = 0; i < count; i++) {
        const char *at = stores_of_set[i];
        if (at == from || at == from + 8 || at == to || at == to + 8)
            matters[i] = matters[i + 1] = true;
    }
    close_cache();
    return count;
}

static void (*counted)(void);
static uint64_t stores_seen;

static void count_stores(const void *at UNUSED) {
    if (self && !is_looking && counted && self->work == set) {
        if (stores_seen++ == self->stop_at) {
            actor *me = self;
            sem_post(&me->back);
            take(&me->go);
        }
    } else
        step();
}

static long count_calls(const char *name UNUSED) {
    if (!(self && self->work == set))
        step();
    return 0;
}

/* A set that moves X is stopped before its n-th store; X is read meanwhile, by a reader that is stopped as well. */
static bool play_move(uint64_t n, uint64_t m) {
    actor writer, reader;
    fill_moving();
    stores_seen = 0;
    start(&writer, set, moving_keys, n);
    get(unmoved_key);
    start(&reader, get, moved_key, m);
    finish_actor(&writer);
    bool was_stopped = finish_actor(&reader);
    is_looking = true;
    while (is_there(unmoved_key) && check_failures < 20) {
        CHECK(is_there(moved_key)); /* its use began after the other's had ended */
        uint64_t evicted = 0;
        CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, &evicted));
        if (!CHECK(evicted == 1))
            break;
    }
    is_looking = false;
    close_cache();
    return was_stopped;
}

static void test_moves_and_reader(void) {
    static bool matters[4097];
    shim_faults.random = same_random;
    unsigned count = find_moved(matters, 4096), places = 0;
    matters[0] = true;
    shim_faults.store = count_stores;
    shim_faults.call = count_calls;
    counted = test_moves_and_reader;
    for (unsigned n = 0; n <= count && check_failures < 20; n++)
        if (matters[n]) {
            places++;
            bool was_stopped = true;
            for (uint64_t m = 0; was_stopped && check_failures < 20; m++, plays++)
                was_stopped = play_move(n, m);
        }
    CHECK(places >= 5);
    counted = NULL;
    shim_faults.store = hear_store;
    shim_faults.call = hear_call;
    shim_faults.random = fixed_random;
}

/* ---- all at once, as the seed decides ---- */

enum { readers = 4, random_actors = readers + 1 };

static actor cast[random_actors];
static random_source source;
static uint64_t all_steps, operations, random_seed;
static uint32_t random_keys;
static bool is_over;
static sem_t curtain;

/* Chooses the next actor among those that are not frozen. The writer never is. */
static actor *choose(void) {
    for (;;) {
        actor *a = &cast[random_below(&source, random_actors)];
        if (!a->is_done && (is_over || a == cast || a->frozen_until < all_steps))
            return a;
    }
}

static void hand_over(void) {
    all_steps++;
    if (random_below(&source, 3))
        return;
    actor *me = self;
    /* Some readers are stopped for long, while the writer goes round the log. */
    if (me != cast && random_below(&source, 20) == 0)
        me->frozen_until = all_steps + random_below(&source, 8000);
    actor *next = choose();
    if (next == me)
        return;
    sem_post(&next->go);
    take(&me->go);
}

static void leave_stage(void) {
    self->is_done = true;
    for (int i = 0; i < random_actors; i++)
        if (!cast[i].is_done) {
            sem_post(&cast[i].go);
            return;
        }
    sem_post(&curtain);
}

static void *play_reader(void *context) {
    self = context;
    take(&self->go);
    while (!is_over) {
        get((uint32_t)random_below(&source, random_keys));
        hand_over();
    }
    leave_stage();
    return NULL;
}

static void *play_writer(void *context) {
    self = context;
    take(&self->go);
    for (uint64_t i = 0; i < operations && check_failures == 0; i++) {
        uint32_t key = (uint32_t)random_below(&source, random_keys);
        uint64_t what = random_below(&source, 20);
        if (what < 16)
            set(key);
        else if (what < 18)
            touch(key);
        else if (what < 19)
            take_out(key);
        else
            evict(1 + (uint32_t)random_below(&source, random_keys / 32));
    }
    is_over = true;
    leave_stage();
    return NULL;
}

static void play_random(uint32_t keys, uint64_t max_entries, uint64_t count) {
    open_cache(max_entries, random_keys = keys);
    is_over = false;
    operations = count;
    at_step = hand_over;
    REQUIRE(sem_init(&curtain, 0, 0) == 0);
    for (int i = 0; i < random_actors; i++) {
        cast[i] = (actor){0};
        begin_semaphores(&cast[i]);
    }
    for (int i = 0; i < random_actors; i++)
        REQUIRE(pthread_create(&cast[i].thread, NULL, i ? play_reader : play_writer, &cast[i]) == 0);
    sem_post(&cast[0].go);
    take(&curtain);
    for (int i = 0; i < random_actors; i++) {
        pthread_join(cast[i].thread, NULL);
        sem_destroy(&cast[i].go);
        sem_destroy(&cast[i].back);
    }
    sem_destroy(&curtain);
    evict(keys);
    close_cache();
    if (check_failures)
        fprintf(stderr, "again: eviction_order %" PRIu64 " %" PRIu64 "\n", count, random_seed);
}

static uint64_t random_operations = 6000;

/* A few entries under a limit: a sweep every few sets. */
static void test_few_at_random(void) {
    play_random(96, 64, random_operations);
}
/* Many: the table grows and shrinks. */
static void test_many_at_random(void) {
    play_random(most_keys, 0, random_operations);
}

int main(int argument_count, char **arguments) {
    if (argument_count > 1)
        random_operations = strtoull(arguments[1], NULL, 0);
    random_seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : 1;
    source.state = random_seed;
    watch(patience);
    shim_faults.store = hear_store;
    shim_faults.call = hear_call;
    shim_faults.random = fixed_random;
    RUN(test_sweep_between_stamp_and_slot);
    RUN(test_next_sweep_between_stamp_and_slot);
    RUN(test_two_readers);
    RUN(test_reader_and_set);
    RUN(test_touch_and_reader);
    RUN(test_set_and_reader);
    RUN(test_renumbering_and_reader);
    RUN(test_moves_and_reader);
    RUN(test_killed_while_renumbering);
    RUN(test_killed_in_a_set);
    RUN(test_killed_in_a_touch);
    RUN(test_few_at_random);
    RUN(test_many_at_random);
    printf("%u interleavings of two, %" PRIu64 " steps at random, %" PRIu64 " entries left, seed %" PRIu64 "\n", plays,
           all_steps, left, random_seed);
    return finish();
}
