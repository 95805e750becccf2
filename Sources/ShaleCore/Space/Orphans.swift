import CShalePlatform

/// Parts of large values that are in the way: without an owner, or with one in another shard.
extension ShardWriter {
    /// Parts of large values whose writer was killed, or that went without them. False where there are none.
    @inline(never)
    func dropOrphans() -> Bool {
        let live = header[Field.live]
        reader.forEachSlot { slot, word0 in
            if word0.isPart, let key = reader.partKey(of: word0), !reader.isOwned(key) { drop(slot) }
        }
        return header[Field.live] < live
    }

    /// A part whose owner lives elsewhere, found near a point that moves on from call to call.
    func crowdingPart() -> PartKey? {
        let table = self.table, end = table.positions.upperBound
        let start = Int(reader.nextStamp() &* 0x9E37_79B9 % UInt64(end))
        for i in 0..<end {
            let p = table.bucket((start + i) % end)
            for j in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                let word0 = Slot(p + j).entry
                guard !word0.isFree, word0.isPart, !word0.isPinned, let key = reader.partKey(of: word0)
                else { continue }
                if key.owner != change.key?.hash, reader.isOwned(key), !reader.isBeingWritten(key.blob) { return key }
            }
        }
        return nil
    }
}

extension ShardWriter {
    func partOfGone(_ now: UInt64) -> PartKey? {
        var found: PartKey?
        reader.forEachSlot { _, word0 in
            guard found == nil, word0.isPart, word0.isPinned, let key = reader.partKey(of: word0) else { return }
            let owner = Shard(engine, keyHash: key.owner).reader
            if owner.number != number, owner.isOwnerGone(key, now) { found = key }
        }
        return found
    }
}
