import CShalePlatform

/// Gets many keys at once: their slots, then their records, are fetched into the processor's cache together, so that
/// the waits overlap.
extension Engine {
    private static let group = 16

    /// `key` and `get` are called for each index.
    public func getMany(_ count: Int, key: (Int) -> Bytes, get: (Int) -> Void) {
        var start = 0
        while start < count {
            let end = min(start + Engine.group, count)
            prefetch(start, end, key)
            for i in start..<end { get(i) }
            start = end
        }
    }

    @inline(__always)
    private func prefetch(_ start: Int, _ end: Int, _ key: (Int) -> Bytes) {
        withUnsafeTemporaryAllocation(of: UInt64.self, capacity: Engine.group) { hashes in
            for i in start..<end {
                let bytes = key(i)
                let hash =
                    bytes.count < 1 || bytes.count > Limits.keyLength
                    ? 0 : shim_hash_short(bytes.start, bytes.count, ref.pointee.secret)
                hashes[i - start] = hash
                let shard = Shard(ref, keyHash: hash)
                shim_prefetch(shard.table.home(of: UInt32(truncatingIfNeeded: hash)))
            }
            for i in 0..<(end - start) {
                let hash = hashes[i], hashBits = UInt32(truncatingIfNeeded: hash)
                let shard = Shard(ref, keyHash: hash)
                let table = shard.table
                table.probe(hashBits) { _, word0 in
                    let location = word0.location
                    guard shard.log.isSound(location) else { return true }
                    prefetchLines(shard.log.address(location), to: 128)
                    return true
                }
            }
        }
    }
}
