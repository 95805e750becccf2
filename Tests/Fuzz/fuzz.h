/* Shared by the fuzz targets. A target is one C file with LLVMFuzzerTestOneInput; libFuzzer makes the inputs
 * (compiled with FUZZING), or main here replays the kept ones:
 *
 *    <target> file-or-directory...
 *
 * An input is an array of commands of 16 bytes. The first one configures, the others are executed in order; their
 * meaning depends on the target. Truncated inputs are padded with zeros. Everything else is fixed (the secret, the
 * clock, the keys), so an input always does the same. */
#ifndef FUZZ_H
#define FUZZ_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shale.h"

#define UNUSED __attribute__((unused))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- commands ---------------------------------------------------------- */

typedef struct {
    uint8_t code, a, b, c;
    uint32_t d;
    uint64_t e;
} command;

enum { command_size = 16, most_commands = 256 };

/* The n-th command; false after the last. */
static inline bool read_command(const uint8_t *data, size_t size, size_t n, command *out) {
    uint8_t bytes[command_size] = {0};
    if (n >= most_commands || n * command_size >= size)
        return false;
    size_t left = size - n * command_size;
    memcpy(bytes, data + n * command_size, left < command_size ? left : command_size);
    out->code = bytes[0], out->a = bytes[1], out->b = bytes[2], out->c = bytes[3];
    memcpy(&out->d, bytes + 4, 4);
    memcpy(&out->e, bytes + 8, 8);
    return true;
}

/* ---- failures ---------------------------------------------------------- */

static inline void fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
static inline void fail(const char *file, int line, const char *format, ...) {
    fprintf(stderr, "%s:%d: ", file, line);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}
#define FAIL(...) fail(__FILE__, __LINE__, __VA_ARGS__)
#define ASSERT(expression)                                                                                             \
    do {                                                                                                               \
        if (!(expression))                                                                                             \
            FAIL("%s (%s)", #expression, shale_last_error());                                                          \
    } while (0)

/* ---- tolerances ------------------------------------------------------------ */

/* Answers that a model accepts although a cache that loses nothing would not give them: how often, of how many
 * looks. Beside each stands the heading of the documents that allows it; they are printed at the end. */
static struct {
    uint64_t looks, used[8];
    const char *why[8];
} tolerances UNUSED;

static inline void print_tolerances(void) {
    fprintf(stderr, "tolerances in %" PRIu64 " looks:", tolerances.looks);
    int shown = 0;
    for (int i = 0; i < 8; i++)
        if (tolerances.used[i])
            fprintf(stderr, "%s %s %" PRIu64 " (%.2f %%)", shown++ ? "," : "", tolerances.why[i], tolerances.used[i],
                    100.0 * (double)tolerances.used[i] / (double)tolerances.looks);
    fprintf(stderr, "%s\n", shown ? "" : " none");
}
static inline void count_look(void) {
    if (tolerances.looks++ == 0)
        atexit(print_tolerances);
}
/* Counts one use of the tolerance; returns true. */
static inline bool tolerated(int which, const char *why) {
    tolerances.used[which]++;
    tolerances.why[which] = why;
    return true;
}

/* ---- a clock that the input moves --------------------------------------- */

#define CLOCK_START INT64_C(1700000000000)
static int64_t clock_value UNUSED = CLOCK_START;
static inline int64_t clock_now(void *context) {
    (void)context;
    return clock_value;
}

/* ---- a scratch directory ------------------------------------------------- */

static char scratch[128];

static inline void scratch_remove(void) {
    DIR *directory = opendir(scratch);
    const struct dirent *entry;
    while (directory && (entry = readdir(directory)))
        (void)unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        closedir(directory);
    rmdir(scratch);
}

/* Creates it in memory if possible; created once. */
static inline const char *scratch_directory(void) {
    if (scratch[0])
        return scratch;
    const char *base = getenv("TMPDIR");
    if (!base || !*base)
        base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(scratch, sizeof scratch, "%s/shale-fuzz-XXXXXX", base);
    if (!mkdtemp(scratch))
        FAIL("mkdtemp %s: %s", scratch, strerror(errno));
    atexit(scratch_remove);
    /* A length in a file must not fill the disk. Exceeding it is an error, not a signal. */
    struct rlimit limit = {UINT64_C(64) << 20, UINT64_C(64) << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    return scratch;
}

static inline int scratch_open(const char *name, int flags) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch_directory(), name);
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        FAIL("open %s: %s", path, strerror(errno));
    return fd;
}
static inline void scratch_unlink(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch_directory(), name);
    (void)unlink(path);
}

/* ---- mappings between guards ---------------------------------------------- */

/* The linker redirects the library's mmap and munmap here (--wrap): an access before or after a file's mapping
 * crashes, and does not reach other memory. */

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t size);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t size);

enum { guard_size = 16 << 20, guarded_most = 64 };
static struct {
    char *at;
    size_t size;
} guarded[guarded_most];

static inline unsigned guarded_count(void) {
    unsigned count = 0;
    for (int i = 0; i < guarded_most; i++)
        count += guarded[i].at != NULL;
    return count;
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (at || !(flags & MAP_NORESERVE) || !(flags & MAP_SHARED))
        return __real_mmap(at, size, protection, flags, fd, offset);
    int slot = 0;
    while (slot < guarded_most && guarded[slot].at)
        slot++;
    char *whole = __real_mmap(NULL, size + 2 * (size_t)guard_size, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED)
        return MAP_FAILED;
    char *inner = __real_mmap(whole + guard_size, size, protection, flags | MAP_FIXED, fd, offset);
    if (inner == MAP_FAILED || slot == guarded_most) {
        int cause = errno;
        __real_munmap(whole, size + 2 * (size_t)guard_size);
        errno = cause;
        return MAP_FAILED;
    }
    guarded[slot].at = inner;
    guarded[slot].size = size;
    return inner;
}

int __wrap_munmap(void *at, size_t size) {
    for (int i = 0; i < guarded_most; i++)
        if (guarded[i].at == at) {
            if (guarded[i].size != size)
                FAIL("a mapping of %zu bytes is unmapped as %zu", guarded[i].size, size);
            guarded[i].at = NULL;
            return __real_munmap((char *)at - guard_size, size + 2 * (size_t)guard_size);
        }
    return __real_munmap(at, size);
}

/* ---- random numbers ------------------------------------------------------- */

static inline uint64_t random_word(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The library's secrets and marks: the input decides. */
static uint64_t random_state;
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags) {
    (void)flags;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = random_word(&random_state);
        memcpy((char *)bytes + at, &word, size - at < 8 ? size - at : 8);
    }
    return (ssize_t)size;
}

/* Descriptors and mappings that a closed or refused cache leaked. */
static inline int lowest_descriptor(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}
static inline void expect_nothing_left(int descriptor) {
    if (lowest_descriptor() != descriptor)
        FAIL("a descriptor was leaked");
    if (guarded_count() != 0)
        FAIL("a mapping was leaked");
}

#ifdef FUZZING

/* Memory that a damaged length asks for is refused, as on a small machine. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "quarantine_size_mb=8:max_allocation_size_mb=256:allocator_may_return_null=1:detect_stack_use_after_return=0";
}

/* ---- mutations that keep commands whole ----------------------------------- */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

static inline uint64_t interesting(uint64_t *state) {
    uint64_t r = random_word(state);
    switch (r >> 8 & 7) {
    case 0: return r >> 16 & 15;
    case 1: return r >> 16 & 0xff;
    case 2: return UINT64_C(1) << (r >> 16 & 63);
    case 3: return (UINT64_C(1) << (r >> 16 & 63)) - 1;
    case 4: return ~(r >> 16 & 15);
    case 5: return (r >> 16 & 0xffff) * 8;
    case 6: return (UINT64_C(1) << (r >> 16 & 63)) + (r >> 32 & 63) - 32;
    default: return random_word(state);
    }
}

static inline void random_command(uint8_t *at, uint64_t *state) {
    uint64_t small = random_word(state), d = interesting(state), e = interesting(state);
    at[0] = (uint8_t)(small & 31), at[1] = (uint8_t)(small >> 8 & 63), at[2] = (uint8_t)(small >> 16 & 31);
    at[3] = (uint8_t)(small >> 24);
    memcpy(at + 4, &d, 4);
    memcpy(at + 8, &e, 8);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    uint64_t state = seed, r = random_word(&state);
    size_t count = size / command_size, limit = most / command_size;
    if (limit > most_commands)
        limit = most_commands;
    if (count == 0 || r % 5 == 0)
        return LLVMFuzzerMutate(data, size, most);
    size = count * command_size;
    uint8_t *at = data + (r >> 8) % count * command_size;
    size_t behind = (size_t)(data + size - at);
    switch (r >> 40 & 7) {
    case 0: /* a new command */
    case 1:
        if (count >= limit)
            break;
        memmove(at + command_size, at, behind);
        random_command(at, &state);
        return size + command_size;
    case 2: /* the same once more */
        if (count >= limit)
            break;
        memmove(at + command_size, at, behind);
        return size + command_size;
    case 3: /* one less */
        if (count < 2)
            break;
        memmove(at, at + command_size, behind - command_size);
        return size - command_size;
    case 4: { /* another place */
        uint8_t *other = data + random_word(&state) % count * command_size, kept[command_size];
        memcpy(kept, at, command_size);
        memcpy(at, other, command_size);
        memcpy(other, kept, command_size);
        return size;
    }
    default: break;
    }
    /* one field of it */
    uint64_t value = interesting(&state);
    switch (r >> 48 & 7) {
    case 0: at[0] = (uint8_t)(value & 31); break;
    case 1: at[1] = (uint8_t)(value & 63); break;
    case 2: at[2] = (uint8_t)(value & 31); break;
    case 3: at[3] = (uint8_t)value; break;
    case 4:
    case 5: memcpy(at + 4, &value, 4); break;
    default: memcpy(at + 8, &value, 8); break;
    }
    return size;
}

#else

/* ---- replaying ------------------------------------------------------------ */

static inline unsigned replay(const char *path) {
    struct stat status;
    if (stat(path, &status) < 0)
        FAIL("%s: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode)) {
        struct dirent **entries;
        int count = scandir(path, &entries, NULL, alphasort);
        unsigned replayed = 0;
        for (int i = 0; i < count; i++) {
            char *inside = NULL;
            if (asprintf(&inside, "%s/%s", path, entries[i]->d_name) < 0)
                FAIL("out of memory");
            if (entries[i]->d_name[0] != '.')
                replayed += replay(inside);
            free(inside);
            free(entries[i]);
        }
        free(entries);
        return replayed;
    }
    size_t size = (size_t)status.st_size;
    uint8_t *bytes = malloc(size ? size : 1);
    FILE *file = fopen(path, "rb");
    if (!bytes || !file || fread(bytes, 1, size, file) != size)
        FAIL("cannot read %s", path);
    fclose(file);
    /* After a crash, the last line names the input. */
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    return 1;
}

int main(int count, char **paths) {
    unsigned replayed = 0;
    for (int i = 1; i < count; i++)
        replayed += replay(paths[i]);
    printf("%u inputs replayed\n", replayed);
    return 0;
}

#endif
#endif
