import CShalePlatform

/// Steps shared by reads of a value and of a part. A failed step throws its outcome, which means the same to both.
extension ShardReader {
    /// Returns where the slot points, as of a moment when the frame held this segment.
    @inline(__always)
    func locate(_ slot: Slot, _ word0: SlotEntry) throws(Outcome) -> Sighting {
        guard let spot = log.spot(word0.location) else { throw .damaged }
        // Prefetch the lines of a small record together, not one by one.
        prefetchLines(spot.at, to: 192)
        let word1 = slot.acquiredUse
        // The slot pointed there while the frame held this segment, so the location belongs to it, and word 1 to this
        // entry.
        if !slot.acquiredEntry.isSame(as: word0) { throw .moved }
        if spot.address.number == 0 { throw .damaged }
        return Sighting(slot: slot, word0: word0, word1: word1, spot: spot)
    }

    /// Returns the record there if it is the key's.
    @inline(__always)
    func match(_ sighting: Sighting, _ key: Key) throws(Outcome) -> SpottedRecord {
        let spot = sighting.spot, p = spot.at, record = RecordHeader(at: p)
        // (The part of `isPlausible` that keeps reads in bounds; the rest shows when the record is used.)
        guard record.keyLength == key.length, record.length <= log.segmentSize &- log.offsetInSegment(spot.location),
            memcmp(p + record.keyOffset, key.bytes, key.length) == 0
        else { throw isOther(p, spot.address, spot.location) ? .otherKey : unreadable(sighting) }
        prefetchLines(p, from: 192, to: record.length)
        guard record.verifiesHead(at: p, keyHash: key.hash, address: spot.address, secret: secret) else {
            throw unreadable(sighting)
        }
        return SpottedRecord(spot: spot, header: record)
    }

    /// Tells whether unreadable bytes are damaged, or were recycled meanwhile.
    @inline(__always)
    func unreadable(_ sighting: Sighting) -> Outcome { sighting.isUnchanged ? .damaged : .moved }
    @inline(__always)
    func unreadable(_ sighting: Sighting, _ value: Spot, _ outcome: Outcome = .damaged) -> Outcome {
        sighting.isUnchanged && value.isUnchanged ? outcome : .moved
    }

    /// Whether an intact record of another key is there, with the same hash bits by chance.
    @inline(never)
    private func isOther(_ p: Memory, _ at: RecordAddress, _ location: UInt32) -> Bool {
        RecordHeader(at: p).isSound(
            at: p, room: log.segmentSize - log.offsetInSegment(location), address: at, secret: secret)
    }
}
