import CShale
import ShaleTestSupport
import Testing

/// A batch is equivalent to its single calls: the same answers, the same contents, the same order of use.
@Suite("Batches")
struct BatchTests {
    let directory = TemporaryDirectory()

    private func keys(_ range: Range<Int>) -> [[UInt8]] { range.map { "k\($0)".bytes } }

    @Test("get_many answers as single gets do", arguments: [1, 2, 7, 64, 1_000])
    func getMany(count: Int) throws {
        let clock = TestClock()
        let cache = try TestCache(nil, Options(capacity: 8 << 20, clock: clock))
        for number in 0..<count where number % 3 != 0 {
            let options = SetOptions(maxAge: number % 5 == 1 ? 10 : 0, stale: 100, meta: "m\(number)")
            #expect(cache.set("k\(number)", Pool.text.value(UInt64(number), number * 7 % 3_000), options) == .ok)
        }
        clock.advance(10)
        for flags in [0, SHALE_GET_STALE, SHALE_GET_INFO, SHALE_GET_STALE | SHALE_GET_PEEK] {
            let (status, lookups) = cache.getMany(keys(0..<count), flags)
            #expect(status == .ok)
            #expect(lookups == (0..<count).map { cache.get("k\($0)", flags) })
        }
    }

    @Test("set_many stores as single sets do, with its options for every key")
    func setMany() throws {
        let clock = TestClock()
        let options = SetOptions(flags: SHALE_SET_PINNED, maxAge: 500, meta: "meta", tags: ["t"])
        let values = (0..<200).map { Pool.text.value(UInt64($0), $0 * 11) }
        let many = try TestCache(nil, Options(capacity: 8 << 20, clock: clock))
        let set = many.setMany(keys(0..<200), values, options)
        #expect(set.status == .ok)
        #expect(set.statuses.allSatisfy { $0 == .ok })
        for number in 0..<200 {
            let found = many.get("k\(number)")
            #expect(found.value == values[number])
            #expect(found.meta == "meta".bytes)
            #expect(found.isPinned)
            #expect(found.expires == clock.now + 500)
        }
        #expect(try many.stats().entries == 200)
        #expect(try many.stats().sets == 200)
        many.invalidate("t")
        #expect(try many.entries().isEmpty)
    }

    @Test("Conditions hold for each key of a batch by itself")
    func conditions() throws {
        let cache = try TestCache(nil, Options(capacity: 1 << 20))
        for number in stride(from: 0, to: 10, by: 2) { cache.set("k\(number)", "old") }
        let absent = cache.setMany(keys(0..<10), (0..<10).map { _ in "new".bytes }, .ifAbsent)
        #expect(absent.status == .ok, "a conflict is an answer, not an error")
        #expect(absent.statuses == (0..<10).map { $0 % 2 == 0 ? .conflict : .ok })
        #expect((0..<10).map { cache.text("k\($0)") } == (0..<10).map { $0 % 2 == 0 ? "old" : "new" })
        let present = cache.setMany(keys(5..<15), (5..<15).map { _ in "newer".bytes }, .ifPresent)
        #expect(present.statuses == (5..<15).map { $0 < 10 ? .ok : .conflict })
    }

    @Test("A key that comes twice in a batch is set twice, the last value stays")
    func duplicates() throws {
        let cache = try TestCache(nil, Options(capacity: 1 << 20))
        let twice = ["a", "b", "a", "c", "b", "a"].map(\.bytes)
        #expect(cache.setMany(twice, (0..<6).map { "\($0)".bytes }).statuses.allSatisfy { $0 == .ok })
        #expect(["a", "b", "c"].map { cache.text($0) } == ["5", "4", "3"])
        #expect(cache.getMany(twice).lookups.map(\.text) == ["5", "4", "5", "3", "4", "5"])
        #expect(cache.removeMany(twice).statuses == [.ok, .ok, .miss, .ok, .miss, .miss])
        #expect(try cache.stats().entries == 0)
    }

    @Test("remove_many answers as single removals do")
    func removeMany() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        for number in 0..<100 where number % 2 == 0 { cache.set("k\(number)", "v") }
        let (status, statuses) = cache.removeMany(keys(0..<50))
        #expect(status == .ok)
        #expect(statuses == (0..<50).map { $0 % 2 == 0 ? .ok : .miss })
        #expect((0..<100).filter { cache.holds("k\($0)") } == Array(stride(from: 50, to: 100, by: 2)))
        #expect(try cache.stats().removes == 25)
    }

    @Test("Batches count as uses in the order of their keys")
    func recency() throws {
        let cache = try TestCache(nil, Options(capacity: 1 << 20, maxEntries: 6))
        cache.setMany(keys(0..<6), keys(0..<6))
        _ = cache.getMany([3, 0, 4].map { "k\($0)".bytes })
        // The order is now 1 2 5 3 0 4.
        cache.setMany(["n0", "n1", "n2", "n3"].map(\.bytes), keys(0..<4))
        #expect((0..<6).filter { cache.holds("k\($0)") } == [0, 4])
    }

    @Test("Empty batches are valid, and so are NULL statuses")
    func empty() throws {
        let cache = try TestCache(nil, Options(capacity: 1 << 20))
        #expect(cache.getMany([]).status == .ok)
        #expect(cache.setMany([], [String]()).status == .ok)
        #expect(cache.removeMany([]).status == .ok)
        let status = withByteViews(["k".bytes]) { keys in
            withByteViews(["v".bytes]) { values in
                Status(shale_set_many(cache.handle, 1, keys.baseAddress, values.baseAddress, nil, nil))
            }
        }
        #expect(status == .ok)
        let buffer = ValueBuffer()
        let got = withByteViews(["k".bytes]) {
            Status(shale_get_many(cache.handle, 1, $0.baseAddress, 0, &buffer.raw, nil))
        }
        #expect(got == .ok)
        #expect(Array(buffer.bytes) == "v".bytes)
        let removed = withByteViews(["k".bytes]) { Status(shale_remove_many(cache.handle, 1, $0.baseAddress, nil)) }
        #expect(removed == .ok)
        #expect(!cache.holds("k"))
    }

    @Test("Large values go through batches too")
    func largeValues() throws {
        let cache = try TestCache(directory.path, Options(capacity: 16 << 20, segmentSize: 128 << 10))
        let values = (0..<8).map { Pool.random.value(UInt64($0), 100_000 * $0 + 1) }
        #expect(cache.setMany(keys(0..<8), values).statuses.allSatisfy { $0 == .ok })
        #expect(cache.getMany(keys(0..<8)).lookups.map(\.value) == values)
    }

    @Test("One value that is too large does not stop a batch")
    func tooLarge() throws {
        let cache = try TestCache(nil, Options(capacity: 1 << 20))
        let values = [Pool.random.value(1, 10), Pool.random.value(2, 300 << 10), Pool.random.value(3, 10)]
        let (status, statuses) = cache.setMany(keys(0..<3), values)
        #expect(status == .tooLarge)
        #expect(statuses == [.ok, .tooLarge, .ok])
        #expect(cache.get("k2").value == values[2])
    }
}
