// The data sets: the values of keys number 0, 1, 2, ...
#pragma once

#include "driver.h"

#include <cstdint>
#include <string>
#include <vector>

// What a returned value has to be.
struct Expected {
    uint32_t size, check;
    static uint32_t check_of(const void *data, size_t size);
    bool fits(const buffer &value) const { return value.size == size && check_of(value.data, size) == check; }
};

struct Data {
    std::string name, source;
    size_t key_size;
    std::vector<char> text;
    std::vector<uint64_t> starts; // one more than there are values
    std::vector<Expected> expected;
    std::vector<uint32_t> zipf; // value numbers in the order of requests

    uint64_t count() const { return expected.size(); }
    uint64_t raw_bytes() const { return text.size() + count() * key_size; }
    uint64_t mean() const { return text.size() / count(); }
    bytes value(uint64_t number) const { return {text.data() + starts[number], starts[number + 1] - starts[number]}; }
    void add(const char *value, size_t size);
};

// The kinds are json100, json1k, packages, files16k, files256k. As many values as asked for; fewer if this machine has
// no more: see count().
Data make_data(const std::string &kind, const std::string &name, uint64_t count, size_t key_size);
