// The latencies of sets over minutes: two threads set, one gets, in a store that is full.
//
//    pauses [--peers LIST] [--seconds N] [--capacity BYTES] [--rate N] [--directory DIR] [--output FILE.json]
//
// Each thread makes --rate calls a second, or as many as it can: the same load for all stores, and one that leaves the
// processors idle at times. With 0, calls follow one another; with fewer processors than threads, the longest calls
// then show how the kernel divides the processors, whatever the store.
//
// A store that evicts gets the capacity, and keys of a space four times as large as its contents. The others have no
// capacity: they hold as many keys as fit in it uncompressed, and these are overwritten, so that their size only
// changes by the space that the store wastes; the size of the files before and after is in the results. A set chooses
// key and value at random, so that the sizes of a key's values differ, as in a cache.
//
// Each call is timed alone, from its beginning: delays of other calls that it causes do not count. Calls to stores that
// allow no concurrent sets wait for a mutex, which does count.
#include "clock.h"
#include "data.hpp"
#include "footprint.hpp"
#include "keys.h"
#include "latency.hpp"
#include "peers.hpp"
#include "results.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <getopt.h>
#include <unistd.h>

namespace {

constexpr size_t lanes = 3, writers = 2; // the writers first, then the reader
volatile sig_atomic_t stopped = 0;

struct Choice {
    std::string peers = "shale-lz4,rocksdb,lmdb,kyoto-hash", directory, output;
    uint64_t seconds = 300, capacity = 256 << 20, rate = 10000; // the rate is each thread's
};

// Durations of calls: all of them, and the longest in each second. Allocates only when it is made.
class alignas(128) Lane { // no two in one cache line
public:
    explicit Lane(uint64_t seconds) : longest(seconds) {}
    void add(uint64_t start, uint64_t end, uint64_t second) { // in ticks from the beginning
        latency.add(end - start);
        // A call that lasts longer than a second counts in each that it touches.
        for (uint64_t at = start / second; at <= end / second && at < longest.size(); at++)
            longest[at] = std::max(longest[at], end - start);
    }
    void add(const Lane &other) {
        latency.add(other.latency);
        misses += other.misses;
        for (size_t at = 0; at < longest.size(); at++)
            longest[at] = std::max(longest[at], other.longest[at]);
    }

    Latency latency;
    uint64_t misses = 0;
    std::vector<uint64_t> longest;
};

// The key space and the values; calls with random keys.
class Space {
public:
    Space(const driver *store, void *opened, const Data &data)
        : store(store), data(data), handle(store->attach(opened)), room(2048), read{room.data(), 0, room.size()} {}
    ~Space() { store->detach(handle); }
    Space(const Space &) = delete;
    Space &operator=(const Space &) = delete;

    void choose(uint64_t number, uint64_t random) {
        make_key(key, sizeof key, number);
        value = data.value(random % data.count());
    }
    void set() { store->set(handle, {key, sizeof key}, value); }
    bool get() { return store->get(handle, {key, sizeof key}, &read); }
    // Values begin with their number; any of them is right.
    void check() const {
        constexpr size_t before = sizeof "{\"id\":" - 1;
        uint64_t number = strtoull(static_cast<const char *>(read.data) + before, nullptr, 10);
        if (number >= data.count() || !data.expected[number].fits(read))
            FAIL("%s: a value differs from the stored one", store->name);
    }

private:
    const driver *store;
    const Data &data;
    void *handle;
    std::vector<char> room;
    buffer read;
    char key[short_key_size];
    bytes value{};
};

void wait_until(double time) {
    timespec until{time_t(time), long(std::fmod(time, 1) * 1e9)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

class Trial {
public:
    Trial(const Choice &choice, const driver *store, const Data &data, Results &results)
        : choice(choice), store(store), data(data), results(results) {}
    void run();

private:
    bool evicting() const { return store->traits & evicts; }
    void fill();
    void work(size_t lane);
    void report(const char *work, const Lane &lane);
    void add(const char *work, const char *metric, double value) {
        results.add({data.name, store->name, work, metric}, value);
    }

    const Choice &choice;
    const driver *store;
    const Data &data;
    Results &results;
    void *opened = nullptr;
    uint64_t keys = 0;
    std::vector<Lane> measured;
    std::mutex mutex;
    std::atomic<size_t> ready{0};
    uint64_t second = 0; // in ticks
};

void Trial::fill() {
    uint64_t fits = choice.capacity / (data.mean() + data.key_size);
    uint64_t count = evicting() ? 4 * fits : fits;
    Space space(store, opened, data);
    for (uint64_t i = 0; i < count && !stopped; i++) {
        space.choose(i, mix(i));
        space.set();
    }
    footprint held{};
    if (evicting() && store->weigh)
        store->weigh(opened, &held);
    if (held.value_bytes) // more than without compression
        fits = held.value_bytes / data.mean();
    keys = evicting() ? 4 * fits : fits;
}

void Trial::work(size_t number) {
    Lane &lane = measured[number];
    Space space(store, opened, data);
    bool writes = number < writers, alone = !(store->traits & threads_write);
    uint64_t seed = mix(number);
    ready++;
    while (ready < lanes) {}
    double from = wall() + double(number) / lanes / double(std::max<uint64_t>(choice.rate, 1)); // not all at once
    uint64_t begin = ticks(), end = begin + choice.seconds * second;
    for (uint64_t i = 0; !stopped; i++) {
        uint64_t random = mix(seed + i);
        space.choose(random % keys, random >> 40);
        if (choice.rate)
            wait_until(from + double(i) / double(choice.rate));
        uint64_t start = ticks();
        if (start >= end)
            break;
        std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
        if (alone)
            lock.lock();
        bool found = writes ? (space.set(), true) : space.get();
        if (alone)
            lock.unlock();
        lane.add(start - begin, ticks() - begin, second);
        if (!found)
            lane.misses++;
        else if (!writes)
            space.check();
    }
}

void Trial::report(const char *work, const Lane &lane) {
    const Latency &latency = lane.latency;
    add(work, "count", double(latency.size()));
    add(work, "rate", double(latency.size()) / double(choice.seconds));
    add(work, "missed", double(lane.misses) / double(std::max<uint64_t>(latency.size(), 1)));
    add(work, "p50_ns", latency.percentile(0.5));
    add(work, "p99_ns", latency.percentile(0.99));
    add(work, "p999_ns", latency.percentile(0.999));
    add(work, "p9999_ns", latency.percentile(0.9999));
    add(work, "max_ns", latency.max());
    for (uint64_t longest : lane.longest)
        add(work, "longest_ns", double(longest) * tick_ns()); // one for each second; 0: no call
    // The shares 1 - 10^(-i/8), as far as there are calls beyond them.
    for (int i = 0; std::pow(10, i / 8.0) <= double(latency.size()); i++)
        add(work, "curve_ns", latency.percentile(1 - std::pow(10, -i / 8.0)));
}

void Trial::run() {
    std::string directory = choice.directory + "/" + store->name;
    std::filesystem::create_directory(directory);
    uint64_t entries = choice.capacity / (data.mean() + data.key_size);
    settings settings{directory.c_str(), entries, choice.capacity, data.mean(), evicting() ? choice.capacity : 0, 0};
    opened = store->open(&settings);
    fill();
    char text[256], how[128];
    store->describe(text, sizeof text);
    snprintf(how, sizeof how, "; here %s, %llu keys",
             evicting() ? "instead a capacity that it keeps by evicting" : "a fixed set of keys, overwritten",
             (unsigned long long)keys);
    results.peers.push_back({store->name, std::string(text) + how});
    printf("%-16s %s%s\n", store->name, text, how);
    fflush(stdout);

    add("size", "keys", double(keys));
    add("size", "disk_bytes_before", double(disk_bytes(directory)));
    second = uint64_t(1e9 / tick_ns());
    measured.assign(lanes, Lane(choice.seconds));
    std::vector<std::thread> threads;
    for (size_t number = 0; number < lanes; number++)
        threads.emplace_back(&Trial::work, this, number);
    for (std::thread &thread : threads)
        thread.join();
    add("size", "disk_bytes_after", double(disk_bytes(directory)));
    measured[0].add(measured[1]);
    report("set", measured[0]);
    report("get", measured[writers]);
    store->close(opened);
    std::filesystem::remove_all(directory);
    for (const char *work : {"set", "get"}) {
        auto microseconds = [&](const char *metric) {
            return results.median({data.name, store->name, work, metric}) / 1e3;
        };
        printf("  %s: p50 %.2f us, p99 %.2f, p99.9 %.2f, p99.99 %.1f, longest %.0f; %.0f a second\n", work,
               microseconds("p50_ns"), microseconds("p99_ns"), microseconds("p999_ns"), microseconds("p9999_ns"),
               microseconds("max_ns"), microseconds("rate") * 1e3);
    }
    fflush(stdout);
}

[[noreturn]] void usage(const char *name) {
    fprintf(stderr,
            "usage: %s [--peers LIST] [--seconds N] [--capacity BYTES] [--rate N] [--directory DIR] [--output FILE]\n"
            "  peers:",
            name);
    print_names(stderr);
    exit(2);
}

Choice read_options(int count, char **arguments) {
    static const option options[] = {{"peers", required_argument, nullptr, 'p'},
                                     {"seconds", required_argument, nullptr, 's'},
                                     {"capacity", required_argument, nullptr, 'c'},
                                     {"rate", required_argument, nullptr, 'r'},
                                     {"directory", required_argument, nullptr, 'D'},
                                     {"output", required_argument, nullptr, 'o'},
                                     {}};
    Choice choice;
    const char *temporary = getenv("TMPDIR");
    choice.directory = temporary ? temporary : ".";
    for (int option; (option = getopt_long(count, arguments, "", options, nullptr)) != -1;)
        switch (option) {
        case 'p': choice.peers = optarg; break;
        case 's': choice.seconds = strtoull(optarg, nullptr, 0); break;
        case 'c': choice.capacity = strtoull(optarg, nullptr, 0); break;
        case 'r': choice.rate = strtoull(optarg, nullptr, 0); break;
        case 'D': choice.directory = optarg; break;
        case 'o': choice.output = optarg; break;
        default: usage(arguments[0]);
        }
    if (optind != count || !choice.seconds || choice.capacity < 1 << 20)
        usage(arguments[0]);
    return choice;
}

} // namespace

int main(int count, char **arguments) {
    struct sigaction stopping = {};
    stopping.sa_handler = [](int) { stopped = 1; };
    sigaction(SIGINT, &stopping, nullptr);
    sigaction(SIGTERM, &stopping, nullptr);
    Choice choice = read_options(count, arguments);
    std::string directory = choice.directory + "/shale-pauses-XXXXXX";
    if (!mkdtemp(directory.data()))
        FAIL("%s: %s", directory.c_str(), strerror(errno));
    choice.directory = directory;

    Results results;
    results.machine = machine_facts(directory);
    for (const Fact &fact : results.machine)
        if (fact.name == "file_system" && fact.text == "tmpfs")
            fprintf(stderr, "%s is in memory, not on a disk: see --directory\n", directory.c_str());
    results.options = {{"seconds", std::to_string(choice.seconds)},
                       {"capacity", std::to_string(choice.capacity)},
                       {"rate", choice.rate ? std::to_string(choice.rate) : "as fast as they go"},
                       {"threads", "two that set, one that gets"}};
    // Few values, so that a set does not wait for memory before its call.
    Data data = make_data("json1k", "json1k", 1024, short_key_size);
    results.sets.push_back({data.name, data.source, data.count(), data.mean(), data.key_size});
    int status = 0;
    try {
        for (const Peer &peer : all_peers()) {
            if (stopped || !is_listed(peer, choice.peers) || !can_run(peer, results))
                continue;
            if ((peer.functions->traits & evicts) && choice.capacity < peer.functions->least_capacity) {
                results.missing.push_back({peer.name, "needs a larger capacity"});
                continue;
            }
            Trial(choice, peer.functions, data, results).run();
            if (!choice.output.empty() && !stopped)
                results.write(choice.output); // so that an interrupted run leaves its results
        }
    } catch (const std::exception &error) {
        fprintf(stderr, "%s\n", error.what());
        status = 1;
    }
    std::filesystem::remove_all(directory);
    if (!stopped && results.peers.empty() && results.missing.empty())
        usage(arguments[0]); // no such store
    return stopped ? 1 : status;
}
