#include "footprint.hpp"

#include <filesystem>
#include <fstream>
#include <sys/stat.h>

uint64_t resident_bytes(pid_t process) {
    std::ifstream file("/proc/" + (process ? std::to_string(process) : "self") + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.compare(0, 6, "VmRSS:") == 0)
            return std::stoull(line.substr(6)) * 1024;
    return 0;
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
