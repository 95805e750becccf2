#define _GNU_SOURCE
#include "platform.h"

#ifdef SHALE_FAULTS
#include <sys/syscall.h>

struct shim_counts *shim_counts;
_Thread_local struct shim_section shim_section_now;
uint64_t shim_stop_above[SHIM_COUNTS] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
static const char *stopped_call;

/* Runs before main and makes its own system calls: Tests/Explore replaces libc's functions, other tests limit the files
 * that a process may open. */
static void map_file(const char *path) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    void *p = MAP_FAILED;
    if (fd >= 0) {
        if (syscall(SYS_lseek, fd, 0L, SEEK_END) >= (long)sizeof(struct shim_counts) ||
            syscall(SYS_ftruncate, fd, (long)sizeof(struct shim_counts)) == 0)
            p = (void *)syscall(SYS_mmap, NULL, sizeof(struct shim_counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
        syscall(SYS_close, fd);
    }
    if (p == MAP_FAILED)
        fprintf(stderr, "SHALE_LOCK_COUNTS: cannot map %s\n", path);
    else
        shim_counts = (struct shim_counts *)p;
}

/* SHALE_LOCK_STOP="CALL SLOTS RECORDS READ APPENDED", with 0 for no limit. */
static void set_stop(const char *text) {
    const char *end = strchr(text, ' ');
    if (!end) return;
    stopped_call = strndup(text, (size_t)(end - text));
    for (int i = 0; i < SHIM_COUNTS; i++) {
        char *next;
        uint64_t most = strtoull(end, &next, 10);
        end = next;
        if (most) shim_stop_above[i] = most;
    }
}

__attribute__((constructor)) static void begin_counting(void) {
    const char *path = getenv("SHALE_LOCK_COUNTS"), *stop = getenv("SHALE_LOCK_STOP");
    if (path) map_file(path);
    if (stop) set_stop(stop);
}

static size_t name_length(const char *call) { return strcspn(call, "("); }

void shim_stop(enum shim_count which) {
    const struct shim_section *now = &shim_section_now;
    if (!now->call || now->hold.rest || !stopped_call || name_length(now->call) != strlen(stopped_call) ||
        strncmp(now->call, stopped_call, strlen(stopped_call)) != 0)
        return;
    fprintf(stderr, "%s: %llu slots, %llu records, %llu bytes read, %llu appended in one hold\n", stopped_call,
            (unsigned long long)now->hold.counts[SHIM_SLOTS], (unsigned long long)now->hold.counts[SHIM_RECORDS],
            (unsigned long long)now->hold.counts[SHIM_BYTES_READ],
            (unsigned long long)now->hold.counts[SHIM_BYTES_APPENDED]);
    (void)which;
    abort();
}

/* The row of a call, taken by the first thread that asks. (All threads write the same name.) */
static struct shim_call_counts *row_of(const char *call) {
    uint64_t name[4] = {0};
    size_t length = name_length(call);
    memcpy(name, call, length < sizeof name - 1 ? length : sizeof name - 1);
    uint64_t key = XXH3_64bits(name, sizeof name) | 1;
    for (int i = 0; i < SHIM_CALLS; i++) {
        struct shim_call_counts *row = &shim_counts->calls[i];
        uint64_t found = __atomic_load_n(&row->key, __ATOMIC_RELAXED);
        if (found == 0 && __atomic_compare_exchange_n(&row->key, &found, key, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            found = key;
        if (found != key) continue;
        for (int j = 0; j < 4; j++) __atomic_store_n(&row->name[j], name[j], __ATOMIC_RELAXED);
        return row;
    }
    return NULL;
}

static void raise_to(uint64_t *most, uint64_t n) {
    uint64_t old = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (old < n && !__atomic_compare_exchange_n(most, &old, n, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static uint64_t faults(void) {
    struct rusage usage;
    return syscall(SYS_getrusage, 1 /* RUSAGE_THREAD */, &usage) < 0 ? 0 : (uint64_t)usage.ru_majflt;
}

static void note(struct shim_section *section) {
    uint64_t before = section->hold.faults;
    section->hold.faults = faults();
    const char *call = section->hold.rest ? section->hold.rest : section->call;
    struct shim_call_counts *row = shim_counts ? row_of(call ? call : "other") : NULL;
    if (!row) return;
    const uint64_t *counts = section->hold.counts;
    __atomic_fetch_add(&row->holds, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&row->faults, section->hold.faults - before, __ATOMIC_RELAXED);
    section->appended += counts[SHIM_BYTES_APPENDED];
    for (int i = 0; i < SHIM_COUNTS; i++) raise_to(&row->most[i], counts[i]);
    if (counts[SHIM_BYTES_READ] > 16 * counts[SHIM_BYTES_APPENDED])
        raise_to(&row->bytes_unpaid, counts[SHIM_BYTES_READ]);
}

struct shim_section shim_call(const void *name) {
    struct shim_section outer = shim_section_now;
    shim_section_now.call = name;
    shim_section_now.pass_slots = shim_section_now.appended = 0;
    shim_section_now.hold.lock = NULL;
    return outer;
}

struct shim_section shim_part(const void *name) {
    struct shim_section outer = shim_section_now;
    shim_section_now.call = name;
    shim_section_now.pass_slots = shim_section_now.appended = 0;
    memset(shim_section_now.hold.counts, 0, sizeof outer.hold.counts);
    return outer;
}

static void note_passes(const struct shim_section *section) {
    if (!shim_counts || !section->call || section->pass_slots <= section->appended / 2) return;
    struct shim_call_counts *row = row_of(section->call);
    if (row) raise_to(&row->passes_unpaid, section->pass_slots - section->appended / 2);
}

void shim_leave(struct shim_section outer) {
    if (shim_section_now.hold.lock) note(&shim_section_now);
    note_passes(&shim_section_now);
    shim_section_now = outer;
}

void shim_rest_of_hold(const void *name) {
    struct shim_hold *hold = &shim_section_now.hold;
    if (!hold->lock) return;
    note(&shim_section_now);
    hold->rest = name;
    memset(hold->counts, 0, sizeof hold->counts);
}

void shim_hold_begins(const void *lock, const void *table, size_t table_size, const void *log, size_t log_size) {
    if (!shim_counts) return;
    shim_section_now.hold = (struct shim_hold){lock, (uintptr_t)table, table_size, (uintptr_t)log, log_size, 0, {0},
                                               NULL, faults()};
}

void shim_hold_ends(const void *lock) {
    if (shim_section_now.hold.lock == lock) note(&shim_section_now);
    shim_section_now.hold.lock = NULL;
}
#endif
