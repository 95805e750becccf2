// Tkrzw: HashDBM on a mapped file, plain and with LZ4, and CacheDBM, which
// is LRU in memory. Values are copied once, by a record processor.
#include "driver.h"

#include <cstring>
#include <string>

#include <tkrzw_compress.h>
#include <tkrzw_dbm_cache.h>
#include <tkrzw_dbm_hash.h>
#include <tkrzw_file_mmap.h>
#include <tkrzw_lib_common.h>

namespace {

std::string_view view(bytes b) {
    return {static_cast<const char *>(b.data), b.size};
}

void require(const tkrzw::Status &status, const char *what) {
    if (!status.IsOK())
        FAIL("tkrzw: %s: %s", what, std::string(status).c_str());
}

class Taker final : public tkrzw::DBM::RecordProcessor {
public:
    explicit Taker(buffer *value) : value(value) {}
    std::string_view ProcessFull(std::string_view, std::string_view stored) override {
        std::memcpy(value->data, stored.data(), stored.size());
        value->size = stored.size();
        found = true;
        return NOOP;
    }
    bool found = false;

private:
    buffer *value;
};

void *open_hash(const settings *settings, tkrzw::HashDBM::RecordCompressionMode compression) {
    auto db = new tkrzw::HashDBM(std::make_unique<tkrzw::MemoryMapParallelFile>());
    tkrzw::HashDBM::TuningParameters tuning;
    tuning.num_buckets = static_cast<int64_t>(settings->entries * 2) + 1024;
    tuning.record_comp_mode = compression;
    require(db->OpenAdvanced(std::string(settings->directory) + "/hash.tkh", true, tkrzw::File::OPEN_DEFAULT, tuning),
            "open");
    return static_cast<tkrzw::DBM *>(db);
}

void *open_plain(const settings *settings) {
    return open_hash(settings, tkrzw::HashDBM::RECORD_COMP_NONE);
}

void *open_lz4(const settings *settings) {
    return open_hash(settings, tkrzw::HashDBM::RECORD_COMP_LZ4);
}

void *open_cache(const settings *settings) {
    int64_t records = static_cast<int64_t>(settings->entries * 2) + 1024, memory = -1;
    if (settings->capacity) {
        memory = static_cast<int64_t>(settings->capacity);
        records = static_cast<int64_t>(settings->capacity / (settings->value_bytes + 16)) * 2;
    }
    return static_cast<tkrzw::DBM *>(new tkrzw::CacheDBM(records, memory)); // usable without a file
}

void close(void *store) {
    auto db = static_cast<tkrzw::DBM *>(store);
    if (db->IsOpen())
        db->Close();
    delete db;
}

void *attach(void *store) {
    return store;
}

void detach(void *) {}

void set(void *session, bytes key, bytes value) {
    require(static_cast<tkrzw::DBM *>(session)->Set(view(key), view(value)), "set");
}

bool get(void *session, bytes key, buffer *value) {
    Taker taker(value);
    static_cast<tkrzw::DBM *>(session)->Process(view(key), &taker, false);
    return taker.found;
}

bool remove(void *session, bytes key) {
    return static_cast<tkrzw::DBM *>(session)->Remove(view(key)).IsOK();
}

const char *missing_lz4() {
    return tkrzw::LZ4Compressor().IsSupported() ? nullptr : "a Tkrzw library that was built with LZ4";
}

void describe(char *text, size_t size) {
    snprintf(text, size, "%s, two buckets an entry, MemoryMapParallelFile", tkrzw::PACKAGE_VERSION);
}

void describe_cache(char *text, size_t size) {
    snprintf(text, size, "%s, in memory, LRU", tkrzw::PACKAGE_VERSION);
}

driver make(const char *name, unsigned traits, void *(*open)(const settings *), void (*describe)(char *, size_t),
            const char *(*missing)()) {
    driver d{};
    d.name = name;
    d.traits = traits | threads_read | threads_write;
    d.describe = describe;
    d.missing = missing;
    d.open = open;
    d.close = close;
    d.attach = attach;
    d.detach = detach;
    d.set = set;
    d.get = get;
    d.remove = remove;
    return d;
}

} // namespace

extern "C" const driver tkrzw_hash, tkrzw_hash_lz4, tkrzw_cache;
const driver tkrzw_hash = make("tkrzw-hash", 0, open_plain, describe, nullptr);
const driver tkrzw_hash_lz4 = make("tkrzw-hash-lz4", 0, open_lz4, describe, missing_lz4);
const driver tkrzw_cache = make("tkrzw-cache", in_memory | evicts, open_cache, describe_cache, nullptr);
