/* Kills a process before every store instruction of the shipped library, in the order that the compiler chose, and
 * before every system call that changes a file; in short operations before every instruction. Evaluates what it
 * leaves as aimed_kill does (evaluate.h), which kills between the stores that the source names.
 *
 * Between two stores the files do not change, so a kill before each store leaves all states that a kill at any
 * instruction can. To find them, the mapped files are write-protected: each store raises SIGSEGV, gets its pages
 * writable for one step (the processor's trap flag, SIGTRAP), and loses them again. Only the kernel's knowledge of
 * the locks that are held differs between two stores: for that, all instructions are stepped. (No ptrace: containers
 * may forbid it, and it would have to step through everything.)
 *
 * In a loop that runs a thousand times, nearly all places are alike. So each pair of consecutive store instructions
 * is struck between the two, as often as is asked for in each situation; without a number, once in the first
 * situation that has it, and each situation at ten places at least.
 *
 * every_instruction [times for each pair; 0: all places] [seed] [situation] */
#define _GNU_SOURCE /* fallocate, REG_RIP */

#include "evaluate.h"

#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

#if !defined(__x86_64__)

static void aim(uint64_t n, int signal) {
    aimed_at = n;
    aimed_signal = signal;
}
static void lay_down(void) {
}
static void pretend_boot(const char *id UNUSED) {
}

int main(void) {
    (void)kill_in;
    printf("skipped: single steps within a process are known for x86-64 alone\n");
    return 77;
}

#else

enum { trap_flag = 0x100, page_size = 4096, most_ranges = 8, most_opened = 4 };

static struct {
    struct {
        char *from, *to;
    } ranges[most_ranges]; /* the cache's files, as they are mapped for writing */
    char *opened[most_opened]; /* pages that the current instruction may write */
    int range_count, opened_count;
    bool is_on, by_instruction;
} aim_state;

static bool steps_all; /* every instruction is an event, not only stores */

/* Which instructions the events were in the run without a kill. */
enum { most_noted = 1 << 20 };
static uintptr_t *trail;

static void note(uintptr_t instruction) {
    uint64_t event = atomic_load(&shared->events);
    if (aimed_at == 0 && event < most_noted)
        trail[event] = instruction;
}

static void protect_all(int rights) {
    for (int i = 0; i < aim_state.range_count; i++)
        syscall(SYS_mprotect, aim_state.ranges[i].from, aim_state.ranges[i].to - aim_state.ranges[i].from, rights);
}

/* (The kernel marks the locks of a dead thread by a store.) */
static void strike(uintptr_t instruction) {
    note(instruction);
    if (!is_hit())
        return;
    protect_all(PROT_READ | PROT_WRITE);
    kill(getpid(), aimed_signal);
}

static void on_store(int number, siginfo_t *info, void *context) {
    ucontext_t *state = context;
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(page_size - 1));
    for (int i = 0; i < aim_state.range_count; i++)
        if (page >= aim_state.ranges[i].from && page < aim_state.ranges[i].to) {
            if (aim_state.opened_count == 0) /* (a store across two pages faults twice) */
                strike((uintptr_t)state->uc_mcontext.gregs[REG_RIP]);
            if (aim_state.opened_count == most_opened)
                break;
            aim_state.opened[aim_state.opened_count++] = page;
            syscall(SYS_mprotect, page, page_size, PROT_READ | PROT_WRITE);
            state->uc_mcontext.gregs[REG_EFL] |= trap_flag;
            return;
        }
    signal(number, SIG_DFL); /* a fault of the library's own */
}

static void on_step(int number UNUSED, siginfo_t *info UNUSED, void *context) {
    ucontext_t *state = context;
    while (aim_state.opened_count > 0)
        syscall(SYS_mprotect, aim_state.opened[--aim_state.opened_count], page_size, PROT_READ);
    if (aim_state.is_on && aim_state.by_instruction) {
        state->uc_mcontext.gregs[REG_EFL] |= trap_flag;
        strike((uintptr_t)state->uc_mcontext.gregs[REG_RIP]);
    } else
        state->uc_mcontext.gregs[REG_EFL] &= ~trap_flag;
}

static void add_range(void *from, size_t size) {
    REQUIRE(aim_state.range_count < most_ranges);
    aim_state.ranges[aim_state.range_count].from = from;
    aim_state.ranges[aim_state.range_count++].to = (char *)from + size;
    syscall(SYS_mprotect, from, size, PROT_READ);
}

static void add_mapping(char *from, char *to, bool is_writable) {
    if (is_writable)
        add_range(from, (size_t)(to - from));
}

static void aim(uint64_t n, int signal_number) {
    struct sigaction store = {.sa_sigaction = on_store, .sa_flags = SA_SIGINFO},
                     step = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &store, NULL);
    sigaction(SIGTRAP, &step, NULL);
    atomic_store(&shared->events, 0);
    aimed_at = n;
    aimed_signal = signal_number;
    aim_state.by_instruction = steps_all;
    aim_state.is_on = true;
    if (steps_all)
        raise(SIGTRAP);
    else
        each_mapping(add_mapping);
}

static void lay_down(void) {
    aim_state.is_on = false;
    protect_all(PROT_READ | PROT_WRITE);
    aim_state.range_count = 0;
}

/* All system calls of the library that change files or mappings. */

static void before_call(const void *caller) {
    if (aim_state.is_on && !aim_state.by_instruction)
        strike((uintptr_t)caller);
}

void *mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset) {
    void *p = (void *)syscall(SYS_mmap, at, size, rights, flags, fd, offset);
    if (aim_state.is_on && !aim_state.by_instruction && p != MAP_FAILED && fd >= 0 && rights & PROT_WRITE &&
        flags & MAP_SHARED)
        add_range(p, size);
    return p;
}
int munmap(void *at, size_t size) {
    for (int i = 0; i < aim_state.range_count; i++)
        if (aim_state.ranges[i].from == (char *)at)
            aim_state.ranges[i] = aim_state.ranges[--aim_state.range_count];
    return (int)syscall(SYS_munmap, at, size);
}
int madvise(void *at, size_t size, int advice) {
    if (advice == MADV_REMOVE)
        before_call(__builtin_return_address(0));
    return (int)syscall(SYS_madvise, at, size, advice);
}
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    before_call(__builtin_return_address(0));
    return syscall(SYS_pwrite64, fd, bytes, size, at);
}
int fallocate(int fd, int mode, off_t at, off_t size) {
    before_call(__builtin_return_address(0));
    return (int)syscall(SYS_fallocate, fd, mode, at, size);
}
int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    before_call(__builtin_return_address(0));
    return (int)syscall(SYS_renameat, from_directory, from, to_directory, to);
}
int unlinkat(int directory, const char *name, int flags) {
    before_call(__builtin_return_address(0));
    return (int)syscall(SYS_unlinkat, directory, name, flags);
}
int fsync(int fd) {
    before_call(__builtin_return_address(0));
    return (int)syscall(SYS_fsync, fd);
}
int fdatasync(int fd) {
    before_call(__builtin_return_address(0));
    return (int)syscall(SYS_fdatasync, fd);
}

/* An index of another boot, without the mark of a clean close. */
static void pretend_boot(const char *id) {
    uint64_t words[2] = {1, 2}, mark = 0;
    if (!id)
        return;
    int fd = open_file(aimed_directory, "shale.index", O_WRONLY);
    CHECK_EQUAL(16, syscall(SYS_pwrite64, fd, words, 16, index_boot));
    CHECK_EQUAL(8, syscall(SYS_pwrite64, fd, &mark, 8, index_clean_mark));
    close(fd);
}

/* Short operations, which are stepped through as a whole. */
static const char *const stepped[] = {"set", "remove", "touch", "increment"};
enum { stepped_count = sizeof stepped / sizeof *stepped, steps_each = 5 };

static bool is_stepped(const situation *s) {
    for (int i = 0; i < stepped_count; i++)
        if (strcmp(stepped[i], s->name) == 0)
            return true;
    return false;
}

/* Each pair once, or few places if there are few new ones: none with too many events before it, which all take time. */
static bool is_short;
enum { least_short = 10, most_short = 10000 };
static uint64_t times;
static random_source source;

/* Pairs that were struck in the short form. */
enum { most_pairs = 1 << 14 };
static uintptr_t pairs[most_pairs][2];
static uint64_t pair_count;

static bool is_new_pair(uint64_t place) {
    uintptr_t own[2] = {trail[place - 1], place > 1 ? trail[place - 2] : 0};
    for (uint64_t i = 0; i < pair_count; i++)
        if (memcmp(pairs[i], own, sizeof own) == 0)
            return false;
    REQUIRE(pair_count < most_pairs);
    memcpy(pairs[pair_count++], own, sizeof own);
    return true;
}

static int by_pair(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    uintptr_t p[2] = {trail[x - 1], x > 1 ? trail[x - 2] : 0}, q[2] = {trail[y - 1], y > 1 ? trail[y - 2] : 0};
    int order = memcmp(p, q, sizeof p);
    return order ? order : x < y ? -1 : x > y;
}
static bool is_same_pair(uint64_t x, uint64_t y) {
    return trail[x - 1] == trail[y - 1] && (x > 1 ? trail[x - 2] : 0) == (y > 1 ? trail[y - 2] : 0);
}
static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* As many of those in [`from`, `to`) as asked for, moved to `out`: spread evenly, the exact one random. */
static uint64_t spread(const uint64_t *from, const uint64_t *to, uint64_t most, uint64_t *out) {
    uint64_t all = (uint64_t)(to - from), tries = most < all ? most : all;
    for (uint64_t k = 0; k < tries; k++) {
        uint64_t low = k * all / tries, high = (k + 1) * all / tries;
        out[k] = from[low + random_below(&source, high - low)];
    }
    return tries;
}

static uint64_t choose(uint64_t count, uint64_t *places) {
    uint64_t tries = 0;
    REQUIRE(count < most_noted);
    for (uint64_t i = 0; i < count; i++)
        places[i] = i + 1;
    /* (The number of instructions of a call differs a little from run to run: the last ones may not be reached.) */
    if (steps_all)
        return times || is_short ? spread(places, places + count - count / 32, steps_each * larger(1, times), places)
                                 : count;
    if (is_short) {
        uint64_t near = count < most_short ? count : most_short;
        for (uint64_t i = 0; i < near; i++)
            if (is_new_pair(places[i]))
                places[tries++] = places[i];
        for (uint64_t k = tries; k < least_short && near >= 2 * least_short; k++)
            places[tries++] = 1 + k * (near / least_short) + random_below(&source, near / least_short);
        return tries;
    }
    if (times == 0)
        return count;
    qsort(places, count, sizeof *places, by_pair);
    for (uint64_t from = 0, to; from < count; from = to) {
        for (to = from + 1; to < count && is_same_pair(places[from], places[to]); to++) {
        }
        tries += spread(places + from, places + to, times, places + tries);
    }
    qsort(places, tries, sizeof *places, by_number);
    return tries;
}

/* The C library copies more than 2 KiB by one instruction that repeats for each byte; each byte would be an event,
 * so a tunable disables that. */
static void begin(char **arguments) {
    static const char *const name = "GLIBC_TUNABLES";
    if (getenv(name))
        return;
    setenv(name, "glibc.cpu.x86_rep_movsb_threshold=0x40000000:glibc.cpu.x86_rep_stosb_threshold=0x40000000", 1);
    execv("/proc/self/exe", arguments);
}

int main(int argument_count, char **arguments) {
    begin(arguments);
    stay_on_one_processor();
    is_short = argument_count < 2;
    times = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : 0;
    uint64_t seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : 1;
    const char *only = argument_count > 3 ? arguments[3] : NULL;
    toll stores = {0, 0}, instructions = {0, 0};
    source.state = seed;
    aimed_begin();
    trail = shared_memory(most_noted * sizeof *trail);
    for (int i = 0; i < situation_count && check_failures == 0; i++) {
        const situation *s = &situations[i];
        if (only && strcmp(only, s->name) != 0)
            continue;
        for (int by_instruction = 0; by_instruction <= is_stepped(s) && check_failures == 0; by_instruction++) {
            toll *sum = by_instruction ? &instructions : &stores;
            steps_all = by_instruction;
            toll one = kill_in(s, choose);
            sum->struck += one.struck;
            sum->events += one.events;
        }
        if (check_failures)
            fprintf(stderr, "again: every_instruction %" PRIu64 " %" PRIu64 " '%s'\n", larger(1, times), seed, s->name);
    }
    printf("%" PRIu64 " of %" PRIu64 " stores and calls in %d situations, %" PRIu64 " of %" PRIu64
           " instructions in %d\n",
           stores.struck, stores.events, only ? 1 : (int)situation_count, instructions.struck, instructions.events,
           stepped_count);
    print_tolerances();
    munmap(trail, most_noted * sizeof *trail);
    munmap(shared, sizeof *shared);
    free(aimed_directory);
    return finish();
}

#endif
