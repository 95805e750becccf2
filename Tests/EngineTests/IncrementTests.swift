import CShale
import ShaleTestSupport
import Testing

/// Counters: 8 bytes, little-endian, two's complement.
@Suite("Increment")
struct IncrementTests {
    let directory = TemporaryDirectory()
    let clock = TestClock()
    let cache: TestCache

    init() throws { cache = try TestCache(directory.path, Options(capacity: 1 << 20, maxAge: 1_000, clock: clock)) }

    @Test("A missing key starts from the initial value, then the delta is added")
    func missing() {
        #expect(cache.increment("k", by: 5, from: 100) == (.ok, 105))
        #expect(cache.get("k").value == 105.littleEndianBytes)
        #expect(cache.get("k").expires == clock.now + 1_000)
        #expect(cache.increment("k", by: -6, from: 100) == (.ok, 99))
        #expect(cache.increment("k", by: 0, from: 100) == (.ok, 99))
    }

    @Test("A value that set wrote can be incremented, and the other way round")
    func mixed() {
        cache.set("k", Int64(-1).littleEndianBytes)
        #expect(cache.increment("k", by: 1) == (.ok, 0))
        cache.set("k", Int64.min.littleEndianBytes)
        #expect(cache.increment("k", by: 1) == (.ok, .min + 1))
        #expect(cache.get("k").value == (Int64.min + 1).littleEndianBytes)
    }

    @Test("Age, tags, meta and pin of an existing entry stay; the version changes")
    func rest() {
        let (_, version) = cache.store(
            "k", 1.littleEndianBytes,
            SetOptions(flags: SHALE_SET_PINNED, maxAge: 500, stale: 70, meta: "m", tags: ["t"]))
        let expires = clock.now + 500
        clock.advance(100)
        #expect(cache.increment("k", by: 1) == (.ok, 2))
        let found = cache.get("k")
        #expect(found.expires == expires)
        #expect(found.meta == "m".bytes)
        #expect(found.isPinned)
        #expect(found.version != version)
        clock.set(expires + 69)
        #expect(cache.get("k", SHALE_GET_STALE).status == .stale)
        clock.advance(1)
        #expect(cache.get("k", SHALE_GET_STALE).status == .miss)

        cache.set("l", 1.littleEndianBytes, .tagged("t"))
        #expect(cache.increment("l", by: 1) == (.ok, 2))
        cache.invalidate("t")
        #expect(cache.get("l").status == .miss)
    }

    @Test("An increment after an invalidation starts again, without the old tags")
    func afterInvalidation() {
        cache.set("k", 50.littleEndianBytes, .tagged("t"))
        cache.invalidate("t")
        #expect(cache.increment("k", by: 1) == (.ok, 1))
        cache.invalidate("t")
        #expect(cache.get("k").status == .ok)
    }

    @Test("An expired counter starts again")
    func expired() {
        cache.set("k", 50.littleEndianBytes, .age(10))
        clock.advance(10)
        #expect(cache.increment("k", by: 1, from: 7) == (.ok, 8))
        #expect(cache.get("k").expires == clock.now + 1_000)
    }

    @Test("A stale counter counts as absent: a plain get would miss it")
    func stale() {
        cache.set("k", 50.littleEndianBytes, SetOptions(maxAge: 10, stale: 1_000_000, meta: "m", tags: ["t"]))
        clock.advance(10)
        #expect(cache.get("k", SHALE_GET_STALE).status == .stale)
        #expect(cache.increment("k", by: 1, from: 7) == (.ok, 8))
        #expect(cache.get("k").expires == clock.now + 1_000)
        #expect(cache.get("k").meta.isEmpty)
        cache.invalidate("t")
        #expect(cache.get("k").status == .ok)
    }

    @Test("A value of another size is invalid and stays", arguments: [0, 1, 7, 9, 1_000])
    func otherSize(size: Int) {
        let value = Pool.random.value(1, size)
        let (_, version) = cache.store("k", value)
        #expect(cache.increment("k", by: 1).status == .invalid)
        #expect(!lastError().isEmpty)
        #expect(cache.get("k").value == value)
        #expect(cache.get("k").version == version)
    }

    @Test("An overflow either way is invalid and changes nothing")
    func overflow() {
        cache.set("max", Int64.max.littleEndianBytes)
        cache.set("min", Int64.min.littleEndianBytes)
        #expect(cache.increment("max", by: 1).status == .invalid)
        #expect(cache.increment("min", by: -1).status == .invalid)
        #expect(cache.increment("max", by: .max).status == .invalid)
        #expect(cache.increment("min", by: .min).status == .invalid)
        #expect(integer(cache.get("max").value) == .max)
        #expect(integer(cache.get("min").value) == .min)
        #expect(cache.increment("absent", by: 1, from: .max).status == .invalid)
        #expect(!cache.holds("absent"))
        #expect(cache.increment("max", by: .min) == (.ok, -1))
    }

    @Test("No increment is lost between threads")
    func threads() {
        let cache = cache
        let findings = Findings()
        concurrently(4) { number in
            for _ in 0..<5_000 {
                let (status, _) = cache.increment("shared", by: Int64(number + 1))
                if status != .ok { findings.add("\(status): \(lastError())") }
            }
        }
        #expect(findings.all == [])
        let sum: Int64 = 5_000 * (1 + 2 + 3 + 4)
        #expect(integer(cache.get("shared").value) == sum)
        #expect(cache.increment("shared", by: 0) == (.ok, sum))
    }

    @Test("An increment is a use: the entry becomes the newest")
    func recency() throws {
        let cache = try TestCache(nil, Options(capacity: 1 << 20, maxEntries: 2))
        cache.set("a", 1.littleEndianBytes)
        cache.set("b", 1.littleEndianBytes)
        #expect(cache.increment("a", by: 1) == (.ok, 2))
        cache.set("c", "v")
        #expect(cache.holds("a"))
        #expect(!cache.holds("b"))
    }

    @Test("A counter survives a reopen and a rebuild with its last value, age and meta", arguments: [false, true])
    func acrossReopen(rebuild: Bool) throws {
        let place = directory.path("counters")
        let options = Options(capacity: 1 << 20, clock: clock)
        do {
            let cache = try TestCache(place, options)
            cache.set("k", 0.littleEndianBytes, SetOptions(maxAge: 5_000, meta: "m"))
            for _ in 0..<1_000 { #expect(cache.increment("k", by: 3).status == .ok) }
            cache.close()
        }
        if rebuild { try CacheFiles(place).removeIndex() }
        let cache = try TestCache(place, options)
        #expect(integer(cache.get("k").value) == 3_000)
        #expect(cache.get("k").expires == clock.now + 5_000)
        #expect(cache.get("k").meta == "m".bytes)
        #expect(cache.increment("k", by: 1) == (.ok, 3_001))
    }
}
