// The measurements of one store with one data set, in a process of its own.
#pragma once

#include "data.hpp"
#include "driver.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

struct Life {
    const driver *store;
    const Data *data;
    std::string directory;       // exists, and is empty
    double seconds;              // for each work
    uint64_t round;              // chooses the keys
    std::set<std::string> works; // empty: all

    // Receives the measurements.
    std::function<void(const std::string &work, const std::string &metric, double value)> report;

    bool wants(const std::string &work) const { return works.empty() || works.count(work); }
    bool is(unsigned trait) const { return store->traits & trait; }
    settings settings_with(uint64_t capacity) const;
};

// Fills an empty directory and runs all works that need only one process. Then closes a store on disk.
void live(const Life &life);
// The rest of the life of a store on disk, each from a process that has not opened it: libraries with threads do not
// survive fork().
void live_as_two(const Life &life);
void reopen(const Life &life);
void remove_all(const Life &life);
// With a capacity of a quarter of the data.
void live_full(const Life &life);
uint64_t full_capacity(const Data &data);

// Bytes written to disk for each byte set, in a store on disk with room for the data.
void live_written(const Life &life);
// Eight processes with room for a quarter of the data in all.
void live_workers(const Life &life);

// For children: they end if this program ends.
void die_with_parent();

extern const std::vector<std::string> work_names;
