import CShalePlatform

/// Entries that are gone by their age or their tags leave with sweeps and purges, without timers.
extension ShardWriter {
    /// Removes entries that are gone, and counts those that had expired. False where there are none any more.
    func dropSomeGone(counting expired: UnsafeMutablePointer<Int>? = nil) throws(Failure) -> Bool {
        try walk(.gone) { slot in
            let before = header[Field.expirations]
            let isGone = dropIfGone(slot) || dropIfGoneByTags(slot)
            expired?.pointee += header[Field.expirations] - before
            return isGone
        }
    }

    /// What is gone by its tags, of which its slot says nothing.
    private func dropIfGoneByTags(_ slot: Slot) -> Bool {
        guard slot.entry.mayBeTagged, header.hasTags, let found = reader.entry(slot, now: change.now) else {
            return false
        }
        spend(looks(at: found))
        return dropIfGoneByTags(found)
    }
    /// Of an entry whose tags are looked up. (A touched entry has two records, and both keys are checked.)
    func looks(at found: Entry) -> Int {
        let keys = found.slot.entry.isTouched ? 2 : 1
        return looks(atTagsOf: found.value) + keys * found.value.header.keyLength / Share.bytes
    }
    /// In both generations, which may be three quarters full.
    func looks(atTagsOf value: RecordView) -> Int { 2 * value.header.tagCount * Share.lookup }
    func dropIfGoneByTags(_ found: Entry) -> Bool {
        if found.standing.isInvalidated {
            drop(found.slot)
        } else if found.standing.isExpired, found.isGone {
            drop(found.slot, counting: Field.expirations)
        } else {
            return false
        }
        return true
    }

    /// Expired data leaves with the sweeps, without timers.
    func dropIfGone(_ slot: Slot) -> Bool {
        var looks = 0
        defer { spend(looks) }
        return dropIfGone(slot, &looks)
    }
    /// The same; `looks` is raised by what it costs.
    func dropIfGone(_ slot: Slot, _ looks: inout Int) -> Bool {
        let word0 = slot.entry
        guard !word0.isPart,
            SlotExpiry.mayBeGone(slot.use.expiry, now: change.now, base: engine.pointee.block.expiryBase)
        else { return false }
        looks += Share.lookup
        guard let record = log.record(word0.location) else { return false }
        looks += record.header.keyLength / Share.bytes
        // (A damaged age ends nothing: a read of the entry notes its loss.)
        guard log.isHeadSound(record), record.header.lifetime(at: record.at).isOver(at: change.now) else {
            return false
        }
        drop(slot, counting: Field.expirations)
        return true
    }
}
