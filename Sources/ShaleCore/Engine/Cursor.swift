import CShalePlatform

/// A walk over all entries, without a lock, in the order of their hashes. Whatever lives throughout comes at
/// least once, and only what is removed and set again meanwhile comes twice: where the table grows or shrinks,
/// entries move, but the order of homes is that of the fractions in every table, and what was walked is known by
/// its hash.
public struct Cursor {
    private let engine: Engine
    private var shard = 0
    /// The least rank that was not walked yet: the fraction of the key's hash, then the hash's high half.
    private var low: UInt64 = 0

    private struct Candidate {
        let slot: Slot
        let word0: SlotEntry
        /// The high half is 0 until somebody asks for it.
        var rank: UInt64
        var fraction: UInt64 { rank >> 32 }
    }

    public init(_ engine: Engine) { self.engine = engine }

    /// Ok, stale or end. `key` and `value` get the entry's.
    public mutating func next(
        _ options: ReadOptions, key: inout ValueBuffer, keySize: inout Int, value: inout ValueBuffer,
        _ found: inout Found
    ) throws(Failure) -> Status {
        let ref = engine.ref
        try engine.checkCurrent()
        while shard < ref.pointee.geometry.shards {
            let here = Shard(ref, shard)
            let moment = here.header.moment
            if moment.isOfRebuild {
                try here.waitForRebuild()
                continue
            }
            let shape = here.table.shape
            let home = shape.home(UInt32(truncatingIfNeeded: low >> 32)), end = shape.end(ofHome: home, from: low >> 32)
            let least = try least(here, home: home, buckets: shape.buckets(ofHome: home), end: end, &key)
            // What moved may have been seen in neither place.
            if !here.header.isStill(moment) || here.table.shape.word != shape.word { continue }
            guard let least else {
                go(to: end << 32)
                continue
            }
            var rank = least.rank
            if let (size, hash) = try copyKey(here, least.word0.location, into: &key) {
                rank = least.fraction << 32 | hash >> 32
                // (Where this fails, the next call begins with the same entry.)
                let status = try engine.getOutlined(
                    Bytes(start: key.data, count: size), options.union(.peek), &value, &found)
                go(to: rank &+ 1)
                if status == .ok || status == .stale {
                    keySize = size
                    return status
                }
            } else if least.slot.acquiredEntry == least.word0 {
                // It is damaged. Where the record has moved on, the slot says where to.
                go(to: rank &+ 1)
            }
        }
        try engine.checkCurrent()
        return .end
    }

    /// Behind the last fraction, where ranks overflow, the next shard begins.
    private mutating func go(to rank: UInt64) {
        low = rank
        if rank == 0 || (rank >> 32) >> Sizes.fractionBits != 0 {
            shard += 1
            low = 0
        }
    }

    /// The entry of this home that is next in order, below the fraction `end`.
    private func least(_ shard: Shard, home: Int, buckets: Int, end: UInt64, _ key: inout ValueBuffer) throws(Failure)
        -> Candidate?
    {
        let table = shard.table
        var least: Candidate?
        for displacement in 0...table.reach(ofHome: home) {
            let p = table.bucket(home + displacement)
            for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                let slot = Slot(p + i), word0 = slot.acquiredEntry
                if word0.isFree || word0.isPart || word0.displacement != displacement { continue }
                let fraction = UInt64(TableShape.fraction(fingerprint: word0.fingerprint, home: home, buckets: buckets))
                if fraction < low >> 32 || fraction >= end { continue }
                var entry = Candidate(slot: slot, word0: word0, rank: fraction << 32)
                if fraction == low >> 32, entry.rank < low {
                    entry.rank |= try high(shard, entry, &key)
                    if entry.rank < low { continue }
                }
                if let other = least, other.fraction == fraction {
                    entry.rank = fraction << 32 | (try high(shard, entry, &key))
                    least?.rank = fraction << 32 | (try high(shard, other, &key))
                }
                if least.map({ entry.rank < $0.rank }) ?? true { least = entry }
            }
        }
        return least
    }

    /// The high half of the key's hash; 0 where it cannot be read.
    private func high(_ shard: Shard, _ entry: Candidate, _ key: inout ValueBuffer) throws(Failure) -> UInt64 {
        try copyKey(shard, entry.word0.location, into: &key).map { $0.hash >> 32 } ?? 0
    }

    /// The key at a location, checked; nil where it has moved on or is damaged.
    private func copyKey(_ shard: Shard, _ location: UInt32, into key: inout ValueBuffer) throws(Failure) -> (
        size: Int, hash: UInt64
    )? {
        guard let spot = shard.log.spot(location), let record = shard.log.record(at: spot),
            record.header.keyLength > 0
        else { return nil }
        let size = record.header.keyLength
        guard key.reserve(size) else { throw Failure.outOfMemory }
        memcpy(key.start, record.key, size)
        let hash = shim_hash(key.start, size, shard.secret)
        let isSound = record.header.verifiesHead(
            at: record.at, keyHash: hash, address: spot.address, secret: shard.secret)
        shim_fence_acquire()
        return isSound && spot.isUnchanged ? (size, hash) : nil
    }
}
