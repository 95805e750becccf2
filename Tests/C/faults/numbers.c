/* Numbers come near their end: the next opening for writing renews the cache, empty, under another secret, and
 * counts that. Until then the cache works, and a kill at any call and at any store of that opening leaves the old
 * cache or an empty one, never a mixture.
 *
 * numbers [stores from one kill to the next, 1] */
#include "check.h"
#include "files.h"
#include "kill_at.h"
#include "layout.h"

#include "faults.h"

#include <unistd.h>

/* As in Format/Numbers.swift. */
static const uint64_t renewal = UINT64_C(3) << 60;

static const shale_options options = {.struct_size = sizeof options, .capacity = 2 << 20, .shards = 2},
                           read_only = {.struct_size = sizeof read_only, .flags = SHALE_OPEN_READ_ONLY};

enum { keys = 200 };

static void fill(shale_cache *cache, const char *text) {
    for (int i = 0; i < keys; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, text, strlen(text), NULL));
}

/* How many keys have this text; any other text is wrong. */
static int count_of(shale_cache *cache, const char *text) {
    shale_value value = SHALE_VALUE_INIT;
    int found = 0;
    for (int i = 0; i < keys; i++) {
        shale_status status = shale_get(cache, &i, sizeof i, 0, &value);
        CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
        if (status == SHALE_OK)
            found += CHECK_TEXT(&value, text);
    }
    shale_value_free(&value);
    return found;
}

static void count_from(const char *directory, size_t word, uint64_t number) {
    mapped_file data = map_file(directory, "shale.data"), index = map_file(directory, "shale.index");
    layout l = layout_of(data.bytes);
    size_t at = word == index_lsn ? word : shard_offset(&l, 1) + word;
    memcpy(index.bytes + at, &number, 8);
    unmap_file(&data);
    unmap_file(&index);
}

/* A cache with these next numbers, closed. */
static void make_cache(const char *directory, size_t word, uint64_t number) {
    remove_tree(directory);
    shale_cache *cache = require_open(directory, options);
    fill(cache, "old");
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    count_from(directory, word, number);
}

static void check_renewed(const char *directory) {
    /* Stored and unsynced entries survive a kill, also when only the log is left: this cache does not depend on the
     * old one. */
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        fill(require_open(directory, options), "unsynced");
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
    remove_index(directory);
    shale_cache *cache = require_open(directory, options);
    CHECK_EQUAL(keys, count_of(cache, "unsynced"));
    CHECK_STATUS(SHALE_OK, shale_clear(cache));
    CHECK_EQUAL(1, stats_of(cache).renewals);
    CHECK_EQUAL(0, stats_of(cache).entries);
    CHECK_EQUAL(0, stats_of(cache).corrupt_records);
    CHECK_EQUAL(0, count_of(cache, "none"));
    fill(cache, "new");
    CHECK_EQUAL(keys, count_of(cache, "new"));
    CHECK_STATUS(SHALE_OK, shale_sync(cache));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    for (int is_new = 0; is_new < 2; is_new++) {
        if (is_new)
            remove_index(directory);
        cache = require_open(directory, options);
        CHECK_EQUAL(1, stats_of(cache).renewals);
        CHECK_EQUAL(keys, count_of(cache, "new"));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    }
}

static void test_a_life_goes_past_the_bound(void) {
    static const size_t words[] = {index_lsn, shard_last_number};
    for (int i = 0; i < 2; i++) {
        char *directory = path_to("past");
        make_cache(directory, words[i], words[i] == index_lsn ? renewal - 100 : renewal - 3);
        shale_cache *cache = require_open(directory, options);
        CHECK_EQUAL(0, stats_of(cache).renewals);
        CHECK_EQUAL(keys, count_of(cache, "old"));
        for (int round = 0; round < 400; round++) /* some thirty segments in each shard */
            fill(cache, "later");
        CHECK_EQUAL(keys, count_of(cache, "later"));
        shale_cache *reader = require_open(directory, read_only);
        CHECK_EQUAL(keys, count_of(reader, "later"));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        CHECK_EQUAL(keys, count_of(reader, "later")); /* a handle that only reads changes nothing */
        CHECK_STATUS(SHALE_OK, shale_close(require_open(directory, read_only)));
        check_renewed(directory);
        shale_value value = SHALE_VALUE_INIT;
        CHECK_STATUS(SHALE_E_BUSY, shale_get(reader, &(int){1}, sizeof(int), 0, &value));
        shale_value_free(&value);
        CHECK_STATUS(SHALE_OK, shale_close(reader));
        free(directory);
    }
}

/* Each new index raises the numbers: at the bound, that renews the cache as well. */
static void test_new_indexes(void) {
    char *directory = path_to("indexes");
    make_cache(directory, index_lsn, renewal - (UINT64_C(1) << 43));
    shale_cache *cache = require_open(directory, options);
    fill(cache, "old"); /* so that the log has the numbers */
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    int opened = 0;
    for (;; opened++) {
        remove_index(directory);
        cache = require_open(directory, options);
        if (stats_of(cache).renewals > 0)
            break;
        CHECK_EQUAL(keys, count_of(cache, "old"));
        fill(cache, "old");
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        REQUIRE(opened < 8);
    }
    CHECK(opened >= 3); /* 2^40 to 2^41 each */
    CHECK_EQUAL(0, count_of(cache, "none"));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    check_renewed(directory);
    free(directory);
}

static long calls_left;
static long before_call(const char *name UNUSED) {
    if (calls_left > 0 && --calls_left == 0)
        _exit(killed_at_store);
    return 0;
}

/* Whether the opening was killed. */
static bool is_killed(const char *directory, long call, long store) {
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        shim_faults.call = before_call;
        shim_faults.store = before_store;
        calls_left = call;
        stores_left = store;
        shale_cache *cache = require_open(directory, options);
        calls_left = stores_left = 0;
        CHECK_EQUAL(1, stats_of(cache).renewals);
        _exit(check_failures != 0);
    }
    int result = wait_for(child);
    CHECK(result == 0 || result == killed_at_store);
    return result == killed_at_store;
}

static void test_kills(long step) {
    char *directory = path_to("killed");
    for (int by_store = 0; by_store < 2; by_store++) {
        long at = 1;
        bool killed = true;
        for (; killed && check_failures == 0; at += by_store ? step : 1) {
            make_cache(directory, index_lsn, renewal);
            killed = is_killed(directory, by_store ? 0 : at, by_store ? at : 0);
            if (at % 3 == 0) {
                char path[512];
                snprintf(path, sizeof path, "%s/shale.index", directory);
                unlink(path); /* then only the data file says what has happened */
            }
            pid_t child = fork();
            if (child == 0) { /* (which does not close it: that would sync) */
                begin_child(patience);
                shale_cache *cache = require_open(directory, options);
                bool is_old = stats_of(cache).renewals == 0;
                CHECK_EQUAL(is_old ? keys : 0, count_of(cache, "old"));
                CHECK(!is_old || at % 3 == 0); /* if the index was present, it said that the end is near */
                _exit(check_failures != 0 ? 1 : is_old ? 2 : 0);
            }
            int result = wait_for(child);
            CHECK(result == 0 || result == 2);
            if (result == 0)
                check_renewed(directory);
        }
        printf("killed at %ld %s\n", at, by_store ? "stores" : "calls");
        CHECK(at > 20);
    }
    free(directory);
}

int main(int argument_count, char **arguments) {
    prefer_memory();
    watch(patience);
    RUN(test_a_life_goes_past_the_bound);
    RUN(test_new_indexes);
    test_kills(argument_count > 1 ? atol(arguments[1]) : 1);
    return finish();
}
