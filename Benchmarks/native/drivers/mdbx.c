/* libmdbx, as LMDB: a writable map without syncs; each session keeps one read transaction and renews it for each get,
 * each set is a transaction. */
#include "driver.h"

#include <mdbx.h>
#include <string.h>

typedef struct {
    MDBX_env *environment;
    MDBX_dbi table;
} store;

typedef struct {
    store *store;
    MDBX_txn *reader;
} session;

static void require(int status, const char *what) {
    if (status != MDBX_SUCCESS)
        FAIL("mdbx: %s: %s", what, mdbx_strerror(status));
}

/* At once, since it also notes each fork. */
__attribute__((constructor)) static void print_no_notices(void) {
    mdbx_setup_debug(MDBX_LOG_ERROR, MDBX_DBG_DONTCHANGE, NULL);
}

static MDBX_txn *begin(store *s, MDBX_txn_flags_t flags) {
    MDBX_txn *transaction;
    require(mdbx_txn_begin(s->environment, NULL, flags, &transaction), "begin");
    return transaction;
}

static void *open_mdbx(const settings *settings) {
    store *s = calloc(1, sizeof *s);
    intptr_t most = (intptr_t)(settings->raw_bytes + settings->entries * 64) * 8 + (1 << 28);
    require(mdbx_env_create(&s->environment), "create");
    require(mdbx_env_set_geometry(s->environment, -1, -1, most, 64 << 20, 0, -1), "geometry");
    require(mdbx_env_open(s->environment, settings->directory,
                          MDBX_UTTERLY_NOSYNC | MDBX_WRITEMAP | MDBX_NORDAHEAD | MDBX_NOSTICKYTHREADS, 0600),
            "open");
    MDBX_txn *transaction = begin(s, MDBX_TXN_READWRITE);
    require(mdbx_dbi_open(transaction, NULL, MDBX_DB_DEFAULTS, &s->table), "table");
    require(mdbx_txn_commit(transaction), "commit");
    return s;
}

static void close_mdbx(void *handle) {
    store *s = handle;
    require(mdbx_env_close(s->environment), "close");
    free(s);
}

static void *attach(void *handle) {
    session *s = calloc(1, sizeof *s);
    s->store = handle;
    s->reader = begin(handle, MDBX_TXN_RDONLY);
    require(mdbx_txn_reset(s->reader), "reset");
    return s;
}

static void detach(void *handle) {
    session *s = handle;
    mdbx_txn_abort(s->reader);
    free(s);
}

static MDBX_val as_value(bytes b) {
    return (MDBX_val){(void *)(uintptr_t)b.data, b.size};
}

static void set_many(void *handle, size_t count, const bytes *keys, const bytes *values) {
    session *s = handle;
    MDBX_txn *transaction = begin(s->store, MDBX_TXN_READWRITE);
    for (size_t i = 0; i < count; i++) {
        MDBX_val k = as_value(keys[i]), v = as_value(values[i]);
        require(mdbx_put(transaction, s->store->table, &k, &v, MDBX_UPSERT), "put");
    }
    require(mdbx_txn_commit(transaction), "commit");
}

static void set(void *handle, bytes key, bytes value) {
    set_many(handle, 1, &key, &value);
}

static void get_many(void *handle, size_t count, const bytes *keys, buffer *values, bool *found) {
    session *s = handle;
    require(mdbx_txn_renew(s->reader), "renew");
    for (size_t i = 0; i < count; i++) {
        MDBX_val k = as_value(keys[i]), v;
        found[i] = mdbx_get(s->reader, s->store->table, &k, &v) == MDBX_SUCCESS;
        if (found[i]) {
            memcpy(values[i].data, v.iov_base, v.iov_len);
            values[i].size = v.iov_len;
        }
    }
    require(mdbx_txn_reset(s->reader), "reset");
}

static bool get(void *handle, bytes key, buffer *value) {
    bool found;
    get_many(handle, 1, &key, value, &found);
    return found;
}

static bool remove_key(void *handle, bytes key) {
    session *s = handle;
    MDBX_val k = as_value(key);
    MDBX_txn *transaction = begin(s->store, MDBX_TXN_READWRITE);
    int status = mdbx_del(transaction, s->store->table, &k, NULL);
    require(mdbx_txn_commit(transaction), "commit");
    return status == MDBX_SUCCESS;
}

static void describe(char *text, size_t size) {
    snprintf(text, size, "%d.%d.%d, UTTERLY_NOSYNC, WRITEMAP, NORDAHEAD, renewed read transactions", mdbx_version.major,
             mdbx_version.minor, mdbx_version.patch);
}

const driver mdbx_driver = {.name = "mdbx",
                            .traits = threads_read | threads_write | processes_open,
                            .describe = describe,
                            .open = open_mdbx,
                            .close = close_mdbx,
                            .attach = attach,
                            .detach = detach,
                            .set = set,
                            .get = get,
                            .remove = remove_key,
                            .get_many = get_many,
                            .set_many = set_many};
