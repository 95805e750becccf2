import CShalePlatform

/// How entries leave the index.
extension Shard {
    /// Takes an entry out of the index. Its record stays in the log as a ghost until the tail has passed.
    func drop(_ slot: Memory, _ change: inout Change) {
        header.begin()
        takeOut(slot, &change)
    }

    /// Ends a transaction with an entry's leaving.
    func takeOut(_ slot: Memory, isEvicted: Bool = false, _ change: inout Change) {
        table.forgetCopy(of: slot)
        let word0 = slot.u64(0)
        let m = measure(Slot.location(word0))
        account(m, sign: -1)
        count(word0, sign: -1)
        header.at.set(Field.ghost, header.at.u64(Field.headNumber))
        header.commit(slot, word0 & Slot.reachBit)
        if m.blob.blob != 0 {
            if isEvicted { engine.pointee.largeWriters.giveUp(m.blob.blob) }
            release(m.blob, &change)
        }
    }

    /// Takes an entry, or a part, out to make room.
    func evict(_ slot: Memory, _ change: inout Change) {
        if Slot.isPart(slot.u64(0)) {
            if let key = partKey(of: slot.u64(0)) { engine.pointee.largeWriters.giveUp(key.blob) }
        } else {
            header[Field.evictions] += 1
            #if !hasFeature(Embedded)
            if let listener = engine.pointee.evictionListener { tell(listener, of: Slot.location(slot.u64(0))) }
            #endif
            #if SHALE_FAULTS
            shim_tell(SHIM_EVICTED, slot)
            #endif
        }
        header.begin()
        takeOut(slot, isEvicted: true, &change)
    }

    /// With a part goes the value that it belongs to, where that is in this shard: without one part it is nothing.
    func evictWhole(_ slot: Memory, _ change: inout Change) {
        #if SHALE_FAULTS
        shim_tell(SHIM_FORCED, nil)
        #endif
        let word0 = slot.u64(0)
        if Slot.isPart(word0), let key = partKey(of: word0), Shard(engine, keyHash: key.owner).number == number {
            evictOwner(key, &change)
            if (slot.u64(0) ^ word0) & ~Slot.reachBit != 0 { return }
        }
        evict(slot, &change)
    }

    /// The parts of a manifest that went: those of this shard at once, so that whoever needs room has it,
    /// the others' when the lock is released.
    func release(_ blob: Change.Blob, _ change: inout Change) {
        for i in 0..<blob.parts {
            PartKey(blob: blob.blob, owner: blob.owner, part: i).withKey(secret) { key in
                if Shard(engine, keyHash: key.hash).number == number { clearPart(key, &change) }
            }
        }
        if geometry.shards > 1 { change.add(blob) }
    }

    #if !hasFeature(Embedded)
    private func tell(_ listener: EvictionListener, of location: UInt32) {
        guard listener.isListening(listener.context), let record = log.record(location) else { return }
        listener.note(listener.context, record.key, record.header.keyLength)
    }
    #endif
}
