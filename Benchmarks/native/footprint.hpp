// What a store takes of the machine.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

// Resident bytes of a process (0: this one), mapped files included.
uint64_t resident_bytes(pid_t process);
// All files below a directory, as they lie on the disk.
uint64_t disk_bytes(const std::string &directory);
