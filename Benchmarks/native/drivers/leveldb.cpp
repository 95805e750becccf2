// LevelDB with its defaults (with Snappy in Debian), a block cache in which all the data fits, bloom filter, no syncs.
#include "driver.h"

#include <cstring>
#include <memory>
#include <string>

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>

namespace {

struct Store {
    std::unique_ptr<leveldb::Cache> cache;
    std::unique_ptr<const leveldb::FilterPolicy> filter;
    std::unique_ptr<leveldb::DB> db; // destroyed first
};

struct Session {
    leveldb::DB *db;
    std::string value;
};

void require(const leveldb::Status &status, const char *what) {
    if (!status.ok())
        FAIL("leveldb: %s: %s", what, status.ToString().c_str());
}

leveldb::Slice slice(bytes b) {
    return {static_cast<const char *>(b.data), b.size};
}

void *open(const settings *settings) {
    auto s = new Store;
    s->cache.reset(leveldb::NewLRUCache((settings->raw_bytes + settings->entries * 64) * 5 / 4 + (64 << 20)));
    s->filter.reset(leveldb::NewBloomFilterPolicy(10));
    leveldb::Options options;
    options.create_if_missing = true;
    options.block_cache = s->cache.get();
    options.filter_policy = s->filter.get();
    options.write_buffer_size = 64 << 20;
    options.compression = leveldb::kSnappyCompression;
    leveldb::DB *db = nullptr;
    require(leveldb::DB::Open(options, settings->directory, &db), "open");
    s->db.reset(db);
    return s;
}

void close(void *store) {
    delete static_cast<Store *>(store);
}

void *attach(void *store) {
    return new Session{static_cast<Store *>(store)->db.get(), {}};
}

void detach(void *session) {
    delete static_cast<Session *>(session);
}

void set(void *session, bytes key, bytes value) {
    auto s = static_cast<Session *>(session);
    require(s->db->Put(leveldb::WriteOptions(), slice(key), slice(value)), "put");
}

void set_many(void *session, size_t count, const bytes *keys, const bytes *values) {
    auto s = static_cast<Session *>(session);
    leveldb::WriteBatch batch;
    for (size_t i = 0; i < count; i++)
        batch.Put(slice(keys[i]), slice(values[i]));
    require(s->db->Write(leveldb::WriteOptions(), &batch), "write");
}

// The interface reads into a string only.
bool get(void *session, bytes key, buffer *value) {
    auto s = static_cast<Session *>(session);
    leveldb::Status status = s->db->Get(leveldb::ReadOptions(), slice(key), &s->value);
    if (status.IsNotFound())
        return false;
    require(status, "get");
    std::memcpy(value->data, s->value.data(), s->value.size());
    value->size = s->value.size();
    return true;
}

bool remove(void *session, bytes key) {
    auto s = static_cast<Session *>(session);
    return s->db->Delete(leveldb::WriteOptions(), slice(key)).ok(); // whether it was present is unknown
}

void settle(void *store) {
    static_cast<Store *>(store)->db->CompactRange(nullptr, nullptr);
}

void describe(char *text, size_t size) {
    snprintf(text, size, "%d.%d, Snappy, bloom filter, write buffer of 64 MiB, block cache of 1.25 times the data",
             leveldb::kMajorVersion, leveldb::kMinorVersion);
}

driver make() {
    driver d{};
    d.name = "leveldb";
    d.traits = threads_read | threads_write;
    d.describe = describe;
    d.open = open;
    d.close = close;
    d.attach = attach;
    d.detach = detach;
    d.set = set;
    d.get = get;
    d.remove = remove;
    d.set_many = set_many;
    d.settle = settle;
    return d;
}

} // namespace

extern "C" const driver leveldb_driver;
const driver leveldb_driver = make();
