/* A reader that finds a part of a large value missing may be stopped before it removes the entry. If the writer has
 * stored the part again meanwhile, the value stays, and the reader gets it. */
#include "check.h"
#include "faults.h"
#include "pattern.h"

#include <pthread.h>
#include <semaphore.h>

enum { capacity = 4 << 20, large = 20000, small = 4000, others = 3000, patience_ms = 31000, key = 1 };

static shale_cache *writers, *readers;
static _Thread_local enum { no_role, writer, reader } role;
static int locks, struck_at;
static sem_t is_stopped, goes_on;
static pthread_t thread;
static bool has_reader, has_stopped;

static shale_status put(shale_cache *cache, uint64_t name, size_t size) {
    static unsigned char own[large], of_others[small];
    unsigned char *bytes = name == key ? own : of_others;
    pattern_fill(bytes, name, 1, size);
    shale_set_options options = {.struct_size = sizeof options, .flags = SHALE_SET_UNCOMPRESSED};
    return shale_set(cache, &name, sizeof name, bytes, size, &options);
}

static shale_status look(void) {
    uint64_t name = key;
    shale_value value = SHALE_VALUE_INIT;
    shale_status status = shale_get(readers, &name, sizeof name, 0, &value);
    if (status == SHALE_OK)
        CHECK(value.size == large && !pattern_check(value.data, value.size, key, &name));
    shale_value_free(&value);
    return status;
}

static void *read_slowly(void *result) {
    role = reader;
    *(shale_status *)result = look();
    if (!has_stopped)
        sem_post(&is_stopped);
    return NULL;
}
static shale_status answer;

/* The writer counts as dead before one of its locks, and others fill the cache; before its next lock a reader runs,
 * which is stopped as soon as it is about to remove the entry. */
static long before_lock(const char *name) {
    if (strcmp(name, "lock_try") != 0)
        return 0;
    if (role == reader) {
        has_stopped = true;
        role = no_role;
        sem_post(&is_stopped);
        sem_wait(&goes_on);
    } else if (role == writer && ++locks == struck_at) {
        role = no_role;
        shim_faults.uptime_ahead += patience_ms;
        for (uint64_t i = 0; i < others; i++)
            CHECK_STATUS(SHALE_OK, put(readers, 100 + i, small));
        role = writer;
    } else if (role == writer && locks == struck_at + 1) {
        has_reader = pthread_create(&thread, NULL, read_slowly, &answer) == 0;
        sem_wait(&is_stopped);
    }
    return 0;
}

/* Whether a reader was about to remove the entry, which the set then stored again. (The fillers may have evicted it
 * after its manifest was stored.) */
static bool strike(int lock) {
    char name[32];
    snprintf(name, sizeof name, "late%d", lock);
    char *directory = path_to(name);
    shale_options options = {
        .struct_size = sizeof options, .capacity = capacity, .segment_size = 128 << 10, .flags = SHALE_OPEN_NO_SYNC};
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &writers));
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &readers));
    locks = 0;
    struck_at = lock;
    has_reader = has_stopped = false;
    REQUIRE(sem_init(&is_stopped, 0, 0) == 0 && sem_init(&goes_on, 0, 0) == 0);
    shim_faults.call = before_lock;
    role = writer;
    CHECK_STATUS(SHALE_OK, put(writers, key, large));
    role = no_role;
    bool is_stored = look() == SHALE_OK;
    sem_post(&goes_on);
    if (has_reader)
        pthread_join(thread, NULL);
    shim_faults.call = NULL;
    shim_faults.uptime_ahead = 0;
    if (is_stored && has_stopped)
        CHECK_STATUS(SHALE_OK, answer);
    if (is_stored && !CHECK_STATUS(SHALE_OK, look()))
        fprintf(stderr, "  taken for dead before lock %d\n", lock);
    CHECK_STATUS(SHALE_OK, shale_close(writers));
    CHECK_STATUS(SHALE_OK, shale_close(readers));
    free(directory);
    return is_stored && has_stopped;
}

int main(void) {
    watch(patience);
    unsigned stopped = 0;
    for (int lock = 1; lock < 8; lock++)
        stopped += strike(lock);
    CHECK(stopped > 0);
    return finish();
}
