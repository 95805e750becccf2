import CShalePlatform

/// A walk over all entries, without a lock. Whatever lives throughout comes at
/// least once: entries move up while the table grows, as the walk does; where
/// some moved down, the shard is walked again.
public struct Cursor {
    private let engine: Engine
    private var shard = 0
    private var position = 0
    private var slot = 0
    private var moves: UInt64 = 0
    private var hasShard = false

    public init(_ engine: Engine) { self.engine = engine }

    /// Ok, stale or end. `key` and `value` get the entry's.
    public mutating func next(_ options: ReadOptions, key: inout ValueBuffer, keySize: inout Int, value: inout ValueBuffer, _ found: inout Found) throws(Failure) -> Status {
        let ref = engine.ref
        while shard < ref.pointee.geometry.shards {
            let here = Shard(ref, shard)
            if here.header.at.acquire(ShardHeader.Field.epoch) & 1 != 0 { try here.waitForRebuild() }
            let moved = here.header.at.acquire(ShardHeader.Field.shrinks)
            if !hasShard || moved != moves {
                hasShard = true
                moves = moved
                position = 0
                slot = 0
            }
            // (Asked for each time: what grows meanwhile moves up what the walk has not met.)
            while position < here.table.shape.extent + Table.spill {
                let word = here.table.bucket(position) + slot * Slot.size
                let word0 = word.acquire(0)
                var size: Int?
                if !Slot.isFree(word0), !Slot.isPart(word0) {
                    size = try copyKey(here, Slot.location(word0), into: &key)
                    // The record has moved on: the slot says where to.
                    if size == nil, word.acquire(0) != word0 { continue }
                }
                // (Where this fails, the next call begins with the same slot.)
                let status = try size.map { size throws(Failure) in try engine.getOutlined(Bytes(start: key.data, count: size), options.union(.peek), &value, &found) }
                slot += 1
                if slot == 4 {
                    slot = 0
                    position += 1
                }
                if let size, let status, status == .ok || status == .stale {
                    keySize = size
                    return status
                }
            }
            // What moved down while the last buckets were walked is seen in another round.
            if here.header.at.acquire(ShardHeader.Field.shrinks) != moves { continue }
            shard += 1
            hasShard = false
        }
        return .end
    }

    /// The key at a location, checked; nil where it has moved on or is damaged.
    private func copyKey(_ shard: Shard, _ location: UInt32, into key: inout ValueBuffer) throws(Failure) -> Int? {
        guard shard.isSound(location) else { return nil }
        let numberWord = shard.numberWord(shard.place(of: location))
        let segment = numberWord.acquire(0)
        let p = shard.address(location)
        let record = RecordHeader(at: p)
        guard record.isPlausible(room: shard.segmentSize - shard.offsetInSegment(location)), record.keyLength > 0 else { return nil }
        guard key.reserve(record.keyLength) else { throw Failure.outOfMemory }
        memcpy(key.start, p + record.keyOffset, record.keyLength)
        let hash = shim_hash(key.start, record.keyLength, shard.secret)
        let sound = record.verifiesHead(at: p, keyHash: hash, place: Place(number: segment, offset: UInt64(shard.offset(of: location))), secret: shard.secret)
        shim_fence_acquire()
        return sound && numberWord.acquire(0) == segment ? record.keyLength : nil
    }
}
