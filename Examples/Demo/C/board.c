#include "board.h"

#include <err.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

board *board_map(const char *path) {
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        err(1, "%s", path);
    void *start = mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (start == MAP_FAILED)
        err(1, "%s", path);
    close(file);
    return start;
}
