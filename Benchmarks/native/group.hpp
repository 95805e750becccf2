// How works are timed: operations are laid out in groups, with keys and values ready, before the clock starts, so that
// only the store is timed.
#pragma once

#include "clock.h"
#include "data.hpp"
#include "driver.h"
#include "keys.h"

#include <algorithm>
#include <cstring>
#include <vector>

constexpr size_t batch = 64; // of get_many

enum class Operation { get, set, remove, fetch }; // fetch: get, and set what was missed

class Group {
public:
    Group(const Data &data, bool with_values, size_t least = 2) : data(data), with_values(with_values) {
        size_t most = 8 * batch; // together in the processor's second cache, if they are small
        size = with_values ? std::clamp<size_t>((128 << 10) / data.mean() / least * least, least, most) : most;
        keys.resize(size);
        values.resize(size);
        expected.resize(size);
        operations.resize(size);
        names.resize(size * data.key_size);
        staged.resize(with_values ? size : 0);
        for (size_t i = 0; i < size; i++)
            keys[i] = {&names[i * data.key_size], data.key_size};
    }

    // Numbers from the count on are keys of their own, with the value of the remainder.
    void add(uint64_t number, Operation operation) { add(number, operation, number % data.count()); }
    void add(uint64_t number, Operation operation, uint64_t of_value) {
        make_key(&names[used * data.key_size], data.key_size, number);
        operations[used] = operation;
        expected[used] = data.expected[of_value];
        if (with_values) {
            bytes value = data.value(of_value);
            auto from = static_cast<const char *>(value.data);
            staged[used].assign(from, from + value.size);
            values[used] = {staged[used].data(), value.size};
        }
        used++;
    }

    const Data &data;
    const bool with_values;
    size_t size, used = 0;
    std::vector<bytes> keys, values;
    std::vector<Expected> expected;
    std::vector<Operation> operations;

private:
    std::vector<char> names;
    std::vector<std::vector<char>> staged;
};

// A thread's access to the store, with buffers for its reads, which are checked.
class Session {
public:
    Session(const driver *store, void *opened, const Data &data) : store(store), handle(store->attach(opened)) {
        size_t most = 0;
        for (const Expected &expected : data.expected)
            most = std::max<size_t>(most, expected.size);
        for (buffer &b : buffers)
            b = {malloc(most + 1024), 0, most + 1024};
    }
    ~Session() {
        store->detach(handle);
        for (buffer &b : buffers)
            free(b.data);
    }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    void set(bytes key, bytes value) { store->set(handle, key, value); }
    bool remove(bytes key) { return store->remove(handle, key); }
    bool get(bytes key, const Expected &expected) {
        bool found = store->get(handle, key, &buffers[0]);
        if (found)
            check(buffers[0], expected);
        return found;
    }
    // False: the caller is to load the value and to fulfil the key.
    bool get_or_lease(bytes key, const Expected &expected) {
        if (!store->get_or_lease)
            return get(key, expected);
        bool found = store->get_or_lease(handle, key, &buffers[0]);
        if (found)
            check(buffers[0], expected);
        return found;
    }
    void fulfil(bytes key, bytes value) { (store->fulfil ? store->fulfil : store->set)(handle, key, value); }
    // How many were found, of `batch`.
    size_t get_many(const bytes *keys, const Expected *expected) {
        size_t hits = 0;
        if (!store->get_many) {
            for (size_t i = 0; i < batch; i++)
                hits += get(keys[i], expected[i]);
            return hits;
        }
        bool found[batch];
        store->get_many(handle, batch, keys, buffers, found);
        for (size_t i = 0; i < batch; i++)
            if (found[i]) {
                check(buffers[i], expected[i]);
                hits++;
            }
        return hits;
    }
    // `batch` of them.
    void set_many(const bytes *keys, const bytes *values) {
        if (store->set_many)
            return store->set_many(handle, batch, keys, values);
        for (size_t i = 0; i < batch; i++)
            set(keys[i], values[i]);
    }
    const buffer &last() const { return buffers[0]; }

private:
    void check(const buffer &value, const Expected &expected) const {
        if (!expected.fits(value))
            FAIL("%s: a value differs from the stored one", store->name);
    }
    const driver *store;
    void *handle;
    buffer buffers[batch];
};

// Does one operation of a group; false: it missed.
inline bool perform(Session &session, const Group &group, size_t i) {
    switch (group.operations[i]) {
    case Operation::get: return session.get(group.keys[i], group.expected[i]);
    case Operation::remove: return session.remove(group.keys[i]);
    case Operation::set: session.set(group.keys[i], group.values[i]); return true;
    case Operation::fetch:
        if (session.get(group.keys[i], group.expected[i]))
            return true;
        session.set(group.keys[i], group.values[i]);
        return false;
    }
    return false;
}

struct Tally {
    uint64_t operations = 0, misses = 0;
    double wall = 0, cpu = 0;
};

// Groups are laid out by `next(group)`, which adds one operation or says false
// at the end, and done by `body(group)`, which returns its misses, until
// `seconds` were timed or, laying out included, four times as many have passed.
template <class Next, class Body> Tally time_groups(Group &group, double seconds, Next next, Body body) {
    Tally tally;
    double begin = wall();
    for (bool more = true; more && tally.wall < seconds && wall() - begin < seconds * 4;) {
        group.used = 0;
        while (group.used < group.size && (more = next(group))) {}
        double cpu = thread_cpu(), start = wall();
        tally.misses += body(group);
        tally.wall += wall() - start;
        tally.cpu += thread_cpu() - cpu;
        tally.operations += group.used;
    }
    return tally;
}
