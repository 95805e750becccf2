#if !hasFeature(Embedded)
import CShalePlatform

/// Where a read found an entry: enough to tell later, without its key and without reading its record, that the entry is
/// unchanged.
///
/// While a slot points to one location of one segment, it holds one entry: within a segment each location is written
/// once before a slot points to it, and a frame that is used again gets a number that the shard never had. A slot that
/// was cleared and filled again has another location, another segment or, if the entry has only moved there and back,
/// the same entry. Whatever discards or renumbers segments, a rebuild, also changes the epoch.
@usableFromInline
package struct Bookmark: Sendable {
    let shard: Int32
    /// The slot's index in the table.
    let slot: UInt32
    let word0: SlotEntry
    /// The segment that the location is in.
    let number: UInt64
    let epoch: UInt64
    let expires: UInt64
    let keyHash: UInt64

    /// No entry: no segment has this number.
    @usableFromInline
    package static let none = Bookmark(
        shard: 0, slot: 0, word0: SlotEntry(0), number: .max, epoch: 0, expires: 0, keyHash: 0)
}

extension ShardReader {
    @inline(__always)
    func bookmark(_ sighting: Sighting, expires: UInt64, _ key: Key, _ epoch: UInt64) -> Bookmark {
        // (A read-only handle may read an index that another replaces.)
        if engine.pointee.isReadOnly { return .none }
        return Bookmark(
            shard: Int32(truncatingIfNeeded: number), slot: table.index(of: sighting.slot), word0: sighting.word0,
            number: sighting.spot.address.number, epoch: epoch, expires: expires, keyHash: key.hash)
    }

    /// Whether the entry is unchanged and fresh; then this was a use. In doubt false.
    func use(_ bookmark: Bookmark) -> Bool {
        let table = self.table
        // (A look at a page that a shrunk table has given back might allocate it.)
        guard table.positions.contains(Int(bookmark.slot) / Table.bucketSlots) else { return false }
        let slot = table.slot(bookmark.slot), word1 = slot.acquiredUse
        guard slot.acquiredEntry.isSame(as: bookmark.word0) else { return false }
        #if DEBUG
        ReadHook.runBeforeValidation()
        #endif
        // (Loaded after the slot: both numbers only rise, so they were the same when the slot was.)
        guard let spot = log.spot(bookmark.word0.location), spot.address.number == bookmark.number,
            isFresh(bookmark),
            !header.hasTags || !bookmark.word0.mayBeTagged || isUnchangedByTags(spot, bookmark.keyHash)
        else { return false }
        shim_fence_acquire()
        guard header.acquire(Field.epoch) == bookmark.epoch else { return false }
        return missedUse(slot, word1) == nil
    }

    @inline(__always)
    private func isFresh(_ bookmark: Bookmark) -> Bool {
        let clock = engine.pointee.clock
        return clock.isWellBefore(bookmark.expires) || clock.now48 < bookmark.expires
    }

    /// False also for a touch record, whose tags are elsewhere.
    @inline(never)
    private func isUnchangedByTags(_ spot: Spot, _ keyHash: UInt64) -> Bool {
        guard let record = log.record(at: spot)?.header, record.isKind(.value) || record.isKind(.manifest),
            record.verifiesHead(at: spot.at, keyHash: keyHash, address: spot.address, secret: secret),
            case .unchanged = tags.effect(on: record, at: spot.at)
        else { return false }
        shim_fence_acquire()
        return spot.isUnchanged
    }
}
#endif
