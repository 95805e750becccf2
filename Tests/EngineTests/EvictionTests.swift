import CShale
import ShaleTestSupport
import Testing

/// Which entries are evicted when there is no room, and which never are.
@Suite("Eviction")
struct EvictionTests {
    let directory = TemporaryDirectory()

    private func names(_ range: Range<Int>) -> [String] { range.map { "k\($0)" } }

    private func present(_ cache: TestCache, _ range: Range<Int>) -> [Int] { range.filter { cache.holds("k\($0)") } }

    @Test("Beyond max_entries the least recently set entry is evicted", arguments: [1, 2, 10, 1_000])
    func maxEntries(limit: Int) throws {
        let cache = try TestCache(directory.path, Options(capacity: 4 << 20, maxEntries: UInt64(limit)))
        for number in 0..<limit * 3 {
            #expect(cache.set("k\(number)", "v") == .ok)
            #expect(try cache.stats().entries == min(number + 1, limit))
        }
        #expect(present(cache, 0..<limit * 3) == Array(limit * 2..<limit * 3))
        #expect(try cache.stats().evictions == limit * 2)
    }

    @Test("A get makes an entry the newest; a peek, an info-peek, a touch and a walk do not")
    func uses() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, maxEntries: 5))
        for name in names(0..<5) { cache.set(name, "v") }
        #expect(cache.get("k0").status == .ok)
        #expect(cache.peek("k1").status == .ok)
        #expect(cache.holds("k1"))
        #expect(cache.touch("k2", 1_000_000) == .ok)
        #expect(try cache.entries().count == 5)
        #expect(cache.get("absent").status == .miss)
        for name in ["n0", "n1", "n2", "n3"] { cache.set(name, "v") }
        // k1, k2, k3, k4 were evicted, in this order; k0 was used.
        #expect(present(cache, 0..<5) == [0])
    }

    @Test("The order of a touched entry is that of its last use")
    func touchKeepsOrder() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, maxEntries: 3))
        for name in names(0..<3) { cache.set(name, "v") }
        for _ in 0..<100 { cache.touch("k0", 1_000_000) }
        cache.set("k3", "v")
        #expect(present(cache, 0..<4) == [1, 2, 3])
    }

    @Test("Evict removes the least recently used, returns how many, and spares pinned entries")
    func evict() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        for number in 0..<20 { cache.set("k\(number)", "v", number == 3 ? .pinned : nil) }
        _ = cache.get("k0")
        #expect(cache.evict(0) == (.ok, 0))
        #expect(cache.evict(4) == (.ok, 4))
        #expect(present(cache, 0..<20) == [0, 3] + Array(6..<20))
        #expect(try cache.stats().evictions == 4)
        #expect(try cache.stats().entries == 16)
        #expect(cache.evict(.max) == (.ok, 15))
        #expect(present(cache, 0..<20) == [3])
        #expect(cache.evict(1) == (.ok, 0))
    }

    @Test("The order of use survives a reopen")
    func orderSurvives() throws {
        var cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        for name in names(0..<100) { cache.set(name, "v") }
        for number in stride(from: 0, to: 100, by: 2) { _ = cache.get("k\(number)") }
        cache.close()
        cache = try TestCache(directory.path)
        #expect(cache.evict(50).evicted == 50)
        #expect(present(cache, 0..<100) == Array(stride(from: 0, to: 100, by: 2)))
        _ = cache.get("k0")
        #expect(cache.evict(10).evicted == 10)
        #expect(present(cache, 0..<100) == [0] + Array(stride(from: 22, to: 100, by: 2)))
    }

    @Test("After a rebuild the order of writing is the order of use")
    func orderAfterRebuild() throws {
        var cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        for name in names(0..<100) { cache.set(name, "v") }
        for number in 0..<50 { _ = cache.get("k\(number)") }
        cache.close()
        try CacheFiles(directory.path).removeIndex()
        cache = try TestCache(directory.path)
        #expect(present(cache, 0..<100).count == 100)
        #expect(cache.evict(30).evicted == 30)
        #expect(present(cache, 0..<100) == Array(30..<100))
    }

    @Test("A cache limited by bytes evicts in the exact order of use")
    func exactOrderByBytes() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        var source = RandomSource(testSeed)
        var next = 0
        var order: [Int] = []
        var evictions: UInt64 = 0
        for _ in 0..<6_000 {
            if source.chance(50), !order.isEmpty {
                let position = source.below(order.count)
                let number = order.remove(at: position)
                #expect(cache.get("k\(number)").status == .ok, "k\(number) should be there, seed \(testSeed)")
                order.append(number)
            } else {
                #expect(cache.set("k\(next)", Pool.random.value(UInt64(next), source.within(100...3_000))) == .ok)
                order.append(next)
                next += 1
                let now = try cache.stats().evictions
                let victims = order.prefix(Int(now - evictions))
                evictions = now
                for number in victims {
                    #expect(!cache.holds("k\(number)"), "k\(number) should be evicted, seed \(testSeed)")
                }
                order.removeFirst(victims.count)
                if let oldest = order.first {
                    #expect(cache.holds("k\(oldest)"), "k\(oldest) should be the oldest, seed \(testSeed)")
                }
            }
        }
        #expect(evictions > 1_000)
        #expect(try Set(cache.entries().keys) == Set(order.map { "k\($0)".bytes }))
    }

    @Test("Pinned entries stay while the cache is churned many times over")
    func pinnedStay() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        let pinned = (0..<50).map { Pool.random.value(UInt64($0), 1_000) }
        for (number, value) in pinned.enumerated() { #expect(cache.set("pinned \(number)", value, .pinned) == .ok) }
        for number in 0..<10_000 { #expect(cache.set("k\(number)", Pool.random.value(UInt64(number), 500)) == .ok) }
        #expect(try cache.stats().evictions > 5_000)
        for (number, value) in pinned.enumerated() { #expect(cache.get("pinned \(number)").value == value) }
        cache.close()
        try CacheFiles(directory.path).removeIndex()
        let rebuilt = try TestCache(directory.path)
        for (number, value) in pinned.enumerated() {
            #expect(rebuilt.get("pinned \(number)").value == value)
            #expect(rebuilt.get("pinned \(number)").isPinned)
        }
    }

    @Test("A cache full of pinned entries answers FULL, and its entries stay readable")
    func fullOfPinned() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        #expect(cache.set("early", "v") == .ok)
        var pinned = 0
        var status = Status.ok
        while pinned < 2_000 {
            status = cache.set("pinned \(pinned)", Pool.random.value(UInt64(pinned), 1_000), .pinned)
            if status != .ok { break }
            pinned += 1
            _ = cache.get("early")
        }
        #expect(status == .full)
        #expect(lastError().count > 10)
        #expect(pinned > 200, "pinned entries fill at least a fifth of the cache")
        for number in 0..<pinned {
            #expect(cache.get("pinned \(number)").value == Pool.random.value(UInt64(number), 1_000))
        }
        // Refused again and again, without a change.
        for _ in 0..<100 { #expect(cache.set("another", Pool.random.value(1, 1_000), .pinned) == .full) }
        #expect(!cache.holds("another"))
        #expect(cache.set("pinned 0", Pool.random.value(7, 100_000), .pinned) == .full)
        #expect(cache.get("pinned 0").value == Pool.random.value(0, 1_000), "a set that fails leaves the old value")
        // Removing some makes room again.
        for number in 0..<100 { #expect(cache.remove("pinned \(number)") == .ok) }
        #expect(cache.set("another", "v") == .ok)
        #expect(cache.text("another") == "v")
        #expect(cache.clear() == .ok)
        #expect(cache.set("pinned", "v", .pinned) == .ok)
    }

    @Test("max_entries full of pinned entries refuses a new key, accepts an overwrite, and a removal makes room")
    func pinnedToTheLimit() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, maxEntries: 10))
        for name in names(0..<10) { #expect(cache.set(name, "v", .pinned) == .ok) }
        #expect(cache.set("k10", "v", .pinned) == .full)
        #expect(cache.set("k10", "v") == .full)
        #expect(try cache.stats().entries == 10)
        #expect(cache.set("k5", "w", .pinned) == .ok)
        #expect(cache.text("k5") == "w")
        // Overwritten without the pin it is an ordinary entry.
        #expect(cache.set("k5", "x") == .ok)
        #expect(cache.set("k10", "v") == .ok)
        #expect(present(cache, 0..<11) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10])
        #expect(cache.remove("k0") == .ok)
        #expect(cache.set("k11", "v") == .ok)
        #expect(cache.holds("k10"))
    }

    @Test("Pinned entries expire, can be removed and cleared")
    func pinnedEnd() throws {
        let clock = TestClock()
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, clock: clock))
        cache.set("expires", "v", SetOptions(flags: SHALE_SET_PINNED, maxAge: 10))
        cache.set("removed", "v", .pinned)
        cache.set("cleared", "v", .pinned)
        #expect(cache.remove("removed") == .ok)
        clock.advance(10)
        #expect(!cache.holds("expires") && !cache.holds("removed") && cache.holds("cleared"))
        #expect(cache.purge() == (.ok, 1))
        #expect(cache.clear() == .ok)
        #expect(!cache.holds("cleared"))
        #expect(try cache.stats().entries == 0)
    }

    @Test("Expired pinned entries do not fill a cache for ever")
    func expiredPinned() throws {
        let clock = TestClock()
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, maxEntries: 50, clock: clock))
        for round in 0..<5 {
            for number in 0..<50 {
                #expect(cache.set("k\(round) \(number)", "v", SetOptions(flags: SHALE_SET_PINNED, maxAge: 100)) == .ok)
            }
            clock.advance(100)
            #expect(cache.purge() == (.ok, 50))
        }
    }

    @Test("Purge removes entries past their stale period and no others")
    func purge() throws {
        let clock = TestClock()
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, clock: clock))
        for number in 0..<10 { cache.set("short \(number)", "v", .age(10)) }
        for number in 0..<10 { cache.set("stale \(number)", "v", .age(10, stale: 10)) }
        for number in 0..<10 { cache.set("fresh \(number)", "v", .age(1_000)) }
        #expect(cache.purge() == (.ok, 0))
        clock.advance(10)
        #expect(cache.purge() == (.ok, 10))
        #expect(cache.purge() == (.ok, 0))
        #expect(try cache.stats().entries == 20)
        for number in 0..<10 { #expect(cache.get("stale \(number)", SHALE_GET_STALE).status == .stale) }
        clock.advance(10)
        #expect(cache.purge() == (.ok, 10))
        #expect(try cache.stats().entries == 10)
        #expect(try cache.stats().expirations == 20)
        #expect(try cache.stats().evictions == 0)
        for number in 0..<10 { #expect(cache.get("fresh \(number)").status == .ok) }
    }

    @Test("Clear removes everything, also from a rebuild, and the cache stays usable")
    func clear() throws {
        var cache = try TestCache(directory.path, Options(capacity: 2 << 20))
        for round in 0..<5 {
            for number in 0..<300 {
                #expect(
                    cache.set("k\(number)", Pool.random.value(UInt64(number), 1_000), number % 50 == 0 ? .pinned : nil)
                        == .ok)
            }
            #expect(cache.clear() == .ok)
            #expect(try cache.stats().entries == 0)
            #expect(try cache.entries().isEmpty)
            #expect(present(cache, 0..<300) == [])
            if round % 2 == 0 {
                cache.close()
                try CacheFiles(directory.path).removeIndex()
                cache = try TestCache(directory.path)
                #expect(try cache.entries().isEmpty)
            }
        }
        #expect(cache.set("k", "v") == .ok)
        #expect(cache.text("k") == "v")
    }

    @Test("With several shards max_entries is never exceeded and evict reaches all of them")
    func shards() throws {
        let cache = try TestCache(directory.path, Options(capacity: 32 << 20, maxEntries: 400, shards: 4))
        for number in 0..<2_000 {
            #expect(cache.set("k\(number)", "v") == .ok)
            if number % 50 == 0 { #expect(try cache.stats().entries <= 400) }
        }
        let entries = try cache.stats().entries
        #expect(entries > 300)
        #expect(present(cache, 0..<2_000).count == Int(entries))
        #expect(cache.evict(100).evicted == 100)
        #expect(cache.evict(.max).evicted == entries - 100)
        #expect(try cache.stats().entries == 0)
    }
}
