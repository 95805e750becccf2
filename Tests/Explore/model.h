/* The answers that the cache may give. A world says of each key what it may be; after an operation was killed there
 * are two worlds, one in which it happened and one in which it did not, until an answer tells. Every answer that is
 * accepted beyond the rule that the last completed change counts is a tolerance: counted, with the heading that
 * allows it. */
#ifndef MODEL_H
#define MODEL_H

#include "layout.h"

enum { most_keys = 5, most_choices = 24, most_worlds = 4, most_pending = 8 };
enum {
    is_pinned_value = 1,
    is_tagged_value = 2,
    is_lost_by_cut = 4,
    may_lack_parts = 8,
    is_damaged = 16,
    is_passed_by_tail = 64,
    is_stale_by_tag = 128, /* or was already, when its tag was expired */
    is_older = 32 /* older than a damaged one: it may come back until the damage has been found */
};
/* Of a value: it has to be present; it was evicted, and not read since; a read has found it missing. */
enum { resident, evicted, seen_missing };

typedef struct {
    uint16_t id, increments; /* id 0: nothing */
    uint8_t size, flags, leave;
    uint8_t padding;
    int64_t expires; /* 0: never */
    int64_t own; /* before its tag was expired */
    int64_t stale; /* its stale period */
} choice;

typedef struct {
    choice choices[most_choices];
    int count;
    bool is_any; /* more than can be noted */
} choices;

static int key_of(const unsigned char *p) {
    const unsigned char *key = p + key_offset(p);
    return key_length(p) == 1 && key[0] >= 'a' && key[0] < 'a' + most_keys ? key[0] - 'a' : -1;
}

/* A place in a shard's log. */
typedef struct {
    uint64_t segment;
    uint32_t offset, shard;
} position;
enum { most_positions = 12, most_shards = 2 };

static struct {
    choices worlds[most_worlds][most_keys];
    int world_count;
    choices history[most_keys]; /* all that was current at some moment since the last sync */
    /* Where its records were then, including each part's. */
    struct {
        position at[most_positions];
        int count;
    } synced[most_keys];
    bool is_changed[most_keys]; /* since then, possibly to the same value */
    uint16_t last_id;
    bool was_cut, was_damaged;
    /* Worlds in which killed operations happened, until the shard is locked and recovered. */
    choices pending[most_pending][most_keys];
    int pending_count;
    bool is_clear_pending;
    /* A pinned entry was damaged; whether the damage has been found since is not tracked. */
    bool has_damaged_pin;
    /* An index was rebuilt while the disk was full, and freed space that pinned entries need: limits.md, "Disk
     * space". */
    bool lacks_reserve;
    /* Uncounted space: a writer was killed that had stopped while it prepared a frame, and others had allocated that
     * and freed it: limits.md, "Disk space". */
    int uncounted;
    choices uncleared[most_keys]; /* before it */
    int actor;
    int capacity; /* which of the configuration's */
    /* Of each process's cursors: a bit for each key. */
    struct {
        uint8_t lived; /* since it was opened, any get would have found it */
        uint8_t away; /* since then, none would */
        uint8_t shown;
    } cursors[processes][cursors];
    uint64_t reader_index; /* the inode of the one that the read-only handle uses */
    /* The latest load of a key that no other operation uses: the lease's number is a token for a fenced set. */
    struct {
        uint64_t token; /* 0: none */
        uint64_t index; /* the inode of the one that has it */
        uint32_t holder; /* the number of its process */
        int64_t end; /* of the lease */
        bool may_be_refused; /* whether a fenced set may be refused, for changes since */
    } load;
} model;

typedef enum {
    /* Pinned entries leave a call no room: space.md, "Pinned entries". */
    tolerance_full_of_pins,
    /* shale.h, SHALE_E_FULL */
    tolerance_full_disk,
    /* The contents of the tail segment go first: limits.md, "Order, counts and eviction". Or an entry finds no place:
     * space.md, "The table". */
    tolerance_forced_eviction,
    /* A table cannot place an entry within its reach: space.md, "Pinned entries". */
    tolerance_no_place,
    /* A set that failed has forced out its own key: limits.md, "Order, counts and eviction". */
    tolerance_own_forced_out,
    /* A large value is evicted by the set that replaces it: space.md, "When room runs out". */
    tolerance_makes_room,
    /* The old and the new value do not fit together, and the old one has to stay: space.md, "When room runs out". */
    tolerance_both_do_not_fit,
    /* design.md, "Eviction" */
    tolerance_evicted,
    /* Evicted or expired entries are indexed again: recovery.md, "A rebuild". */
    tolerance_came_back,
    /* A call that was killed happened whole or not at all: recovery.md, "A process is killed". */
    tolerance_killed,
    /* A later record survives an earlier one: recovery.md, "A power failure". Or a value has lost its body: recovery.md,
     * "A rebuild". */
    tolerance_cut,
    /* The tail has passed the record: recovery.md, "A power failure". */
    tolerance_passed,
    /* A large value comes back without some of its parts, and is found by calls that do not read it: limits.md,
     * "After the index is rebuilt". */
    tolerance_lacks_parts,
    /* Damage before the synced position discards older records: format.md, "What is checked when". */
    tolerance_damage,
    /* A clear was killed, and recovery will finish it: recovery.md, "A process is killed". Readers, which take no
     * lock, see the entries until then. */
    tolerance_clear_pending,
    /* A tag was expired twice, and the cleaner has noted the first time: design.md, "Tags". */
    tolerance_expired_again,
    /* The log is the whole truth (recovery.md, "Invariants"). So if the index is deleted before a killed writer's
     * work is recovered, its record counts. */
    tolerance_deleted_unsettled,
    /* A clear, a rebuild, and more changes of others than a line of the fence table notes refuse a fenced set:
     * limits.md, "Processes". */
    tolerance_fence,
    /* The test's own limit: more alternatives than it has room for. */
    tolerance_unknown,
    tolerances
} tolerance;
static const char *const tolerance_names[tolerances] = {"full of pins",
                                                        "full disk",
                                                        "forced eviction",
                                                        "no place in the table",
                                                        "own value forced out",
                                                        "replaced value makes room",
                                                        "both do not fit",
                                                        "evicted",
                                                        "came back in a rebuild",
                                                        "killed call",
                                                        "lost by a cut",
                                                        "passed by the tail since the sync",
                                                        "lacks parts",
                                                        "discarded for damage",
                                                        "clear pending",
                                                        "expired again",
                                                        "index deleted unsettled",
                                                        "fenced set after many changes, a rebuild or a clear",
                                                        "not recorded"};
static uint64_t tolerances_used[tolerances], checks;

static bool is_same(const choice *a, const choice *b) {
    return a->id == b->id && a->increments == b->increments && a->expires == b->expires && a->own == b->own &&
           ((a->flags ^ b->flags) & ~may_lack_parts) == 0;
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
static bool is_dead(const choice *c) {
    return c->id == 0 || (c->expires && machine.clock_ms >= c->expires + c->stale);
}
static bool is_stale(const choice *c) {
    return !is_dead(c) && c->expires && machine.clock_ms >= c->expires;
}
static bool is_fresh(const choice *c) {
    return !is_dead(c) && !is_stale(c);
}
static bool may_be_there(const choices *c) {
    for (int i = 0; i < c->count; i++)
        if (!is_dead(&c->choices[i]) && c->choices[i].leave != seen_missing)
            return true;
    return c->is_any;
}
static bool may_be_fresh(const choices *c) {
    for (int i = 0; i < c->count; i++)
        if (is_fresh(&c->choices[i]) && c->choices[i].leave != seen_missing)
            return true;
    return c->is_any;
}
static bool may_be_stale(const choices *c) {
    for (int i = 0; i < c->count; i++)
        if (is_stale(&c->choices[i]))
            return true;
    return c->is_any;
}
static bool may_be_missing(const choices *c) {
    for (int i = 0; i < c->count; i++)
        if (is_dead(&c->choices[i]) || c->choices[i].leave || c->choices[i].flags & (may_lack_parts | is_damaged))
            return true;
    return c->is_any;
}

/* The keys that every get finds, and those that none does. (A stale one is among neither.) */
static uint8_t keys_that_live(void) {
    uint8_t keys = 0;
    for (int k = 0; k < most_keys && !model.is_clear_pending; k++) {
        bool lives = true;
        for (int w = 0; w < model.world_count; w++) {
            const choices *c = &model.worlds[w][k];
            lives &= c->count > 0 && !c->is_any;
            for (int i = 0; i < c->count; i++)
                lives &= is_fresh(&c->choices[i]) && c->choices[i].leave == resident &&
                         !(c->choices[i].flags & (may_lack_parts | is_damaged));
        }
        keys |= (uint8_t)(lives << k);
    }
    return keys;
}
static uint8_t keys_that_are_away(void) {
    uint8_t keys = 0;
    for (int k = 0; k < most_keys && !model.is_clear_pending; k++) {
        bool is_away = true;
        for (int w = 0; w < model.world_count; w++)
            is_away &= !may_be_there(&model.worlds[w][k]);
        keys |= (uint8_t)(is_away << k);
    }
    return keys;
}
static void note_who_lives(void) {
    uint8_t lives = keys_that_live(), away = keys_that_are_away();
    for (int p = 0; p < processes; p++)
        for (int i = 0; i < cursors; i++)
            model.cursors[p][i].lived &= lives, model.cursors[p][i].away &= away;
}
static void note_that_left(int key) {
    for (int p = 0; p < processes; p++)
        for (int i = 0; i < cursors; i++)
            model.cursors[p][i].lived &= (uint8_t)~(1u << key);
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

static int add_to(choices (*worlds)[most_keys], int count, int most, const choices *w) {
    for (int i = 0; i < count; i++)
        if (is_same_world(worlds[i], w))
            return count;
    if (count < most) {
        memcpy(worlds[count], w, sizeof worlds[0]);
        return count + 1;
    }
    for (int k = 0; k < most_keys; k++)
        add_choices(&worlds[most - 1][k], &w[k]);
    return count;
}

/* The worlds after an operation that may have happened or not. */
static void add_world(const choices *w) {
    model.world_count = add_to(model.worlds, model.world_count, most_worlds, w);
}

/* Those in which the log has what a killed operation did not finish. */
static void add_pending(const choices *w) {
    model.pending_count = add_to(model.pending, model.pending_count, most_pending, w);
}

static void note_history(void) {
    for (int w = 0; w < model.world_count; w++)
        for (int k = 0; k < most_keys; k++)
            add_choices(&model.history[k], &model.worlds[w][k]);
}
static bool is_before(position a, uint64_t segment, uint64_t offset) {
    return a.segment < segment || (a.segment == segment && a.offset < offset);
}

/* The tail of a shard's log, or the furthest that any header names. */
static position tail_of(const layout *l, size_t shard) {
    position tail = {.shard = (uint32_t)shard};
    for (int n = name_index; n < names; n++)
        if (machine.names[n] >= 0 &&
            machine.files[machine.names[n]].size >= index_head + shard * l->region + shard_header) {
            shard_view v = view_of(l, bytes_of_data, bytes_of(machine.names[n]), shard);
            if (is_before(tail, field(&v, w_tail_number), field(&v, w_tail_offset)))
                tail = (position){field(&v, w_tail_number), (uint32_t)field(&v, w_tail_offset), (uint32_t)shard};
        }
    for (size_t place = 0; place < l->rows; place++) {
        size_t start = l->segments + (place * l->shards + shard) * l->segment;
        const unsigned char *p = bytes_of_data + start;
        if (start + l->segment <= machine.files[0].size && word(p, 0) == 0x31474553454C4853u && word(p, 40) &&
            is_before(tail, word(p, 32), word(p, 56)))
            tail = (position){word(p, 32), (uint32_t)word(p, 56), (uint32_t)shard};
    }
    return tail;
}

static void note_position(int key, const shard_view *v, size_t place, size_t offset) {
    if (model.synced[key].count == most_positions)
        abort();
    model.synced[key].at[model.synced[key].count++] = (position){place_number(v, place), (uint32_t)offset,
                                                                 (uint32_t)v->shard};
}

/* Where the records of each key are, its parts' by the blob that its manifest names. */
static void note_positions(void) {
    layout l = read_layout(bytes_of_data);
    uint64_t blobs[most_keys] = {0};
    memset(model.synced, 0, sizeof model.synced);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < l.shards && machine.names[name_index] >= 0; i++) {
            shard_view v = view_of(&l, bytes_of_data, bytes_of(machine.names[name_index]), i);
            slot s;
            for (size_t at = 0; next_slot(&v, &at, &s);) {
                const unsigned char *p = record_at(&v, s.location), *value = value_record(&v, s.location);
                if (!value || s.is_part != (pass == 1))
                    continue;
                int key = s.is_part ? -1 : key_of(value);
                for (int k = 0; k < most_keys && s.is_part; k++)
                    if (blobs[k] && word(value, key_offset(value)) == blobs[k])
                        key = k;
                if (key < 0)
                    continue;
                note_position(key, &v, place_of(&v, s.location), (size_t)s.location * 8 % l.segment);
                if (p != value)
                    note_position(key, &v, place_of(&v, (uint32_t)word(p, stored_offset(p))),
                                  (size_t)(uint32_t)word(p, stored_offset(p)) * 8 % l.segment);
                if (!s.is_part && record_kind(value) == kind_manifest)
                    blobs[key] = word(value, stored_offset(value));
            }
        }
    /* An entry that is not in the index and may come back with another one is somewhere in the log. */
    for (int k = 0; k < most_keys; k++)
        for (size_t i = 0, count = model.synced[k].count ? 0 : l.shards; i < count; i++)
            model.synced[k].at[model.synced[k].count++] = tail_of(&l, i);
}

/* Whether the tail has passed the key's record, or a part of its value, since the sync: recovery.md, "A power
 * failure". */
static bool was_passed(int key) {
    layout l = read_layout(bytes_of_data);
    for (int i = 0; i < model.synced[key].count; i++) {
        position tail = tail_of(&l, model.synced[key].at[i].shard);
        if (is_before(model.synced[key].at[i], tail.segment, tail.offset))
            return true;
    }
    return false;
}

static void all_is_durable(void) {
    memset(model.is_changed, 0, sizeof model.is_changed);
    for (int k = 0; k < most_keys; k++) {
        model.history[k].count = 0;
        model.history[k].is_any = false;
    }
    note_history();
}

static void mark(int key, uint16_t id, uint8_t from, uint8_t to) {
    for (int w = -model.pending_count; w <= model.world_count; w++) {
        choices *c = w < 0                    ? &model.pending[-w - 1][key]
                     : w == model.world_count ? &model.history[key]
                                              : &model.worlds[w][key];
        for (int i = 0; i < c->count; i++)
            if ((!id || c->choices[i].id == id) && c->choices[i].leave == from)
                c->choices[i].leave = to;
    }
    /* Entries that come back may lack parts. */
    if (from == seen_missing)
        for (int w = 0; w < model.world_count; w++)
            for (int i = 0; i < model.worlds[w][key].count; i++)
                if (model.worlds[w][key].choices[i].size == 2 && model.worlds[w][key].choices[i].leave)
                    model.worlds[w][key].choices[i].flags |= may_lack_parts;
}

/* A rebuild may find a damaged record's original, which the cleaner has copied, whole: the copy has its lsn. No read
 * finds the damage after that, and older records stay, if there are any. */
static void replay_damaged(void) {
    for (int w = 0; w < model.world_count; w++)
        for (int k = 0; k < most_keys; k++) {
            choices *c = &model.worlds[w][k];
            bool was_damaged = false;
            for (int i = 0, count = c->count; i < count; i++) {
                choice x = c->choices[i];
                if (!(x.flags & is_damaged))
                    continue;
                was_damaged = true;
                x.flags &= (uint8_t)~is_damaged;
                x.leave = evicted;
                add_choice(c, x);
            }
            for (int i = 0; i < c->count && was_damaged; i++)
                c->choices[i].flags &= (uint8_t)~is_older;
            if (was_damaged)
                add_choice(c, (choice){0});
        }
}

/* After a cut each key has one of its states since the last sync. Call before the files change. */
static void model_cut(void) {
    layout l = read_layout(bytes_of_data);
    model.world_count = 1;
    for (int k = 0; k < most_keys; k++) {
        bool is_passed = was_passed(k);
        choices *c = &model.worlds[0][k];
        *c = model.history[k];
        for (int i = 0, count = c->count; i < count; i++)
            if (c->choices[i].flags & is_damaged) {
                choice before = c->choices[i]; /* perhaps the damage was only in memory */
                before.flags &= (uint8_t)~is_damaged;
                add_choice(c, before);
            }
        if (c->count > 1 || model.is_changed[k] || is_passed)
            add_choice(c, (choice){.flags = is_lost_by_cut | (is_passed ? is_passed_by_tail : 0)});
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
    memset(model.is_changed, 0, sizeof model.is_changed);
    /* A record found now is at the tail's present position, or after it. */
    for (int k = 0; k < most_keys; k++) {
        model.synced[k].count = 0;
        for (size_t i = 0; i < l.shards; i++)
            model.synced[k].at[model.synced[k].count++] = tail_of(&l, i);
    }
}

/* A read has found the damage and removed the damaged entry, for good. */
static void met_damage(choices *c) {
    choices left = {.is_any = c->is_any};
    for (int i = 0; i < c->count; i++)
        if (!(c->choices[i].flags & is_older))
            add_choice(&left, c->choices[i].flags & is_damaged ? (choice){0} : c->choices[i]);
    *c = left;
}

/* An entry that may be the same in two ways may be missing if it is in one of them. */
static void add_either(choices *c, choice x) {
    for (int i = 0; i < c->count; i++)
        if (is_same(&c->choices[i], &x) && c->choices[i].leave != x.leave)
            c->choices[i].leave = x.leave = evicted;
    add_choice(c, x);
}

/* What an expiry of its tag makes of a value. One that the tag had made stale before may have the first time in its
 * record. */
static void add_expired(choices *to, choice x) {
    if (!(x.flags & is_tagged_value) || !x.id) {
        add_either(to, x);
        return;
    }
    if (!x.stale) {
        add_either(to, (choice){0});
        return;
    }
    if (x.flags & is_stale_by_tag) {
        tolerances_used[tolerance_expired_again] += x.own != x.expires;
        add_either(to, x);
        if (is_dead(&x))
            x.leave = evicted;
        x.expires = x.own;
    }
    x.own = x.expires;
    x.flags |= is_stale_by_tag;
    if (!x.expires || x.expires > machine.clock_ms)
        x.expires = machine.clock_ms;
    add_either(to, x);
}
/* Also for earlier states: after a cut the expiry may be there, and a set in between may not. */
static void expire_history(void) {
    for (int k = 0; k < most_keys; k++) {
        choices before = model.history[k];
        for (int i = 0; i < before.count; i++)
            if (before.choices[i].stale)
                add_expired(&model.history[k], before.choices[i]);
    }
}

/* One world after a miss, of a caller that asked for stale values too or (`plain`) did not; false if a miss is
 * impossible. */
static bool saw_miss(choices *c, bool plain) {
    choices left = {.is_any = c->is_any};
    /* Evicting a damaged entry does not reveal the damage, and a full disk has no room for a loss record. */
    bool is_noted = !machine.is_full;
    for (int i = 0; i < c->count; i++)
        if (c->choices[i].flags & is_damaged && c->choices[i].leave)
            is_noted = false;
    for (int i = 0; i < c->count; i++) {
        choice x = c->choices[i];
        if (x.flags & is_damaged && is_noted)
            x = (choice){0};
        bool is_there = !is_dead(&x) && !(plain && is_stale(&x));
        if ((is_there && !x.leave && !(x.flags & (may_lack_parts | is_damaged))) || (x.flags & is_older && is_noted))
            continue;
        if (is_there)
            x.leave = seen_missing;
        left.choices[left.count++] = x;
    }
    bool holds = left.count > 0 || c->is_any;
    *c = left;
    return holds;
}

/* And after a read that found a value. */
static bool saw_value(choices *c, const choice *seen, bool seen_stale) {
    choices left = {.is_any = c->is_any};
    for (int i = 0; i < c->count; i++) {
        choice x = c->choices[i];
        if (x.id != seen->id || x.increments != seen->increments || x.expires != seen->expires ||
            (x.flags & is_pinned_value) != (seen->flags & is_pinned_value) || is_dead(&x) || x.leave == seen_missing ||
            x.flags & is_damaged || is_stale(&x) != seen_stale)
            continue;
        x.leave = resident;
        x.flags &= (uint8_t)~(may_lack_parts | is_older);
        add_choice(&left, x); /* (No answer shows whether its tag was expired once it was stale.) */
    }
    if (left.count) {
        *c = left;
        return true;
    }
    if (!c->is_any)
        return false;
    set_choice(c, *seen);
    c->is_any = true; /* (its tags are not known) */
    return true;
}

#endif
