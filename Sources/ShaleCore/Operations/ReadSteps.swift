import CShalePlatform

/// The steps that a read of a value and one of a part share. What fails one is thrown, and means the same to each. (They
/// are inlined, and are small enough for that.)
extension ShardReader {
    /// Where the slot points, as of a moment at which the frame held this segment.
    @inline(__always)
    func locate(_ slot: Slot, _ word0: SlotEntry) throws(Outcome) -> Sighting {
        guard let spot = log.spot(word0.location) else { throw .damaged }
        // The lines of a small record together, rather than one wait after the other.
        prefetchLines(spot.at, to: 192)
        let word1 = slot.acquiredUse
        // Pointed to while the frame held this segment: so the location is the current one's. And word 1 is this
        // entry's.
        if !slot.acquiredEntry.isSame(as: word0) { throw .moved }
        if spot.address.number == 0 { throw .damaged }
        return Sighting(slot: slot, word0: word0, word1: word1, spot: spot)
    }

    /// The record there, if it is the key's.
    @inline(__always)
    func match(_ sighting: Sighting, _ key: Key) throws(Outcome) -> SpottedRecord {
        let spot = sighting.spot, p = spot.at, record = RecordHeader(at: p)
        // (All of `isPlausible` that keeps the reads inside; its rest shows when the record is used.)
        guard record.keyLength == key.length, record.length <= log.segmentSize &- log.offsetInSegment(spot.location),
            memcmp(p + record.keyOffset, key.bytes, key.length) == 0
        else { throw isOther(p, spot.address, spot.location) ? .otherKey : unreadable(sighting) }
        // The rest of a larger one while its head is verified.
        prefetchLines(p, from: 192, to: record.length)
        guard record.verifiesHead(at: p, keyHash: key.hash, address: spot.address, secret: secret) else {
            throw unreadable(sighting)
        }
        return SpottedRecord(spot: spot, header: record)
    }

    /// What cannot be read is damaged, or was recycled meanwhile.
    @inline(__always)
    func unreadable(_ sighting: Sighting) -> Outcome { sighting.isUnchanged ? .damaged : .moved }
    @inline(__always)
    func unreadable(_ sighting: Sighting, _ value: Spot, _ outcome: Outcome = .damaged) -> Outcome {
        sighting.isUnchanged && value.isUnchanged ? outcome : .moved
    }

    /// Whether a sound record of another key is there, with the same fraction by chance.
    @inline(never)
    private func isOther(_ p: Memory, _ at: RecordAddress, _ location: UInt32) -> Bool {
        RecordHeader(at: p).isSound(
            at: p, room: log.segmentSize - log.offsetInSegment(location), address: at, secret: secret)
    }
}
