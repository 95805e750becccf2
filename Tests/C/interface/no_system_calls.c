/* A million mixed operations in a cache that evicts and cleans all the time, between two marks in the trace of
 * system calls that no_system_calls.sh records. */
#include "check.h"

enum { key_count = 100000, warm_up = 300000, operations = 1000000, largest = 400 };

static char texts[largest * 2];
static unsigned wrong;

static void operate(shale_cache *cache, random_source *source, shale_value *value, int count) {
    for (int n = 0; n < count; n++) {
        uint64_t r = random_next(source);
        uint32_t key = (uint32_t)(r >> 32) % key_count;
        if (r % 2) {
            wrong += shale_set(cache, &key, sizeof key, texts + r / 2 % largest, r / 1024 % largest, NULL) != SHALE_OK;
        } else {
            shale_status status = shale_get(cache, &key, sizeof key, 0, value);
            wrong += status != SHALE_OK && status != SHALE_MISS;
        }
    }
}

static void mark(const char *text) {
    if (write(1, text, strlen(text)) < 0)
        exit(1);
}

int main(void) {
    watch(patience);
    char *directory = path_to("no_system_calls");
    shale_options options = {.struct_size = sizeof options, .capacity = 8 << 20};
    shale_value value = SHALE_VALUE_INIT;
    shale_cache *cache = NULL;
    random_source source = {1};
    for (size_t i = 0; i < sizeof texts; i++)
        texts[i] = (char)('a' + random_below(&source, i % 3 ? 2 : 26));
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &options, &cache));
    char *large = calloc(1, largest);
    CHECK_STATUS(SHALE_OK, shale_set(cache, "buffer", 6, large, largest, NULL));
    CHECK_STATUS(SHALE_OK, shale_get(cache, "buffer", 6, 0, &value));
    free(large);
    operate(cache, &source, &value, warm_up);
    mark("begin\n");
    operate(cache, &source, &value, operations);
    mark("end\n");
    shale_stats stats = stats_of(cache);
    CHECK(stats.evictions > 0 && stats.cleaned_bytes > 0);
    CHECK_EQUAL(0, wrong);
    shale_value_free(&value);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    free(directory);
    return finish();
}
