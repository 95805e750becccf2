/* A hit allocates nothing and takes no lock. This program defines the allocation and lock functions of libc itself, so
 * the library's calls come here and are counted on their way to libc; a hook counts the library's own locks. */
#include "check.h"
#include "faults.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#ifndef __GLIBC__
int main(void) {
    return SKIPPED;
}
#else

static atomic_ulong allocations, locks;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

void *malloc(size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(memory, size);
}

void free(void *memory) {
    atomic_fetch_add(&allocations, memory != NULL);
    __libc_free(memory);
}

void *aligned_alloc(size_t alignment, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    atomic_fetch_add(&allocations, 1);
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

typedef int lock_function(pthread_mutex_t *);
typedef int timed_lock_function(pthread_mutex_t *, const struct timespec *);
typedef int clock_lock_function(pthread_mutex_t *, clockid_t, const struct timespec *);
typedef int rwlock_function(pthread_rwlock_t *);

/* POSIX converts dlsym's result to a function; ISO C has no conversion for it. */
#define NEXT(type, name)                                                                                               \
    static type *next;                                                                                                 \
    if (!next)                                                                                                         \
        *(void **)&next = dlsym(RTLD_NEXT, name);                                                                      \
    atomic_fetch_add(&locks, 1)

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    NEXT(lock_function, "pthread_mutex_lock");
    return next(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex) {
    NEXT(lock_function, "pthread_mutex_trylock");
    return next(mutex);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *time) {
    NEXT(timed_lock_function, "pthread_mutex_timedlock");
    return next(mutex, time);
}

int pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *time) {
    NEXT(clock_lock_function, "pthread_mutex_clocklock");
    return next(mutex, clock, time);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *lock) {
    NEXT(rwlock_function, "pthread_rwlock_rdlock");
    return next(lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *lock) {
    NEXT(rwlock_function, "pthread_rwlock_wrlock");
    return next(lock);
}

static long count_locks(const char *name) {
    if (strcmp(name, "lock_try") == 0)
        atomic_fetch_add(&locks, 1);
    return 0;
}

enum { count = 2000, rounds = 3, batch = 32 };

static int make_record(char *record, size_t size, uint32_t i) {
    return snprintf(record, size,
                    "{\"id\":%u,\"name\":\"user %u\",\"mail\":\"user.%u@example.org\",\"active\":true,"
                    "\"roles\":[\"reader\",\"writer\"],\"note\":\"%0*u\"}",
                    i, i * 7, i * 7, (int)(i % 90) + 10, i * 2654435761u);
}

static void check_hits(const char *directory, uint32_t shards) {
    shale_options options = {
        .struct_size = sizeof options, .capacity = 16 << 20, .shards = shards, .segment_size = 128 << 10};
    shale_cache *cache = NULL;
    shale_value value = SHALE_VALUE_INIT, values[batch];
    static uint32_t keys[count];
    shale_bytes names[batch];
    shale_status statuses[batch];
    char record[400];
    unsigned wrong = 0;
    for (int i = 0; i < batch; i++)
        values[i] = (shale_value)SHALE_VALUE_INIT;

    /* The counters live. */
    unsigned long before = atomic_load(&allocations);
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    CHECK(atomic_load(&allocations) > before);
    before = atomic_load(&locks);
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "value", NULL));
    CHECK(atomic_load(&locks) > before);
    before = atomic_load(&allocations);
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value)); /* the buffer grows here */
    CHECK(atomic_load(&allocations) > before);

    for (uint32_t i = 0; i < count; i++) {
        keys[i] = i;
        int size = make_record(record, sizeof record, i);
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, record, (size_t)size, NULL));
    }
    static char large[500000];
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (char)(i * i >> 3);
    CHECK_STATUS(SHALE_OK, set_text(cache, "large", "", NULL));
    CHECK_STATUS(SHALE_OK, shale_set(cache, "large", 5, large, sizeof large, NULL));
    CHECK_STATUS(SHALE_OK, get_text(cache, "large", 0, &value)); /* the largest: no growth after this */
    for (uint32_t i = 0; i < count; i += batch) { /* the same for the batches */
        for (uint32_t j = 0; j < batch; j++)
            names[j] = (shale_bytes){&keys[(i + j) % count], sizeof *keys};
        CHECK_STATUS(SHALE_OK, shale_get_many(cache, batch, names, 0, values, statuses));
    }
    for (int j = 0; j < batch; j++)
        names[j] = (shale_bytes){&keys[j], sizeof *keys};
    shale_bytes longest = {&keys[89], sizeof *keys};
    for (int j = 0; j < batch; j++)
        CHECK_STATUS(SHALE_OK, shale_get_many(cache, 1, &longest, 0, &values[j], statuses));

    unsigned long allocations_before = atomic_load(&allocations), locks_before = atomic_load(&locks);
    for (int round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < count; i++) {
            wrong += shale_get(cache, &i, sizeof i, 0, &value) != SHALE_OK || value.size < 100;
            wrong += shale_get(cache, &i, sizeof i, SHALE_GET_PEEK, &value) != SHALE_OK;
            wrong += shale_get(cache, &i, sizeof i, SHALE_GET_INFO, &value) != SHALE_OK;
        }
        for (uint32_t i = count; i < 2 * count; i++)
            wrong += shale_get(cache, &i, sizeof i, 0, &value) != SHALE_MISS;
        for (int i = 0; i < 20; i++)
            wrong += shale_get(cache, "large", 5, 0, &value) != SHALE_OK || value.size != sizeof large;
        for (int i = 0; i < 100; i++)
            wrong += shale_get_many(cache, batch, names, 0, values, statuses) != SHALE_OK;
    }
    CHECK_EQUAL(0, atomic_load(&allocations) - allocations_before);
    CHECK_EQUAL(0, atomic_load(&locks) - locks_before);
    CHECK_EQUAL(0, wrong);
    CHECK_STATUS(SHALE_OK, get_text(cache, "large", 0, &value));
    CHECK_BYTES(&value, large, sizeof large);

    for (int i = 0; i < batch; i++)
        shale_value_free(&values[i]);
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

int main(void) {
    watch(patience);
    shim_faults.call = count_locks;
    char *directory = path_to("hits"), *sharded = path_to("sharded");
    check_hits(directory, 1);
    check_hits(sharded, 4);
    check_hits(NULL, 1);
    free(directory);
    free(sharded);
    return finish();
}
#endif
