import CShale
import ShaleTestSupport
import Testing

/// The disk never holds more than the capacity, at no moment of any churn, and a full cache uses the space that it was
/// given.
@Suite("Capacity", .serialized)
struct CapacityTests {
    let directory = TemporaryDirectory()
    var files: CacheFiles { CacheFiles(directory.path) }

    enum Content: String, CaseIterable, Sendable {
        case random, text

        var pool: Pool { self == .random ? .random : .text }
    }

    /// Sets until the cache has been full for a while, checks the disk usage every few sets, and the entries.
    private func churn(_ capacity: Int, _ content: Content, sizes: ClosedRange<Int>, keys: Int, looks: Int) throws {
        let options = Options(capacity: UInt64(capacity), flags: SHALE_OPEN_NO_SYNC)
        let cache = try TestCache(directory.path, options)
        #expect(try files.diskUsage() <= capacity, "a new cache")
        var source = RandomSource(testSeed)
        var latest: [Int: (identity: UInt64, size: Int)] = [:]
        var written = 0
        var sets = 0
        var (looked, misses) = (0, 0)
        // Text compresses: more of it is needed to fill the same space.
        let atLeast = content == .random ? capacity * 2 : capacity * 3
        let atMost = capacity * 8
        var evictions: UInt64 = 0
        let step = max(1, atLeast / ((sizes.lowerBound + sizes.upperBound) / 4) / looks)
        while written < atLeast || (evictions == 0 && written < atMost) {
            let key = source.below(keys)
            let size = source.logUniform(sizes)
            let identity = source.next()
            let status = content.pool.withValue(identity, size) { cache.set("k\(key)".bytes, raw: $0) }
            guard status == .ok else {
                Issue.record("set \(sets) of \(size) bytes answered \(status): \(lastError()); seed \(testSeed)")
                return
            }
            latest[key] = (identity, size)
            written += size
            sets += 1
            if sets % step == 0 {
                let usage = try files.diskUsage()
                if usage > capacity {
                    Issue.record("\(usage) bytes on disk after \(sets) sets, allowed are \(capacity); seed \(testSeed)")
                    return
                }
                evictions = try cache.stats().evictions
                let (key, value) = latest.randomElement(using: &source)!
                let found = cache.get("k\(key)")
                // Evicted, and only then (design.md, "Eviction"); that the right ones go, `ModelTests` sees.
                looked += 1
                if found.status == .miss, evictions > 0 {
                    misses += 1
                } else {
                    #expect(
                        found.value == value.0.value(in: content.pool, value.1),
                        "k\(key) after \(sets) sets; seed \(testSeed)")
                }
            }
        }
        print("capacity: tolerances in \(looked) looks: evicted \(misses)")
        let usage = try files.diskUsage()
        #expect(usage <= capacity)
        #expect(
            usage * 10 >= capacity * 8,
            "only \(usage) of \(capacity) bytes are used after \(sets) sets of \(written) bytes")
        let stats = try cache.stats()
        #expect(stats.evictions > 0)
        // The last set is the newest and cannot have been evicted.
        var wrong = 0
        try cache.walk { key, entry in
            let number = Int(String(decoding: key.dropFirst(), as: UTF8.self))!
            if let (identity, size) = latest[number], entry.value == identity.value(in: content.pool, size) { return }
            wrong += 1
        }
        #expect(wrong == 0, "entries with other bytes than were last set; seed \(testSeed)")
        #expect(cache.close() == .ok)
        #expect(try files.diskUsage() <= capacity, "after close")
        try files.removeIndex()
        let rebuilt = try TestCache(directory.path, options)
        #expect(try files.diskUsage() <= capacity, "after a rebuild")
        for number in 0..<200 {
            #expect(rebuilt.set("after \(number)", Pool.random.value(UInt64(number), 2_000)) == .ok)
        }
        #expect(try files.diskUsage() <= capacity, "after a rebuild and some sets")
    }

    @Test(
        "Values from 20 bytes to 1 MB churned through never take more than the capacity, and use most of it",
        arguments: [1, 4, 16, 48, 100], Content.allCases)
    func mixedSizes(mebibytes: Int, content: Content) throws {
        let capacity = mebibytes << 20
        try churn(capacity, content, sizes: 20...min(1_000_000, capacity / 4), keys: 50 * mebibytes + 50, looks: 300)
    }

    @Test("Tiny values make a large table, which is inside the capacity too", arguments: [1, 4, 16])
    func tinyValues(mebibytes: Int) throws {
        try churn(mebibytes << 20, .random, sizes: 20...60, keys: 1 << 40, looks: 200)
    }

    @Test("Values whose size differs from the replaced value's", arguments: [1, 8])
    func replacedSizes(mebibytes: Int) throws {
        try churn(mebibytes << 20, .random, sizes: 2_000...200_000, keys: 20 * mebibytes, looks: 200)
    }

    @Test("The disk never holds more than the capacity with several shards either", arguments: [2, 8] as [UInt32])
    func shards(count: UInt32) throws {
        let capacity = 32 << 20
        let cache = try TestCache(
            directory.path, Options(capacity: UInt64(capacity), shards: count, flags: SHALE_OPEN_NO_SYNC))
        var source = RandomSource(testSeed)
        for number in 0..<12_000 {
            let size = source.logUniform(100...200_000)
            let status = Pool.random.withValue(UInt64(number), size) { cache.set("k\(number)".bytes, raw: $0) }
            #expect(status == .ok, "\(lastError())")
            if number % 100 == 0 { #expect(try files.diskUsage() <= capacity) }
        }
        let usage = try files.diskUsage()
        #expect(usage <= capacity)
        #expect(usage * 10 >= capacity * 8, "only \(usage) of \(capacity) bytes are used")
    }

    @Test("Clearing takes no space: neither in unused shards, nor in used ones")
    func clear() throws {
        let cache = try TestCache(
            directory.path, Options(capacity: 64 << 20, shards: 16, segmentSize: 256 << 10, flags: SHALE_OPEN_NO_SYNC))
        let empty = try files.diskUsage()
        for _ in 0..<3 { cache.clear() }
        #expect(try files.diskUsage() == empty)
        for number in 0..<200 { #expect(cache.set("k\(number)", Pool.random.value(UInt64(number), 4_000)) == .ok) }
        let used = try files.diskUsage()
        for _ in 0..<3 { cache.clear() }
        #expect(try files.diskUsage() <= used)
        #expect(cache.set("after", "v") == .ok)
        #expect(cache.close() == .ok)
        try files.removeIndex()
        let rebuilt = try TestCache(directory.path, Options())
        #expect(try rebuilt.entries().keys.map { $0 } == ["after".bytes])
    }

    @Test("Filled by one size and then by another, the cache holds a fair share of live bytes each time")
    func liveShare() throws {
        let capacity = 8 << 20
        let cache = try TestCache(directory.path, Options(capacity: UInt64(capacity), flags: SHALE_OPEN_NO_SYNC))
        for (round, size) in [200, 20_000, 1_000, 300_000, 100].enumerated() {
            for number in 0..<(capacity * 2 / size) {
                let status = Pool.random.withValue(UInt64(number), size) {
                    cache.set("\(round) \(number)".bytes, raw: $0)
                }
                #expect(status == .ok, "\(lastError())")
            }
            let stats = try cache.stats()
            #expect(
                Int(stats.live_bytes) * 2 >= capacity,
                "with values of \(size): \(stats.live_bytes) live bytes of \(capacity)")
            #expect(try files.diskUsage() <= capacity)
        }
    }
}

extension UInt64 {
    fileprivate func value(in pool: Pool, _ size: Int) -> Blob { pool.value(self, size) }
}
