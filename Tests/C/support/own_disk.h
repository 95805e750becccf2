/* A small private disk: a tmpfs in the process's own mount namespace. Mounting needs privileges, and a process with
 * one thread. */
#ifndef OWN_DISK_H
#define OWN_DISK_H

#include "check.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

static inline bool write_text(const char *path, const char *text) {
    int file = open(path, O_WRONLY);
    bool done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0)
        close(file);
    return done;
}

/* `more`: more mount options, after a comma. */
static inline bool mount_own_disk_with(const char *at, uint64_t kib, const char *more) {
    uid_t user = getuid();
    gid_t group = getgid();
    char text[64];
    if (unshare(CLONE_NEWNS) < 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
            return false;
        snprintf(text, sizeof text, "0 %u 1", user);
        if (!write_text("/proc/self/setgroups", "deny") || !write_text("/proc/self/uid_map", text))
            return false;
        snprintf(text, sizeof text, "0 %u 1", group);
        if (!write_text("/proc/self/gid_map", text))
            return false;
    }
    snprintf(text, sizeof text, "size=%" PRIu64 "k%s", kib, more);
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("tmpfs", at, "tmpfs", 0, text) == 0;
}

static inline bool mount_own_disk(const char *at, uint64_t kib) {
    return mount_own_disk_with(at, kib, "");
}

#endif
