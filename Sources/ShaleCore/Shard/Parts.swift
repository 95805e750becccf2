import CShalePlatform

extension PartKey {
    /// Calls `body` with the part's key and its shard: the owner's, or that of the part's own hash.
    @inline(__always)
    func withKey<R, E: Error>(_ engine: EngineRef, _ body: (Shard, Key) throws(E) -> R) throws(E) -> R {
        try withKey(engine.pointee.secret) { key throws(E) in
            let isInOneShard = blob & PartKey.isInOneShard != 0
            return try body(Shard(engine, keyHash: isInOneShard ? owner : key.hash), key)
        }
    }
}

/// A large value is a manifest under its key, plus parts: in the manifest's shard, or in the shards of their own
/// hashes.
extension ShardReader {
    /// Whether the part's manifest is in the index. Reads another shard without its lock; in doubt, true.
    func isOwned(_ key: PartKey) -> Bool {
        let shard = Shard(engine, keyHash: key.owner).reader
        let moment = shard.header.moment
        if shard.number != number, !shard.header.hasManifests(moment) { return true }
        let hashBits = UInt32(truncatingIfNeeded: key.owner)
        var owned = false
        shard.table.probe(hashBits) { slot, word0 in
            // A slot that changes meanwhile may have pointed to bytes since rewritten: in doubt, true.
            owned = shard.manifest(at: word0.location)?.blob == key.blob || slot.acquiredEntry != word0
            return owned
        }
        return owned || !shard.header.isStill(moment) || isBeingWritten(key.blob)
    }

    func isBeingWritten(_ blob: UInt64) -> Bool {
        Shard.largeWriters(engine, of: blob).isWriting(blob)
    }

    fileprivate func hasPart(_ part: Key) -> Bool {
        let moment = header.moment
        var isThere = moment.isOfRebuild
        table.probe(part.hashBits) { slot, word0 in
            isThere = isThere || isPart(slot, word0, part)
            return isThere
        }
        return isThere || !header.isStill(moment)
    }
    @inline(never) // five calls in the probe
    private func isPart(_ slot: Slot, _ word0: SlotEntry, _ part: Key) -> Bool {
        word0.isPart && holds(part, word0.location) || slot.acquiredEntry != word0
    }

    func owner(of part: PartKey) -> Slot? {
        var found: Slot?
        table.probe(UInt32(truncatingIfNeeded: part.owner)) { slot, word0 in
            guard manifest(at: word0.location)?.blob == part.blob else { return false }
            found = slot
            return true
        }
        return found
    }

    /// Whether a part's value is dead by its age or its tags. (Without the lock, the caller has to ask again under it.)
    func isOwnerDead(_ part: PartKey, _ now: UInt64) -> Bool {
        owner(of: part).flatMap { entry($0, now: now) }?.isDead ?? false
    }
}

extension ShardWriter {
    /// Whether a value has all its parts; over several holds. Reads other shards without their locks; in doubt, true.
    @inline(never)
    func isWhole(_ location: UInt32, _ key: Key) throws(Failure) -> Bool {
        guard let manifest = reader.manifest(at: location), manifest.isPlausible else { return true }
        if change.progress.wholeBlob != manifest.blob {
            (change.progress.wholeBlob, change.progress.wholeParts) = (manifest.blob, 0)
        }
        while change.progress.wholeParts < Int(manifest.partCount) {
            let isThere = PartKey(blob: manifest.blob, owner: key.hash, part: change.progress.wholeParts).withKey(
                engine
            ) {
                $0.reader.hasPart($1)
            }
            if !isThere { return false }
            spend(Share.lookup)
            change.progress.wholeParts += 1
            try rest()
        }
        return true
    }
}
