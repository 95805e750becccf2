/* Fenced sets: nothing that was set, incremented, removed, cleared or invalidated since a token was drawn is undone by a
 * set with this token (see shale_lease in shale.h). */
#include "check.h"
#include "faults.h"
#include "files.h"
#include "kill_at.h"
#include "killed.h"

enum { segment = 128 << 10, large = 200000, large_capacity = 64 << 20 };

static unsigned char bytes[1 << 20];

static shale_cache *open_at(const char *directory, uint64_t capacity, uint32_t shards, uint64_t max_entries) {
    return require_open(directory, (shale_options){.capacity = capacity,
                                                   .shards = shards,
                                                   .segment_size = segment,
                                                   .max_entries = max_entries,
                                                   .compression = SHALE_COMPRESSION_NONE,
                                                   .flags = SHALE_OPEN_NO_SYNC});
}

static shale_status put(shale_cache *cache, const char *key, size_t size, const char *tag) {
    shale_bytes tags = {tag, tag ? strlen(tag) : 0};
    shale_set_options options = {.struct_size = sizeof options, .tags = &tags, .tag_count = tag != NULL};
    return shale_set(cache, key, strlen(key), bytes, size, &options);
}

static shale_status put_fenced(shale_cache *cache, const char *key, size_t size, const char *tag, uint64_t token) {
    shale_bytes tags = {tag, tag ? strlen(tag) : 0};
    shale_set_options options = {.struct_size = sizeof options,
                                 .flags = SHALE_SET_IF_UNCHANGED,
                                 .version = token,
                                 .tags = &tags,
                                 .tag_count = tag != NULL};
    return shale_set(cache, key, strlen(key), bytes, size, &options);
}

static shale_status remove_key(shale_cache *cache, const char *key) {
    return shale_remove(cache, key, strlen(key), 0);
}

/* The answer of a miss. */
static uint64_t token_of(shale_cache *cache, const char *key) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_MISS, get_text(cache, key, SHALE_GET_TOKEN, &value));
    CHECK(value.version != 0);
    uint64_t token = value.version;
    shale_value_free(&value);
    return token;
}

static uint64_t lease_of(shale_cache *cache, const char *key, uint32_t flags, shale_status expected) {
    shale_value value = SHALE_VALUE_INIT;
    shale_lease_options options = {.struct_size = sizeof options, .flags = flags};
    uint64_t lease = 0;
    CHECK_STATUS(expected, shale_lease(cache, key, strlen(key), &options, &value, &lease));
    CHECK(lease != 0);
    shale_value_free(&value);
    return lease;
}

static size_t size_of(shale_cache *cache, const char *key) {
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = get_text(cache, key, SHALE_GET_PEEK | SHALE_GET_STALE, &value);
    size_t size = status == SHALE_MISS ? SIZE_MAX : value.size;
    shale_value_free(&value);
    return size;
}

static const char *name(unsigned n) {
    static char text[16];
    snprintf(text, sizeof text, "n%07u", n);
    return text;
}

/* MARK: Which changes count */

typedef enum {
    nothing,
    gets,
    sets_other,
    removes_other,
    touches,
    evicts,
    invalidates_other,
    closes,
    sets, /* from here on: changes */
    sets_and_evicts,
    increments,
    removes,
    removes_absent,
    sets_and_removes,
    clears,
    invalidates,
    invalidates_and_empties,
    replaces_index,
    changes_count
} change;

static const char *change_names[changes_count] = {"nothing",
                                                  "a get",
                                                  "a set of another key",
                                                  "a removal of another key",
                                                  "a touch",
                                                  "an eviction",
                                                  "an invalidation of another tag",
                                                  "a close",
                                                  "a set",
                                                  "a set and an eviction",
                                                  "an increment",
                                                  "a removal",
                                                  "a removal of an absent key",
                                                  "a set and a removal",
                                                  "a clear",
                                                  "an invalidation",
                                                  "an invalidation that left the tag table",
                                                  "a new index"};

static shale_cache *make(shale_cache *cache, const char *directory, change c, bool is_there, uint32_t shards) {
    uint64_t evicted = 0;
    shale_value value = SHALE_VALUE_INIT;
    switch (c) {
    case nothing: break;
    case gets: CHECK_ANSWER(get_text(cache, "key", 0, &value)); break;
    case sets_other:
        for (unsigned i = 0; i < 2000; i++)
            CHECK_STATUS(SHALE_OK, put(cache, name(i), 20, NULL));
        break;
    case removes_other: CHECK_STATUS(SHALE_MISS, remove_key(cache, "other")); break;
    case touches: CHECK_ANSWER(shale_touch(cache, "key", 3, SHALE_NEVER)); break;
    case evicts: CHECK_STATUS(SHALE_OK, shale_evict(cache, 1000, &evicted)); break;
    case invalidates_other: CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "another", 7)); break;
    case closes:
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        cache = open_at(directory, large_capacity, shards, 0);
        break;
    case sets: CHECK_STATUS(SHALE_OK, put(cache, "key", 9, NULL)); break;
    case sets_and_evicts:
        CHECK_STATUS(SHALE_OK, put(cache, "key", 9, NULL));
        CHECK_STATUS(SHALE_OK, shale_evict(cache, 1000, &evicted));
        CHECK(evicted > 0);
        break;
    case increments:
        CHECK_STATUS(SHALE_OK, remove_key(cache, "counter") == SHALE_MISS
                                   ? shale_increment(cache, is_there ? "number" : "key", is_there ? 6 : 3, 1, 0, NULL)
                                   : SHALE_OK);
        if (is_there)
            CHECK_STATUS(SHALE_OK, put(cache, "key", 8, NULL));
        break;
    case removes:
        CHECK_ANSWER(put(cache, "key", 9, NULL));
        CHECK_STATUS(SHALE_OK, remove_key(cache, "key"));
        break;
    case removes_absent: CHECK_STATUS(is_there ? SHALE_OK : SHALE_MISS, remove_key(cache, "key")); break;
    case sets_and_removes:
        CHECK_STATUS(SHALE_OK, put(cache, "key", 9, NULL));
        CHECK_STATUS(SHALE_OK, remove_key(cache, "key"));
        for (unsigned i = 0; i < 100; i++)
            CHECK_STATUS(SHALE_MISS, remove_key(cache, name(i)));
        break;
    case clears: CHECK_STATUS(SHALE_OK, shale_clear(cache)); break;
    case invalidates: CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3)); break;
    case invalidates_and_empties:
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, "tag", 3));
        for (unsigned i = 0; i < 1000; i++)
            CHECK_STATUS(SHALE_OK, shale_invalidate(cache, name(i), 8));
        break;
    case replaces_index: {
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_index(directory);
        cache = open_at(directory, large_capacity, shards, 0);
        break;
    }
    case changes_count: break;
    }
    shale_value_free(&value);
    return cache;
}

/* `is_there`: as a stale entry, for which a lease is given. */
static void test_change(change c, bool is_there, size_t size, uint32_t shards) {
    char *directory = c == closes || c == replaces_index ? path_to("fences") : NULL;
    shale_cache *cache = open_at(directory, large_capacity, shards, 0);
    /* (So that an absent key's removal leaves no tombstone, and a rebuild finds no change.) */
    CHECK_STATUS(SHALE_OK, put(cache, "first", 10, NULL));
    uint64_t token;
    if (is_there) {
        shale_set_options stale = {.struct_size = sizeof stale, .max_age_ms = SHALE_NONE, .stale_ms = SHALE_NEVER};
        CHECK_STATUS(SHALE_OK, shale_set(cache, "key", 3, bytes, 5, &stale));
        token = lease_of(cache, "key", SHALE_GET_STALE, SHALE_STALE);
    } else
        token = token_of(cache, "key");
    cache = make(cache, directory, c, is_there, shards);
    size_t before = size_of(cache, "key");
    bool holds = c < sets;
    shale_status status = put_fenced(cache, "key", size, "tag", token);
    if (!CHECK_STATUS(holds ? SHALE_OK : SHALE_CONFLICT, status) |
        !CHECK_EQUAL(holds ? size : before, size_of(cache, "key")))
        fprintf(stderr, "  after %s, %s, value of %zu bytes, %u shards\n", change_names[c],
                is_there ? "stale entry" : "no entry", size, shards);
    /* A token that is drawn now is as good as any. */
    if (size_of(cache, "key") != SIZE_MAX)
        CHECK_STATUS(SHALE_OK, remove_key(cache, "key"));
    CHECK_STATUS(SHALE_OK, put_fenced(cache, "key", size, "tag", token_of(cache, "key")));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    if (directory)
        remove_tree(directory);
    free(directory);
}

/* A value without tags is unchanged by any invalidation. */
static void test_untagged(void) {
    shale_cache *cache = open_at(NULL, large_capacity, 1, 0);
    uint64_t token = token_of(cache, "key");
    for (unsigned i = 0; i < 1000; i++)
        CHECK_STATUS(SHALE_OK, shale_invalidate(cache, name(i), 8));
    CHECK_STATUS(SHALE_OK, put_fenced(cache, "key", 10, NULL, token));
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "key", 10, NULL, token));
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "absent", 10, NULL, 0));
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "absent", 10, NULL, UINT64_MAX));
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "absent", 10, NULL, UINT64_C(1) << 60));
    shale_value value = SHALE_VALUE_INIT;
    shale_lease_options asks = {.struct_size = sizeof asks, .flags = SHALE_GET_TOKEN};
    CHECK_STATUS(SHALE_E_INVALID, shale_lease(cache, "key", 3, &asks, &value, &token));
    CHECK_STATUS(SHALE_E_INVALID, get_text(cache, "key", SHALE_GET_TOKEN | 16, &value));
    shale_value_free(&value);
    shale_set_options both = {.struct_size = sizeof both, .flags = SHALE_SET_IF_UNCHANGED | SHALE_SET_IF_ABSENT};
    CHECK_STATUS(SHALE_E_INVALID, shale_set(cache, "key", 3, bytes, 1, &both));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* Changes before the first token are not recorded: a number from that time is not a token. */
static void test_first_token(void) {
    shale_cache *cache = open_at(NULL, large_capacity, 1, 0);
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, put(cache, "other", 10, NULL));
    CHECK_STATUS(SHALE_OK, get_text(cache, "other", 0, &value));
    CHECK_STATUS(SHALE_MISS, remove_key(cache, "key"));
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "key", 10, NULL, value.version));
    (void)token_of(cache, "key");
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "key", 10, NULL, value.version));
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* An index that is rebuilt while the cache is open knows nothing of earlier changes. */
static void test_rebuilt_index(void) {
    char *directory = path_to("rebuilt");
    shale_cache *cache = open_at(directory, large_capacity, 1, 0);
    uint64_t token = token_of(cache, "key");
    CHECK_STATUS(SHALE_MISS, remove_key(cache, "key"));
    mark_as_being_rebuilt(directory);
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "key", 10, NULL, token));
    CHECK_EQUAL(1, stats_of(cache).rebuilds);
    CHECK_STATUS(SHALE_OK, put_fenced(cache, "key", 10, NULL, token_of(cache, "key")));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

/* MARK: Many keys, many removals: never a false agreement, rarely a false conflict */

enum { model_keys = 4000, tokens = 1000 };

static void test_many(uint64_t capacity, uint32_t shards, uint64_t max_entries, unsigned removals, unsigned allowed) {
    shale_cache *cache = open_at(NULL, capacity, shards, max_entries);
    random_source source = {shards + removals};
    static uint64_t changed_at[model_keys];
    uint64_t clock = 0, token_at[tokens], token[tokens];
    unsigned keys_of[tokens], false_conflicts = 0, true_conflicts = 0;
    memset(changed_at, 0, sizeof changed_at);
    for (unsigned i = 0; i < model_keys; i++)
        CHECK_STATUS(SHALE_OK, put(cache, name(i), 30, NULL));
    for (int round = 0; round < 5; round++) {
        for (unsigned i = 0; i < tokens; i++) {
            keys_of[i] = (unsigned)random_below(&source, model_keys);
            CHECK_ANSWER(remove_key(cache, name(keys_of[i])));
            changed_at[keys_of[i]] = ++clock;
            token[i] = token_of(cache, name(keys_of[i]));
            token_at[i] = ++clock;
        }
        for (unsigned i = 0; i < removals; i++) {
            unsigned key = (unsigned)random_below(&source, model_keys);
            changed_at[key] = ++clock;
            if (random_below(&source, 2))
                CHECK_ANSWER(remove_key(cache, name(key)));
            else {
                CHECK_STATUS(SHALE_OK, put(cache, name(key), 31, NULL));
                CHECK_STATUS(SHALE_OK, remove_key(cache, name(key)));
            }
        }
        for (unsigned i = 0; i < tokens; i++) {
            shale_status status = put_fenced(cache, name(keys_of[i]), 40, NULL, token[i]);
            bool is_touched = changed_at[keys_of[i]] > token_at[i];
            if (is_touched)
                CHECK_STATUS(SHALE_CONFLICT, status);
            else
                CHECK(status == SHALE_OK || status == SHALE_CONFLICT);
            true_conflicts += is_touched;
            false_conflicts += !is_touched && status == SHALE_CONFLICT;
            if (status == SHALE_OK)
                changed_at[keys_of[i]] = ++clock;
        }
    }
    CHECK(true_conflicts > 100);
    if (!CHECK(false_conflicts <= allowed))
        fprintf(stderr, "  %u shards, %u removals: %u of %u\n", shards, removals, false_conflicts, 5 * tokens);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* A writer that is killed at any of its stores: what its call has done, or may have done, is recorded all the same. */
static void test_killed(change c) {
    bool was_killed = true;
    for (long store = 1; was_killed; store++) {
        shale_cache *cache = open_at(NULL, 1 << 20, 1, 0);
        CHECK_STATUS(SHALE_OK, put(cache, "key", 5, NULL));
        uint64_t evicted;
        CHECK_STATUS(SHALE_OK, shale_evict(cache, 1, &evicted));
        uint64_t token = token_of(cache, "key");
        if (c == removes || c == sets_and_evicts)
            CHECK_STATUS(SHALE_OK, put(cache, "key", 7, NULL));
        pid_t child = fork();
        if (child == 0) {
            stores_left = store;
            shim_faults.store = before_store;
            if (c == sets)
                (void)put(cache, "key", 9, NULL);
            else if (c == invalidates)
                (void)shale_invalidate(cache, "tag", 3);
            else if (c == clears)
                (void)shale_clear(cache);
            else if (c == sets_and_evicts)
                (void)shale_evict(cache, 1, &evicted);
            else
                (void)remove_key(cache, "key");
            _exit(0);
        }
        REQUIRE(child > 0);
        was_killed = wait_for(child) == killed_at_store;
        /* The call's effect shows whether it has happened; once it was seen, the token is invalid. */
        size_t size = size_of(cache, "key");
        shale_status status = put_fenced(cache, "key", 11, "tag", token);
        CHECK_EQUAL(0, stats_of(cache).rebuilds);
        bool has_happened = !was_killed || (c == sets && size == 9);
        if (has_happened || c == removes || c == sets_and_evicts) {
            if (!CHECK_STATUS(SHALE_CONFLICT, status))
                fprintf(stderr, "  %s, killed before store %ld\n", change_names[c], store);
        } else
            CHECK(status == SHALE_OK || status == SHALE_CONFLICT);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
}

static void test_renew(void) {
    shale_cache *cache = open_at(NULL, large_capacity, 1, 0);
    uint64_t lease = lease_of(cache, "key", 0, SHALE_MISS);
    CHECK_STATUS(SHALE_OK, shale_renew(cache, "key", 3, lease, 0));
    CHECK_STATUS(SHALE_OK, shale_renew(cache, "key", 3, lease, 3600000));
    CHECK_STATUS(SHALE_E_INVALID, shale_renew(cache, "key", 3, lease, 3600001));
    CHECK_STATUS(SHALE_E_INVALID, shale_renew(cache, "key", 3, lease, -1));
    CHECK_STATUS(SHALE_E_INVALID, shale_renew(cache, "key", 3, 0, 0));
    CHECK_STATUS(SHALE_MISS, shale_renew(cache, "key", 3, lease + 1, 0));
    CHECK_STATUS(SHALE_MISS, shale_renew(cache, "other", 5, lease, 0));
    /* A renewed lease is the same token. */
    CHECK_STATUS(SHALE_OK, put_fenced(cache, "key", 10, NULL, lease));
    CHECK_STATUS(SHALE_OK, shale_release(cache, "key", 3, lease));
    CHECK_STATUS(SHALE_MISS, shale_renew(cache, "key", 3, lease, 0));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static bool disk_is_full;
static long refuse_room(const char *call) {
    return disk_is_full && strcmp(call, "fallocate") == 0 ? -ENOSPC : 0;
}

/* Damages the number of the key's last record, so that it seems as old as possible. */
static void damage_number(const char *directory, const char *key) {
    mapped_file data = map_file(directory, "shale.data");
    uint64_t number = 1;
    memcpy(last_in(&data, key, strlen(key)) - 48, &number, sizeof number);
    unmap_file(&data);
}

/* A reader removes damaged entries, also when a full disk has no room for a record of that; and so does `verify`. */
static void test_damaged(bool disk_fills, bool verifies) {
    char *directory = path_to("damaged");
    shale_cache *cache = open_at(directory, 4 << 20, 1, 0);
    CHECK_STATUS(SHALE_OK, put(cache, "filler", 9000, NULL));
    uint64_t token = token_of(cache, "key-to-find");
    shim_faults.call = refuse_room;
    disk_is_full = disk_fills;
    CHECK_STATUS(SHALE_OK, put(cache, "key-to-find", 64, NULL));
    /* The first segment has room for no other record than this one. */
    for (int i = 0; i < 13 && disk_fills; i++)
        CHECK_STATUS(SHALE_OK, put(cache, "filler", i < 12 ? 9000 : 13000, NULL));
    CHECK_EQUAL(64, size_of(cache, "key-to-find"));
    damage_number(directory, "key-to-find");
    if (verifies)
        CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
    CHECK_EQUAL(SIZE_MAX, size_of(cache, "key-to-find"));
    disk_is_full = false;
    CHECK_STATUS(SHALE_CONFLICT, put_fenced(cache, "key-to-find", 10, NULL, token));
    shim_faults.call = NULL;
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    remove_tree(directory);
    free(directory);
}

int main(void) {
    watch(patience);
    memset(bytes, 7, sizeof bytes);
    for (uint32_t shards = 1; shards <= 4; shards += 3)
        for (change c = nothing; c < changes_count; c++)
            for (int is_there = 0; is_there < 2; is_there++)
                for (size_t size = 10; size <= large; size = size == 10 ? large : large + 1)
                    test_change(c, is_there, size, shards);
    RUN(test_untagged);
    RUN(test_first_token);
    RUN(test_rebuilt_index);
    test_many(large_capacity, 1, 0, 500, 50); /* (1,000 are recorded with those that were removed for their tokens) */
    test_many(large_capacity, 4, 0, 2000, 50);
    test_many(1 << 20, 1, 0, 20000, 5 * tokens); /* (more than are recorded) */
    test_many(large_capacity, 1, 1000, 500, 5 * tokens);
    change killed[] = {sets, removes, removes_absent, clears, invalidates, sets_and_evicts};
    for (size_t i = 0; i < sizeof killed / sizeof *killed; i++)
        test_killed(killed[i]);
    RUN(test_renew);
    test_damaged(false, false);
    test_damaged(true, false);
    test_damaged(false, true);
    return finish();
}
