/* A first cache: open, store, read, close. shale_last_error describes a failure.
 *
 *     cc first_cache.c $(pkg-config --cflags --libs shale) -o first_cache && ./first_cache DIRECTORY */
#include <shale.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, shale_last_error());
    return 1;
}

int main(int argument_count, char **arguments) {
    if (argument_count != 2)
        return fprintf(stderr, "usage: first_cache DIRECTORY\n"), 2;
    shale_options options = {.struct_size = sizeof options, .capacity = 64 << 20};
    shale_cache *cache;
    if (shale_open(arguments[1], &options, &cache) < 0)
        return failed("open");

    const char *text = "a fine-grained rock that splits into layers";
    shale_set_options for_an_hour = {.struct_size = sizeof for_an_hour, .max_age_ms = 3600 * 1000};
    int result = 0;
    if (shale_set(cache, "shale", 5, text, strlen(text), &for_an_hour) < 0)
        result = failed("set");

    /* A negative status is an error; a miss is not. One shale_value can be used for many reads. */
    shale_value value = SHALE_VALUE_INIT;
    const char *keys[] = {"shale", "slate"};
    for (int i = 0; i < 2; i++) {
        shale_status status = shale_get(cache, keys[i], strlen(keys[i]), 0, &value);
        if (status < 0)
            result = failed("get");
        else if (status == SHALE_OK)
            printf("%s: %.*s\n", keys[i], (int)value.size, (const char *)value.data);
        else
            printf("%s: %s\n", keys[i], shale_status_text(status));
    }
    shale_value_free(&value);

    if (shale_close(cache) < 0) /* the last handle to close syncs the cache */
        result = failed("close");
    return result;
}
