/* shale.h - a persistent cache that lives inside the program that uses it.
 *
 * One cache is one directory. Any number of threads and processes use it at
 * the same time; a process that is killed takes nothing with it.
 *
 *     shale_cache *cache;
 *     if (shale_open("/var/cache/app", NULL, &cache) < 0)
 *         errx(1, "%s", shale_last_error());
 *     shale_set(cache, "key", 3, "value", 5, NULL);
 *
 *     shale_value value = SHALE_VALUE_INIT;
 *     if (shale_get(cache, "key", 3, 0, &value) == SHALE_OK)
 *         fwrite(value.data, 1, value.size, stdout);
 *     shale_value_free(&value);
 *     shale_close(cache);
 *
 * Read this first
 *   - Keep a cache on a local file system. Network file systems (NFS, SMB and
 *     the like) cannot share mappings and are refused.
 *   - A cache may drop any entry to make room. Keep the truth elsewhere.
 *   - A completed set survives `kill -9`. A power cut may take what was written
 *     after the last shale_sync() or the last orderly shale_close(), a key that
 *     was changed since altogether, and what a full cache has moved or evicted
 *     since to reuse its space. shale_sync() says more.
 *   - The files are mapped: truncating them, or a media error below them,
 *     raises SIGBUS, as with every mapped store.
 *   - Processes that share a cache must share a PID namespace and a libc.
 *
 * Conventions
 *   1. Results below zero are errors, the others are answers. After an error
 *      shale_last_error() gives the sentence: what failed, on which path, why,
 *      and what to do.
 *   2. Every struct that a caller passes starts with struct_size, which the
 *      caller sets to sizeof. New fields are only added at the end; a smaller
 *      size means the defaults for the rest. Zero is the default of each option;
 *      a `reserved` one that is not 0 is INVALID. Of shale_stats and
 *      shale_report, which a call fills, nothing else has to be set. In a
 *      shale_value struct_size may be 0 as well: a zeroed one is ready for use.
 *   3. Keys and values are any bytes. A key has 1 to 65,535 bytes; a value may
 *      be empty. NULL with size 0 is an empty value.
 *   4. Sizes are bytes. Times are milliseconds: ages are durations, points in
 *      time count from 1970-01-01 UTC.
 *   5. A call that fails leaves its key as it was.
 *   6. Every function may answer INVALID for its arguments, and MEMORY. What
 *      else can fail is said at each, but for two that hold for all that take
 *      a cache: BUSY where lock_timeout_ms is over, or the directory was
 *      removed or replaced; and IO where a lock or a descriptor of the cache
 *      was destroyed. Of the functions that change something, each answers
 *      PERMISSION with a read-only handle; of those that read, each answers
 *      BUSY with one whose index a writer has replaced. Documentation/failures.md
 *      has all of them, with what to do.
 *
 * What holds for every function that takes a cache
 *   - It may be called from any thread, and from several processes at once.
 *   - A handle survives fork(): parent and child both go on using it, and each
 *     closes its own copy.
 *   - Where the directory was removed or replaced since it was opened, calls
 *     fail with SHALE_E_BUSY: "was removed or replaced; open it again". A
 *     handle looks at most once a second. Hits serve what is mapped.
 *   - Not detected, and not allowed: closing a handle while calls or cursors
 *     on it are under way, calling from a signal handler, closing descriptors
 *     that are not the caller's own.
 *
 * Waiting for locks
 *   - A call that changes something holds the lock of one shard at a time, for
 *     less than a millisecond as a rule. A process that is stopped meanwhile
 *     (SIGSTOP, a debugger, a frozen cgroup) keeps the lock until it goes on or
 *     ends, and whoever needs it waits. A process that is stopped while it opens
 *     or closes the cache keeps others from opening and closing it. A read waits
 *     only where it meets a rebuild or damage, or draws a token.
 *   - After a second, shale_options.on_wait is called with a sentence that names
 *     the file and the process that holds the lock: once in a wait, and at most
 *     once a minute for a handle and a holder. It runs in the waiting thread,
 *     and must not use the cache. The sentence is valid until it returns.
 *   - After lock_timeout_ms the call fails with SHALE_E_BUSY and the same
 *     sentence, and has changed nothing, except that it may have evicted other
 *     entries to make room. The time begins anew with each lock.
 *     Calls that take the shards one by one (shale_invalidate, shale_clear,
 *     shale_evict, shale_purge, shale_verify, and batches) are done with those
 *     before; call them again. After a shale_sync() nothing is certain. Large
 *     values: the old one stays, though other entries may have made room.
 *     shale_close() that does not get the lock of opening and closing syncs all
 *     the same, but the index is rebuilt after the machine was started anew.
 *   - What follows a call that has succeeded (giving back the parts of a large
 *     value that was replaced, preparing space) waits for a second at most, and
 *     is left to later calls then.
 */
#ifndef SHALE_H
#define SHALE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; shale_version() is that of the library. This is
 * the one place where it is written: the builds read these three lines. */
#define SHALE_VERSION_MAJOR 0
#define SHALE_VERSION_MINOR 1
#define SHALE_VERSION_PATCH 0
#define SHALE_VERSION SHALE_DOTTED(SHALE_VERSION_MAJOR, SHALE_VERSION_MINOR, SHALE_VERSION_PATCH)
#define SHALE_DOTTED(major, minor, patch) SHALE_DOTTED_AS_WRITTEN(major, minor, patch)
#define SHALE_DOTTED_AS_WRITTEN(major, minor, patch) #major "." #minor "." #patch

#if defined(__clang__)
#define SHALE_NULLABLE _Nullable
#define SHALE_NONNULL _Nonnull
#else
#define SHALE_NULLABLE
#define SHALE_NONNULL
#endif

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wnullability-extension"
#pragma clang diagnostic ignored "-Wnullability-completeness"
#endif

typedef struct shale_cache shale_cache;
typedef struct shale_cursor shale_cursor;
typedef int32_t shale_status;

enum {
    SHALE_OK = 0,
    SHALE_MISS = 1,     /* no such key, or it has expired */
    SHALE_STALE = 2,    /* found, past its max age (only with SHALE_GET_STALE) */
    SHALE_CONFLICT = 3, /* a SHALE_SET_IF_... condition did not hold; nothing changed */
    SHALE_END = 4,      /* a cursor has no more entries */

    SHALE_E_INVALID = -1,     /* an argument is out of range */
    SHALE_E_TOO_LARGE = -2,   /* key over 65,535 bytes, or value over the cache's limit */
    SHALE_E_FULL = -3,        /* no space: a full disk, pinned entries, or large values that are being written */
    SHALE_E_MEMORY = -4,      /* out of memory */
    SHALE_E_IO = -5,          /* a system call failed: shale_last_errno() */
    SHALE_E_FORMAT = -6,      /* the directory holds something that is not a cache */
    SHALE_E_VERSION = -7,     /* a cache of another version's format */
    SHALE_E_BUSY = -8,        /* in use elsewhere in a way that rules this call out, or lock_timeout_ms is over */
    SHALE_E_FILESYSTEM = -9,  /* this file system cannot share mappings (NFS and the like) */
    SHALE_E_PERMISSION = -10  /* the files are not this user's, or a read-only handle was asked to write */
};

/* Ages. 0 is "the default" everywhere; other negative ages are SHALE_E_INVALID. */
#define SHALE_NEVER INT64_MAX /* an age without end */
#define SHALE_NONE (-1)       /* no age: as stale_ms, not kept past its age; as max_age_ms, stale at once */

/* shale_options.flags */
#define SHALE_OPEN_READ_ONLY 0x1u  /* never writes; needs no write permission */
#define SHALE_OPEN_MUST_EXIST 0x2u /* fail with SHALE_E_IO (ENOENT) instead of creating */
#define SHALE_OPEN_NO_SYNC 0x4u    /* the last close does not sync */

/* shale_options.compression */
#define SHALE_COMPRESSION_DICTIONARY 0 /* LZ4, small values against dictionaries; none below 4 MiB */
#define SHALE_COMPRESSION_LZ4 1        /* LZ4 alone */
#define SHALE_COMPRESSION_NONE 2

/* Which entries leave first where there is no room; chosen when a cache is made.
 * ADAPTIVE: what was not used since it was written or last kept, the oldest first. More of the capacity is filled, less
 * is copied and written to the disk, and one pass over many keys displaces less of what is used. With LRU what was used
 * last stays, whatever else was used more. */
#define SHALE_EVICTION_LRU 0
#define SHALE_EVICTION_ADAPTIVE 1

/* shale_set_options.flags. An entry counts as present where a plain shale_get
 * would find it; SHALE_SET_IF_VERSION also holds for a stale entry. */
#define SHALE_SET_IF_ABSENT 0x1u
#define SHALE_SET_IF_PRESENT 0x2u
#define SHALE_SET_IF_VERSION 0x4u
#define SHALE_SET_PINNED 0x8u        /* never evicted for space; ages and removals still apply */
#define SHALE_SET_UNCOMPRESSED 0x10u /* store as it is, e.g. what is compressed already */
#define SHALE_SET_IF_UNTOUCHED 0x20u /* a fenced set: shale_lease says more */

/* flags of shale_get, shale_get_many, shale_lease and shale_cursor_next */
#define SHALE_GET_STALE 0x1u /* also what is past its age but kept (stale_ms) */
#define SHALE_GET_PEEK 0x2u  /* leave recency and counters alone */
#define SHALE_GET_INFO 0x4u  /* all but the bytes: data is not filled, size is */
#define SHALE_GET_TOKEN 0x8u /* shale_get: a MISS fills `version` with a token for a fenced set; costs a lock then */

/* shale_value.flags */
#define SHALE_VALUE_STALE 0x1u
#define SHALE_VALUE_PINNED 0x2u
/* On a MISS, why; none of them where there is no such key. What has left the index
 * since (a sweep, an eviction) is not known any more, and is a key that is not there; so
 * is a large value of which others have taken a part's room. */
#define SHALE_VALUE_EXPIRED 0x4u     /* past its age, and not kept or not asked for */
#define SHALE_VALUE_INVALIDATED 0x8u /* a tag of it was invalidated */
#define SHALE_VALUE_DAMAGED 0x10u    /* it was damaged, and was dropped (a read-only handle drops nothing) */
/* After shale_lease with SHALE_LEASE_RECORDED: no lease was given because it could not be recorded. */
#define SHALE_VALUE_UNRECORDED 0x20u

/* A flag of shale_lease: rather no lease than one that is not recorded, which another may get as well. */
#define SHALE_LEASE_RECORDED 0x100u

/* flags of shale_invalidate_with */
#define SHALE_INVALIDATE_EXPIRE 0x1u /* what carries the tag becomes stale, as by shale_expire */

#define SHALE_MAX_KEY_SIZE 65535u
#define SHALE_MAX_META_SIZE 65535u
#define SHALE_MAX_TAGS 8u

typedef struct {
    const void *SHALE_NULLABLE data;
    size_t size;
} shale_bytes;

typedef struct {
    uint32_t struct_size;
    uint32_t flags;       /* SHALE_OPEN_... */
    uint64_t capacity;    /* bytes on disk, all files together, at least 1 MiB;
                             0: 1 GiB for a new cache, unchanged for an existing one */
    uint64_t max_entries; /* 0: as many as fit (an existing cache: unchanged) */
    int64_t max_age_ms;   /* default age of an entry; 0: what was set at creation, or SHALE_NEVER */
    int64_t stale_ms;     /* default time that an entry is kept past its age; 0: what was set at creation, or none */
    uint32_t shards;      /* 0: chosen from the capacity: one up to 128 MiB or 65,536 entries, 32 from 4 GiB on */
    uint32_t segment_size;/* bytes, a power of two from 128 KiB to 16 MiB; 0: chosen from the capacity */
    uint32_t mode;        /* permission bits of new files; 0: 0600 */
    int32_t compression;  /* SHALE_COMPRESSION_... */
    int64_t (*SHALE_NULLABLE now_ms)(void *SHALE_NULLABLE context); /* NULL: the system's wall clock.
                             Judges every entry that this handle meets, also other processes' entries. */
    void *SHALE_NULLABLE now_context;
    int32_t eviction;     /* SHALE_EVICTION_... of a new cache; 0: LRU, unchanged for an existing one */
    uint32_t reserved;    /* 0 */
    int64_t lock_timeout_ms; /* for how long a call waits for a lock that another process or thread holds, before it
                             fails with SHALE_E_BUSY; 0: without end. "Waiting for locks" says more. */
    void (*SHALE_NULLABLE on_wait)(void *SHALE_NULLABLE context,
                                   const char *SHALE_NONNULL message); /* NULL: not told */
    void *SHALE_NULLABLE wait_context;
    uint64_t reserve_capacity; /* of a new cache: each process that opens it reserves address space up to this
                                  capacity, so that the cache can grow and keep its index. 0, or more than four times
                                  its own capacity: four times. Beyond it, the index is made anew, and the option
                                  counts again. */
} shale_options;

typedef struct {
    uint32_t struct_size;
    uint32_t flags;     /* SHALE_SET_... */
    int64_t max_age_ms; /* 0: the cache's default */
    int64_t stale_ms;   /* 0: the cache's default */
    uint64_t version;   /* with SHALE_SET_IF_VERSION; with SHALE_SET_IF_UNTOUCHED, a lease or a miss's token */
    const void *SHALE_NULLABLE meta; /* caller's own bytes beside the value (an ETag, a content type), up to 65,535 */
    size_t meta_size;
    const shale_bytes *SHALE_NULLABLE tags; /* up to 8 */
    size_t tag_count;
    uint64_t *SHALE_NULLABLE new_version; /* NULL, or where the version that this set gave goes */
} shale_set_options;

/* A value and what is known of it. Initialise with SHALE_VALUE_INIT, or zero it, before
 * the first use; later calls reuse and grow its buffer as getline(3) does, so a
 * loop that reuses one does not allocate. Free it with shale_value_free(). */
typedef struct {
    uint32_t struct_size;
    uint32_t flags; /* SHALE_VALUE_... */
    void *SHALE_NULLABLE data;
    size_t size; /* the value */
    void *SHALE_NULLABLE meta;
    size_t meta_size; /* inside the same buffer */
    size_t capacity;  /* of the buffer */
    int64_t created_ms;
    int64_t expires_ms;   /* SHALE_NEVER: never */
    uint64_t version;     /* changes with every set; after a MISS with SHALE_GET_TOKEN, the token */
    uint64_t stored_size; /* bytes that the value takes after compression */
} shale_value;

#define SHALE_VALUE_INIT {(uint32_t)sizeof(shale_value), 0, NULL, 0, NULL, 0, 0, 0, 0, 0, 0}

/* Counters since the index was made, of all processes together. */
typedef struct {
    uint32_t struct_size;
    uint32_t shards;
    uint64_t entries;       /* indexed now; those that have expired count until they are swept */
    uint64_t capacity;      /* bytes */
    uint64_t max_entries;   /* 0: no limit */
    uint64_t data_bytes;    /* on disk, the data file */
    uint64_t index_bytes;   /* on disk, the index file */
    uint64_t live_bytes;    /* of the data file, records that are current, headers and keys included */
    uint64_t raw_bytes;     /* values that are current, before compression */
    uint64_t stored_bytes;  /* and after it */
    uint64_t hits;
    uint64_t misses;
    uint64_t stale_hits;
    uint64_t sets;
    uint64_t removes;
    uint64_t evictions;     /* to make room */
    uint64_t expirations;   /* left because their age was over and they were not kept any longer, or as stale by a tag
                               that too many others have followed. What was invalidated is in neither. */
    uint64_t invalidations; /* calls of shale_invalidate and shale_invalidate_with */
    uint64_t cleaned_bytes; /* copied by the cleaner */
    uint64_t corrupt_records;
    uint64_t rebuilds;      /* of shards */
    uint64_t dictionaries;  /* made so far */
    uint64_t misses_absent; /* these four add up to misses: SHALE_VALUE_EXPIRED and so on, and none of them */
    uint64_t misses_expired;
    uint64_t misses_invalidated;
    uint64_t misses_damaged;
    uint64_t leases;          /* granted by shale_lease: loads that began */
    uint64_t conflicts;       /* fenced sets (SHALE_SET_IF_UNTOUCHED) that were refused */
    uint64_t evicted_timed;   /* evictions that these sums are of: the mean is the sum divided by this */
    uint64_t evicted_age_ms;  /* from set to eviction */
    uint64_t evicted_idle_ms; /* from the last use (a hit or a set) to eviction: to about a 32nd of that;
                                 SHALE_EVICTION_ADAPTIVE: from the last set */
    int32_t eviction;         /* SHALE_EVICTION_... of this cache */
    uint32_t reserved;        /* 0 */
    uint64_t leases_unrecorded; /* granted, but not recorded: others may have loaded the same key */
    uint64_t conflicts_key;   /* these four add up to conflicts: the key had changed */
    uint64_t conflicts_tag;   /* one of the tags had */
    uint64_t conflicts_line;  /* so many others had changed that the cache does not know whether these had */
    uint64_t conflicts_floor; /* the cache was cleared, or its index made anew */
    uint64_t renewals; /* how often the cache began anew, empty, as its version numbers had come near their end */
} shale_stats;

typedef struct {
    uint32_t struct_size;
    uint32_t flags; /* SHALE_GET_..., for the read, and SHALE_LEASE_RECORDED */
    int64_t lease_ms; /* how long the lease lasts at most, up to an hour; 0: 30 seconds */
    int64_t wait_ms; /* how long to wait for a value that another is loading; 0: not at all */
    int64_t refresh_ahead_ms; /* 0: a fresh value is never loaded anew. Else each reader draws a time by chance,
                         with this mean, and loads where less is left of the value's age: so
                         that the readers of a popular key hardly ever miss together. What a load
                         takes, or some times that, is a good mean. */
} shale_lease_options;

typedef struct {
    uint32_t struct_size;
    uint32_t reserved; /* 0 */
    uint64_t records;
    uint64_t bytes;
    uint64_t corrupt_records; /* found damaged by this call, and dropped */
} shale_report;

/* "MAJOR.MINOR.PATCH" of the library; a static string. */
const char *SHALE_NONNULL shale_version(void);
/* A short name of a status ("miss", "no space"); a static string. */
const char *SHALE_NONNULL shale_status_text(shale_status status);
/* This thread's last failure in words, with path and cause; empty before the
 * first. Valid until the thread's next failure. */
const char *SHALE_NONNULL shale_last_error(void);
/* The errno of this thread's last failure, or 0 where no system call failed. */
int shale_last_errno(void);

/* Opens the cache in `directory`, creating it (and missing parents) unless
 * SHALE_OPEN_MUST_EXIST is set. NULL opens a new cache in memory, shared with
 * later children of fork() alone.
 *
 * Capacity, max_entries, shards, segment_size, eviction, mode and the default ages belong
 * to the cache and are kept in it. Another capacity or max_entries is applied
 * where the opener is alone among writers (a shrink evicts and gives space back
 * before the call returns) and is SHALE_E_BUSY otherwise; one that has no room for what is
 * pinned is SHALE_E_FULL, and nothing is evicted for it; other shards,
 * another segment_size or another policy of eviction are SHALE_E_INVALID. The other options belong to the handle.
 *
 * Address space (ulimit -v): up to 1.7 times the capacity in memory, and on disk 1.7 times the capacity that it may
 * grow to with its index, which is four times its own unless reserve_capacity is less.
 *
 * Errors: INVALID, IO, FORMAT (a directory that holds other files), VERSION,
 * BUSY, FILESYSTEM, PERMISSION, FULL, MEMORY. Cost: constant, unless the files
 * are a copy, whose index is read as a whole, or the index cannot be trusted
 * (after a power cut, or where the machine was started anew before the last
 * orderly close), when it is rebuilt from the data file: the
 * order of use is the order of writing then, and evicted entries may be back.
 * Others may open and use the cache meanwhile; a call waits for what it needs. */
shale_status shale_open(const char *SHALE_NULLABLE directory, const shale_options *SHALE_NULLABLE options,
                        shale_cache *SHALE_NULLABLE *SHALE_NULLABLE cache);
/* Closes the handle, also when it returns an error. NULL is allowed. The last
 * process to close syncs (unless SHALE_OPEN_NO_SYNC). Errors: IO, where that fails. OK
 * where the directory was removed or replaced: nothing at its path is touched. */
shale_status shale_close(shale_cache *SHALE_NULLABLE cache);
/* Returns when all that was completed before the call is on the disk. After a
 * power cut each entry is as it was then, or as later; nothing is older, and
 * nothing that was removed, replaced or invalidated before is back. What may
 * be a miss: an entry whose place a full cache has reused since (having moved
 * the entry elsewhere), a key that was changed since, what was evicted, and in
 * a full cache what evicted entries displace that come back. Errors: IO, FULL, BUSY, PERMISSION. */
shale_status shale_sync(shale_cache *SHALE_NULLABLE cache);

/* Stores a value. Values up to a quarter of the capacity, and up to 1 GiB; key,
 * meta and tags together fit into a segment (128 KiB at the least).
 * CONFLICT where a condition does not hold. A large value (more than 16 KiB, and
 * more than a thirty-second of a segment) that is set with a condition, or
 * pinned, has to fit beside the one that it replaces: FULL where it does not. BUSY where so many
 * large values are being written at once that it has waited for 30 seconds. Errors: INVALID,
 * TOO_LARGE, FULL, BUSY, MEMORY, PERMISSION. */
shale_status shale_set(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                       const void *SHALE_NULLABLE value, size_t value_size,
                       const shale_set_options *SHALE_NULLABLE options);
/* Reads a value into `value`: OK, MISS, or STALE with SHALE_GET_STALE. Takes no
 * lock, and allocates only where the buffer has to grow. On MISS or an error
 * other than INVALID the value's size and meta_size are 0; on MISS its flags
 * say why. BUSY where a large value was replaced 64 times while it was being
 * read, where a read-only handle's index was replaced or is being rebuilt for
 * too long, and, of what is a miss, where the directory was removed or
 * replaced. Errors: INVALID, TOO_LARGE, MEMORY, BUSY, IO. */
shale_status shale_get(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                       uint32_t flags, shale_value *SHALE_NULLABLE value);
/* Reads a value as shale_get does and, where it has to be loaded, gives the
 * right to do so to one at a time of all who ask, in all processes:
 *
 *     uint64_t lease;
 *     shale_lease_options options = {.struct_size = sizeof options, .wait_ms = 5000};
 *     shale_status status = shale_lease(cache, key, size, &options, &value, &lease);
 *     if (lease) {                   // it is for us to load
 *         shale_set_options fenced = {.struct_size = sizeof fenced,
 *                                     .flags = SHALE_SET_IF_UNTOUCHED, .version = lease};
 *         ... load, and shale_set with &fenced ...
 *         shale_release(cache, key, size, lease);
 *     }
 *
 * A fenced set stores what was loaded only if it cannot be older than what
 * others did meanwhile: if, since the lease was given, the key was not set,
 * incremented, removed or expired (also while it was absent), the cache was not
 * cleared, and none of the value's tags was invalidated or expired. Else it answers CONFLICT. It
 * does so too where the cache cannot tell any more: after a rebuild, or when too many
 * other keys and tags have changed since. Eviction, ages and a
 * shale_touch that keeps the version are no changes. Where a miss is to be loaded without a lease,
 * shale_get gives the token (SHALE_GET_TOKEN).
 *
 * OK, MISS or STALE. `*lease` is not 0 where the caller is to load: on a MISS, on
 * a STALE, or ahead of time on an OK. Where another has the lease, it is 0: a STALE
 * value (with SHALE_GET_STALE) is returned at once; else the call waits for the
 * value, and answers MISS after wait_ms. A lease is a hint. It ends with its
 * release, with its time, or with its process: that which asked for it, or renewed
 * it last. It keeps nobody from setting the key. A cache of 16 MiB or more records
 * at least 4,096 leases at once, a smaller one as many in proportion; further ones
 * are granted unrecorded, and others may get them as well. With SHALE_LEASE_RECORDED
 * they are not granted: `*lease` is 0 as if another had it, and the value's flags
 * contain SHALE_VALUE_UNRECORDED. Errors: as shale_get's, and PERMISSION where a
 * read-only handle would have to load. (BUSY is no sign that another has the lease.) */
shale_status shale_lease(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                         const shale_lease_options *SHALE_NULLABLE options, shale_value *SHALE_NULLABLE value,
                         uint64_t *SHALE_NULLABLE lease);
/* Begins a lease's time again, for a load that takes longer: lease_ms from now, up to an hour; 0: 30 seconds. MISS where
 * its time was over, or it was granted unrecorded: others may be loading then. Errors: INVALID, TOO_LARGE, BUSY,
 * PERMISSION, IO; shale_release likewise. */
shale_status shale_renew(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                         uint64_t lease, int64_t lease_ms);
/* Gives a lease back, after the set or instead of it. MISS where its time was over. */
shale_status shale_release(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                           uint64_t lease);
/* Removes an entry: MISS if there was none, CONFLICT if it has another version.
 * version 0: any. A removal is written to the log, as expiries and invalidations are: FULL
 * where nothing may leave for that, because all is pinned and the disk has no room. Errors: INVALID, TOO_LARGE, FULL,
 * BUSY, PERMISSION, IO. */
shale_status shale_remove(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                          uint64_t version);
/* Removes many; statuses (may be NULL) gets one for each key. Returns the first error, or OK. */
shale_status shale_remove_many(shale_cache *SHALE_NULLABLE cache, size_t count, const shale_bytes *SHALE_NULLABLE keys,
                               shale_status *SHALE_NULLABLE statuses);
/* Makes an entry stale now, as if its age were over. It is kept for its stale period from now, but no longer than it
 * would have been, for those who ask for stale data; one without a stale period goes at once, as by shale_remove, and
 * so does one that cannot be kept because pinned entries, a full disk or its own size leave no room for the change.
 * MISS if there is none. To sets with SHALE_SET_IF_UNTOUCHED this is a change of the key, also where it has no entry.
 * Errors: as shale_remove's. */
shale_status shale_expire(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size);
/* Gives an entry, fresh or stale, a new age from now; 0: the default. The value, its stale period
 * and its place in the order of use stay, and so does its version, unless one of its tags was expired:
 * then it gets a new one, as by a set. MISS if there is none. Errors: as shale_remove's; FULL is likelier, as the entry
 * stays. */
shale_status shale_touch(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                         int64_t max_age_ms);
/* The same if nothing has happened to the key, or to its entry's tags, since `token` was drawn (a lease, or a miss's
 * token; shale_lease says more); else CONFLICT. For a load that finds that the old value still holds. */
shale_status shale_touch_untouched(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                                   int64_t max_age_ms, uint64_t token);
/* Adds `delta` to an 8-byte little-endian two's-complement integer. A missing
 * key starts from `initial`, then `delta` is added; so does one that is stale, expired, invalidated
 * or damaged, as a new entry with the default ages. Age, tags and meta of a fresh
 * entry stay. INVALID, with nothing changed, for a fresh value of another
 * size and for an overflow. `result` may be NULL. Errors: INVALID, TOO_LARGE, FULL, BUSY, MEMORY, PERMISSION, IO. */
shale_status shale_increment(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                             int64_t delta, int64_t initial, int64_t *SHALE_NULLABLE result);
/* Frees the buffer and leaves the value as SHALE_VALUE_INIT does. */
void shale_value_free(shale_value *SHALE_NULLABLE value);

/* Many at once: the memory accesses of the keys overlap, so a batch costs much
 * less than single calls. statuses (may be NULL) gets one for each key. Returns
 * the first error, or OK. Each key is its own operation: a batch is not atomic. */
shale_status shale_get_many(shale_cache *SHALE_NULLABLE cache, size_t count, const shale_bytes *SHALE_NULLABLE keys,
                            uint32_t flags, shale_value *SHALE_NULLABLE values, shale_status *SHALE_NULLABLE statuses);
shale_status shale_set_many(shale_cache *SHALE_NULLABLE cache, size_t count, const shale_bytes *SHALE_NULLABLE keys,
                            const shale_bytes *SHALE_NULLABLE values, const shale_set_options *SHALE_NULLABLE options,
                            shale_status *SHALE_NULLABLE statuses);

/* Removes every entry that carries the tag and was set before the call. Costs
 * the number of shards, not of entries. A tag has 1 to 65,535 bytes. Errors: INVALID, FULL (as shale_remove), BUSY,
 * PERMISSION, IO; some shards may be done. */
shale_status shale_invalidate(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE tag, size_t tag_size);
/* The same with flags: with SHALE_INVALIDATE_EXPIRE, every entry that carries the tag and was set before the call
 * becomes stale now, as by shale_expire. Where a tag is expired again, the stale periods of what it had made stale may
 * count from then. Other flags are INVALID. */
shale_status shale_invalidate_with(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE tag, size_t tag_size,
                                   uint32_t flags);
/* Removes every entry, pinned ones too. Errors: BUSY, PERMISSION, IO; some shards may be done. The same of the next two. */
shale_status shale_clear(shale_cache *SHALE_NULLABLE cache);
/* Evicts up to `count` entries, of each shard the one first that its policy names;
 * `evicted` (may be NULL) says how many. Pinned entries stay. */
shale_status shale_evict(shale_cache *SHALE_NULLABLE cache, uint64_t count, uint64_t *SHALE_NULLABLE evicted);
/* Removes what is past its age and past its stale period. Walks the whole index. */
shale_status shale_purge(shale_cache *SHALE_NULLABLE cache, uint64_t *SHALE_NULLABLE purged);
/* Reads every current record, checks it, and drops what is damaged. `report` may be NULL. Errors:
 * INVALID, BUSY, FULL (a loss is written to the log), IO. */
shale_status shale_verify(shale_cache *SHALE_NULLABLE cache, shale_report *SHALE_NULLABLE report);
/* Errors: INVALID, BUSY. */
shale_status shale_get_stats(shale_cache *SHALE_NULLABLE cache, shale_stats *SHALE_NULLABLE stats);

/* Walks all entries, in no promised order. Recency stays as it is.
 *   - A key that a get with the same flags would find at any moment from
 *     shale_cursor_open() to END comes exactly once: also where its value is
 *     replaced meanwhile (it comes with one that it has during the call), and
 *     whatever becomes of other keys, of writers and of shards that are rebuilt.
 *   - No key comes twice, and none that is away throughout. One that is set or
 *     that leaves meanwhile comes or not; a set that has to evict its key's own
 *     old value for room takes the key away for a moment.
 *   - After an error the next call goes on with the same entry. Where the index
 *     is replaced under a read-only handle, each call fails with SHALE_E_BUSY
 *     from then on: such a walk never comes to END, and does not go on with
 *     another handle.
 * A cursor belongs to one thread at a time, holds no lock, and must be closed
 * before its cache. shale_cursor_next: OK, STALE (with SHALE_GET_STALE) or END;
 * `key` and `value` may be NULL, and are two objects. Errors: INVALID, MEMORY, BUSY. */
shale_status shale_cursor_open(shale_cache *SHALE_NULLABLE cache, shale_cursor *SHALE_NULLABLE *SHALE_NULLABLE cursor);
shale_status shale_cursor_next(shale_cursor *SHALE_NULLABLE cursor, uint32_t flags, shale_value *SHALE_NULLABLE key,
                               shale_value *SHALE_NULLABLE value);
void shale_cursor_close(shale_cursor *SHALE_NULLABLE cursor);

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#ifdef __cplusplus
}
#endif

#endif
