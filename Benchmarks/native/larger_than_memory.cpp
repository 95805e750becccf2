// Gets and sets in stores four times as large as the memory that they may use.
//
//    larger_than_memory [--peers LIST] [--bytes N] [--share N] [--seconds N] [--directory DIR] [--output FILE.json]
//
// Each store runs in a process of its own, in a memory cgroup whose limit is the keys' and values' size divided by
// --share, whatever the store compresses. The limit includes the page cache. The process fills the store, overwrites
// keys at random until the space that they took is in use again, and then times calls with random keys. All values
// exist; no store evicts.
//
// A call's time includes its page faults. `faults` are those that wait for the disk, for each call; stores that read
// with system calls have none. `read_bytes` count what was read from the disk, for each call.
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
#include <fstream>
#include <functional>
#include <stdexcept>
#include <thread>

#include <getopt.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;

constexpr size_t batch = 64; // of get_many
volatile sig_atomic_t stopped = 0;

struct Choice {
    std::string peers = "shale-lz4,shale-none,lmdb,rocksdb,sqlite", directory, output;
    uint64_t bytes = 1 << 30, share = 4, seconds = 10;
};

// A memory cgroup, of version 1 or 2, for the process that enters it.
class Group {
public:
    explicit Group(uint64_t limit) {
        bool second = fs::exists("/sys/fs/cgroup/cgroup.controllers");
        path = std::string("/sys/fs/cgroup/") + (second ? "" : "memory/") + "shale-" + std::to_string(getpid());
        if (second)
            write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
        std::error_code error;
        if (!fs::create_directory(path, error))
            throw std::runtime_error(path + ": " + error.message() + "; it takes root's rights and memory cgroups");
        write(path + (second ? "/memory.max" : "/memory.limit_in_bytes"), std::to_string(limit));
    }
    ~Group() { rmdir(path.c_str()); }
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;
    void enter() const { write(path + "/cgroup.procs", std::to_string(getpid())); }

private:
    static void write(const std::string &file, const std::string &text) {
        std::ofstream out(file);
        out << text;
        out.close();
        if (!out)
            throw std::runtime_error("cannot write " + file);
    }
    std::string path;
};

// A thread's calls.
class Caller {
public:
    Caller(const driver *store, void *opened, const Data &data)
        : store(store), data(data), handle(store->attach(opened)) {
        for (buffer &b : buffers)
            b = {malloc(room), 0, room};
    }
    ~Caller() {
        store->detach(handle);
        for (buffer &b : buffers)
            free(b.data);
    }
    Caller(const Caller &) = delete;
    Caller &operator=(const Caller &) = delete;

    void choose(size_t i, uint64_t number) {
        make_key(names[i], short_key_size, number);
        keys[i] = {names[i], short_key_size};
        numbers[i] = number % data.count();
    }
    void set() { store->set(handle, keys[0], data.value(numbers[0])); }
    void get() { check(0, store->get(handle, keys[0], &buffers[0])); }
    void get_many() {
        bool found[batch];
        if (store->get_many)
            store->get_many(handle, batch, keys, buffers, found);
        else
            for (size_t i = 0; i < batch; i++)
                found[i] = store->get(handle, keys[i], &buffers[i]);
        for (size_t i = 0; i < batch; i++)
            check(i, found[i]);
    }

private:
    void check(size_t i, bool found) const {
        if (!found || !data.expected[numbers[i]].fits(buffers[i]))
            FAIL("%s: a value is missing, or differs from the stored one", store->name);
    }
    static constexpr size_t room = 4096;
    const driver *store;
    const Data &data;
    void *handle;
    buffer buffers[batch];
    char names[batch][short_key_size];
    bytes keys[batch];
    uint64_t numbers[batch];
};

struct Usage {
    uint64_t faults, read;
    static Usage now() {
        rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        return {uint64_t(usage.ru_majflt), uint64_t(usage.ru_inblock) * 512};
    }
};

// Ranks by a power law with exponent 0.99 (the integral's inverse), spread over the numbers.
uint64_t zipf(uint64_t random, uint64_t count) {
    double share = double(random >> 11) * 0x1p-53, top = std::pow(double(count), 0.01);
    uint64_t rank = uint64_t(std::pow(share * (top - 1) + 1, 100.0)) - 1;
    return mix(std::min(rank, count - 1)) % count;
}

class Trial {
public:
    Trial(const Choice &choice, const driver *store, const Data &data, FILE *out)
        : choice(choice), store(store), data(data), out(out), keys(choice.bytes / (data.mean() + data.key_size)) {}
    void run();

private:
    using Call = void (Caller::*)();
    settings settings_in(const std::string &directory) const {
        return {directory.c_str(), keys, choice.bytes, data.mean(), 0, choice.bytes / choice.share};
    }
    double stored_share() const;
    void fill();
    void measure(const char *work, Call call, size_t calls, bool skewed, size_t threads = 1);
    void add(const char *work, const char *metric, double value) const {
        fprintf(out, "%s %s %.9g\n", work, metric, value);
    }

    const Choice &choice;
    const driver *store;
    const Data &data;
    FILE *out;
    const uint64_t keys;
    void *opened = nullptr;
    uint64_t seed = 1;
};

// Of the values' size, by storing some; 1 if the store does not tell.
double Trial::stored_share() const {
    std::string directory = choice.directory + "/sample";
    fs::create_directory(directory);
    settings some = settings_in(directory);
    void *sample = store->open(&some);
    footprint held{};
    {
        Caller caller(store, sample, data);
        for (uint64_t i = 0; i < data.count(); i++) {
            caller.choose(0, i);
            caller.set();
        }
        if (store->weigh)
            store->weigh(sample, &held);
    }
    store->close(sample);
    fs::remove_all(directory);
    return held.value_bytes ? double(held.stored_bytes) / double(held.value_bytes) : 1;
}

void Trial::fill() {
    Caller caller(store, opened, data);
    double begin = wall();
    for (uint64_t i = 0; i < keys && !stopped; i++) {
        caller.choose(0, i);
        caller.set();
    }
    add("fill", "rate", double(keys) / (wall() - begin));
    if (store->settle)
        store->settle(opened);
    double until = wall() + 10 * double(choice.seconds);
    for (uint64_t i = 0; i < keys && wall() < until && !stopped; i++) {
        caller.choose(0, mix(i) % keys);
        caller.set();
    }
}

// `calls`: how many keys a call has.
void Trial::measure(const char *work, Call call, size_t calls, bool skewed, size_t threads) {
    std::vector<Latency> latencies(threads);
    std::vector<std::thread> others;
    double begin = wall(), until = begin + double(choice.seconds);
    Usage before = Usage::now();
    auto body = [&](size_t thread) {
        Caller caller(store, opened, data);
        Latency mine;
        for (uint64_t i = mix(seed + thread); wall() < until && !stopped;) {
            for (size_t at = 0; at < calls; at++) {
                uint64_t random = mix(i++);
                caller.choose(at, skewed ? zipf(random, keys) : random % keys);
            }
            uint64_t start = ticks();
            (caller.*call)();
            mine.add(ticks() - start);
        }
        latencies[thread] = mine;
    };
    for (size_t thread = 1; thread < threads; thread++)
        others.emplace_back(body, thread);
    body(0);
    for (std::thread &other : others)
        other.join();
    double seconds = wall() - begin;
    Usage after = Usage::now();
    seed += threads;
    for (size_t thread = 1; thread < threads; thread++)
        latencies[0].add(latencies[thread]);
    const Latency &all = latencies[0];
    double count = double(std::max<uint64_t>(all.size(), 1));
    add(work, "rate", count * double(calls) / seconds);
    add(work, "count", count);
    add(work, "p50_ns", all.percentile(0.5));
    add(work, "p99_ns", all.percentile(0.99));
    add(work, "p999_ns", all.percentile(0.999));
    add(work, "max_ns", all.max());
    add(work, "faults", double(after.faults - before.faults) / count);
    add(work, "read_bytes", double(after.read - before.read) / count);
}

void Trial::run() {
    double share = store->traits & evicts ? stored_share() : 1;
    std::string directory = choice.directory + "/" + store->name;
    fs::create_directory(directory);
    settings settings = settings_in(directory);
    if (store->traits & evicts) // half as much again as it stores: enough to evict nothing
        settings.capacity = uint64_t(1.5 * double(keys) * (share * double(data.mean()) + 96));
    opened = store->open(&settings);
    fill();
    measure("get_uniform", &Caller::get, 1, false);
    measure("get_zipf", &Caller::get, 1, true);
    measure("get_many", &Caller::get_many, batch, false);
    measure("set", &Caller::set, 1, false);
    measure("set@2t", &Caller::set, 1, false, 2);
    add("size", "disk_bytes", double(disk_bytes(directory)));
    add("size", "keys", double(keys));
    store->close(opened);
    fs::remove_all(directory);
}

const char *const works[] = {"get_uniform", "get_zipf", "get_many", "set", "set@2t"};

void run_in_group(const Choice &choice, const driver *store, const Data &data, Results &results) {
    Group group(choice.bytes / choice.share);
    int ends[2];
    if (pipe(ends) < 0)
        throw std::runtime_error("no pipe");
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        group.enter();
        FILE *out = fdopen(ends[1], "w");
        Trial(choice, store, data, out).run();
        fclose(out);
        _exit(0);
    }
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    char work[32], metric[32];
    for (double value; fscanf(in, "%31s %31s %lf", work, metric, &value) == 3;)
        results.add({data.name, store->name, work, metric}, value);
    fclose(in);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0)
        results.failures.push_back({store->name, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "failed"});
}

void print(const driver *store, const std::string &data, const Results &results) {
    for (const char *work : works) {
        auto figure = [&](const char *metric) { return results.median({data, store->name, work, metric}); };
        printf("%-12s %-12s %9.0f a second; p50 %7.1f us, p99 %7.1f, p99.9 %8.1f; %.3f faults, %.0f bytes read\n",
               store->name, work, figure("rate"), figure("p50_ns") / 1e3, figure("p99_ns") / 1e3,
               figure("p999_ns") / 1e3, figure("faults"), figure("read_bytes"));
    }
    fflush(stdout);
}

[[noreturn]] void usage(const char *name) {
    fprintf(stderr,
            "usage: %s [--peers LIST] [--bytes N] [--share N] [--seconds N] [--directory DIR] [--output FILE]\n"
            "  peers:",
            name);
    print_names(stderr);
    exit(2);
}

Choice read_options(int count, char **arguments) {
    static const option options[] = {{"peers", required_argument, nullptr, 'p'},
                                     {"bytes", required_argument, nullptr, 'b'},
                                     {"share", required_argument, nullptr, 'm'},
                                     {"seconds", required_argument, nullptr, 's'},
                                     {"directory", required_argument, nullptr, 'D'},
                                     {"output", required_argument, nullptr, 'o'},
                                     {}};
    Choice choice;
    const char *temporary = getenv("TMPDIR");
    choice.directory = temporary ? temporary : ".";
    for (int option; (option = getopt_long(count, arguments, "", options, nullptr)) != -1;)
        switch (option) {
        case 'p': choice.peers = optarg; break;
        case 'b': choice.bytes = strtoull(optarg, nullptr, 0); break;
        case 'm': choice.share = strtoull(optarg, nullptr, 0); break;
        case 's': choice.seconds = strtoull(optarg, nullptr, 0); break;
        case 'D': choice.directory = optarg; break;
        case 'o': choice.output = optarg; break;
        default: usage(arguments[0]);
        }
    if (optind != count || !choice.seconds || !choice.share || choice.bytes / choice.share < 32 << 20)
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
    std::string directory = choice.directory + "/shale-memory-XXXXXX";
    if (!mkdtemp(directory.data()))
        FAIL("%s: %s", directory.c_str(), strerror(errno));
    choice.directory = directory;

    Results results;
    results.machine = machine_facts(directory);
    results.options = {{"seconds", std::to_string(choice.seconds)},
                       {"bytes", std::to_string(choice.bytes)},
                       {"memory", std::to_string(choice.bytes / choice.share)}};
    // Few values, so that they take no memory from the store.
    Data data = make_data("json1k", "json1k", 1024, short_key_size);
    results.sets.push_back({data.name, data.source, data.count(), data.mean(), data.key_size});
    int status = 0;
    try {
        for (const Peer &peer : all_peers()) {
            if (stopped || !is_listed(peer, choice.peers) || !can_run(peer, results))
                continue;
            char text[256];
            peer.functions->describe(text, sizeof text);
            bool evicting = peer.functions->traits & evicts;
            results.peers.push_back({peer.name, std::string(text) + (evicting ? "; here 1.5 times what it stores"
                                                                              : "; here caches that fit")});
            run_in_group(choice, peer.functions, data, results);
            print(peer.functions, data.name, results);
            if (!choice.output.empty() && !stopped)
                results.write(choice.output); // so that an interrupted run leaves its results
        }
    } catch (const std::exception &error) {
        fprintf(stderr, "%s\n", error.what());
        status = 1;
    }
    fs::remove_all(directory);
    for (const Fact &failure : results.failures)
        fprintf(stderr, "%s: %s\n", failure.name.c_str(), failure.text.c_str());
    if (!stopped && results.peers.empty() && results.missing.empty())
        usage(arguments[0]); // no such store
    return stopped ? 1 : results.failures.empty() ? status : 1;
}
