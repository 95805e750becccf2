/* Checks whether what callers saw of one key can have happened: a linearizability checker after Wing & Gong, with
 * Lowe's memoization (the method of porcupine). Each call has a begin and an end on one clock. The search looks for
 * an order of the calls in which each takes effect at one moment between its begin and its end, and each answer is
 * that of the model:
 *
 * A key is a register: absent, or present with a value, its version and its tag.
 *    set           makes it present. Its version is higher than any that the key had before.
 *    set if ...    OK only if the condition holds at that moment, CONFLICT only if it does not.
 *    get           (also get_many, lease) OK with the present value and its version; MISS only if the key is absent.
 *    remove        OK if it is present (with the version asked for), then it is absent; MISS if it is absent;
 *                  CONFLICT if it is present with another version.
 *    touch         OK if it is present, MISS if it is absent.
 *    increment     the present number plus 1, or 1 if it is absent.
 *    invalidate    absent, if it had the tag. clear: absent.
 *    A call cut off by a kill happened at some moment after its begin, or never. A call that failed did not happen.
 *
 * So no value is lost, and an old value is never seen again. In a cache that evicts, a present key may become absent
 * by itself; the search counts the fewest such losses that explain the answers, and the caller compares their sum
 * over all keys with the cache's own count of evictions (design.md, "Eviction"). After a rebuild of shards, evicted
 * entries may be back (recovery.md, "A rebuild"). */
#ifndef HISTORY_H
#define HISTORY_H

#include "check.h"

enum call_kind {
    call_set,
    call_set_absent,
    call_set_present,
    call_set_version,
    call_get,
    call_remove,
    call_touch,
    call_increment,
    call_invalidate,
    call_clear,
    call_kinds
};
static const char *const call_names[call_kinds] = {"set",        "set if absent", "set if present", "set if version",
                                                   "get",        "remove",        "touch",          "increment",
                                                   "invalidate", "clear"};

#define NEVER_ENDED UINT64_MAX

typedef struct {
    uint64_t begin, end;     /* end: NEVER_ENDED if it was cut off */
    enum call_kind kind;
    shale_status status;     /* where it ended */
    uint64_t value, version; /* set or found; what an increment returned. version 0: not known */
    uint64_t asked;          /* a version: of a condition or a removal; 0: none */
    uint64_t tag;            /* of the value that is set, or that is invalidated; 0: none */
    uint64_t who;            /* for the message */
} call;

typedef struct {
    bool present, was_lost; /* was_lost: absent, for want of room */
    uint64_t value, version, tag, highest;
    uint64_t losses;
} register_state;

/* The register after the call; or that the call is impossible now. */
static inline bool call_applies(register_state *s, const call *c) {
    bool ended = c->end != NEVER_ENDED, is_ok = !ended || c->status == SHALE_OK;
    switch (c->kind) {
    case call_set:
    case call_set_absent:
    case call_set_present:
    case call_set_version: {
        bool holds = c->kind == call_set || (c->kind == call_set_absent && !s->present) ||
                     (c->kind == call_set_present && s->present) ||
                     (c->kind == call_set_version && s->present && (s->version == 0 || s->version == c->asked));
        bool may_fail = c->kind == call_set_version ? !s->present || s->version == 0 || s->version != c->asked : !holds;
        if (ended && c->status == SHALE_CONFLICT)
            return c->kind != call_set && may_fail;
        if (!is_ok || !holds || (c->version && c->version <= s->highest))
            return ended ? false : !holds; /* a call that was cut off may find that it must not */
        s->present = true;
        s->was_lost = false;
        s->value = c->value;
        s->version = c->version;
        s->tag = c->tag;
        if (c->version)
            s->highest = c->version;
        return true;
    }
    case call_get:
        if (!ended)
            return true;
        if (c->status == SHALE_MISS)
            return !s->present;
        if (c->status != SHALE_OK || !s->present || s->value != c->value || c->version < s->highest ||
            (s->version && s->version != c->version))
            return false;
        s->version = s->highest = c->version;
        return true;
    case call_remove:
        if (ended && c->status == SHALE_MISS)
            return !s->present;
        if (ended && c->status == SHALE_CONFLICT)
            return c->asked && s->present && (s->version == 0 || s->version != c->asked);
        if (!is_ok || (c->asked && s->present && s->version && s->version != c->asked))
            return !ended;
        if (ended && !s->present)
            return false;
        s->present = s->was_lost = false;
        return true;
    case call_touch: return !ended || (c->status == SHALE_OK ? s->present : c->status == SHALE_MISS && !s->present);
    case call_increment: {
        uint64_t sum = s->present ? s->value + 1 : 1;
        if (ended && (c->status != SHALE_OK || c->value != sum))
            return false;
        s->present = true;
        s->was_lost = false;
        s->value = sum;
        s->version = 0; /* the call does not return it */
        s->tag = 0;
        return true;
    }
    case call_invalidate:
        if (s->tag == c->tag)
            s->present = s->was_lost = false;
        return true;
    case call_clear: s->present = s->was_lost = false; return true;
    case call_kinds: break;
    }
    return false;
}

/* Changes that the cache may make by itself. */
typedef struct {
    uint64_t losses;  /* at most, of this key */
    bool may_return;  /* the lost value */
} allowance;

/* Whether the call leaves another state if the key is lost just before it, and was cut off, so that its own answer
 * does not show it. */
static inline bool hides_a_loss(const register_state *s, const call *c) {
    return s->present && c->end == NEVER_ENDED && (c->kind == call_increment || c->kind == call_set_absent);
}

/* Assumes a loss only if the call is impossible without it, or if `is_hidden` demands one: no other loss would
 * change an answer. */
static inline bool call_happens(register_state *s, const call *c, const allowance *allowed, bool is_hidden) {
    register_state before = *s;
    if (!is_hidden && call_applies(s, c))
        return true;
    *s = before;
    if (s->present && s->losses < allowed->losses) {
        s->present = false;
        s->was_lost = true;
        s->losses++;
    } else if (s->was_lost && allowed->may_return) {
        s->present = true;
        s->was_lost = false;
    } else
        return false;
    if (call_applies(s, c))
        return true;
    *s = before;
    return false;
}

/* The search */

typedef struct {
    uint64_t time;
    size_t call;
    bool is_end;
    size_t next, previous; /* in the list of remaining calls; 0 is its head */
} history_event;

typedef struct {
    uint64_t a, b;
} history_mark;

typedef struct {
    history_mark *seen; /* open addressing; a == 0: free */
    size_t room, count;
} history_memory;

static inline uint64_t history_mix(uint64_t z) {
    random_source source = {z};
    return random_next(&source);
}

static inline history_mark history_state_mark(const register_state *s) {
    uint64_t z = history_mix(s->value * 4 + s->present * 2 + s->was_lost);
    z = history_mix(z ^ s->version);
    z = history_mix(z ^ s->tag);
    z = history_mix(z ^ s->highest ^ s->losses << 48);
    return (history_mark){z, history_mix(z + 1)};
}

/* False if it was in the set already. */
static inline bool history_remember(history_memory *memory, history_mark mark) {
    if (memory->count * 2 >= memory->room) {
        history_memory larger = {.room = memory->room ? memory->room * 4 : 1 << 12};
        REQUIRE(larger.seen = calloc(larger.room, sizeof *larger.seen));
        for (size_t i = 0; i < memory->room; i++)
            if (memory->seen[i].a)
                history_remember(&larger, memory->seen[i]);
        free(memory->seen);
        *memory = larger;
    }
    mark.a |= 1;
    size_t i = mark.b & (memory->room - 1);
    while (memory->seen[i].a) {
        if (memory->seen[i].a == mark.a && memory->seen[i].b == mark.b)
            return false;
        i = (i + 1) & (memory->room - 1);
    }
    memory->seen[i] = mark;
    memory->count++;
    return true;
}

static inline int history_order(const void *a, const void *b) {
    const history_event *x = a, *y = b;
    return x->time < y->time ? -1 : x->time > y->time;
}

static inline void history_take(history_event *events, size_t i) {
    events[events[i].previous].next = events[i].next;
    events[events[i].next].previous = events[i].previous;
}

static inline void history_put_back(history_event *events, size_t i) {
    events[events[i].previous].next = i;
    events[events[i].next].previous = i;
}

enum history_outcome { history_possible, history_impossible, history_undecided };

typedef struct {
    enum history_outcome outcome;
    uint64_t losses, steps;
    size_t furthest; /* the call that could not be placed when most others were */
    register_state state;
} history_result;

enum { history_most_steps = 20000000 };

static inline history_result history_search(const call *calls, size_t count, register_state state,
                                            const allowance *allowed) {
    history_event *events = malloc((2 * count + 1) * sizeof *events);
    size_t *end_of = malloc(count * sizeof *end_of + 1), *stack = malloc(count * sizeof *stack + 1), depth = 0,
           deepest = 0, left = 0;
    register_state *states = malloc(count * sizeof *states + 1);
    bool *hidden = malloc(count * sizeof *hidden + 1), is_hidden = false;
    history_memory memory = {0};
    history_mark done = {0};
    history_result result = {.outcome = history_impossible, .furthest = SIZE_MAX, .state = state};
    REQUIRE(events && end_of && stack && states && hidden);
    for (size_t i = 0; i < count; i++) {
        events[1 + 2 * i] = (history_event){.time = calls[i].begin, .call = i};
        events[2 + 2 * i] = (history_event){.time = calls[i].end, .call = i, .is_end = true};
        left += calls[i].end != NEVER_ENDED;
    }
    qsort(events + 1, 2 * count, sizeof *events, history_order);
    for (size_t i = 0; i <= 2 * count; i++) {
        events[i].next = i == 2 * count ? 0 : i + 1;
        events[i].previous = i ? i - 1 : 2 * count;
        if (i && events[i].is_end)
            end_of[events[i].call] = i;
    }
    size_t at = events[0].next;
    while (left > 0 && result.steps++ < history_most_steps) {
        size_t n = events[at].call;
        if (at && !events[at].is_end) {
            register_state after = state;
            history_mark mark = {done.a ^ history_mix(n * 2 + 1), done.b ^ history_mix(n * 2 + 2)};
            bool goes_on = call_happens(&after, &calls[n], allowed, is_hidden);
            if (goes_on) {
                history_mark of_state = history_state_mark(&after);
                goes_on = history_remember(&memory, (history_mark){mark.a ^ of_state.a, mark.b ^ of_state.b});
            }
            if (!goes_on) {
                is_hidden = !is_hidden && hides_a_loss(&state, &calls[n]);
                if (!is_hidden)
                    at = events[at].next;
                continue;
            }
            stack[depth] = at;
            hidden[depth] = is_hidden;
            is_hidden = false;
            states[depth++] = state;
            state = after;
            done = mark;
            left -= calls[n].end != NEVER_ENDED;
            history_take(events, at);
            history_take(events, end_of[n]);
            at = events[0].next;
            continue;
        }
        /* A call has ended and is not placed yet, or no more calls begin: undo the last one. */
        if (at && (result.furthest == SIZE_MAX || depth > deepest)) {
            deepest = depth;
            result.furthest = n;
            result.state = state;
        }
        if (depth == 0)
            break;
        at = stack[--depth];
        n = events[at].call;
        state = states[depth];
        done = (history_mark){done.a ^ history_mix(n * 2 + 1), done.b ^ history_mix(n * 2 + 2)};
        left += calls[n].end != NEVER_ENDED;
        history_put_back(events, end_of[n]);
        history_put_back(events, at);
        is_hidden = !hidden[depth] && hides_a_loss(&state, &calls[n]);
        if (!is_hidden)
            at = events[at].next;
    }
    if (left == 0) {
        result.outcome = history_possible;
        result.losses = state.losses;
        result.state = state;
    } else if (result.steps >= history_most_steps)
        result.outcome = history_undecided;
    free(events);
    free(end_of);
    free(stack);
    free(states);
    free(hidden);
    free(memory.seen);
    return result;
}

/* With as few losses as possible, at most `losses`. */
static inline history_result history_check(const call *calls, size_t count, register_state begin, uint64_t losses,
                                           bool may_return) {
    uint64_t steps = 0;
    for (uint64_t n = 0;; n = n ? n * 2 : 1) {
        allowance allowed = {.losses = n < losses ? n : losses, .may_return = may_return};
        history_result result = history_search(calls, count, begin, &allowed);
        result.steps = steps += result.steps;
        if (result.outcome != history_impossible || n >= losses)
            return result;
    }
}

static inline void history_print_call(const call *c, FILE *to) {
    fprintf(to, "    %8" PRIu64 " to ", c->begin);
    if (c->end == NEVER_ENDED)
        fprintf(to, "   never  %-14s", call_names[c->kind]);
    else
        fprintf(to, "%8" PRIu64 "  %-14s %-8s", c->end, call_names[c->kind], shale_status_text(c->status));
    fprintf(to, " value %" PRIu64 ":%" PRIu64 " version %" PRIu64 " asked %" PRIu64 " tag %" PRIu64 " by %" PRIu64 "\n",
            c->value >> 32, c->value & UINT32_MAX, c->version, c->asked, c->tag, c->who);
}

/* Prints the calls near the one that could not be placed. */
static inline void history_explain(const call *calls, size_t count, const history_result *result, FILE *to) {
    if (result->furthest == SIZE_MAX)
        return;
    const call *odd = &calls[result->furthest];
    fprintf(to, "  no place for\n");
    history_print_call(odd, to);
    fprintf(to, "  where the key is %s, value %" PRIu64 ":%" PRIu64 ", version %" PRIu64 "; around it:\n",
            result->state.present ? "present" : "absent", result->state.value >> 32, result->state.value & UINT32_MAX,
            result->state.version);
    uint64_t from = odd->begin > 60 ? odd->begin - 60 : 0, to_time = odd->end + 20;
    int lines = 0;
    for (size_t i = 0; i < count && lines < 40; i++)
        if (calls[i].end >= from && calls[i].begin <= to_time &&
            (calls[i].end != NEVER_ENDED || calls[i].kind < call_get || calls[i].kind > call_get)) {
            history_print_call(&calls[i], to);
            lines++;
        }
}

#endif
