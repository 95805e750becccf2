/* Loads the library at run time, as Python does, and calls it from two threads.
 *
 *     load LIBRARY DIRECTORY */
#include <shale.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, dlerror()), exit(1)))

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    CHECK(found);
    return found;
}

static void *library;

/* Each thread has its own last error. */
static void *other_thread(void *unused) {
    (void)unused;
    const char *(*last_error)(void);
    *(void **)&last_error = function(library, "shale_last_error");
    CHECK(strlen(last_error()) == 0);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    CHECK(library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL));
    shale_status (*open)(const char *, const shale_options *, shale_cache **);
    shale_status (*set)(shale_cache *, const void *, size_t, const void *, size_t, const shale_set_options *);
    shale_status (*get)(shale_cache *, const void *, size_t, uint32_t, shale_value *);
    void (*free_value)(shale_value *);
    shale_status (*close)(shale_cache *);
    const char *(*last_error)(void);
    *(void **)&open = function(library, "shale_open");
    *(void **)&set = function(library, "shale_set");
    *(void **)&get = function(library, "shale_get");
    *(void **)&free_value = function(library, "shale_value_free");
    *(void **)&close = function(library, "shale_close");
    *(void **)&last_error = function(library, "shale_last_error");

    shale_options options = {.struct_size = sizeof options};
    shale_cache *cache;
    CHECK(open("/dev/null/cache", &options, &cache) < 0 && strlen(last_error()) > 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);

    CHECK(open(arguments[2], &options, &cache) == SHALE_OK);
    CHECK(set(cache, "key", 3, "value", 5, NULL) == SHALE_OK);
    shale_value value = SHALE_VALUE_INIT;
    CHECK(get(cache, "key", 3, 0, &value) == SHALE_OK);
    CHECK(value.size == 5 && memcmp(value.data, "value", 5) == 0);
    free_value(&value);
    CHECK(close(cache) == SHALE_OK);
}
