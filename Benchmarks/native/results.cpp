#include "results.hpp"
#include "latency.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace {

double middle(std::vector<double> values) {
    if (values.empty())
        return 0;
    std::sort(values.begin(), values.end());
    size_t half = values.size() / 2;
    return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (unsigned char c : text) {
        char code[8];
        if (c == '"' || c == '\\')
            out += {'\\', char(c)};
        else if (c < 32)
            snprintf(code, sizeof code, "\\u%04x", c), out += code;
        else
            out += char(c);
    }
    return out + "\"";
}

std::string number(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.6g", std::isfinite(value) ? value : 0);
    return text;
}

std::string object(const std::vector<Fact> &facts) {
    std::string out = "{";
    for (size_t i = 0; i < facts.size(); i++)
        out += (i ? ",\n    " : "\n    ") + quoted(facts[i].name) + ": " + quoted(facts[i].text);
    return out + "\n  }";
}

std::string first_line_with(const char *path, const char *field) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        if (line.compare(0, strlen(field), field) == 0)
            return line.substr(std::min(line.size(), line.find_first_not_of(" \t", line.find(':') + 1)));
    return "unknown";
}

} // namespace

std::vector<Fact> machine_facts(const std::string &directory) {
    utsname system;
    uname(&system);
    struct statfs files;
    char type[32] = "unknown", when[32], cost[32];
    if (statfs(directory.c_str(), &files) == 0)
        snprintf(type, sizeof type, "%s",
                 files.f_type == 0xef53       ? "ext4"
                 : files.f_type == 0x01021994 ? "tmpfs"
                 : files.f_type == 0x58465342 ? "xfs"
                 : files.f_type == 0x9123683e ? "btrfs"
                                              : "other");
    time_t now = time(nullptr);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    snprintf(cost, sizeof cost, "%.1f", clock_ns());
    return {{"processor", first_line_with("/proc/cpuinfo", "model name")},
            {"processors", std::to_string(sysconf(_SC_NPROCESSORS_ONLN))},
            {"memory", first_line_with("/proc/meminfo", "MemTotal")},
            {"kernel", std::string(system.sysname) + " " + system.release},
            {"file_system", type},
            {"clock_ns", cost},
            {"begun", when}};
}

double Results::median(const Key &key) const {
    auto found = samples.find(key);
    return found == samples.end() ? 0 : middle(found->second);
}

void Results::print(const std::string &data, const std::vector<std::string> &peers) const {
    static const char *const columns[] = {
        "fill",     "get_uniform", "get_zipf",       "miss",        "get_many", "mix",         "overwrite",
        "set_many", "delete",      "get_uniform@2t", "get_many@2t", "mix@2t",   "set_many@2t", "get_uniform@2p",
        "mix@2p",   "full"};
    std::vector<std::string> shown;
    for (const char *column : columns)
        for (const std::string &peer : peers)
            if (median({data, peer, column, "rate"}) > 0) {
                shown.push_back(column);
                break;
            }
    printf("\n%s, thousands a second (medians)\n%-24s", data.c_str(), "");
    for (const std::string &column : shown)
        printf(" %14s", column.c_str());
    for (const std::string &peer : peers) {
        bool any = std::any_of(shown.begin(), shown.end(),
                               [&](const std::string &column) { return median({data, peer, column, "rate"}) > 0; });
        if (!any)
            continue;
        printf("\n%-24s", peer.c_str());
        for (const std::string &column : shown) {
            double rate = median({data, peer, column, "rate"}) / 1e3;
            rate > 0 ? printf(" %14.*f", rate < 100 ? 1 : 0, rate) : printf(" %14s", "-");
        }
    }
    printf("\n");
    for (const auto &[key, values] : samples)
        if (key.data == data && (key.work.compare(0, 7, "written") == 0 || key.work.compare(0, 7, "workers") == 0))
            printf("%-24s %-14s %-18s %.4g\n", key.peer.c_str(), key.work.c_str(), key.metric.c_str(), middle(values));
    fflush(stdout);
}

void Results::write(const std::string &path) const {
    std::filesystem::path parent = std::filesystem::path(path).parent_path();
    if (!parent.empty())
        std::filesystem::create_directories(parent);
    std::ofstream out(path + ".new");
    out << "{\n  \"schema\": 1,\n  \"machine\": " << object(machine) << ",\n  \"options\": " << object(options)
        << ",\n  \"peers\": " << object(peers) << ",\n  \"missing\": " << object(missing)
        << ",\n  \"failures\": " << object(failures) << ",\n  \"data\": [";
    for (size_t i = 0; i < sets.size(); i++)
        out << (i ? ",\n" : "\n") << "    {\"name\": " << quoted(sets[i].name)
            << ", \"source\": " << quoted(sets[i].source) << ", \"entries\": " << sets[i].entries
            << ", \"value_bytes\": " << sets[i].value_bytes << ", \"key_bytes\": " << sets[i].key_bytes << "}";
    out << "\n  ],\n  \"results\": [";
    bool first = true;
    for (const auto &[key, values] : samples) {
        auto [low, high] = std::minmax_element(values.begin(), values.end());
        out << (first ? "\n" : ",\n") << "    {\"data\": " << quoted(key.data) << ", \"peer\": " << quoted(key.peer)
            << ", \"work\": " << quoted(key.work) << ", \"metric\": " << quoted(key.metric)
            << ", \"median\": " << number(middle(values)) << ", \"low\": " << number(*low)
            << ", \"high\": " << number(*high) << ", \"samples\": [";
        for (size_t i = 0; i < values.size(); i++)
            out << (i ? ", " : "") << number(values[i]);
        out << "]}";
        first = false;
    }
    out << "\n  ]\n}\n";
    out.close();
    if (!out)
        throw std::runtime_error("cannot write " + path);
    std::filesystem::rename(path + ".new", path);
}
