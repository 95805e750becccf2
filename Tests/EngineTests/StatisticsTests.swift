import CShale
import Foundation
import ShaleTestSupport
import Testing

/// The counters match the events, and the sums match the contents.
@Suite("Statistics")
struct StatisticsTests {
    let directory = TemporaryDirectory()
    let clock = TestClock()

    @Test("Every kind of call counts as the header says, and peeks do not")
    func counters() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, clock: clock))
        cache.set("a", "v")
        cache.set("b", "v", .age(10, stale: 1_000))
        cache.set("c", "v", .tagged("t"))
        _ = cache.get("a")
        _ = cache.get("a")
        _ = cache.get("absent")
        clock.advance(10)
        _ = cache.get("b")
        _ = cache.get("b", SHALE_GET_STALE)
        _ = cache.peek("a")
        _ = cache.peek("absent")
        _ = cache.peek("b")
        cache.remove("a")
        cache.remove("a")
        cache.invalidate("t")
        let stats = try cache.stats()
        #expect(stats.sets == 3)
        #expect(stats.hits == 2)
        #expect(stats.misses == 2)
        #expect(stats.stale_hits == 1)
        #expect(stats.removes == 1)
        #expect(stats.invalidations == 1)
        #expect(stats.evictions == 0)
        #expect(stats.expirations == 0)
        #expect(stats.corrupt_records == 0)
        #expect(stats.capacity == 1 << 20)
        #expect(stats.max_entries == 0)
        #expect(stats.shards == 1)
    }

    @Test("Batches count each key")
    func batches() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        let keys = (0..<10).map { "k\($0)".bytes }
        cache.setMany(keys, keys)
        _ = cache.getMany(keys + ["absent".bytes])
        cache.removeMany(Array(keys.prefix(4)))
        let stats = try cache.stats()
        #expect(stats.sets == 10)
        #expect(stats.hits == 10)
        #expect(stats.misses == 1)
        #expect(stats.removes == 4)
        #expect(stats.entries == 6)
    }

    @Test("Counters are those of all handles and survive a reopen")
    func shared() throws {
        let first = try TestCache(directory.path, Options(capacity: 1 << 20))
        let second = try TestCache(directory.path)
        first.set("a", "v")
        second.set("b", "v")
        _ = first.get("b")
        _ = second.get("a")
        #expect(try first.stats().sets == 2)
        #expect(try second.stats().sets == 2)
        #expect(try first.stats().hits == 2)
        first.close()
        second.close()
        let third = try TestCache(directory.path)
        #expect(try third.stats().sets == 2)
        #expect(try third.stats().hits == 2)
        #expect(try third.stats().entries == 2)
    }

    @Test(
        "Bytes before and after compression are the sums over the entries, through overwrites, removals and a rebuild")
    func sums() throws {
        var cache = try TestCache(directory.path, Options(capacity: 8 << 20, compression: SHALE_COMPRESSION_LZ4))
        var source = RandomSource(testSeed)
        for step in 0..<1_000 {
            let key = "k\(source.below(200))"
            switch source.below(10) {
            case 0...1: cache.remove(key)
            case 2...5: cache.set(key, Pool.random.value(UInt64(step), source.below(2_000)))
            default: cache.set(key, Pool.text.value(UInt64(step), source.below(4_000)))
            }
        }
        func check(_ comment: Comment) throws {
            let stats = try cache.stats()
            let entries = try cache.entries()
            #expect(stats.entries == entries.count, comment)
            #expect(stats.raw_bytes == entries.values.reduce(0) { $0 + UInt64($1.size) }, comment)
            #expect(stats.stored_bytes == entries.values.reduce(0) { $0 + $1.storedSize }, comment)
            #expect(stats.live_bytes > stats.stored_bytes, comment)
            #expect(stats.live_bytes <= stats.data_bytes, comment)
            #expect(stats.data_bytes + stats.index_bytes <= stats.capacity, comment)
        }
        try check("after the operations, seed \(testSeed)")
        cache.close()
        cache = try TestCache(directory.path)
        try check("after a reopen, seed \(testSeed)")
        cache.close()
        try CacheFiles(directory.path).removeIndex()
        cache = try TestCache(directory.path)
        try check("after a rebuild, seed \(testSeed)")
        cache.clear()
        #expect(try cache.stats().raw_bytes == 0)
        #expect(try cache.stats().stored_bytes == 0)
        #expect(try cache.stats().live_bytes == 0)
    }

    @Test("data_bytes and index_bytes are the disk usage of the files")
    func disk() throws {
        let cache = try TestCache(directory.path, Options(capacity: 8 << 20))
        for number in 0..<3_000 { cache.set("k\(number)", Pool.random.value(UInt64(number), 1_000)) }
        let stats = try cache.stats()
        let usage = try CacheFiles(directory.path).diskUsage()
        #expect(stats.data_bytes + stats.index_bytes <= usage)
        // The directory itself and the file system's own blocks are added.
        #expect(usage - Int(stats.data_bytes + stats.index_bytes) <= 64 << 10)
        #expect(stats.data_bytes > 3_000_000)
        #expect(stats.index_bytes > 0)
    }

    @Test("A rebuild is counted and starts the other counters again")
    func rebuilds() throws {
        var cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        cache.set("k", "v")
        #expect(try cache.stats().rebuilds == 0)
        cache.close()
        try CacheFiles(directory.path).removeIndex()
        cache = try TestCache(directory.path)
        #expect(try cache.stats().rebuilds == 1)
        #expect(try cache.stats().sets == 0)
        #expect(try cache.stats().entries == 1)
    }

    @Test("Verify reads every current record and finds no fault in a sound cache")
    func verify() throws {
        let cache = try TestCache(directory.path, Options(capacity: 8 << 20, segmentSize: 128 << 10))
        for number in 0..<500 { cache.set("k\(number)", Pool.text.value(UInt64(number), 500)) }
        for number in 0..<100 { cache.remove("k\(number)") }
        let report = try cache.verify()
        #expect(report.records == 400)
        #expect(report.bytes > 0)
        #expect(report.corrupt_records == 0)
        cache.set("large", Pool.random.value(1, 1 << 20))
        #expect(try cache.verify().records > 400)
        #expect(try cache.verify().corrupt_records == 0)
        #expect(try cache.stats().entries == 401)
    }

    @Test("Verify finds a damaged value, removes it and counts it; the rest stays")
    func damage() throws {
        let options = Options(capacity: 1 << 20, compression: SHALE_COMPRESSION_NONE)
        var cache = try TestCache(directory.path, options)
        let value = Pool.random.value(42, 2_000).bytes
        cache.set("before", "v")
        cache.set("damaged", value)
        cache.set("after", "v")
        cache.close()
        let files = CacheFiles(directory.path)
        let data = try contents(of: files.data).bytes
        let place = try #require(position(of: Array(value.prefix(64)), in: data))
        try patch(files.data, at: place + 1_000, with: [value[1_000] ^ 1])
        cache = try TestCache(directory.path, options)
        let report = try cache.verify()
        #expect(report.corrupt_records == 1)
        #expect(cache.get("damaged").status == .miss)
        #expect(cache.text("before") == "v")
        #expect(cache.text("after") == "v")
        #expect(try cache.stats().corrupt_records >= 1)
        #expect(try cache.verify().corrupt_records == 0)
        #expect(try cache.stats().entries == 2)
    }

    @Test("A get of a damaged value is a miss, never other bytes, and does not bring an older value back")
    func damagedRead() throws {
        let options = Options(capacity: 1 << 20, compression: SHALE_COMPRESSION_NONE)
        var cache = try TestCache(directory.path, options)
        let value = Pool.random.value(42, 2_000).bytes
        cache.set("k", "older")
        cache.set("k", value)
        cache.close()
        let files = CacheFiles(directory.path)
        let data = try contents(of: files.data).bytes
        let place = try #require(position(of: Array(value.prefix(64)), in: data))
        try patch(files.data, at: place + 1_999, with: [value[1_999] ^ 0x80])
        cache = try TestCache(directory.path, options)
        #expect(cache.get("k").status == .miss)
        cache.close()
        try files.removeIndex()
        cache = try TestCache(directory.path, options)
        #expect(cache.get("k").status == .miss)
        #expect(cache.set("k", "new") == .ok)
        #expect(cache.text("k") == "new")
    }

    private func position(of needle: [UInt8], in haystack: [UInt8]) -> Int? {
        Data(haystack).firstRange(of: Data(needle))?.lowerBound
    }
}
