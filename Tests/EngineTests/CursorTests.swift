import CShale
import ShaleTestSupport
import Testing

/// A walk returns every entry that lives throughout, whatever happens meanwhile.
@Suite("Cursor")
struct CursorTests {
    let directory = TemporaryDirectory()

    @Test("A walk of an idle cache returns every entry once, with all its properties", arguments: [0, 1, 10, 5_000])
    func everything(count: Int) throws {
        let cache = try TestCache(directory.path, Options(capacity: 16 << 20))
        for number in 0..<count {
            #expect(cache.set("k\(number)", "value \(number)", SetOptions(meta: "m\(number)")) == .ok)
        }
        var seen: [[UInt8]: Lookup] = [:]
        try cache.walk { key, entry in
            #expect(seen.updateValue(entry, forKey: key) == nil, "\(key) came twice")
        }
        #expect(seen.count == count)
        for number in 0..<count { #expect(seen["k\(number)".bytes] == cache.get("k\(number)")) }
    }

    @Test("A walk omits stale entries by default, expired ones always")
    func stale() throws {
        let clock = TestClock()
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, clock: clock))
        cache.set("fresh", "v")
        cache.set("stale", "v", .age(10, stale: 10))
        cache.set("expired", "v", .age(10))
        cache.set("removed", "v")
        cache.remove("removed")
        cache.set("tagged", "v", .tagged("t"))
        cache.invalidate("t")
        clock.advance(10)
        #expect(try Set(cache.entries(0).keys) == ["fresh".bytes])
        let all = try cache.entries(SHALE_GET_STALE)
        #expect(Set(all.keys) == ["fresh".bytes, "stale".bytes])
        #expect(all["fresh".bytes]?.status == .ok)
        #expect(all["stale".bytes]?.status == .stale)
        #expect(all["stale".bytes]?.isStale == true)
    }

    @Test("With GET_INFO a walk gives sizes and no bytes")
    func info() throws {
        let cache = try TestCache(directory.path, Options(capacity: 16 << 20, segmentSize: 128 << 10))
        cache.set("k", Pool.text.value(1, 5_000), SetOptions(meta: "meta"))
        cache.set("large", Pool.random.value(1, 1_000_000))
        let plain = try cache.entries(0)
        let info = try cache.entries(SHALE_GET_INFO)
        #expect(Set(info.keys) == Set(plain.keys))
        for (key, entry) in info {
            #expect(entry.value.isEmpty)
            #expect(entry.size == plain[key]?.value.count)
            #expect(entry.meta == plain[key]?.meta)
            #expect(entry.version == plain[key]?.version)
            #expect(entry.storedSize == plain[key]?.storedSize)
        }
    }

    @Test("Parts of large values are not entries")
    func largeValues() throws {
        let cache = try TestCache(directory.path, Options(capacity: 16 << 20, segmentSize: 128 << 10))
        for number in 0..<4 {
            #expect(cache.set("large \(number)", Pool.random.value(UInt64(number), 1_500_000)) == .ok)
        }
        #expect(try cache.stats().entries == 4)
        let entries = try cache.entries()
        #expect(entries.count == 4)
        for number in 0..<4 {
            #expect(entries["large \(number)".bytes]?.value == Pool.random.value(UInt64(number), 1_500_000))
        }
    }

    @Test("Key and value may be NULL, and the end stays the end")
    func nullOutputs() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        for number in 0..<10 { cache.set("k\(number)", "v") }
        var cursor: OpaquePointer?
        #expect(Status(shale_cursor_open(cache.handle, &cursor)) == .ok)
        let key = ValueBuffer()
        var count = 0
        var keys: Set<[UInt8]> = []
        while true {
            let status =
                count % 2 == 0
                ? Status(shale_cursor_next(cursor, 0, nil, nil)) : Status(shale_cursor_next(cursor, 0, &key.raw, nil))
            if status == .end { break }
            #expect(status == .ok)
            if count % 2 == 1 { keys.insert(Array(key.bytes)) }
            count += 1
            if count > 100 { break }
        }
        #expect(count == 10)
        #expect(keys.count == 5)
        #expect(Status(shale_cursor_next(cursor, 0, nil, nil)) == .end)
        shale_cursor_close(cursor)
    }

    @Test("A walk changes neither the order of use nor the counters")
    func noTrace() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, maxEntries: 10))
        for number in 0..<10 { cache.set("k\(number)", "v") }
        let before = try cache.stats()
        for _ in 0..<5 { #expect(try cache.entries().count == 10) }
        let after = try cache.stats()
        #expect(before.hits == after.hits && before.misses == after.misses)
        cache.set("new", "v")
        #expect(!cache.holds("k0"))
        #expect(cache.holds("k1"))
    }

    @Test("The entry at the cursor may be removed and set")
    func changesDuringWalk() throws {
        let cache = try TestCache(directory.path, Options(capacity: 4 << 20))
        for number in 0..<2_000 { cache.set("k\(number)", "v") }
        var met: Set<[UInt8]> = []
        try cache.walk { key, entry in
            met.insert(key)
            if key.last! % 2 == 0 {
                #expect(cache.remove(key) != .conflict)
            } else if entry.text == "v" {
                #expect(cache.set(key, "w") == .ok)
            }
        }
        #expect(met.count == 2_000)
        let left = try cache.entries()
        #expect(left.count == met.count { $0.last! % 2 != 0 })
        #expect(left.values.allSatisfy { $0.text == "w" })
    }

    @Test(
        "What lives throughout comes once while other threads make the table grow and shrink",
        arguments: [1, 4] as [UInt32])
    func growthDuringWalks(shards: UInt32) throws {
        let cache = try TestCache(directory.path, Options(capacity: 48 << 20, shards: shards))
        let lasting = 2_000
        for number in 0..<lasting { #expect(cache.set("lasting \(number)", "\(number)") == .ok) }
        let stop = Flag()
        let findings = Findings()
        concurrently(3) { thread in
            if thread == 0 {
                // Grow from 2,000 to 42,000, take it back, and again.
                for round in 0..<2 {
                    for number in 0..<40_000 {
                        let status = cache.set("guest \(number)", "\(round)")
                        if status != .ok { findings.add("a set answered \(status): \(lastError())") }
                    }
                    for number in 0..<40_000 where cache.remove("guest \(number)") != .ok {
                        findings.add("guest \(number) was lost")
                    }
                }
                stop.raise()
            } else {
                repeat {
                    var met: Set<[UInt8]> = []
                    do {
                        try cache.walk(thread == 1 ? SHALE_GET_INFO : 0) { key, entry in
                            if !met.insert(key).inserted { findings.add("\(key) came twice") }
                            guard key.starts(with: "lasting ".utf8) else { return }
                            if thread == 2, !key.elementsEqual("lasting \(entry.text ?? "")".utf8) {
                                findings.add("\(key) has the value \(entry)")
                            }
                        }
                    } catch {
                        findings.add("a walk failed: \(error)")
                    }
                    let lasted = met.count { $0.starts(with: "lasting ".utf8) }
                    if lasted != lasting { findings.add("a walk met \(lasted) of \(lasting)") }
                } while !stop.isRaised && findings.isEmpty
            }
        }
        #expect(findings.all == [])
    }

    @Test("A walk ends although entries are inserted all the time")
    func terminates() throws {
        let cache = try TestCache(directory.path, Options(capacity: 16 << 20))
        var number = 0
        for _ in 0..<100 {
            cache.set("k\(number)", "v")
            number += 1
        }
        var steps = 0
        try cache.walk(SHALE_GET_INFO) { _, _ in
            steps += 1
            for _ in 0..<3 where number < 50_000 {
                cache.set("k\(number)", "v")
                number += 1
            }
        }
        #expect(steps >= 100)
    }

    /// Entries that stay, and others that were set and removed: so many that the table has to shrink.
    private func fill(_ cache: TestCache, _ lasting: Int, _ guests: Int) {
        for number in 0..<lasting { #expect(cache.set("lasting \(number)", "v") == .ok) }
        for number in 0..<guests { #expect(cache.set("guest \(number)", "v") == .ok) }
        for number in 0..<guests { #expect(cache.remove("guest \(number)") == .ok) }
    }

    @Test(
        "What lives throughout comes once, also where the table grows or shrinks at each step of the walk",
        arguments: [false, true])
    func once(grows: Bool) throws {
        let cache = try TestCache(directory.path, Options(capacity: 16 << 20))
        // Enough to make the table shrink when they are removed, or grow when others come.
        let lasting = grows ? 3_000 : 1_500, guests = grows ? 0 : 30_000
        fill(cache, lasting, guests)
        var times: [[UInt8]: Int] = [:]
        var steps = 0
        try cache.walk(SHALE_GET_INFO) { key, _ in
            steps += 1
            guard steps < lasting * 20 else { return } // one that never ends otherwise
            if key.starts(with: "lasting ".utf8) { times[key, default: 0] += 1 }
            cache.set("new \(steps)", "v")
            if !grows { cache.remove("new \(steps)") }
        }
        #expect(times.count == lasting)
        #expect(times.values.reduce(0, +) == lasting)
    }

    @Test(
        "A walk of a table that is being resized returns every entry once, at any stage",
        arguments: [false, true])
    func eachStep(grows: Bool) throws {
        let cache = try TestCache(directory.path, Options(capacity: 16 << 20))
        let lasting = grows ? 800 : 300, guests = grows ? 0 : 4_000
        fill(cache, lasting, guests)
        // Each insertion lays out eight buckets; in all it takes a few hundred until the table fits.
        for step in 0..<(grows ? 200 : 600) {
            #expect(cache.set("new \(step)", "v") == .ok)
            if !grows { #expect(cache.remove("new \(step)") == .ok) }
            var times: [[UInt8]: Int] = [:]
            try cache.walk(SHALE_GET_INFO) { key, _ in times[key, default: 0] += 1 }
            try #require(
                times.count == lasting + (grows ? step + 1 : 0) && times.values.allSatisfy { $0 == 1 },
                "after \(step + 1) insertions")
        }
    }

    @Test("Several cursors on one handle do not disturb each other")
    func severalCursors() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        for number in 0..<50 { cache.set("k\(number)", "v") }
        var outer = 0
        var inner = 0
        try cache.walk { _, _ in
            outer += 1
            try cache.walk { _, _ in inner += 1 }
        }
        #expect(outer == 50)
        #expect(inner == 2_500)
    }
}
