#define _GNU_SOURCE
#include "platform.h"

#include <sched.h>

/* Work shared by the threads. Each takes the next number until none is left. */
struct work {
    size_t count, next;
    void (*body)(size_t number, void *context);
    void *context;
};

static void *run(void *p) {
    struct work *work = p;
    size_t i;
    while ((i = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->count) work->body(i, work->context);
    return NULL;
}

/* Processors that this thread may run on: a program bound to one gets no more threads. */
static size_t processors(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? (size_t)count : 1;
}

static int start(pthread_t *thread, struct work *work) {
#ifdef SHALE_FAULTS
    if ((shim_faults.call || shim_faults.store || shim_faults.event) && !shim_faults.may_start_threads) return EAGAIN;
    long fault = shim_fault("thread");
    if (fault < 0) return (int)-fault;
#endif
    /* Signals go to the program's own threads, which know what their handlers may do. */
    sigset_t all, before;
    sigfillset(&all);
    int e = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (e) return e;
    pthread_attr_t attributes;
    e = pthread_attr_init(&attributes);
    if (!e) {
        pthread_attr_setstacksize(&attributes, SHIM_THREAD_STACK);
        e = pthread_create(thread, &attributes, run, work);
        pthread_attr_destroy(&attributes);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

void shim_for_each(size_t count, size_t most_threads, void (*body)(size_t number, void *context), void *context) {
    enum { most = 16 };
    pthread_t threads[most];
    struct work work = {count, 0, body, context};
    size_t wanted = count < most_threads ? count : most_threads, started = 0;
    if (wanted > 1) {
        size_t here = processors();
        if (wanted > here) wanted = here;
    }
    while (started < most && started + 1 < wanted && start(&threads[started], &work) == 0) started++;
    run(&work);
    while (started > 0) pthread_join(threads[--started], NULL);
}
