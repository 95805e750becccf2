/* A machine in memory: two files and their names, locks, clock, allocations of two processes. Linked in place of
 * libc's functions (--wrap), so that no operation of the library makes a system call, and all state of a life can be
 * saved and restored. Outside of a process (machine.current < 0) libc's own functions are called. */
#ifndef MACHINE_H
#define MACHINE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
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
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "faults.h"

enum {
    unit = 128, /* unit of allocation, and of what a power cut leaves whole: Sizes.page */
    files = 7, /* at once: shale.data, an index, a new one, old ones that are still mapped */
    most_data = 72 << 10,
    most_index = 24 << 10,
    processes = 3,
    reader = 2, /* the last one only has a read-only handle */
    cursors = 2, /* of a process */
    descriptors = 12,
    lock_bytes = 4,
    owners = 2, /* of a process */
    heap_size = 24 << 10,
    big_size = 20 << 10,
    big_blocks = 16,
    first_descriptor = 1000,
};
#define lock_base ((int64_t)1 << 60)
#define owner_base ((int64_t)1 << 61)

typedef enum { name_data, name_index, name_new_index, names } file_name;
static const char *const file_names[names] = {"shale.data", "shale.index", "shale.index.new"};

typedef struct {
    bool exists;
    bool was_punched[most_data / unit]; /* since the last sync */
    bool allocated[most_data / unit], durably_allocated[most_data / unit];
    uint32_t size, durable_size;
    uint64_t inode;
} file;

typedef struct {
    uint8_t kind; /* 0 free, 1 the directory, 2 a file */
    uint8_t file;
    uint8_t locks[lock_bytes]; /* 0 none, 1 shared, 2 exclusive */
    uint32_t owner; /* whose byte it has locked; 0 none */
} descriptor;

/* A mapping that keeps the lock of a closed descriptor. */
typedef struct {
    uint32_t number; /* 0: free */
    uint8_t file;
} anchor;

typedef struct {
    descriptor descriptors[descriptors];
    uint8_t mapped[files];
    anchor anchors[owners];
    uint32_t heap_end;
    uint16_t big_used;
    void *handle; /* the open cache */
    void *cursors[cursors];
    uint32_t number;
} process;

/* Saved and restored as a whole. */
static struct {
    file files[files];
    int8_t names[names], durable_names[names];
    process processes[processes];
    int64_t clock_ms;
    uint64_t random, next_inode;
    uint32_t last_number; /* of a process */
    int boot;
    bool is_full; /* the disk */
} machine;

static int current_process = -1;
static bool saves_big; /* the contents of large allocations matter: prepared dictionaries */

/* One address for each file, in all processes. */
static unsigned char bytes_of_data[most_data] __attribute__((aligned(4096)));
static unsigned char bytes_of_indexes[files - 1][most_index] __attribute__((aligned(4096)));
static unsigned char durable_data[most_data], durable_indexes[files - 1][most_index];
static unsigned char anchor_pages[processes][owners];
static unsigned char heaps[processes][heap_size] __attribute__((aligned(64)));
static unsigned char bigs[processes][big_blocks][big_size] __attribute__((aligned(64)));

static unsigned char *bytes_of(int i) {
    return i == 0 ? bytes_of_data : bytes_of_indexes[i - 1];
}
static unsigned char *durable_of(int i) {
    return i == 0 ? durable_data : durable_indexes[i - 1];
}
static size_t room_of(int i) {
    return i == 0 ? most_data : most_index;
}

static void machine_failed(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- files ---------------------------------------------------------------- */

static int file_at(const void *p) {
    const unsigned char *b = p;
    if (b >= bytes_of_data && b < bytes_of_data + most_data)
        return 0;
    if (b >= bytes_of_indexes[0] && b < bytes_of_indexes[0] + sizeof bytes_of_indexes)
        return 1 + (int)((size_t)(b - bytes_of_indexes[0]) / most_index);
    return -1;
}

static bool is_referred(int i) {
    for (int n = 0; n < names; n++)
        if (machine.names[n] == i)
            return true;
    for (int p = 0; p < processes; p++) {
        if (machine.processes[p].mapped[i])
            return true;
        for (int o = 0; o < owners; o++)
            if (machine.processes[p].anchors[o].number && machine.processes[p].anchors[o].file == i)
                return true;
        for (int d = 0; d < descriptors; d++)
            if (machine.processes[p].descriptors[d].kind == 2 && machine.processes[p].descriptors[d].file == i)
                return true;
    }
    for (int n = 0; n < names; n++)
        if (machine.durable_names[n] == i)
            return true;
    return false;
}

static void free_file(int i) {
    if (machine.files[i].exists && !is_referred(i)) {
        uint32_t size = machine.files[i].size > machine.files[i].durable_size ? machine.files[i].size
                                                                              : machine.files[i].durable_size;
        memset(bytes_of(i), 0, size);
        memset(durable_of(i), 0, size);
        memset(&machine.files[i], 0, sizeof machine.files[i]);
    }
}

static uint32_t allocated_bytes(int i) {
    uint32_t sum = 0;
    for (size_t b = 0; b < room_of(i) / unit; b++)
        sum += machine.files[i].allocated[b] ? unit : 0;
    return sum;
}

/* The file's size as du counts it. */
static uint32_t disk_bytes(void) {
    uint32_t sum = 0;
    for (int n = 0; n < names; n++)
        if (machine.names[n] >= 0)
            sum += allocated_bytes(machine.names[n]);
    return sum;
}

static void allocate(int i, size_t from, size_t to) {
    for (size_t b = from / unit; b * unit < to; b++)
        machine.files[i].allocated[b] = true;
    if (to > machine.files[i].size)
        machine.files[i].size = (uint32_t)to;
}

static void make_durable(int i) {
    file *f = &machine.files[i];
    uint32_t most = f->size > f->durable_size ? f->size : f->durable_size;
    memcpy(durable_of(i), bytes_of(i), most);
    f->durable_size = f->size;
    memcpy(f->durably_allocated, f->allocated, sizeof f->allocated);
    memset(f->was_punched, 0, sizeof f->was_punched);
}

/* The file system has one journal: committing a file's blocks also commits those of the others, and the names. */
static void sync_file(int i) {
    make_durable(i);
    memcpy(machine.durable_names, machine.names, sizeof machine.names);
    for (int j = 0; j < files; j++) {
        file *f = &machine.files[j];
        if (!f->exists || j == i)
            continue;
        for (size_t b = 0; b < room_of(j) / unit; b++)
            if (f->was_punched[b] || !f->allocated[b])
                memset(durable_of(j) + b * unit, 0, unit);
        memcpy(f->durably_allocated, f->allocated, sizeof f->allocated);
        memset(f->was_punched, 0, sizeof f->was_punched);
        f->durable_size = f->size;
    }
}

/* ---- processes ------------------------------------------------------------ */

static descriptor *descriptor_of(int fd) {
    int i = fd - first_descriptor - current_process * descriptors;
    if (current_process < 0 || i < 0 || i >= descriptors || !machine.processes[current_process].descriptors[i].kind)
        return NULL;
    return &machine.processes[current_process].descriptors[i];
}

static int new_descriptor(int kind, int f) {
    process *p = &machine.processes[current_process];
    for (int i = 0; i < descriptors; i++)
        if (!p->descriptors[i].kind) {
            p->descriptors[i] = (descriptor){(uint8_t)kind, (uint8_t)f, {0, 0, 0}, 0};
            return first_descriptor + current_process * descriptors + i;
        }
    machine_failed("a process has more than %d descriptors open", descriptors);
}

/* Whether a process has locked an owner's byte. */
static bool is_owner(int f, uint32_t number) {
    for (int p = 0; p < processes; p++) {
        for (int i = 0; i < owners; i++)
            if (machine.processes[p].anchors[i].number == number && machine.processes[p].anchors[i].file == f)
                return number != 0;
        for (int i = 0; i < descriptors; i++) {
            const descriptor *d = &machine.processes[p].descriptors[i];
            if (d->kind == 2 && d->owner == number && d->file == f)
                return number != 0;
        }
    }
    return false;
}

/* From now on its locks are those of a dead owner. */
static void process_ends(int p) {
    memset(&machine.processes[p], 0, sizeof machine.processes[p]);
    for (int i = 0; i < files; i++)
        free_file(i);
}

/* ---- a snapshot ----------------------------------------------------------- */

typedef struct {
    size_t room, used;
    unsigned char *bytes;
} snapshot;

static void put_bytes(snapshot *s, const void *from, size_t n) {
    if (s->used + n > s->room) {
        s->room = (s->used + n) * 2;
        s->bytes = realloc(s->bytes, s->room);
        if (!s->bytes)
            abort();
    }
    memcpy(s->bytes + s->used, from, n);
    s->used += n;
}

static void machine_save(snapshot *s) {
    s->used = 0;
    put_bytes(s, &machine, sizeof machine);
    for (int i = 0; i < files; i++) {
        put_bytes(s, bytes_of(i), machine.files[i].size);
        put_bytes(s, durable_of(i), machine.files[i].durable_size);
    }
    for (int p = 0; p < processes; p++) {
        put_bytes(s, heaps[p], machine.processes[p].heap_end);
        for (int i = 0; saves_big && i < big_blocks; i++)
            if (machine.processes[p].big_used & 1 << i)
                put_bytes(s, bigs[p][i], big_size);
    }
}

static size_t machine_restore(const snapshot *s) {
    uint32_t sizes[files], durable[files];
    for (int i = 0; i < files; i++)
        sizes[i] = machine.files[i].size, durable[i] = machine.files[i].durable_size;
    memcpy(&machine, s->bytes, sizeof machine);
    size_t at = sizeof machine;
    for (int i = 0; i < files; i++) {
        file *f = &machine.files[i];
        memcpy(bytes_of(i), s->bytes + at, f->size);
        at += f->size;
        memcpy(durable_of(i), s->bytes + at, f->durable_size);
        at += f->durable_size;
        if (sizes[i] > f->size)
            memset(bytes_of(i) + f->size, 0, sizes[i] - f->size);
        if (durable[i] > f->durable_size)
            memset(durable_of(i) + f->durable_size, 0, durable[i] - f->durable_size);
    }
    for (int p = 0; p < processes; p++) {
        memcpy(heaps[p], s->bytes + at, machine.processes[p].heap_end);
        at += machine.processes[p].heap_end;
        for (int i = 0; saves_big && i < big_blocks; i++)
            if (machine.processes[p].big_used & 1 << i) {
                memcpy(bigs[p][i], s->bytes + at, big_size);
                at += big_size;
            }
    }
    return at;
}

static void machine_start(void) {
    for (int i = 0; i < files; i++) {
        memset(bytes_of(i), 0, room_of(i));
        memset(durable_of(i), 0, room_of(i));
    }
    memset(&machine, 0, sizeof machine);
    for (int n = 0; n < names; n++)
        machine.names[n] = machine.durable_names[n] = -1;
    machine.clock_ms = 1700000000000;
    machine.next_inode = 100;
}

/* ---- in place of libc's --------------------------------------------------- */

#define WRAP(result, name, ...)                                                                                        \
    result __real_##name(__VA_ARGS__);                                                                                 \
    result __wrap_##name(__VA_ARGS__);                                                                                 \
    result __wrap_##name(__VA_ARGS__)

static int fail(int e) {
    errno = e;
    return -1;
}

/* Blocks of a size and a mark whether they are taken; large ones (the compressor's working memory) are kept apart. */
typedef struct {
    uint32_t size, is_taken;
    uint64_t padding;
} block_header;

static void *take(size_t n) {
    process *p = &machine.processes[current_process];
    if (n >= 8 << 10) {
        for (int i = 0; i < big_blocks; i++)
            if (!(p->big_used & 1 << i)) {
                if (n > big_size)
                    machine_failed("an allocation of %zu bytes", n);
                p->big_used |= (uint16_t)(1 << i);
                return bigs[current_process][i];
            }
        return NULL;
    }
    n = (n + 63) & ~(size_t)63; /* 64: the largest alignment in use */
    unsigned char *heap = heaps[current_process];
    uint32_t at = 48, end = p->heap_end ? p->heap_end : at;
    for (block_header *b; at < end; at += b->size + 64) {
        b = (block_header *)(void *)(heap + at);
        if (!b->is_taken && b->size == n) {
            b->is_taken = 1;
            return heap + at + 16;
        }
    }
    if (at + 64 + n > heap_size)
        machine_failed("a process has allocated more than %d bytes", heap_size);
    *(block_header *)(void *)(heap + at) = (block_header){(uint32_t)n, 1, 0};
    p->heap_end = at + 64 + (uint32_t)n;
    return heap + at + 16;
}

WRAP(void *, malloc, size_t n) {
    return current_process < 0 ? __real_malloc(n) : take(n);
}
WRAP(void *, calloc, size_t count, size_t n) {
    if (current_process < 0)
        return __real_calloc(count, n);
    void *p = take(count * n);
    return p ? memset(p, 0, count * n) : NULL;
}
WRAP(int, posix_memalign, void **p, size_t alignment, size_t n) {
    if (current_process < 0)
        return __real_posix_memalign(p, alignment, n);
    *p = take(n);
    return *p ? 0 : ENOMEM;
}
WRAP(char *, strdup, const char *text) {
    return current_process < 0 ? __real_strdup(text) : strcpy(take(strlen(text) + 1), text);
}
WRAP(void, free, void *p) {
    unsigned char *b = p;
    for (int i = 0; i < processes; i++) {
        if (b >= heaps[i] && b < heaps[i] + heap_size) {
            ((block_header *)(void *)(b - 16))->is_taken = 0;
            return;
        }
        for (int j = 0; j < big_blocks; j++)
            if (b == bigs[i][j]) {
                machine.processes[i].big_used &= (uint16_t)~(1 << j);
                return;
            }
    }
    __real_free(p);
}

WRAP(int, openat, int directory, const char *path, int flags, ...) {
    int fd;
    if (strcmp(path, ".") == 0)
        return new_descriptor(1, 0);
    if (sscanf(path, "/proc/self/fd/%d", &fd) == 1 && descriptor_of(fd))
        return new_descriptor(2, descriptor_of(fd)->file);
    for (int n = 0; n < names; n++) {
        if (strcmp(path, file_names[n]) != 0)
            continue;
        if (machine.names[n] >= 0 && flags & O_EXCL)
            return fail(EEXIST);
        if (machine.names[n] < 0) {
            if (!(flags & O_CREAT))
                return fail(ENOENT);
            for (int i = n == name_data ? 0 : 1; i < (n == name_data ? 1 : files); i++)
                if (!machine.files[i].exists) {
                    machine.files[i].exists = true;
                    machine.files[i].inode = machine.next_inode++;
                    machine.names[n] = (int8_t)i;
                    return new_descriptor(2, i);
                }
            machine_failed("more than %d files at once", files);
        }
        return new_descriptor(2, machine.names[n]);
    }
    (void)directory;
    machine_failed("a file named %s", path);
}
WRAP(int, open, const char *path, int flags, ...) {
    if (current_process >= 0 && flags & O_DIRECTORY)
        return new_descriptor(1, 0);
    if (current_process >= 0)
        return fail(ENOENT);
    return openat(AT_FDCWD, path, flags, 0600);
}
WRAP(int, close, int fd) {
    descriptor *d = descriptor_of(fd);
    if (!d)
        return current_process < 0 ? __real_close(fd) : fail(EBADF);
    int f = d->file, kind = d->kind;
    memset(d, 0, sizeof *d);
    if (kind == 2)
        free_file(f);
    return 0;
}
WRAP(int, mkdir, const char *path, mode_t mode) {
    return current_process < 0 ? __real_mkdir(path, mode) : fail(EEXIST);
}
WRAP(int, unlinkat, int directory, const char *path, int flags) {
    (void)directory, (void)flags;
    for (int n = 0; n < names; n++)
        if (strcmp(path, file_names[n]) == 0) {
            int i = machine.names[n];
            if (i < 0)
                return fail(ENOENT);
            machine.names[n] = -1;
            free_file(i);
            return 0;
        }
    return fail(ENOENT);
}
WRAP(int, renameat, int from_directory, const char *from, int to_directory, const char *to) {
    (void)from_directory, (void)to_directory;
    int a = -1, b = -1;
    for (int n = 0; n < names; n++) {
        if (strcmp(from, file_names[n]) == 0)
            a = n;
        if (strcmp(to, file_names[n]) == 0)
            b = n;
    }
    if (a < 0 || b < 0 || machine.names[a] < 0)
        return fail(ENOENT);
    int old = machine.names[b];
    machine.names[b] = machine.names[a];
    machine.names[a] = -1;
    if (old >= 0)
        free_file(old);
    return 0;
}
WRAP(ssize_t, pread, int fd, void *to, size_t n, off_t at) {
    descriptor *d = descriptor_of(fd);
    if (!d)
        return current_process < 0 ? __real_pread(fd, to, n, at) : fail(EBADF);
    uint32_t size = machine.files[d->file].size;
    if (at >= size)
        return 0;
    if (n > size - (size_t)at)
        n = size - (size_t)at;
    memcpy(to, bytes_of(d->file) + at, n);
    return (ssize_t)n;
}
WRAP(ssize_t, pwrite, int fd, const void *from, size_t n, off_t at) {
    descriptor *d = descriptor_of(fd);
    if (!d)
        return current_process < 0 ? __real_pwrite(fd, from, n, at) : fail(EBADF);
    allocate(d->file, (size_t)at, (size_t)at + n);
    memcpy(bytes_of(d->file) + at, from, n);
    return (ssize_t)n;
}
WRAP(int, fdatasync, int fd) {
    descriptor *d = descriptor_of(fd);
    if (!d)
        return fail(EBADF);
    if (d->kind == 1)
        memcpy(machine.durable_names, machine.names, sizeof machine.names);
    else
        sync_file(d->file);
    return 0;
}
WRAP(int, fsync, int fd) {
    return current_process < 0 ? __real_fsync(fd) : fdatasync(fd);
}
WRAP(int, fchmod, int fd, mode_t mode) {
    (void)mode;
    return descriptor_of(fd) ? 0 : fail(EBADF);
}
/* The other process's operations before, or after, space is allocated. */
static void go_on_elsewhere(bool is_after);

WRAP(int, fallocate, int fd, int mode, off_t at, off_t n) {
    descriptor *d = descriptor_of(fd);
    if (!d)
        return fail(EBADF);
    if (!(mode & 2))
        go_on_elsewhere(false);
    file *f = &machine.files[d->file];
    size_t from = (size_t)at, to = (size_t)(at + n);
    if (!(mode & 2)) {
        if (to > room_of(d->file))
            machine_failed("%s is to have %zu bytes", d->file ? "shale.index" : "shale.data", to);
        if (machine.is_full)
            for (size_t b = from / unit; b * unit < to; b++)
                if (!f->allocated[b])
                    return fail(ENOSPC);
        allocate(d->file, from, to);
        go_on_elsewhere(true);
        return 0;
    }
    if (to > f->size)
        to = f->size;
    for (size_t b = (from + unit - 1) / unit; (b + 1) * unit <= to || (b * unit < to && to == f->size); b++) {
        memset(bytes_of(d->file) + b * unit, 0, unit);
        f->allocated[b] = false;
        f->was_punched[b] = true;
    }
    return 0;
}
WRAP(int, ftruncate, int fd, off_t n) {
    descriptor *d = descriptor_of(fd);
    if (!d)
        return fail(EBADF);
    file *f = &machine.files[d->file];
    size_t from = (size_t)n;
    /* A store beyond the end would raise a signal. */
    for (int p = 0; p < processes; p++)
        if (p != current_process && machine.processes[p].mapped[d->file])
            machine_failed("a file is made shorter that another process has mapped");
    for (size_t b = from / unit; b * unit < f->size; b++) {
        if (f->allocated[b])
            machine_failed("%s is made shorter, and had blocks at %zu", d->file ? "shale.index" : "shale.data",
                           b * unit);
        memset(bytes_of(d->file) + b * unit, 0, unit);
        f->was_punched[b] = true;
    }
    f->size = (uint32_t)n;
    return 0;
}
WRAP(int, fcntl, int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    struct flock *l = va_arg(arguments, struct flock *);
    va_end(arguments);
    descriptor *d = descriptor_of(fd);
    if (!d)
        return fail(EBADF);
    if (l->l_start >= owner_base && l->l_start < owner_base + (1 << 30)) {
        uint32_t number = (uint32_t)(l->l_start - owner_base);
        bool has = is_owner(d->file, number);
        if (command == 36 /* F_OFD_GETLK */)
            l->l_type = has ? F_WRLCK : F_UNLCK;
        else if (has)
            return fail(EAGAIN);
        else
            d->owner = number;
        return 0;
    }
    /* (The marks by which a process names itself as a lock's holder are further on.) */
    if (l->l_start >= lock_base + lock_bytes) {
        if (command == 36 /* F_OFD_GETLK */)
            l->l_type = F_UNLCK;
        return 0;
    }
    int byte = (int)(l->l_start - lock_base);
    if (l->l_len == 0 && l->l_type == F_UNLCK) {
        memset(d->locks + byte, 0, (size_t)(lock_bytes - byte));
        return 0;
    }
    bool is_taken = false;
    int wanted = l->l_type == F_WRLCK ? 2 : l->l_type == F_RDLCK ? 1 : 0;
    for (int p = 0; p < processes; p++)
        for (int i = 0; i < descriptors; i++) {
            descriptor *other = &machine.processes[p].descriptors[i];
            if (other != d && other->kind == 2 && other->file == d->file && other->locks[byte] &&
                (wanted == 2 || other->locks[byte] == 2))
                is_taken = wanted != 0;
        }
    if (command == 36 /* F_OFD_GETLK */) {
        l->l_type = is_taken ? F_RDLCK : F_UNLCK;
        return 0;
    }
    if (is_taken && command == 38 /* F_OFD_SETLKW */)
        machine_failed("a process waits for a lock that is never released");
    if (is_taken)
        return fail(EAGAIN);
    d->locks[byte] = (uint8_t)wanted;
    return 0;
}
WRAP(void *, mmap, void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    if (current_process < 0)
        return __real_mmap(at, n, protection, flags, fd, offset);
    static unsigned char room;
    if (flags & MAP_ANONYMOUS && protection != PROT_NONE && n == 4096) /* an owner's number */
        return memset(take(64), 0, 64);
    if (flags & MAP_ANONYMOUS)
        return &room; /* part of the mapping */
    descriptor *d = descriptor_of(fd);
    if (!d)
        return errno = EBADF, MAP_FAILED;
    if (d->owner) {
        anchor *anchors = machine.processes[current_process].anchors;
        for (int i = 0; i < owners; i++)
            if (!anchors[i].number) {
                anchors[i] = (anchor){d->owner, d->file};
                return &anchor_pages[current_process][i];
            }
        machine_failed("a process has more than %d owners", owners);
    }
    if (n > room_of(d->file))
        machine_failed("a mapping of %zu bytes", n);
    machine.processes[current_process].mapped[d->file]++;
    return bytes_of(d->file);
}
WRAP(int, munmap, void *at, size_t n) {
    if (current_process < 0)
        return __real_munmap(at, n);
    int f = file_at(at);
    const unsigned char *page = at;
    if (page >= anchor_pages[current_process] && page < anchor_pages[current_process] + owners)
        machine.processes[current_process].anchors[page - anchor_pages[current_process]].number = 0;
    else if (page >= heaps[current_process] && page < heaps[current_process] + heap_size)
        free(at);
    else if (f >= 0) {
        machine.processes[current_process].mapped[f]--;
        free_file(f);
    }
    return 0;
}
WRAP(int, mprotect, void *at, size_t n, int protection) {
    if (current_process < 0)
        return __real_mprotect(at, n, protection);
    /* (A reader's private memory is not part of the cache that the others see.) */
    if (current_process == reader && protection & PROT_WRITE)
        return errno = ENOMEM, -1;
    return 0;
}
WRAP(int, madvise, void *at, size_t n, int advice) {
    return current_process < 0 ? __real_madvise(at, n, advice) : 0;
}
WRAP(int, mincore, void *at, size_t n, unsigned char *resident) {
    if (current_process < 0)
        return __real_mincore(at, n, resident);
    *resident = 1;
    return 0;
}
static int look(int i, struct stat *s) {
    memset(s, 0, sizeof *s);
    s->st_mode = i < 0 ? S_IFDIR | 0700 : S_IFREG | 0600;
    s->st_nlink = 1;
    s->st_uid = geteuid();
    s->st_dev = 7;
    s->st_ino = i < 0 ? 2 : machine.files[i].inode;
    s->st_size = i < 0 ? 0 : machine.files[i].size;
    s->st_blocks = i < 0 ? 0 : allocated_bytes(i) / 512; /* (whole ones) */
    return 0;
}
WRAP(int, fstat, int fd, struct stat *s) {
    descriptor *d = descriptor_of(fd);
    if (!d)
        return current_process < 0 ? __real_fstat(fd, s) : fail(EBADF);
    return look(d->kind == 1 ? -1 : d->file, s);
}
WRAP(int, stat, const char *path, struct stat *s) {
    return current_process < 0 ? __real_stat(path, s) : look(-1, s);
}
WRAP(int, fstatat, int directory, const char *path, struct stat *s, int flags) {
    (void)directory, (void)flags;
    for (int n = 0; n < names; n++)
        if (strcmp(path, file_names[n]) == 0)
            return machine.names[n] < 0 ? fail(ENOENT) : look(machine.names[n], s);
    return fail(ENOENT);
}
WRAP(int, fstatfs, int fd, struct statfs *s) {
    (void)fd;
    memset(s, 0, sizeof *s);
    return 0;
}
WRAP(ssize_t, getrandom, void *p, size_t n, unsigned flags) {
    if (current_process < 0)
        return __real_getrandom(p, n, flags);
    for (size_t i = 0; i < n; i++) {
        machine.random = machine.random * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)p)[i] = (unsigned char)(machine.random >> 56);
    }
    return (ssize_t)n;
}
WRAP(int, ioctl, int fd, unsigned long request, ...) {
    (void)fd, (void)request;
    return fail(ENOTTY);
}
WRAP(DIR *, fdopendir, int fd) {
    close(fd);
    return (DIR *)(void *)bytes_of_data;
}
WRAP(struct dirent *, readdir, DIR *d) {
    (void)d;
    return NULL;
}
WRAP(int, closedir, DIR *d) {
    (void)d;
    return 0;
}
WRAP(int, clock_gettime, clockid_t clock, struct timespec *t) {
    if (current_process < 0)
        return __real_clock_gettime(clock, t);
    t->tv_sec = machine.clock_ms / 1000;
    t->tv_nsec = machine.clock_ms % 1000 * 1000000;
    return 0;
}
WRAP(pid_t, getpid, void) {
    if (current_process < 0)
        return __real_getpid();
    process *p = &machine.processes[current_process];
    if (!p->number)
        p->number = 1 + machine.last_number++ % 1000000;
    return (pid_t)p->number;
}
WRAP(int, nanosleep, const struct timespec *t, struct timespec *left) {
    if (current_process < 0)
        return __real_nanosleep(t, left);
    /* (A microsecond between two holds gives way to a waiter, and a killed one may have left the lock's bit.) */
    if (current_process != reader && (t->tv_sec || t->tv_nsec > 1000))
        machine_failed("a process sleeps, and nothing wakes it");
    shim_faults.uptime_ahead += 1000; /* it waits for a rebuild that no process continues */
    return 0;
}
WRAP(int, getrlimit, int which, struct rlimit *limit) {
    if (current_process < 0)
        return __real_getrlimit((__rlimit_resource_t)which, limit);
    limit->rlim_cur = limit->rlim_max = RLIM_INFINITY;
    return 0;
}

/* A waiter of a lock: its owner must have ended. (statx: unknown.) */
WRAP(long, syscall, long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    long a[6];
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (current_process < 0)
        return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number != SYS_futex)
        return fail(ENOSYS);
    const uint32_t *word = (const uint32_t *)a[0]; /* NOLINT: as the kernel gets it */
    if (a[1] == 1 /* FUTEX_WAKE */)
        return 0;
    if (is_owner(file_at(word), *word & 0x3fffffff))
        machine_failed("a process waits for a lock that a living process holds");
    return fail(ETIMEDOUT);
}

#endif
