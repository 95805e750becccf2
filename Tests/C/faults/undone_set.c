/* A set that was killed before it counted leaves the entry's age, also if a reader has used the entry in between,
 * and the index, also if the writer's last change was in a generation of tags that no longer exists. */
#include "check.h"
#include "faults.h"

#include <sys/wait.h>

enum { did_nothing = 7, most_stores = 200 };

static int64_t clock_ms;
static shale_cache *reader;
static int stores, struck_at;

static int64_t read_clock(void *context) {
    return *(int64_t *)context;
}

static shale_cache *open_at(const char *directory) {
    return require_open(directory,
                        (shale_options){.capacity = 1 << 20, .now_ms = read_clock, .now_context = &clock_ms});
}

/* Before the chosen store: a get, then the end. */
static void use_and_die(const void *at UNUSED) {
    if (++stores != struck_at)
        return;
    shim_faults.store = NULL;
    shale_value value = SHALE_VALUE_INIT;
    (void)get_text(reader, "key", 0, &value);
    _exit(0);
}

/* Whether there was such a store. */
static bool strike(const char *directory, int store) {
    clock_ms = 1700000000000;
    shale_cache *cache = open_at(directory);
    shale_set_options aged = {.struct_size = sizeof aged, .max_age_ms = 1000};
    shale_set_options lasting = {.struct_size = sizeof lasting, .max_age_ms = SHALE_NEVER};
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "old", &aged));
    pid_t child = fork();
    if (child == 0) {
        shale_cache *writer = open_at(directory);
        reader = open_at(directory);
        CHECK_STATUS(SHALE_OK, shale_invalidate(writer, "tag", 3));
        CHECK_STATUS(SHALE_OK, shale_purge(writer, NULL));
        struck_at = store;
        shim_faults.store = use_and_die;
        (void)set_text(writer, "key", "new", &lasting);
        _exit(did_nothing);
    }
    int status = 0;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    /* Another process locks the shard, and recovers it. */
    CHECK_STATUS(SHALE_OK, set_text(cache, "other", "x", NULL));
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    bool is_old = holds_bytes(&value, "old", 3);
    CHECK(is_old || holds_bytes(&value, "new", 3));
    clock_ms += 1000000;
    CHECK_STATUS(is_old ? SHALE_MISS : SHALE_OK, get_text(cache, "key", 0, &value));
    uint64_t purged = 0;
    CHECK_STATUS(SHALE_OK, shale_purge(cache, &purged));
    if (!CHECK_EQUAL(is_old, purged))
        fprintf(stderr, "  killed before store %d\n", store);
    CHECK_EQUAL(0, stats_of(cache).rebuilds);
    shale_value_free(&value);
    (void)shale_remove(cache, "key", 3, 0); /* (It may be absent.) */
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return WEXITSTATUS(status) != did_nothing;
}

int main(void) {
    watch(patience);
    char *directory = path_to("undone");
    int store = 1;
    while (store < most_stores && strike(directory, store))
        store++;
    CHECK(store > 20 && store < most_stores);
    free(directory);
    return finish();
}
