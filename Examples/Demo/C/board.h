/* The board: how many entries the writer has completed, in a mapped file that
 * outlives the writer. demo/board.py says what readers make of it. */
#ifndef DEMO_BOARD_H
#define DEMO_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    _Atomic uint64_t completed;
} board;

/* Maps the file for the rest of the process; ends the program with a message where that fails. */
board *board_map(const char *path);

#endif
