/* Publish: a reader that sees a new entry's slot sees its second word and the whole record.
 *
 * code: Sources/ShaleCore/Index/TableInsertion.swift: slot.release(word1)
 * code: Sources/ShaleCore/Index/TableInsertion.swift: slot.release(word0)
 * code: Sources/ShaleCore/Index/Table.swift: let a = Slot(line).acquiredEntry, b = Slot(line + 16).acquiredEntry
 * code: Sources/ShaleCore/Operations/ReadSteps.swift: let word1 = slot.acquiredUse */
#include "memory.inc"

byte word0 = 0, word1 = 0, record = 0, check = 0;

#define RECORD 1
#define CHECK 2
#define WORD1 4
#define WORD0 8

#ifdef WEAK_CHECK /* the check that makes bytes a record, before them */
#define BEFORE_CHECK 0
#else
#define BEFORE_CHECK RECORD
#endif
#ifdef WEAK_WORD0
#define BEFORE_WORD0 0
#else
#define BEFORE_WORD0 (RECORD | CHECK | WORD1)
#endif

active proctype writer() {
    THREAD;
    RUN(15,
        STEP(RECORD, 0, record = 1)
        STEP(CHECK, BEFORE_CHECK, check = 1)
        STEP(WORD1, (RECORD | CHECK), word1 = 1)
        STEP(WORD0, BEFORE_WORD0, word0 = 1))
}

#ifdef WEAK_SLOT_LOAD
#define BEFORE_REST 0
#else
#define BEFORE_REST 1
#endif

active proctype reader() {
    THREAD;
    byte seen0, seen1, seenRecord, seenCheck;
    RUN(15,
        STEP(1, 0, seen0 = word0)
        STEP(2, BEFORE_REST, seen1 = word1)
        STEP(4, BEFORE_REST, seenRecord = record)
        STEP(8, BEFORE_REST, seenCheck = check));
    assert(!seen0 || (seen1 && seenRecord && seenCheck))
}

/* A rebuild, or the next owner of the lock, that finds the check: it looks for it first. */
active proctype recovery() {
    THREAD;
    byte seenRecord, seenCheck;
    RUN(3,
        STEP(1, 0, seenCheck = check)
        STEP(2, 1, seenRecord = record));
    assert(!seenCheck || seenRecord)
}
