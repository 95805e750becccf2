/* The interface of a store to the benchmark. Each store is one file in drivers/.
 *
 * A store is opened once; each thread attaches to it and works through a session of its own. A get copies the value
 * into the caller's buffer, which is large enough: returning a pointer does not count. Failures that would spoil a
 * benchmark (no memory, no disk) end the process. */
#ifndef DRIVER_H
#define DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const void *data;
    size_t size;
} bytes;

typedef struct {
    void *data; /* from malloc */
    size_t size, capacity;
} buffer;

typedef struct {
    const char *directory; /* exists; empty the first time */
    uint64_t entries;      /* that will be stored */
    uint64_t raw_bytes;    /* of their keys and values together */
    uint64_t value_bytes;  /* of a value, on average */
    uint64_t capacity;     /* capacity in bytes, kept by evicting; 0: keep everything */
    uint64_t memory;       /* in bytes, for all its caches and the page cache; 0: enough for everything */
} settings;

/* What a store reports of itself; 0: unknown. */
typedef struct {
    uint64_t index_bytes;
    uint64_t stored_bytes, value_bytes; /* all values, after and before compression */
    pid_t server;                       /* the process that holds the data, if it is another */
} footprint;

enum {
    in_memory = 1,      /* lost when it is closed */
    threads_read = 2,   /* two threads may get at the same time */
    threads_write = 4,  /* and set */
    processes_open = 8, /* two processes may open the directory */
    processes_fork = 16,/* children of fork may go on using the store */
    evicts = 32,        /* can live within a capacity */
    only_full = 64,     /* only takes part in the works with a full cache */
    reference = 128     /* the floor and Shale: part of every round */
};

typedef struct {
    const char *name;
    unsigned traits;
    uint64_t least_capacity; /* with less it cannot evict sensibly; 0: any */
    /* The version, and the options that differ from the defaults. */
    void (*describe)(char *text, size_t size);
    /* NULL, or what has to be installed first; the function may be NULL. */
    const char *(*missing)(void);

    void *(*open)(const settings *settings);
    void (*close)(void *store);
    void *(*attach)(void *store);
    void (*detach)(void *session);

    void (*set)(void *session, bytes key, bytes value);
    bool (*get)(void *session, bytes key, buffer *value);
    bool (*remove)(void *session, bytes key);
    /* May be NULL: then get is called for each. */
    void (*get_many)(void *session, size_t count, const bytes *keys, buffer *values, bool *found);
    /* May be NULL: then set is called for each. */
    void (*set_many)(void *session, size_t count, const bytes *keys, const bytes *values);

    /* May be NULL: then all callers that miss a key load it. As get, but of the callers in all processes that miss a
     * key only one gets false, and fulfils it with the loaded value, for which the others wait. */
    bool (*get_or_lease)(void *session, bytes key, buffer *value);
    void (*fulfil)(void *session, bytes key, bytes value);

    /* All these may be NULL. */
    void (*settle)(void *store); /* finishes background work */
    void (*weigh)(void *store, footprint *footprint);
    /* Deletes the index of a closed store, and names the file from which it is rebuilt. */
    void (*remove_index)(const char *directory, char *file, size_t size);
} driver;

#define FAIL(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

#ifdef __cplusplus
}
#endif

#endif
