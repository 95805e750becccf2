/* What the cache may answer. A world says of each key what it may be; where an operation was killed there are two worlds,
 * one in which it happened and one in which it did not, until somebody looks. Every leave that is granted beside
 * "the last completed change counts" is an excuse: counted, with the sentence of design.md that grants it. */
#ifndef MODEL_H
#define MODEL_H

#include "layout.h"

enum { most_keys = 5, most_choices = 16, most_worlds = 4 };
enum { is_pinned_value = 1, is_tagged_value = 2, is_lost_by_cut = 4, may_lack_parts = 8, is_damaged = 16,
    is_older = 32 /* than one that is damaged: it may come back until somebody has met the damage */ };
/* Of a value: it has to be there; it was evicted, and nobody has looked since; somebody has seen that it is not there. */
enum { resident, evicted, seen_missing };

typedef struct {
    uint16_t id, increments; /* id 0: nothing */
    uint8_t size, flags, leave;
    uint8_t padding;
    int64_t expires; /* 0: never */
} choice;

typedef struct {
    choice choices[most_choices];
    int count;
    bool is_any; /* more than can be noted */
} choices;

static struct {
    choices worlds[most_worlds][most_keys];
    int world_count;
    choices history[most_keys]; /* what was current at some moment since the last sync */
    uint16_t last_id;
    bool was_cut, was_damaged;
    /* Worlds in which killed operations happened, until somebody has locked the shard and settled what they left. */
    choices pending[2][most_keys];
    int pending_count;
    bool is_clear_pending;
    int actor;
    int capacity; /* which of the configuration's */
} model;

typedef enum {
    /* Pinned entries: "Otherwise the answer is `SHALE_E_FULL`, before anything has changed." And a known fault: "is answered
     * in rare cases where nothing is pinned". */
    excuse_full_of_pins,
    /* shale.h: `SHALE_E_FULL`, "the disk is full" */
    excuse_full_disk,
    /* Known limits: "what is in the tail's segment goes first, whatever its stamp"; "An entry that finds no place at all is evicted." */
    excuse_forced_eviction,
    /* Eviction: "Live bytes are held below 82 % of what the shard may use" */
    excuse_evicted,
    /* A rebuild: "entries that were evicted or expired may be indexed again" */
    excuse_came_back,
    /* A process is killed: "It counts whole from the moment of its commit word on, or not at all" */
    excuse_killed,
    /* A power cut: "later records may survive an earlier one"; a rebuild, 3: "A value whose body is damaged still does, and is a miss then" */
    excuse_cut,
    /* Known limits: "A large value that had been evicted can come back with an index that is made anew, and without some of
     * its parts. It is a miss for whoever reads it, and is dropped then; until that, `SHALE_GET_INFO` finds it." */
    excuse_lacks_parts,
    /* What is checked when: "If the damage lies before the synced position, everything older in that shard is dropped" */
    excuse_damage,
    /* A process is killed: "A clear ... concern[s] the whole shard. They are noted when they begin, and recovery finishes
     * them." Readers, who take no lock, see what was there until then. */
    excuse_clear_pending,
    /* What a rebuild finds: "the log in order is the whole truth". So where the index is deleted before anybody has
     * settled what a killed writer left, his record counts. */
    excuse_deleted_unsettled,
    /* The test's own limit: more alternatives than it notes. */
    excuse_unknown,
    excuses
} excuse;
static const char *const excuse_names[excuses] = {"full of pins", "full disk", "forced eviction", "evicted", "came back in a rebuild", "killed call", "lost by a cut", "lacks parts", "forgotten for damage", "clear pending", "index deleted unsettled", "not noted"};
static uint64_t excuses_used[excuses], checks;

static bool is_same(const choice *a, const choice *b) {
    return a->id == b->id && a->increments == b->increments && a->expires == b->expires && ((a->flags ^ b->flags) & ~may_lack_parts) == 0;
}
static void add_choice(choices *c, choice x) {
    for (int i = 0; i < c->count; i++)
        if (is_same(&c->choices[i], &x)) {
            if (x.leave < c->choices[i].leave)
                c->choices[i].leave = x.leave;
            c->choices[i].flags |= x.flags & may_lack_parts;
            return;
        }
    if (c->count == most_choices)
        c->is_any = true;
    else
        c->choices[c->count++] = x;
}
static void add_choices(choices *c, const choices *more) {
    for (int i = 0; i < more->count; i++)
        add_choice(c, more->choices[i]);
    c->is_any |= more->is_any;
}
static void set_choice(choices *c, choice x) {
    c->count = 1;
    c->is_any = false;
    c->choices[0] = x;
}
static bool is_gone(const choice *c) {
    return c->id == 0 || (c->expires && machine.clock_ms >= c->expires);
}
static bool may_be_there(const choices *c) {
    for (int i = 0; i < c->count; i++)
        if (!is_gone(&c->choices[i]) && c->choices[i].leave != seen_missing)
            return true;
    return c->is_any;
}
static bool may_be_missing(const choices *c) {
    for (int i = 0; i < c->count; i++)
        if (is_gone(&c->choices[i]) || c->choices[i].leave || c->choices[i].flags & (may_lack_parts | is_damaged))
            return true;
    return c->is_any;
}

static bool is_same_world(const choices *a, const choices *b) {
    for (int k = 0; k < most_keys; k++) {
        if (a[k].count != b[k].count || a[k].is_any != b[k].is_any)
            return false;
        for (int i = 0; i < a[k].count; i++)
            if (!is_same(&a[k].choices[i], &b[k].choices[i]) || a[k].choices[i].leave != b[k].choices[i].leave)
                return false;
    }
    return true;
}

/* The worlds after an operation of which nobody knows whether it happened. */
static void add_world(const choices *w) {
    for (int i = 0; i < model.world_count; i++)
        if (is_same_world(model.worlds[i], w))
            return;
    if (model.world_count < most_worlds) {
        memcpy(model.worlds[model.world_count++], w, sizeof model.worlds[0]);
        return;
    }
    for (int k = 0; k < most_keys; k++)
        add_choices(&model.worlds[most_worlds - 1][k], &w[k]);
}

static void note_history(void) {
    for (int w = 0; w < model.world_count; w++)
        for (int k = 0; k < most_keys; k++)
            add_choices(&model.history[k], &model.worlds[w][k]);
}
static void all_is_durable(void) {
    for (int k = 0; k < most_keys; k++) {
        model.history[k].count = 0;
        model.history[k].is_any = false;
    }
    note_history();
}

static void mark(int key, uint16_t id, uint8_t from, uint8_t to) {
    for (int w = 0; w <= model.world_count; w++) {
        choices *c = w == model.world_count ? &model.history[key] : &model.worlds[w][key];
        for (int i = 0; i < c->count; i++)
            if ((!id || c->choices[i].id == id) && c->choices[i].leave == from)
                c->choices[i].leave = to;
    }
    /* What comes back may lack parts. */
    if (from == seen_missing)
        for (int w = 0; w < model.world_count; w++)
            for (int i = 0; i < model.worlds[w][key].count; i++)
                if (model.worlds[w][key].choices[i].size == 2 && model.worlds[w][key].choices[i].leave)
                    model.worlds[w][key].choices[i].flags |= may_lack_parts;
}

/* After a cut each key is what it was at some moment since the last sync. */
static void model_cut(void) {
    model.world_count = 1;
    for (int k = 0; k < most_keys; k++) {
        choices *c = &model.worlds[0][k];
        *c = model.history[k];
        for (int i = 0, count = c->count; i < count; i++)
            if (c->choices[i].flags & is_damaged) {
                choice before = c->choices[i]; /* what was damaged was in memory alone, perhaps */
                before.flags &= (uint8_t)~is_damaged;
                add_choice(c, before);
            }
        if (c->count > 1)
            add_choice(c, (choice){.flags = is_lost_by_cut});
        for (int i = 0; i < c->count; i++)
            if (c->choices[i].leave)
                c->choices[i].leave = evicted;
        for (int i = 0; i < c->count; i++)
            if (c->choices[i].size == 2 && (c->count > 1 || c->choices[i].leave))
                c->choices[i].flags |= may_lack_parts;
    }
    memset(model.history, 0, sizeof model.history);
    note_history();
    model.was_cut = true;
}

/* Somebody has met the damage and dropped what was damaged, for good. */
static void met_damage(choices *c) {
    choices left = {.is_any = c->is_any};
    for (int i = 0; i < c->count; i++)
        if (!(c->choices[i].flags & is_older))
            add_choice(&left, c->choices[i].flags & is_damaged ? (choice){0} : c->choices[i]);
    *c = left;
}

/* One world after somebody saw a miss; false where it could not be. */
static bool saw_miss(choices *c) {
    choices left = {.is_any = c->is_any};
    for (int i = 0; i < c->count; i++) {
        choice x = c->choices[i];
        if (x.flags & is_damaged)
            x = (choice){0};
        if ((!is_gone(&x) && !x.leave && !(x.flags & may_lack_parts)) || (x.flags & is_older && !machine.is_full))
            continue; /* (No tombstone can be written on a full disk.) */
        if (!is_gone(&x))
            x.leave = seen_missing;
        left.choices[left.count++] = x;
    }
    bool holds = left.count > 0 || c->is_any;
    *c = left;
    return holds;
}

/* And after somebody saw a value. */
static bool saw_value(choices *c, const choice *seen) {
    for (int i = 0; i < c->count; i++) {
        choice x = c->choices[i];
        if (x.id != seen->id || x.increments != seen->increments || x.expires != seen->expires || (x.flags & is_pinned_value) != (seen->flags & is_pinned_value) ||
            is_gone(&x) || x.leave == seen_missing || x.flags & is_damaged)
            continue;
        x.leave = resident;
        x.flags &= (uint8_t) ~(may_lack_parts | is_older);
        bool is_any = c->is_any;
        set_choice(c, x);
        c->is_any = is_any;
        return true;
    }
    if (!c->is_any)
        return false;
    set_choice(c, *seen);
    c->is_any = true; /* (its tags are not known) */
    return true;
}

#endif
