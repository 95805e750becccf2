/* A gate between parent and child: one byte lets the other side continue. */
#ifndef GATE_H
#define GATE_H

#include "check.h"

typedef struct {
    int ends[2];
} gate;

static inline gate make_gate(void) {
    gate made;
    REQUIRE(pipe(made.ends) == 0);
    return made;
}

static inline void pass(gate *g) {
    if (write(g->ends[1], "x", 1) != 1)
        _exit(1);
}

static inline void await(gate *g) {
    char byte;
    ssize_t got;
    do
        got = read(g->ends[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    if (got != 1)
        _exit(1);
}

static inline void close_gate(gate *g) {
    close(g->ends[0]);
    close(g->ends[1]);
}

#endif
