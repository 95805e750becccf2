/* Read: a frame gets its next segment while a reader is at an old record there. The reader only accepts the
 * record of the slot that it saw.
 *
 * code: Sources/ShaleCore/Log/Append.swift: numberWord(frame).release(0, newNumber)
 * code: Sources/ShaleCore/Log/Append.swift: shim_fence_release()
 * code: Sources/ShaleCore/Index/TableMoves.swift: slot.release(slot.entry.freed)
 * code: Sources/ShaleCore/Log/RecordView.swift: address: RecordAddress(number: word.acquire(0)
 * code: Sources/ShaleCore/Operations/ReadSteps.swift: if !slot.acquiredEntry.isSame(as: word0) { throw .moved }
 * code: Sources/ShaleCore/Operations/Get.swift: guard sighting.spot.isUnchanged, value.spot.isUnchanged */
#include "memory.inc"

byte slot = 1, number = 1, a = 1, b = 1; /* a and b: words of the record */

#define CLEAR 1
#define NUMBER 2
#define A 4
#define B 8
#define PUBLISH 16

#ifdef WEAK_CLEAR /* the number's store does not wait for the slot's */
#define BEFORE_NUMBER 0
#else
#define BEFORE_NUMBER CLEAR
#endif
#ifdef WEAK_WRITER_FENCE /* bytes before the number */
#define BEFORE_BYTES 0
#else
#define BEFORE_BYTES NUMBER
#endif
#ifdef WEAK_PUBLISH /* the slot before the bytes */
#define BEFORE_PUBLISH CLEAR
#else
#define BEFORE_PUBLISH (CLEAR | NUMBER | A | B)
#endif

active proctype writer() {
    THREAD;
    RUN(31,
        STEP(CLEAR, 0, slot = 0)
        STEP(NUMBER, BEFORE_NUMBER, number = 2)
        STEP(A, BEFORE_BYTES, a = 2)
        STEP(B, BEFORE_BYTES, b = 2)
        STEP(PUBLISH, BEFORE_PUBLISH, slot = 2))
}

#define SLOT 1
#define FIRST 2
#define AGAIN 4
#define READ_A 8
#define READ_B 16
#define LAST 32

#ifdef WEAK_NUMBER_LOAD /* the second look at the slot before the number */
#define BEFORE_AGAIN SLOT
#else
#define BEFORE_AGAIN (SLOT | FIRST)
#endif
#ifdef WEAK_READER_FENCE /* the last look at the number before the bytes */
#define BEFORE_LAST AGAIN
#else
#define BEFORE_LAST (READ_A | READ_B)
#endif

active proctype reader() {
    THREAD;
    byte seen, first, again, ra, rb, last;
    RUN(63,
        STEP(SLOT, 0, seen = slot)
        STEP(FIRST, SLOT, first = number)
        STEP(AGAIN, BEFORE_AGAIN, again = slot)
        STEP(READ_A, (AGAIN | FIRST), ra = a)
        STEP(READ_B, (AGAIN | FIRST), rb = b)
        STEP(LAST, BEFORE_LAST, last = number));
    assert(!(seen != 0 && seen == again && first == last) || (ra == seen && rb == seen))
}
