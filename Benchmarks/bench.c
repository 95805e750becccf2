/* Measures Shale through its C interface: hits against the floor (floor.h) in
 * the same process, sets, index size, opening, rebuilding, compression.
 *
 *     bench [--entries N] [--seed N] [--repetitions N] [--directory PATH]
 *           [--paragraphs N] [--json FILE]
 *
 * Ratios are what to compare between machines; nanoseconds are of this one, and
 * are CPU time of the one thread, so that a busy machine disturbs them less.
 * Opening and rebuilding are measured by the clock on the wall. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "corpus.h"
#include "floor.h"
#include "report.h"
#include "shale.h"
#include "workload.h"

enum { most_repetitions = 101, batch = 64 };

static uint64_t seed = 1, entries = 1000000;
static size_t repetitions = 11, paragraph_limit = 20000;
static char directory[512];

static double read_clock(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double now(void) {
    return read_clock(CLOCK_MONOTONIC);
}

static double cpu_now(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static void require(shale_status status, const char *what) {
    if (status != SHALE_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, shale_status_text(status), status < 0 ? shale_last_error() : "");
        exit(1);
    }
}

static shale_cache *open_cache(const char *path, int32_t compression) {
    shale_options options = {.struct_size = sizeof options, .capacity = 1u << 30, .compression = compression};
    shale_cache *cache = NULL;
    require(shale_open(path, &options, &cache), "shale_open");
    return cache;
}

static shale_stats stats_of(shale_cache *cache) {
    shale_stats stats = {.struct_size = sizeof stats};
    require(shale_get_stats(cache, &stats), "shale_get_stats");
    return stats;
}

static void remove_cache(const char *path) {
    static const char *const names[] = {"shale.data", "shale.index"};
    char file[600];
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        unlink(file);
    }
    rmdir(path);
}

/* Filling */

static double fill(shale_cache *cache, size_t size_of_key, uint64_t count) {
    static unsigned char keys[1024][long_key_size];
    static char values[1024][short_value_size];
    double spent = 0;
    for (uint64_t at = 0; at < count;) { /* the generator's time is not counted */
        uint64_t group = count - at < 1024 ? count - at : 1024;
        for (uint64_t i = 0; i < group; i++) {
            make_key(keys[i], size_of_key, seed, at + i);
            make_short_value(values[i], seed, at + i);
        }
        double start = cpu_now();
        for (uint64_t i = 0; i < group; i++)
            require(shale_set(cache, keys[i], size_of_key, values[i], short_value_size, NULL), "shale_set");
        spent += cpu_now() - start;
        at += group;
    }
    return spent;
}

static flat_store *fill_floor(void) {
    flat_store *store = flat_create(entries, entries * 200 + 4096);
    unsigned char key[key_size];
    char value[short_value_size];
    for (uint64_t i = 0; i < entries; i++) {
        make_key(key, key_size, seed, i);
        make_short_value(value, seed, i);
        flat_put(store, key, key_size, value, short_value_size);
    }
    return store;
}

/* Reading: one pass of `count` uniform keys, nanoseconds an operation. */

static volatile uint64_t sink;

static double read_floor(const flat_store *store, uint64_t first, uint64_t count) {
    unsigned char key[key_size];
    char buffer[short_value_size + 64];
    uint64_t sum = 0;
    double start = cpu_now();
    for (uint64_t i = 0; i < count; i++) {
        make_key(key, key_size, seed, mix(first + i) % entries);
        long size = flat_get(store, key, key_size, buffer, sizeof buffer);
        if (size != short_value_size)
            abort();
        sum += (unsigned char)buffer[6];
    }
    double spent = cpu_now() - start;
    sink = sum;
    return spent / (double)count * 1e9;
}

static double read_shale(shale_cache *cache, shale_value *value, uint64_t first, uint64_t count) {
    unsigned char key[key_size];
    uint64_t sum = 0;
    double start = cpu_now();
    for (uint64_t i = 0; i < count; i++) {
        make_key(key, key_size, seed, mix(first + i) % entries);
        if (shale_get(cache, key, key_size, 0, value) != SHALE_OK || value->size != short_value_size)
            abort();
        sum += ((unsigned char *)value->data)[6];
    }
    double spent = cpu_now() - start;
    sink = sum;
    return spent / (double)count * 1e9;
}

static double read_batches(shale_cache *cache, shale_value *values, uint64_t first, uint64_t count) {
    unsigned char keys[batch][key_size];
    shale_bytes names[batch];
    uint64_t sum = 0;
    for (int i = 0; i < batch; i++)
        names[i] = (shale_bytes){keys[i], key_size};
    double start = cpu_now();
    for (uint64_t i = 0; i + batch <= count; i += batch) {
        for (uint64_t j = 0; j < batch; j++)
            make_key(keys[j], key_size, seed, mix(first + i + j) % entries);
        if (shale_get_many(cache, batch, names, 0, values, NULL) != SHALE_OK)
            abort();
        for (int j = 0; j < batch; j++)
            sum += ((unsigned char *)values[j].data)[6];
    }
    double spent = cpu_now() - start;
    sink = sum;
    return spent / (double)(count / batch * batch) * 1e9;
}

/* Only the key generation, which is part of every pass. */
static double read_nothing(uint64_t first, uint64_t count) {
    unsigned char key[key_size];
    uint64_t sum = 0;
    double start = cpu_now();
    for (uint64_t i = 0; i < count; i++) {
        make_key(key, key_size, seed, mix(first + i) % entries);
        sum += key[0] + key[15];
    }
    double spent = cpu_now() - start;
    sink = sum;
    return spent / (double)count * 1e9;
}

static void measure_reads(shale_cache *cache, shale_cache *plain) {
    static double floors[most_repetitions], gets[most_repetitions], plains[most_repetitions], many[most_repetitions],
        nothing[most_repetitions], ratios[most_repetitions], plain_ratios[most_repetitions],
        many_ratios[most_repetitions];
    flat_store *store = fill_floor();
    shale_value value = SHALE_VALUE_INIT, values[batch];
    for (int i = 0; i < batch; i++)
        values[i] = (shale_value)SHALE_VALUE_INIT;
    const uint64_t count = entries;
    read_floor(store, 0, count);
    read_shale(cache, &value, 0, count);
    read_shale(plain, &value, 0, count);
    read_batches(cache, values, 0, count);
    for (size_t r = 0; r < repetitions; r++) { /* all see the same keys, in changing order */
        uint64_t first = (r + 1) * count;
        nothing[r] = read_nothing(first, count);
        for (size_t turn = 0; turn < 4; turn++)
            switch ((turn + r) % 4) {
            case 0: floors[r] = read_floor(store, first, count); break;
            case 1: gets[r] = read_shale(cache, &value, first, count); break;
            case 2: plains[r] = read_shale(plain, &value, first, count); break;
            case 3: many[r] = read_batches(cache, values, first, count); break;
            }
        ratios[r] = (gets[r] - nothing[r]) / (floors[r] - nothing[r]);
        plain_ratios[r] = (plains[r] - nothing[r]) / (floors[r] - nothing[r]);
        many_ratios[r] = (many[r] - nothing[r]) / (floors[r] - nothing[r]);
    }
    double idle = median(nothing, repetitions);
    report_section("Hits, one thread, uniform keys (medians of CPU time, without making the keys)");
    report("floor_ns", "floor: XXH3, flat table, XXH3 check, LZ4 or copy", median(floors, repetitions) - idle, "ns");
    report("get_ns", "shale_get", median(gets, repetitions) - idle, "ns");
    report("get_lz4_ns", "shale_get, LZ4 without dictionaries", median(plains, repetitions) - idle, "ns");
    report("get_many_ns", "shale_get_many of 64, a key", median(many, repetitions) - idle, "ns");
    report("get_ratio", "shale_get / floor", median(ratios, repetitions), "x");
    report("get_lz4_ratio", "shale_get without dictionaries / floor", median(plain_ratios, repetitions), "x");
    report("get_many_ratio", "shale_get_many / floor", median(many_ratios, repetitions), "x");
    for (int i = 0; i < batch; i++)
        shale_value_free(&values[i]);
    shale_value_free(&value);
    flat_destroy(store);
}

/* Opening */

static double time_open(const char *path, shale_cache **cache) {
    double start = now();
    *cache = open_cache(path, SHALE_COMPRESSION_DICTIONARY);
    return now() - start;
}

/* A child writes and is killed in the middle of it. */
static void kill_a_writer(const char *path) {
    int ready[2];
    if (pipe(ready) < 0)
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        shale_cache *cache = open_cache(path, SHALE_COMPRESSION_DICTIONARY);
        unsigned char key[key_size];
        char value[short_value_size];
        for (uint64_t i = 0;; i = (i + 1) % entries) {
            make_key(key, key_size, seed, i);
            make_short_value(value, seed, i);
            require(shale_set(cache, key, key_size, value, short_value_size, NULL), "shale_set");
            if (i == 10000 && write(ready[1], "x", 1) != 1)
                _exit(1);
        }
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1)
        exit(1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
}

static void measure_opening(const char *path) {
    double clean[5], killed[5], rebuilt[3];
    char index[600];
    shale_cache *cache;
    snprintf(index, sizeof index, "%s/shale.index", path);
    for (int i = 0; i < 5; i++) {
        clean[i] = time_open(path, &cache) * 1e3;
        require(shale_close(cache), "shale_close");
    }
    for (int i = 0; i < 5; i++) {
        kill_a_writer(path);
        killed[i] = time_open(path, &cache) * 1e3;
        require(shale_close(cache), "shale_close");
    }
    double bytes = 0;
    uint64_t kept = 0;
    for (int i = 0; i < 3; i++) {
        unlink(index);
        rebuilt[i] = time_open(path, &cache);
        shale_stats stats = stats_of(cache);
        bytes = (double)stats.data_bytes;
        kept = stats.entries;
        require(shale_close(cache), "shale_close");
    }
    double seconds = median(rebuilt, 3);
    report_section("Opening that cache (median)");
    report("open_clean_ms", "after a clean close", median(clean, 5), "ms");
    report("open_killed_ms", "after kill -9 of a writer", median(killed, 5), "ms");
    report("open_rebuild_ms", "with the index deleted: rebuilt from the data", seconds * 1e3, "ms");
    report("rebuild_mb_s", "the rebuild, of data file", bytes / 1e6 / seconds, "MB/s");
    report("rebuild_entries", "entries after the rebuild", (double)kept, "entries");
}

/* Compression */

/* Bytes stored of bytes given, of package paragraphs or (where that is NULL) of JSON records. */
static double stored_share(int32_t compression, const corpus *paragraphs, uint64_t records, double *set_ns) {
    static char made[256][record_size_limit];
    char path[560];
    snprintf(path, sizeof path, "%s/compression", directory);
    shale_cache *cache = open_cache(path, compression);
    double spent = 0;
    const uint64_t count = paragraphs ? paragraphs->count : records;
    for (uint64_t at = 0; at < count;) { /* the generator's time is not counted */
        shale_bytes values[256];
        uint64_t group = count - at < 256 ? count - at : 256;
        for (uint64_t i = 0; i < group; i++)
            values[i] = paragraphs ? (shale_bytes){paragraphs->paragraphs[at + i].start, paragraphs->paragraphs[at + i].size}
                                   : (shale_bytes){made[i], make_record(made[i], seed, at + i)};
        double start = cpu_now();
        for (uint64_t i = 0; i < group; i++) {
            uint64_t key = at + i;
            require(shale_set(cache, &key, sizeof key, values[i].data, values[i].size, NULL), "shale_set");
        }
        spent += cpu_now() - start;
        at += group;
    }
    shale_stats stats = stats_of(cache);
    require(shale_close(cache), "shale_close");
    remove_cache(path);
    *set_ns = spent / (double)count * 1e9;
    return (double)stats.stored_bytes / (double)stats.raw_bytes;
}

static void measure_compression(void) {
    double with_ns, without_ns;
    corpus packages = corpus_load(paragraph_limit);
    if (packages.count > 0) {
        double with = stored_share(SHALE_COMPRESSION_DICTIONARY, &packages, 0, &with_ns);
        double without = stored_share(SHALE_COMPRESSION_LZ4, &packages, 0, &without_ns);
        report_section("Compression: Debian package paragraphs");
        report("packages_count", "paragraphs", (double)packages.count, "");
        report("packages_mean_bytes", "mean size", (double)packages.bytes / (double)packages.count, "bytes");
        report("packages_dictionary", "stored, with dictionaries", with * 100, "% of raw");
        report("packages_lz4", "stored, LZ4 alone", without * 100, "% of raw");
        report("packages_gain", "with dictionaries / LZ4 alone", with / without, "x");
        report("packages_set_ns", "shale_set with dictionaries", with_ns, "ns");
        report("packages_set_lz4_ns", "shale_set, LZ4 alone", without_ns, "ns");
    } else {
        report_section("Compression: no package lists here");
    }
    corpus_free(&packages);

    const uint64_t records = 100000;
    char record[record_size_limit];
    double bytes = 0;
    for (uint64_t i = 0; i < records; i++)
        bytes += (double)make_record(record, seed, i);
    double with = stored_share(SHALE_COMPRESSION_DICTIONARY, NULL, records, &with_ns);
    double without = stored_share(SHALE_COMPRESSION_LZ4, NULL, records, &without_ns);
    report_section("Compression: JSON records");
    report("records_count", "records", (double)records, "");
    report("records_mean_bytes", "mean size", bytes / (double)records, "bytes");
    report("records_dictionary", "stored, with dictionaries", with * 100, "% of raw");
    report("records_lz4", "stored, LZ4 alone", without * 100, "% of raw");
    report("records_gain", "with dictionaries / LZ4 alone", with / without, "x");
    report("records_set_ns", "shale_set with dictionaries", with_ns, "ns");
    report("records_set_lz4_ns", "shale_set, LZ4 alone", without_ns, "ns");
}

static void usage(const char *program) {
    fprintf(stderr, "usage: %s [--entries N] [--seed N] [--repetitions N] [--directory PATH] [--paragraphs N] [--json FILE]\n",
            program);
    exit(2);
}

int main(int argument_count, char **arguments) {
    static const struct option options[] = {{"entries", required_argument, NULL, 'e'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"repetitions", required_argument, NULL, 'r'},
                                            {"directory", required_argument, NULL, 'd'},
                                            {"paragraphs", required_argument, NULL, 'p'},
                                            {"json", required_argument, NULL, 'j'},
                                            {0}};
    const char *base = "/tmp", *json = NULL;
    for (int option; (option = getopt_long(argument_count, arguments, "", options, NULL)) != -1;)
        switch (option) {
        case 'e': entries = strtoull(optarg, NULL, 0); break;
        case 's': seed = strtoull(optarg, NULL, 0); break;
        case 'r': repetitions = strtoull(optarg, NULL, 0); break;
        case 'd': base = optarg; break;
        case 'p': paragraph_limit = strtoull(optarg, NULL, 0); break;
        case 'j': json = optarg; break;
        default: usage(arguments[0]);
        }
    if (optind != argument_count || entries < 20000 || repetitions < 1 || repetitions > most_repetitions)
        usage(arguments[0]);
    snprintf(directory, sizeof directory, "%s/shale-bench-XXXXXX", base);
    if (!mkdtemp(directory)) {
        perror(directory);
        return 1;
    }
    printf("shale %s, %llu entries of %d bytes, seed %llu\n", shale_version(), (unsigned long long)entries,
           short_value_size, (unsigned long long)seed);

    char main_path[560], plain_path[560], long_path[560];
    snprintf(main_path, sizeof main_path, "%s/main", directory);
    snprintf(plain_path, sizeof plain_path, "%s/plain", directory);
    snprintf(long_path, sizeof long_path, "%s/long", directory);
    shale_cache *cache = open_cache(main_path, SHALE_COMPRESSION_DICTIONARY);
    shale_cache *plain = open_cache(plain_path, SHALE_COMPRESSION_LZ4);

    double filling = fill(cache, key_size, entries), plain_filling = fill(plain, key_size, entries);
    shale_stats stats = stats_of(cache);
    measure_reads(cache, plain);
    double again = fill(cache, key_size, entries);
    report_section("Sets, one thread, CPU time");
    report("set_rate", "shale_set, new keys", (double)entries / filling, "a second");
    report("set_lz4_rate", "shale_set, new keys, LZ4 without dictionaries", (double)entries / plain_filling, "a second");
    report("set_again_rate", "shale_set, keys that are there", (double)entries / again, "a second");

    shale_cache *long_keys = open_cache(long_path, SHALE_COMPRESSION_DICTIONARY);
    fill(long_keys, long_key_size, entries);
    shale_stats long_stats = stats_of(long_keys);
    report_section("Memory and disk");
    report("index_bytes_entry", "index, an entry, keys of 16 bytes", (double)stats.index_bytes / (double)stats.entries,
           "bytes");
    report("index_bytes_entry_long", "index, an entry, keys of 200 bytes",
           (double)long_stats.index_bytes / (double)long_stats.entries, "bytes");
    report("live_bytes_entry", "data file, an entry (100-byte value, 16-byte key)",
           (double)stats.live_bytes / (double)stats.entries, "bytes");
    report("entries_kept", "entries kept", (double)stats.entries, "entries");
    require(shale_close(long_keys), "shale_close");
    remove_cache(long_path);
    require(shale_close(plain), "shale_close");
    remove_cache(plain_path);
    require(shale_close(cache), "shale_close");

    measure_opening(main_path);
    remove_cache(main_path);
    measure_compression();
    rmdir(directory);

    if (json && report_write_json(json, seed, entries) < 0) {
        perror(json);
        return 1;
    }
    return 0;
}
