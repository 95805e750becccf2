/* Growth: an entry moves within the table, to a free slot and back, while a reader looks for it. An entry that is
 * present throughout is no miss, unless the reader knows that an entry has moved and looks again.
 *
 * code: Sources/ShaleCore/Index/TableMoves.swift: func announceMove()
 * code: Sources/ShaleCore/Index/TableMoves.swift: header.release(Field.moves, header[Field.moves] &+ 1)
 * code: Sources/ShaleCore/Index/TableInsertion.swift: vacate(slot, copied: word1, to: target)
 * code: Sources/ShaleCore/Index/ShardHeader.swift: return acquire(Field.moves) == moment.moves
 * code: Sources/ShaleCore/Operations/Get.swift: if header.isStill(moment) { */
#include "memory.inc"

byte here = 1, there = 0, moves = 0;

#define COPY 1
#define ANNOUNCE 2
#define VACATE 4
#define COPY_BACK 8
#define ANNOUNCE_BACK 16
#define VACATE_BACK 32

#ifdef WEAK_ANNOUNCE /* the old place is free before the move is announced */
#define BEFORE_VACATE COPY
#define BEFORE_VACATE_BACK (COPY_BACK | VACATE)
#else
#define BEFORE_VACATE (COPY | ANNOUNCE)
#define BEFORE_VACATE_BACK (COPY_BACK | VACATE | ANNOUNCE_BACK)
#endif
#ifdef WEAK_COPY /* or before the new one is taken */
#define BEFORE_ANNOUNCE 0
#undef BEFORE_VACATE
#define BEFORE_VACATE 0
#else
#define BEFORE_ANNOUNCE COPY
#endif

active proctype writer() {
    THREAD;
    RUN(63,
        STEP(COPY, 0, there = 1)
        STEP(ANNOUNCE, BEFORE_ANNOUNCE, moves = 1)
        STEP(VACATE, BEFORE_VACATE, here = 0)
        STEP(COPY_BACK, (COPY | ANNOUNCE | VACATE), here = 1)
        STEP(ANNOUNCE_BACK, (COPY_BACK | ANNOUNCE), moves = 2)
        STEP(VACATE_BACK, BEFORE_VACATE_BACK, there = 0))
}

#define VERSION 1
#define ONE 2
#define OTHER 4
#define STILL 8

#ifdef WEAK_VERSION_LOAD /* the slots before the version */
#define BEFORE_SLOTS 0
#else
#define BEFORE_SLOTS VERSION
#endif
#ifdef WEAK_READER_FENCE /* the second look at the version before the slots */
#define BEFORE_STILL VERSION
#else
#define BEFORE_STILL (VERSION | ONE | OTHER)
#endif

/* (The slots in any order, which is more than the probe's.) */
active proctype reader() {
    THREAD;
    byte version, one, other, still;
    RUN(15,
        STEP(VERSION, 0, version = moves)
        STEP(ONE, BEFORE_SLOTS, one = there)
        STEP(OTHER, BEFORE_SLOTS, other = here)
        STEP(STILL, BEFORE_STILL, still = moves));
    assert(one || other || version != still)
}
