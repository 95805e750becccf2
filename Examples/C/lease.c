/* Loading under a lease: when callers in several processes miss a key, one loads it and the others wait for the value.
 *
 *     cc lease.c $(pkg-config --cflags --libs shale) -o lease && ./lease DIRECTORY */
#include <shale.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, shale_last_error());
    return 1;
}

static int read_or_load(shale_cache *cache) {
    shale_lease_options options = {.struct_size = sizeof options, .wait_ms = 60 * 1000};
    shale_value value = SHALE_VALUE_INIT;
    uint64_t lease;
    shale_status status = shale_lease(cache, "page", 4, &options, &value, &lease);
    int result = status < 0 ? failed("lease") : 0;
    if (lease) { /* this caller has to load */
        printf("loaded\n");
        if (shale_set(cache, "page", 4, "its text", 8, NULL) < 0)
            result = failed("set");
        shale_release(cache, "page", 4, lease);
    } else if (status == SHALE_OK)
        printf("read: %.*s\n", (int)value.size, (const char *)value.data);
    shale_value_free(&value);
    return result;
}

int main(int argument_count, char **arguments) {
    if (argument_count != 2)
        return fprintf(stderr, "usage: lease DIRECTORY\n"), 2;
    shale_cache *cache;
    if (shale_open(arguments[1], NULL, &cache) < 0)
        return failed("open");
    pid_t child = fork(); /* parent and child both use the handle; each closes it once */
    int result = read_or_load(cache);
    if (shale_close(cache) < 0)
        result = failed("close");
    int left = 0;
    if (child > 0)
        waitpid(child, &left, 0);
    return result || left;
}
