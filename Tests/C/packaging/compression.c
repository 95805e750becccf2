/* Small values are compressed with dictionaries, by any LZ4 that a library was linked with: less is stored than by
 * LZ4 alone, and the records say so. Dense compression stores less still, and any handle reads it. */
#include "check.h"
#include "layout.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { values = 20000 };

static int make_value(char *text, size_t size, unsigned i) {
    return snprintf(text, size,
                    "{\"id\": %u, \"name\": \"user-%u\", \"address\": \"%u Main Street\", \"languages\": "
                    "[\"English\", \"German\"], \"created\": \"2024-01-%02uT%02u:00:00Z\"}",
                    i * 2654435761u, i, i % 997, i % 28 + 1, i % 24);
}

/* The compressed size of the values; checks that each of them is present. */
static uint64_t stored_with(const char *directory, int32_t compression, uint64_t *dictionaries) {
    char text[300];
    shale_options options = {.struct_size = sizeof options, .capacity = 16 << 20, .compression = compression};
    shale_value value = SHALE_VALUE_INIT;
    shale_stats stats = {.struct_size = sizeof stats};
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    for (unsigned i = 0; i < values; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, text, (size_t)make_value(text, sizeof text, i), NULL));
    for (unsigned i = 0; i < values; i++) {
        size_t size = (size_t)make_value(text, sizeof text, i);
        CHECK_STATUS(SHALE_OK, shale_get(cache, &i, sizeof i, 0, &value));
        CHECK(value.size == size && memcmp(value.data, text, size) == 0);
    }
    shale_value_free(&value);
    REQUIRE_STATUS(SHALE_OK, shale_get_stats(cache, &stats));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    *dictionaries = stats.dictionaries;
    return stats.stored_bytes;
}

/* Values in the first segments that were stored with a dictionary. */
static unsigned with_dictionary(const char *path) {
    unsigned found = 0;
    struct stat status;
    int file = open(path, O_RDONLY);
    REQUIRE(file >= 0 && fstat(file, &status) == 0);
    const unsigned char *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
    REQUIRE(data != MAP_FAILED);
    layout l = layout_of(data);
    for (uint64_t begin = l.segments; begin + l.segment_size <= (uint64_t)status.st_size; begin += l.segment_size)
        for (uint64_t at = begin + segment_header_bytes; at + record_header_bytes < begin + l.segment_size;) {
            record_view r = record_at(data, at);
            if (r.lsn == 0 || r.kind == record_end)
                break;
            found += r.codec == 2;
            at += r.length;
        }
    munmap((void *)data, (size_t)status.st_size);
    close(file);
    return found;
}

/* Two handles of one cache, which compress differently, read each other's values: small ones, one without a dictionary,
 * one in parts, one that does not compress. */
static void check_mixed(const char *directory) {
    static const size_t sizes[] = {60, 300, 5000, 16 << 10, 40000, 1 << 20};
    enum { kinds = sizeof sizes / sizeof *sizes, rounds = 300 };
    static unsigned char bytes[1 << 20];
    shale_options dense = {.struct_size = sizeof dense, .capacity = 64 << 20, .compression = SHALE_COMPRESSION_DENSE};
    shale_options fast = {.struct_size = sizeof fast};
    shale_cache *caches[2];
    shale_value value = SHALE_VALUE_INIT;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &dense, &caches[0]));
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &fast, &caches[1]));
    for (unsigned i = 0; i < rounds; i++)
        for (unsigned kind = 0; kind < kinds; kind++) {
            if (sizes[kind] > 16 << 10 && i % 100 > 1)
                continue;
            size_t size = 0;
            random_source noise = {i};
            while (size < sizes[kind]) {
                char text[300];
                size_t more = (size_t)make_value(text, sizeof text, i + (unsigned)size);
                for (size_t k = 0; i % 7 == 6 && k < more; k++)
                    text[k] = (char)random_below(&noise, 256);
                more = more < sizes[kind] - size ? more : sizes[kind] - size;
                memcpy(bytes + size, text, more);
                size += more;
            }
            unsigned key[] = {i, kind};
            CHECK_STATUS(SHALE_OK, shale_set(caches[i & 1], key, sizeof key, bytes, size, NULL));
            for (int by = 0; by < 2; by++) {
                CHECK_STATUS(SHALE_OK, shale_get(caches[by], key, sizeof key, 0, &value));
                CHECK(value.size == size && memcmp(value.data, bytes, size) == 0);
            }
        }
    CHECK_STATUS(SHALE_OK, shale_verify(caches[1], NULL));
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(caches[0]));
    CHECK_STATUS(SHALE_OK, shale_close(caches[1]));
}

int main(void) {
    watch(patience);
    char *directory = path_to("dictionary"), *alone = path_to("alone"), *data = path_to("dictionary/shale.data");
    char *dense = path_to("dense"), *mixed = path_to("mixed");
    uint64_t dictionaries, none, dense_dictionaries;
    uint64_t stored = stored_with(directory, SHALE_COMPRESSION_DICTIONARY, &dictionaries);
    uint64_t stored_alone = stored_with(alone, SHALE_COMPRESSION_LZ4, &none);
    uint64_t stored_dense = stored_with(dense, SHALE_COMPRESSION_DENSE, &dense_dictionaries);
    unsigned found = with_dictionary(data);
    printf("%" PRIu64 " bytes with %" PRIu64 " dictionaries, %" PRIu64 " dense, %" PRIu64
           " without; %u values with one\n",
           stored, dictionaries, stored_dense, stored_alone, found);
    CHECK(dictionaries > 0);
    CHECK_EQUAL(0, none);
    CHECK(stored < stored_alone / 3 * 2);
    CHECK(found > values / 2);
    CHECK(dense_dictionaries > 0);
    CHECK(stored_dense < stored / 20 * 19);
    check_mixed(mixed);
    free(directory);
    free(alone);
    free(data);
    free(dense);
    free(mixed);
    return finish();
}
