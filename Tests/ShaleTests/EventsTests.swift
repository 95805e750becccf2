import Foundation
import Testing
@testable import Shale

@Suite("Events", .timeLimit(.minutes(30)))
struct EventsTests {
    private struct Unreachable: Error {}

    private func words<Value>(_ event: Cache<String, Value>.Event) -> String {
        switch event {
        case .hit(let key, let source, let isStale): "hit \(key) \(source)\(isStale ? " stale" : "")"
        case .miss(let key, let why): "miss \(key) \(why)"
        case .undecodable(let key): "undecodable \(key)"
        case .writeFailed(let key, _): "unwritten \(key)"
        case .loadBegan(let key): "load \(key)"
        case .loadEnded(let key, _, let error): "loaded \(key)\(error == nil ? "" : " in vain")"
        case .conflict(let key): "conflict \(key)"
        case .waiting(let sentence): sentence
        }
    }

    /// All events until the cache is freed.
    private func all<Value>(_ stream: AsyncStream<Cache<String, Value>.Event>) async -> [String] {
        var seen: [String] = []
        for await event in stream { seen.append(words(event)) }
        return seen
    }

    @Test("reads send events with the reason of each miss, and the store counts the same reasons")
    func reads() async throws {
        let clock = TestClock()
        var options = Store.Options(capacity: 4 << 20)
        options.now = { Int64(clock.date.timeIntervalSince1970 * 1000) }
        let store = try Store(at: nil, options: options)
        var cache: Cache<String, Int>? = try Cache(
            in: store, named: "numbers", maxAge: .seconds(10), staleFor: .seconds(10), memoryEntries: 0)
        let events = try #require(cache?.events)
        try cache?.insert(1, for: "a")
        try cache?.insert(2, for: "b", tags: ["t"])
        try cache?.removeAll(tagged: "t")
        _ = try cache?.value(for: "a")
        _ = try cache?.value(for: "b")
        _ = try cache?.value(for: "c")
        clock.advance(seconds: 10)
        _ = try cache?.value(for: "a")
        _ = try cache?.entry(for: "a", includingStale: true)
        let undecodable = try cache?.stored("d") ?? []
        try store.insert([1, 2, 3], for: undecodable)
        _ = try cache?.value(for: "d")
        let statistics = try store.statistics()
        #expect(statistics.expired == 1)
        #expect(statistics.invalidated == 1)
        #expect(statistics.absent == 1)
        #expect(statistics.misses == 3)
        #expect(cache?.statistics.misses == 4)
        cache = nil
        #expect(
            await all(events) == [
                "hit a store", "miss b invalidated", "miss c absent", "miss a expired", "hit a store stale",
                "undecodable d", "miss d undecodable",
            ])
    }

    @Test("loads send events and are counted, including failed and unstored ones")
    func loads() async throws {
        var cache: Cache<String, Int>? = try .small(memoryEntries: 0)
        let events = try #require(cache?.events)
        _ = try await cache?.value(for: "a") { 1 }
        _ = try await cache?.value(for: "a") { 2 }
        await #expect(throws: Unreachable.self) { try await cache?.value(for: "b") { throw Unreachable() } }
        let changed = try #require(cache)
        _ = try await cache?.value(for: "c") {
            try changed.removeValue(for: "c")
            return 3
        }
        _ = try? await cache?.entry(for: "d") { _ in .missing() }
        _ = try cache?.value(for: "d")
        let statistics = try #require(cache?.statistics)
        #expect(statistics.loads == 4)
        #expect(statistics.failedLoads == 1)
        #expect(statistics.conflicts == 1)
        #expect(statistics.unstored == 1)
        #expect(statistics.waits == 0)
        #expect(statistics.waited == .zero)
        #expect(try cache?.store.statistics().conflicts == 1)
        withExtendedLifetime(changed) { cache = nil }
        try await ended(changed, events)
    }

    /// The second half of `loads`, which does not retain the cache.
    private func ended(
        _ cache: consuming Cache<String, Int>, _ events: AsyncStream<Cache<String, Int>.Event>
    ) async throws {
        var seen: [String] = []
        for await event in events {
            seen.append(words(event))
            if words(event) == "miss d missing" { break }
        }
        #expect(
            seen == [
                "miss a absent", "load a", "loaded a", "hit a store", "miss b absent", "load b", "loaded b in vain",
                "miss c absent", "load c", "conflict c", "loaded c", "miss d absent", "load d", "loaded d",
                "miss d missing",
            ])
    }

    @Test("waits for another object's load are counted, with their time")
    func waits() async throws {
        let directory = TemporaryDirectory()
        // The lease outlasts the test even on a busy machine.
        let one = try Cache<String, Int>(at: directory.path, capacity: 4 << 20, leaseTime: .seconds(3600)),
            other = try Cache<String, Int>(at: directory.path)
        let begun = Gate(), goOn = Gate()
        let loading = Task {
            try await one.value(for: "k") {
                begun.open()
                try await goOn.wait()
                return 1
            }
        }
        try await begun.wait()
        let waiting = Task { try await other.value(for: "k") { 2 } }
        // It has missed, and only the other object's load can give it a value.
        while other.statistics.misses == 0 { await Task.yield() }
        try await Task.sleep(for: .milliseconds(50))
        goOn.open()
        #expect(try await loading.value == 1)
        #expect(try await waiting.value == 1)
        let statistics = other.statistics
        #expect(statistics.loads == 0)
        #expect(statistics.waits <= 1)
        #expect((statistics.waited > .zero) == (statistics.waits == 1))
    }

    @Test("a reader of events may use the cache")
    func usesTheCache() async throws {
        let cache: Cache<String, Int> = try .small()
        let events = cache.events
        let listener = Task {
            for await event in events {
                guard case .miss("wanted", _) = event else { continue }
                try cache.insert(1, for: "made")
                #expect(try cache.value(for: "made") == 1)
                try cache.removeValue(for: "made")
                try cache.removeAll(tagged: "t")
                #expect(try await cache.value(for: "loaded") { 2 } == 2)
                return true
            }
            return false
        }
        #expect(try cache.value(for: "wanted") == nil)
        #expect(try await listener.value)
    }

    @Test("a reader of events that throws does no harm")
    func throwing() async throws {
        let cache: Cache<String, Int> = try .small()
        let events = cache.events, others = cache.events
        let failing = Task { for await _ in events { throw Unreachable() } }
        cache["a"] = 1
        #expect(cache["a"] == 1)
        await #expect(throws: Unreachable.self) { try await failing.value }
        #expect(cache["a"] == 1)
        #expect(cache["b"] == nil)
        var seen: [String] = []
        for await event in others {
            seen.append(words(event))
            if seen.count == 3 { break }
        }
        #expect(seen == ["hit a memory", "hit a memory", "miss b absent"])
    }
}
