import Foundation
import Synchronization
import Testing
@testable import Shale

@Suite("Ages")
struct AgeTests {
    private let clock = TestClock()

    /// Seconds from now.
    private func left(_ maxAge: Age) throws -> Double? {
        let cache = try Cache<Int, Int>.small(clock: clock)
        try cache.insert(1, for: 1, maxAge: maxAge)
        let expiresAt = try #require(try cache.entry(for: 1)).expiresAt
        return expiresAt.map { Double($0.millisecondsSince1970 - clock.date.millisecondsSince1970) / 1000 }
    }

    @Test("in every unit, until a date, for a duration, forever")
    func units() throws {
        let timeout = Duration.seconds(7), ten: Int32 = 10
        for (age, seconds) in [
            (Age.milliseconds(500), 0.5), (.seconds(90), 90), (.seconds(1.5), 1.5), (.seconds(ten), 10),
            (.minutes(5), 300), (.minutes(0.5), 30), (.hours(12), 43200), (.hours(1.5), 5400), (.days(2), 172_800),
            (.days(0.5), 43200), (Age(timeout), 7), (Age(.nanoseconds(1)), 0.001), (.until(clock.date + 25), 25),
        ] {
            #expect(try left(age) == seconds, "\(age)")
        }
        for age in [Age.forever, .days(UInt64.max), .hours(1e300), .minutes(.infinity), .seconds(Int.max)] {
            #expect(try left(age) == nil, "\(age)")
        }
        #expect(try left(.until(.distantFuture)) == Date.distantFuture.timeIntervalSince(clock.date))
    }

    @Test("until a past date: stale at once; a negative age is an error")
    func past() throws {
        let cache = try Cache<Int, Int>.small(clock: clock)
        for age in [Age.zero, .until(clock.date), .until(.distantPast), .seconds(0)] {
            try cache.insert(1, for: 1, maxAge: age)
            #expect(try cache.value(for: 1) == nil && cache.entry(for: 1, includingStale: true)?.isStale == true)
        }
        for age in [Age.minutes(-1), .days(Int.min), .hours(-1e300), .seconds(.nan), Age(.nanoseconds(-1))] {
            let error = #expect(throws: ShaleError.self) { try cache.insert(2, for: 1, maxAge: age) }
            #expect(error?.code == .invalid && error?.message.contains("maxAge") == true)
        }
    }

    @Test("a default age that ends at a date applies to each entry, including loaded ones")
    func untilAsDefault() async throws {
        let end = clock.date + 100
        let cache = try Cache<Int, Int>.small(maxAge: .until(end), clock: clock)
        try cache.insert(1, for: 1)
        clock.advance(seconds: 60)
        try cache.insert(2, for: 2)
        #expect(try await cache.value(for: 3) { 3 } == 3)
        #expect(try await cache.value(for: 4, maxAge: .until(end - 10)) { 4 } == 4)
        for key in [1, 2, 3] { #expect(try cache.entry(for: key)?.expiresAt == end) }
        #expect(try cache.entry(for: 4)?.expiresAt == end - 10)
        try cache.touch(4)
        #expect(try cache.entry(for: 4)?.expiresAt == end)
        clock.advance(seconds: 40)
        #expect(try cache.allKeys().isEmpty)
    }
}

@Suite("Options as one value")
struct OptionsValueTests {
    private let directory = TemporaryDirectory(), clock = TestClock()

    @Test("a cache opened with them has them")
    func opened() throws {
        var options = Cache<String, Int>.Options(maxAge: .minutes(1), maxEntries: 10, now: clock.now)
        options.capacity = 2 << 20
        options.coder = Coder(encode: { Data("\($0 + 1)".utf8) }, decode: { Int(String(decoding: $0, as: UTF8.self))! })
        options.memoryEntries = 0
        for cache in [
            try Cache(at: directory.url, options: options), try Cache(at: directory.path + "-2", options: options),
            try Cache.inMemory(options: options),
        ] {
            try cache.insert(1, for: "a")
            let entry = try #require(try cache.entry(for: "a"))
            #expect(entry.value == 2 && entry.expiresAt == clock.date + 60)
            let statistics = try cache.store.statistics()
            #expect(statistics.maxEntries == 10 && statistics.capacity == 2 << 20)
        }
        try FileManager.default.removeItem(atPath: directory.path + "-2")
    }

    @Test(
        "a store whose directory was removed reports it within two seconds, serves hits, and does not touch a new one")
    func removed() throws {
        let path = directory.path + "/removed"
        let store = try Store(at: path, options: .init(capacity: 2 << 20))
        try store.insert("old", for: "key")
        try FileManager.default.removeItem(atPath: path)
        let new = try Store(at: path, options: .init(capacity: 2 << 20))
        try new.insert("new", for: "key")
        let error = #expect(throws: ShaleError.self) {
            for _ in 0..<40 {
                try store.insert("value", for: "other")
                Thread.sleep(forTimeInterval: 0.1)
            }
        }
        #expect(error?.code == .busy)
        #expect(error?.message == "\(path): the store was removed or replaced; open it again")
        #expect(try store.value(for: "key") == Array("old".utf8))
        #expect(throws: ShaleError.self) { try store.value(for: "missing") }
        #expect(throws: ShaleError.self) { try store.statistics() }
        try store.close()
        #expect(try new.value(for: "key") == Array("new".utf8))
    }

    @Test("without maxEntries there is no limit of entries, in memory either")
    func unlimited() throws {
        #expect(try Cache<String, Int>.inMemory().store.statistics().maxEntries == 0)
        #expect(try Cache<String, Int>(at: directory.url).store.statistics().maxEntries == 0)
    }

    @Test("options of the store are an error for one of its caches, and so are options out of range")
    func ofTheStore() throws {
        let store = try Store(at: directory.path, options: .init(capacity: 2 << 20))
        for options in [
            Cache<String, Int>.Options(maxEntries: 1), .init(capacity: 1 << 20), .init(reserveCapacity: 1 << 20),
            .init(eviction: .lru),
            .init(now: { Date() }), .init(memoryBytes: -1),
        ] {
            let error = #expect(throws: ShaleError.self) { try Cache(in: store, named: "c", options: options) }
            #expect(error?.code == .invalid && error?.message.contains(directory.path) == true)
        }
        #expect(try Cache<String, Int>(in: store, named: "c", options: .init(maxAge: .seconds(1)))["a"] == nil)
        #expect(throws: ShaleError.self) { try Cache<String, Int>(at: URL(string: "https://a.b")!, options: .init()) }
    }
}

@Suite("Many entries", .timeLimit(.minutes(30)))
struct WalkTests {
    private let clock = TestClock()

    private func filled() throws -> (Cache<Int, String>, others: Cache<Int, String>) {
        let cache = try Cache<Int, String>.small(clock: clock)
        let others = try Cache<Int, String>(in: cache.store, named: "others")
        try cache.insert(contentsOf: (0..<20).map { (key: $0, value: "\($0)") }, maxAge: .seconds(50), tags: ["t"])
        try others.insert("other", for: 1)
        return (cache, others)
    }

    @Test("insert(contentsOf:), count, contains")
    func counting() async throws {
        let (cache, others) = try filled()
        #expect(try cache.count() == 20)
        #expect(try others.count() == 1)
        #expect(try cache.entry(for: 5)?.tags == ["t"] && cache.entry(for: 5)?.expiresAt == clock.date + 50)
        let before = try cache.store.statistics(), own = cache.statistics
        #expect(try cache.contains(5) && !cache.contains(20))
        #expect(try cache.store.statistics().hits == before.hits && cache.statistics == own)
        try cache.insert(contentsOf: [(key: 5, value: "a"), (key: 5, value: "b")])
        #expect(cache[5] == "b")
        await #expect(throws: LoadError.self) { try await cache.entry(for: 30) { _ in .missing() } }
        #expect(try !cache.contains(30))
        #expect(try cache.count() == 20)
        clock.advance(seconds: 50)
        #expect(try cache.count() == 1 && cache.contains(5) && !cache.contains(6))
        try cache.sync()
    }

    @Test("removeAll(where:) removes matching entries of this cache, and reports the changes")
    func removing() async throws {
        let (cache, others) = try filled()
        try cache.insert("stale", for: 100, maxAge: .zero)
        var changes = cache.changes.makeAsyncIterator()
        #expect(try cache.removeAll { key, value in key % 2 == 0 && value == "\(key)" } == 10)
        #expect(Set(try cache.allKeys()) == Set(stride(from: 1, to: 20, by: 2)))
        guard case .removed = await changes.next() else { Issue.record("no removal was reported"); return }
        #expect(try others.value(for: 1) == "other")
        #expect(try cache.entry(for: 100, includingStale: true) != nil)
        #expect(throws: Offline.self) { try cache.removeAll { _, _ in throw Offline() } }
        #expect(try cache.count() == 10)
    }

    @Test(
        "removeAll(where:) keeps entries replaced since the predicate saw them; the predicate may use the cache"
    )
    func replacedMeanwhile() throws {
        let (cache, _) = try filled()
        let removed = try cache.removeAll { key, value in
            if key == 7 { try cache.insert("new", for: 7) }
            return value != "new"
        }
        #expect(removed == 19 && cache[7] == "new")
    }

    @Test("the subscript with a default")
    func defaults() throws {
        let cache = try Cache<String, Int>.small()
        #expect(cache["a", default: 3] == 3 && cache["a"] == nil)
        cache["a", default: 3] += 1
        cache["a", default: 3] += 1
        #expect(cache["a"] == 5)
    }

    @Test("calls on a separate thread do not block those of the cooperative pool")
    func onThreads() async throws {
        let (cache, _) = try filled()
        // Twice as many as the pool has threads; each blocks until the last of them has begun.
        let count = min(64, 2 * ProcessInfo.processInfo.activeProcessorCount), begun = Counter()
        let all = DispatchSemaphore(value: 0)
        try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<count {
                group.addTask {
                    let looks = Counter()
                    return try await cache.onThread {
                        try $0.removeAll { _, _ in
                            guard looks.add() == 1 else { return false }
                            if begun.add() == count { for _ in 1..<count { all.signal() } } else { all.wait() }
                            return false
                        }
                    }
                }
            }
            for try await removed in group { #expect(removed == 0) }
        }
    }
}

@Suite("The result of a prefetch", .timeLimit(.minutes(30)))
struct PrefetchTests {
    @Test("the value, for any number of tasks, before the load's end and after")
    func value() async throws {
        let cache = try Cache<String, Int>.small(), gate = Gate(), loads = Counter()
        let prefetch = cache.prefetch("key") {
            try await gate.wait()
            return loads.add()
        }
        async let first = prefetch.value
        async let second = prefetch.value
        gate.open()
        #expect(try await first == 1)
        #expect(try await second == 1)
        #expect(try await prefetch.value == 1)
        // A fresh value is not loaded.
        #expect(try await cache.prefetch("key") { loads.add() }.value == 1)
        #expect(loads.count == 1)
    }

    @Test("its error: the loader's, that of invalid options, or that the value is missing")
    func errors() async throws {
        let cache = try Cache<String, Int>.small()
        let failing = cache.prefetch("key") { throw Offline() }
        await #expect(throws: Offline.self) { try await failing.value }
        let wrong = cache.prefetch("key", options: LoadOptions(jitter: 2)) { 1 }
        await #expect(throws: ShaleError.self) { try await wrong.value }
        let missing = cache.prefetch("key", load: { _ in .missing() })
        await #expect(throws: LoadError.self) { try await missing.value }
        let known = cache.prefetch("key") { 1 }
        await #expect(throws: LoadError.self) { try await known.value }
    }

    @Test("a cancelled prefetch has no value, unless others wait; a cancelled task only stops waiting itself")
    func cancelled() async throws {
        let cache = try Cache<String, Int>.small(), gate = Gate(), begun = Gate()
        let load: @Sendable () async throws -> Int = {
            begun.open()
            try await gate.wait()
            return 1
        }
        let alone = cache.prefetch("alone", load: load)
        try await begun.wait()
        alone.cancel()
        await #expect(throws: CancellationError.self) { try await alone.value }

        let prefetch = cache.prefetch("key", load: load)
        let waiter = Task { try await prefetch.value }
        waiter.cancel()
        await #expect(throws: CancellationError.self) { try await waiter.value }
        let other = Task { try await cache.value(for: "key", load: load) }
        gate.open()
        #expect(try await prefetch.value == 1)
        #expect(try await other.value == 1)
    }
}

@Suite("A cache behind a protocol")
struct CachingTests {
    private final class Fake: Caching {
        private let values = Mutex<[String: Int]>([:])
        subscript(key: String) -> Int? {
            get { values.withLock { $0[key] } }
            set { values.withLock { $0[key] = newValue } }
        }
        nonisolated(nonsending) func value(
            for key: String, options: LoadOptions, load: @escaping @Sendable () async throws -> Int
        ) async throws -> Int {
            if let value = self[key], options.policy != .reload { return value }
            let value = try await load()
            self[key] = value
            return value
        }
        func removeAll() { values.withLock { $0 = [:] } }
    }

    @Test("the same code works with a cache and a test's substitute")
    func both() async throws {
        let caches: [any Caching<String, Int>] = [
            Fake(), try Cache<String, Int>.small(), MemoryCache<String, Int>().caching,
        ]
        for cache in caches {
            cache["a"] = 1
            #expect(cache["a"] == 1)
            #expect(try await cache.value(for: "a") { 2 } == 1)
            #expect(try await cache.value(for: "a", options: .reload) { 2 } == 2)
            #expect(try await cache.value(for: "b") { 3 } == 3)
            cache["a"] = nil
            #expect(cache["a"] == nil && cache["b"] == 3)
            try cache.removeAll()
            #expect(cache["b"] == nil)
        }
    }
}

@Suite("Errors name the remedy in Swift's terms")
struct ErrorTests {
    private let directory = TemporaryDirectory()

    private func errors() throws -> [ShaleError] {
        func error(_ body: () throws -> Void) -> ShaleError? {
            do { try body() } catch { return error as? ShaleError }
            return nil
        }
        let path = directory.path
        func open(_ change: (inout Store.Options) -> Void) throws {
            var options = Store.Options()
            change(&options)
            _ = try Store(at: path, options: options)
        }
        var all = [error { try open { $0.mustExist = true } }]
        let store = try Store(at: path, options: .init(capacity: 1 << 20))
        try store.insert("1", for: "key")
        var readOnly = Store.Options()
        readOnly.isReadOnly = true
        let reader = try Store(at: path, options: readOnly)
        all += [
            error { try open { $0.capacity = 2 << 20 } }, error { try open { $0.maxEntries = 5 } },
            error { try open { $0.shards = 2 } }, error { try open { $0.segmentSize = 1 << 20 } },
            error { try open { $0.eviction = .clock } }, error { try open { $0.maxAge = .milliseconds(-5) } },
            error {
                try open {
                    $0.isReadOnly = true
                    $0.maxEntries = 3
                }
            },
            error { _ = try Store(at: "") }, error { try reader.insert("1", for: "key") },
            error { try store.insert("1", for: "") },
            error { try store.insert("1", for: "key", maxAge: .milliseconds(-5)) },
            error { try store.insert("1", for: "key", tags: [""]) }, error { try store.increment("key") },
            error { try store.insert([UInt8](repeating: 0, count: 1 << 20), for: "key") },
            error { _ = try store.lease("key", for: .seconds(7200)) },
        ]
        for i in all.indices { #expect(all[i] != nil, "\(i)") }
        return all.compactMap(\.self)
    }

    @Test("no message has C names; each names the directory; the localized description is the same")
    func swift() throws {
        for error in try errors() {
            for word in [
                "SHALE_", "NULL", "pass 0", "them 0", "use 0", "max_entries", "segment_size", "shale_", "handle",
            ] {
                #expect(!error.message.contains(word), "\(error.message)")
            }
            #expect(
                error.message.contains(directory.path) || error.message.contains("path is empty"), "\(error.message)")
            #expect(error.localizedDescription == error.message)
        }
        let load: any Error = LoadError.missing(key: "k")
        #expect(load.localizedDescription == "k is known to be missing")
    }
}
