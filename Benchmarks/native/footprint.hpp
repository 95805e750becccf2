// Memory and disk space that a store takes.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

// Resident bytes of a process (0: this one), mapped files included.
uint64_t resident_bytes(pid_t process);
// The same with each shared page divided by the number of processes that map it.
uint64_t proportional_bytes(pid_t process);
// All files below a directory, as allocated on the disk.
uint64_t disk_bytes(const std::string &directory);

// Bytes that this process has caused to be written to disk; pages that it wrote twice before the kernel did count once.
uint64_t written_by_this_process();
// Bytes written to the disk that holds a directory, by all processes; 0: unknown.
uint64_t written_to_disk_of(const std::string &directory);
