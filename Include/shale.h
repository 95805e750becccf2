/* shale.h - a persistent cache that lives inside the program that uses it.
 *
 * One cache is one directory. Any number of threads and processes may use it at
 * the same time, and a killed process loses none of its completed writes.
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
 *   - Keep a cache on a local file system. Network file systems (NFS, SMB)
 *     cannot share mappings and are refused.
 *   - A cache may evict any entry that is not pinned. Keep the original elsewhere.
 *   - A completed set survives `kill -9`. A power failure may lose writes made
 *     after the last shale_sync() or orderly shale_close(), keys modified since
 *     then, and entries that a full cache has moved or evicted since then; see
 *     shale_sync().
 *   - The files are mapped: truncating them, or a media error below them,
 *     raises SIGBUS, as with every mapped store.
 *   - Processes that share a cache must run on one kernel: containers can share
 *     it, whatever their libc; virtual machines cannot.
 *
 * Conventions
 *   1. Negative results are errors, the others are answers. After an error
 *      shale_last_error() returns a sentence that names the operation, the path,
 *      the cause and the remedy.
 *   2. Every struct that a caller passes starts with struct_size; set it to
 *      sizeof the struct. New fields are added at the end only, and a smaller
 *      size selects the defaults for the missing ones. Zero is the default of
 *      every option; a nonzero `reserved` is INVALID. shale_stats and
 *      shale_report, which a call fills, need nothing else set. A zeroed
 *      shale_value is ready for use: its struct_size may be 0.
 *   3. Keys and values are arbitrary bytes. A key has 1 to 65,535 bytes. A value
 *      may be empty: NULL with size 0.
 *   4. Sizes are in bytes, times in milliseconds. Ages are durations; points in
 *      time count from 1970-01-01 UTC.
 *   5. A call that fails leaves its key unchanged.
 *   6. Any function may return INVALID for its arguments, and MEMORY. Any
 *      function that takes a cache may return BUSY, if lock_timeout_ms expires
 *      or if the directory was removed or replaced, and IO or PERMISSION, if a
 *      descriptor of the cache was closed, or this process was forked and could
 *      not open the files. With a read-only handle, a
 *      function that modifies the cache returns PERMISSION, and one that reads
 *      returns BUSY once a writer has replaced the index. Each function lists
 *      its other errors; Documentation/guide/errors.md lists all of them with
 *      their remedies.
 *
 * Threads, processes, handles
 *   - Any thread may call any function, and several processes may at once.
 *   - A handle survives fork(): parent and child both keep using it, and each
 *     closes its own copy.
 *   - If the directory is removed or replaced while it is open, calls fail with
 *     SHALE_E_BUSY: "was removed or replaced; open it again". A handle checks
 *     at most once a second; until then it keeps serving hits.
 *   - Not detected, and not allowed: closing a handle while other calls or
 *     cursors use it, calling from a signal handler, closing descriptors that
 *     belong to the cache.
 *
 * Waiting for locks
 *   - A call that modifies the cache locks one shard at a time, usually for less
 *     than a millisecond. A process that is stopped while it holds the lock
 *     (SIGSTOP, a debugger, a frozen cgroup) keeps it until it continues or
 *     ends, and callers that need that shard wait. A process that is stopped
 *     while it opens or closes the cache blocks other opens and closes. Reads
 *     wait only if they meet a rebuild or damage, or draw a token.
 *   - After one second, shale_options.on_wait is called with a sentence that
 *     names the file and the process that holds the lock: once for each wait,
 *     and at most once a minute for each handle and holder. It runs in the
 *     waiting thread and must not use the cache. The sentence is valid until it
 *     returns.
 *   - After lock_timeout_ms the call fails with SHALE_E_BUSY and the same
 *     sentence, and has changed nothing, except that it may have evicted other
 *     entries to make room. The timeout applies to each lock separately.
 *     Calls that lock the shards one after another (shale_invalidate,
 *     shale_clear, shale_evict, shale_purge, shale_verify, batches) have then
 *     finished the earlier shards; repeat them. A failed shale_sync() guarantees
 *     nothing. A failed set of a large value leaves the old value, though other
 *     entries may have been evicted. A shale_close() that fails to get the
 *     opening lock still syncs, but the index is rebuilt after a reboot.
 *   - Deferred work of a successful call (freeing the parts of a replaced large
 *     value, preparing space) waits for at most one second, then is left to
 *     later calls.
 */
#ifndef SHALE_H
#define SHALE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; shale_version() returns the library's. The builds
 * read it from these three lines. */
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
    SHALE_STALE = 2,    /* found, but past its max age (only with SHALE_GET_STALE) */
    SHALE_CONFLICT = 3, /* a SHALE_SET_IF_... condition did not hold; nothing changed */
    SHALE_END = 4,      /* a cursor has no more entries */

    SHALE_E_INVALID = -1,     /* an argument is out of range */
    SHALE_E_TOO_LARGE = -2,   /* key over 65,535 bytes, or value over the cache's limit */
    SHALE_E_FULL = -3,        /* no room: a full disk, pinned entries, or unfinished large values */
    SHALE_E_MEMORY = -4,      /* out of memory */
    SHALE_E_IO = -5,          /* a system call failed: shale_last_errno() */
    SHALE_E_FORMAT = -6,      /* the directory holds other files than a cache */
    SHALE_E_VERSION = -7,     /* the cache has the format of another version */
    SHALE_E_BUSY = -8,        /* another process prevents this call, or lock_timeout_ms has expired */
    SHALE_E_FILESYSTEM = -9,  /* this file system cannot share mappings (NFS and the like) */
    SHALE_E_PERMISSION = -10  /* no permission for the files, or a write through a read-only handle */
};

/* Ages. 0 selects the default; other negative ages are SHALE_E_INVALID. */
#define SHALE_NEVER INT64_MAX /* unlimited age */
#define SHALE_NONE (-1)       /* zero: as stale_ms, not kept past the max age; as max_age_ms, stale at once */

/* shale_options.flags */
#define SHALE_OPEN_READ_ONLY 0x1u  /* does not write; needs no write permission */
#define SHALE_OPEN_MUST_EXIST 0x2u /* fails with SHALE_E_IO (ENOENT) instead of creating */
#define SHALE_OPEN_NO_SYNC 0x4u    /* the last close does not sync */

/* shale_options.compression */
#define SHALE_COMPRESSION_DICTIONARY 0 /* LZ4; small values use dictionaries if the capacity is 4 MiB or more */
#define SHALE_COMPRESSION_LZ4 1        /* LZ4 without dictionaries */
#define SHALE_COMPRESSION_NONE 2
#define SHALE_COMPRESSION_DENSE 3 /* as DICTIONARY by a longer search: smaller, faster to get, slower to set */

/* The eviction policy, fixed when a cache is created.
 * LRU evicts the least recently used entry. CLOCK evicts the oldest entry that was not used since it was written or
 * last kept: it fills more of the capacity, copies and writes less, and one pass over many keys displaces fewer used
 * entries. */
#define SHALE_EVICTION_LRU 0
#define SHALE_EVICTION_CLOCK 1

/* shale_set_options.flags. An entry is present if a plain shale_get would find
 * it; SHALE_SET_IF_VERSION also matches a stale entry. */
#define SHALE_SET_IF_ABSENT 0x1u
#define SHALE_SET_IF_PRESENT 0x2u
#define SHALE_SET_IF_VERSION 0x4u
#define SHALE_SET_PINNED 0x8u        /* not evicted to make room; ages and removals still apply */
#define SHALE_SET_UNCOMPRESSED 0x10u /* stored as given, for data that is already compressed */
#define SHALE_SET_IF_UNCHANGED 0x20u /* a fenced set: see shale_lease */

/* flags of shale_get, shale_get_many, shale_lease and shale_cursor_next */
#define SHALE_GET_STALE 0x1u /* also returns stale entries (stale_ms) */
#define SHALE_GET_PEEK 0x2u  /* does not change recency or counters */
#define SHALE_GET_INFO 0x4u  /* sets size but does not copy the data */
#define SHALE_GET_TOKEN 0x8u /* shale_get: a MISS returns a fencing token in `version`; the miss takes a lock */

/* shale_value.flags */
#define SHALE_VALUE_STALE 0x1u
#define SHALE_VALUE_PINNED 0x2u
/* The reason for a MISS; no flag is set if the key has no entry in the index. An entry that has left the index (by
 * eviction or a sweep), or a large value that has lost a part to other entries, counts as absent. */
#define SHALE_VALUE_EXPIRED 0x4u     /* past its age, and not kept or not requested */
#define SHALE_VALUE_INVALIDATED 0x8u /* one of its tags was invalidated */
#define SHALE_VALUE_DAMAGED 0x10u    /* it was damaged; a writer unlinks it */
/* After shale_lease with SHALE_LEASE_RECORDED: the lease was refused because it could not be recorded. */
#define SHALE_VALUE_UNRECORDED 0x20u

/* A flag of shale_lease: refuse a lease that cannot be recorded, which another caller could get as well. */
#define SHALE_LEASE_RECORDED 0x100u

/* flags of shale_invalidate_with */
#define SHALE_INVALIDATE_EXPIRE 0x1u /* entries with the tag become stale, as by shale_expire */

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
    uint64_t capacity;    /* bytes on disk of all files together, at least 1 MiB;
                             0: 1 GiB for a new cache, unchanged for an existing one */
    uint64_t max_entries; /* 0: no limit for a new cache, unchanged for an existing one */
    int64_t max_age_ms;   /* default max age of an entry; 0: the value set at creation, else SHALE_NEVER */
    int64_t stale_ms;     /* default time an entry is kept past its max age; 0: as at creation, else none */
    uint32_t shards;      /* 0: by capacity: 1 up to 128 MiB or 65,536 entries, 32 from 4 GiB on */
    uint32_t segment_size;/* bytes, a power of two from 128 KiB to 16 MiB; 0: by capacity */
    uint32_t mode;        /* permission bits of new files; 0: 0600 */
    int32_t compression;  /* SHALE_COMPRESSION_... */
    int64_t (*SHALE_NULLABLE now_ms)(void *SHALE_NULLABLE context); /* NULL: the system's wall clock.
                             Decides the age of every entry that this handle reads, whichever process wrote it. */
    void *SHALE_NULLABLE now_context;
    int32_t eviction;     /* SHALE_EVICTION_...; 0: LRU for a new cache, unchanged for an existing one */
    uint32_t reserved;    /* 0 */
    int64_t lock_timeout_ms; /* how long a call waits for a lock before it fails with SHALE_E_BUSY; 0: forever.
                             See "Waiting for locks". */
    void (*SHALE_NULLABLE on_wait)(void *SHALE_NULLABLE context,
                                   const char *SHALE_NONNULL message); /* NULL: no notice */
    void *SHALE_NULLABLE wait_context;
    uint64_t reserve_capacity; /* for a new cache: each process reserves address space up to this capacity, so the
                                  cache can grow and keep its index. 0, or more than four times the capacity: four
                                  times. Growing beyond it rebuilds the index, and the option applies again. */
} shale_options;

typedef struct {
    uint32_t struct_size;
    uint32_t flags;     /* SHALE_SET_... */
    int64_t max_age_ms; /* 0: the cache's default */
    int64_t stale_ms;   /* 0: the cache's default */
    uint64_t version;   /* for SHALE_SET_IF_VERSION; for SHALE_SET_IF_UNCHANGED, a lease or a token */
    const void *SHALE_NULLABLE meta; /* the caller's bytes beside the value (an ETag, a content type), up to 65,535 */
    size_t meta_size;
    const shale_bytes *SHALE_NULLABLE tags; /* up to 8 */
    size_t tag_count;
    uint64_t *SHALE_NULLABLE new_version; /* NULL, or receives the new version */
} shale_set_options;

/* A value and its metadata. Initialise it with SHALE_VALUE_INIT, or zero it. Calls
 * reuse and grow its buffer as getline(3) does, so a loop that reuses one does not
 * allocate. Free it with shale_value_free(). */
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
    uint64_t version;     /* changes with every set; after a MISS with SHALE_GET_TOKEN, the fencing token */
    uint64_t stored_size; /* bytes of the value after compression */
} shale_value;

#define SHALE_VALUE_INIT {(uint32_t)sizeof(shale_value), 0, NULL, 0, NULL, 0, 0, 0, 0, 0, 0}

/* Counters of all processes since the index was created. */
typedef struct {
    uint32_t struct_size;
    uint32_t shards;
    uint64_t entries;       /* in the index; expired ones count until they are swept */
    uint64_t capacity;      /* bytes */
    uint64_t max_entries;   /* 0: no limit */
    uint64_t data_bytes;    /* on disk, the data file */
    uint64_t index_bytes;   /* on disk, the index file */
    uint64_t live_bytes;    /* current records in the data file, with headers and keys */
    uint64_t raw_bytes;     /* current values before compression */
    uint64_t stored_bytes;  /* current values after compression */
    uint64_t hits;
    uint64_t misses;
    uint64_t stale_hits;
    uint64_t sets;
    uint64_t removes;
    uint64_t evictions;     /* to make room */
    uint64_t expirations;   /* unlinked past max age and stale period, or stale by a tag that left the full table of
                               tags. Invalidated entries count neither here nor as evictions. */
    uint64_t invalidations; /* calls of shale_invalidate and shale_invalidate_with */
    uint64_t cleaned_bytes; /* copied by the cleaner */
    uint64_t corrupt_records;
    uint64_t rebuilds;      /* of shards */
    uint64_t dictionaries;  /* made so far */
    uint64_t misses_absent; /* these four add up to misses: no flag, SHALE_VALUE_EXPIRED and so on */
    uint64_t misses_expired;
    uint64_t misses_invalidated;
    uint64_t misses_damaged;
    uint64_t leases;          /* granted by shale_lease: loads started */
    uint64_t conflicts;       /* refused fenced sets (SHALE_SET_IF_UNCHANGED) */
    uint64_t evicted_timed;   /* number of evictions in the next two sums, for their means */
    uint64_t evicted_age_ms;  /* from set to eviction */
    uint64_t evicted_idle_ms; /* from the last hit or set to eviction, accurate to about 1/32;
                                 SHALE_EVICTION_CLOCK: from the last set */
    int32_t eviction;         /* SHALE_EVICTION_... of this cache */
    uint32_t reserved;        /* 0 */
    uint64_t leases_unrecorded; /* granted without a record: others may have loaded the same key */
    uint64_t conflicts_key;   /* these four add up to conflicts: the key changed */
    uint64_t conflicts_tag;   /* one of the tags was invalidated or expired */
    uint64_t conflicts_overflow; /* too many other keys changed to know whether this one did */
    uint64_t conflicts_reset;    /* the cache was cleared or its index rebuilt */
    uint64_t renewals; /* how often the cache was emptied because its version numbers were nearly used up */
} shale_stats;

typedef struct {
    uint32_t struct_size;
    uint32_t flags; /* SHALE_GET_... for the read, and SHALE_LEASE_RECORDED */
    int64_t lease_ms; /* duration of the lease, up to an hour; 0: 30 seconds */
    int64_t wait_ms; /* how long to wait for a value that another caller is loading; 0: no wait */
    int64_t refresh_ahead_ms; /* 0: fresh values are not reloaded. Otherwise each read draws a random time with
                         this mean, and gets a lease if less of the value's age remains, so readers of a
                         popular key rarely miss together. A good mean is once or a few times the duration of a
                         load. */
} shale_lease_options;

typedef struct {
    uint32_t struct_size;
    uint32_t reserved; /* 0 */
    uint64_t records;
    uint64_t bytes;
    uint64_t corrupt_records; /* found damaged and unlinked by this call */
} shale_report;

/* "MAJOR.MINOR.PATCH" of the library; a static string. */
const char *SHALE_NONNULL shale_version(void);
/* A short name of a status ("miss", "no space"); a static string. */
const char *SHALE_NONNULL shale_status_text(shale_status status);
/* The sentence of this thread's last failure, with path, cause and remedy; empty
 * before the first. Valid until the thread's next failure. */
const char *SHALE_NONNULL shale_last_error(void);
/* The errno of this thread's last failure, or 0 if no system call failed. */
int shale_last_errno(void);

/* Opens the cache in `directory`, and creates it with its parents unless
 * SHALE_OPEN_MUST_EXIST is set. NULL opens a new cache in memory, which only later
 * children of fork() share.
 *
 * The cache stores its capacity, max_entries, shards, segment_size, eviction, mode
 * and default ages; the other options belong to the handle. Another capacity or
 * max_entries is applied if the opener is the sole writer, and is SHALE_E_BUSY
 * otherwise. Shrinking evicts and frees space before the call returns; a capacity
 * that cannot hold the pinned entries is SHALE_E_FULL and evicts none. Other
 * shards, segment_size or eviction are SHALE_E_INVALID.
 *
 * Address space (ulimit -v): up to 1.7 times the capacity for a cache in memory. On
 * disk, 1.7 times the capacity that it may grow to with its index: four times its
 * capacity, or reserve_capacity if that is less.
 *
 * Errors: INVALID, IO, FORMAT (the directory holds other files), VERSION, BUSY,
 * FILESYSTEM, PERMISSION, FULL, MEMORY. Cost: constant, except for copied files,
 * whose index is read completely, and for an index that cannot be trusted (after a
 * power failure, or a reboot without an orderly close), which is rebuilt from the
 * data file. A rebuild replaces the order of use by the order of writing, and
 * evicted entries may reappear. Other processes may open and use the cache during
 * the rebuild; a call waits only for the shards that it needs. */
shale_status shale_open(const char *SHALE_NULLABLE directory, const shale_options *SHALE_NULLABLE options,
                        shale_cache *SHALE_NULLABLE *SHALE_NULLABLE cache);
/* Closes the handle, even if it returns an error. NULL is allowed. The last process
 * to close the cache syncs it, unless SHALE_OPEN_NO_SYNC is set. OK if the directory
 * was removed or replaced: files at its path are not touched. Errors: IO if the sync
 * fails. */
shale_status shale_close(shale_cache *SHALE_NULLABLE cache);
/* Returns once everything completed before the call is on the disk. After a power
 * failure you have each entry as of the last sync or later. No key reverts to an
 * older value, and no entry removed, replaced or invalidated before the sync
 * reappears. These may be misses: keys modified since, evicted entries, entries that
 * a full cache has moved since, and, in a full cache, entries displaced by evicted
 * ones that reappear. Errors: IO, FULL, BUSY, PERMISSION. */
shale_status shale_sync(shale_cache *SHALE_NULLABLE cache);

/* Stores a value of up to a quarter of the capacity, and up to 1 GiB. Key, meta and
 * tags together must fit in a segment (at least 128 KiB). CONFLICT if a condition
 * does not hold. A large value (more than 16 KiB, and more than 1/32 of a segment)
 * that is pinned or set with a condition must fit beside the value it replaces, else
 * FULL. Of other values, a set that is FULL evicts no more bytes than it needs.
 * BUSY if the set has waited 30 seconds for other sets of large values to end.
 * Errors: INVALID, TOO_LARGE, FULL, BUSY, MEMORY, PERMISSION. */
shale_status shale_set(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                       const void *SHALE_NULLABLE value, size_t value_size,
                       const shale_set_options *SHALE_NULLABLE options);
/* Reads a value into `value`: OK, MISS, or STALE with SHALE_GET_STALE. Takes no
 * lock, and allocates only to grow the buffer. On MISS, and on errors other than
 * INVALID, the value's size and meta_size are 0; on MISS its flags give the reason.
 * BUSY if a large value was replaced 64 times during the read, if a read-only
 * handle's index was replaced or takes too long to rebuild, and, instead of a MISS,
 * if the directory was removed or replaced. Errors: INVALID, TOO_LARGE, MEMORY,
 * BUSY, IO. */
shale_status shale_get(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                       uint32_t flags, shale_value *SHALE_NULLABLE value);
/* Reads a value as shale_get does and, if it needs loading, returns a lease that at
 * most one caller in any process holds:
 *
 *     uint64_t lease;
 *     shale_lease_options options = {.struct_size = sizeof options, .wait_ms = 5000};
 *     shale_status status = shale_lease(cache, key, size, &options, &value, &lease);
 *     if (lease) {                   // this caller loads
 *         shale_set_options fenced = {.struct_size = sizeof fenced,
 *                                     .flags = SHALE_SET_IF_UNCHANGED, .version = lease};
 *         ... load, and shale_set with &fenced ...
 *         shale_release(cache, key, size, lease);
 *     }
 *
 * Returns OK, MISS or STALE. `*lease` is nonzero if the caller is to load: on a MISS,
 * on a STALE, or on an OK ahead of expiry. If another caller holds the lease, `*lease`
 * is 0: with SHALE_GET_STALE a stale value is returned at once, else the call waits
 * up to wait_ms for the value and then returns MISS.
 *
 * A lease is advisory: it does not prevent sets of the key. It ends with its release,
 * its time, or the handle or process that requested or last renewed it. A cache of 16 MiB or more
 * records at least 4,096 leases at once, a smaller one in proportion. Further leases are
 * granted without a record, and other callers may get them too; with
 * SHALE_LEASE_RECORDED they are refused: `*lease` is 0 and the value's flags contain
 * SHALE_VALUE_UNRECORDED.
 *
 * The lease is also a fencing token. A fenced set (SHALE_SET_IF_UNCHANGED) stores the
 * loaded value only if it cannot be older than another change: it returns CONFLICT if,
 * since the lease was granted, the key was set, incremented, removed or expired (even
 * while absent), the cache was cleared, or one of the value's tags was invalidated or
 * expired. It also returns CONFLICT if the cache no longer knows: after a rebuild, or
 * after changes of too many other keys and tags. Eviction, ages, and a shale_touch
 * that keeps the version are not changes. To load without a lease, take a token from
 * shale_get (SHALE_GET_TOKEN).
 *
 * Errors: as shale_get, and PERMISSION if a read-only handle would have to load.
 * (BUSY does not mean that another caller holds the lease.) */
shale_status shale_lease(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                         const shale_lease_options *SHALE_NULLABLE options, shale_value *SHALE_NULLABLE value,
                         uint64_t *SHALE_NULLABLE lease);
/* Extends a lease for a longer load: to lease_ms from now, up to an hour; 0: 30 seconds. MISS if its time is over or
 * it was granted without a record: other callers may be loading. Errors: INVALID, TOO_LARGE, BUSY, PERMISSION, IO; the
 * same for shale_release. */
shale_status shale_renew(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                         uint64_t lease, int64_t lease_ms);
/* Releases a lease, after the set or instead of it. MISS if its time was over. */
shale_status shale_release(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                           uint64_t lease);
/* Removes an entry. MISS if it does not exist, CONFLICT if it has another version
 * (version 0 matches any). A removal is written to the log, like expiries and
 * invalidations: FULL if all entries are pinned and the disk has no room for it.
 * Errors: INVALID, TOO_LARGE, FULL, BUSY, PERMISSION, IO. */
shale_status shale_remove(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                          uint64_t version);
/* Removes many keys; `statuses` (may be NULL) receives one status for each. Returns the first error, or OK. */
shale_status shale_remove_many(shale_cache *SHALE_NULLABLE cache, size_t count, const shale_bytes *SHALE_NULLABLE keys,
                               shale_status *SHALE_NULLABLE statuses);
/* Makes an entry stale now. It is kept for its stale period from now, at most as long as it would have been kept, for
 * reads that accept stale entries. An entry without a stale period is removed at once, and so is one that cannot be
 * kept because pinned entries, a full disk or its own size leave no room for the change. MISS if it does not exist.
 * Fenced sets treat this as a change of the key, even if it has no entry. Errors: as shale_remove. */
shale_status shale_expire(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size);
/* Gives an entry, fresh or stale, a new max age from now; 0: the default. The value, its stale period and its place in
 * the order of use do not change. Nor does its version, unless one of its tags was expired: then it gets a new one, as
 * from a set. MISS if it does not exist. Errors: as shale_remove; FULL is likelier, because the entry stays. */
shale_status shale_touch(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                         int64_t max_age_ms);
/* The same, if neither the key nor its entry's tags have changed since `token` was drawn (a lease, or a token of a
 * miss; see shale_lease); else CONFLICT. For a load that finds the old value still valid. */
shale_status shale_touch_unchanged(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                                   int64_t max_age_ms, uint64_t token);
/* Adds `delta` to an 8-byte little-endian two's-complement integer. A missing,
 * stale, expired, invalidated or damaged key gets a new entry with `initial` plus
 * `delta` and the default ages. A fresh entry keeps its age, tags and meta. INVALID,
 * with nothing changed, if the fresh value has another size or the sum overflows.
 * `result` may be NULL. Errors: INVALID, TOO_LARGE, FULL, BUSY, MEMORY, PERMISSION,
 * IO. */
shale_status shale_increment(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE key, size_t key_size,
                             int64_t delta, int64_t initial, int64_t *SHALE_NULLABLE result);
/* Frees the buffer and resets the value to SHALE_VALUE_INIT. */
void shale_value_free(shale_value *SHALE_NULLABLE value);

/* Batches overlap the memory accesses of their keys, so they cost much less than
 * single calls. `statuses` (may be NULL) receives one status for each key. Returns
 * the first error, or OK. Each key is an operation of its own: a batch is not
 * atomic. */
shale_status shale_get_many(shale_cache *SHALE_NULLABLE cache, size_t count, const shale_bytes *SHALE_NULLABLE keys,
                            uint32_t flags, shale_value *SHALE_NULLABLE values, shale_status *SHALE_NULLABLE statuses);
shale_status shale_set_many(shale_cache *SHALE_NULLABLE cache, size_t count, const shale_bytes *SHALE_NULLABLE keys,
                            const shale_bytes *SHALE_NULLABLE values, const shale_set_options *SHALE_NULLABLE options,
                            shale_status *SHALE_NULLABLE statuses);

/* Removes every entry that carries the tag and was set before the call. The cost
 * depends on the number of shards, not of entries. A tag has 1 to 65,535 bytes.
 * Errors: INVALID, FULL (as shale_remove), BUSY, PERMISSION, IO; some shards may be
 * done. */
shale_status shale_invalidate(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE tag, size_t tag_size);
/* The same with flags. With SHALE_INVALIDATE_EXPIRE, every entry that carries the tag and was set before the call
 * becomes stale now, as by shale_expire. If a tag is expired again, stale periods that the first call started may
 * restart. Other flags are INVALID. */
shale_status shale_invalidate_with(shale_cache *SHALE_NULLABLE cache, const void *SHALE_NULLABLE tag, size_t tag_size,
                                   uint32_t flags);
/* Removes every entry, pinned ones too. Errors: BUSY, PERMISSION, IO; some shards may be done. The same for shale_evict
 * and shale_purge. */
shale_status shale_clear(shale_cache *SHALE_NULLABLE cache);
/* Evicts up to `count` entries, each shard's next victim first; `evicted` (may be
 * NULL) receives their number. Pinned entries stay. */
shale_status shale_evict(shale_cache *SHALE_NULLABLE cache, uint64_t count, uint64_t *SHALE_NULLABLE evicted);
/* Removes entries past their max age and stale period. Walks the whole index. */
shale_status shale_purge(shale_cache *SHALE_NULLABLE cache, uint64_t *SHALE_NULLABLE purged);
/* Reads and checks every current record, and unlinks damaged entries. `report` may be NULL. Errors: INVALID, BUSY, FULL
 * (unlinking writes to the log), IO. */
shale_status shale_verify(shale_cache *SHALE_NULLABLE cache, shale_report *SHALE_NULLABLE report);
/* Errors: INVALID, BUSY. */
shale_status shale_get_stats(shale_cache *SHALE_NULLABLE cache, shale_stats *SHALE_NULLABLE stats);

/* Walks all entries in unspecified order, without changing recency.
 *   - A key that a get with the same flags would find at every moment from
 *     shale_cursor_open() to END is returned exactly once, even if its value is
 *     replaced meanwhile (the walk returns a value that it had during the call), and
 *     regardless of other keys, writers and rebuilds.
 *   - No key is returned twice, and no key that is absent throughout. A key that is
 *     set, removed or evicted meanwhile may or may not be returned; a set that has to
 *     evict its key's own old value counts as such.
 *   - After an error the next call continues with the same entry. If the index is
 *     replaced under a read-only handle, every further call fails with SHALE_E_BUSY;
 *     that walk never reaches END, and another handle cannot continue it.
 * A cursor belongs to one thread at a time, holds no lock, and must be closed
 * before its cache. shale_cursor_next returns OK, STALE (with SHALE_GET_STALE) or
 * END; `key` and `value` may be NULL, and must be distinct. Errors: INVALID, MEMORY,
 * BUSY. */
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
