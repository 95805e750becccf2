// Kyoto Cabinet: HashDB on a mapped file, and CacheDB, which is LRU in memory.
// Values are copied once, by a visitor.
#include "driver.h"

#include <cstring>
#include <string>

#include <kccachedb.h>
#include <kchashdb.h>

namespace {

namespace kc = kyotocabinet;

class Taker final : public kc::DB::Visitor {
public:
    explicit Taker(buffer *value) : value(value) {}
    bool found = false;

private:
    const char *visit_full(const char *, size_t, const char *stored, size_t size, size_t *) override {
        std::memcpy(value->data, stored, size);
        value->size = size;
        found = true;
        return NOP;
    }
    buffer *value;
};

void require(bool fine, kc::BasicDB *db, const char *what) {
    if (!fine)
        FAIL("kyoto: %s: %s", what, db->error().message());
}

void *open_hash(const settings *settings) {
    auto db = new kc::HashDB;
    db->tune_buckets(static_cast<int64_t>(settings->entries * 2) + 1024);
    db->tune_map(static_cast<int64_t>(settings->raw_bytes + settings->entries * 64) * 4 + (1 << 28)); // all of it
    require(db->open(std::string(settings->directory) + "/hash.kch", kc::HashDB::OWRITER | kc::HashDB::OCREATE), db,
            "open");
    return static_cast<kc::BasicDB *>(db);
}

void *open_cache(const settings *settings) {
    auto db = new kc::CacheDB;
    uint64_t entries = settings->capacity ? settings->capacity / (settings->value_bytes + 16) : settings->entries;
    db->tune_buckets(static_cast<int64_t>(entries * 2) + 1024);
    if (settings->capacity)
        db->cap_size(static_cast<int64_t>(settings->capacity));
    require(db->open("*", kc::CacheDB::OWRITER | kc::CacheDB::OCREATE), db, "open");
    return static_cast<kc::BasicDB *>(db);
}

void close(void *store) {
    auto db = static_cast<kc::BasicDB *>(store);
    require(db->close(), db, "close");
    delete db;
}

void *attach(void *store) {
    return store;
}

void detach(void *) {}

void set(void *session, bytes key, bytes value) {
    auto db = static_cast<kc::BasicDB *>(session);
    require(db->set(static_cast<const char *>(key.data), key.size, static_cast<const char *>(value.data), value.size),
            db, "set");
}

bool get(void *session, bytes key, buffer *value) {
    Taker taker(value);
    static_cast<kc::BasicDB *>(session)->accept(static_cast<const char *>(key.data), key.size, &taker, false);
    return taker.found;
}

bool remove(void *session, bytes key) {
    return static_cast<kc::BasicDB *>(session)->remove(static_cast<const char *>(key.data), key.size);
}

void describe_hash(char *text, size_t size) {
    snprintf(text, size, "%s, two buckets an entry, the whole file mapped", kc::VERSION);
}

void describe_cache(char *text, size_t size) {
    snprintf(text, size, "%s, two buckets an entry, in memory, LRU", kc::VERSION);
}

driver make(const char *name, unsigned traits, void *(*open)(const settings *), void (*describe)(char *, size_t)) {
    driver d{};
    d.name = name;
    d.traits = traits | threads_read | threads_write;
    d.describe = describe;
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

extern "C" const driver kyoto_hash, kyoto_cache;
const driver kyoto_hash = make("kyoto-hash", 0, open_hash, describe_hash);
const driver kyoto_cache = make("kyoto-cache", in_memory | evicts, open_cache, describe_cache);
