import CShale
import ShaleTestSupport
import Testing

/// Conditional sets, conditional removals, and the versions that they compare.
@Suite("Conditions and versions")
struct ConditionTests {
    let directory = TemporaryDirectory()
    let clock = TestClock()
    let cache: TestCache

    init() throws { cache = try TestCache(directory.path, Options(capacity: 1 << 20, clock: clock)) }

    @Test("IF_ABSENT sets only if a plain get would miss")
    func ifAbsent() {
        #expect(cache.set("k", "first", .ifAbsent) == .ok)
        #expect(cache.set("k", "second", .ifAbsent) == .conflict)
        #expect(cache.text("k") == "first")
        #expect(cache.remove("k") == .ok)
        #expect(cache.set("k", "third", .ifAbsent) == .ok)
        #expect(cache.text("k") == "third")
    }

    @Test("IF_ABSENT replaces a stale entry and an expired one")
    func ifAbsentStale() {
        cache.set("k", "old", .age(10, stale: 10))
        clock.advance(9)
        #expect(cache.set("k", "new", .ifAbsent) == .conflict)
        clock.advance(1)
        #expect(cache.set("k", "new", .ifAbsent) == .ok)
        #expect(cache.text("k") == "new")
        cache.set("l", "old", .age(10))
        clock.advance(10)
        #expect(cache.set("l", "new", .ifAbsent) == .ok)
        #expect(cache.text("l") == "new")
    }

    @Test("IF_PRESENT sets only if a plain get would hit")
    func ifPresent() {
        #expect(cache.set("k", "v", .ifPresent) == .conflict)
        #expect(!cache.holds("k"))
        cache.set("k", "old", .age(10, stale: 10))
        #expect(cache.set("k", "new", SetOptions(flags: SHALE_SET_IF_PRESENT, maxAge: 10, stale: 10)) == .ok)
        #expect(cache.text("k") == "new")
        clock.advance(10)
        #expect(cache.set("k", "newer", .ifPresent) == .conflict)
        #expect(cache.get("k", SHALE_GET_STALE).text == "new")
    }

    @Test("IF_VERSION sets only over that version, stale or fresh")
    func ifVersion() {
        let first = cache.store("k", "first", .age(10, stale: 10))
        #expect(first.status == .ok)
        #expect(cache.get("k").version == first.version)
        let second = cache.store(
            "k", "second", SetOptions(flags: SHALE_SET_IF_VERSION, maxAge: 10, stale: 10, version: first.version))
        #expect(second.status == .ok)
        #expect(second.version != first.version)
        #expect(cache.set("k", "third", .ifVersion(first.version)) == .conflict)
        #expect(cache.text("k") == "second")
        clock.advance(10)
        #expect(cache.set("k", "third", .ifVersion(second.version)) == .ok)
        #expect(cache.text("k") == "third")
    }

    @Test("IF_VERSION conflicts with a dead entry")
    func ifVersionDead() {
        let expired = cache.store("expired", "v", .age(10)).version
        let removed = cache.store("removed", "v").version
        clock.advance(10)
        cache.remove("removed")
        #expect(cache.set("expired", "w", .ifVersion(expired)) == .conflict)
        #expect(cache.set("removed", "w", .ifVersion(removed)) == .conflict)
        #expect(cache.set("absent", "w", .ifVersion(1)) == .conflict)
        #expect(!cache.holds("expired") && !cache.holds("removed") && !cache.holds("absent"))
    }

    @Test("A conflict changes nothing: not the value, the age, the meta, the order of use, the counters of sets")
    func conflictChangesNothing() throws {
        let cache = try TestCache(nil, Options(capacity: 1 << 20, maxEntries: 3))
        for key in ["a", "b", "c"] { cache.set(key, "v", SetOptions(maxAge: 1_000_000, meta: "m")) }
        let before = cache.peek("a")
        let sets = try cache.stats().sets
        #expect(cache.set("a", "w", SetOptions(flags: SHALE_SET_IF_ABSENT, meta: "n", tags: ["t"])) == .conflict)
        #expect(cache.peek("a") == before)
        #expect(try cache.stats().sets == sets)
        cache.set("d", "v")
        #expect(["a", "b", "c", "d"].map { cache.holds($0) } == [false, true, true, true])
    }

    @Test("Every set gives a new, unique version")
    func versionsAreUnique() {
        var seen: Set<UInt64> = []
        for round in 0..<2_000 {
            let (status, version) = cache.store("k\(round % 7)", "v")
            #expect(status == .ok)
            #expect(seen.insert(version).inserted)
            #expect(cache.get("k\(round % 7)").version == version)
        }
    }

    @Test("Versions stay new after removal, clear, reopen and rebuild")
    func versionsNeverReturn() throws {
        let place = directory.path("versions")
        var cache = try TestCache(place, Options(capacity: 1 << 20))
        var seen: Set<UInt64> = []
        func setAgain(_ times: Int = 10) {
            for _ in 0..<times {
                let version = cache.store("k", "v").version
                #expect(seen.insert(version).inserted, "version \(version) came twice")
            }
        }
        func rebuild() throws {
            cache.close()
            try CacheFiles(place).removeIndex()
            cache = try TestCache(place)
        }
        setAgain()
        cache.remove("k")
        setAgain()
        cache.clear()
        setAgain()
        cache.close()
        cache = try TestCache(place)
        setAgain()
        try rebuild()
        #expect(seen.contains(cache.get("k").version))
        setAgain()
        // Now the log has nothing left that shows the largest version.
        cache.clear()
        try rebuild()
        setAgain(1_000)
        cache.remove("k")
        try rebuild()
        setAgain(1_000)
    }

    @Test("A removal by version removes only that version")
    func removeVersion() {
        let first = cache.store("k", "first").version
        let second = cache.store("k", "second").version
        #expect(cache.remove("k", version: first) == .conflict)
        #expect(cache.text("k") == "second")
        #expect(cache.remove("k", version: second) == .ok)
        #expect(cache.remove("k", version: second) == .miss)
        #expect(cache.remove("k") == .miss)
    }

    @Test("A stale entry can be removed, an expired one is a miss")
    func removeStale() {
        cache.set("k", "v", .age(10, stale: 10))
        clock.advance(10)
        #expect(cache.remove("k") == .ok)
        #expect(cache.get("k", SHALE_GET_STALE).status == .miss)
        cache.set("k", "v", .age(10, stale: 10))
        clock.advance(20)
        #expect(cache.remove("k") == .miss)
    }

    @Test("With two threads that compare and swap, every success is one step", arguments: [2, 4])
    func compareAndSwap(threads: Int) throws {
        cache.set("k", 0.littleEndianBytes)
        let rounds = 2_000
        let findings = Findings()
        let cache = cache
        concurrently(threads) { _ in
            for _ in 0..<rounds {
                while true {
                    let found = cache.get("k")
                    guard found.status == .ok, let number = integer(found.value) else {
                        findings.add("the counter is \(found)")
                        return
                    }
                    let status = cache.set("k", (number + 1).littleEndianBytes, .ifVersion(found.version))
                    if status == .ok { break }
                    if status != .conflict { findings.add("a set answered \(status): \(lastError())") }
                }
            }
        }
        #expect(findings.all == [])
        #expect(integer(cache.get("k").value) == Int64(threads * rounds))
    }

    @Test("Of many threads that set IF_ABSENT at once exactly one succeeds")
    func oneWinner() {
        let cache = cache
        for round in 0..<200 {
            let winners = Counter()
            concurrently(4) { number in
                if cache.set("k\(round)", "\(number)", .ifAbsent) == .ok { winners.increment() }
            }
            #expect(winners.count == 1)
        }
    }
}
