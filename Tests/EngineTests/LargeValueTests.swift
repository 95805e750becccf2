import CShale
import ShaleTestSupport
import Testing

/// Values beyond a segment are stored in parts, which callers do not notice.
@Suite("Large values", .serialized)
struct LargeValueTests {
    let directory = TemporaryDirectory()
    var files: CacheFiles { CacheFiles(directory.path) }

    private func open(_ capacity: UInt64 = 16 << 20, shards: UInt32 = 0) throws -> TestCache {
        try TestCache(
            directory.path,
            Options(capacity: capacity, shards: shards, segmentSize: 128 << 10, flags: SHALE_OPEN_NO_SYNC))
    }

    @Test("A quarter of the capacity is accepted and one byte more is too large", arguments: [1, 4, 16, 64])
    func limit(mebibytes: Int) throws {
        let capacity = mebibytes << 20
        let cache = try open(UInt64(capacity))
        let quarter = Blob(copying: repeatElement(1, count: capacity / 4))
        let most = Blob(
            copying: (Pool.random.block + Pool.random.block.reversed() + Pool.random.block.shuffledHalves()
                + Pool.text.block).prefix(capacity / 4))
        for round in 0..<5 {
            for value in [quarter, most] {
                #expect(cache.set("k", value) == .ok, "round \(round): \(lastError())")
                #expect(cache.get("k").value == value, "round \(round)")
            }
            #expect(cache.set("k", quarter.bytes + [1]) == .tooLarge)
            #expect(cache.get("k").value == most)
        }
    }

    @Test("The last two values of the largest size are present at the same time", arguments: [1, 4, 16])
    func several(mebibytes: Int) throws {
        let size = (mebibytes << 20) / 4
        let cache = try open(UInt64(mebibytes << 20))
        for number in 0..<12 {
            #expect(cache.set("k\(number)", Pool.random.value(UInt64(number), size)) == .ok, "\(lastError())")
            // In the smallest cache the segments that are kept free leave room for one.
            if number > 0, mebibytes > 1 {
                #expect(cache.get("k\(number - 1)").value == Pool.random.value(UInt64(number - 1), size))
            }
            #expect(cache.get("k\(number)").value == Pool.random.value(UInt64(number), size))
        }
        #expect(try files.diskUsage() <= mebibytes << 20)
    }

    @Test("Parts of values that were replaced take no room in a rebuilt index", arguments: [1, 2] as [UInt32])
    func replacedParts(shards: UInt32) throws {
        let capacity: UInt64 = 4 << 20
        var cache = try open(capacity, shards: shards)
        for number in 0..<500 { cache.set("small \(number)", "v\(number)") }
        // Zeros take next to nothing, so thousands of dead parts are still in the log.
        let zeros = Blob(copying: repeatElement(0, count: 300_000))
        for _ in 0..<300 { #expect(cache.set("large", zeros) == .ok, "\(lastError())") }
        #expect(try cache.stats().evictions == 0)
        #expect(cache.close() == .ok)
        try files.removeIndex()
        cache = try open(capacity, shards: shards)
        for number in 500..<1_000 { cache.set("small \(number)", "v\(number)") }
        for number in 0..<1_000 { #expect(cache.text("small \(number)") == "v\(number)") }
        #expect(cache.get("large").value == zeros)
        let stats = try cache.stats()
        #expect(stats.entries == 1_001)
        #expect(stats.evictions == 0)
        #expect(stats.live_bytes < 300_000)
    }

    @Test("Overwriting a large value frees its space, large by large, large by small, small by large")
    func overwrite() throws {
        let cache = try open()
        cache.set("bystander", "v")
        for round in 0..<100 {
            let value = round % 3 == 2 ? Blob("small \(round)") : Pool.random.value(UInt64(round), 3_000_000 + round)
            #expect(cache.set("k", value) == .ok, "\(lastError())")
            #expect(cache.get("k").value == value, "round \(round)")
        }
        let stats = try cache.stats()
        #expect(stats.entries == 2)
        #expect(stats.evictions == 0)
        #expect(stats.raw_bytes == 3_000_000 + 99 + 1)
        #expect(stats.live_bytes < 4_000_000, "the parts of replaced values do not count")
        #expect(cache.text("bystander") == "v")
    }

    @Test("Removing a large value frees its space")
    func remove() throws {
        let cache = try open()
        for round in 0..<50 {
            #expect(cache.set("k\(round)", Pool.random.value(UInt64(round), 3_500_000)) == .ok, "\(lastError())")
            #expect(cache.remove("k\(round)") == .ok)
            #expect(!cache.holds("k\(round)"))
        }
        let stats = try cache.stats()
        #expect(stats.evictions == 0)
        #expect(stats.raw_bytes == 0)
        #expect(stats.live_bytes < 100_000)
    }

    @Test("Large values are evicted whole, in the order of use, among small ones")
    func evict() throws {
        let cache = try open()
        for number in 0..<4 {
            #expect(cache.set("large \(number)", Pool.random.value(UInt64(number), 2_000_000)) == .ok)
            #expect(cache.set("small \(number)", "v") == .ok)
        }
        _ = cache.get("large 0")
        // The order is now s0 L1 s1 L2 s2 L3 s3 L0.
        #expect(cache.evict(3) == (.ok, 3))
        #expect((0..<4).map { cache.holds("large \($0)") } == [true, false, true, true])
        #expect((0..<4).map { cache.holds("small \($0)") } == [false, false, true, true])
        #expect(cache.get("large 0").value == Pool.random.value(0, 2_000_000))
        for number in 10..<40 {
            #expect(cache.set("large \(number)", Pool.random.value(UInt64(number), 2_000_000)) == .ok)
        }
        try cache.walk { key, entry in
            let text = String(decoding: key, as: UTF8.self)
            guard text.hasPrefix("large") else { return }
            #expect(entry.value == Pool.random.value(UInt64(text.dropFirst(6))!, 2_000_000), "\(text)")
        }
        #expect(cache.get("large 39").value == Pool.random.value(39, 2_000_000))
        #expect(!cache.holds("large 10"))
    }

    @Test(
        "Large values are there after a reopen and after a rebuild, with any number of shards",
        arguments: [false, true], [1, 4] as [UInt32])
    func reopen(rebuild: Bool, shards: UInt32) throws {
        let sizes = [131_072, 200_000, 500_000, 1_000_000, 3_000_000]
        do {
            let cache = try open(32 << 20, shards: shards)
            for size in sizes {
                cache.set("k\(size)", Pool.random.value(0, size))
                cache.set(
                    "k\(size)", Pool.random.value(UInt64(size), size),
                    SetOptions(maxAge: 1_000_000_000, meta: "m\(size)"))
            }
            cache.set("removed", Pool.random.value(1, 2_000_000))
            cache.remove("removed")
            cache.set("replaced", Pool.random.value(2, 2_000_000))
            cache.set("replaced", "small")
            #expect(cache.close() == .ok)
        }
        if rebuild { try files.removeIndex() }
        let cache = try open(0)
        for size in sizes {
            let found = cache.get("k\(size)")
            #expect(found.value == Pool.random.value(UInt64(size), size), "\(size)")
            #expect(found.meta == "m\(size)".bytes)
        }
        #expect(!cache.holds("removed"))
        #expect(cache.text("replaced") == "small")
        #expect(try cache.stats().entries == UInt64(sizes.count + 1))
        #expect(try cache.entries(SHALE_GET_INFO | SHALE_GET_STALE).count == sizes.count + 1)
        #expect(try cache.verify().corrupt_records == 0)
    }

    @Test("Large values move through cleaning unharmed, and through a rebuild then")
    func cleaning() throws {
        let cache = try open(8 << 20)
        let lasting = Pool.random.value(99, 1_500_000)
        #expect(cache.set("lasting", lasting, SetOptions(meta: "meta")) == .ok)
        #expect(cache.touch("lasting", 1_000_000_000) == .ok)
        let expires = cache.get("lasting").expires
        for round in 0..<20_000 {
            #expect(cache.set("churn \(round % 500)", Pool.random.value(UInt64(round), 2_000)) == .ok)
            if round % 50 == 0 { _ = cache.get("lasting", SHALE_GET_INFO) }
        }
        #expect(try cache.stats().cleaned_bytes > 1_500_000)
        #expect(cache.get("lasting").value == lasting)
        cache.close()
        try files.removeIndex()
        let rebuilt = try open(0)
        #expect(rebuilt.get("lasting").value == lasting)
        #expect(rebuilt.get("lasting").expires == expires)
        #expect(rebuilt.get("lasting").meta == "meta".bytes)
    }

    /// The cache's secret decides where parts lie, so this tries many caches with one history each.
    @Test("A full cache accepts new values at once after a rebuild, wherever its large values are")
    func roomAfterRebuild() throws {
        let options = Options(capacity: 4 << 20, flags: SHALE_OPEN_NO_SYNC)
        for round in 0..<60 {
            let place = directory.path("\(round)")
            var source = RandomSource(testSeed &+ UInt64(round))
            var cache = try TestCache(place, options)
            var written = 0
            while written < 8 << 20 {
                let size = source.logUniform(20...1_000_000)
                let status = Pool.random.withValue(source.next(), size) {
                    cache.set("k\(source.below(250))".bytes, raw: $0)
                }
                #expect(status == .ok, "\(lastError())")
                written += size
            }
            cache.close()
            try CacheFiles(place).removeIndex()
            cache = try TestCache(place, options)
            var refused = 0
            for number in 0..<200 where cache.set("new \(number)", Pool.random.value(UInt64(number), 2_000)) != .ok {
                refused += 1
            }
            #expect(refused == 0, "of 200 sets after rebuild \(round), seed \(testSeed): \(lastError())")
            #expect(cache.get("new 199").value == Pool.random.value(199, 2_000))
            #expect(try CacheFiles(place).diskUsage() <= 4 << 20)
            cache.close()
        }
    }

    @Test("A large value that is replaced while others read it is one version or the other, whole")
    func replacedUnderReaders() throws {
        let cache = try open()
        let sizes = [700_000, 1_300_000, 900_000]
        #expect(cache.set("k", Pool.random.value(0, sizes[0])) == .ok)
        let stop = Flag()
        let findings = Findings()
        let reads = Counter()
        concurrently(3) { thread in
            if thread == 0 {
                for round in 1...200 {
                    let status = cache.set("k", Pool.random.value(UInt64(round), sizes[round % 3]))
                    if status != .ok { findings.add("a set answered \(status): \(lastError())") }
                }
                stop.raise()
            } else {
                let buffer = ValueBuffer()
                repeat {
                    let status = cache.get("k".bytes, 0, into: buffer)
                    guard status == .ok else {
                        findings.add("a get answered \(status)")
                        continue
                    }
                    reads.increment()
                    let size = buffer.bytes.count
                    let isWhole = (0...200).contains { round in
                        size == sizes[round % 3]
                            && Pool.random.withValue(UInt64(round), size) { same($0, buffer.bytes) }
                    }
                    if !isWhole { findings.add("a value of \(size) bytes that was never set") }
                } while !stop.isRaised && findings.isEmpty
            }
        }
        #expect(findings.all == [])
        #expect(reads.count > 0)
    }

    @Test("Pinned large values stay, and fill the cache")
    func pinned() throws {
        let cache = try open(8 << 20)
        var count = 0
        while count < 20, cache.set("k\(count)", Pool.random.value(UInt64(count), 1_000_000), .pinned) == .ok {
            count += 1
        }
        #expect((2..<9).contains(count))
        for number in 0..<count {
            #expect(cache.get("k\(number)").value == Pool.random.value(UInt64(number), 1_000_000))
        }
        #expect(cache.set("another", Pool.random.value(1, 1_000_000), .pinned) == .full)
        for number in 0..<count {
            #expect(cache.get("k\(number)").value == Pool.random.value(UInt64(number), 1_000_000))
        }
        #expect(cache.remove("k0") == .ok)
        #expect(cache.set("another", Pool.random.value(1, 1_000_000), .pinned) == .ok)
        #expect(cache.get("another").value == Pool.random.value(1, 1_000_000))
    }

    @Test("Compressible values far larger than a segment round trip and take less")
    func compressible() throws {
        let cache = try open()
        let text = Pool.text.value(5, 4 << 20)
        #expect(cache.set("text", text) == .ok)
        #expect(cache.get("text").value == text)
        #expect(cache.get("text").storedSize < 3 << 20)
        let zeros = Blob(copying: repeatElement(0, count: 4 << 20))
        #expect(cache.set("zeros", zeros) == .ok)
        #expect(cache.get("zeros").value == zeros)
        #expect(cache.get("zeros").storedSize < 1 << 20)
        #expect(cache.get("text").value == text)
    }
}

extension Array where Element == UInt8 {
    /// Other bytes of the same kind, cheaply.
    fileprivate func shuffledHalves() -> [UInt8] { Array(self[(count / 2)...]) + Array(self[..<(count / 2)]) }
}
