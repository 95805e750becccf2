#define _GNU_SOURCE
#include "platform.h"

/* All owners of this process, and what keeps it from being forked while one begins: a child that inherits the
 * description, by its descriptor or by a mapping, would keep the parent's lock beyond the parent's end. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct shim_owner *owners;

static void before_fork(void) { pthread_mutex_lock(&mutex); }
static void in_parent(void) { pthread_mutex_unlock(&mutex); }

/* A child gets its numbers at once, while it has the parent's rights: it may give them up before its first call. If that
 * fails, its first call tries again and reports the error. */
static void in_child(void) {
    uint64_t pid_namespace = 0;
    /* The parent may have made another PID namespace for its children. */
    if (getppid() == 0) (void)shim_sys_pid_namespace(&pid_namespace);
    shim_lock_hold_none();
    for (struct shim_owner *o = owners; o; o = o->next) {
        if (pid_namespace) o->pid_namespace = (uint32_t)pid_namespace;
        __atomic_store_n(o->number, 0, __ATOMIC_RELAXED); /* (for kernels that do not clear it: before 4.14) */
        (void)shim_owner_attach(o);
    }
    pthread_mutex_unlock(&mutex);
}

#ifdef SHALE_FAULTS
#define NEVER_FORKS shim_faults.never_forks
#else
#define NEVER_FORKS 0
#endif

static int result;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void prepare(void) { result = pthread_atfork(before_fork, in_parent, in_child); }

long shim_forbid_forks(void) {
    if (NEVER_FORKS) return 0;
    pthread_once(&once, prepare);
    if (result) return -result;
    pthread_mutex_lock(&mutex);
    return 0;
}
void shim_permit_forks(void) {
    if (!NEVER_FORKS) pthread_mutex_unlock(&mutex);
}

void shim_forks_add(struct shim_owner *o) {
    if (NEVER_FORKS) return;
    o->next = owners;
    o->link = &owners;
    if (owners) owners->link = &o->next;
    owners = o;
}
void shim_forks_remove(struct shim_owner *o) {
    if (NEVER_FORKS) return;
    *o->link = o->next;
    if (o->next) o->next->link = o->link;
}
