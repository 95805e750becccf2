/* Stores, closes, opens again and reads. */
#include <shale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, shale_last_error());
    return 1;
}

int main(void) {
    char directory[] = "/tmp/shale-consumer-XXXXXX", path[64];
    shale_cache *cache;
    shale_value value = SHALE_VALUE_INIT;
    int result = 0;
    if (!mkdtemp(directory))
        return 1;
    if (shale_open(directory, NULL, &cache) < 0)
        return failed("open");
    if (shale_set(cache, "key", 3, "value", 5, NULL) < 0)
        result = failed("set");
    if (shale_close(cache) < 0)
        result = failed("close");
    if (shale_open(directory, NULL, &cache) < 0)
        return failed("open");
    if (shale_get(cache, "key", 3, 0, &value) != SHALE_OK || value.size != 5 || memcmp(value.data, "value", 5) != 0)
        result = failed("get");
    shale_value_free(&value);
    shale_close(cache);
    static const char *const names[] = {"shale.data", "shale.index"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
    return result;
}
