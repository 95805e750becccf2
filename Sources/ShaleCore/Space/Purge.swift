import CShalePlatform

extension ShardWriter {
    /// Unlinks some dead entries and counts expired ones. Returns false if none are left.
    func unlinkSomeDead(counting expired: UnsafeMutablePointer<Int>? = nil) throws(Failure) -> Bool {
        try walk(.dead) { slot in
            let before = header[Field.expirations]
            let isDead = unlinkIfDead(slot) || unlinkIfDeadByTags(slot)
            expired?.pointee += header[Field.expirations] - before
            return isDead
        }
    }

    /// Unlinks an entry dead by its tags; its slot says nothing about that.
    private func unlinkIfDeadByTags(_ slot: Slot) -> Bool {
        guard slot.entry.mayBeTagged, header.hasTags, let found = reader.entry(slot, now: change.now) else {
            return false
        }
        spend(looks(at: found))
        return unlinkIfDeadByTags(found)
    }
    /// (A touched entry has two records, and both keys are checked.)
    func looks(at found: Entry) -> Int {
        let keys = found.slot.entry.isTouched ? 2 : 1
        return looks(atTagsOf: found.value) + keys * found.value.header.keyLength / Share.bytes
    }
    /// Counts both generations, which may be three quarters full.
    func looks(atTagsOf value: RecordView) -> Int { 2 * value.header.tagCount * Share.lookup }
    func unlinkIfDeadByTags(_ found: Entry) -> Bool {
        if found.freshness.isInvalidated {
            unlink(found.slot)
        } else if found.freshness.isExpired, found.isDead {
            unlink(found.slot, counting: Field.expirations)
        } else {
            return false
        }
        return true
    }

    func unlinkIfDead(_ slot: Slot) -> Bool {
        var looks = 0
        defer { spend(looks) }
        return unlinkIfDead(slot, &looks)
    }
    /// Unlinks an entry past its lifetime; adds the cost to `looks`.
    func unlinkIfDead(_ slot: Slot, _ looks: inout Int) -> Bool {
        let word0 = slot.entry
        guard !word0.isPart,
            SlotExpiry.mayBeDead(slot.use.expiry, now: change.now, base: engine.pointee.block.expiryBase)
        else { return false }
        looks += Share.lookup
        guard let record = log.record(word0.location) else { return false }
        looks += record.header.keyLength / Share.bytes
        // (A damaged age ends nothing: a read of the entry notes the damage.)
        guard log.isHeadSound(record), record.header.lifetime(at: record.at).isOver(at: change.now) else {
            return false
        }
        unlink(slot, counting: Field.expirations)
        return true
    }
}
