#include "footprint.hpp"

#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace {

// The number after "name:" in a file of a process.
uint64_t number_in(pid_t process, const char *file, const std::string &name) {
    std::ifstream lines("/proc/" + (process ? std::to_string(process) : "self") + "/" + file);
    for (std::string line; std::getline(lines, line);)
        if (line.compare(0, name.size() + 1, name + ":") == 0)
            return std::stoull(line.substr(name.size() + 1));
    return 0;
}

} // namespace

uint64_t resident_bytes(pid_t process) {
    return number_in(process, "status", "VmRSS") * 1024;
}

uint64_t proportional_bytes(pid_t process) {
    return number_in(process, "smaps_rollup", "Pss") * 1024;
}

uint64_t written_by_this_process() {
    return number_in(0, "io", "write_bytes") - number_in(0, "io", "cancelled_write_bytes");
}

uint64_t written_to_disk_of(const std::string &directory) {
    struct stat status;
    if (stat(directory.c_str(), &status) != 0)
        return 0;
    std::ifstream file("/sys/dev/block/" + std::to_string(major(status.st_dev)) + ":" +
                       std::to_string(minor(status.st_dev)) + "/stat");
    uint64_t field = 0;
    for (int i = 0; i < 7; i++) // the seventh: sectors written
        file >> field;
    return file ? field * 512 : 0;
}

uint64_t disk_bytes(const std::string &directory) {
    uint64_t sum = 0;
    for (const auto &file : std::filesystem::recursive_directory_iterator(directory)) {
        struct stat status;
        if (lstat(file.path().c_str(), &status) == 0 && S_ISREG(status.st_mode))
            sum += uint64_t(status.st_blocks) * 512;
    }
    return sum;
}
