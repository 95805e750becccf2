// A cache as programs write it themselves: an unordered_map with a list in the order of use, behind one mutex. Lookups
// allocate nothing: the map's keys are views of the keys in the list.
#include "driver.h"

#include <cstring>
#include <list>
#include <malloc.h>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace {

struct Entry {
    std::string key, value;
};
using Order = std::list<Entry>;

struct Store {
    std::mutex mutex;
    Order order; // the most recently used first
    std::unordered_map<std::string_view, Order::iterator> map;
    uint64_t used = 0, capacity;
};

std::string_view view(bytes b) {
    return {static_cast<const char *>(b.data), b.size};
}

// Malloc's allocation for a string, which may hold a short text in itself.
size_t weight(const std::string &text) {
    auto inside = reinterpret_cast<const char *>(&text);
    bool here = text.data() >= inside && text.data() < inside + sizeof text;
    return here ? 0 : malloc_usable_size(const_cast<char *>(text.data())) + sizeof(size_t);
}

// The memory of an entry: its strings, the list's node, the map's node and bucket.
size_t weight(const Entry &entry) {
    return weight(entry.key) + weight(entry.value) + (sizeof(Entry) + 2 * sizeof(void *) + sizeof(size_t)) + 48 +
           sizeof(void *);
}

void *open(const settings *settings) {
    auto s = new Store;
    s->capacity = settings->capacity ? settings->capacity : UINT64_MAX;
    s->map.reserve(settings->capacity ? settings->capacity / (settings->value_bytes + 16) : settings->entries);
    return s;
}

void close(void *store) {
    delete static_cast<Store *>(store);
}

void *attach(void *store) {
    return store;
}

void detach(void *) {}

void drop(Store *s, Order::iterator entry) {
    s->used -= weight(*entry);
    s->map.erase(entry->key);
    s->order.erase(entry);
}

void set(void *session, bytes key, bytes value) {
    auto s = static_cast<Store *>(session);
    std::lock_guard lock(s->mutex);
    auto found = s->map.find(view(key));
    if (found != s->map.end()) {
        auto entry = found->second;
        s->used -= weight(*entry);
        entry->value.assign(view(value));
        s->used += weight(*entry);
        s->order.splice(s->order.begin(), s->order, entry);
    } else {
        s->order.push_front({std::string(view(key)), std::string(view(value))});
        s->map.emplace(s->order.front().key, s->order.begin());
        s->used += weight(s->order.front());
    }
    while (s->used > s->capacity)
        drop(s, std::prev(s->order.end()));
}

bool get(void *session, bytes key, buffer *value) {
    auto s = static_cast<Store *>(session);
    std::lock_guard lock(s->mutex);
    auto found = s->map.find(view(key));
    if (found == s->map.end())
        return false;
    auto entry = found->second;
    s->order.splice(s->order.begin(), s->order, entry);
    std::memcpy(value->data, entry->value.data(), entry->value.size());
    value->size = entry->value.size();
    return true;
}

bool remove(void *session, bytes key) {
    auto s = static_cast<Store *>(session);
    std::lock_guard lock(s->mutex);
    auto found = s->map.find(view(key));
    if (found == s->map.end())
        return false;
    drop(s, found->second);
    return true;
}

void describe(char *text, size_t size) {
    snprintf(text, size, "std::unordered_map, std::list, std::mutex of libstdc++ %d", __GLIBCXX__);
}

driver make() {
    driver d{};
    d.name = "lru-map";
    d.traits = in_memory | threads_read | threads_write | evicts;
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

extern "C" const driver lru_map;
const driver lru_map = make();
