import CShalePlatform

/// Parts of large values that are in the way: without an owner, or with one in another shard.
extension ShardWriter {
    /// Drops some parts of large values whose writer was killed, or that went without them. False where there are none.
    func dropOrphans() throws(Failure) -> Bool {
        try walk(.orphans) { slot in
            guard slot.entry.isPart, let key = reader.partKey(of: slot.entry) else { return false }
            spend(2 * Share.lookup)
            if reader.isOwned(key) { return false }
            drop(slot)
            return true
        }
    }

    /// A part whose owner lives elsewhere, found near a point that moves on from call to call.
    func crowdingPart() throws(Failure) -> PartKey? {
        var found: PartKey?
        let start = Walks.somewhere(reader)
        _ = try walk(.crowding, from: start) { slot in
            let word0 = slot.entry
            guard found == nil, word0.isPart, !word0.isPinned, let key = reader.partKey(of: word0) else { return false }
            spend(Share.lookup)
            if key.owner == change.key?.hash || !reader.isOwned(key) || reader.isBeingWritten(key.blob) { return false }
            found = key
            return true
        }
        return found
    }

    /// A pinned part whose value, in another shard, is gone.
    func partOfGone(_ now: UInt64) throws(Failure) -> PartKey? {
        var found: PartKey?
        _ = try walk(.partsOfGone) { slot in
            let word0 = slot.entry
            guard found == nil, word0.isPart, word0.isPinned, let key = reader.partKey(of: word0) else { return false }
            spend(Share.lookup)
            let owner = Shard(engine, keyHash: key.owner).reader
            guard owner.number != number, owner.isOwnerGone(key, now) else { return false }
            found = key
            return true
        }
        return found
    }
}
