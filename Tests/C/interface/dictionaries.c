/* A dictionary replaces another while a shard is being rebuilt: old records that the rebuild brings back and that
 * name it are readable, or the dictionary stays. They never count as damage. */
#include "afterwards.h"
#include "tolerances.h"
#include "faults.h"
#include "files.h"

enum { kinds = 5, most = 20000, words = 60, index_dictionary_current = 640, index_dictionary_retiring = 656 };

static shale_cache *cache, *other;
static mapped_file index_file;
static unsigned interrupted;

/* Of its own kind: dictionaries for one kind do not help the next. */
static int make_text(char *text, size_t size, int kind, uint64_t i) {
    random_source words_of = {i * 1000 + (uint64_t)kind}, letters;
    int n = snprintf(text, size, "%d %" PRIu64, kind, i);
    for (int w = 0; w < 12; w++) {
        letters.state = (uint64_t)kind * 1000003 + random_below(&words_of, words);
        text[n++] = ' ';
        for (int l = 0; l < 10; l++)
            text[n++] = (char)('a' + random_below(&letters, 26));
    }
    text[n] = 0;
    return n;
}

static uint64_t index_word(size_t at) {
    return word_at(index_file.bytes + at);
}

/* Before the place of dictionary 1 is allocated once more, and its number reused. */
static long rebuild_meanwhile(const char *name) {
    if (interrupted || strcmp(name, "fallocate") != 0 || index_word(index_dictionary_retiring) != 1 ||
        index_word(index_dictionary_numbers + 8) != 1)
        return 0;
    interrupted = 1;
    uint64_t rebuilding = 2;
    memcpy(index_file.bytes + index_head_bytes + shard_state, &rebuilding, 8);
    shale_set_options plain = {.struct_size = sizeof plain, .flags = SHALE_SET_UNCOMPRESSED};
    CHECK_STATUS(SHALE_OK, shale_set(other, "other", 5, "x", 1, &plain));
    return 0;
}

int main(void) {
    watch(patience);
    begin_tolerances();
    char *directory = path_to("cache"), text[400];
    shale_options options = {
        .struct_size = sizeof options, .capacity = 6 << 20, .shards = 1, .flags = SHALE_OPEN_NO_SYNC};
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &other));
    index_file = map_file(directory, "shale.index");
    shim_faults.call = rebuild_meanwhile;
    uint64_t last[kinds] = {0}, evicted = 0;
    for (int kind = 0; kind < kinds && !interrupted; kind++) {
        uint64_t before = index_word(index_dictionary_current), i = 0;
        for (; i < most && index_word(index_dictionary_current) == before && !interrupted; i++) {
            int size = make_text(text, sizeof text, kind, i);
            REQUIRE_STATUS(SHALE_OK, shale_set(cache, text, (size_t)size, text, (size_t)size, NULL));
        }
        /* Some that name it; all are evicted, and stay in the log. */
        for (uint64_t end = i + 50; i < end && !interrupted; i++) {
            int size = make_text(text, sizeof text, kind, i);
            REQUIRE_STATUS(SHALE_OK, shale_set(cache, text, (size_t)size, text, (size_t)size, NULL));
        }
        last[kind] = i;
        if (!interrupted)
            CHECK_STATUS(SHALE_OK, shale_evict(cache, most, &evicted));
    }
    shim_faults.call = NULL;
    CHECK_EQUAL(1, interrupted);
    uint64_t found = 0;
    shale_value value = SHALE_VALUE_INIT;
    for (int kind = 0; kind < kinds; kind++)
        for (uint64_t i = 0; i < last[kind]; i++) {
            int size = make_text(text, sizeof text, kind, i);
            shale_status status = shale_get(cache, text, (size_t)size, 0, &value);
            count_look();
            /* All had been evicted, and may be in the index again: limits.md, "After the index is rebuilt". If a
             * kind's dictionary was freed, they went with it. */
            if (status != SHALE_OK) {
                CHECK_STATUS(SHALE_MISS, status);
                tolerated(0, "evicted");
                continue;
            }
            found++;
            CHECK_BYTES(&value, text, (size_t)size);
        }
    shale_value_free(&value);
    CHECK(found > 100);
    shale_stats stats = stats_of(cache);
    CHECK_EQUAL(1, (int64_t)stats.rebuilds);
    CHECK_EQUAL(0, (int64_t)stats.corrupt_records);
    check_afterwards(cache, directory, "rebuilt while a dictionary was made");
    print_tolerances();
    unmap_file(&index_file);
    CHECK_STATUS(SHALE_OK, shale_close(other));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return finish();
}
