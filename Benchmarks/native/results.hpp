// Measurements: samples by data set, peer, work and metric.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

struct Key {
    std::string data, peer, work, metric;
    bool operator<(const Key &other) const {
        return std::tie(data, peer, work, metric) < std::tie(other.data, other.peer, other.work, other.metric);
    }
};

struct Fact {
    std::string name, text;
};

// Of the machine, and of the file system of a directory.
std::vector<Fact> machine_facts(const std::string &directory);

class Results {
public:
    void add(const Key &key, double value) { samples[key].push_back(value); }
    // 0 if there is nothing.
    double median(const Key &key) const;
    // Rates of one data set, in thousands a second: a line a peer.
    void print(const std::string &data, const std::vector<std::string> &peers) const;

    std::vector<Fact> machine, options;              // facts about the run
    std::vector<Fact> peers, missing, failures;      // name, and description or reason
    struct Set {
        std::string name, source;
        uint64_t entries, value_bytes, key_bytes;
    };
    std::vector<Set> sets;
    // Throws std::runtime_error.
    void write(const std::string &path) const;

private:
    std::map<Key, std::vector<double>> samples;
};
