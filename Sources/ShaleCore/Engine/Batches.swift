import CShalePlatform

/// Gets many keys at once: their slots, then their records, are fetched into the processor's cache together, so that
/// the waits overlap.
extension Engine {
    private static let group = 16, window = 64
    /// How many windows are asked for before records are tested again.
    private static let coldWindows: UInt64 = 16

    /// `key` and `get` are called for each index.
    public func getMany(_ count: Int, key: (Int) -> Bytes, get: (Int) -> Void) {
        var start = 0
        while start < count {
            if start % Engine.window == 0, count - start >= Engine.group {
                fetchRecords(start, min(start + Engine.window, count), key)
            }
            let end = min(start + Engine.group, count)
            prefetch(start, end, key)
            for i in start..<end { get(i) }
            start = end
        }
    }

    /// Asks the disk for all records of a window, if two of them, or of a recent window, were not in memory: a system
    /// call for each.
    @inline(never)
    private func fetchRecords(_ start: Int, _ end: Int, _ key: (Int) -> Bytes) {
        if ref.pointee.files.isMemory { return }
        var left = ref.pointee.ahead.u64(EngineState.coldWindows)
        if left == 0 {
            guard let first = record(key(start)), shim_load_is_slow(first),
                let second = record(key(start + 1)), shim_load_is_slow(second)
            else { return }
            left = Engine.coldWindows
        }
        shim_store64_own(ref.pointee.ahead + EngineState.coldWindows, left - 1)
        for i in start..<end {
            // (Without a look at its head, its length is unknown: a page, or two at their border.)
            if let p = record(key(i)) { shim_sys_will_need(p, pageSize / 4) }
        }
    }

    private func record(_ bytes: Bytes) -> Memory? {
        guard bytes.count >= 1, bytes.count <= Limits.keyLength else { return nil }
        let hash = shim_hash_short(bytes.start, bytes.count, ref.pointee.secret), shard = Shard(ref, keyHash: hash)
        var found: Memory?
        shard.table.probe(UInt32(truncatingIfNeeded: hash)) { _, word0 in
            found = shard.log.readableAddress(word0.location)
            return true
        }
        return found
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
