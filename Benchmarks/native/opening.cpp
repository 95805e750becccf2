// Opening a store again: after a close, after kill -9 of a writer, and with its index deleted.
#include "clock.h"
#include "group.hpp"
#include "workloads.hpp"

#include <memory>

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

namespace {

// Opening and the first get, in milliseconds; also how many of 10,000 keys are present.
double time_open(const Life &life, double *kept) {
    settings settings = life.settings_with(0);
    const Data &data = *life.data;
    std::vector<char> key(data.key_size);
    double start = wall();
    void *opened = life.store->open(&settings);
    double spent;
    {
        Session session(life.store, opened, data);
        uint64_t hits = 0, asked = 10000;
        make_key(key.data(), key.size(), 0);
        session.get({key.data(), key.size()}, data.expected[0]);
        spent = wall() - start;
        for (uint64_t i = 0; i < asked; i++) {
            uint64_t number = mix(i) % data.count();
            make_key(key.data(), key.size(), number);
            hits += session.get({key.data(), key.size()}, data.expected[number]);
        }
        *kept = double(hits) / double(asked);
    }
    life.store->close(opened);
    return spent * 1e3;
}

// A child overwrites entries and is killed meanwhile.
void kill_a_writer(const Life &life) {
    int ready[2];
    if (pipe(ready) < 0)
        FAIL("no pipe");
    pid_t child = fork();
    if (child == 0) {
        die_with_parent();
        settings settings = life.settings_with(0);
        Session session(life.store, life.store->open(&settings), *life.data);
        Group group(*life.data, true);
        double begin = wall();
        for (uint64_t i = 0, told = 0;; group.used = 0) {
            while (group.used < group.size)
                group.add(mix(i++) % life.data->count(), Operation::set);
            for (size_t k = 0; k < group.used; k++)
                perform(session, group, k);
            if (!told && wall() - begin > life.seconds / 4)
                told = write(ready[1], "x", 1) == 1;
        }
    }
    close(ready[1]);
    char byte;
    if (read(ready[0], &byte, 1) != 1)
        FAIL("%s: the writer that is to be killed failed", life.store->name);
    usleep(1000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ready[0]);
}

// Replaces both files by copies, as from an archive.
void replace_by_copy(const std::string &directory) {
    std::string command = "cp -a '" + directory + "' '" + directory + ".copy' && rm -r '" + directory + "' && mv '" +
                          directory + ".copy' '" + directory + "'";
    if (system(command.c_str()) != 0)
        FAIL("cannot copy %s", directory.c_str());
}

volatile uint64_t sink;

// A plain sequential checksum over a file that is mapped as Shale maps it; the better of two.
double checksum_seconds(const std::string &path, uint64_t *size) {
    int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) < 0)
        FAIL("cannot read %s", path.c_str());
    *size = uint64_t(status.st_size);
    double best = 1e9;
    for (int i = 0; i < 2; i++) {
        double start = wall();
        void *map = mmap(nullptr, *size, PROT_READ, MAP_SHARED, file, 0);
        if (map == MAP_FAILED)
            FAIL("cannot map %s", path.c_str());
        for (uint64_t at = 0; at < *size; at += 1 << 20)
            sink = XXH3_64bits(static_cast<char *>(map) + at, std::min<uint64_t>(1 << 20, *size - at));
        best = std::min(best, wall() - start);
        munmap(map, *size);
    }
    close(file);
    return best;
}

} // namespace

void reopen(const Life &life) {
    if (!life.wants("reopen"))
        return;
    double kept;
    kill_a_writer(life);
    life.report("reopen", "open_killed_ms", time_open(life, &kept));
    life.report("reopen", "open_killed_kept", kept);
    life.report("reopen", "open_ms", time_open(life, &kept));
    life.report("reopen", "open_kept", kept);
    if (!life.store->remove_index)
        return;
    replace_by_copy(life.directory);
    life.report("reopen", "open_copy_ms", time_open(life, &kept));
    life.report("reopen", "open_copy_kept", kept);
    char file[600];
    life.store->remove_index(life.directory.c_str(), file, sizeof file);
    uint64_t size;
    double plain = checksum_seconds(file, &size), rebuild = time_open(life, &kept) / 1e3;
    life.report("reopen", "rebuild_ms", rebuild * 1e3);
    life.report("reopen", "rebuild_kept", kept);
    life.report("reopen", "rebuild_mb_s", double(size) / 1e6 / rebuild);
    life.report("reopen", "checksum_mb_s", double(size) / 1e6 / plain);
    life.report("reopen", "rebuild_to_checksum", plain / rebuild);
}
