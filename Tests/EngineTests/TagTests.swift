import CShale
import ShaleTestSupport
import Testing

/// Invalidating a tag removes every entry that carries it and was set before,
/// and nothing else, through cleaning, reopening and rebuilding.
@Suite("Tags")
struct TagTests {
    let directory = TemporaryDirectory()

    private func open(_ capacity: UInt64 = 1 << 20) throws -> TestCache {
        try TestCache(directory.path, Options(capacity: capacity))
    }

    @Test("Invalidation removes the entries with the tag and no others")
    func invalidation() throws {
        let cache = try open()
        cache.set("a", "v", .tagged("red"))
        cache.set("b", "v", .tagged("red", "blue"))
        cache.set("c", "v", .tagged("blue"))
        cache.set("d", "v")
        #expect(cache.invalidate("red") == .ok)
        #expect(try cache.entries().keys.sorted { $0[0] < $1[0] } == ["c".bytes, "d".bytes])
        #expect(["a", "b", "c", "d"].map { cache.get($0).status } == [.miss, .miss, .ok, .ok])
        #expect(cache.get("a", SHALE_GET_STALE).status == .miss)
        #expect(try cache.stats().invalidations == 1)
    }

    @Test("An entry set after an invalidation lives, under the same key and tag too")
    func setAfterwards() throws {
        let cache = try open()
        cache.set("k", "old", .tagged("t"))
        #expect(cache.invalidate("t") == .ok)
        cache.set("k", "new", .tagged("t"))
        cache.set("l", "new", .tagged("t"))
        #expect(cache.text("k") == "new")
        #expect(cache.text("l") == "new")
        #expect(cache.invalidate("t") == .ok)
        #expect(cache.text("k") == nil)
        #expect(cache.text("l") == nil)
    }

    @Test("An overwrite's tags replace the old ones")
    func overwriteReplacesTags() throws {
        let cache = try open()
        cache.set("k", "v", .tagged("old"))
        cache.set("k", "w", .tagged("new"))
        #expect(cache.invalidate("old") == .ok)
        #expect(cache.text("k") == "w")
        #expect(cache.invalidate("new") == .ok)
        #expect(cache.text("k") == nil)
    }

    @Test("Each of eight tags counts")
    func eightTags() throws {
        for number in 0..<8 {
            let cache = try TestCache(nil, Options(capacity: 1 << 20))
            cache.set("k", "v", SetOptions(tags: (0..<8).map { "tag \($0)" }))
            cache.invalidate("tag 8")
            #expect(cache.text("k") == "v")
            cache.invalidate("tag \(number)")
            #expect(cache.text("k") == nil, "tag \(number)")
        }
    }

    @Test("Tags are any bytes, and only a whole tag matches")
    func anyBytes() throws {
        let cache = try open()
        let tag: [UInt8] = [0, 255, 0]
        cache.set("k", "v", SetOptions(tags: [tag]))
        cache.invalidate([0, 255] as [UInt8])
        cache.invalidate([0, 255, 0, 0] as [UInt8])
        #expect(cache.text("k") == "v")
        cache.invalidate(tag)
        #expect(cache.text("k") == nil)
    }

    @Test("An invalidated entry is absent for every call")
    func absentEverywhere() throws {
        let cache = try open()
        let (_, version) = cache.store("k", 5.littleEndianBytes, .tagged("t"))
        cache.invalidate("t")
        #expect(cache.touch("k", 10) == .miss)
        #expect(cache.remove("k") == .miss)
        #expect(cache.set("k", "v", .ifPresent) == .conflict)
        #expect(cache.set("k", "v", .ifVersion(version)) == .conflict)
        #expect(cache.getMany(["k".bytes]).lookups[0].status == .miss)
        #expect(cache.increment("k", by: 1, from: 100) == (.ok, 101))
    }

    @Test("Pinned entries are invalidated too")
    func pinned() throws {
        let cache = try open()
        cache.set("k", "v", SetOptions(flags: SHALE_SET_PINNED, tags: ["t"]))
        #expect(cache.invalidate("t") == .ok)
        #expect(cache.text("k") == nil)
    }

    @Test("A touch before an invalidation does not save an entry")
    func touched() throws {
        let cache = try open()
        cache.set("k", "v", .tagged("t"))
        #expect(cache.touch("k", 10_000_000) == .ok)
        #expect(cache.invalidate("t") == .ok)
        #expect(cache.text("k") == nil)
        cache.close()
        try CacheFiles(directory.path).removeIndex()
        #expect(try open().text("k") == nil)
    }

    @Test("A touch after an invalidation does not bring an entry back")
    func touchedAfterwards() throws {
        let cache = try open()
        cache.set("k", "v", .tagged("t"))
        cache.invalidate("t")
        #expect(cache.touch("k", 10_000_000) == .miss)
        cache.close()
        try CacheFiles(directory.path).removeIndex()
        #expect(try open().text("k") == nil)
    }

    @Test("Invalidations hold after a reopen and after a rebuild", arguments: [false, true])
    func acrossReopen(rebuild: Bool) throws {
        do {
            let cache = try open()
            for number in 0..<100 { cache.set("k\(number)", "v", .tagged("t\(number % 10)")) }
            for tag in [2, 5] { cache.invalidate("t\(tag)") }
            for number in stride(from: 0, to: 100, by: 20) { cache.set("k\(number + 5)", "again", .tagged("t5")) }
            cache.close()
        }
        if rebuild { try CacheFiles(directory.path).removeIndex() }
        let cache = try open()
        for number in 0..<100 {
            let expected = number % 20 == 5 ? "again" : number % 10 == 2 || number % 10 == 5 ? nil : "v"
            #expect(cache.text("k\(number)") == expected, "k\(number)")
        }
    }

    @Test("Invalidations hold while the log wraps many times, and after a rebuild then")
    func throughCleaning() throws {
        let cache = try open()
        var living: [String] = []
        for number in 0..<200 {
            let tag = "t\(number % 4)"
            cache.set("k\(number)", Pool.random.value(UInt64(number), 100), .tagged(tag))
            if number % 4 >= 2 { living.append("k\(number)") }
        }
        cache.invalidate("t0")
        cache.invalidate("t1")
        // Two small keys overwritten again and again: everything else moves at the tail.
        for round in 0..<8_000 {
            cache.set("churn \(round % 2)", Pool.random.value(UInt64(round), 1_000))
            if round % 100 == 0 { for key in living { _ = cache.get(key) } }
        }
        func check(_ cache: TestCache, _ comment: Comment) {
            for number in 0..<200 {
                #expect(cache.holds("k\(number)") == (number % 4 >= 2), "\(comment): k\(number)")
            }
        }
        #expect(try cache.stats().cleaned_bytes > 0)
        check(cache, "after churn")
        cache.close()
        try CacheFiles(directory.path).removeIndex()
        check(try open(), "after churn and a rebuild")
    }

    @Test("Far more tags than any table holds all stay invalidated")
    func manyTags() throws {
        let cache = try open(4 << 20)
        let count = 3_000
        for number in 0..<count { #expect(cache.set("k\(number)", "v", .tagged("t\(number)", "all")) == .ok) }
        for number in 0..<count where number % 2 == 0 { #expect(cache.invalidate("t\(number)") == .ok) }
        for number in 0..<count { #expect(cache.holds("k\(number)") == (number % 2 != 0), "k\(number)") }
        for number in 0..<count where number % 4 == 0 {
            #expect(cache.set("k\(number)", "w", .tagged("t\(number)", "all")) == .ok)
        }
        for number in 0..<count {
            #expect(cache.holds("k\(number)") == (number % 2 != 0 || number % 4 == 0), "k\(number)")
        }
        cache.close()
        try CacheFiles(directory.path).removeIndex()
        let rebuilt = try open()
        for number in 0..<count {
            let expected = number % 4 == 0 ? "w" : number % 2 == 0 ? nil : "v"
            #expect(rebuilt.text("k\(number)") == expected, "k\(number) after a rebuild")
        }
        #expect(rebuilt.invalidate("all") == .ok)
        #expect(try rebuilt.entries().isEmpty)
    }

    @Test("Repeated invalidation of unused tags neither fills the cache nor affects other entries")
    func unknownTags() throws {
        let cache = try open()
        cache.set("k", "v", .tagged("mine"))
        for number in 0..<20_000 { #expect(cache.invalidate("stranger \(number)") == .ok) }
        #expect(cache.text("k") == "v")
        #expect(try cache.stats().invalidations == 20_000)
        #expect(try CacheFiles(directory.path).diskUsage() <= 1 << 20)
    }

    @Test("A tag reaches every shard")
    func shards() throws {
        let cache = try TestCache(directory.path, Options(capacity: 32 << 20, shards: 8))
        for number in 0..<400 { cache.set("k\(number)", "v", .tagged(number % 2 == 0 ? "even" : "odd")) }
        #expect(cache.invalidate("even") == .ok)
        for number in 0..<400 { #expect(cache.holds("k\(number)") == (number % 2 != 0)) }
        cache.close()
        try CacheFiles(directory.path).removeIndex()
        let rebuilt = try TestCache(directory.path)
        for number in 0..<400 { #expect(rebuilt.holds("k\(number)") == (number % 2 != 0)) }
    }

    @Test("Pinned entries that were invalidated make room", arguments: [4, 0])
    func pinned(maxEntries: UInt64) throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, maxEntries: maxEntries))
        let value = Pool.random.value(1, 1_000)
        var count = 0
        while cache.set("pinned \(count)", value, SetOptions(flags: SHALE_SET_PINNED, tags: ["t"])) == .ok {
            count += 1
        }
        #expect(maxEntries == 0 ? count > 100 : count == 4)
        // If bytes are the limit, pins leave room for other entries.
        #expect(cache.set("k", value) == (maxEntries == 0 ? .ok : .full))
        #expect(cache.invalidate("t") == .ok)
        for number in 0..<4 { #expect(cache.set("k\(number)", value, .pinned) == .ok) }
        for number in 0..<4 { #expect(cache.holds("k\(number)")) }
        // (A set removes as many of the dead ones as it needs.)
        #expect(cache.purge().status == .ok)
        #expect(try cache.stats().entries == (maxEntries == 0 ? 5 : 4))
    }

    @Test("A large value is invalidated like a small one")
    func largeValue() throws {
        let cache = try open(8 << 20)
        cache.set("k", Pool.random.value(1, 1 << 20), .tagged("t"))
        cache.invalidate("t")
        #expect(!cache.holds("k"))
        cache.close()
        try CacheFiles(directory.path).removeIndex()
        #expect(!(try open(0).holds("k")))
    }
}
