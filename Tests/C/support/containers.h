/* Containers as container engines make them: each has PID, user, mount, IPC and UTS namespaces of its own, and, if it
 * names one, a root of its own with a volume at /volume. A process starts inside as a child of the caller, which can
 * stop and kill it by its id here. */
#ifndef CONTAINERS_H
#define CONTAINERS_H

#include "check.h"
#include "gate.h"

#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

typedef struct {
    const char *root;     /* NULL: this system's, and the volume is at the same path */
    const char *volume;   /* a directory of this system */
    const char *programs; /* one more, at /programs of `root` */
    unsigned first_user;  /* this system's number of the container's user 0; 0: all users are the same */
    bool is_read_only;    /* the volume */
    bool shares_pids;     /* has no PID namespace of its own */
    bool has_no_proc;     /* /proc is empty */
    long ahead_s;         /* its uptime is as much longer; 0: has no time namespace of its own */
    pid_t init;           /* the first process: all others end with it */
} container;

/* Writes a short file in /proc. */
static inline bool write_proc(pid_t process, const char *name, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)process, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return is_written;
}

static inline bool map_users(const container *c) {
    char map[64];
    if (geteuid() == 0)
        snprintf(map, sizeof map, "0 %u %u", c->first_user, c->first_user ? 65536u : UINT32_MAX);
    else {
        snprintf(map, sizeof map, "0 %u 1", (unsigned)geteuid());
        if (!write_proc(c->init, "setgroups", "deny"))
            return false;
    }
    if (!write_proc(c->init, "uid_map", map))
        return false;
    if (geteuid() != 0)
        snprintf(map, sizeof map, "0 %u 1", (unsigned)getegid());
    return write_proc(c->init, "gid_map", map);
}

/* Makes this process the container's root user, and lets it end with its parent. */
static inline void become_root_inside(void) {
    if (setgroups(0, NULL) < 0 && errno != EPERM)
        _exit(1);
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        _exit(1);
    die_with_parent();
}

/* In a user namespace a mount keeps the restrictions that it had outside. */
static inline bool make_read_only(const char *path) {
    struct statvfs found;
    if (mount(path, path, NULL, MS_BIND | MS_REC, NULL) < 0 || statvfs(path, &found) < 0)
        return false;
    unsigned long kept = (found.f_flag & ST_NOSUID ? MS_NOSUID : 0) | (found.f_flag & 4 ? MS_NODEV : 0) |
                         (found.f_flag & 8 ? MS_NOEXEC : 0) | (found.f_flag & 1024 ? MS_NOATIME : 0) |
                         (found.f_flag & 4096 ? MS_RELATIME : 0);
    return mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | kept, NULL) == 0;
}

static inline bool bind_inside(const char *root, const char *name, const char *from) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return mount(from, path, NULL, MS_BIND | MS_REC, NULL) == 0;
}

static inline bool make_mounts(const container *c) {
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return false;
    if (c->is_read_only && !make_read_only(c->volume))
        return false;
    if (!c->root)
        return !c->has_no_proc || mount("none", "/proc", "tmpfs", 0, NULL) == 0;
    char proc[700];
    snprintf(proc, sizeof proc, "%s/proc", c->root);
    return mount(c->root, c->root, NULL, MS_BIND | MS_REC, NULL) == 0 && bind_inside(c->root, "volume", c->volume) &&
           (!c->programs || bind_inside(c->root, "programs", c->programs)) &&
           (c->has_no_proc   ? true
            : c->shares_pids ? bind_inside(c->root, "proc", "/proc")
                             : mount("proc", proc, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0) &&
           chdir(c->root) == 0 && syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 &&
           chdir("/") == 0;
}

static inline bool leave_time(const container *c) {
    char offsets[64];
    if (c->ahead_s == 0)
        return true;
    snprintf(offsets, sizeof offsets, "monotonic %ld 0\nboottime %ld 0\n", c->ahead_s, c->ahead_s);
    int fd;
    if (unshare(CLONE_NEWTIME) < 0 || (fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC)) < 0)
        return false;
    bool is_written = write(fd, offsets, strlen(offsets)) > 0;
    close(fd);
    return is_written;
}

/* False, with errno, if this system does not permit it. Call it while no cache is open: the container's first process
 * inherits all descriptors. */
static inline bool start_container(container *c) {
    int to[2], from[2], result = 0;
    REQUIRE(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    unsigned long flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
                          (c->shares_pids ? 0 : CLONE_NEWPID);
    fflush(NULL);
    c->init = (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (c->init == 0) {
        alarm(0);
        signal(SIGCHLD, SIG_IGN); /* orphans inside become its children */
        close(to[1]);
        close(from[0]);
        if (read(to[0], &result, sizeof result) != sizeof result)
            _exit(1);
        become_root_inside();
        result = leave_time(c) && make_mounts(c) ? 0 : errno ? errno : EPERM;
        if (write(from[1], &result, sizeof result) != sizeof result || result)
            _exit(1);
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        for (;;)
            pause();
    }
    int error = errno;
    close(to[0]);
    close(from[1]);
    if (c->init > 0) {
        if (!map_users(c))
            error = errno;
        else if (write(to[1], &result, sizeof result) == sizeof result &&
                 read(from[0], &result, sizeof result) == sizeof result)
            error = result;
        else
            error = EPIPE;
    }
    close(to[1]);
    close(from[0]);
    if (c->init > 0 && error) {
        kill(c->init, SIGKILL);
        wait_for(c->init);
    }
    errno = error;
    return c->init > 0 && error == 0;
}

/* Ends all processes inside. Those that the caller started stay its zombies until it waits for them. */
static inline void kill_container(const container *c) {
    kill(c->init, SIGKILL);
}

/* Starts `work` inside: as a child of this process, although it lives in other namespaces. */
static inline pid_t start_inside(const container *c, void (*work)(void *context), void *context) {
    static const struct {
        const char *name;
        int kind;
    } spaces[] = {{"user", CLONE_NEWUSER}, {"time_for_children", CLONE_NEWTIME},
                  {"pid", CLONE_NEWPID},   {"ipc", CLONE_NEWIPC},
                  {"uts", CLONE_NEWUTS},   {"mnt", CLONE_NEWNS}};
    enum { count = sizeof spaces / sizeof *spaces };
    int ends[2];
    pid_t inner = -1;
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    fflush(NULL);
    pid_t middle = fork();
    if (middle == 0) {
        int fds[count];
        for (int i = 0; i < count; i++) {
            char path[64];
            snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)c->init, spaces[i].name);
            fds[i] = open(path, O_RDONLY | O_CLOEXEC);
        }
        for (int i = 0; i < count; i++)
            if (!(spaces[i].kind == CLONE_NEWTIME && c->ahead_s == 0) &&
                !(spaces[i].kind == CLONE_NEWPID && c->shares_pids) && setns(fds[i], spaces[i].kind) < 0) {
                perror(spaces[i].name);
                _exit(1);
            }
        inner = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
        if (inner == 0) {
            begin_child(patience);
            become_root_inside();
            work(context);
            _exit(check_failures != 0);
        }
        _exit(write(ends[1], &inner, sizeof inner) != sizeof inner);
    }
    close(ends[1]);
    if (read(ends[0], &inner, sizeof inner) != sizeof inner)
        inner = -1;
    close(ends[0]);
    CHECK_EQUAL(0, wait_for(middle));
    return inner;
}

#endif
