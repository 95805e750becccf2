/* Containers share a cache under stress.c's operations and oracle: processes in PID, mount and user namespaces of their
 * own, which may have different roots and libcs, and this one outside. Members are killed, stopped for a while and
 * continued, or killed while stopped, and whole containers end. Besides what stress.c demands,
 *
 *   - each thread of each running member does an operation in each window without stopped members;
 *   - each member ends when it is told to.
 *
 * containers [--kills N] [--seconds N] [--seed N] [--window N] [--apart] [--one-pid-namespace] [--seconds-ahead N]
 *     [ROOT:PROGRAM]...
 *
 * PROGRAM is this one as it is inside ROOT: /programs is the folder of this program there, and /volume has the cache.
 * Without any, there are three containers with this system's root. --apart gives each container a cache of its own,
 * which must fail: it shows that the oracle compares containers. --seconds-ahead gives the first container a time
 * namespace. --window is how many seconds a thread may do nothing. Skipped without the right to create namespaces. */
#include "containers.h"
#include "stressing.h"

#include <libgen.h>

enum { most_containers = 6 };

/* What members share with this process: in a file without a name, which they inherit. */
typedef struct {
    ledger_of_all ledger;
    __typeof__(*tolerances_shared) tolerances;
    loads loads;
    round_settings round;
} shared_state;

static shared_state *shared;
static int shared_fd;

static container containers[most_containers];
static const char *programs[most_containers];
static int container_count;
static bool is_apart;
static uint64_t aimed_kills = UINT64_MAX;
static int64_t end = INT64_MAX, window_ms = 200000;

static struct {
    uint64_t stops, stopped_ms, destroyed, killed_while_stopped, windows, operations[most_containers];
    int64_t longest_ms;
} seen;

static void map_shared(int fd) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(shared != MAP_FAILED);
    ledger = &shared->ledger;
    tolerances_shared = &shared->tolerances;
    all_loads = &shared->loads;
    load_shares = &all_loads->shares;
}

/* containers member FD CACHE PROCESS THREADS COMMAND */
static void be_member(char **arguments) {
    map_shared(atoi(arguments[2]));
    the_round = shared->round;
    the_round.directory = arguments[3];
    snprintf(repeat_command, sizeof repeat_command, "%s", arguments[6]);
    live(strtoull(arguments[4], NULL, 10), strtoull(arguments[5], NULL, 10), NULL);
}

typedef struct {
    pid_t pid;
    int container;
    uint64_t threads;
    bool is_stopped, is_dead;
} member;

static member members[most_processes];
static uint64_t member_count, killed_threads;

static void become_member(void *context) {
    uint64_t i = (uint64_t)((member *)context - members);
    const member *m = context;
    char fd[16], process[24], threads[24], directory[600];
    snprintf(fd, sizeof fd, "%d", shared_fd);
    snprintf(process, sizeof process, "%" PRIu64, i);
    snprintf(threads, sizeof threads, "%" PRIu64, m->threads);
    snprintf(directory, sizeof directory, "%s/cache",
             containers[m->container].root ? "/volume" : containers[m->container].volume);
    fcntl(shared_fd, F_SETFD, 0);
    execl(programs[m->container], "containers", "member", fd, directory, process, threads, repeat_command,
          (char *)NULL);
    perror(programs[m->container]);
    _exit(1);
}

static uint64_t count_of(uint64_t i) {
    return atomic_load(&ledger->progress[i]);
}

/* Each thread that runs does an operation. */
static void check_window(void) {
    uint64_t before[most_processes * most_threads];
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        before[i] = atomic_load(&ledger->thread_progress[i]);
    int64_t began = monotonic_ms();
    for (uint64_t i = 0; i < member_count; i++)
        for (uint64_t t = i * most_threads; !members[i].is_dead && t < i * most_threads + members[i].threads; t++)
            while (atomic_load(&ledger->thread_progress[t]) == before[t] &&
                   atomic_load(&ledger->issued) < most_operations && is_alive(members[i].pid)) {
                if (monotonic_ms() < began + window_ms) {
                    sleep_us(200);
                    continue;
                }
                check_that(false, __FILE__, __LINE__, "stuck",
                           ": thread %" PRIu64 " of member %" PRIu64
                           " (process %d, container %d) did nothing in %" PRId64 " ms",
                           t % most_threads, i, (int)members[i].pid, members[i].container, window_ms);
                return;
            }
    seen.windows++;
    if (monotonic_ms() - began > seen.longest_ms)
        seen.longest_ms = monotonic_ms() - began;
}

/* Its loads no longer count as beside others. */
static void expect_end(uint64_t i) {
    for (uint64_t n = 0; n < members[i].threads; n++)
        atomic_store(&all_loads->is_dead[i * most_threads + n], true);
}

static void bury(uint64_t i) {
    int code = wait_for(members[i].pid);
    members[i].is_dead = true;
    if (code == 128 + SIGKILL) {
        total.killed++;
        killed_threads += members[i].threads;
        seen.killed_while_stopped += members[i].is_stopped;
    } else
        CHECK_EQUAL(0, code); /* it had done all operations of its round */
}

static void signal_to(uint64_t i, int signal) {
    CHECK(kill(members[i].pid, signal) == 0);
    members[i].is_stopped = signal == SIGSTOP;
}

/* Stops members for a while; others go on meanwhile, except where they wait for a lock of one. `kills`: then kills
 * those that it stopped. */
static void stop(random_source *source, uint64_t first, uint64_t count, bool kills) {
    bool is_long = random_below(source, 6) == 0;
    int64_t ms = is_long ? 1000 + (int64_t)random_below(source, 2000) : 20 + (int64_t)random_below(source, 280);
    bool stopped[most_processes] = {0};
    for (uint64_t i = 0; i < member_count; i++)
        if (!members[i].is_dead && (i == first || (count > 1 && members[i].container == members[first].container))) {
            signal_to(i, SIGSTOP);
            stopped[i] = true;
            seen.stops++;
        }
    sleep_us(ms * 1000);
    seen.stopped_ms += (uint64_t)ms;
    for (uint64_t i = 0; i < member_count; i++) {
        if (stopped[i] && kills) {
            expect_end(i);
            kill(members[i].pid, SIGKILL);
            bury(i);
        } else if (stopped[i])
            signal_to(i, SIGCONT);
    }
}

static void kill_one(uint64_t i) {
    expect_end(i);
    kill(members[i].pid, SIGKILL);
    bury(i);
}

static void destroy(int c) {
    for (uint64_t i = 0; i < member_count; i++)
        if (!members[i].is_dead && members[i].container == c) {
            expect_end(i);
            if (containers[c].shares_pids)
                kill(members[i].pid, SIGKILL);
        }
    kill_container(&containers[c]);
    for (uint64_t i = 0; i < member_count; i++)
        if (!members[i].is_dead && members[i].container == c)
            bury(i);
    CHECK_EQUAL(128 + SIGKILL, wait_for(containers[c].init));
    containers[c].init = 0;
    seen.destroyed++;
}

static void play_round(random_source *source, shale_stats *before) {
    for (int c = 0; c < container_count; c++) /* those that were destroyed */
        if (containers[c].init == 0)
            REQUIRE(start_container(&containers[c]));
    bool attached = random_below(source, 2);
    shale_cache *cache = attached ? open_cache(0) : NULL;
    begin_round();
    shared->round = the_round;
    killed_threads = 0;
    member_count = (uint64_t)container_count + random_below(source, (uint64_t)container_count + 1);
    for (uint64_t i = 0; i < member_count; i++) {
        members[i] = (member){.container = (int)(i % (uint64_t)container_count),
                              .threads = 1 + random_below(source, most_threads)};
        members[i].pid = start_inside(&containers[members[i].container], become_member, &members[i]);
        REQUIRE(members[i].pid > 0);
    }

    /* Some die early, while they open the cache. */
    shale_value value = SHALE_VALUE_INIT;
    uint64_t events = 1 + random_below(source, 2 * member_count);
    for (uint64_t n = 0; n < events && check_failures == 0; n++) {
        uint64_t i = random_below(source, member_count), kind = random_below(source, 100);
        if (members[i].is_dead)
            continue;
        if (random_below(source, 8))
            wait_for_progress(i, random_below(source, 1000), members[i].pid);
        int64_t moment = monotonic_us() + (int64_t)random_below(source, 5000);
        while (attached && monotonic_us() < moment)
            read_key(cache, random_below(source, hot_keys), SHALE_GET_PEEK, &value);
        if (!attached)
            sleep_us(moment - monotonic_us());
        if (kind < 60)
            kill_one(i);
        else if (kind < 75)
            stop(source, i, 1, false);
        else if (kind < 80)
            stop(source, i, most_processes, false);
        else if (kind < 90)
            stop(source, i, random_below(source, 2) ? 1 : most_processes, true);
        else
            destroy(members[i].container);
        if (attached && try_everything(cache, the_round.is_tight, the_round.is_tight || the_round.has_clears))
            explain_refusal(cache);
        for (int reads = 0; attached && reads < 200; reads++)
            read_key(cache, random_below(source, hot_keys), SHALE_GET_PEEK, &value);
        if (n % 4 == 3)
            check_window();
    }
    check_window();
    atomic_store(&ledger->stop, true);
    for (uint64_t i = 0; i < member_count; i++) {
        seen.operations[members[i].container] += count_of(i);
        if (!members[i].is_dead)
            CHECK_EQUAL(0, wait_for(members[i].pid));
    }
    shale_value_free(&value);
    check_round(cache, killed_threads, before);
}

static bool is_over(void) {
    return total.killed >= aimed_kills || monotonic_ms() >= end;
}

static void add_container(const char *root, const char *program, bool shares_pids, long ahead_s) {
    static char volumes[most_containers][300];
    REQUIRE(container_count < most_containers);
    container *c = &containers[container_count];
    char name[32];
    snprintf(name, sizeof name, is_apart ? "volume-%d" : "volume", container_count);
    char *volume = path_to(name), self[500] = {0};
    mkdir(volume, 0755);
    snprintf(volumes[container_count], sizeof volumes[0], "%s", volume);
    free(volume);
    REQUIRE(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    programs[container_count] = program ? program : strdup(self);
    *c = (container){.root = root,
                     .volume = volumes[container_count],
                     .programs = strdup(dirname(self)),
                     .shares_pids = shares_pids,
                     .ahead_s = container_count == 0 ? ahead_s : 0};
    container_count++;
}

int main(int argument_count, char **arguments) {
    if (argument_count == 7 && strcmp(arguments[1], "member") == 0)
        be_member(arguments);
    uint64_t seed = (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid(), seconds = 20;
    bool shares_pids = false, has_kills = false;
    long ahead_s = 0;
    int at = 1;
    for (; at < argument_count && strncmp(arguments[at], "--", 2) == 0; at++) {
        const char *name = arguments[at] + 2;
        if (strcmp(name, "apart") == 0) {
            is_apart = true;
            continue;
        }
        if (strcmp(name, "one-pid-namespace") == 0) {
            shares_pids = true;
            continue;
        }
        REQUIRE(at + 1 < argument_count);
        const char *value = arguments[++at];
        if (strcmp(name, "kills") == 0) {
            aimed_kills = strtoull(value, NULL, 0);
            has_kills = true;
        } else if (strcmp(name, "seconds") == 0)
            seconds = strtoull(value, NULL, 0);
        else if (strcmp(name, "seed") == 0)
            seed = strtoull(value, NULL, 0);
        else if (strcmp(name, "window") == 0)
            window_ms = strtol(value, NULL, 0) * 1000;
        else if (strcmp(name, "seconds-ahead") == 0)
            ahead_s = strtol(value, NULL, 0);
        else
            REQUIRE(!"a known option");
    }
    if (at == argument_count)
        for (int i = 0; i < 3; i++)
            add_container(NULL, NULL, shares_pids, ahead_s);
    for (; at < argument_count; at++) {
        char *colon = strchr(arguments[at], ':');
        REQUIRE(colon);
        *colon = 0;
        add_container(arguments[at], colon + 1, shares_pids, ahead_s);
    }
    die_with_parent();
    snprintf(repeat_command, sizeof repeat_command, "containers --seed %" PRIu64, seed);
    watch(has_kills ? 3600 : (unsigned)seconds + patience);
    if (!has_kills)
        end = monotonic_ms() + (int64_t)seconds * 1000;

    shared_fd = memfd_create("stress", MFD_CLOEXEC);
    REQUIRE(shared_fd >= 0 && ftruncate(shared_fd, sizeof *shared) == 0);
    map_shared(shared_fd);
    char directory[400];
    snprintf(directory, sizeof directory, "%s/cache", containers[0].volume);
    the_round.directory = directory;
    the_round.lock_timeout_ms = window_ms; /* the message of a call that fails says who holds the lock */
    for (int c = 0; c < container_count; c++)
        if (!start_container(&containers[c])) {
            fprintf(stderr, "skipped: no right to create containers: %s\n", strerror(errno));
            finish();
            return SKIPPED;
        }

    random_source source = {seed};
    uint64_t rounds = play_rounds(&source, is_over, play_round);
    for (int c = 0; c < container_count; c++)
        if (containers[c].init > 0) {
            kill_container(&containers[c]);
            wait_for(containers[c].init);
        }
    printf("%" PRIu64 " rounds, %" PRIu64 " processes of %" PRIu64 " threads killed, %" PRIu64
           " of them while stopped, %" PRIu64 " stops, %" PRIu64 " ms in all, %" PRIu64
           " containers destroyed, %" PRIu64 " shards rebuilt, %" PRIu64 " evictions; operations in each container:",
           rounds, total.killed, total.killed_threads, seen.killed_while_stopped, seen.stops, seen.stopped_ms,
           seen.destroyed, total.rebuilds, total.evictions);
    for (int c = 0; c < container_count; c++)
        printf(" %" PRIu64, seen.operations[c]);
    printf("; %" PRIu64 " windows, the longest %" PRId64 " ms;", seen.windows, seen.longest_ms);
    print_operations();
    printf("; seed %" PRIu64 "; %" PRIu64 " refusals for a shared line", seed, atomic_load(&all_loads->line_shared));
    CHECK(print_shares(load_shares, most_refused, most_duplicates));
    print_tolerances();
    for (int c = 0; c < container_count; c++)
        CHECK(check_failures || seen.operations[c] > 0);
    if (check_failures)
        fprintf(stderr, "again: %s\n", repeat_command);
    return finish();
}
