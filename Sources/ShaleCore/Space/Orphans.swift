import CShalePlatform

extension ShardWriter {
    /// Unlinks some parts without an owner: their writer was killed, or their value was removed without them. Returns
    /// false if there are none.
    func unlinkOrphans() throws(Failure) -> Bool {
        try walk(.orphans) { slot in
            guard slot.entry.isPart, let key = reader.partKey(of: slot.entry) else { return false }
            spend(2 * Share.lookup)
            if reader.isOwned(key) { return false }
            unlink(slot)
            return true
        }
    }

    /// Finds a part with an owner in another shard, from a start that advances with each call.
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

    /// Finds a pinned part whose value, in another shard, is dead.
    func partOfDead(_ now: UInt64) throws(Failure) -> PartKey? {
        var found: PartKey?
        _ = try walk(.partsOfDead) { slot in
            let word0 = slot.entry
            guard found == nil, word0.isPart, word0.isPinned, let key = reader.partKey(of: word0) else { return false }
            spend(Share.lookup)
            let owner = Shard(engine, keyHash: key.owner).reader
            guard owner.number != number, owner.isOwnerDead(key, now) else { return false }
            found = key
            return true
        }
        return found
    }
}
