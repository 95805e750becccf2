#include "workloads.hpp"
#include "group.hpp"
#include "latency.hpp"
#include "footprint.hpp"

#include <atomic>
#include <memory>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const std::vector<std::string> work_names{"fill",      "get_uniform", "get_zipf", "miss",    "get_many", "mix",
                                          "overwrite", "set_many",    "delete",   "latency", "threads",  "processes",
                                          "reopen",    "full",        "written",  "workers"};

void die_with_parent() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

settings Life::settings_with(uint64_t capacity) const {
    return {directory.c_str(), data->count(), data->raw_bytes(), data->mean(), capacity, 0};
}

namespace {

// The numbers that a work asks for. Lanes are threads or processes, and see different ones.
class Numbers {
public:
    Numbers(const Life &life, uint64_t lane) : data(*life.data), start(mix(life.round * 977 + lane)) {}
    uint64_t uniform() { return mix(start + at++) % data.count(); }
    uint64_t zipf() { return data.zipf[(start + at++) % data.zipf.size()]; }
    uint64_t absent() { return data.count() + mix(start + at++) % (uint64_t(1) << 40); }
    bool tenth() { return mix(~start + at) % 10 == 0; }

private:
    const Data &data;
    uint64_t start, at = 0;
};

using Next = std::function<bool(Group &, Numbers &)>;

struct Work {
    const char *name;
    bool writes, batches;
    Next next;
};

const Work get_uniform{"get_uniform", false, false, [](Group &group, Numbers &numbers) {
                           group.add(numbers.uniform(), Operation::get);
                           return true;
                       }};
const Work get_zipf{"get_zipf", false, false, [](Group &group, Numbers &numbers) {
                        group.add(numbers.zipf(), Operation::get);
                        return true;
                    }};
const Work get_many{"get_many", false, true, get_uniform.next};
const Work miss{"miss", false, false, [](Group &group, Numbers &numbers) {
                    group.add(numbers.absent(), Operation::get);
                    return true;
                }};
const Work mixed{"mix", true, false, [](Group &group, Numbers &numbers) {
                     bool sets = numbers.tenth();
                     group.add(numbers.uniform(), sets ? Operation::set : Operation::get);
                     return true;
                 }};
const Work overwrite{"overwrite", true, false, [](Group &group, Numbers &numbers) {
                         group.add(numbers.uniform(), Operation::set);
                         return true;
                     }};
const Work set_many{"set_many", true, true, overwrite.next};

uint64_t do_singly(Session &session, const Group &group) {
    uint64_t misses = 0;
    for (size_t i = 0; i < group.used; i++)
        misses += !perform(session, group, i);
    return misses;
}

uint64_t do_batches(Session &session, const Group &group) {
    uint64_t misses = 0;
    for (size_t i = 0; i < group.used; i += batch)
        if (group.with_values)
            session.set_many(&group.keys[i], &group.values[i]);
        else
            misses += batch - session.get_many(&group.keys[i], &group.expected[i]);
    return misses;
}

// On a virtual machine free memory may have been returned to the host, and its first use costs a fault there, more than
// a set does. So as much as is about to be written is touched and freed again. Not timed.
void touch_memory(const Life &life, uint64_t lanes) {
    uint64_t size = life.data->raw_bytes() * lanes * 3 / 2;
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return;
    madvise(memory, size, MADV_HUGEPAGE); // the host reclaims large pieces
    std::memset(memory, 1, size);
    munmap(memory, size);
}

Tally do_work(const Life &life, Session &session, const Work &work, uint64_t lane) {
    Group group(*life.data, work.writes, work.batches ? batch : 2);
    Numbers numbers(life, lane);
    // No more memory than touch_memory() has touched, in whole batches.
    uint64_t left = work.writes ? life.data->count() / batch * batch : UINT64_MAX;
    return time_groups(
        group, life.seconds, [&](Group &group) { return left-- > 0 && work.next(group, numbers); },
        [&](const Group &group) { return work.batches ? do_batches(session, group) : do_singly(session, group); });
}

void give(const Life &life, const std::string &work, const Tally *tallies, size_t lanes) {
    double rate = 0, cpu = 0, operations = 0, misses = 0;
    for (size_t i = 0; i < lanes; i++) {
        rate += double(tallies[i].operations) / tallies[i].wall;
        cpu += tallies[i].cpu;
        operations += double(tallies[i].operations);
        misses += double(tallies[i].misses);
    }
    life.report(work, "rate", rate);
    life.report(work, "cpu_ns", cpu / operations * 1e9);
    if (work != "miss" && work != "full" && misses > 0) // the others have no misses
        life.report(work, "missed", misses / operations);
}

void do_alone(const Life &life, Session &session, const Work &work) {
    if (!life.wants(work.name))
        return;
    if (work.writes)
        touch_memory(life, 1);
    Tally tally = do_work(life, session, work, 0);
    give(life, work.name, &tally, 1);
}

void do_with_threads(const Life &life, void *opened, const Work &work) {
    if (!life.wants("threads") || !life.is(work.writes ? threads_write : threads_read))
        return;
    if (work.writes)
        touch_memory(life, 2);
    Tally tallies[2];
    std::atomic<int> ready{0};
    auto body = [&](size_t lane) {
        Session session(life.store, opened, *life.data);
        ready++;
        while (ready < 2) {}
        tallies[lane] = do_work(life, session, work, lane + 1);
    };
    std::thread second(body, 1);
    body(0);
    second.join();
    give(life, std::string(work.name) + "@2t", tallies, 2);
}

// `opened`: the handle that children of fork use; NULL: each opens the directory.
void do_with_processes(const Life &life, void *opened, const Work &work) {
    struct Shared {
        std::atomic<int> ready;
        Tally tallies[2];
    };
    if (work.writes)
        touch_memory(life, 2);
    auto shared = static_cast<Shared *>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t children[2];
    for (size_t lane = 0; lane < 2; lane++)
        if ((children[lane] = fork()) == 0) {
            die_with_parent();
            settings settings = life.settings_with(0);
            void *store = opened ? opened : life.store->open(&settings);
            {
                Session session(life.store, store, *life.data);
                shared->ready++;
                while (shared->ready < 2)
                    usleep(10);
                shared->tallies[lane] = do_work(life, session, work, lane + 1);
            }
            if (!opened)
                life.store->close(store);
            _exit(0);
        }
    bool fine = true;
    for (pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        fine = fine && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (!fine) // the other one may be waiting for it
            shared->ready += 2;
    }
    if (!fine)
        FAIL("%s: a process of two failed", life.store->name);
    give(life, std::string(work.name) + "@2p", shared->tallies, 2);
    munmap(shared, sizeof(Shared));
}

void do_with_processes(const Life &life, void *opened) {
    if (life.wants("processes"))
        for (const Work *work : {&get_uniform, &mixed})
            do_with_processes(life, opened, *work);
}

// Percentiles of single operations, in a pass of their own: reading the clock costs something.
void do_latency(const Life &life, Session &session, const std::string &name, bool with_values, const Next &next) {
    Group group(*life.data, with_values);
    Numbers numbers(life, 7);
    Latency latency;
    uint64_t left = with_values ? life.data->count() : UINT64_MAX;
    if (with_values)
        touch_memory(life, 1);
    time_groups(
        group, life.seconds, [&](Group &group) { return left-- > 0 && next(group, numbers); },
        [&](const Group &group) {
            uint64_t misses = 0;
            for (size_t i = 0; i < group.used; i++) {
                uint64_t start = ticks();
                misses += !perform(session, group, i);
                latency.add(ticks() - start);
            }
            return misses;
        });
    life.report(name, "p50_ns", latency.percentile(0.5));
    life.report(name, "p99_ns", latency.percentile(0.99));
    life.report(name, "p999_ns", latency.percentile(0.999));
    life.report(name, "max_ns", latency.max());
}

void fill(const Life &life, Session &session) {
    Group group(*life.data, true);
    uint64_t at = 0;
    Tally tally = time_groups(
        group, 1e6,
        [&](Group &group) {
            if (at == life.data->count())
                return false;
            group.add(at++, Operation::set);
            return true;
        },
        [&](const Group &group) { return do_singly(session, group); });
    give(life, "fill", &tally, 1);
}

// Reads and compares every value once, which also warms the caches. Not timed.
void read_all(const Life &life, Session &session) {
    const Data &data = *life.data;
    std::vector<char> key(data.key_size);
    uint64_t lost = 0;
    for (uint64_t i = 0; i < data.count(); i++) {
        make_key(key.data(), key.size(), i);
        bytes value = data.value(i);
        if (!session.get({key.data(), key.size()}, data.expected[i]))
            lost++;
        else if (std::memcmp(session.last().data, value.data, value.size) != 0)
            FAIL("%s: a value differs from the stored one", life.store->name);
    }
    if (lost > 0)
        life.report("fill", "missed", double(lost) / double(data.count()));
}

void weigh(const Life &life, void *opened, uint64_t resident_before) {
    double count = double(life.data->count());
    footprint footprint{};
    if (life.store->weigh)
        life.store->weigh(opened, &footprint);
    uint64_t resident = footprint.server ? resident_bytes(footprint.server) : resident_bytes(0) - resident_before;
    life.report("size", "resident_bytes", double(resident) / count);
    if (uint64_t disk = disk_bytes(life.directory))
        life.report("size", "disk_bytes", double(disk) / count);
    if (footprint.index_bytes)
        life.report("size", "index_bytes", double(footprint.index_bytes) / count);
    if (footprint.value_bytes)
        life.report("size", "stored_share", double(footprint.stored_bytes) / double(footprint.value_bytes));
}

void time_removal(const Life &life, Session &session) {
    if (!life.wants("delete"))
        return;
    Group group(*life.data, false);
    uint64_t count = life.data->count(), at = 0;
    Tally tally = time_groups(
        group, life.seconds,
        [&](Group &group) {
            if (at == count)
                return false;
            group.add(at++, Operation::remove);
            return true;
        },
        [&](const Group &group) { return do_singly(session, group); });
    give(life, "delete", &tally, 1);
}

} // namespace

void live(const Life &life) {
    settings settings = life.settings_with(0);
    touch_memory(life, 1);
    uint64_t resident_before = resident_bytes(0);
    void *opened = life.store->open(&settings);
    auto session = std::make_unique<Session>(life.store, opened, *life.data);
    fill(life, *session);
    if (life.store->settle)
        life.store->settle(opened);
    read_all(life, *session);
    weigh(life, opened, resident_before);

    for (const Work *work : {&get_uniform, &get_zipf, &miss, &get_many})
        do_alone(life, *session, *work);
    for (const Work *work : {&get_uniform, &get_zipf, &get_many})
        do_with_threads(life, opened, *work);
    if (life.wants("latency"))
        do_latency(life, *session, "latency_get", false, get_uniform.next);
    for (const Work *work : {&mixed, &overwrite, &set_many})
        do_alone(life, *session, *work);
    for (const Work *work : {&mixed, &overwrite, &set_many})
        do_with_threads(life, opened, *work);
    if (life.wants("latency"))
        do_latency(life, *session, "latency_set", true, overwrite.next);

    if (life.is(in_memory) && life.is(processes_fork))
        do_with_processes(life, opened);
    if (life.is(in_memory))
        time_removal(life, *session);
    session.reset();
    life.store->close(opened);
}

void live_as_two(const Life &life) {
    if (life.is(processes_open))
        do_with_processes(life, nullptr);
}

void remove_all(const Life &life) {
    settings settings = life.settings_with(0);
    void *opened = life.store->open(&settings);
    {
        Session session(life.store, opened, *life.data);
        time_removal(life, session);
    }
    life.store->close(opened);
}

uint64_t full_capacity(const Data &data) {
    return data.raw_bytes() / 4;
}

void live_full(const Life &life) {
    const Data &data = *life.data;
    uint64_t capacity = full_capacity(data);
    settings settings = life.settings_with(capacity);
    uint64_t resident_before = resident_bytes(0);
    void *opened = life.store->open(&settings);
    auto session = std::make_unique<Session>(life.store, opened, data);

    // Until three times as much was stored as the capacity holds: not timed.
    Group group(data, true);
    Numbers numbers(life, 0);
    auto next = [&](Group &group) {
        group.add(numbers.zipf(), Operation::fetch);
        return true;
    };
    uint64_t stored = 0;
    for (double begin = wall(); stored < capacity * 3 && wall() - begin < 20 + life.seconds * 20;) {
        Tally tally = time_groups(group, 0.01, next, [&](const Group &group) { return do_singly(*session, group); });
        stored += tally.misses * (data.mean() + data.key_size);
    }
    Tally tally = time_groups(group, life.seconds * 2, next,
                              [&](const Group &group) { return do_singly(*session, group); });
    give(life, "full", &tally, 1);
    life.report("full", "hit_ratio", 1 - double(tally.misses) / double(tally.operations));
    footprint footprint{};
    if (life.store->weigh)
        life.store->weigh(opened, &footprint);
    uint64_t resident = footprint.server ? resident_bytes(footprint.server) : resident_bytes(0) - resident_before;
    life.report("full", "resident_share", double(resident) / double(capacity));

    do_latency(life, *session, "latency_full", true, [&](Group &group, Numbers &numbers) {
        group.add(numbers.zipf(), Operation::fetch);
        return true;
    });
    uint64_t fresh = data.count() * (life.round + 1);
    do_latency(life, *session, "latency_full_set", true, [&](Group &group, Numbers &) {
        group.add(fresh++, Operation::set);
        return true;
    });
    session.reset();
    life.store->close(opened);
}

void live_written(const Life &life) {
    // After as many bytes were set, everything is written to disk: as the kernel does after 30 seconds, here at a
    // thousand sets of 1 KiB a second.
    constexpr uint64_t between_syncs = 32 << 20;
    const Data &data = *life.data;
    settings settings = life.settings_with(life.is(evicts) ? data.raw_bytes() : 0);
    void *opened = life.store->open(&settings);
    auto session = std::make_unique<Session>(life.store, opened, data);
    int directory = open(life.directory.c_str(), O_RDONLY | O_DIRECTORY);
    Numbers numbers(life, 0);

    // Each set of a key stores the value of the next number, as a store may write nothing for an equal one.
    std::vector<uint32_t> sets(data.count());
    auto add = [&](Group &group, uint64_t number, Operation operation) {
        group.add(number, operation, (number + sets[number] + (operation == Operation::set)) % data.count());
        sets[number] += operation == Operation::set;
    };
    // Until `bytes` were set.
    auto pass = [&](uint64_t bytes, const std::function<void(Group &)> &next) {
        Group group(data, true);
        for (uint64_t set = 0, unsynced = 0; set < bytes;) {
            for (group.used = 0; group.used < group.size;)
                next(group);
            do_singly(*session, group);
            for (size_t i = 0; i < group.used; i++)
                if (group.operations[i] == Operation::set)
                    unsynced += group.keys[i].size + group.values[i].size;
            if (unsynced >= between_syncs) {
                syncfs(directory);
                set += unsynced;
                unsynced = 0;
            }
        }
    };
    uint64_t at = 0;
    auto each = [&](Group &group) { add(group, at++ % data.count(), Operation::set); };
    auto overwrites = [&](Group &group) { add(group, numbers.uniform(), Operation::set); };
    auto mixes = [&](Group &group) {
        bool sets = numbers.tenth();
        add(group, numbers.uniform(), sets ? Operation::set : Operation::get);
    };
    pass(data.raw_bytes(), each);
    pass(data.raw_bytes(), overwrites);
    auto measure = [&](const std::string &name, const std::function<void(Group &)> &next) {
        uint64_t bytes = 2 * data.raw_bytes() / between_syncs * between_syncs;
        uint64_t own = written_by_this_process(), disk = written_to_disk_of(life.directory);
        pass(bytes, next);
        life.report(name, "per_byte_set", double(written_by_this_process() - own) / double(bytes));
        if (disk)
            life.report(name, "disk_per_byte_set", double(written_to_disk_of(life.directory) - disk) / double(bytes));
    };
    measure("written", overwrites);
    measure("written_mix", mixes);
    life.report("written", "disk_bytes", double(disk_bytes(life.directory)) / double(data.raw_bytes()));
    close(directory);
    session.reset();
    life.store->close(opened);
}
