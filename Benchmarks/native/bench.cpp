// Measures Shale, the floor and its peers: see ../README.md.
//
//     bench [--quick] [--peers a,b] [--data a,b] [--work a,b] [--entries N] [--rounds N]
//           [--seconds S] [--json FILE] [--directory PATH]
#include "clock.h"
#include "data.hpp"
#include "keys.h"
#include "peers.hpp"
#include "results.hpp"
#include "workloads.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include <getopt.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

volatile sig_atomic_t stopped = 0;

struct Plan {
    std::string name, kind;
    uint64_t entries, quick_entries; // 0: not with --quick
    size_t key_size;
    bool references_only;           // the floor and Shale alone
    std::set<std::string> works;    // empty: all
};

const std::set<std::string> basic_works{"fill", "get_uniform", "miss", "get_many", "overwrite", "reopen"};

const std::vector<Plan> plans{
    {"json100", "json100", 1000000, 50000, short_key_size, false, {}},
    {"json1k", "json1k", 300000, 20000, short_key_size, false, {}},
    {"packages", "packages", 300000, 0, short_key_size, false, {}},
    {"files16k", "files16k", 20000, 1000, short_key_size, false, {}},
    {"files256k", "files256k", 1200, 0, short_key_size, false, {}},
    // The cost of an operation as the cache grows, and what long keys do to the index.
    {"scale-10k", "json100", 10000, 10000, short_key_size, true, basic_works},
    {"scale-100k", "json100", 100000, 0, short_key_size, true, basic_works},
    {"scale-1m", "json100", 1000000, 0, short_key_size, true, basic_works},
    {"scale-10m", "json100", 10000000, 0, short_key_size, true, basic_works},
    {"long-keys", "json100", 1000000, 0, long_key_size, true, {"fill", "get_uniform", "miss"}},
};

struct Choice {
    bool quick = false;
    std::set<std::string> peers, data, works;
    uint64_t entries = 0, rounds = 0;
    double seconds = 0;
    std::string json, directory = "/tmp";
};

std::set<std::string> split(const std::string &list) {
    std::set<std::string> parts;
    std::istringstream stream(list);
    for (std::string part; std::getline(stream, part, ',');)
        parts.insert(part);
    return parts;
}

// A name also stands for all that begin with it and a hyphen: "shale" for "shale-lz4".
bool chosen(const std::set<std::string> &names, const std::string &name) {
    return names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string &n) {
               return name == n || name.compare(0, n.size() + 1, n + "-") == 0;
           });
}

// Runs `body` in a child, and reads its report line by line. Returns the reason if it fails.
std::string in_child(const Life &life, void (*body)(const Life &),
                     const std::function<void(const std::string &, const std::string &, double)> &take) {
    constexpr double patience = 900;
    int ends[2];
    if (pipe(ends) < 0)
        FAIL("no pipe: %s", strerror(errno));
    fflush(nullptr);
    pid_t child = fork();
    if (child < 0)
        FAIL("no process: %s", strerror(errno));
    if (child == 0) {
        die_with_parent();
        close(ends[0]);
        setpgid(0, 0); // so that its own children can be ended with it
        FILE *out = fdopen(ends[1], "w");
        Life mine = life;
        mine.report = [out](const std::string &work, const std::string &metric, double value) {
            fprintf(out, "%s %s %.9g\n", work.c_str(), metric.c_str(), value);
            fflush(out);
        };
        body(mine);
        fclose(out);
        fflush(nullptr);
        _exit(0); // without the exit handlers of libraries
    }
    setpgid(child, child);
    close(ends[1]);
    std::string text;
    bool late = false;
    for (double begin = wall();;) {
        pollfd waiting{ends[0], POLLIN, 0};
        int left = int((patience - (wall() - begin)) * 1e3);
        if (left <= 0 || poll(&waiting, 1, left) <= 0 || stopped) {
            late = true;
            break;
        }
        char block[4096];
        ssize_t got = read(ends[0], block, sizeof block);
        if (got <= 0)
            break;
        text.append(block, size_t(got));
    }
    if (late)
        kill(-child, SIGKILL);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    std::istringstream lines(text);
    double value;
    for (std::string work, metric; lines >> work >> metric >> value;)
        take(work, metric, value);
    if (stopped)
        throw std::runtime_error("stopped");
    if (late)
        return "took too long";
    if (WIFSIGNALED(status))
        return std::string("ended by ") + strsignal(WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? "" : "failed";
}

class Run {
public:
    explicit Run(const Choice &choice) : choice(choice) {}
    void everything();
    Results results;

private:
    void measure(const Plan &plan);
    void measure(const Plan &plan, const Data &data, const Peer &peer, uint64_t round);
    const Choice &choice;
    std::vector<Peer> peers;
    std::vector<std::string> names;
    uint64_t rounds;
};

void Run::everything() {
    rounds = choice.rounds ? choice.rounds : choice.quick ? 3 : 5;
    for (const Peer &peer : all_peers()) {
        if (!chosen(choice.peers, peer.name) || !can_run(peer, results))
            continue;
        char text[256];
        peer.functions->describe(text, sizeof text);
        results.peers.push_back({peer.name, text});
        printf("%-24s %s\n", peer.name, text);
        peers.push_back(peer);
        names.push_back(peer.name);
    }
    for (const Plan &plan : plans)
        if (choice.data.empty() ? !choice.quick || plan.quick_entries > 0 : chosen(choice.data, plan.name))
            measure(plan);
}

void Run::measure(const Plan &plan) {
    uint64_t entries = choice.quick && plan.quick_entries ? plan.quick_entries : plan.entries;
    if (choice.entries)
        entries = choice.entries;
    Data data = make_data(plan.kind, plan.name, entries, plan.key_size);
    malloc_trim(0); // memory left by making the data would count as the stores' own
    if (data.count() < 100) {
        fprintf(stderr, "%s: this machine has nothing to make it of\n", plan.name.c_str());
        results.missing.push_back({plan.name, "no such files on this machine"});
        return;
    }
    results.sets.push_back({data.name, data.source, data.count(), data.mean(), data.key_size});
    printf("\n%s: %llu values of %llu bytes on average (%s)\n", data.name.c_str(), (unsigned long long)data.count(),
           (unsigned long long)data.mean(), data.source.c_str());
    for (uint64_t round = 0; round < rounds; round++)
        for (size_t turn = 0; turn < peers.size(); turn++) {
            // Each round begins elsewhere, and every second one goes backwards.
            size_t at = (turn + round * 5) % peers.size();
            const Peer &peer = peers[round % 2 ? peers.size() - 1 - at : at];
            bool is_reference = peer.functions->traits & reference;
            if (!is_reference && (plan.references_only || round % (choice.quick ? 3 : 2) != 0))
                continue;
            measure(plan, data, peer, round);
        }
    results.print(data.name, names);
    if (!choice.json.empty())
        results.write(choice.json); // so that an interrupted run leaves its results
}

void Run::measure(const Plan &plan, const Data &data, const Peer &peer, uint64_t round) {
    Life life{peer.functions, &data, choice.directory + "/" + peer.name, choice.seconds, round, plan.works, {}};
    if (!choice.works.empty())
        life.works = choice.works;
    auto take = [&](const std::string &work, const std::string &metric, double value) {
        results.add({data.name, peer.name, work, metric}, value);
    };
    auto stage = [&](void (*body)(const Life &)) {
        std::string reason = in_child(life, body, take);
        if (!reason.empty()) {
            fprintf(stderr, "%s with %s: %s\n", peer.name, data.name.c_str(), reason.c_str());
            results.failures.push_back({std::string(peer.name) + " " + data.name, reason});
        }
        return reason.empty();
    };
    auto afresh = [&] {
        std::filesystem::remove_all(life.directory);
        std::filesystem::create_directory(life.directory);
    };
    double begin = wall();
    // Works with a store of their own.
    auto own = [&](const std::string &work) { return work == "full" || work == "written" || work == "workers"; };
    bool own_alone = !life.works.empty() && std::all_of(life.works.begin(), life.works.end(), own);
    if (!life.is(only_full) && !own_alone) {
        afresh();
        if (stage(live) && !life.is(in_memory) && stage(live_as_two) && stage(reopen))
            stage(remove_all);
    }
    if (life.is(evicts) && life.wants("full") && full_capacity(data) >= peer.functions->least_capacity) {
        afresh();
        stage(live_full);
    }
    // These take a minute, so they have to be named.
    if (!life.is(in_memory) && life.works.count("written")) {
        afresh();
        stage(live_written);
    }
    if (life.is(evicts) && life.works.count("workers") && full_capacity(data) >= peer.functions->least_capacity) {
        afresh();
        stage(live_workers);
    }
    std::filesystem::remove_all(life.directory);
    printf("  round %llu of %llu: %-24s %5.1f s\n", (unsigned long long)round + 1, (unsigned long long)rounds,
           peer.name, wall() - begin);
    fflush(stdout);
}

[[noreturn]] void usage(const char *name) {
    fprintf(stderr,
            "usage: %s [--quick] [--peers LIST] [--data LIST] [--work LIST] [--entries N] [--rounds N]\n"
            "       [--seconds S] [--json FILE] [--directory PATH]\n  data:",
            name);
    for (const Plan &plan : plans)
        fprintf(stderr, " %s", plan.name.c_str());
    fprintf(stderr, "\n  work:");
    for (const std::string &work : work_names)
        fprintf(stderr, " %s", work.c_str());
    fprintf(stderr, "\n  peers:");
    for (const Peer &peer : all_peers())
        fprintf(stderr, " %s", peer.name);
    fprintf(stderr, "\n");
    exit(2);
}

Choice read_options(int count, char **arguments) {
    static const option options[] = {
        {"quick", no_argument, nullptr, 'q'},           {"peers", required_argument, nullptr, 'p'},
        {"data", required_argument, nullptr, 'd'},      {"work", required_argument, nullptr, 'w'},
        {"entries", required_argument, nullptr, 'e'},   {"rounds", required_argument, nullptr, 'r'},
        {"seconds", required_argument, nullptr, 's'},   {"json", required_argument, nullptr, 'j'},
        {"directory", required_argument, nullptr, 'D'}, {}};
    Choice choice;
    for (int option; (option = getopt_long(count, arguments, "", options, nullptr)) != -1;)
        switch (option) {
        case 'q': choice.quick = true; break;
        case 'p': choice.peers = split(optarg); break;
        case 'd': choice.data = split(optarg); break;
        case 'w': choice.works = split(optarg); break;
        case 'e': choice.entries = strtoull(optarg, nullptr, 0); break;
        case 'r': choice.rounds = strtoull(optarg, nullptr, 0); break;
        case 's': choice.seconds = strtod(optarg, nullptr); break;
        case 'j': choice.json = optarg; break;
        case 'D': choice.directory = optarg; break;
        default: usage(arguments[0]);
        }
    if (optind != count)
        usage(arguments[0]);
    for (const std::string &work : choice.works)
        if (std::find(work_names.begin(), work_names.end(), work) == work_names.end())
            usage(arguments[0]);
    if (choice.seconds <= 0)
        choice.seconds = choice.quick ? 0.05 : 0.3;
    return choice;
}

} // namespace

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    struct sigaction stopping = {};
    stopping.sa_handler = [](int) { stopped = 1; };
    sigaction(SIGINT, &stopping, nullptr); // without SA_RESTART: a signal ends the waiting
    sigaction(SIGTERM, &stopping, nullptr);
    Choice choice = read_options(count, arguments);
    std::string directory = choice.directory + "/shale-bench-XXXXXX";
    if (!mkdtemp(directory.data()))
        FAIL("%s: %s", directory.c_str(), strerror(errno));
    choice.directory = directory;
    Run run(choice);
    run.results.machine = machine_facts(directory);
    run.results.options = {{"quick", choice.quick ? "yes" : "no"}, {"seconds", std::to_string(choice.seconds)}};
    int status = 0;
    try {
        run.everything();
        if (!choice.json.empty())
            run.results.write(choice.json);
    } catch (const std::exception &error) {
        fprintf(stderr, "%s\n", error.what());
        status = 1;
    }
    std::filesystem::remove_all(directory);
    return status;
}
