/* Counts a process's resources and a directory's disk usage, for tests that look for leaks.
 *
 * The linker's --wrap counts allocations (see faults/CMakeLists.txt), so only those of the library and of the test
 * itself count, none of libc's own. */
#ifndef RESOURCES_H
#define RESOURCES_H

#include "check.h"
#include "usage.h"

#include <dirent.h>
#include <sys/stat.h>

static long resources_allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
int __real_posix_memalign(void **memory, size_t alignment, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t size) {
    void *memory = __real_malloc(size);
    resources_allocations += memory != NULL;
    return memory;
}

void *__wrap_calloc(size_t count, size_t size) {
    void *memory = __real_calloc(count, size);
    resources_allocations += memory != NULL;
    return memory;
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t size) {
    int error = __real_posix_memalign(memory, alignment, size);
    resources_allocations += error == 0;
    return error;
}

char *__wrap_strdup(const char *text) {
    char *copy = __real_strdup(text);
    resources_allocations += copy != NULL;
    return copy;
}

void __wrap_free(void *memory) {
    resources_allocations -= memory != NULL;
    __real_free(memory);
}

typedef struct {
    long descriptors, mappings, allocations;
} resources;

static inline resources resources_now(void) {
    resources now = {.allocations = resources_allocations};
    DIR *descriptors = opendir("/proc/self/fd");
    if (!descriptors)
        abort();
    while (readdir(descriptors))
        now.descriptors++;
    closedir(descriptors);
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps)
        abort();
    static char line[8192];
    while (fgets(line, sizeof line, maps)) {
        const char *permissions = strchr(line, ' ');
        if (permissions && permissions[4] == 's')
            now.mappings++;
    }
    fclose(maps);
    return now;
}

#endif
