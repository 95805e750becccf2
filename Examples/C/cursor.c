/* Iterates over all entries. Writers may run at the same time, and the order of use does not change.
 *
 *     cc cursor.c $(pkg-config --cflags --libs shale) -o cursor && ./cursor DIRECTORY */
#include <shale.h>
#include <stdio.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, shale_last_error());
    return 1;
}

int main(int argument_count, char **arguments) {
    if (argument_count != 2)
        return fprintf(stderr, "usage: cursor DIRECTORY\n"), 2;
    shale_cache *cache;
    if (shale_open(arguments[1], NULL, &cache) < 0)
        return failed("open");
    for (int number = 1; number <= 3; number++) {
        char key[16], text[16];
        int key_size = snprintf(key, sizeof key, "number %d", number);
        int size = snprintf(text, sizeof text, "%d", number * number);
        if (shale_set(cache, key, (size_t)key_size, text, (size_t)size, NULL) < 0)
            return failed("set");
    }

    shale_cursor *cursor;
    if (shale_cursor_open(cache, &cursor) < 0)
        return failed("cursor");
    shale_value key = SHALE_VALUE_INIT, value = SHALE_VALUE_INIT;
    shale_status status;
    while ((status = shale_cursor_next(cursor, 0, &key, &value)) == SHALE_OK)
        printf("%.*s: %.*s\n", (int)key.size, (const char *)key.data, (int)value.size, (const char *)value.data);
    int result = status == SHALE_END ? 0 : failed("next");
    shale_value_free(&key);
    shale_value_free(&value);
    shale_cursor_close(cursor); /* before shale_close */
    return shale_close(cache) < 0 ? failed("close") : result;
}
