#define _GNU_SOURCE
#include "platform.h"

/* All owners of this process. While one begins, the mutex keeps the process from forking: a child that inherited the
 * description, by its descriptor or by a mapping, would keep the parent's lock beyond the parent's end. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct shim_owner *owners;

/* Its holder gets no signals and cannot be cancelled: a handler may fork, and a thread that ended here would keep the
 * mutex. */
static sigset_t signals_before;
static int cancellation_before;
static void lock(void) {
    sigset_t all, signals;
    int cancellation;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
    pthread_mutex_lock(&mutex);
    signals_before = signals;
    cancellation_before = cancellation;
}
static void unlock(void) {
    sigset_t signals = signals_before;
    int cancellation = cancellation_before;
    pthread_mutex_unlock(&mutex);
    pthread_setcancelstate(cancellation, NULL);
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
}

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
    unlock();
}

#ifdef SHALE_FAULTS
#define NEVER_FORKS shim_faults.never_forks
#else
#define NEVER_FORKS 0
#endif

static int result;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void prepare(void) { result = pthread_atfork(lock, unlock, in_child); }
/* When the library is loaded, so that a program's own handlers run before `lock`: one may wait for a thread that opens
 * or closes a cache. */
static __attribute__((constructor)) void prepare_early(void) { pthread_once(&once, prepare); }

long shim_forbid_forks(void) {
    if (NEVER_FORKS) return 0;
    pthread_once(&once, prepare);
    if (result) return -result;
    lock();
    return 0;
}
void shim_permit_forks(void) {
    if (!NEVER_FORKS) unlock();
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
