/* A writer that is killed in the middle of a set, whose shard is recovered by the next process that locks it; and
 * one that is killed in a rebuild, which is then repeated. For programs that link shale_faults. */
#ifndef KILLED_H
#define KILLED_H

#include "check.h"
#include "faults.h"
#include "files.h"
#include "layout.h"

static inline void kill_before_store(const void *at UNUSED) {
    static int stores;
    if (++stores == 5) /* past those that mark the change */
        kill(getpid(), SIGKILL);
}

/* A child does it with the inherited handle; its shard is that of `key`. */
static inline void kill_a_writer(shale_cache *cache, const char *key) {
    pid_t child = fork();
    if (child == 0) {
        begin_child(30);
        shim_faults.call = NULL;
        shim_faults.store = kill_before_store;
        set_text(cache, key, "unfinished", NULL);
        _exit(1);
    }
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
}

/* Leaves the only shard as a process does that is killed while it rebuilds its index. */
static inline void mark_as_being_rebuilt(const char *directory) {
    uint64_t rebuilding = 2;
    int fd = open_file(directory, "shale.index", O_WRONLY);
    CHECK_EQUAL(8, pwrite(fd, &rebuilding, 8, index_head_bytes + shard_state));
    close(fd);
}

#endif
