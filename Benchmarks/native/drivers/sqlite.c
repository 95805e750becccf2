/* SQLite: WAL, no syncs, prepared statements, one connection a session, each
 * set a transaction of its own. */
#include "driver.h"

#include <sqlite3.h>
#include <string.h>

typedef struct {
    char path[600];
    bool small; /* rows that fit into the key's own B-tree */
    uint64_t cache; /* of a connection, in KiB */
    sqlite3 *first;
} store;

typedef struct {
    sqlite3 *connection;
    sqlite3_stmt *get, *set, *remove;
} session;

static void require(sqlite3 *connection, int status, const char *what) {
    if (status != SQLITE_OK && status != SQLITE_DONE && status != SQLITE_ROW)
        FAIL("sqlite: %s: %s", what, sqlite3_errmsg(connection));
}

static sqlite3 *connect_to(const store *s) {
    sqlite3 *connection;
    require(
        NULL,
        sqlite3_open_v2(s->path, &connection, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL),
        s->path);
    sqlite3_busy_timeout(connection, 60000);
    char pragmas[256];
    snprintf(pragmas, sizeof pragmas,
             "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY;"
             "PRAGMA cache_size = -%llu; PRAGMA mmap_size = 17179869184;",
             (unsigned long long)s->cache);
    require(connection, sqlite3_exec(connection, pragmas, NULL, NULL, NULL), "pragmas");
    return connection;
}

static void *open_sqlite(const settings *settings) {
    store *s = calloc(1, sizeof *s);
    snprintf(s->path, sizeof s->path, "%s/cache.sqlite", settings->directory);
    s->cache = settings->memory ? settings->memory / 16 / 1024 : 1000000;
    s->first = connect_to(s);
    /* SQLite's own advice: a table without row numbers if rows are small. */
    const char *table = "CREATE TABLE IF NOT EXISTS cache (key BLOB PRIMARY KEY, value BLOB NOT NULL)";
    if (settings->value_bytes < 200)
        table = "CREATE TABLE IF NOT EXISTS cache (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID";
    require(s->first, sqlite3_exec(s->first, table, NULL, NULL, NULL), "table");
    return s;
}

static void close_sqlite(void *handle) {
    store *s = handle;
    sqlite3_close(s->first);
    free(s);
}

static sqlite3_stmt *prepare(sqlite3 *connection, const char *text) {
    sqlite3_stmt *statement;
    require(connection, sqlite3_prepare_v3(connection, text, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL), text);
    return statement;
}

static void *attach(void *handle) {
    session *s = calloc(1, sizeof *s);
    s->connection = connect_to(handle);
    s->get = prepare(s->connection, "SELECT value FROM cache WHERE key = ?");
    s->set = prepare(s->connection,
                     "INSERT INTO cache VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value");
    s->remove = prepare(s->connection, "DELETE FROM cache WHERE key = ?");
    return s;
}

static void detach(void *handle) {
    session *s = handle;
    sqlite3_finalize(s->get);
    sqlite3_finalize(s->set);
    sqlite3_finalize(s->remove);
    sqlite3_close(s->connection);
    free(s);
}

static void set(void *handle, bytes key, bytes value) {
    session *s = handle;
    sqlite3_bind_blob(s->set, 1, key.data, (int)key.size, SQLITE_STATIC);
    sqlite3_bind_blob(s->set, 2, value.data, (int)value.size, SQLITE_STATIC);
    require(s->connection, sqlite3_step(s->set), "set");
    sqlite3_reset(s->set);
}

/* One transaction for all. */
static void set_many(void *handle, size_t count, const bytes *keys, const bytes *values) {
    session *s = handle;
    require(s->connection, sqlite3_exec(s->connection, "BEGIN IMMEDIATE", NULL, NULL, NULL), "begin");
    for (size_t i = 0; i < count; i++)
        set(handle, keys[i], values[i]);
    require(s->connection, sqlite3_exec(s->connection, "COMMIT", NULL, NULL, NULL), "commit");
}

static bool get(void *handle, bytes key, buffer *value) {
    session *s = handle;
    sqlite3_bind_blob(s->get, 1, key.data, (int)key.size, SQLITE_STATIC);
    int status = sqlite3_step(s->get);
    require(s->connection, status, "get");
    if (status == SQLITE_ROW) {
        const void *data = sqlite3_column_blob(s->get, 0);
        value->size = (size_t)sqlite3_column_bytes(s->get, 0);
        memcpy(value->data, data, value->size);
    }
    sqlite3_reset(s->get);
    return status == SQLITE_ROW;
}

static bool remove_key(void *handle, bytes key) {
    session *s = handle;
    sqlite3_bind_blob(s->remove, 1, key.data, (int)key.size, SQLITE_STATIC);
    require(s->connection, sqlite3_step(s->remove), "remove");
    sqlite3_reset(s->remove);
    return sqlite3_changes(s->connection) > 0;
}

static void settle(void *handle) {
    store *s = handle;
    require(s->first, sqlite3_wal_checkpoint_v2(s->first, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL), "checkpoint");
}

static void describe(char *text, size_t size) {
    snprintf(text, size, "%s, WAL, synchronous OFF, prepared, 1 GB of cache, mapped reads", sqlite3_libversion());
}

const driver sqlite_driver = {.name = "sqlite",
                              .traits = threads_read | threads_write | processes_open,
                              .describe = describe,
                              .open = open_sqlite,
                              .close = close_sqlite,
                              .attach = attach,
                              .detach = detach,
                              .set = set,
                              .get = get,
                              .remove = remove_key,
                              .set_many = set_many,
                              .settle = settle};
