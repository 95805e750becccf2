// Memory and disk space that a store takes.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

// Resident bytes of a process (0: this one), mapped files included.
uint64_t resident_bytes(pid_t process);
// All files below a directory, as allocated on the disk.
uint64_t disk_bytes(const std::string &directory);
