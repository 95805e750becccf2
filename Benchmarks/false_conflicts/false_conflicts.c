/* Counts fenced sets that are refused although their key has not changed (processes.md, "Leases and fenced sets").
 *
 *     false_conflicts [SECONDS [REMOVALS_A_SECOND [CAPACITY_MIB]]]       60, 1000, 256
 *
 * One thread sets keys as fast as it can, one removes others at the given rate, and loads of one second each begin all
 * the time. No other thread changes the key that a load stores by a fenced set, so every refusal is false. There is
 * one shard, so that all removals share one table. */
#define _GNU_SOURCE
#include <pthread.h>
#include <shale.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { load_us = 1000000, loads_a_second = 2000, most_loads = 2 * loads_a_second, set_keys = 100000 };

static shale_cache *cache;
static atomic_bool has_ended;
static atomic_ulong sets;

static int64_t now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void demand(shale_status status) {
    if (status < 0) {
        fprintf(stderr, "%s\n", shale_last_error());
        exit(1);
    }
}

static void *set_all_the_time(void *unused) {
    (void)unused;
    static const char bytes[100];
    for (uint64_t n = 0; !has_ended; n++) {
        uint64_t key[2] = {1, n * 2654435761u % set_keys};
        demand(shale_set(cache, key, sizeof key, bytes, sizeof bytes, NULL));
        sets++;
    }
    return NULL;
}

typedef struct {
    uint64_t key[2], token;
    int64_t began;
} load;

int main(int count, char **arguments) {
    int64_t seconds = count > 1 ? atoll(arguments[1]) : 60, rate = count > 2 ? atoll(arguments[2]) : 1000;
    shale_options options = {.struct_size = sizeof options,
                             .capacity = (uint64_t)(count > 3 ? atoll(arguments[3]) : 256) << 20,
                             .shards = 1};
    demand(shale_open(NULL, &options, &cache));
    pthread_t setter;
    pthread_create(&setter, NULL, set_all_the_time, NULL);
    static load loads[most_loads];
    uint64_t begun = 0, ended = 0, removals = 0, conflicts = 0;
    shale_value value = SHALE_VALUE_INIT;
    int64_t start = now_us(), now = start;
    for (; now - start < seconds * 1000000; now = now_us()) {
        bool was_idle = true;
        if (removals < (uint64_t)((now - start) * rate / 1000000)) {
            uint64_t key[2] = {2, removals++};
            demand(shale_remove(cache, key, sizeof key, 0));
            was_idle = false;
        }
        if (begun - ended < most_loads && begun < (uint64_t)((now - start) * loads_a_second / 1000000)) {
            load *l = &loads[begun % most_loads];
            *l = (load){.key = {3, begun++}, .began = now};
            demand(shale_get(cache, l->key, sizeof l->key, SHALE_GET_TOKEN, &value));
            l->token = value.version;
            was_idle = false;
        }
        if (ended < begun && now - loads[ended % most_loads].began >= load_us) {
            load *l = &loads[ended++ % most_loads];
            shale_set_options fenced = {
                .struct_size = sizeof fenced, .flags = SHALE_SET_IF_UNCHANGED, .version = l->token};
            shale_status status = shale_set(cache, l->key, sizeof l->key, "loaded", 6, &fenced);
            demand(status);
            conflicts += status == SHALE_CONFLICT;
            was_idle = false;
        }
        if (was_idle)
            nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    has_ended = true;
    pthread_join(setter, NULL);
    shale_stats stats = {.struct_size = sizeof stats};
    demand(shale_get_stats(cache, &stats));
    double lasted = (double)(now - start) / 1e6;
    printf(
        "%.0f s: %.0f removals a second, %.0f sets a second, %llu loads of a second, %llu false conflicts (%.3f %%), "
        "%llu evictions\n",
        lasted, (double)removals / lasted, (double)sets / lasted, (unsigned long long)ended,
        (unsigned long long)conflicts, ended ? 100.0 * (double)conflicts / (double)ended : 0,
        (unsigned long long)stats.evictions);
    if (stats.conflicts != conflicts)
        printf("shale_stats says %llu\n", (unsigned long long)stats.conflicts);
    shale_value_free(&value);
    demand(shale_close(cache));
    return 0;
}
