/* The board: the number of entries that the writer has completed, in a mapped file that outlives it.
 * demo/board.py explains how readers use it. */
#ifndef DEMO_BOARD_H
#define DEMO_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    _Atomic uint64_t completed;
} board;

/* Maps the file for the rest of the process; exits with a message on failure. */
board *board_map(const char *path);

#endif
