import CShale
import ShaleTestSupport
import Testing

/// Known failures of such stores: removed entries come back after a rebuild, live ones do not. Each test makes the log
/// wrap, deletes the index, and reads.
@Suite("Traps", .serialized)
struct TrapTests {
    let directory = TemporaryDirectory()
    let clock = TestClock()
    var files: CacheFiles { CacheFiles(directory.path) }

    private func open() throws -> TestCache {
        try TestCache(
            directory.path,
            Options(
                capacity: 1 << 20, segmentSize: 128 << 10, compression: SHALE_COMPRESSION_NONE, clock: clock,
                flags: SHALE_OPEN_NO_SYNC))
    }

    private func rebuild(_ cache: TestCache) throws -> TestCache {
        #expect(cache.close() == .ok)
        try files.removeIndex()
        return try open()
    }

    /// Writes so much that every segment has been recycled at least once, with few live bytes, so that nothing needs to
    /// be evicted.
    private func wrap(_ cache: TestCache, bytes: Int = 2 << 20, size: Int = 1_000, keys: Int = 20) {
        for number in 0..<(bytes / size) {
            #expect(cache.set("churn \(number % keys)", Pool.random.value(UInt64(number), size)) == .ok)
        }
    }

    /// Records of one size fill segments in the same places lap after lap: the
    /// earlier lap's records continue the log seamlessly past its head.
    @Test("After a lap of equal records removed keys stay removed and no older value returns", arguments: 0..<12)
    func equalRecordsOfEarlierLaps(stopAt: Int) throws {
        var cache = try open()
        // Key and value of the same size everywhere, so that every record is of the same size.
        func key(_ number: Int) -> [UInt8] { Array(String(100_000 + number).utf8) }
        func value(_ number: Int, _ lap: Int) -> Blob { Pool.random.value(UInt64(number * 1_000 + lap), 200) }
        var expected: [Int: Int] = [:]
        let laps = 6
        for lap in 0..<laps {
            for number in 0..<900 {
                // Stop elsewhere in the last lap each time.
                if lap == laps - 1, number == stopAt * 75 + 3 { break }
                #expect(cache.set(key(number), value(number, lap)) == .ok)
                expected[number] = lap
                if number % 5 == lap % 5 {
                    #expect(cache.remove(key(number)) == .ok)
                    expected[number] = nil
                }
            }
        }
        #expect(try cache.stats().evictions == 0, "the test wants a cache that never evicts")
        for _ in 0..<2 {
            cache = try rebuild(cache)
            for number in 0..<900 {
                let found = cache.get(key(number))
                if let lap = expected[number] {
                    #expect(found.status == .ok && found.value == value(number, lap), "\(number) of lap \(lap)")
                } else {
                    #expect(found.status == .miss, "\(number) was removed and is back")
                }
            }
            #expect(try cache.stats().corrupt_records == 0)
        }
    }

    @Test("Tombstones are kept as long as the removed records can come back")
    func tombstones() throws {
        var cache = try open()
        for number in 0..<500 { #expect(cache.set("k\(number)", Pool.random.value(UInt64(number), 300)) == .ok) }
        for number in 0..<500 where number % 2 == 0 { #expect(cache.remove("k\(number)") == .ok) }
        // Rebuild after every quarter of a lap, so that the tail is before, among and after both the values and their
        // tombstones.
        for _ in 0..<20 {
            wrap(cache, bytes: 250_000)
            for number in 0..<500 where number % 2 != 0 { _ = cache.get("k\(number)") }
            cache = try rebuild(cache)
            for number in 0..<500 { #expect(cache.holds("k\(number)") == (number % 2 != 0), "k\(number)") }
        }
        #expect(try cache.stats().evictions == 0)
    }

    @Test("A key that is removed after its eviction does not come back with a rebuild")
    func removedAfterEviction() throws {
        var cache = try open()
        for number in 0..<100 { #expect(cache.set("k\(number)", "v") == .ok) }
        #expect(cache.evict(100) == (.ok, 100))
        for number in 0..<50 { #expect(cache.remove("k\(number)") == .miss) }
        cache = try rebuild(cache)
        for number in 0..<50 { #expect(!cache.holds("k\(number)"), "k\(number) was removed and is back") }
    }

    @Test("An evicted version does not come back over a newer one that was removed")
    func evictedThenExpired() throws {
        var cache = try open()
        #expect(cache.set("k", "old") == .ok)
        #expect(cache.evict(1) == (.ok, 1))
        #expect(cache.set("k", "new", .age(10)) == .ok)
        clock.advance(10)
        #expect(cache.purge() == (.ok, 1))
        cache = try rebuild(cache)
        #expect(!cache.holds("k"))
        wrap(cache)
        cache = try rebuild(cache)
        #expect(!cache.holds("k"))
    }

    @Test("An evicted entry that a rebuild brings back has its last value")
    func evictedComesBackWhole() throws {
        var cache = try open()
        for round in 0..<3 {
            for number in 0..<300 {
                #expect(
                    cache.set(
                        "k\(number)", Pool.random.value(UInt64(number * 10 + round), 200), SetOptions(meta: "\(round)"))
                        == .ok)
            }
        }
        #expect(cache.evict(150) == (.ok, 150))
        cache = try rebuild(cache)
        for number in 0..<300 {
            let found = cache.get("k\(number)")
            if number >= 150 { #expect(found.status == .ok) }
            if found.status == .ok {
                #expect(found.value == Pool.random.value(UInt64(number * 10 + 2), 200) && found.meta == "2".bytes)
            }
        }
    }

    @Test("A touch holds through the cleaning of its value, of itself, and through rebuilds between")
    func touchedThroughCleaning() throws {
        var cache = try open()
        var versions: [UInt64] = []
        for number in 0..<100 {
            versions.append(
                cache.store(
                    "k\(number)", Pool.random.value(UInt64(number), 200),
                    SetOptions(maxAge: 1_000, stale: 500, meta: "m", tags: ["t\(number % 2)"])
                ).version)
        }
        for number in 0..<100 where number % 4 == 0 { #expect(cache.touch("k\(number)", 50_000) == .ok) }
        for number in 0..<100 where number % 4 == 1 { #expect(cache.touch("k\(number)", 10) == .ok) }
        let start = clock.now
        func check(_ comment: String) {
            for number in 0..<100 {
                let found = cache.peek("k\(number)")
                let age: Int64 = number % 4 == 0 ? 50_000 : number % 4 == 1 ? 10 : 1_000
                #expect(found.status == .ok, "k\(number) \(comment)")
                #expect(found.expires == start + age, "k\(number) \(comment)")
                #expect(found.version == versions[number], "k\(number) \(comment)")
                #expect(
                    found.value == Pool.random.value(UInt64(number), 200) && found.meta == "m".bytes,
                    "k\(number) \(comment)")
            }
        }
        check("at first")
        for round in 0..<12 {
            wrap(cache, bytes: 250_000)
            for number in 0..<100 { _ = cache.get("k\(number)") }
            check("after \(round + 1) quarters of a lap")
            cache = try rebuild(cache)
            check("after \(round + 1) quarters of a lap and a rebuild")
        }
        // Touched again after cleaning.
        for number in 0..<100 where number % 4 == 1 { #expect(cache.touch("k\(number)", 10) == .ok) }
        wrap(cache)
        clock.advance(10)
        for number in 0..<100 { #expect(cache.get("k\(number)").status == (number % 4 == 1 ? .miss : .ok)) }
        clock.advance(990)
        for number in 0..<100 { #expect(cache.get("k\(number)").status == (number % 4 == 0 ? .ok : .miss)) }
        #expect(cache.invalidate("t0") == .ok)
        cache = try rebuild(cache)
        for number in 0..<100 { #expect(cache.get("k\(number)").status == .miss, "k\(number)") }
    }

    @Test("A touch of an overwritten, removed or evicted value does not come back alone")
    func orphanedTouches() throws {
        var cache = try open()
        for number in 0..<60 {
            cache.set("k\(number)", "old", .age(1_000_000))
            cache.touch("k\(number)", 2_000_000)
        }
        for number in 0..<20 { cache.set("k\(number)", "new", .age(100)) }
        for number in 20..<40 { cache.remove("k\(number)") }
        #expect(cache.evict(20) == (.ok, 20))
        clock.advance(100)
        var misses = 0
        for round in 0..<3 {
            cache = try rebuild(cache)
            for number in 0..<40 { #expect(cache.get("k\(number)").status == .miss, "k\(number), round \(round)") }
            for number in 40..<60 {
                // Evicted entries are misses or are back, but nothing else: recovery.md, "A power failure". The keys
                // above do without.
                let found = cache.get("k\(number)")
                if found.status == .miss {
                    misses += 1
                } else {
                    #expect(found.text == "old", "k\(number), round \(round)")
                }
            }
            wrap(cache)
        }
        print("orphaned touches: tolerances in \(3 * 20) looks: evicted \(misses)")
    }

    @Test("Expired entries stay expired after a rebuild, wherever their records lie")
    func expiredStayExpired() throws {
        var cache = try open()
        for number in 0..<200 {
            cache.set("k\(number)", "older", .age(never))
            cache.set("k\(number)", Pool.random.value(UInt64(number), 200), .age(number % 2 == 0 ? 50 : 100_000))
        }
        clock.advance(50)
        for round in 0..<8 {
            if round == 4 { #expect(cache.purge().status == .ok) }
            cache = try rebuild(cache)
            for number in 0..<200 {
                #expect(cache.holds("k\(number)") == (number % 2 != 0), "k\(number), round \(round)")
            }
            wrap(cache, bytes: 400_000)
            for number in 0..<200 { _ = cache.get("k\(number)") }
        }
    }

    @Test("Tags match their entries wherever cleaning has put them, before and after a rebuild")
    func tagsThroughCleaning() throws {
        var cache = try open()
        for round in 0..<6 {
            for number in 0..<100 {
                cache.set(
                    "\(round) \(number)", Pool.random.value(UInt64(number), 100),
                    .tagged("t\(number % 3)", "round \(round)"))
            }
            wrap(cache, bytes: 300_000)
            for earlier in 0...round { for number in 0..<100 { _ = cache.get("\(earlier) \(number)") } }
            if round % 2 == 0 { cache = try rebuild(cache) }
            #expect(cache.invalidate("t\(round % 3)") == .ok)
            if round % 2 == 1 { cache = try rebuild(cache) }
            for earlier in 0...round {
                for number in 0..<100 {
                    // An entry is dead once its tag was invalidated in its own round or later.
                    let dead = (earlier...round).contains { $0 % 3 == number % 3 }
                    #expect(cache.holds("\(earlier) \(number)") == !dead, "\(earlier) \(number) in round \(round)")
                }
            }
        }
    }

    @Test("Increments continue from the last result after a rebuild, however often the log wraps")
    func increments() throws {
        var cache = try open()
        var expected = [Int64](repeating: 0, count: 10)
        var versions: Set<UInt64> = []
        for round in 0..<10 {
            for step in 0..<500 {
                let number = step % 10
                expected[number] += Int64(number + 1)
                #expect(cache.increment("n\(number)", by: Int64(number + 1)) == (.ok, expected[number]))
                #expect(versions.insert(cache.peek("n\(number)").version).inserted)
            }
            wrap(cache, bytes: 500_000)
            for number in 0..<10 { _ = cache.get("n\(number)") }
            if round % 2 == 0 { cache = try rebuild(cache) }
            for number in 0..<10 { #expect(integer(cache.peek("n\(number)").value) == expected[number]) }
        }
    }

    @Test("Records planted inside values are never taken for records")
    func plantedRecords() throws {
        var cache = try open()
        // Genuine records, so that the copies are as good as copies can be.
        for number in 0..<200 { cache.set("victim \(number)", "planted \(number)", .tagged("t")) }
        for number in 0..<50 { cache.touch("victim \(number)", 1_000_000_000) }
        for number in 0..<200 { cache.remove("victim \(number)") }
        cache.set("bystander", "v")
        cache.close()
        let data = try contents(of: files.data).bytes
        cache = try open()
        // The whole file as values, in pieces that begin at every alignment.
        let size = 100_000
        for start in stride(from: 0, to: data.count, by: size) {
            let piece = Array(data[start..<min(start + size, data.count)])
            guard piece.contains(where: { $0 != 0 }) else { continue }
            for shift in 0..<8 {
                #expect(
                    cache.set(
                        "carrier \(shift % 3)", Array(piece.dropFirst(shift)),
                        SetOptions(meta: Array(piece.prefix(1_000)))) == .ok)
                _ = cache.get("bystander")
            }
        }
        for _ in 0..<2 {
            cache = try rebuild(cache)
            for number in 0..<200 { #expect(!cache.holds("victim \(number)"), "victim \(number) was planted") }
            let keys = try Set(cache.entries().keys)
            #expect(keys.isSubset(of: Set(["carrier 0", "carrier 1", "carrier 2", "bystander"].map(\.bytes))))
            #expect(cache.text("bystander") == "v")
            #expect(try cache.stats().corrupt_records == 0)
        }
    }

    @Test("Segments copied to other places of the data file are never taken for the log")
    func swappedSegments() throws {
        var cache = try open()
        for number in 0..<2_000 { #expect(cache.set("k\(number)", Pool.random.value(UInt64(number), 200)) == .ok) }
        cache.close()
        // Copy the half with the oldest records over the other: records that verified there do not verify here.
        let data = try contents(of: files.data).bytes
        let half = data.count / 2 & ~4095
        try patch(files.data, at: half, with: Array(data[half - 65_536..<half]))
        try files.removeIndex()
        do {
            cache = try open()
        } catch {
            Issue.record("a damaged segment makes the cache unusable: \(error)")
            return
        }
        for (key, entry) in try cache.entries() {
            let number = UInt64(String(decoding: key.dropFirst(), as: UTF8.self))!
            #expect(entry.value == Pool.random.value(number, 200), "k\(number)")
        }
        #expect(cache.set("new", "v") == .ok)
        #expect(cache.text("new") == "v")
    }

    @Test("Clear holds through rebuilds although its records are still in the file")
    func clearThroughRebuild() throws {
        var cache = try open()
        for round in 0..<8 {
            for number in 0..<300 {
                #expect(cache.set("\(round) \(number)", Pool.random.value(UInt64(number), 300)) == .ok)
            }
            #expect(cache.clear() == .ok)
            #expect(cache.set("kept \(round)", "v") == .ok)
            cache = try rebuild(cache)
            #expect(try Set(cache.entries().keys) == ["kept \(round)".bytes])
        }
    }

    @Test("Pins hold through cleaning and rebuilds")
    func pinsThroughRebuild() throws {
        var cache = try open()
        for number in 0..<50 {
            #expect(cache.set("pinned \(number)", Pool.random.value(UInt64(number), 500), .pinned) == .ok)
        }
        for number in 0..<50 where number % 5 == 0 { #expect(cache.set("pinned \(number)", "not any more") == .ok) }
        for number in 0..<50 where number % 5 == 1 { #expect(cache.touch("pinned \(number)", 1_000_000) == .ok) }
        for round in 0..<4 {
            wrap(cache, bytes: 3 << 20, size: 2_000, keys: 5_000)
            if round % 2 == 0 { cache = try rebuild(cache) }
            for number in 0..<50 where number % 5 != 0 {
                let found = cache.peek("pinned \(number)")
                #expect(
                    found.isPinned && found.value == Pool.random.value(UInt64(number), 500),
                    "\(number) in round \(round)")
            }
        }
        for number in 0..<50 where number % 5 == 0 { #expect(!cache.holds("pinned \(number)")) }
    }
}
