import CShale
import ShaleTestSupport
import Testing

/// Fresh until created + max age, then stale for callers that ask for it, then dead: to the millisecond, with a clock
/// that the test moves.
@Suite("Ages")
struct AgeTests {
    let directory = TemporaryDirectory()
    let clock = TestClock()

    private func open(maxAge: Int64 = 0, stale: Int64 = 0) throws -> TestCache {
        try TestCache(directory.path, Options(capacity: 2 << 20, maxAge: maxAge, stale: stale, clock: clock))
    }

    private func status(_ cache: TestCache, _ key: String, stale: Bool = false) -> Status {
        cache.get(key, stale ? SHALE_GET_STALE : 0).status
    }

    /// Ages around the places where a stored form could round: seconds, the
    /// index's 64-second units, days, years.
    @Test(
        "An entry is fresh to its last millisecond and not one longer",
        arguments: [
            1, 2, 999, 1_000, 1_001, 63_999, 64_000, 64_001, 100_000, 128_000, 86_400_000, 31_536_000_000,
        ] as [Int64])
    func exactAge(age: Int64) throws {
        let cache = try open()
        #expect(cache.set("k", "v", .age(age)) == .ok)
        #expect(cache.get("k").created == clock.now)
        #expect(cache.get("k").expires == clock.now + age)
        clock.advance(age - 1)
        #expect(status(cache, "k") == .ok)
        clock.advance(1)
        #expect(status(cache, "k") == .miss)
        #expect(status(cache, "k", stale: true) == .miss)
    }

    @Test(
        "A stale entry is served to callers that accept it, to its last millisecond",
        arguments: [1, 1_000, 64_000, 100_001] as [Int64])
    func exactStalePeriod(stale: Int64) throws {
        let cache = try open()
        #expect(cache.set("k", "v", .age(500, stale: stale)) == .ok)
        clock.advance(499)
        let fresh = cache.get("k", SHALE_GET_STALE)
        #expect(fresh.status == .ok && !fresh.isStale)
        clock.advance(1)
        #expect(status(cache, "k") == .miss)
        let old = cache.get("k", SHALE_GET_STALE)
        #expect(old.status == .stale && old.isStale && old.text == "v")
        #expect(old.expires == clock.now)
        clock.advance(stale - 1)
        #expect(status(cache, "k", stale: true) == .stale)
        clock.advance(1)
        #expect(status(cache, "k", stale: true) == .miss)
    }

    @Test("A max age of none is stale at once; kept or not as its stale age says")
    func noAge() throws {
        let cache = try open()
        #expect(cache.set("kept", "v", .age(none, stale: 10)) == .ok)
        #expect(status(cache, "kept") == .miss)
        #expect(cache.get("kept", SHALE_GET_STALE).text == "v")
        #expect(cache.get("kept", SHALE_GET_STALE).expires == clock.now)
        clock.advance(10)
        #expect(status(cache, "kept", stale: true) == .miss)
        #expect(cache.set("dead", "v", .age(none, stale: none)) == .ok)
        #expect(status(cache, "dead", stale: true) == .miss)
    }

    @Test("An age of never does not end, and a stale age of never keeps for ever")
    func neverAges() throws {
        let cache = try open()
        #expect(cache.set("fresh", "v", .age(never)) == .ok)
        #expect(cache.set("stale", "v", .age(1, stale: never)) == .ok)
        clock.advance(200 * 365 * 86_400_000)
        #expect(cache.get("fresh").expires == never)
        #expect(status(cache, "fresh") == .ok)
        #expect(status(cache, "stale", stale: true) == .stale)
    }

    @Test("Without ages an entry never expires")
    func noDefaults() throws {
        let cache = try open()
        #expect(cache.set("k", "v") == .ok)
        #expect(cache.get("k").expires == never)
        clock.advance(200 * 365 * 86_400_000)
        #expect(status(cache, "k") == .ok)
    }

    @Test("The cache's default ages hold for entries without their own, and an entry's own win")
    func defaults() throws {
        let cache = try open(maxAge: 100, stale: 50)
        #expect(cache.set("default", "v") == .ok)
        #expect(cache.set("longer", "v", .age(1_000)) == .ok)
        #expect(cache.set("shorter", "v", .age(10, stale: 10)) == .ok)
        #expect(cache.set("never", "v", .age(never)) == .ok)
        #expect(cache.set("not kept", "v", .age(0, stale: none)) == .ok)
        clock.advance(20)
        #expect(status(cache, "shorter", stale: true) == .miss)
        clock.advance(79)
        #expect(status(cache, "default") == .ok)
        clock.advance(1)
        #expect(status(cache, "default") == .miss)
        #expect(status(cache, "default", stale: true) == .stale)
        #expect(status(cache, "not kept", stale: true) == .miss)
        clock.advance(50)
        #expect(status(cache, "default", stale: true) == .miss)
        clock.advance(850)
        #expect(status(cache, "longer") == .miss)
        #expect(status(cache, "longer", stale: true) == .stale)
        clock.advance(50)
        #expect(status(cache, "longer", stale: true) == .miss)
        #expect(status(cache, "never") == .ok)
    }

    @Test("Default ages are kept in the cache; a handle that names its own uses those")
    func defaultsAreKept() throws {
        try open(maxAge: 100, stale: 50).close()
        let plain = try open()
        #expect(plain.set("k", "v") == .ok)
        #expect(plain.get("k").expires == clock.now + 100)
        clock.advance(149)
        #expect(status(plain, "k", stale: true) == .stale)
        plain.close()
        let own = try open(maxAge: 7)
        #expect(own.set("k", "v") == .ok)
        #expect(own.get("k").expires == clock.now + 7)
    }

    @Test("A touch gives a new age from now and keeps value, version, meta, tags and pin")
    func touch() throws {
        let cache = try open()
        let options = SetOptions(flags: SHALE_SET_PINNED, maxAge: 100, meta: "meta", tags: ["tag"])
        let (_, version) = cache.store("k", "v", options)
        clock.advance(60)
        #expect(cache.touch("k", 100) == .ok)
        let touched = cache.get("k")
        #expect(touched.expires == clock.now + 100)
        #expect(touched.version == version)
        #expect(touched.text == "v" && touched.meta == "meta".bytes && touched.isPinned)
        clock.advance(99)
        #expect(status(cache, "k") == .ok)
        clock.advance(1)
        #expect(status(cache, "k") == .miss)
        #expect(cache.touch("k", 100) == .miss)

        #expect(cache.set("k", "v", options) == .ok)
        #expect(cache.touch("k", 500) == .ok)
        #expect(cache.invalidate("tag") == .ok)
        #expect(status(cache, "k") == .miss)
    }

    @Test("A touch can shorten an age, end it at once, and make it endless")
    func touchEveryWay() throws {
        let cache = try open(maxAge: 1_000)
        #expect(cache.set("k", "v", .age(500, stale: 40)) == .ok)
        #expect(cache.touch("k", 10) == .ok)
        clock.advance(10)
        #expect(status(cache, "k") == .miss)
        #expect(status(cache, "k", stale: true) == .stale)
        #expect(cache.touch("k", never) == .ok)
        #expect(cache.get("k").expires == never)
        #expect(cache.touch("k") == .ok)
        #expect(cache.get("k").expires == clock.now + 1_000)
        #expect(cache.touch("k", none) == .ok)
        #expect(status(cache, "k") == .miss)
        #expect(status(cache, "k", stale: true) == .stale)
        clock.advance(40)
        #expect(status(cache, "k", stale: true) == .miss)
    }

    @Test("A touch revalidates a stale entry: it is fresh again, with its stale period after it")
    func revalidate() throws {
        let cache = try open()
        let (_, version) = cache.store("k", "v", .age(100, stale: 50))
        clock.advance(120)
        #expect(status(cache, "k", stale: true) == .stale)
        #expect(cache.touch("k", 100) == .ok)
        #expect(cache.get("k").version == version)
        #expect(status(cache, "k") == .ok)
        clock.advance(100)
        #expect(status(cache, "k") == .miss)
        clock.advance(49)
        #expect(status(cache, "k", stale: true) == .stale)
        clock.advance(1)
        #expect(status(cache, "k", stale: true) == .miss)
        #expect(cache.touch("k", 100) == .miss)
    }

    @Test("A touch of a missing, removed or cleared key is a miss")
    func touchNothing() throws {
        let cache = try open()
        #expect(cache.touch("k", 5) == .miss)
        cache.set("k", "v")
        cache.remove("k")
        #expect(cache.touch("k", 5) == .miss)
        cache.set("k", "v")
        cache.clear()
        #expect(cache.touch("k", 5) == .miss)
    }

    @Test("Ten thousand touches of one entry cost no space for long")
    func manyTouches() throws {
        let cache = try open()
        let value = Pool.random.value(1, 1_000)
        #expect(cache.set("k", value) == .ok)
        for age in 1...10_000 { #expect(cache.touch("k", Int64(age) * 10) == .ok) }
        #expect(cache.get("k").expires == clock.now + 100_000)
        #expect(cache.get("k").value == value)
        #expect(try cache.stats().entries == 1)
        #expect(try CacheFiles(directory.path).diskUsage() <= 2 << 20)
    }

    @Test("An overwrite starts a new age")
    func overwrite() throws {
        let cache = try open()
        cache.set("k", "v", .age(100))
        clock.advance(90)
        cache.set("k", "w", .age(100))
        clock.advance(99)
        #expect(cache.text("k") == "w")
        clock.advance(1)
        #expect(cache.text("k") == nil)
        cache.set("k", "x")
        #expect(cache.get("k").expires == never)
    }

    @Test("Ages are exact after a reopen and after a rebuild, also of touched entries", arguments: [false, true])
    func acrossReopen(rebuild: Bool) throws {
        do {
            let cache = try open()
            cache.set("set", "v", .age(1_000, stale: 500))
            cache.set("touched", "v", .age(10, stale: 500))
            cache.touch("touched", 1_000)
            cache.set("shortened", "v", .age(5_000, stale: none))
            cache.touch("shortened", 1_000)
            cache.close()
        }
        if rebuild { try CacheFiles(directory.path).removeIndex() }
        let cache = try open()
        clock.advance(999)
        for key in ["set", "touched", "shortened"] { #expect(status(cache, key) == .ok, "\(key)") }
        clock.advance(1)
        for key in ["set", "touched", "shortened"] { #expect(status(cache, key) == .miss, "\(key)") }
        #expect(status(cache, "shortened", stale: true) == .miss)
        clock.advance(499)
        for key in ["set", "touched"] { #expect(status(cache, key, stale: true) == .stale, "\(key)") }
        clock.advance(1)
        for key in ["set", "touched"] { #expect(status(cache, key, stale: true) == .miss, "\(key)") }
    }

    @Test("An entry that is still fresh is not lost to an expired neighbour, whatever the units of the index")
    func neighbours() throws {
        let cache = try open()
        var ages: [Int64] = []
        var source = RandomSource(testSeed)
        for number in 0..<500 {
            ages.append(Int64(source.within(1...300_000)))
            #expect(cache.set("k\(number)", "v", .age(ages[number])) == .ok)
        }
        let start = clock.now
        for step in stride(from: Int64(0), through: 300_000, by: 9_973) {
            clock.set(start + step)
            for number in ages.indices {
                #expect(
                    (status(cache, "k\(number)") == .ok) == (step < ages[number]),
                    "age \(ages[number]) at \(step), seed \(testSeed)")
            }
        }
    }

    @Test("Without a clock of its own a cache uses the wall clock")
    func wallClock() throws {
        let cache = try TestCache(nil, Options(capacity: 1 << 20))
        let before = wallClockMilliseconds()
        #expect(cache.set("k", "v", .age(3_600_000)) == .ok)
        let after = wallClockMilliseconds()
        let found = cache.get("k")
        #expect(found.status == .ok)
        #expect((before - 1...after + 1).contains(found.created))
        #expect(found.expires == found.created + 3_600_000)
    }

    /// The system's clock is read roughly first; near the end of an age it has to be exact all the same.
    @Test("By the wall clock, too, an entry is fresh to its last millisecond", arguments: [30, 1_100] as [Int64])
    func wallClockAge(age: Int64) throws {
        let cache = try TestCache(nil, Options(capacity: 1 << 20))
        #expect(cache.set("k", "v", .age(age)) == .ok)
        let expires = cache.get("k").expires
        var hits = 0
        while true {
            let before = wallClockMilliseconds(), found = status(cache, "k"), after = wallClockMilliseconds()
            if after < expires {
                #expect(found == .ok)
                hits += 1
            }
            if before >= expires {
                #expect(found == .miss)
                break
            }
        }
        #expect(hits > 0)
    }

    @Test("A clock that goes back removes no entry and keeps every point in time")
    func clockGoesBack() throws {
        let cache = try open()
        cache.set("before", "v", .age(100))
        let expires = clock.now + 100
        clock.advance(-5_000)
        #expect(cache.text("before") == "v")
        #expect(cache.get("before").expires == expires)
        cache.set("after", "v", .age(100))
        #expect(cache.get("after").expires == clock.now + 100)
        #expect(cache.touch("before", 50) == .ok)
        #expect(cache.get("before").expires == clock.now + 50)
        clock.advance(50)
        #expect(cache.text("before") == nil)
        #expect(cache.text("after") == "v")
        clock.set(0)
        #expect(cache.text("after") == "v")
        #expect(cache.set("at zero", "v", .age(1)) == .ok)
        #expect(cache.text("at zero") == "v")
        clock.advance(1)
        #expect(cache.text("at zero") == nil)
    }

    @Test("What a purge collects makes room, without an eviction")
    func purgeMakesRoom() throws {
        let cache = try TestCache(nil, Options(capacity: 2 << 20, maxEntries: 100, clock: clock))
        for number in 0..<50 { #expect(cache.set("long \(number)", "v") == .ok) }
        for number in 0..<50 { #expect(cache.set("short \(number)", "v", .age(10)) == .ok) }
        clock.advance(10)
        #expect(cache.purge().purged == 50)
        for number in 0..<50 { #expect(cache.set("new \(number)", "v") == .ok) }
        for number in 0..<50 { #expect(cache.holds("long \(number)")) }
        #expect(try cache.stats().evictions == 0)
        #expect(try cache.stats().expirations == 50)
    }
}
