/* SHALE_MUTANT=n chooses a mutant, in this process and in those that it starts. SHALE_MUTANT_REACHED names an
 * existing file, whose n-th byte becomes 1 when the n-th switch is reached. It is mapped, so that a killed process
 * loses nothing, and by system calls without libc, as tests replace functions of libc. */
#define _GNU_SOURCE
#include "platform.h"

#include <sys/syscall.h>

int shim_mutant_chosen;
unsigned char *shim_mutant_switches;

static void map_switches(const char *name) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    long size = syscall(SYS_lseek, fd, 0L, SEEK_END);
    long mapped = size > 0 ? syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L) : -1;
    if (mapped != -1)
        shim_mutant_switches = (unsigned char *)mapped;
    syscall(SYS_close, fd);
}

static void __attribute__((constructor)) choose_mutant(void) {
    const char *number = getenv("SHALE_MUTANT"), *name = getenv("SHALE_MUTANT_REACHED");
    if (number)
        shim_mutant_chosen = atoi(number);
    if (name)
        map_switches(name);
}
