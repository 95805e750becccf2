/* A fault for a sanitizer to find in the library's own code, which writes a version to the address that its caller
 * gives: two threads give the same address, or it lies past the end of a buffer. Scripts/sanitize expects a report;
 * without one this ends in success.
 *
 * sanitized thread|address */
#include "check.h"
#include "threads.h"

static shale_cache *cache;
static uint64_t version; /* unprotected, on purpose */

static void *set_many(void *context UNUSED) {
    shale_set_options options = {.struct_size = sizeof options, .new_version = &version};
    for (int i = 0; i < 10000; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, "key", 3, "value", 5, &options));
    return NULL;
}

int main(int argument_count, char **arguments) {
    shale_options options = {.struct_size = sizeof options, .capacity = 2 << 20};
    REQUIRE(argument_count > 1);
    REQUIRE_STATUS(SHALE_OK, shale_open(NULL, &options, &cache));
    if (strcmp(arguments[1], "thread") == 0) {
        void *none[2] = {NULL, NULL};
        run_threads(2, set_many, none);
    } else {
        uint64_t *bytes = malloc(sizeof *bytes);
        REQUIRE(bytes);
        memset(bytes, 'x', sizeof *bytes);
        shale_set_options beyond = {.struct_size = sizeof beyond, .new_version = bytes + 1};
        CHECK_STATUS(SHALE_OK, shale_set(cache, "key", 3, "value", 5, &beyond));
        free(bytes);
    }
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    return finish();
}
