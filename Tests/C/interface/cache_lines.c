/* Which cache lines of the shared memory a call writes: lines that every call writes are passed from processor to
 * processor, so they limit how calls scale; lines of its own key, or of its thread, are not. */
#include "check.h"
#include "faults.h"

#include <pthread.h>

enum { calls = 1000, most_lines = 4096, value_bytes = 100 };

/* The lines that the present call has written, and how many calls of each thread wrote a line. */
static uintptr_t written[most_lines];
static unsigned written_count;
typedef struct {
    uintptr_t line;
    unsigned calls[2];
} line_count;
static line_count lines[1 << 17];
static bool is_counting;

static void note_store(const void *at) {
    uintptr_t line = (uintptr_t)at >> 6;
    if (!is_counting)
        return;
    for (unsigned i = 0; i < written_count; i++)
        if (written[i] == line)
            return;
    REQUIRE(written_count < most_lines);
    written[written_count++] = line;
}

static line_count *count_of(uintptr_t line) {
    size_t i = (size_t)(line * 0x9E3779B97F4A7C15u >> 47);
    while (lines[i].line && lines[i].line != line)
        i = (i + 1) & ((1 << 17) - 1);
    lines[i].line = line;
    return &lines[i];
}

static shale_cache *cache;
static shale_value value[2] = {SHALE_VALUE_INIT, SHALE_VALUE_INIT};

static void call(const char *name, unsigned i, unsigned thread) {
    char text[value_bytes];
    memset(text, 'a' + (int)(i % 26), sizeof text);
    if (strcmp(name, "hit") == 0)
        CHECK_STATUS(SHALE_OK, shale_get(cache, &i, sizeof i, 0, &value[thread]));
    else if (strcmp(name, "miss") == 0) {
        i += 1u << 30;
        CHECK_STATUS(SHALE_MISS, shale_get(cache, &i, sizeof i, 0, &value[thread]));
    } else if (strcmp(name, "set, existing key") == 0)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, text, sizeof text, NULL));
    else if (strcmp(name, "set, new key") == 0) {
        i += 1u << 29;
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, text, sizeof text, NULL));
    } else if (strcmp(name, "lease") == 0) {
        i += 1u << 28;
        shale_lease_options options = {.struct_size = sizeof options};
        uint64_t token = 0;
        CHECK_STATUS(SHALE_MISS, shale_lease(cache, &i, sizeof i, &options, &value[thread], &token));
        CHECK(token != 0);
        CHECK_STATUS(SHALE_OK, shale_release(cache, &i, sizeof i, token));
    } else
        CHECK_STATUS(SHALE_OK, shale_remove(cache, &i, sizeof i, 0));
}

/* Two threads in turns: the calls of one are odd. */
typedef struct {
    const char *name;
    unsigned thread;
} turn;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned next_call;

static void *take_turns(void *context) {
    const turn *t = context;
    for (unsigned i = t->thread; i < calls; i += 2) {
        pthread_mutex_lock(&mutex);
        while (next_call != i)
            pthread_cond_wait(&changed, &mutex);
        written_count = 0;
        is_counting = true;
        call(t->name, i, t->thread);
        is_counting = false;
        for (unsigned k = 0; k < written_count; k++)
            count_of(written[k])->calls[t->thread]++;
        next_call++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

/* Lines a call writes on average, and how many of them most calls of both threads write. */
static void check_lines(const char *name, uint32_t shards, double most, unsigned most_shared) {
    memset(lines, 0, sizeof lines);
    next_call = 0;
    turn turns[2] = {{name, 0}, {name, 1}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, take_turns, &turns[i]) == 0);
    for (int i = 0; i < 2; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    uint64_t all = 0;
    unsigned shared = 0;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        all += lines[i].calls[0] + lines[i].calls[1];
        shared += lines[i].calls[0] > calls / 4 / shards && lines[i].calls[1] > calls / 4 / shards;
    }
    double mean = (double)all / calls;
    printf("%2u shards, %-18s %5.1f lines, %4.1f shared\n", shards, name, mean, (double)shared / shards);
    CHECK(mean <= most);
    CHECK(shared <= most_shared * shards);
    CHECK(all > 0);
}

int main(void) {
    watch(patience);
    shim_faults.store = note_store;
    shim_faults.may_start_threads = true;
    for (uint32_t shards = 1; shards <= 8; shards *= 8) {
        char *directory = path_to(shards == 1 ? "one" : "several");
        shale_options options = {.struct_size = sizeof options,
                                 .capacity = 64 << 20,
                                 .shards = shards,
                                 .compression = SHALE_COMPRESSION_NONE};
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
        for (unsigned i = 0; i < 4 * calls; i++) {
            char text[value_bytes] = {0};
            unsigned key = 4 * calls - i - 1;
            CHECK_STATUS(SHALE_OK, shale_set(cache, &key, sizeof key, text, sizeof text, NULL));
        }
        check_lines("hit", shards, 3.1, 1);
        check_lines("miss", shards, 1.1, 0);
        check_lines("lease", shards, 3.1, 1);
        check_lines("set, existing key", shards, 13, 8);
        check_lines("set, new key", shards, 18, 9);
        check_lines("remove", shards, 13.5, 9);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        free(directory);
    }
    for (int i = 0; i < 2; i++)
        shale_value_free(&value[i]);
    return finish();
}
