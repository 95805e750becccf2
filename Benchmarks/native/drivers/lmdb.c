/* LMDB: a writable map without syncs; each session keeps one read transaction
 * and renews it for each get, each set is a transaction. */
#include "driver.h"

#include <lmdb.h>
#include <string.h>

typedef struct {
    MDB_env *environment;
    MDB_dbi table;
} store;

typedef struct {
    store *store;
    MDB_txn *reader;
} session;

static void require(int status, const char *what) {
    if (status != MDB_SUCCESS)
        FAIL("lmdb: %s: %s", what, mdb_strerror(status));
}

static void *open_lmdb(const settings *settings) {
    store *s = calloc(1, sizeof *s);
    require(mdb_env_create(&s->environment), "create");
    require(mdb_env_set_mapsize(s->environment, (settings->raw_bytes + settings->entries * 64) * 8 + (1 << 28)),
            "map size");
    require(
        mdb_env_open(s->environment, settings->directory, MDB_NOSYNC | MDB_WRITEMAP | MDB_NORDAHEAD | MDB_NOTLS, 0600),
        "open");
    MDB_txn *transaction;
    require(mdb_txn_begin(s->environment, NULL, 0, &transaction), "begin");
    require(mdb_dbi_open(transaction, NULL, 0, &s->table), "table");
    require(mdb_txn_commit(transaction), "commit");
    return s;
}

static void close_lmdb(void *handle) {
    store *s = handle;
    mdb_env_close(s->environment);
    free(s);
}

static void *attach(void *handle) {
    session *s = calloc(1, sizeof *s);
    s->store = handle;
    require(mdb_txn_begin(s->store->environment, NULL, MDB_RDONLY, &s->reader), "begin to read");
    mdb_txn_reset(s->reader);
    return s;
}

static void detach(void *handle) {
    session *s = handle;
    mdb_txn_abort(s->reader);
    free(s);
}

static MDB_val as_value(bytes b) {
    return (MDB_val){b.size, (void *)(uintptr_t)b.data};
}

/* One transaction for all. */
static void set_many(void *handle, size_t count, const bytes *keys, const bytes *values) {
    session *s = handle;
    MDB_txn *transaction;
    require(mdb_txn_begin(s->store->environment, NULL, 0, &transaction), "begin");
    for (size_t i = 0; i < count; i++) {
        MDB_val k = as_value(keys[i]), v = as_value(values[i]);
        require(mdb_put(transaction, s->store->table, &k, &v, 0), "put");
    }
    require(mdb_txn_commit(transaction), "commit");
}

static void set(void *handle, bytes key, bytes value) {
    set_many(handle, 1, &key, &value);
}

static bool read_one(session *s, bytes key, buffer *value) {
    MDB_val k = as_value(key), v;
    if (mdb_get(s->reader, s->store->table, &k, &v) != MDB_SUCCESS)
        return false;
    memcpy(value->data, v.mv_data, v.mv_size);
    value->size = v.mv_size;
    return true;
}

static bool get(void *handle, bytes key, buffer *value) {
    session *s = handle;
    require(mdb_txn_renew(s->reader), "renew");
    bool found = read_one(s, key, value);
    mdb_txn_reset(s->reader);
    return found;
}

/* One transaction for all. */
static void get_many(void *handle, size_t count, const bytes *keys, buffer *values, bool *found) {
    session *s = handle;
    require(mdb_txn_renew(s->reader), "renew");
    for (size_t i = 0; i < count; i++)
        found[i] = read_one(s, keys[i], &values[i]);
    mdb_txn_reset(s->reader);
}

static bool remove_key(void *handle, bytes key) {
    session *s = handle;
    MDB_val k = as_value(key);
    MDB_txn *transaction;
    require(mdb_txn_begin(s->store->environment, NULL, 0, &transaction), "begin");
    int status = mdb_del(transaction, s->store->table, &k, NULL);
    require(mdb_txn_commit(transaction), "commit");
    return status == MDB_SUCCESS;
}

static void describe(char *text, size_t size) {
    snprintf(text, size, "%d.%d.%d, NOSYNC, WRITEMAP, NORDAHEAD, renewed read transactions", MDB_VERSION_MAJOR,
             MDB_VERSION_MINOR, MDB_VERSION_PATCH);
}

const driver lmdb_driver = {.name = "lmdb",
                            .traits = threads_read | threads_write | processes_open,
                            .describe = describe,
                            .open = open_lmdb,
                            .close = close_lmdb,
                            .attach = attach,
                            .detach = detach,
                            .set = set,
                            .get = get,
                            .remove = remove_key,
                            .get_many = get_many,
                            .set_many = set_many};
