/* All sequences of operations on a tiny cache, as far as the time allows, and random ones beyond: after each
 * operation an oracle says for every key which answers are right, and progress is checked. The engine is the real
 * one, with tiny sizes (libshale_tiny.a), on a machine in memory (machine.h), so a state can be restored, an
 * operation be killed at each of its stores and calls, and the power be cut.
 *
 *     explore SECONDS [SEED]           0: a few seconds' worth of each part
 *     explore repeat CONFIGURATION "OPERATIONS"
 *     explore known FILE                       sequences that have failed once, and known failures
 *     explore show CONFIGURATION "OPERATIONS"     also prints the contents of the files after each
 *
 * Operations: sKZ set key K (a to e) with size Z (0 a counter, 1 small, 2 in parts), pKZ pinned, tKZ tagged, aKZ
 * with an age, TKZ and AKZ both this and pinned; lKZ tagged, with a stale period, LKZ also pinned; nKZ a new value
 * if the one that a get finds is still there; rK remove, uK touch (uK1: for ever), iK increment, gK get, e evict, v
 * invalidate (vN: another tag), V expire a tag (VN: another), oK expire a key, c clear, y sync, w advance the clock,
 * h toggle whether the disk is full, b switch to the other process, x close and open, XN with another capacity, q
 * kill and open, QN with another capacity, mN a step of cursor N, opened if it is not (m2: of a read-only handle of
 * a third process), MN all its remaining steps, CN close it, d kill both, delete the index, open; kN power cut (N:
 * which blocks); j begin a load of a key that is never set; zK damage to what key K's record stores, zK1 to its
 * head, f verify. `17!sa0`: killed before its 17th store or call. `sa0~`: without a check afterwards. `sa1+2`: while
 * the set prepares a frame for the next segment, the other process does the two operations that follow, and then the
 * set allocates the space; `sa1-2`: after it has. `m0+2`: before the cursor reads the key of the entry that it has
 * chosen. */
#include "canonical.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/time.h>

enum { most_operations = 600, most_depth = 24 };
/* Of a thousand. A line of the fence table has two cells here, and a load lasts for hundreds of calls: 12 to 21 in a
 * hundred are refused, and no other key takes a cell of the leases. */
enum { most_refused = 350, most_duplicates = 0 };

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- a saved state --------------------------------------------------------- */

typedef struct {
    snapshot machine;
    unsigned char model[sizeof model];
    bool has_replayed;
} state;

static void save(state *s) {
    machine_save(&s->machine);
    memcpy(s->model, &model, sizeof model);
}
static void restore(const state *s) {
    machine_restore(&s->machine);
    memcpy(&model, s->model, sizeof model);
}

/* While a process is stopped. */
static state stopped_at;
static void save_here(void) {
    save(&stopped_at);
}
static void restore_here(void) {
    restore(&stopped_at);
}

static state bases[configuration_count];

/* An empty cache, synced. */
static bool begin(int which) {
    configured = &configurations[which];
    saves_big = configured->compresses;
    if (bases[which].machine.used) {
        restore(&bases[which]);
        return true;
    }
    machine_start();
    machine.random = 12345;
    memset(&model, 0, sizeof model);
    model.world_count = 1;
    for (int k = 0; k < most_keys; k++)
        set_choice(&model.worlds[0][k], (choice){0});
    note_history();
    bool holds = perform(&(operation){.what = 'y'});
    if (holds)
        save(&bases[which]);
    return holds;
}

/* ---- sequences ------------------------------------------------------------------ */

typedef struct {
    int configuration, count;
    operation operations[most_operations];
} sequence;

static size_t print_operation(char *text, size_t room, const operation *op) {
    char kill[16] = "";
    if (op->kill)
        snprintf(kill, sizeof kill, "%u!", op->kill);
    char silent[8] = "";
    size_t n = 0;
    if (op->elsewhere)
        n = (size_t)snprintf(silent, sizeof silent, "%c%u", op->is_after ? '-' : '+', op->elsewhere);
    if (op->is_silent)
        memcpy(silent + n, "~", 2);
    if (strchr("spatATlLn", op->what))
        return (size_t)snprintf(text, room, "%s%c%c%u%s", kill, op->what, 'a' + op->key, op->size, silent);
    if (op->what == 'z')
        return (size_t)snprintf(text, room, "%sz%c%u%s", kill, 'a' + op->key, op->size, silent);
    if (strchr("rigo", op->what) || (op->what == 'u' && !op->size))
        return (size_t)snprintf(text, room, "%s%c%c%s", kill, op->what, 'a' + op->key, silent);
    if (op->what == 'u')
        return (size_t)snprintf(text, room, "%su%c1%s", kill, 'a' + op->key, silent);
    if (strchr("XQmMC", op->what) || (strchr("vV", op->what) && op->key))
        return (size_t)snprintf(text, room, "%s%c%u%s", kill, op->what, op->key, silent);
    if (op->what == 'k')
        return (size_t)snprintf(text, room, "%sk%u%s", kill, op->key << 8 | op->size, silent);
    return (size_t)snprintf(text, room, "%s%c%s", kill, op->what, silent);
}

static void print_sequence(const sequence *s) {
    char text[32];
    printf("    explore repeat %d \"", s->configuration);
    for (int i = 0; i < s->count; i++) {
        print_operation(text, sizeof text, &s->operations[i]);
        printf("%s%s", i ? " " : "", text);
    }
    printf("\"\n");
}

static bool parse_operation(const char *text, operation *op) {
    *op = (operation){0};
    char *end;
    if (*text >= '0' && *text <= '9') {
        op->kill = (uint32_t)strtoul(text, &end, 10);
        if (*end != '!')
            return false;
        text = end + 1;
    }
    op->what = *text++;
    if (!op->what || !strchr("spatATlLnriguozevVcywfhbxXqQdkjmMC", op->what))
        return false;
    if (is_of_one_key(op->what)) {
        if (*text < 'a' || *text >= 'a' + most_keys)
            return false;
        op->key = (uint8_t)(*text++ - 'a');
        if (*text >= '0' && *text <= '2')
            op->size = (uint8_t)(*text++ - '0');
    } else if (*text >= '0' && *text <= '9') {
        unsigned long n = strtoul(text, &end, 10);
        text = end;
        op->key = (uint8_t)(op->what == 'k' ? n >> 8 : n);
        op->size = op->what == 'k' ? (uint8_t)n : 0;
    }
    if (*text == '+' || *text == '-') {
        op->is_after = *text++ == '-';
        op->elsewhere = (uint8_t)strtoul(text, &end, 10);
        text = end;
    }
    op->is_silent = *text == '~';
    return text[op->is_silent] == 0;
}

static bool shows;
static void show(void);

/* An operation with the number of operations after it that it may let the other process do. */
static bool perform_before(const operation *op, int count) {
    following.operations = op + 1;
    following.count = count;
    following.done = 0;
    return perform(op);
}

/* The operation at which it fails, or -1. */
static int run(const sequence *s) {
    if (!begin(s->configuration))
        return 0;
    for (int i = 0; i < s->count; i++) {
        bool holds = perform_before(&s->operations[i], s->count - i - 1);
        if (shows) {
            char op[32];
            print_operation(op, sizeof op, &s->operations[i]);
            printf("%s: answers %d\n", op, answer.status);
            show();
        }
        if (!holds)
            return i + following.done;
        static state here;
        save(&here);
        bool works = check_progress();
        restore(&here);
        if (!works)
            return i + following.done;
        i += following.done;
    }
    return -1;
}

/* Whether two failures are likely to be the same: compares words, without numbers. */
static uint64_t kind_of_failure(void) {
    uint64_t h = 14695981039346656037u;
    for (const char *p = failure; *p; p++)
        if ((*p < '0' || *p > '9') && !(p > failure && p[-1] == ' ' && p[1] == ' '))
            h = (h ^ (unsigned char)*p) * 1099511628211u;
        else if (strncmp(failure, "key", 3) != 0)
            continue;
    return h;
}

/* Leaves out operations while the sequence still fails in the same way; then kills earlier. */
static void shrink(sequence *s, uint64_t kind) {
    double deadline = now_seconds() + 20;
    bool again = true;
    for (int chunk = s->count / 2; chunk >= 1 || again; chunk = chunk > 1 ? chunk / 2 : 1) {
        again = false;
        for (int from = 0; from + chunk <= s->count && now_seconds() < deadline;) {
            static sequence less;
            less = *s;
            memmove(less.operations + from, less.operations + from + chunk,
                    (size_t)(s->count - from - chunk) * sizeof *s->operations);
            less.count -= chunk;
            int at = run(&less);
            if (at >= 0 && kind_of_failure() == kind) {
                less.count = at + 1;
                *s = less;
                again = true;
            } else
                from++;
        }
        if (now_seconds() >= deadline || (chunk == 1 && !again))
            break;
    }
    /* Tries simpler operations in place of others. */
    for (int i = 0; i < s->count && now_seconds() < deadline; i++) {
        operation simple[6];
        int count = 0;
        operation o = s->operations[i];
        if (o.is_silent)
            simple[count] = o, simple[count++].is_silent = false;
        if (o.kill)
            simple[count] = o, simple[count++].kill = 0;
        if (strchr("spatATlLn", o.what) && o.size)
            simple[count] = o, simple[count++].size = 0;
        if (strchr("patATlLn", o.what))
            simple[count] = o, simple[count++].what = 's';
        if (strchr("ATL", o.what))
            simple[count] = o, simple[count++].what = 'p';
        if (o.what == 'L')
            simple[count] = o, simple[count++].what = 'l';
        for (int j = 0; j < count; j++) {
            static sequence other;
            other = *s;
            other.operations[i] = simple[j];
            int at = run(&other);
            if (at >= 0 && kind_of_failure() == kind) {
                other.count = at + 1;
                *s = other;
                break;
            }
        }
    }
}

/* ---- failures -------------------------------------------------------------------- */

static uint64_t kinds[256];
static int kind_count, failures;
static bool goes_on; /* after a failure, looking for others */

static bool report(const sequence *s, const char *part) {
    failures++;
    uint64_t kind = kind_of_failure();
    for (int i = 0; i < kind_count; i++)
        if (kinds[i] == kind)
            return goes_on;
    if (kind_count < 256)
        kinds[kind_count++] = kind;
    static sequence shrunk;
    shrunk = *s;
    char why[sizeof failure];
    memcpy(why, failure, sizeof why);
    int at = run(&shrunk);
    if (at < 0) {
        printf("(its sequence does not repeat it)\n");
        memcpy(failure, why, sizeof why);
    } else {
        /* (It may fail earlier already: after each operation `run` checks whether everything still works.) */
        kind = kind_of_failure();
        for (int i = 0; i < kind_count - 1; i++)
            if (kinds[i] == kind)
                return goes_on;
        if (kind_count < 256)
            kinds[kind_count++] = kind;
        shrunk.count = at + 1;
        shrink(&shrunk, kind);
        run(&shrunk);
    }
    printf("FAILED (%s, %s): %s\n", part, configurations[s->configuration].name, failure[0] ? failure : why);
    print_sequence(&shrunk);
    fflush(stdout);
    return goes_on;
}

/* ---- the alphabet ---------------------------------------------------------------- */

static int alphabet(operation *all) {
    int n = 0;
    bool has_two = configured->has_other_process;
    for (uint8_t k = 0; k < configured->keys; k++) {
        for (uint8_t size = 0; size < 3; size++)
            all[n++] = (operation){.what = 's', .key = k, .size = size};
        all[n++] = (operation){.what = 'r', .key = k};
        all[n++] = (operation){.what = 'u', .key = k};
        all[n++] = (operation){.what = 'i', .key = k};
        all[n++] = (operation){.what = 'g', .key = k};
        if (k < 2) {
            all[n++] = (operation){.what = 't', .key = k, .size = 1};
            all[n++] = (operation){.what = 'p', .key = k, .size = (uint8_t)(1 + k)};
            all[n++] = (operation){.what = 'a', .key = k, .size = (uint8_t)k};
            all[n++] = (operation){.what = 'A', .key = k, .size = (uint8_t)(2 - k)};
            all[n++] = (operation){.what = 'T', .key = k, .size = (uint8_t)(1 + k)};
            all[n++] = (operation){.what = 'n', .key = k, .size = (uint8_t)(1 + k)};
            all[n++] = (operation){.what = 'l', .key = k, .size = (uint8_t)(1 + k)};
            all[n++] = (operation){.what = 'L', .key = k, .size = (uint8_t)(2 - k)};
            all[n++] = (operation){.what = 'o', .key = k};
        }
    }
    for (const char *w = "evVcywfxqdj"; *w; w++)
        all[n++] = (operation){.what = *w};
    all[n++] = (operation){.what = 'v', .key = 1};
    all[n++] = (operation){.what = 'V', .key = 2};
    for (uint8_t c = 0; c < 3; c++)
        if (c != model.capacity) {
            all[n++] = (operation){.what = 'X', .key = c};
            all[n++] = (operation){.what = 'Q', .key = c};
        }
    for (uint8_t k = 0; k < 4; k++)
        all[n++] = (operation){.what = 'k', .size = k};
    all[n++] = (operation){.what = 'm', .key = 1};
    all[n++] = (operation){.what = 'm', .key = reader};
    if (has_two)
        all[n++] = (operation){.what = 'b'};
    return n;
}

/* ---- states already seen, and some for kills to begin with --------------------------- */

static struct {
    uint64_t *hashes;
    uint8_t *left;
    size_t room, count;
} seen;

static void seen_clear(void) {
    if (!seen.hashes) {
        seen.room = 1 << 22;
        seen.hashes = calloc(seen.room, sizeof *seen.hashes);
        seen.left = calloc(seen.room, 1);
        if (!seen.hashes || !seen.left)
            abort();
    } else {
        memset(seen.hashes, 0, seen.room * sizeof *seen.hashes);
        memset(seen.left, 0, seen.room);
    }
    seen.count = 0;
}

/* Whether the state was seen with at least as many remaining operations. */
static bool is_seen(uint64_t h, int left) {
    size_t at = h % seen.room;
    while (seen.hashes[at] && seen.hashes[at] != h)
        at = (at + 1) % seen.room;
    if (seen.hashes[at]) {
        if (seen.left[at] >= left)
            return true;
        seen.left[at] = (uint8_t)left;
        return false;
    }
    if (seen.count >= seen.room / 4 * 3)
        return false;
    seen.hashes[at] = h;
    seen.left[at] = (uint8_t)left;
    seen.count++;
    return false;
}

typedef struct {
    state state;
    sequence *path;
    uint64_t hash;
} source;
enum { most_sources = 2048 };
static source sources[most_sources];
static int source_count;
static uint64_t offered;
static struct {
    uint64_t full, passes, tags, dictionaries, pinned, unquiet, large;
} classes;
static uint64_t chance = 1;

static void offer(const sequence *path, uint64_t hash) {
    for (int i = 0; i < source_count; i++)
        if (sources[i].hash == hash)
            return;
    offered++;
    int at = source_count < most_sources             ? source_count++
             : mix(&chance) % offered < most_sources ? (int)(mix(&chance) % most_sources)
                                                     : -1;
    if (at < 0)
        return;
    save(&sources[at].state);
    sources[at].hash = hash;
    sources[at].path = realloc(sources[at].path,
                               offsetof(sequence, operations) + (size_t)path->count * sizeof *path->operations);
    memcpy(sources[at].path, path, offsetof(sequence, operations) + (size_t)path->count * sizeof *path->operations);
}

static void classify(void) {
    int data = machine.names[name_data], index = machine.names[name_index];
    layout l = data < 0 || index < 0 ? (layout){0} : read_layout(bytes_of(data));
    if (!l.exists)
        return;
    shard_view v = view_of(&l, bytes_of(data), bytes_of(index), 0);
    size_t places = 0, budget = l.capacity - (superblock_page + up(l.shards * 32, unit) +
                                              l.dictionary_places * l.dictionary_size + index_head + l.capacity / 512);
    if (budget / l.shards > field(&v, w_table_pages))
        places = (budget / l.shards - field(&v, w_table_pages)) / l.segment;
    classes.full += places <= field(&v, w_queue_count) + reserve;
    classes.passes += field(&v, w_shape) >> 48 != 0;
    classes.tags += tag_cells_of(&v, 0) > 0 && tag_cells_of(&v, 1) > 0;
    classes.dictionaries += word(bytes_of(index), 656) != 0 || word(bytes_of(index), 648) >= l.dictionary_places + 1;
    classes.pinned += field(&v, w_pinned) > 0;
    classes.unquiet += field(&v, w_state) != 0;
    slot s;
    for (size_t i = 0; next_slot(&v, &i, &s);)
        if (s.is_part) {
            classes.large++;
            break;
        }
}

/* ---- enumeration ------------------------------------------------------------------ */

static uint64_t states_seen, sequences_run;
static double deadline;
static bool stops;
static state stack[most_depth];
static sequence path;
static int depth_reached[configuration_count];

static void fails(const char *part) {
    static sequence copy;
    state here = {0};
    copy = path;
    save(&here);
    if (!report(&copy, part))
        stops = true;
    restore(&here);
    free(here.machine.bytes);
}

static void enumerate(int depth, int most) {
    operation all[96];
    save(&stack[depth]);
    int count = alphabet(all);
    for (int i = 0; i < count && !stops; i++) {
        if (now_seconds() > deadline) {
            stops = true;
            return;
        }
        if (all[i].what == 'b' && depth == 0 && most == 1)
            continue;
        if (i)
            restore(&stack[depth]);
        path.operations[depth] = all[i];
        path.count = depth + 1;
        sequences_run++;
        if (!perform(&all[i])) {
            fails("enumeration");
            continue;
        }
        uint64_t h = canonical();
        if (is_seen(h, most - depth))
            continue;
        states_seen++;
        save(&stack[depth + 1]);
        bool works = check_progress();
        if (!works)
            fails("enumeration, one more");
        restore(&stack[depth + 1]);
        if (works && states_seen % 97 == 0)
            offer(&path, h);
        if (works && depth + 1 < most)
            enumerate(depth + 1, most);
    }
}

static void enumerate_all(double until, int configuration_from, int configuration_to) {
    for (int c = configuration_from; c < configuration_to; c++) {
        deadline = now_seconds() + (until - now_seconds()) / (configuration_to - c);
        for (int most = 1; most < most_depth && now_seconds() < deadline; most++) {
            seen_clear();
            stops = false;
            path.configuration = c;
            path.count = 0;
            if (!begin(c)) {
                printf("FAILED: configuration %d does not begin: %s\n", c, failure);
                failures++;
                return;
            }
            enumerate(0, most);
            if (!stops)
                depth_reached[c] = most;
            if (failures && !goes_on)
                return;
        }
    }
}

/* ---- kills at every store ----------------------------------------------------------- */

static uint64_t killed_operations, second_operations;

static void kill_everywhere(const source *from, bool all_seconds) {
    static state before, after;
    operation all[96], seconds[96];
    configured = &configurations[from->path->configuration];
    saves_big = configured->compresses;
    restore(&from->state);
    save(&before);
    int count = alphabet(all);
    for (int i = 0; i < count && !stops; i++) {
        if (now_seconds() > deadline)
            return;
        restore(&before);
        memcpy(&path, from->path, offsetof(sequence, operations) + (size_t)from->path->count * sizeof *path.operations);
        int at = path.count++;
        path.operations[at] = all[i];
        if (!perform(&all[i])) {
            fails("before kills");
            continue;
        }
        uint32_t total = events;
        killed_operations++;
        for (uint32_t n = 1; n <= total && !stops; n++) {
            restore(&before);
            path.count = at + 1;
            path.operations[at] = all[i];
            path.operations[at].kill = n;
            path.operations[at].is_silent = mix(&chance) % 2;
            if (!perform(&path.operations[at])) {
                fails("kill");
                continue;
            }
            save(&after);
            if (!check_progress()) {
                fails("kill, one more");
                continue;
            }
            restore(&after);
            int second_count = alphabet(seconds),
                first = all_seconds ? 0 : (int)(mix(&chance) % (uint64_t)second_count),
                end = all_seconds ? second_count : first + 1;
            for (int j = first; j < end && !stops; j++) {
                if (j > first)
                    restore(&after);
                path.count = at + 2;
                path.operations[at + 1] = seconds[j];
                second_operations++;
                if (!perform(&seconds[j])) {
                    fails("kill, and a second operation");
                    continue;
                }
                path.count = at + 3;
                path.operations[at + 2] = (operation){.what = 'd'};
                if (!perform(&path.operations[at + 2]))
                    fails("kill, a second operation, and the index deleted");
            }
        }
    }
}

/* ---- random walks --------------------------------------------------------------------- */

static uint64_t walks, walked;

static void walk(int c, uint64_t seed) {
    uint64_t random = seed;
    path.configuration = c;
    path.count = 0;
    if (!begin(c))
        return;
    walks++;
    int length = 20 + (int)(mix(&random) % 380);
    /* Some walks prefer some operations, so that logs fill, tables grow and pins accumulate. */
    uint64_t favour = mix(&random);
    int done = 0; /* of them; the last one may need those that follow */
    while (path.count < length && !stops) {
        operation all[96], op;
        int count = alphabet(all);
        op = all[mix(&random) % (uint64_t)count];
        uint64_t r = mix(&random);
        if (op.what == 'k' && r % 4)
            continue;
        if (strchr("xXQdc", op.what) && r % 3)
            continue;
        if (favour & 1 && r % 2)
            op = (operation){
                .what = 's', .key = (uint8_t)(r >> 8) % (uint8_t)configured->keys, .size = (uint8_t)((r >> 16) % 3)};
        if (favour & 2 && r % 16 == 1)
            op = (operation){.what = "pLAT"[(r >> 24) % 4],
                             .key = (uint8_t)(r >> 8) % (uint8_t)configured->keys,
                             .size = (uint8_t)((r >> 16) % 3)};
        if (favour >> 10 & 1 && r % 8 == 6)
            op = (operation){
                .what = 'n', .key = (uint8_t)(r >> 8) % (uint8_t)configured->keys, .size = (uint8_t)((r >> 16) % 3)};
        if (favour & 4 && r % 8 == 3)
            op = (operation){.what = "vV"[r >> 16 & 1], .key = (uint8_t)(r >> 8) % 7};
        /* Other walks prefer stale entries. */
        if (favour >> 11 & 1 && r % 8 == 5)
            op = (operation){.what = "lLouVVwv"[(r >> 24) % 8],
                             .key = (r >> 24) % 8 > 3 ? 0 : (uint8_t)(r >> 8) % (uint8_t)configured->keys,
                             .size = (uint8_t)((r >> 16) % 3)};
        if (favour >> 12 & 1 && r % 16 == 9)
            op = (operation){.what = 'j'};
        if (favour >> 9 & 1 && r % 32 == 7)
            op = (operation){.what = 'h'};
        if (favour >> 8 & 1 && r % 32 == 5)
            op = (operation){
                .what = 'z', .key = (uint8_t)(r >> 8) % (uint8_t)configured->keys, .size = (uint8_t)(r >> 16 & 1)};
        if (favour >> 14 & 1 && r % 4 == 2)
            op = (operation){.what = "mmmmmmMC"[r >> 16 & 7], .key = (uint8_t)(r >> 24) % (reader + 1)};
        if (op.what == 'k')
            op.key = (uint8_t)(r >> 24), op.size = (uint8_t)(r >> 32);
        if ((favour >> 4) % 4 != 0 && mix(&random) % 5 == 0)
            op.kill = 1 + (uint32_t)(mix(&random) % (mix(&random) % 4 ? 60 : 400));
        op.is_silent = mix(&random) % 4 == 0;
        /* (A killed operation has not succeeded, and a stopped one belongs to the other process.) */
        if (done == path.count && !op.kill && favour >> 13 & 1 && configured->has_other_process &&
            strchr("spatATlL", op.what) && op.size < 2) {
            uint64_t how = mix(&random);
            op.elsewhere = (uint8_t)(how % 4), op.is_after = how >> 8 & 1;
        }
        if (done == path.count && strchr("mM", op.what) && (op.key == reader || configured->has_other_process) &&
            mix(&random) % 2)
            op.elsewhere = (uint8_t)(1 + mix(&random) % 8);
        path.operations[path.count++] = op;
        walked++;
        if (path.count - done <= path.operations[done].elsewhere)
            continue;
        bool holds = perform_before(&path.operations[done], path.count - done - 1);
        done += 1 + following.done;
        for (; holds && done < path.count; done++)
            holds = perform_before(&path.operations[done], 0);
        if (!holds) {
            fails("walk");
            return;
        }
        if (mix(&random) % 16 == 0 || op.kill) {
            save(&stack[0]);
            bool works = check_progress();
            if (!works) {
                fails("walk, one more");
                return;
            }
            restore(&stack[0]);
            if (mix(&random) % 8 == 0)
                offer(&path, canonical());
        }
    }
}

/* Prints the contents of the files, for repeating a failure. */
static void show(void) {
    static const char *const kinds_of_records[] = {"?",          "value", "manifest", "part", "tombstone", "touch",
                                                   "invalidate", "end",   "gap",      "loss", "expire"};
    int data = machine.names[name_data], index = machine.names[name_index];
    layout l = data < 0 || index < 0 ? (layout){0} : read_layout(bytes_of(data));
    for (size_t n = 0; l.exists && n < l.shards; n++) {
        shard_view v = view_of(&l, bytes_of(data), bytes_of(index), n);
        printf(
            "  shard %zu: state %llu, %llu entries, head at place %llu offset %llu, tail offset %llu, shape %llx, replays %d, capacity %zu, du %u\n",
            n, (unsigned long long)field(&v, w_state), (unsigned long long)field(&v, w_entries),
            (unsigned long long)field(&v, w_head_frame), (unsigned long long)field(&v, w_head_offset),
            (unsigned long long)field(&v, w_tail_offset), (unsigned long long)field(&v, w_shape), replays, l.capacity,
            disk_bytes());
        for (size_t place = 0; place < l.rows; place++) {
            const unsigned char *p = bytes_of(data) + place_start(&v, place), *r;
            if (frame_state(&v, place) == frame_absent && !word(p, 40))
                continue;
            int at_queue = -1;
            for (size_t i = 0; i < field(&v, w_queue_count); i++)
                if (queued(&v, i) == place)
                    at_queue = (int)i;
            printf("    place %zu, state %zu, queue %d, number %llu; header %llu, before it %llu, tail %llu%s:", place,
                   frame_state(&v, place), at_queue, (unsigned long long)place_number(&v, place),
                   (unsigned long long)word(p, 16), (unsigned long long)word(p, 24), (unsigned long long)word(p, 32),
                   word(p, 40) ? "" : " (no check)");
            for (size_t at = segment_header; next_record(&l, p, &at, &r);) {
                printf(" [%td %s lsn %llu", r - p, kinds_of_records[record_kind(r)], (unsigned long long)word(r, 0));
                if (record_kind(r) != kind_part && key_of(r) >= 0)
                    printf(" %c=%u", 'a' + key_of(r), id_of(r));
                if (record_kind(r) == kind_touch)
                    printf(" of place %zu offset %zu, segment %llu, lsn %llu",
                           place_of(&v, (uint32_t)word(r, stored_offset(r))),
                           (size_t)word(r, stored_offset(r)) * 8 % l.segment,
                           (unsigned long long)word(r, stored_offset(r) + 8),
                           (unsigned long long)word(r, stored_offset(r) + 16));
                if (record_kind(r) == kind_part)
                    printf(" of blob %llu", (unsigned long long)word(r, key_offset(r)));
                printf("]");
            }
            printf("\n");
        }
        slot s;
        for (size_t i = 0; next_slot(&v, &i, &s);)
            printf("    slot %zu.%zu: place %zu offset %zu, kind %u%s, stamp %llu\n", s.position, s.i,
                   place_of(&v, s.location), (size_t)s.location * 8 % l.segment, s.kind, s.is_pinned ? " pinned" : "",
                   (unsigned long long)(s.word1 & (((uint64_t)1 << 38) - 1)));
    }
}

/* ---- the program --------------------------------------------------------------------- */

static bool parse_sequence(sequence *s, int c, char *text) {
    s->configuration = c;
    s->count = 0;
    for (char *word_ = strtok(text, " \n"); word_; word_ = strtok(NULL, " \n"))
        if (s->count == most_operations || !parse_operation(word_, &s->operations[s->count++])) {
            fprintf(stderr, "unknown: %s\n", word_);
            return false;
        }
    return c >= 0 && c < configuration_count;
}

/* Known failures fail in the known way. */
static void repeat_known_failures(void) {
    static sequence s;
    masks_known = false;
    for (int i = 0; i < known_failure_count; i++) {
        char how[1024], *rest;
        snprintf(how, sizeof how, "%s", known_failures[i].how);
        int c = (int)strtol(how, &rest, 10);
        bool is_sequence = parse_sequence(&s, c, rest), fails_so = is_sequence && run(&s) >= 0;
        if (fails_so && strcmp(failure_kind, known_failures[i].kind) == 0)
            continue;
        failures++;
        printf("FAILED: %s, which is known to fail (%s): %s\n    explore repeat %s\n", known_failures[i].kind,
               known_failures[i].why, fails_so ? failure : "it passes now; delete its line", known_failures[i].how);
    }
    masks_known = true;
}

/* Sequences that have failed once, a line each: the configuration, the operations. */
static int known(const char *path_of_file) {
    allows_no_forced_out = true;
    static sequence s;
    char line[4096];
    FILE *file = fopen(path_of_file, "r");
    int lines = 0;
    while (file && fgets(line, sizeof line, file)) {
        char *rest = line;
        if (*line == '#' || *line == '\n')
            continue;
        int c = (int)strtol(line, &rest, 10);
        char *last = strchr(rest, '=');
        if (last)
            *last = 0;
        if (!parse_sequence(&s, c, rest))
            return 2;
        lines++;
        bool has_failed = run(&s) >= 0;
        if (!has_failed && last && answer.status != strtol(last + 1, NULL, 10)) {
            has_failed = true;
            snprintf(failure, sizeof failure, "the last operation answers %d instead of %s", answer.status, last + 1);
        }
        if (has_failed) {
            failures++;
            printf("FAILED: %s\n", failure);
            print_sequence(&s);
        }
    }
    repeat_known_failures();
    printf("%d sequences, and %d that are known to fail, %d failures\n", lines, known_failure_count, failures);
    return failures || !lines;
}

static int repeat(int c, char *text) {
    static sequence s;
    if (!parse_sequence(&s, c, text))
        return 2;
    int at = run(&s);
    bool is_known = at < 0;
    if (is_known) {
        masks_known = false;
        at = run(&s);
    }
    if (at < 0) {
        printf("%d operations, nothing failed\n", s.count);
        return 0;
    }
    char op[32];
    print_operation(op, sizeof op, &s.operations[at]);
    printf("operation %d, %s%s: %s\n", at + 1, op, is_known ? ", as is known" : "", failure);
    return !is_known;
}

int main(int count, char **arguments) {
    struct sigaction action = {.sa_handler = signalled, .sa_flags = SA_NODEFER};
    const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
    action.sa_handler = alarmed;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{2, 0}, {2, 0}}, NULL);
    goes_on = getenv("EXPLORE_GOES_ON") != NULL;
    read_known_failures("explore");
    if (count == 4 && strcmp(arguments[1], "repeat") == 0)
        return repeat(atoi(arguments[2]), arguments[3]);
    if (count == 4 && strcmp(arguments[1], "show") == 0)
        return shows = true, repeat(atoi(arguments[2]), arguments[3]);
    if (count == 3 && strcmp(arguments[1], "known") == 0)
        return known(arguments[2]);
    if (count < 2) {
        fprintf(stderr, "usage: explore SECONDS [SEED]\n       explore repeat CONFIGURATION \"OPERATIONS\"\n");
        return 2;
    }
    double seconds = atof(arguments[1]), start = now_seconds();
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    const char *only = getenv("EXPLORE_ONLY");
    int from = only ? atoi(only) : 0, to = only ? from + 1 : configuration_count;
    chance = seed;
    repeat_known_failures();
    shared_counts = (shares){0};
    enumerate_all(start + seconds * 0.2, from, to);
    deadline = start + seconds * 0.5;
    stops = failures && !goes_on;
    for (uint64_t i = 0; now_seconds() < deadline && !stops; i++)
        walk(from + (int)(i % (uint64_t)(to - from)), seed * 1000003 + i);
    deadline = start + seconds;
    int sources_killed = 0;
    stops = failures && !goes_on;
    for (int i = 0; i < source_count; i++) {
        configured = &configurations[sources[i].path->configuration];
        saves_big = configured->compresses;
        restore(&sources[i].state);
        classify();
    }
    for (int i = 0; i < source_count && now_seconds() < deadline && !stops; i++, sources_killed++)
        kill_everywhere(&sources[(i * 769) % source_count], seconds > 3600);
    double took = now_seconds() - start;
    printf("depth");
    for (int c = from; c < to; c++)
        printf(" %d", depth_reached[c]);
    printf(" of %d configurations; %" PRIu64 " distinct states, %" PRIu64 " sequences; %" PRIu64 " walks of %" PRIu64
           " operations\n",
           to - from, states_seen, sequences_run, walks, walked);
    printf("%d of %d states: %" PRIu64 " operations killed everywhere, %" PRIu64 " second operations; log full %" PRIu64
           ", pass half done %" PRIu64 ", two generations of tags %" PRIu64 ", dictionaries replaced %" PRIu64
           ", pinned %" PRIu64 ", in parts %" PRIu64 ", killed %" PRIu64 "\n",
           sources_killed, source_count, killed_operations, second_operations, classes.full, classes.passes,
           classes.tags, classes.dictionaries, classes.pinned, classes.large, classes.unquiet);
    printf("tolerances:");
    for (int i = 0; i < tolerances; i++)
        printf("%s %s %" PRIu64, i ? "," : "", tolerance_names[i], tolerances_used[i]);
    printf("\n%" PRIu64 " operations in %.0f s, %.0f a second; %" PRIu64 " kills, %" PRIu64 " cuts, %" PRIu64
           " checks, %" PRIu64 " cursors ended that owed %" PRIu64 " keys, %d failures, %" PRIu64 " known ones",
           operations_done, took, (double)operations_done / took, kills, cuts, checks, cursors_ended, keys_due,
           failures, known_met);
    return !print_shares(&shared_counts, most_refused, most_duplicates) || failures > 0;
}
