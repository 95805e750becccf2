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

// Returns after `count` arrivals in all.
void meet(Shared *shared, size_t count) {
    shared->arrived++;
    while (shared->arrived < count)
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
    uint64_t memory_before = proportional_bytes(0);
    auto shared = static_cast<Shared *>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    void *opened = inherited ? life.store->open(&settings) : nullptr;
    pid_t children[workers];
    constexpr size_t everyone = workers + 1;
    for (size_t lane = 0; lane < workers; lane++)
        if ((children[lane] = fork()) == 0) {
            die_with_parent();
            void *store = opened ? opened : life.store->open(&settings);
            {
                Session session(life.store, store, data);
                uint64_t from = mix(life.round * workers + lane);
                for (size_t phase = 0; phase < phases; phase++) {
                    meet(shared, (phase + 1) * everyone);
                    double start = wall();
                    shared->results[phase][lane].loads = work(data, session, from + phase * requests, requests);
                    shared->results[phase][lane].wall = wall() - start;
                }
                meet(shared, (phases + 1) * everyone);
                meet(shared, (phases + 2) * everyone); // until the memory is measured
            }
            if (!opened)
                life.store->close(store);
            _exit(0);
        }
    auto require = [&](bool fine) {
        if (!fine)
            FAIL("%s: a worker failed", life.store->name);
    };
    for (size_t phase = 0; phase <= phases; phase++) {
        shared->arrived++;
        while (shared->arrived < (phase + 1) * everyone) {
            for (pid_t child : children)
                require(waitpid(child, nullptr, WNOHANG) == 0);
            usleep(1000);
        }
    }
    uint64_t memory = proportional_bytes(0);
    for (pid_t child : children)
        memory += proportional_bytes(child);
    footprint footprint{};
    if (opened && life.store->weigh)
        life.store->weigh(opened, &footprint);
    if (footprint.server)
        memory += proportional_bytes(footprint.server);
    shared->arrived++;
    for (pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        require(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }

    for (size_t phase = 0; phase < phases; phase++) {
        std::string name = phase ? "workers" : "workers_cold";
        double loads = 0, rate = 0;
        for (const auto &result : shared->results[phase]) {
            loads += double(result.loads);
            rate += double(requests) / result.wall;
        }
        life.report(name, "loads", loads);
        life.report(name, "hit_ratio", 1 - loads / double(requests * workers));
        life.report(name, "rate", rate);
    }
    life.report("workers", "memory_share", double(memory - memory_before) / double(full_capacity(data)));
    if (opened)
        life.store->close(opened);
    munmap(shared, sizeof(Shared));
}
