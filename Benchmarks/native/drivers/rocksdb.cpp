// RocksDB: its own preset for point lookups (bloom filter, hash index in the
// blocks), LZ4, a block cache in which all the data fits, no write-ahead log.
#include "driver.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>
#include <rocksdb/write_batch.h>

namespace {

struct Session {
    rocksdb::DB *db;
    rocksdb::ReadOptions reading;
    rocksdb::WriteOptions writing;
    rocksdb::PinnableSlice value;
    std::vector<rocksdb::Slice> keys;
    std::vector<rocksdb::PinnableSlice> values;
    std::vector<rocksdb::Status> statuses;
};

void require(const rocksdb::Status &status, const char *what) {
    if (!status.ok())
        FAIL("rocksdb: %s: %s", what, status.ToString().c_str());
}

rocksdb::Slice slice(bytes b) {
    return {static_cast<const char *>(b.data), b.size};
}

void *open_with(const settings *settings, rocksdb::CompressionType compression) {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.IncreaseParallelism(2);
    uint64_t all = (settings->raw_bytes + settings->entries * 64) * 5 / 4 + (64 << 20);
    options.OptimizeForPointLookup((settings->memory ? settings->memory / 2 : all) / (1 << 20));
    if (settings->memory)
        options.write_buffer_size = settings->memory / 16;
    options.compression = compression;
    if (compression == rocksdb::kZSTD) { // with dictionaries that zstd trains
        options.compression_opts.max_dict_bytes = 16 << 10;
        options.compression_opts.zstd_max_train_bytes = 100 * options.compression_opts.max_dict_bytes;
    }
    options.compression_per_level.clear();
    options.info_log_level = rocksdb::ERROR_LEVEL;
#if ROCKSDB_MAJOR >= 11
    std::unique_ptr<rocksdb::DB> db;
    require(rocksdb::DB::Open(options, settings->directory, &db), "open");
    return db.release();
#else
    rocksdb::DB *db = nullptr;
    require(rocksdb::DB::Open(options, settings->directory, &db), "open");
    return db;
#endif
}

void *open_lz4(const settings *settings) {
    return open_with(settings, rocksdb::kLZ4Compression);
}

void *open_zstd(const settings *settings) {
    return open_with(settings, rocksdb::kZSTD);
}

void close(void *store) {
    auto db = static_cast<rocksdb::DB *>(store);
    require(db->Flush(rocksdb::FlushOptions()), "flush"); // as there is no log
    require(db->Close(), "close");
    delete db;
}

void *attach(void *store) {
    auto s = new Session{static_cast<rocksdb::DB *>(store),       {}, {}, {}, {},
                         std::vector<rocksdb::PinnableSlice>(64), {}};
    s->writing.disableWAL = true;
    s->keys.resize(64);
    s->statuses.resize(64);
    return s;
}

void detach(void *session) {
    delete static_cast<Session *>(session);
}

void set(void *session, bytes key, bytes value) {
    auto s = static_cast<Session *>(session);
    require(s->db->Put(s->writing, slice(key), slice(value)), "put");
}

void set_many(void *session, size_t count, const bytes *keys, const bytes *values) {
    auto s = static_cast<Session *>(session);
    rocksdb::WriteBatch batch;
    for (size_t i = 0; i < count; i++)
        require(batch.Put(slice(keys[i]), slice(values[i])), "put");
    require(s->db->Write(s->writing, &batch), "write");
}

bool take(rocksdb::PinnableSlice &from, buffer *value) {
    std::memcpy(value->data, from.data(), from.size());
    value->size = from.size();
    from.Reset();
    return true;
}

bool get(void *session, bytes key, buffer *value) {
    auto s = static_cast<Session *>(session);
    rocksdb::Status status = s->db->Get(s->reading, s->db->DefaultColumnFamily(), slice(key), &s->value);
    if (status.IsNotFound())
        return false;
    require(status, "get");
    return take(s->value, value);
}

void get_many(void *session, size_t count, const bytes *keys, buffer *values, bool *found) {
    auto s = static_cast<Session *>(session);
    for (size_t start = 0; start < count; start += 64) {
        size_t some = count - start < 64 ? count - start : 64;
        for (size_t i = 0; i < some; i++)
            s->keys[i] = slice(keys[start + i]);
        s->db->MultiGet(s->reading, s->db->DefaultColumnFamily(), some, s->keys.data(), s->values.data(),
                        s->statuses.data());
        for (size_t i = 0; i < some; i++)
            found[start + i] = s->statuses[i].ok() && take(s->values[i], &values[start + i]);
    }
}

bool remove(void *session, bytes key) {
    auto s = static_cast<Session *>(session);
    return s->db->Delete(s->writing, slice(key)).ok(); // whether it was present is unknown
}

void settle(void *store) {
    auto db = static_cast<rocksdb::DB *>(store);
    require(db->Flush(rocksdb::FlushOptions()), "flush");
    require(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr), "compaction");
}

void describe(char *text, size_t size) {
    snprintf(text, size, "%s, OptimizeForPointLookup, block cache of 1.25 times the data, no WAL, 2 background threads",
             rocksdb::GetRocksVersionAsString().c_str());
}

driver make(const char *name, void *(*open)(const settings *)) {
    driver d{};
    d.name = name;
    d.traits = threads_read | threads_write;
    d.describe = describe;
    d.open = open;
    d.close = close;
    d.attach = attach;
    d.detach = detach;
    d.set = set;
    d.get = get;
    d.remove = remove;
    d.get_many = get_many;
    d.set_many = set_many;
    d.settle = settle;
    return d;
}

} // namespace

extern "C" const driver rocksdb_driver;
const driver rocksdb_driver = make("rocksdb", open_lz4);
extern "C" const driver rocksdb_zstd;
const driver rocksdb_zstd = make("rocksdb-zstd", open_zstd);
