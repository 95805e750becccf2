import Foundation
import Testing
@testable import Shale

@Suite("Missing values", .timeLimit(.minutes(30)))
struct MissingTests {
    private let clock = TestClock(), directory = TemporaryDirectory()

    private func open(memoryEntries: Int = 256) throws -> Cache<String, Data> {
        // The leases outlast the test even on a busy machine.
        try Cache(
            at: directory.url, maxAge: .seconds(60), capacity: 4 << 20, memoryEntries: memoryEntries,
            leaseTime: .seconds(3600), now: clock.now)
    }

    /// Calls, and counts the loads, which find no value.
    private func isMissing(
        _ cache: Cache<String, Data>, _ options: LoadOptions = .default, loads: Counter = Counter()
    ) async throws -> Bool {
        do {
            _ = try await cache.entry(for: "key", options: options) { present in
                #expect(present == nil)
                loads.add()
                return .missing(maxAge: .seconds(10), tags: ["news"])
            }
            return false
        } catch LoadError.missing("key") { return true }
    }

    @Test("it is loaded once within its age, in all processes, and reads as nil", arguments: [0, 256])
    func known(memoryEntries: Int) async throws {
        let mine = try open(memoryEntries: memoryEntries), theirs = try open(memoryEntries: memoryEntries)
        let loads = Counter()
        for cache in [mine, theirs, mine] {
            for policy in [LoadPolicy.default, .staleIfError, .staleWhileRevalidate] {
                #expect(try await isMissing(cache, LoadOptions(policy), loads: loads), "\(policy)")
            }
            #expect(cache["key"] == nil)
            #expect(try cache.entry(for: "key", includingStale: true) == nil)
            #expect(try cache.allKeys() == [])
            cache.prefetch("key") {
                loads.add()
                return Data()
            }
        }
        #expect(loads.count == 1)
        #expect(mine.statistics.undecodable == 0 && theirs.statistics.undecodable == 0)
        clock.advance(milliseconds: 9_999)
        #expect(try await isMissing(mine, loads: loads) && loads.count == 1)
        clock.advance(milliseconds: 1)
        #expect(try await isMissing(mine, loads: loads) && loads.count == 2)
        #expect(LoadError.missing(key: "key").description == "key is known to be missing")
    }

    @Test("reload loads again, and its result replaces it")
    func reload() async throws {
        let cache = try open(), loads = Counter()
        #expect(try await isMissing(cache, loads: loads))
        #expect(try await isMissing(cache, .reload, loads: loads) && loads.count == 2)
        #expect(try await cache.value(for: "key", options: .reload) { Data([1]) } == Data([1]))
        #expect(cache["key"] == Data([1]))
    }

    @Test("it replaces a stored value, fresh or stale, with every policy; and the removal is reported")
    func replaces() async throws {
        for policy in [LoadPolicy.staleIfError, .reload] {
            let cache = try open(), theirs = try open()
            cache["key"] = Data([1])
            #expect(theirs["key"] == Data([1]))
            clock.advance(seconds: policy == .reload ? 1 : 60)
            var changes = cache.changes.makeAsyncIterator()
            await #expect(throws: LoadError.self) {
                try await cache.entry(for: "key", options: LoadOptions(policy)) { _ in .missing() }
            }
            guard case .removed("key") = await changes.next() else { Issue.record("not announced"); return }
            for each in [cache, theirs] { #expect(try each.entry(for: "key", includingStale: true) == nil) }
        }
    }

    @Test("an insertion, a removal and its tag end it", arguments: 0..<3)
    func ends(how: Int) async throws {
        let cache = try open()
        #expect(try await isMissing(cache))
        switch how {
        case 0: cache["key"] = Data([1])
        case 1: #expect(try cache.removeValue(for: "key"))
        default: try cache.removeAll(tagged: "news")
        }
        #expect(try await cache.value(for: "key") { Data([2]) } == Data([how == 0 ? 1 : 2]))
    }

    @Test("a caller that waits for another object's load, which finds no value, does not load")
    func elsewhere() async throws {
        let mine = try open(), theirs = try open()
        let begun = Gate(), gate = Gate(), loads = Counter()
        let first = Task {
            try await mine.entry(for: "key") { _ in
                begun.open()
                try await gate.wait()
                return .missing()
            }
        }
        try await begun.wait()
        let second = Task { try await isMissing(theirs, loads: loads) }
        gate.open()
        await #expect(throws: LoadError.self) { try await first.value }
        #expect(try await second.value && loads.count == 0)
    }

    @Test("a result that cannot be stored is still missing, and counted")
    func unstored() async throws {
        try open().insert(Data([1]), for: "stale", maxAge: .zero)
        var options = Store.Options()
        options.isReadOnly = true
        options.now = { [clock] in clock.date.millisecondsSince1970 }
        let store = try Store(at: directory.path, options: options)
        let cache = try Cache<String, Data>(in: store, named: "")
        #expect(try await isMissing(cache))
        #expect(cache.statistics.unstored == 1)
        // The old value is still stored, but the loader has not failed.
        await #expect(throws: LoadError.self) {
            try await cache.entry(for: "stale", options: .staleIfError) { _ in .missing() }
        }
        #expect(try cache.entry(for: "stale", includingStale: true)?.value == Data([1]))
    }

    @Test("archives and the sequence of entries leave it out")
    func leftOut() async throws {
        let cache = try Cache<String, Data>.small(clock: clock)
        cache["other"] = Data([1])
        #expect(try await isMissing(cache))
        let decoder = JSONDecoder()
        decoder.userInfo[.cacheClock] = clock.now
        let copy = try decoder.decode(Cache<String, Data>.self, from: JSONEncoder().encode(cache))
        #expect(try copy.allKeys() == ["other"])
        #expect(try await copy.value(for: "key") { Data([2]) } == Data([2]))
        await #expect(throws: LoadError.self) {
            for try await entry in cache.entries(for: "key", load: { Data() }) { Issue.record("\(entry)") }
        }
    }
}
