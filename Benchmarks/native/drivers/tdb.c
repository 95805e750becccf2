/* tdb: a hash table in a mapped file, written in place; two buckets an entry, no locks. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <tdb.h>

static void require(bool fine, struct tdb_context *table, const char *what) {
    if (!fine)
        FAIL("tdb: %s: %s", what, table ? tdb_errorstr(table) : "failed");
}

static TDB_DATA datum(bytes b) {
    return (TDB_DATA){(unsigned char *)(uintptr_t)b.data, b.size};
}

static void *open_tdb(const settings *settings) {
    char path[600];
    snprintf(path, sizeof path, "%s/cache.tdb", settings->directory);
    struct tdb_context *table = tdb_open_ex(path, (int)(settings->entries * 2) + 1024, TDB_NOSYNC | TDB_NOLOCK,
                                            O_RDWR | O_CREAT, 0600, NULL, tdb_jenkins_hash);
    require(table, NULL, path);
    return table;
}

static void close_tdb(void *store) {
    tdb_close(store);
}

static void *attach(void *store) {
    return store;
}

static void detach(void *session) {
    (void)session;
}

static void set(void *session, bytes key, bytes value) {
    require(tdb_store(session, datum(key), datum(value), TDB_REPLACE) == 0, session, "store");
}

static int copy(TDB_DATA key, TDB_DATA stored, void *to) {
    (void)key;
    buffer *value = to;
    memcpy(value->data, stored.dptr, stored.dsize);
    value->size = stored.dsize;
    return 0;
}

static bool get(void *session, bytes key, buffer *value) {
    return tdb_parse_record(session, datum(key), copy, value) == 0;
}

static bool remove_key(void *session, bytes key) {
    return tdb_delete(session, datum(key)) == 0;
}

/* The library has no function for its version, but its file has it in its name. */
static void describe(char *text, size_t size) {
    Dl_info library;
    char *path = dladdr((void *)(uintptr_t)tdb_open_ex, &library) ? realpath(library.dli_fname, NULL) : NULL;
    const char *version = path ? strstr(path, ".so.") : NULL;
    snprintf(text, size,
             "%s, NOSYNC, NOLOCK, two buckets an entry, the whole file mapped, writes nothing for an equal value",
             version ? version + 4 : "unknown");
    free(path);
}

const driver tdb_driver = {.name = "tdb",
                           .traits = 0,
                           .describe = describe,
                           .open = open_tdb,
                           .close = close_tdb,
                           .attach = attach,
                           .detach = detach,
                           .set = set,
                           .get = get,
                           .remove = remove_key};
