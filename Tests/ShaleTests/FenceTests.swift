import Foundation
import Testing
@testable import Shale

/// A loader reads the origin; then the origin and the cache are changed; then the loader returns the value that it
/// read.
@Suite("Changes during a load", .timeLimit(.minutes(30)))
struct FenceTests {
    /// How the cache is changed after the origin has become 2.
    enum Change: CaseIterable {
        case insert, replace, remove, invalidateTag, removeAll, clearStore, removeFromStore
        case expire, expireTag, expireAll

        /// Keeps the old entry as a stale one.
        var expires: Bool { self == .expire || self == .expireTag || self == .expireAll }
    }
    /// Whether there is a stale entry or none, and which cache object makes the change.
    enum Setting: CaseIterable { case present, absent, presentElsewhere, absentElsewhere }
    typealias IntCache = Cache<String, Int>

    private let clock = TestClock()
    private let directory = TemporaryDirectory()
    private static let tag = "news"

    private func open(memoryEntries: Int = 256) throws -> IntCache {
        try Cache(
            at: directory.url, maxAge: .seconds(60), capacity: 4 << 20, memoryEntries: memoryEntries, now: clock.now)
    }

    /// The cache that loads, and the one that makes changes.
    private func caches(_ setting: Setting) throws -> (IntCache, IntCache) {
        let cache = try open()
        let isElsewhere = setting == .presentElsewhere || setting == .absentElsewhere
        if setting == .present || setting == .presentElsewhere {
            try cache.insert(1, for: "key", tags: [FenceTests.tag], etag: "e")
            clock.advance(seconds: 60)
        }
        return (cache, isElsewhere ? try open() : cache)
    }

    private func load<Output>(of joined: Joined<Output>) throws -> Hold<Output> {
        guard case .load(let hold) = joined else { throw Offline() }
        return hold
    }

    private func make(_ change: Change, in cache: IntCache) throws { try make(change, in: cache, 2) }
    private func make<Value>(_ change: Change, in cache: Cache<String, Value>, _ new: Value) throws {
        switch change {
        case .insert: try cache.insert(new, for: "key")
        case .replace:
            // Inserts if there is no entry to replace.
            if let version = try cache.entry(for: "key", includingStale: true)?.version {
                #expect(try cache.insert(new, for: "key", ifVersion: version) != nil)
            } else {
                try cache.insert(new, for: "key")
            }
        case .remove: try cache.removeValue(for: "key")
        case .invalidateTag: try cache.removeAll(tagged: FenceTests.tag)
        case .removeAll: try cache.removeAll()
        case .clearStore: try cache.store.removeAll()
        case .expire: try cache.expire("key")
        case .expireTag: try cache.expireAll(tagged: FenceTests.tag)
        case .expireAll: try cache.expireAll()
        case .removeFromStore: try cache.store.removeValue(for: try cache.stored("key"))
        }
    }

    /// Memory and store have only the result of the change, and the next load returns the new value.
    private func expectTruth(_ cache: IntCache, after change: Change) async throws {
        let isStored = change == .insert || change == .replace
        for reader in [cache, try open(), try open(memoryEntries: 0)] {
            for _ in 0..<2 {
                #expect(try reader.value(for: "key") == (isStored ? 2 : nil))
                if change.expires { continue }
                #expect(try reader.entry(for: "key", includingStale: true)?.value == (isStored ? 2 : nil))
            }
        }
        #expect(try await cache.value(for: "key") { isStored ? 3 : 2 } == 2)
        #expect(try cache.value(for: "key") == 2)
    }

    @Test(
        "a value that was loaded before the change goes to the waiters, and is not stored", arguments: Change.allCases,
        Setting.allCases)
    func notStored(_ change: Change, _ setting: Setting) async throws {
        let (cache, other) = try caches(setting)
        let entry = try await cache.entry(for: "key") { _ in
            try make(change, in: other)
            return .value(1, tags: [FenceTests.tag])
        }
        #expect(entry.value == 1 && entry.version == 0 && entry.isStale)
        #expect(cache.statistics.unstored == 1)
        try await expectTruth(cache, after: change)
    }

    @Test("nor is a missing value", arguments: Change.allCases, Setting.allCases)
    func missing(_ change: Change, _ setting: Setting) async throws {
        let (cache, other) = try caches(setting)
        await #expect(throws: LoadError.self) {
            try await cache.entry(for: "key") { _ in
                try make(change, in: other)
                return .missing(tags: [FenceTests.tag])
            }
        }
        try await expectTruth(cache, after: change)
    }

    @Test(
        "notModified from before the change renews neither the old value nor its replacement",
        arguments: Change.allCases, [Setting.present, .presentElsewhere])
    func notModified(_ change: Change, _ setting: Setting) async throws {
        let (cache, other) = try caches(setting)
        let entry = try await cache.entry(for: "key") { stored in
            #expect(stored?.etag == "e")
            try make(change, in: other)
            return .notModified(maxAge: .seconds(1000))
        }
        #expect(entry.value == 1 && entry.version == 0 && entry.isStale)
        if let known = try cache.entry(for: "key") { #expect(known.expiresAt == clock.date + 60) }
        try await expectTruth(cache, after: change)
    }

    @Test("in memory, large, pinned, behind stale data, as a reload, prefetched", arguments: Change.allCases)
    func everyWay(_ change: Change) async throws {
        let store = try Store(at: nil, options: .init(capacity: 8 << 20))
        let data = try Cache<String, Data>(in: store, named: "data")
        let large = Data((0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) }), new = Data([2])
        let isStored = change == .insert || change == .replace
        for policy in [LoadOptions.default, .staleIfError, .staleWhileRevalidate, .reload] {
            for isPinned in [false, true] {
                try data.removeAll()
                if policy == .staleWhileRevalidate {
                    try data.insert(Data([1]), for: "key", maxAge: .zero, tags: [FenceTests.tag])
                }
                let begun = Gate(), gate = Gate()
                let load: @Sendable (Cache<String, Data>.Entry?) async throws -> Cache<String, Data>.Loaded = { _ in
                    begun.open()
                    try await gate.wait()
                    return .value(large, tags: [FenceTests.tag], pinned: isPinned)
                }
                let hold = try self.load(of: data.loadInBackground("key", insteadOf: nil, policy, load))
                try await begun.wait()
                try make(change, in: data, new)
                gate.open()
                guard case .entry(let entry)? = try await hold.output() else {
                    Issue.record("no entry"); return
                }
                #expect(entry.value == large && entry.version == 0)
                let isKept = change.expires && policy == .staleWhileRevalidate
                #expect(
                    try data.entry(for: "key", includingStale: true)?.value
                        == (isStored ? new : isKept ? Data([1]) : nil))
            }
        }
    }

    @Test(
        "a caller after the change does not join the load that began before it", arguments: Change.allCases,
        Setting.allCases)
    func notJoined(_ change: Change, _ setting: Setting) async throws {
        let (cache, other) = try caches(setting)
        let begun = Gate(), gate = Gate(), loads = Counter(), truth = Counter()
        func ask() throws -> Hold<IntCache.Answer> {
            try load(
                of: cache.loadInBackground("key", insteadOf: nil, .reload) { _ in
                    loads.add()
                    let read = truth.count + 1
                    if loads.count == 1 {
                        begun.open()
                        try await gate.wait()
                    }
                    return .value(read, tags: [FenceTests.tag])
                })
        }
        func value(_ hold: Hold<IntCache.Answer>) async throws -> Int? {
            guard case .entry(let entry)? = try await hold.output() else { return nil }
            return entry.value
        }
        let first = try ask()
        try await begun.wait()
        let joined = try ask()
        truth.add()
        try make(change, in: other)
        let later = try (0..<10).map { _ in try ask() }
        gate.open()
        #expect(try await value(first) == 1)
        #expect(try await value(joined) == 1)
        for hold in later { #expect(try await value(hold) == 2) }
        #expect(loads.count == 2)
        #expect(try cache.value(for: "key") == 2)
    }

    @Test("successive changes do not queue up loads: one that has not begun covers all of them")
    func noQueue() async throws {
        let cache = try open()
        let begun = Gate(), gate = Gate(), loads = Counter()
        let load: @Sendable (IntCache.Entry?) async throws -> IntCache.Loaded = { _ in
            let number = loads.add()
            begun.open()
            try await gate.wait()
            return .value(number)
        }
        cache.prefetch("key", load: load)
        try await begun.wait()
        for _ in 0..<10 {
            try cache.removeValue(for: "key")
            cache.prefetch("key", load: load)
        }
        gate.open()
        #expect(try await cache.value(for: "key") { 9 } == 2)
        #expect(loads.count == 2)
    }

    @Test("expiry and eviction are not changes: the loaded value is stored")
    func noChange() async throws {
        let cache = try Cache<String, Int>.small(staleFor: .seconds(10), clock: clock)
        cache["key"] = 1
        clock.advance(seconds: 60)
        #expect(
            try await cache.value(for: "key") {
                clock.advance(seconds: 10)
                _ = try cache.store.purge()
                try cache.touch("key")
                try cache.insert(1, for: "other")
                try cache.removeValue(for: "a third")
                return 2
            } == 2)
        #expect(try cache.value(for: "key") == 2)
        #expect(cache.statistics.unstored == 0)
    }

    @Test("a loaded value replaces a stale value that does not decode")
    func undecodable() async throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        let texts = try Cache<String, String>(in: store, named: "c")
        let numbers = try Cache<String, Int>(in: store, named: "c")
        try texts.insert("text", for: "key", maxAge: .zero)
        #expect(try await numbers.value(for: "key") { 1 } == 1)
        #expect(try numbers.value(for: "key") == 1)
    }
}
