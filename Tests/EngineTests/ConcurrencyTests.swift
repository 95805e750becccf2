import CShale
import ShaleTestSupport
import Testing

/// Threads on one cache: no value is ever torn, old or another key's, and no live entry is ever missed.
@Suite("Concurrency", .serialized)
struct ConcurrencyTests {
    let directory = TemporaryDirectory()

    /// A value that identifies its owner and itself, with content that follows from both: any mixture of two is
    /// detected.
    private static func value(_ owner: UInt64, _ round: UInt64, _ size: Int) -> [UInt8] {
        let rest = Pool.random.value(owner &* 0x1_0000_0001 ^ round << 20, max(0, size - 16))
        return owner.littleEndianBytes + round.littleEndianBytes + rest.bytes
    }

    /// The round of a value, or nil if it is no value of this owner.
    private static func round(_ owner: UInt64, _ bytes: UnsafeRawBufferPointer) -> UInt64? {
        guard bytes.count >= 16, bytes.loadUnaligned(as: UInt64.self) == owner else { return nil }
        let round = bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
        return value(owner, round, bytes.count).withUnsafeBytes { same($0, bytes) } ? round : nil
    }

    @Test(
        "Equal-sized overwrites of one key, lap after lap, are never seen torn or going back",
        arguments: [48, 200, 4_096, 60_000])
    func oneKey(size: Int) throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, flags: SHALE_OPEN_NO_SYNC))
        let laps = 12
        let rounds = UInt64(min(60_000, laps * (1 << 20) / (size + 64)))
        #expect(cache.set("k", Self.value(7, 0, size)) == .ok)
        let stop = Flag()
        let findings = Findings()
        let reads = Counter()
        concurrently(3) { thread in
            if thread == 0 {
                for round in 1...rounds {
                    let status = cache.set("k", Self.value(7, round, size))
                    if status != .ok { findings.add("a set answered \(status): \(lastError())") }
                }
                stop.raise()
            } else {
                let buffer = ValueBuffer()
                var last: UInt64 = 0
                repeat {
                    let status = cache.get("k".bytes, 0, into: buffer)
                    guard status == .ok else {
                        findings.add("a get answered \(status)")
                        continue
                    }
                    reads.increment()
                    guard buffer.bytes.count == size, let round = Self.round(7, buffer.bytes) else {
                        findings.add("a torn value of \(buffer.bytes.count) bytes after round \(last)")
                        continue
                    }
                    if round < last { findings.add("round \(round) after round \(last)") }
                    last = round
                } while !stop.isRaised && findings.isEmpty
            }
        }
        #expect(findings.all == [])
        #expect(reads.count > 0)
        #expect(cache.get("k").value == Self.value(7, rounds, size))
        #expect(try cache.verify().corrupt_records == 0)
    }

    @Test(
        "Threads that overwrite overlapping keys in a small cache leave it consistent, through a rebuild too",
        arguments: [1, 4] as [UInt32])
    func overlappingWriters(shards: UInt32) throws {
        let options = Options(capacity: UInt64(shards) << 20, shards: shards, flags: SHALE_OPEN_NO_SYNC)
        let findings = Findings()
        do {
            let cache = try TestCache(directory.path, options)
            concurrently(4) { thread in
                var source = RandomSource(testSeed &+ UInt64(thread))
                let buffer = ValueBuffer()
                for round in 0..<8_000 {
                    let key = UInt64(source.below(300))
                    let name = "k\(key)".bytes
                    switch source.below(10) {
                    case 0...4:
                        let status = cache.set(
                            name, Self.value(key, UInt64(thread) << 40 | UInt64(round), source.within(16...3_000)))
                        if status != .ok { findings.add("a set answered \(status): \(lastError())") }
                    case 5:
                        let status = cache.remove(name)
                        if status != .ok && status != .miss { findings.add("a removal answered \(status)") }
                    case 6:
                        let status = cache.touch(name, Int64(source.within(100_000...1_000_000)))
                        if status != .ok && status != .miss { findings.add("a touch answered \(status)") }
                    default:
                        let status = cache.get(name, 0, into: buffer)
                        if status == .ok, Self.round(key, buffer.bytes) == nil {
                            findings.add("k\(key) has a value that was never set")
                        }
                        if status != .ok && status != .miss { findings.add("a get answered \(status)") }
                    }
                }
            }
            #expect(findings.all == [])
            #expect(try cache.verify().corrupt_records == 0)
            #expect(try cache.stats().entries == cache.entries().count)
            cache.close()
        }
        let before = try TestCache(directory.path, options).entries()
        try CacheFiles(directory.path).removeIndex()
        let after = try TestCache(directory.path, options).entries()
        for (key, entry) in before {
            // Evicted entries may be back and may have displaced others; no value has changed.
            if let rebuilt = after[key] { #expect(rebuilt == entry) }
            let owner = UInt64(String(decoding: key.dropFirst(), as: UTF8.self))!
            entry.value.bytes.withUnsafeBytes { #expect(Self.round(owner, $0) != nil) }
        }
        #expect(!before.isEmpty && !after.isEmpty)
    }

    @Test("Each thread reads its own writes while the others fill the same cache")
    func readYourWrites() throws {
        let cache = try TestCache(directory.path, Options(capacity: 8 << 20, flags: SHALE_OPEN_NO_SYNC))
        let findings = Findings()
        concurrently(4) { thread in
            let owner = UInt64(thread)
            for round in 0..<5_000 as Range<UInt64> {
                let name = "k\(thread) \(round % 40)".bytes
                let value = Self.value(owner, round, 16 + Int(round * 37 % 700))
                if cache.set(name, value) != .ok { findings.add("a set failed: \(lastError())") }
                if cache.get(name).value != value { findings.add("\(thread) does not see its round \(round)") }
                if round % 3 == 0 {
                    if cache.remove(name) != .ok { findings.add("\(thread) cannot remove its round \(round)") }
                    if cache.get(name).status != .miss { findings.add("\(thread) still sees a removed entry") }
                }
            }
        }
        #expect(findings.all == [])
    }

    @Test("While the table grows no reader misses a live key", arguments: [1, 4] as [UInt32])
    func growth(shards: UInt32) throws {
        let cache = try TestCache(
            directory.path, Options(capacity: 64 << 20, shards: shards, flags: SHALE_OPEN_NO_SYNC))
        let lasting = 500
        for number in 0..<lasting { #expect(cache.set("lasting \(number)", "\(number)") == .ok) }
        let stop = Flag()
        let findings = Findings()
        let reads = Counter()
        concurrently(3) { thread in
            if thread == 0 {
                for number in 0..<120_000 {
                    let status = cache.set("guest \(number)", "v")
                    if status != .ok { findings.add("a set answered \(status): \(lastError())") }
                }
                // The table shrinks again when nearly empty.
                for number in 0..<120_000 where cache.remove("guest \(number)") != .ok {
                    findings.add("guest \(number) was missed")
                }
                stop.raise()
            } else {
                let buffer = ValueBuffer()
                var number = 0
                repeat {
                    number = (number + 7) % lasting
                    let status = cache.get("lasting \(number)".bytes, thread == 1 ? 0 : SHALE_GET_PEEK, into: buffer)
                    if status != .ok { findings.add("lasting \(number) was missed: \(status)") }
                    if !buffer.bytes.elementsEqual("\(number)".utf8) { findings.add("lasting \(number) is wrong") }
                    reads.increment()
                } while !stop.isRaised && findings.isEmpty
            }
        }
        #expect(findings.all == [])
        #expect(reads.count > 0)
        #expect(try cache.stats().entries == UInt64(lasting))
        #expect(try cache.stats().evictions == 0)
    }

    @Test("Evictions under readers never show a wrong value")
    func evictionUnderReaders() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20, flags: SHALE_OPEN_NO_SYNC))
        let stop = Flag()
        let findings = Findings()
        let hits = Counter()
        concurrently(4) { thread in
            if thread < 2 {
                var source = RandomSource(testSeed &+ UInt64(thread))
                for round in 0..<15_000 as Range<UInt64> {
                    let owner = UInt64(source.below(5_000))
                    let status = cache.set("k\(owner)", Self.value(owner, round, 16 + Int(owner % 900)))
                    if status != .ok { findings.add("a set answered \(status): \(lastError())") }
                }
                stop.raise()
            } else {
                var source = RandomSource(testSeed &+ UInt64(thread))
                let buffer = ValueBuffer()
                repeat {
                    let owner = UInt64(source.below(5_000))
                    let status = cache.get("k\(owner)".bytes, 0, into: buffer)
                    guard status == .ok else { continue }
                    hits.increment()
                    if buffer.bytes.count != 16 + Int(owner % 900) || Self.round(owner, buffer.bytes) == nil {
                        findings.add("k\(owner) has a wrong value")
                    }
                } while !stop.isRaised && findings.isEmpty
            }
        }
        #expect(findings.all == [])
        #expect(hits.count > 0)
        #expect(try cache.stats().evictions > 0)
    }

    @Test("A read does not see an entry that was removed or invalidated before it started")
    func removalsAreFinal() throws {
        let cache = try TestCache(directory.path, Options(capacity: 2 << 20, flags: SHALE_OPEN_NO_SYNC))
        let findings = Findings()
        // One thread sets and removes, and publishes between the two what must hold.
        let generation = Counter()
        let removed = Counter()
        let stop = Flag()
        concurrently(3) { thread in
            if thread == 0 {
                for round in 1...10_000 as ClosedRange<UInt64> {
                    let tagged = round % 2 == 0
                    if cache.set("k", round.littleEndianBytes, tagged ? .tagged("t") : nil) != .ok {
                        findings.add("a set failed: \(lastError())")
                    }
                    generation.increment()
                    let status = tagged ? cache.invalidate("t") : cache.remove("k")
                    if status != .ok { findings.add("a removal answered \(status)") }
                    removed.increment()
                }
                stop.raise()
            } else {
                repeat {
                    let last = removed.count
                    let found = cache.get("k")
                    guard found.status == .ok else { continue }
                    if integer(found.value)! <= Int64(last) {
                        findings.add("round \(integer(found.value)!) was seen after it had been removed (\(last))")
                    }
                } while !stop.isRaised && findings.isEmpty
            }
        }
        #expect(findings.all == [])
        #expect(!cache.holds("k"))
    }

    @Test("All kinds of calls at once leave a sound cache")
    func everything() throws {
        let clock = TestClock()
        let cache = try TestCache(
            directory.path,
            Options(
                capacity: 4 << 20, maxEntries: 1_000, segmentSize: 128 << 10, clock: clock, flags: SHALE_OPEN_NO_SYNC))
        let findings = Findings()
        concurrently(4) { thread in
            var source = RandomSource(testSeed &+ UInt64(thread) &* 1_000)
            func check(_ status: Status, _ call: String) {
                if status.isError, status != .invalid || call != "increment" {
                    findings.add("\(call) answered \(status): \(lastError())")
                }
            }
            for round in 0..<3_000 {
                let key = "k\(source.below(1_500))"
                switch source.below(30) {
                case 0...9:
                    check(
                        cache.set(
                            key, Pool.text.value(source.next(), source.within(0...2_000)),
                            SetOptions(maxAge: Int64(source.within(1...5_000)), tags: ["t\(source.below(5))"])), "set")
                case 10...16: check(cache.get(key, UInt32(source.below(8))).status, "get")
                case 17: check(cache.remove(key), "remove")
                case 18: check(cache.touch(key, 1_000), "touch")
                case 19: check(cache.increment("n\(source.below(5))", by: 1).status, "increment")
                case 20: check(cache.getMany((0..<20).map { "k\($0)".bytes }).status, "get_many")
                case 21:
                    check(
                        cache.setMany((0..<20).map { "k\($0)".bytes }, (0..<20).map { "\($0)".bytes }).status,
                        "set_many")
                case 22: check(cache.invalidate("t\(source.below(5))"), "invalidate")
                case 23: check(cache.evict(3).status, "evict")
                case 24: if round % 10 == 0 { check(cache.purge().status, "purge") }
                case 25: if round % 40 == 0 { check(cache.clear(), "clear") }
                case 26: if round % 40 == 0 { check(cache.sync(), "sync") }
                case 27:
                    check(
                        cache.set("large", Pool.random.value(source.next(), source.within(130_000...600_000))),
                        "set of a large value")
                case 28:
                    if round % 20 == 0 {
                        do { _ = try cache.entries(SHALE_GET_INFO) } catch { findings.add("a walk failed: \(error)") }
                        do { if try cache.verify().corrupt_records != 0 { findings.add("verify found damage") } } catch
                        { findings.add("\(error)") }
                    }
                default: clock.advance(Int64(source.below(100)))
                }
            }
        }
        #expect(findings.all == [])
        #expect(try cache.verify().corrupt_records == 0)
        cache.purge()
        let entries = try cache.entries()
        #expect(try cache.stats().entries >= entries.count)
        #expect(cache.set("last", "v") == .ok)
        #expect(cache.text("last") == "v")
        #expect(try CacheFiles(directory.path).diskUsage() <= 4 << 20)
    }
}
