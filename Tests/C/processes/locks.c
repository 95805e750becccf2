/* Locks are taken one at a time, so that there is no deadlock, and the caller's clock is called while none is held,
 * as it may take its time, or use the cache. The kernel is asked about a lease's process while none is held, too.
 * A hook is told of every lock that the library takes, while one thread uses the whole interface, in shards that are
 * full. Only the making of a dictionary takes shards' locks, one after the other, while it holds its
 * own (recovery.md, "Invariants").
 *
 * locks [operations, 30000] [seed] */
#include "check.h"
#include "faults.h"
#include "files.h"
#include "gate.h"
#include "layout.h"
#include "pattern.h"

enum { keys = 2000, most = 200000, depth = 8 };

static const char *doing;
static const void *held[depth], *maker; /* of dictionaries */
static int count;
static uint64_t taken, taken_beside, asked, looked_for;

static void note_lock(const void *lock, _Bool is_taken) {
    if (!is_taken) {
        REQUIRE(count > 0 && held[count - 1] == lock);
        count--;
        return;
    }
    if (count == 1 && !maker)
        maker = held[0];
    check_that(count == 0 || (count == 1 && held[0] == maker), __FILE__, __LINE__, "a lock beside another", ": %s",
               doing);
    REQUIRE(count < depth && check_failures < 10);
    taken++;
    taken_beside += (unsigned)count;
    held[count++] = lock;
}

static long note_question(const char *name) {
    if (strcmp(name, "owner_has_ended") == 0 && strcmp(doing, "lease") == 0) {
        looked_for++;
        check_that(count == 0, __FILE__, __LINE__, "the kernel is asked about a process under a lock", ": %s", doing);
    }
    return 0;
}

static int64_t now_ms(void *context UNUSED) {
    check_that(count == 0, __FILE__, __LINE__, "the clock is asked under a lock", ": %s", doing);
    return INT64_C(1700000000000) + (int64_t)asked++;
}

static unsigned long long same_random(void) {
    static unsigned long long state = 88172645463325252u;
    return state = state * 6364136223846793005u + 1442695040888963407u;
}

static char *directory;

static shale_cache *open_cache(void) {
    doing = "open";
    maker = NULL;
    return require_open(directory, (shale_options){.capacity = 8 << 20,
                                                   .shards = 4,
                                                   .segment_size = 128 << 10,
                                                   .max_age_ms = 60000,
                                                   .stale_ms = 20000,
                                                   .now_ms = now_ms,
                                                   .flags = SHALE_OPEN_NO_SYNC});
}

static size_t make_text(unsigned char *text, uint64_t n) {
    return (size_t)sprintf((char *)text,
                           "{\"identifier\": %" PRIu64 ", \"name\": \"user %" PRIu64 "\", \"address\": \"%" PRIu64
                           " Example Street\", \"roles\": [\"reader\"]}",
                           n, n * 7, n * 31);
}

static void set(shale_cache *cache, random_source *source, uint64_t n, uint64_t key) {
    static unsigned char bytes[most];
    uint64_t tag = key % 8;
    shale_bytes tags = {&tag, sizeof tag};
    shale_set_options options = {
        .struct_size = sizeof options, .tags = &tags, .tag_count = key % 2, .max_age_ms = key % 5 ? 0 : 500};
    size_t size = make_text(bytes, n);
    switch (random_below(source, 10)) {
    case 0: size = most / 2 + random_below(source, most / 2), doing = "set of a large value"; break;
    case 1: size = sizeof(pattern_head) + random_below(source, 8000), doing = "set"; break;
    case 2: options.flags = SHALE_SET_IF_ABSENT, doing = "set if absent"; break;
    case 3: options.flags = SHALE_SET_IF_PRESENT, doing = "set if present"; break;
    case 4: options.flags = key % 50 ? 0 : SHALE_SET_PINNED, doing = "set of a pinned key"; break;
    default: doing = "set";
    }
    if (size > 400)
        pattern_fill(bytes, key, n, size);
    CHECK_EITHER(SHALE_OK, SHALE_CONFLICT, shale_set(cache, &key, sizeof key, bytes, size, &options));
}

static void act(shale_cache *cache, random_source *source, uint64_t n) {
    static shale_value value = SHALE_VALUE_INIT;
    uint64_t key = random_below(source, keys), tag = key % 8, token = 0;
    shale_bytes names[] = {{&key, sizeof key}, {&tag, sizeof tag}};
    shale_lease_options lease = {.struct_size = sizeof lease, .refresh_ahead_ms = 100};
    shale_cursor *cursor = NULL;
    uint64_t kind = random_below(source, 1000);
    if (kind < 600)
        set(cache, source, n, key);
    else if (kind < 700)
        doing = "get", CHECK_ANSWER(shale_get(cache, &key, sizeof key, SHALE_GET_STALE, &value));
    else if (kind < 750)
        doing = "remove", CHECK_ANSWER(shale_remove(cache, &key, sizeof key, 0));
    else if (kind < 800)
        doing = "touch", CHECK_ANSWER(shale_touch(cache, &key, sizeof key, 10000)), doing = "expire",
        CHECK_ANSWER(shale_expire(cache, &key, sizeof key));
    else if (kind < 850)
        doing = "increment", CHECK_STATUS(SHALE_OK, shale_increment(cache, &tag, 1, 1, 0, NULL));
    else if (kind < 900) {
        doing = "lease";
        CHECK_ANSWER(shale_lease(cache, &key, sizeof key, &lease, &value, &token));
        doing = "release";
        if (token)
            CHECK_STATUS(SHALE_OK, shale_release(cache, &key, sizeof key, token));
    } else if (kind < 930)
        doing = "set_many", CHECK_ANSWER(shale_set_many(cache, 2, names, names, NULL, NULL));
    else if (kind < 960)
        doing = "remove_many", CHECK_ANSWER(shale_remove_many(cache, 2, names, NULL));
    else if (kind < 980)
        doing = "evict", CHECK_STATUS(SHALE_OK, shale_evict(cache, 5, NULL));
    else if (kind < 990)
        doing = "invalidate",
        CHECK_STATUS(SHALE_OK, shale_invalidate_with(cache, &tag, sizeof tag, kind & SHALE_INVALIDATE_EXPIRE));
    else if (kind < 994)
        doing = "purge", CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
    else if (kind < 996)
        doing = "sync", CHECK_STATUS(SHALE_OK, shale_sync(cache));
    else if (kind < 998)
        doing = "verify", CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
    else if (kind < 999) {
        doing = "cursor";
        REQUIRE_STATUS(SHALE_OK, shale_cursor_open(cache, &cursor));
        while (shale_cursor_next(cursor, 0, NULL, &value) == SHALE_OK) {
        }
        shale_cursor_close(cursor);
    } else if (random_below(source, 4) == 0)
        doing = "clear", CHECK_STATUS(SHALE_OK, shale_clear(cache));
}

/* Another process has the lease of a key, and then takes all cells. */
static void test_leases_of_another_user(void) {
    char *other = path_to("leases");
    shale_options options = {.capacity = 1 << 20, .now_ms = now_ms, .flags = SHALE_OPEN_NO_SYNC};
    shale_lease_options lease = {.struct_size = sizeof lease, .flags = SHALE_LEASE_RECORDED};
    shale_value value = SHALE_VALUE_INIT;
    uint64_t token;
    doing = "open";
    shale_cache *cache = require_open(other, options);
    gate ready = make_gate();
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        die_with_parent();
        for (uint64_t key = 0; key < keys; key++)
            CHECK_STATUS(SHALE_MISS, shale_lease(cache, &key, sizeof key, &lease, &value, &token));
        pass(&ready);
        pause();
    }
    await(&ready);
    doing = "lease";
    for (int round = 0; round < 2; round++) {
        for (uint64_t key = 0; key < keys; key += 50) { /* there are always cells for this few */
            CHECK_STATUS(SHALE_MISS, shale_lease(cache, &key, sizeof key, &lease, &value, &token));
            CHECK_EQUAL(round > 0, token != 0);
        }
        doing = "the end of a holder";
        if (round == 0) {
            kill(child, SIGKILL);
            wait_for(child);
        }
        doing = "lease";
    }
    CHECK(looked_for > keys / 50);
    doing = "close";
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    close_gate(&ready);
    free(other);
}

/* A writer was killed, and what it left is damaged: the next call rebuilds the shard. */
static void test_damage_after_a_kill(void) {
    char *killed = path_to("killed");
    doing = "open";
    shale_cache *cache = require_open(
        killed, (shale_options){.capacity = 4 << 20, .shards = 1, .now_ms = now_ms, .flags = SHALE_OPEN_NO_SYNC});
    doing = "set before a kill";
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    mapped_file index = map_file(killed, "shale.index");
    unsigned char *header = index.bytes + index_head_bytes;
    static const uint64_t is_open = 1, misaligned = 3, states[] = {1, 2};
    shale_value value = SHALE_VALUE_INIT;
    for (uint64_t i = 0; i < 4; i++) {
        memcpy(header + shard_transaction, &is_open, 8);
        memcpy(header + shard_transaction + 8, &misaligned, 8);
        memcpy(header + shard_state, &states[i / 2], 8);
        doing = "after a kill";
        if (i % 2)
            CHECK_STATUS(SHALE_OK, set_text(cache, "another key", "value", NULL));
        else
            CHECK_STATUS(SHALE_OK, shale_touch(cache, "key", 3, 60000));
        CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
        CHECK_TEXT(&value, "value");
        CHECK_EQUAL(i + 1, stats_of(cache).rebuilds);
    }
    shale_value_free(&value);
    unmap_file(&index);
    doing = "close";
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(killed);
}

int main(int argument_count, char **arguments) {
    uint64_t operations = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 30000;
    random_source source = {argument_count > 2 ? strtoull(arguments[2], NULL, 0) : 1};
    watch(patience);
    stay_on_one_processor();
    directory = path_to("cache");
    shim_faults.random = same_random;
    shim_faults.lock = note_lock;
    shim_faults.call = note_question;
    shale_cache *cache = open_cache();
    uint64_t evictions = 0, cleaned = 0;
    for (uint64_t n = 0; n < operations && check_failures < 10; n++) {
        act(cache, &source, n);
        if (n % (operations / 4) == operations / 4 - 1) {
            shale_stats stats = stats_of(cache);
            evictions += stats.evictions;
            cleaned += stats.cleaned_bytes;
            doing = "close";
            CHECK_STATUS(SHALE_OK, shale_close(cache));
            remove_index(directory);
            cache = open_cache();
        }
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    CHECK(taken > operations / 2 && asked > operations / 2 && evictions > 0 && cleaned > 0);
    test_leases_of_another_user();
    test_damage_after_a_kill();
    CHECK(taken_beside > 0); /* dictionaries were made in places that others had */
    printf("%" PRIu64 " locks, %" PRIu64 " of them beside a dictionary's, %" PRIu64 " looks at the clock\n", taken,
           taken_beside, asked);
    free(directory);
    return finish();
}
