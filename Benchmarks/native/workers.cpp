// Eight processes that share one cache or, where a store cannot be shared, have one each with an eighth of the room. A
// miss loads the value, which takes a millisecond.
#include "footprint.hpp"
#include "group.hpp"
#include "workloads.hpp"

#include <atomic>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr size_t workers = 8, phases = 2; // the second begins with the caches filled by the first
constexpr useconds_t load_us = 1000;

struct Shared {
    std::atomic<size_t> arrived;
    struct {
        uint64_t loads;
        double wall;
    } results[phases][workers];
};

// A point that all workers and their parent reach before any goes on: the numbers are 1, 2, 3, ...
void meet(Shared *shared, size_t number) {
    shared->arrived++;
    while (shared->arrived < number * (workers + 1))
        usleep(1000);
}

uint64_t work(const Data &data, Session &session, uint64_t from, uint64_t requests) {
    std::vector<char> name(data.key_size);
    bytes key{name.data(), name.size()};
    uint64_t loads = 0;
    for (uint64_t i = from; i < from + requests; i++) {
        uint64_t number = data.zipf[i % data.zipf.size()];
        make_key(name.data(), name.size(), number);
        if (session.get_or_lease(key, data.expected[number]))
            continue;
        loads++;
        usleep(load_us);
        session.fulfil(key, data.value(number));
    }
    return loads;
}

} // namespace

void live_workers(const Life &life) {
    const Data &data = *life.data;
    bool inherited = life.is(processes_fork), alone = !inherited && !life.is(processes_open);
    settings settings = life.settings_with(full_capacity(data) / (alone ? workers : 1));
    uint64_t requests = data.count() / 4; // of each worker in each phase
    auto shared = static_cast<Shared *>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    uint64_t memory_before = proportional_bytes(0);
    void *opened = inherited ? life.store->open(&settings) : nullptr;
    double memory = double(proportional_bytes(0)) - double(memory_before);
    pid_t children[workers];
    for (size_t lane = 0; lane < workers; lane++)
        if ((children[lane] = fork()) == 0) {
            die_with_parent();
            std::vector<char> first(64 << 10); // what any process takes, with its first huge page, does not count
            size_t met = 0;
            meet(shared, ++met);
            meet(shared, ++met); // the memory is measured
            void *store = opened ? opened : life.store->open(&settings);
            {
                Session session(life.store, store, data);
                uint64_t from = mix(life.round * workers + lane);
                for (size_t phase = 0; phase < phases; phase++) {
                    meet(shared, ++met);
                    double start = wall();
                    shared->results[phase][lane].loads = work(data, session, from + phase * requests, requests);
                    shared->results[phase][lane].wall = wall() - start;
                }
                meet(shared, ++met);
                meet(shared, ++met); // the memory is measured
            }
            if (!opened)
                life.store->close(store);
            _exit(0);
        }
    auto require = [&](bool fine) {
        if (!fine)
            FAIL("%s: a worker failed", life.store->name);
    };
    size_t met = 0;
    auto meet_workers = [&] {
        shared->arrived++;
        for (met++; shared->arrived < met * (workers + 1); usleep(1000))
            for (pid_t child : children)
                require(waitpid(child, nullptr, WNOHANG) == 0);
    };
    auto all_memory = [&] {
        double sum = double(proportional_bytes(0));
        for (pid_t child : children)
            sum += double(proportional_bytes(child));
        return sum;
    };
    meet_workers();
    memory -= all_memory();
    for (size_t phase = 0; phase <= phases + 1; phase++)
        meet_workers();
    memory += all_memory();
    footprint footprint{};
    if (opened && life.store->weigh)
        life.store->weigh(opened, &footprint);
    if (footprint.server)
        memory += double(proportional_bytes(footprint.server));
    shared->arrived++;
    for (pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        require(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }

    for (size_t phase = 0; phase < phases; phase++) {
        std::string name = phase ? "workers" : "workers_cold";
        double loads = 0, longest = 0;
        for (const auto &result : shared->results[phase]) {
            loads += double(result.loads);
            longest = std::max(longest, result.wall);
        }
        life.report(name, "loads", loads);
        life.report(name, "hit_ratio", 1 - loads / double(requests * workers));
        life.report(name, "rate", double(requests * workers) / longest);
    }
    life.report("workers", "memory_share", memory / double(full_capacity(data)));
    if (opened)
        life.store->close(opened);
    munmap(shared, sizeof(Shared));
}
