/* Power cuts: everything as of the last sync is there, except what the log's tail has passed since; later changes
 * are there or not, and no value is wrong, or older than that sync. See disk.h for what a cut leaves.
 *
 * A chain of lives: a cache is opened, used and cut off at a random store or system call; the next life continues
 * with what is found. On the way many more cuts are tried on copies. An oracle records what each key has been since
 * the last sync, and between which looks at the disk each change happened.
 *
 *    power               4,000 cuts
 *    power SECONDS SEED  chains with SEED, SEED + 1, ... */
#include "afterwards.h"
#include "disk.h"
#include "tolerances.h"
#include "faults.h"
#include "layout.h"
#include "pattern.h"

enum { most_keys = 320, most_versions = 1 << 14, tags = 3, states = 4, most_value = 120000 };

static uint64_t seed;         /* of this chain: it reproduces everything */
static random_source source;  /* of the work and the cuts */

static uint64_t below(uint64_t bound) {
    return random_below(&source, bound);
}

static bool one_in(uint64_t n) {
    return below(n) == 0;
}

static struct {
    uint64_t cuts, chains, lives, in_open, in_close, in_sync, in_change, whole, same_boot, trusted, rebuilt, recycled,
        evicting, strict, found, torn;
} covered;

/* Why an answer is accepted that a cache that loses nothing would not give; each reason is explained at its use. */
enum { by_tail, by_change, by_eviction, by_displacement, by_damage, by_pins };

/* ---- the oracle ----------------------------------------------------------- */

typedef struct {
    bool present, is_counter, is_pinned, was_evicted;
    bool is_unsure; /* one of the history's versions: see `observe` */
    uint64_t number; /* of the value, or the counter's number */
    uint32_t size, meta;
    unsigned tags;
    int64_t expires;
    int begun, done; /* the looks before which the change began, and was complete */
} version;

typedef struct {
    version *versions; /* since the last sync; the first one is the synced one */
    int count, room;
} history;

static history keys[most_keys];
static int key_count;
static uint64_t last_number;
static int64_t clock_ms;
static bool evicts; /* entries may be evicted */

static int64_t now_ms(void *context UNUSED) {
    return clock_ms;
}

static version *current(int key) {
    return &keys[key].versions[keys[key].count - 1];
}

static bool is_there(const version *v) {
    return v->present && clock_ms < v->expires;
}

static version *add_version(int key, version v) {
    history *h = &keys[key];
    if (h->count == h->room) {
        h->room = h->room ? 2 * h->room : 8;
        h->versions = realloc(h->versions, (size_t)h->room * sizeof *h->versions);
        REQUIRE(h->versions != NULL);
    }
    v.begun = disk.now;
    v.done = INT32_MAX;
    v.was_evicted = false;
    h->versions[h->count++] = v;
    return current(key);
}

/* Forgets everything before the last version. */
static void keep_current(int key) {
    if (current(key)->is_unsure)
        return;
    keys[key].versions[0] = *current(key);
    keys[key].count = 1;
}

static void key_name(int key, char name[16]) {
    snprintf(name, 16, "key-%06d", key);
}

/* Half of the values are text whose words change slowly, so that dictionaries are worth making, and age. */
static void fill(unsigned char *bytes, int key, uint64_t number, size_t size) {
    pattern_fill(bytes, (uint64_t)key, number, size);
    if (key % 2)
        return;
    random_source words = {(uint64_t)key * 1000003 + number};
    for (size_t at = sizeof(pattern_head); at < size;) {
        char word[48];
        uint64_t which = random_below(&words, 12), theme = number / 1500;
        int length = snprintf(word, sizeof word, "\"field-%08x\": %u, ",
                              (unsigned)((which + 1) * (theme + 1) * 2654435761u),
                              (unsigned)random_below(&words, 1000));
        size_t n = size - at < (size_t)length ? size - at : (size_t)length;
        memcpy(bytes + at, word, n);
        at += n;
    }
}

static bool matches(int key, const version *v, const shale_value *value) {
    static unsigned char expected[most_value];
    if (!is_there(v) || value->expires_ms != v->expires || value->meta_size != v->meta ||
        !!(value->flags & SHALE_VALUE_PINNED) != v->is_pinned)
        return false;
    for (uint32_t i = 0; i < v->meta; i++)
        if (((const unsigned char *)value->meta)[i] != (unsigned char)(v->number + i))
            return false;
    if (v->is_counter)
        return holds_bytes(value, &v->number, 8);
    if (value->size != v->size)
        return false;
    fill(expected, key, v->number, v->size);
    return holds_bytes(value, expected, v->size);
}

/* Versions given to sets: each is unique, whatever was lost in between. */
static uint64_t *given;
static size_t given_count, given_room;

static void give_version(uint64_t lsn) {
    if (2 * (given_count + 1) > given_room) {
        size_t room = given_room ? 2 * given_room : 4096;
        uint64_t *old = given;
        given = calloc(room, sizeof *given);
        REQUIRE(given != NULL);
        for (size_t i = 0; i < given_room; i++)
            if (old[i]) {
                size_t at = (old[i] * 0x9e3779b97f4a7c15u) % room;
                while (given[at])
                    at = (at + 1) % room;
                given[at] = old[i];
            }
        free(old);
        given_room = room;
    }
    size_t at = (lsn * 0x9e3779b97f4a7c15u) % given_room;
    while (given[at] && given[at] != lsn)
        at = (at + 1) % given_room;
    check_that(given[at] != lsn, __FILE__, __LINE__, "a version is given once", ": %" PRIu64, lsn);
    if (!given[at])
        given_count++;
    given[at] = lsn;
}

/* ---- cuts ------------------------------------------------------------------ */

/* A cut that was made during a call, and is checked when the call has returned. */
typedef struct {
    char *directory;
    int from, to;        /* changes complete before this look persist, those begun before that one may */
    bool is_whole;       /* all from one moment: nothing was recycled since, and no record is torn */
    bool is_same_boot;
    bool has_recycled;   /* segments, with the records of these keys that counted, or their parts */
    uint8_t is_recycled[most_keys];
    bool was_rebuilt;    /* by the reader of the cut */
    power_cut cut;
    const char *call; /* its previous state */
} state;

static state pending[states];
static bool has_inherited; /* such bytes, from an earlier life of the chain */
static int pending_count;
static char *state_directories[states], *life_directories[2];
static shale_options options;
static unsigned boots;
static char boot_id[40];
static enum { in_open, in_close, in_sync, in_change } doing;
static bool ends;     /* this life ends within this call */
static bool has_ended;
static state end;
static uint64_t stores_left;
static const char *call_name = "";

static void new_boot(void) {
    snprintf(boot_id, sizeof boot_id, "00000000-0000-0000-0000-%012u", ++boots);
    shim_faults.boot_id = boot_id;
}

static uint64_t word(const unsigned char *bytes, size_t at) {
    uint64_t w;
    memcpy(&w, bytes + at, 8);
    return w;
}

typedef struct {
    size_t shards, size, start, places;
} segments;

/* Where segments are, from the superblock. */
static segments find_segments(const disk_file *data, int time) {
    segments s = {0};
    const page_version *page = version_at(data, 0, time);
    if (!page || page->is_hole)
        return s;
    const unsigned char *block = NULL;
    for (int copy = 0; copy < 2; copy++) {
        const unsigned char *p = page->bytes + copy * 2048;
        if (word(p, 0) == 0x41544144454c4853u && word(p, 120) && (!block || word(p, 16) > word(block, 16)))
            block = p;
    }
    if (!block)
        return s;
    uint32_t shards, size, rows, places, place_size;
    memcpy(&shards, block + 48, 4), memcpy(&size, block + 52, 4), memcpy(&rows, block + 80, 4);
    memcpy(&places, block + 88, 4), memcpy(&place_size, block + 92, 4);
    size_t start = disk_page + (shards * 32 + disk_page - 1) / disk_page * disk_page + places * place_size,
           unit = size < 2 << 20 ? size : 2 << 20;
    s = (segments){shards, size, (start + unit - 1) / unit * unit, (size_t)rows * shards};
    return s;
}

typedef struct {
    uint64_t number, tail;
    uint32_t tail_offset;
} segment_words;

/* Reads a segment's header; false if there is none. */
static bool segment_header(const page_version *page, segment_words *words) {
    if (!page || page->is_hole || word(page->bytes, 0) != 0x31474553454c4853u || !word(page->bytes, 40))
        return false;
    *words = (segment_words){word(page->bytes, 16), word(page->bytes, 32), (uint32_t)word(page->bytes, 56)};
    return true;
}

/* A segment as it was when the disk was last in order, and how far the tail has passed it since. */
typedef struct {
    uint64_t number;
    size_t page;
    uint32_t passed;
} durable_segment;

static int by_number(const void *a, const void *b) {
    uint64_t x = ((const durable_segment *)a)->number, y = ((const durable_segment *)b)->number;
    return x < y ? -1 : x > y;
}

/* The record of each key that counted then. */
static struct {
    bool is_passed;
    uint64_t blob; /* of a manifest */
} newest[most_keys];
static uint64_t passed_blobs[1024]; /* the tail has passed parts of them */
static size_t passed_blob_count;

static uint64_t secret_of(const disk_file *data, int time) {
    const page_version *page = version_at(data, 0, time);
    return word(page->bytes, 2048 + 24) ? word(page->bytes, 2048 + 24) : word(page->bytes, 24);
}

/* Notes what the records of a segment say; those that were passed cannot be relied on. */
static void note_records(const unsigned char *bytes, size_t size, const durable_segment *segment, uint64_t secret) {
    for (uint64_t at = segment_header_bytes; at + record_header_bytes <= size;) {
        record_view r = record_at(bytes, at);
        if (at + r.length > size ||
            half_at(bytes + at + 16) !=
                head_check_of(bytes, &r, segment->number, segment->page * disk_page + at, secret) ||
            r.kind == record_end)
            break;
        bool is_passed = at < segment->passed;
        at += r.length;
        if (r.kind == record_part && is_passed && passed_blob_count < sizeof passed_blobs / sizeof *passed_blobs)
            passed_blobs[passed_blob_count++] = word(bytes, r.key);
        /* A touch record leaves the value where it is. */
        if ((r.kind != record_value && r.kind != record_manifest && r.kind != record_tombstone) || r.key_size != 10 ||
            memcmp(bytes + r.key, "key-", 4) != 0)
            continue;
        int key = (int)strtol((const char *)bytes + r.key + 4, NULL, 10);
        if (key < 0 || key >= key_count)
            continue;
        newest[key].is_passed = is_passed;
        newest[key].blob = r.kind == record_manifest ? word(bytes, r.stored) : 0;
    }
}

/* The segments of a shard that were on the disk when it was last in order; false if the tail has passed none of
 * their records since. The tail has passed a segment if its frame holds another one, or none, or if a newer header
 * names a later tail. */
static bool find_passed(const disk_file *data, segments s, size_t shard, durable_segment *found, size_t *count) {
    segment_words words, tail = {0};
    bool has_passed = false;
    *count = 0;
    for (size_t place = shard; place < s.places; place += s.shards)
        for (const page_version *v = version_at(data, (s.start + place * s.size) / disk_page, disk.now);
             v && v->time > data->durable; v = v->older)
            if (segment_header(v, &words) &&
                (words.tail > tail.tail || (words.tail == tail.tail && words.tail_offset > tail.tail_offset)))
                tail = words;
    for (size_t place = shard; place < s.places; place += s.shards) {
        size_t first = (s.start + place * s.size) / disk_page;
        if (!segment_header(version_at(data, first, data->durable), &words))
            continue;
        durable_segment *segment = &found[(*count)++];
        *segment = (durable_segment){words.number, first,
                                     words.number < tail.tail    ? UINT32_MAX
                                     : words.number == tail.tail ? tail.tail_offset
                                                                 : 0};
        segment_words later;
        for (const page_version *v = version_at(data, first, disk.now); v && v->time > data->durable; v = v->older)
            if (!segment_header(v, &later) || later.number != segment->number)
                segment->passed = UINT32_MAX;
        has_passed |= segment->passed > segment_header_bytes;
    }
    qsort(found, *count, sizeof *found, by_number);
    return has_passed;
}

/* Which keys had, when the disk was last in order, a current record that the tail has passed since. */
static void find_recycled(state *state, const disk_file *data, segments s) {
    durable_segment *found = calloc(s.places, sizeof *found);
    unsigned char *bytes = malloc(s.size + 64);
    REQUIRE(found && bytes);
    memset(newest, 0, sizeof newest);
    passed_blob_count = 0;
    for (size_t shard = 0; shard < s.shards; shard++) {
        size_t count;
        bool has_passed = find_passed(data, s, shard, found, &count);
        state->has_recycled |= has_passed;
        /* (If none was passed, blobs of manifests matter all the same: their parts are in all shards.) */
        for (size_t i = 0; i < count && (has_passed || s.shards > 1); i++) {
            memset(bytes, 0, s.size + 64);
            for (size_t page = 0; page < s.size / disk_page; page++) {
                const page_version *v = version_at(data, found[i].page + page, data->durable);
                if (v && !v->is_hole)
                    memcpy(bytes + page * disk_page, v->bytes, disk_page);
            }
            note_records(bytes, s.size, &found[i], secret_of(data, data->durable));
        }
    }
    for (int key = 0; key < key_count && state->has_recycled; key++) {
        state->is_recycled[key] = newest[key].is_passed;
        for (size_t i = 0; i < passed_blob_count && newest[key].blob; i++)
            state->is_recycled[key] |= passed_blobs[i] == newest[key].blob;
    }
    free(found);
    free(bytes);
}

static void make_state(state *state, char *directory) {
    memset(state, 0, sizeof *state);
    state->directory = directory;
    state->call = call_name;
    power_cut *cut = &state->cut;
    const disk_file *data = disk_data();
    segments s = data ? find_segments(data, disk.now) : (segments){0};
    cut->segments = s.start;
    cut->segment_size = s.size ? s.size : 1;
    cut->pages = (page_style)below(page_styles);
    cut->index = (index_style)below(index_styles);
    cut->salt = random_next(&source);
    int durable = data ? data->durable : 0;
    cut->journal = one_in(3) ? between(&source, durable, disk.now) : disk.now;
    cut->tears = one_in(3);
    state->from = durable;
    state->to = disk.now;
    if (cut->pages == one_missing && data) {
        size_t changed = 0;
        for (size_t page = 0; page < data->page_count; page++)
            if (data->pages[page] && data->pages[page]->older && below(++changed) == 0)
                cut->missing = page;
    }
    if (cut->pages == all_old || cut->pages == all_new || cut->pages == one_moment) {
        cut->moment = between(&source, durable, disk.now);
        int moment = cut->pages == all_old ? durable : cut->pages == all_new ? disk.now : cut->moment;
        cut->journal = moment;
        cut->tears = false;
        state->from = moment;
        state->to = moment;
        state->is_whole = true;
        state->is_same_boot = cut->pages == all_new && one_in(3);
        if (state->is_same_boot && cut->index == index_any)
            cut->index = index_newest;
        if (state->is_same_boot && cut->index == index_earlier)
            cut->index = index_absent;
    } else if (data && s.size)
        find_recycled(state, data, s);
    disk_cut(cut, directory, &source);
    covered.cuts++;
    covered.torn += cut->tears;
    covered.whole += state->is_whole;
    covered.same_boot += state->is_same_boot;
    covered.recycled += state->has_recycled;
    covered.evicting += evicts;
    (doing == in_open    ? &covered.in_open
     : doing == in_close ? &covered.in_close
     : doing == in_sync  ? &covered.in_sync
                         : &covered.in_change)[0]++;
}

/* A moment at which the power may fail. */
static void moment(uint64_t rate) {
    disk_look();
    if (ends && one_in(3)) {
        make_state(&end, life_directories[strcmp(disk.directory, life_directories[0]) == 0]);
        end.is_same_boot = false; /* (only the next writer settles what a kill left half done) */
        has_ended = true;
        disk_detach();
    } else if (pending_count < states && one_in(rate)) {
        make_state(&pending[pending_count], state_directories[pending_count]);
        pending_count++;
    }
}

static void before_store(const void *at) {
    if (!disk.directory)
        return;
    if (stores_left-- == 0) {
        stores_left = 1 + below(ends ? 200 : 3000);
        call_name = "a store";
        moment(6);
        return;
    }
    /* The words that all others depend on, while they change. */
    size_t offset = disk_offset(at);
    if (offset == SIZE_MAX)
        return;
    const disk_file *data = disk_data();
    segments s = find_segments(data, disk.now);
    if (offset < 2 * disk_page ? one_in(6)
                               : s.size && offset >= s.start && (offset - s.start) % s.size < 64 && one_in(12))
        call_name = "a store of weight", moment(4);
}

static long before_call(const char *name) {
    static const char *const which[] = {"fallocate", "punch", "renameat", "unlinkat", "pwrite", "openat"};
    static bool was_punched;
    if (!disk.directory)
        return 0;
    bool is_one = was_punched;
    was_punched = strcmp(name, "punch") == 0;
    for (size_t i = 0; i < sizeof which / sizeof *which; i++)
        is_one |= strcmp(name, which[i]) == 0;
    call_name = name;
    if (is_one)
        moment(doing == in_open || doing == in_close ? 8 : 12);
    return 0;
}

static void before_sync(void) {
    call_name = "fdatasync";
    if (ends ? one_in(2) : pending_count < states && one_in(4))
        moment(1);
}

/* ---- checking the contents --------------------------------------------------------- */

static void describe(const state *state, int key, const char *what, const version *v) {
    check_that(
        false, __FILE__, __LINE__, what,
        ": key %d, %s number %" PRIu64 ", size %u, expires %" PRId64
        ", changed after look %d, before %d; looks %d to %d of %d, at %s; pages %d, index %d, journal %d%s%s%s%s%s",
        key, v ? v->present ? "present" : "absent" : "none", v ? v->number : 0, v ? v->size : 0, v ? v->expires : 0,
        v ? v->begun : 0, v ? v->done : 0, state->from, state->to, disk.now, state->call, (int)state->cut.pages,
        (int)state->cut.index, state->cut.journal, state->is_whole ? ", whole" : "",
        state->is_same_boot ? ", same boot" : "", state->cut.tears ? ", torn" : "",
        state->has_recycled ? ", recycled" : "", evicts ? ", evicting" : "");
}

/* Evaluates what a read found after a cut. Returns which version it is; -1: the key is absent. */
static int evaluate(const state *state, int key, shale_status status, const shale_value *value) {
    const history *h = &keys[key];
    int first = 0, last = 0;
    for (int i = 0; i < h->count; i++) {
        if (h->versions[i].done < state->from)
            first = i;
        if (h->versions[i].begun < state->to)
            last = i;
    }
    count_look();
    /* A miss is tolerated if the tail has passed the record, or a part of the value; the key was changed since; it
     * was evicted; or it was displaced by evicted entries that came back (recovery.md, "A power failure"). */
    bool was_passed = state->is_recycled[key];
    bool was_changed = !state->is_whole && last > first;
    bool was_evicted = false;
    for (int i = first; i <= last; i++)
        was_evicted |= h->versions[i].was_evicted;
    bool may_be_displaced = evicts && state->was_rebuilt;
    bool may_miss = was_passed || was_changed || was_evicted || may_be_displaced;
    if (was_passed)
        first = 0; /* changes after the last sync may be lost, and earlier ones be there */
    if (!may_miss)
        covered.strict++;
    if (status == SHALE_OK) {
        covered.found++;
        for (int i = last; i >= first; i--)
            if (matches(key, &h->versions[i], value))
                return i;
        for (int i = h->count - 1; i >= 0; i--)
            if (i < first || i > last)
                if (matches(key, &h->versions[i], value)) {
                    describe(state, key, i < first ? "an older value is back" : "a value is there before its time",
                             &h->versions[i]);
                    return i;
                }
        pattern_head head = {0};
        memcpy(&head, value->data, value->size < sizeof head ? value->size : sizeof head);
        version seen = {
            .present = true, .number = head.version, .size = (uint32_t)value->size, .expires = value->expires_ms};
        describe(state, key, "an invisible value is returned", &seen);
        describe(state, key, "  where this should be", &h->versions[last]);
        return -1;
    }
    if (status != SHALE_MISS) {
        check_that(false, __FILE__, __LINE__, "get", ": %s", shale_last_error());
        return -1;
    }
    for (int i = last; i >= first; i--)
        if (!is_there(&h->versions[i]))
            return -1;
    if (!(was_evicted && tolerated(by_eviction, "evicted")) &&
        !(was_changed && tolerated(by_change, "changed since the last sync")) &&
        !(was_passed && tolerated(by_tail, "passed by the tail since the last sync")) &&
        !(may_be_displaced && tolerated(by_displacement, "displaced in a rebuild")))
        describe(state, key, "an entry is lost", &h->versions[last]);
    return -1;
}

/* Reads everything. `found` gets the versions; NULL: not wanted. */
static void read_all(shale_cache *cache, const state *state, int *found) {
    shale_value value = SHALE_VALUE_INIT;
    for (int key = 0; key < key_count; key++) {
        char name[16];
        key_name(key, name);
        int which = evaluate(state, key, get_text(cache, name, 0, &value), &value);
        if (found)
            found[key] = which;
    }
    shale_value_free(&value);
}

static void empty_directory(const char *directory) {
    for (int name = name_data; name < disk_names; name++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", directory, disk_name[name]);
        unlink(path);
    }
}

static bool exists_in(const char *directory) {
    char path[512];
    snprintf(path, sizeof path, "%s/shale.data", directory);
    return access(path, F_OK) == 0;
}

static shale_cache *open_at(const char *directory, uint64_t capacity, uint32_t flags) {
    shale_options o = options;
    o.capacity = capacity;
    o.flags = flags;
    shale_cache *cache = NULL;
    shale_status status = shale_open(directory, &o, &cache);
    /* Pinned entries prevent a smaller capacity, or the dictionaries of the larger one that it was made with. */
    if ((status == SHALE_E_FULL || status == SHALE_E_INVALID) && capacity) {
        o.capacity = 0;
        status = shale_open(directory, &o, &cache);
    }
    CHECK_STATUS(SHALE_OK, status);
    return cache;
}

static bool count_rebuilds(shale_cache *cache) {
    shale_stats stats = stats_of(cache);
    (stats.rebuilds ? &covered.rebuilt : &covered.trusted)[0]++;
    return stats.rebuilds > 0;
}

/* The audit of both files. Where the tail has passed records since the sync, in this life or an earlier one, their
 * bytes may be damage before the synced position, and stay: recovery.md, "A power failure". */
static void audit_copy(const state *state) {
    count_look();
    bool may_be_damaged = state->has_recycled || has_inherited;
    account_is_quiet = may_be_damaged;
    accounts found = take_account(state->directory, account_copied_files);
    if (found.faults && !(may_be_damaged && strstr(found.first_fault, "no record at") &&
                          tolerated(by_damage, "damage before the synced position")))
        check_that(false, __FILE__, __LINE__, "the audit", " says: %s; %s, cut at %s", found.first_fault,
                   state->is_whole ? "of one moment" : "of several moments", state->call);
    if (found.shards == 1) /* (whose parts are in other shards may not be known yet when those are rebuilt) */
        CHECK_EQUAL(0, found.orphans);
    account_is_quiet = false;
}

/* Opens a copy, checks everything, works with it a little, and closes it. */
static void inspect(state *state) {
    if (!state->is_same_boot)
        new_boot();
    bool exists = exists_in(state->directory);
    if (exists && one_in(8)) { /* first a read-only handle, which changes nothing */
        shale_options o = {.struct_size = sizeof o, .flags = SHALE_OPEN_READ_ONLY, .now_ms = now_ms};
        shale_cache *reader = NULL;
        if (shale_open(state->directory, &o, &reader) == SHALE_OK) {
            state->was_rebuilt = true; /* (that cannot be seen) */
            read_all(reader, state, NULL);
            CHECK_STATUS(SHALE_OK, shale_close(reader));
        }
    }
    shale_cache *cache = open_at(state->directory, exists ? 0 : options.capacity, SHALE_OPEN_NO_SYNC);
    if (!cache)
        return;
    int found[most_keys];
    state->was_rebuilt = count_rebuilds(cache);
    read_all(cache, state, found);
    shale_report report = {.struct_size = sizeof report};
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.corrupt_records);
    bool has_failed = check_failures > 0;
    CHECK_STATUS(SHALE_OK, set_text(cache, "after", "it goes on", NULL));
    bool is_cut_again = !has_failed && !state->is_same_boot && one_in(4);
    if (!is_cut_again)
        check_still_works(cache);
    audit_copy(state);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    /* Another cut, which takes nothing. (What a kill left half done, say a clear, may become visible only now: its
     * call never returned.) */
    if (is_cut_again) {
        new_boot();
        cache = open_at(state->directory, 0, SHALE_OPEN_NO_SYNC);
        if (cache) {
            shale_value value = SHALE_VALUE_INIT;
            for (int key = 0; key < key_count; key++) {
                char name[16];
                key_name(key, name);
                shale_status status = get_text(cache, name, 0, &value);
                bool is_same = found[key] >= 0
                                   ? status == SHALE_OK && matches(key, &keys[key].versions[found[key]], &value)
                                   : status == SHALE_MISS;
                count_look();
                /* Evicted entries may be back, and displace others: recovery.md, "A power failure". */
                if (!is_same && !(evicts && found[key] < 0 && tolerated(by_eviction, "evicted")) &&
                    !(evicts && status == SHALE_MISS && tolerated(by_displacement, "displaced in a rebuild")))
                    describe(state, key, "the next rebuild finds something else",
                             found[key] >= 0 ? &keys[key].versions[found[key]] : NULL);
            }
            CHECK_STATUS(SHALE_OK, get_text(cache, "after", 0, &value));
            shale_value_free(&value);
            CHECK_STATUS(SHALE_OK, shale_close(cache));
        }
    }
}

/* Finds which entries have been evicted. A rebuild's evictions are not counted: `all` reads all keys. */
static void look_for_evictions(shale_cache *cache, bool all) {
    static uint64_t known;
    shale_stats stats = {.struct_size = sizeof stats};
    if (shale_get_stats(cache, &stats) != SHALE_OK || (stats.evictions == known && !all))
        return;
    known = stats.evictions;
    evicts |= stats.evictions > 0;
    if (!evicts)
        return;
    char *watched = disk.directory;
    disk.directory = NULL;
    shale_value value = SHALE_VALUE_INIT;
    for (int key = 0; key < key_count; key++) {
        char name[16];
        key_name(key, name);
        if (is_there(current(key)) && get_text(cache, name, SHALE_GET_PEEK, &value) == SHALE_MISS)
            current(key)->was_evicted = true;
    }
    shale_value_free(&value);
    disk.directory = watched;
}

/* After each call: checks the cuts that were made in it. No looks are taken meanwhile. */
static void inspect_pending(shale_cache *cache) {
    if (cache)
        look_for_evictions(cache, false);
    if (pending_count == 0)
        return;
    char *watched = disk.directory;
    char boot[sizeof boot_id];
    memcpy(boot, boot_id, sizeof boot);
    disk.directory = NULL;
    for (int i = 0; i < pending_count; i++) {
        inspect(&pending[i]);
        empty_directory(pending[i].directory);
    }
    pending_count = 0;
    memcpy(boot_id, boot, sizeof boot);
    disk.directory = watched;
}

/* ---- work ------------------------------------------------------------------ */

static shale_cache *cache;
static size_t usual_size;
static uint64_t sync_rate; /* one in this many calls is a sync */
static int large_keys;

/* Returns whether the life continues. */
static bool finish_call(void) {
    inspect_pending(cache);
    return !has_ended;
}

static void complete(int key, shale_status status) {
    history *h = &keys[key];
    if (has_ended)
        return; /* either is right: the call did not return */
    if (status == SHALE_OK)
        current(key)->done = disk.now;
    else
        h->count--;
}

static size_t random_size(int key) {
    if (key < large_keys)
        return 17000 + below(usual_size > 2000 ? 60000 : 20000);
    switch (below(8)) {
    case 0: return sizeof(pattern_head);
    case 1: return sizeof(pattern_head) + below(usual_size * 3);
    default: return usual_size / 2 + sizeof(pattern_head) + below(usual_size);
    }
}

static uint64_t count_evictions(void) {
    shale_stats stats = stats_of(cache);
    return stats.evictions;
}

/* A call found no entry that was there before: evictions are noted after each call, and this one may have been the
 * call's own. */
static void check_evicted(int key, const version *v, uint64_t evictions) {
    count_look();
    if ((v->was_evicted || count_evictions() > evictions) && tolerated(by_eviction, "evicted"))
        return;
    check_that(false, __FILE__, __LINE__, "an entry is missing that was not evicted", ": key %d, number %" PRIu64, key,
               v->number);
}

/* Of a set, an increment or a touch. Pinning may be refused, and beside pinned entries that fill a tiny shard,
 * others may find no room. Removals always find room: space.md, "Pinned entries". */
static void check_stored(shale_status status) {
    count_look();
    if (status == SHALE_E_FULL)
        tolerated(by_pins, "full of pinned entries");
    CHECK_EITHER(SHALE_OK, SHALE_E_FULL, status);
}

static void do_set(int key) {
    static unsigned char bytes[most_value], meta[64];
    char name[16];
    version v = {.present = true, .number = ++last_number, .size = (uint32_t)random_size(key), .is_pinned = one_in(40)};
    v.tags = one_in(3) ? 1 + (unsigned)below((1 << tags) - 1) : 0;
    v.meta = one_in(4) ? (uint32_t)below(sizeof meta) : 0;
    int64_t age = one_in(12) ? 1 + (int64_t)below(400) : one_in(3) ? 3600000 + (int64_t)below(1000) : SHALE_NEVER;
    v.expires = age == SHALE_NEVER ? SHALE_NEVER : clock_ms + age;
    key_name(key, name);
    fill(bytes, key, v.number, v.size);
    for (uint32_t i = 0; i < v.meta; i++)
        meta[i] = (unsigned char)(v.number + i);
    shale_bytes names[tags];
    size_t tag_count = 0;
    static const char *const tag_names[tags] = {"red", "green", "blue"};
    for (int i = 0; i < tags; i++)
        if (v.tags >> i & 1)
            names[tag_count++] = (shale_bytes){tag_names[i], strlen(tag_names[i])};
    uint64_t lsn = 0;
    shale_set_options o = {.struct_size = sizeof o,
                           .flags = (v.is_pinned ? SHALE_SET_PINNED : 0) | (one_in(6) ? SHALE_SET_UNCOMPRESSED : 0),
                           .max_age_ms = age,
                           .meta = meta,
                           .meta_size = v.meta,
                           .tags = names,
                           .tag_count = tag_count,
                           .new_version = &lsn};
    add_version(key, v);
    shale_status status = shale_set(cache, name, strlen(name), bytes, v.size, &o);
    check_stored(status);
    if (status == SHALE_OK && !has_ended)
        give_version(lsn);
    finish_call();
    complete(key, status);
}

static void do_remove(int key) {
    char name[16];
    key_name(key, name);
    version before = *current(key);
    uint64_t evictions = count_evictions();
    add_version(key, (version){.present = false});
    shale_status status = shale_remove(cache, name, strlen(name), 0);
    CHECK_EITHER(SHALE_OK, SHALE_MISS, status);
    if (is_there(&before) && status == SHALE_MISS)
        check_evicted(key, &before, evictions);
    finish_call();
    complete(key, status == SHALE_MISS ? SHALE_OK : status);
}

static void do_touch(int key) {
    char name[16];
    key_name(key, name);
    version v = *current(key);
    if (!is_there(&v))
        return;
    int64_t age = 3600000 + (int64_t)below(100000);
    uint64_t evictions = count_evictions();
    v.expires = clock_ms + age;
    add_version(key, v);
    shale_status status = shale_touch(cache, name, strlen(name), age);
    if (status == SHALE_MISS)
        check_evicted(key, &v, evictions);
    else
        check_stored(status);
    finish_call();
    complete(key, status);
}

/* The last keys are counters. */
static void do_increment(int key) {
    char name[16];
    key_name(key, name);
    version v = *current(key);
    shale_value value = SHALE_VALUE_INIT;
    if (get_text(cache, name, SHALE_GET_PEEK, &value) != SHALE_OK) {
        if (is_there(&v))
            check_evicted(key, &v, count_evictions());
        v = (version){.number = 100, .expires = SHALE_NEVER};
    }
    shale_value_free(&value);
    v.present = v.is_counter = true;
    v.size = 8;
    v.number += 7;
    add_version(key, v);
    int64_t sum = 0;
    uint64_t evictions = count_evictions();
    shale_status status = shale_increment(cache, name, strlen(name), 7, 100, &sum);
    if (status == SHALE_OK && !has_ended && sum != (int64_t)v.number) {
        CHECK_EQUAL(107, sum); /* it started again */
        check_evicted(key, &v, evictions);
        current(key)->number = (uint64_t)sum;
    }
    check_stored(status);
    finish_call();
    complete(key, status);
}

/* `tag`: -1 for all. */
static void do_remove_many(int tag) {
    static const char *const tag_names[tags] = {"red", "green", "blue"};
    bool changed[most_keys];
    for (int key = 0; key < key_count; key++) {
        changed[key] = current(key)->present && (tag < 0 || current(key)->tags >> tag & 1);
        if (changed[key])
            add_version(key, (version){.present = false});
    }
    shale_status status = tag < 0 ? shale_clear(cache)
                                  : shale_invalidate(cache, tag_names[tag], strlen(tag_names[tag]));
    CHECK_STATUS(SHALE_OK, status);
    finish_call();
    for (int key = 0; key < key_count; key++)
        if (changed[key])
            complete(key, status);
}

static void do_sync(void) {
    doing = in_sync;
    CHECK_STATUS(SHALE_OK, shale_sync(cache));
    doing = in_change;
    if (finish_call())
        for (int key = 0; key < key_count; key++)
            keep_current(key);
}

/* The capacity changes. */
static uint64_t next_capacity(void) {
    static const unsigned eighths[] = {8, 12, 16, 6, 40};
    uint64_t least = options.capacity == 2 << 20 ? 2 << 20 : 1 << 20,
             capacity = options.capacity * eighths[below(5)] / 8;
    return !one_in(4) ? 0 : capacity < least ? least : capacity;
}

static void do_reopen(const char *directory) {
    doing = in_close;
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    cache = NULL;
    if (finish_call()) {
        for (int key = 0; key < key_count; key++)
            keep_current(key);
        doing = in_open;
        cache = open_at(directory, next_capacity(), 0);
        if (cache)
            look_for_evictions(cache, true);
        finish_call();
    }
    doing = in_change;
}

/* Finds which of the versions that the cut may have left it is. */
static void settle(int key, const shale_value *value) {
    history *h = &keys[key];
    for (int i = 0; i < h->count; i++)
        if (matches(key, &h->versions[i], value)) {
            h->versions[0] = h->versions[i];
            h->versions[0].is_unsure = h->versions[0].was_evicted = false;
            h->versions[0].done = -1;
            h->count = 1;
            return;
        }
}

/* The contents between cuts are as expected. */
static void do_get(int key) {
    char name[16];
    shale_value value = SHALE_VALUE_INIT;
    key_name(key, name);
    shale_status status = get_text(cache, name, 0, &value);
    if (status == SHALE_OK && current(key)->is_unsure)
        settle(key, &value);
    if (status == SHALE_MISS && is_there(current(key)))
        check_evicted(key, current(key), count_evictions());
    else if (status != SHALE_MISS)
        check_that(status == SHALE_OK && matches(key, current(key), &value), __FILE__, __LINE__,
                   "get finds the value that was set", ": key %d, %s", key, shale_status_text(status));
    shale_value_free(&value);
}

static void work(const char *directory) {
    int key = (int)below((uint64_t)key_count);
    int counters = key_count - key_count / 16;
    clock_ms += one_in(20) ? (int64_t)below(200) : 1;
    if (one_in(sync_rate)) {
        do_sync();
        return;
    }
    switch (below(100)) {
    case 0: do_reopen(directory); break;
    case 4:
        one_in(3) ? do_remove_many(-1) : do_remove_many((int)below(tags));
        break;
        /* clang-format off */
    case 6: case 7: case 8: case 9: case 10: case 11: do_remove(key); break;
    case 12: case 13: case 14: case 15: case 16: case 17: case 18: case 19: do_touch(key); break;
    case 20: case 21: case 22: case 23: case 24: do_get(key); break;
    /* clang-format on */
    default: key >= counters ? do_increment(key) : do_set(key); break;
    }
    if (!has_ended && one_in(12))
        moment(12), inspect_pending(cache);
}

/* ---- chains ---------------------------------------------------------------- */

static bool is_any_there(const history *h) {
    for (int i = 0; i < h->count; i++)
        if (is_there(&h->versions[i]))
            return true;
    return false;
}

/* The state that a cut left, as read in a copy, counts from now on. (The next life's own rebuild is traced, and may
 * be cut off as well.) Only unsynced changes may still be lost, or come back. */
static void observe(const state *end) {
    int found[most_keys];
    state *copy = &pending[0];
    disk_attach(end->directory);
    *copy = *end;
    copy->directory = state_directories[0];
    power_cut cut = {.pages = all_new, .index = index_newest, .segment_size = 1};
    disk_cut(&cut, copy->directory, &source);
    disk_detach();
    bool exists = exists_in(copy->directory);
    shale_cache *looking = open_at(copy->directory, exists ? 0 : options.capacity, SHALE_OPEN_NO_SYNC);
    if (!looking)
        return;
    copy->was_rebuilt = true;
    read_all(looking, copy, found);
    CHECK_STATUS(SHALE_OK, shale_close(looking));
    empty_directory(copy->directory);
    for (int key = 0; key < key_count; key++) {
        history *h = &keys[key];
        if (found[key] >= 0)
            h->count = found[key] + 1;
        else if (is_there(current(key)) && current(key)->was_evicted) {
            /* An evicted entry may be back; this one is not removed: recovery.md, "A power failure". */
            h->versions[0] = *current(key);
            h->count = 1;
        } else if (evicts && is_any_there(h)) {
            /* Entries that came back displaced it, and it is back if there is room for all: recovery.md, "A power
             * failure". */
            for (int i = 0; i < h->count; i++)
                h->versions[i].was_evicted = h->versions[i].is_unsure = true;
        } else {
            h->count = 1;
            if (is_there(&h->versions[0]))
                add_version(key, (version){.present = false});
        }
        for (int i = 0; i < h->count; i++) {
            h->versions[i].begun = -1;
            h->versions[i].done = i > 0 && h->versions[i].is_unsure ? INT32_MAX : -1;
        }
    }
}

/* From the open to the cut, which `end` has then. */
static void live(const char *directory, uint64_t operations) {
    has_ended = false;
    stores_left = 1 + below(2000);
    disk_attach(directory);
    ends = operations == 0;
    doing = in_open;
    cache = open_at(directory, disk_data() ? next_capacity() : options.capacity, 0);
    if (!cache)
        return;
    count_rebuilds(cache);
    look_for_evictions(cache, true);
    finish_call();
    doing = in_change;
    for (int key = 0; key < key_count && !has_ended; key++)
        do_get(key);
    while (!has_ended && cache && check_failures == 0) {
        if (operations == 0 || disk.now > disk_looks - 200)
            ends = true;
        else
            operations--;
        work(directory);
    }
    ends = false;
    if (disk.directory)
        disk_detach();
    if (cache)
        CHECK_STATUS(SHALE_OK, shale_close(cache));
    cache = NULL;
    empty_directory(directory);
    covered.lives++;
}

static void fail_loudly(int number) {
    char text[160];
    int length = snprintf(text, sizeof text, "signal %d%s; reproduce: power 1 %" PRIu64 "\n", number,
                          number == SIGALRM ? " (it hangs)" : "", seed);
    if (write(2, text, (size_t)length) < 0) {
    }
    _exit(1);
}

static void run_chain(void) {
    source.state = seed * 0x9e3779b97f4a7c15u;
    disk.random.state = ~seed;
    boots = 0;
    has_inherited = false;
    new_boot();
    clock_ms = 1700000000000;
    last_number = 0;
    free(disk.earlier);
    disk.earlier = NULL;
    given_count = 0;
    if (given)
        memset(given, 0, given_room * sizeof *given);

    static const uint64_t capacities[] = {1 << 20, 3 << 19, 2 << 20, 2 << 20, 4 << 20, 4 << 20};
    options = (shale_options){
        .struct_size = sizeof options, .capacity = capacities[below(6)], .segment_size = 128 << 10, .now_ms = now_ms};
    options.eviction = policy_of(seed);
    options.shards = options.capacity == 2 << 20 ? 2 : options.capacity == 4 << 20 ? 1 + (uint32_t)below(3) : 1;
    size_t room = options.capacity / 5 - (options.shards > 1 ? options.capacity / 16 : 0);
    bool is_tight = evicts = one_in(5);
    sync_rate = one_in(2) ? 30 : one_in(2) ? 10 : 150;
    usual_size = is_tight ? 4000 + below(3000) : one_in(3) ? 200 + below(300) : 1500 + below(3000);
    large_keys = is_tight ? 6 : one_in(2) ? 1 : 0;
    size_t for_large = is_tight ? 0 : (size_t)large_keys * (usual_size > 2000 ? 90000 : 45000);
    if (for_large > room / 2)
        large_keys = 0, for_large = 0;
    key_count = (int)((is_tight ? 3 * options.capacity : room - for_large) / (usual_size + 100));
    if (key_count > most_keys)
        key_count = most_keys;
    if (key_count < 20)
        key_count = 20;
    for (int key = 0; key < most_keys; key++) {
        keys[key].count = 0;
        add_version(key, (version){.present = false})->done = -1;
        current(key)->begun = -1;
    }
    if (one_in(2) && !is_tight) /* fewer keys, more laps */
        key_count = key_count / 3 + 8;

    int lives = 2 + (int)below(4);
    for (int i = 0; i < lives && check_failures == 0; i++) {
        live(life_directories[i % 2], one_in(i > 0 ? 4 : 16) ? 0 : below(one_in(3) ? 30 : one_in(2) ? 300 : 1000));
        if (check_failures)
            break;
        new_boot();
        observe(&end);
        has_inherited |= end.has_recycled;
    }
    for (int i = 0; i < 2; i++)
        empty_directory(life_directories[i]);
    covered.chains++;
}

int main(int argument_count, char **arguments) {
    int64_t duration = argument_count > 1 ? atoll(arguments[1]) * 1000 : 0;
    seed = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    prefer_memory();
    static const int fatal[] = {SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGALRM};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], fail_loudly);
    for (int i = 0; i < states + 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        char *directory = path_to(name);
        REQUIRE(mkdir(directory, 0700) == 0);
        (i < states ? state_directories : life_directories)[i < states ? i : i - states] = directory;
    }
    begin_tolerances();
    shim_faults.call = before_call;
    shim_faults.store = before_store;
    disk.before_sync = before_sync;
    int64_t end_ms = monotonic_ms() + duration;
    do {
        alarm(patience);
        run_chain();
        if (check_failures)
            fprintf(stderr, "reproduce: power 1 %" PRIu64 "\n", seed);
        seed++;
    } while (check_failures == 0 && (duration ? monotonic_ms() < end_ms : covered.cuts < 4000));
    printf("%" PRIu64 " cuts in %" PRIu64 " chains of %" PRIu64 " lives: %" PRIu64 " while opening, %" PRIu64
           " while closing, %" PRIu64 " in a sync; %" PRIu64 " with torn pages, %" PRIu64 " of one moment (%" PRIu64
           " of them kills), %" PRIu64 " after cleaning, %" PRIu64 " after evictions; index trusted %" PRIu64
           " times, renewed %" PRIu64 "; %" PRIu64 " entries found, %" PRIu64 " could not miss\n",
           covered.cuts, covered.chains, covered.lives, covered.in_open, covered.in_close, covered.in_sync,
           covered.torn, covered.whole, covered.same_boot, covered.recycled, covered.evicting, covered.trusted,
           covered.rebuilt, covered.found, covered.strict);
    print_tolerances();
    return finish();
}
