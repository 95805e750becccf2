/* Stamp: a reader gives the slot that it saw a fresh stamp, while a writer puts another entry there. The entry keeps its
 * own second word (its stamp and expiry), but for a stamp that a reader of itself has given.
 *
 * code: Sources/ShaleCore/Operations/Use.swift: return slot.replace(word1, with: word1.used(stamp: stamp)) ? nil : stamp
 * code: Sources/ShaleCore/Index/TableInsertion.swift: slot.release(word1)
 * code: Sources/ShaleCore/Operations/ReadSteps.swift: if !slot.acquiredEntry.isSame(as: word0) { throw .moved } */
#include "memory.inc"

/* The second word is the entry's number, and 10 more once it is stamped. */
byte word0 = 1, word1 = 1, finished = 0;

active proctype writer() {
    THREAD;
    RUN(3,
        STEP(1, 0, word1 = 2)
        STEP(2, 1, word0 = 2));
    finished++
}

active proctype reader() {
    byte expected;
    expected = word1;
#ifdef WEAK_CAS /* a store instead of the compare-and-swap */
    word1 = expected + 10;
#else
    atomic {
        if
        :: word1 == expected -> word1 = expected + 10
        :: else -> skip
        fi
    };
#endif
    finished++
}

active proctype check() {
    finished == 2;
    assert(word1 == 2 || word1 == 12)
}
