/* Measures how long an opening takes that rebuilds the index, and how long another process waits that opens the cache
 * meanwhile: until it is attached, and for its gets.
 *
 * rebuilding DIRECTORY [MiB, 1024] [bytes of a value, 100] [rounds, 5]   (DIRECTORY is removed before and after) */
#define _GNU_SOURCE
#include <inttypes.h>
#include <shale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { gets = 2000, head_start_us = 50000 };

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void require(shale_status status) {
    if (status >= 0)
        return;
    fprintf(stderr, "%s: %s\n", shale_status_text(status), shale_last_error());
    exit(1);
}

static shale_cache *open_cache(const char *directory, uint64_t capacity) {
    shale_options options = {.struct_size = sizeof options, .capacity = capacity, .flags = SHALE_OPEN_NO_SYNC};
    shale_cache *cache = NULL;
    require(shale_open(directory, &options, &cache));
    return cache;
}

static uint64_t fill(const char *directory, uint64_t capacity, size_t size) {
    shale_cache *cache = open_cache(directory, capacity);
    unsigned char *value = malloc(size);
    uint64_t count = capacity / (size + 48), x = 1;
    for (uint64_t i = 0; value && i < count; i++) {
        for (size_t j = 0; j < size; j++)
            value[j] = (unsigned char)((x = x * 6364136223846793005u + 1) >> 56);
        require(shale_set(cache, &i, sizeof i, value, size, NULL));
    }
    free(value);
    require(shale_close(cache));
    return count;
}

static void use_meanwhile(const char *directory, uint64_t count) {
    usleep(head_start_us);
    shale_value value = SHALE_VALUE_INIT;
    double start = now_ms(), first = 0, most = 0;
    shale_cache *cache = open_cache(directory, 0);
    double opened = now_ms();
    unsigned hits = 0;
    for (uint64_t i = 0; i < gets; i++) {
        uint64_t key = count - 1 - i * (count / 2 / gets);
        double before = now_ms();
        shale_status status = shale_get(cache, &key, sizeof key, 0, &value);
        double took = now_ms() - before;
        require(status);
        hits += status == SHALE_OK;
        if (i == 0)
            first = took;
        if (took > most)
            most = took;
    }
    printf("another: open %.1f ms, first get %.1f ms, longest get %.1f ms, %u of %d hits; ", opened - start, first,
           most, hits, gets);
    fflush(stdout);
    shale_value_free(&value);
    _exit(0);
}

static void remove_cache(const char *directory) {
    char path[4096];
    const char *names[] = {"shale.data", "shale.index"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

int main(int argument_count, char **arguments) {
    if (argument_count < 2) {
        fprintf(stderr, "usage: rebuilding DIRECTORY [MiB] [bytes of a value] [rounds]\n");
        return 2;
    }
    const char *directory = arguments[1];
    uint64_t capacity = (argument_count > 2 ? strtoull(arguments[2], NULL, 0) : 1024) << 20;
    size_t size = argument_count > 3 ? strtoull(arguments[3], NULL, 0) : 100;
    int rounds = argument_count > 4 ? atoi(arguments[4]) : 5;
    remove_cache(directory);
    uint64_t count = fill(directory, capacity, size);
    char index[4096];
    snprintf(index, sizeof index, "%s/shale.index", directory);
    for (int i = 0; i < 2 * rounds; i++) {
        unlink(index);
        pid_t child = i % 2 ? fork() : -1;
        if (child == 0)
            use_meanwhile(directory, count);
        double start = now_ms();
        shale_cache *cache = open_cache(directory, 0);
        double took = now_ms() - start;
        if (child > 0)
            waitpid(child, NULL, 0);
        shale_stats stats = {.struct_size = sizeof stats};
        require(shale_get_stats(cache, &stats));
        printf("open %.1f ms, %" PRIu64 " entries in %" PRIu32 " shards\n", took, stats.entries, stats.shards);
        require(shale_close(cache));
    }
    remove_cache(directory);
    return 0;
}
