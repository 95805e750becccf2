/* Tags: an entry's tag was invalidated; a sweep takes the entry out of the index and empties the generation that has the
 * tag, while a reader is at the entry. It never serves it.
 *
 * code: Sources/ShaleCore/Space/TagSweep.swift: raiseEpoch(by: 2)
 * code: Sources/ShaleCore/Shard/ShardWriter.swift: header.release(Field.epoch, header[Field.epoch] &+ step)
 * code: Sources/ShaleCore/Index/TagTable.swift: for i in cells { cell(older, i).release(0, 0) }
 * code: Sources/ShaleCore/Index/ShardHeader.swift: acquire(Field.tagGenerations) > 1
 * code: Sources/ShaleCore/Operations/Get.swift: header.acquire(Field.epoch) == epoch */
#include "memory.inc"

byte slot = 1, epoch = 0, generation = 1, cell = 1;

#define CLEAR 1
#define EPOCH 2
#define GENERATION 4
#define CELL 8

#ifdef WEAK_EPOCH /* the epoch before the slot is cleared */
#define BEFORE_EPOCH 0
#else
#define BEFORE_EPOCH CLEAR
#endif
#ifdef WEAK_FENCE /* the table before the epoch */
#define BEFORE_TABLE CLEAR
#else
#define BEFORE_TABLE (CLEAR | EPOCH)
#endif

active proctype sweep() {
    THREAD;
    RUN(15,
        STEP(CLEAR, 0, slot = 0)
        STEP(EPOCH, BEFORE_EPOCH, epoch = 2)
        STEP(CELL, BEFORE_TABLE, cell = 0)
        STEP(GENERATION, (BEFORE_TABLE | CELL), generation = 0))
}

#define VERSION 1
#define SLOT 2
#define READ_GENERATION 4
#define READ_CELL 8
#define STILL 16

#ifdef WEAK_READER_FENCE /* the second look at the epoch before the table */
#define BEFORE_STILL SLOT
#else
#define BEFORE_STILL (SLOT | READ_GENERATION | READ_CELL)
#endif
#ifdef WEAK_VERSION_LOAD /* the slot before the epoch */
#define BEFORE_SLOT 0
#else
#define BEFORE_SLOT VERSION
#endif

active proctype reader() {
    THREAD;
    byte version, seen, seenGeneration, seenCell, still;
    RUN(31,
        STEP(VERSION, 0, version = epoch)
        STEP(SLOT, BEFORE_SLOT, seen = slot)
        STEP(READ_GENERATION, SLOT, seenGeneration = generation)
        STEP(READ_CELL, (SLOT | READ_GENERATION), seenCell = cell)
        STEP(STILL, BEFORE_STILL, still = epoch));
    assert(!(seen && (!seenGeneration || !seenCell) && version == still))
}
