import CShalePlatform

/// A walk over all entries, without a lock, in the order of their keys' hashes. A key that a get finds throughout
/// comes, even if its value is replaced meanwhile: a new value takes the old one's slot, and the order of homes is that
/// of the hash bits, even while the table grows, shrinks or is rebuilt. No key comes twice: the walk's position is a
/// hash.
public struct Cursor {
    private let engine: Engine
    private var shard = 0
    /// The lowest rank that was not walked yet: the hash bits, then the hash's high half.
    private var low: UInt64 = 0

    private struct Candidate {
        let slot: Slot
        let word0: SlotEntry
        /// The high half is 0 until the key is read, and if it is damaged.
        var rank: UInt64
        /// 0 if the key was not read, or is damaged.
        var keySize = 0
        var hashBits: UInt64 { rank >> 32 }
    }

    public init(_ engine: Engine) { self.engine = engine }

    /// Returns ok, stale or end. `key` and `value` get the entry's.
    public mutating func next(
        _ options: ReadOptions, key: inout ValueBuffer, keySize: inout Int, value: inout ValueBuffer,
        _ found: inout Found
    ) throws(Failure) -> Status {
        let ref = engine.ref
        try engine.checkCurrent()
        while shard < ref.pointee.geometry.shards {
            let here = Shard(ref, shard).reader
            let moment = here.header.moment
            if moment.isOfRebuild {
                try here.shard.waitForRebuild()
                continue
            }
            let shape = here.table.shape
            let home = shape.home(UInt32(truncatingIfNeeded: low >> 32)), end = shape.end(ofHome: home, from: low >> 32)
            let least: Candidate?
            do throws(Outcome) {
                least = try self.least(here, home: home, buckets: shape.buckets(ofHome: home), end: end, &key)
            } catch {
                if error == .noMemory { throw Failure.outOfMemory }
                continue
            }
            // An entry that moved may have been seen in neither place.
            if !here.header.isStill(moment) || here.table.shape.word != shape.word { continue }
            guard let least else {
                go(to: end << 32)
                continue
            }
            if least.keySize > 0 {
                // (If this fails, the next call begins with the same entry.)
                let status = try engine.getOutlined(
                    Bytes(start: key.data, count: least.keySize), options.union(.peek), &value, &found)
                go(to: least.rank &+ 1)
                if status == .ok || status == .stale {
                    keySize = least.keySize
                    return status
                }
            } else {
                go(to: least.rank &+ 1)
            }
        }
        // A replaced index has lost entries by now, as if they were damaged.
        try engine.checkCurrent()
        return .end
    }

    /// Behind the highest hash bits, where ranks overflow, the next shard begins.
    private mutating func go(to rank: UInt64) {
        low = rank
        if rank == 0 || (rank >> 32) >> Sizes.hashBitCount != 0 {
            shard += 1
            low = 0
        }
    }

    /// Returns this home's next entry in order, below the hash bits `end`, with its key.
    private func least(_ shard: ShardReader, home: Int, buckets: Int, end: UInt64, _ key: inout ValueBuffer)
        throws(Outcome) -> Candidate?
    {
        let table = shard.table
        var least: Candidate?
        for displacement in 0...table.maxDisplacement(ofHome: home) {
            let p = table.bucket(home + displacement)
            for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                let slot = Slot(p + i), word0 = slot.acquiredEntry
                if word0.isFree || word0.isPart || word0.displacement != displacement { continue }
                let hashBits = UInt64(TableShape.hashBits(fingerprint: word0.fingerprint, home: home, buckets: buckets))
                if hashBits < low >> 32 || hashBits >= end { continue }
                var entry = Candidate(slot: slot, word0: word0, rank: hashBits << 32)
                if hashBits == low >> 32, entry.rank < low {
                    try readKey(shard, &entry, &key)
                    if entry.rank < low { continue }
                }
                if var other = least, other.hashBits == hashBits {
                    try readKey(shard, &entry, &key)
                    try readKey(shard, &other, &key)
                    least = other
                }
                if least.map({ entry.rank < $0.rank }) ?? true { least = entry }
            }
        }
        if var entry = least {
            try readKey(shard, &entry, &key)
            least = entry
        }
        return least
    }

    /// Reads the entry's key and checks it. Throws if the entry has moved, or there is no memory.
    private func readKey(_ shard: ShardReader, _ entry: inout Candidate, _ key: inout ValueBuffer) throws(Outcome) {
        #if DEBUG && !hasFeature(Embedded)
        ReadHook.runBeforeKey()
        #endif
        #if SHALE_FAULTS
        shim_tell(SHIM_SIGHTED, entry.slot.at)
        #endif
        do throws(Outcome) {
            let sighting = try shard.locate(entry.slot, entry.word0), spot = sighting.spot
            guard let record = shard.log.record(at: spot), record.header.keyLength > 0 else {
                throw shard.unreadable(sighting)
            }
            let size = record.header.keyLength
            guard key.reserve(size) else { throw .noMemory }
            memcpy(key.start, record.key, size)
            let hash = shim_hash(key.start, size, shard.secret)
            // (A damaged slot may lead to another entry's key, which its own slot yields.)
            guard hash & (Table.allHashBits - 1) == entry.hashBits,
                record.header.verifiesHead(at: record.at, keyHash: hash, address: spot.address, secret: shard.secret)
            else { throw shard.unreadable(sighting) }
            shim_fence_acquire()
            guard spot.isUnchanged else { throw .moved }
            entry.rank = entry.hashBits << 32 | hash >> 32
            entry.keySize = size
        } catch {
            if error != .damaged { throw error }
        }
    }
}
