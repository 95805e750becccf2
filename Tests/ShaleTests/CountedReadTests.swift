import Foundation
import Shale
import Testing

@Suite("The counters of a call that may load", .timeLimit(.minutes(30)))
struct CountedReadTests {
    enum Case: CaseIterable, Sendable { case fresh, stale, replaced, removed, absent }

    private func counts(_ store: Store) throws -> [UInt64] {
        let statistics = try store.statistics()
        return [statistics.hits, statistics.staleHits, statistics.misses]
    }

    @Test(
        "the store counts it as one read, also where the value in memory is no longer the stored one",
        arguments: [LoadOptions.default, .staleIfError, .staleWhileRevalidate], Case.allCases)
    func oneRead(options: LoadOptions, situation: Case) async throws {
        let clock = TestClock()
        var storeOptions = Store.Options(capacity: 4 << 20)
        storeOptions.now = { Int64(clock.date.timeIntervalSince1970 * 1000) }
        let store = try Store(at: nil, options: storeOptions)
        let cache = try Cache<String, Int>(in: store, named: "a", maxAge: .seconds(60))
        let other = try Cache<String, Int>(in: store, named: "a", maxAge: .seconds(60))
        if situation != .absent { try cache.insert(1, for: "key") }
        switch situation {
        case .fresh, .absent: break
        case .stale: clock.advance(seconds: 60)
        case .replaced: try other.insert(2, for: "key")
        case .removed: try other.removeValue(for: "key")
        }
        let before = try counts(store)
        let value = try await cache.value(for: "key", options: options) { 3 }
        let after = try counts(store), change = zip(after, before).map { $0 - $1 }
        let servesStale = situation == .stale && options == .staleWhileRevalidate
        switch situation {
        case .fresh: #expect(value == 1 && change == [1, 0, 0])
        case .replaced: #expect(value == 2 && change == [1, 0, 0])
        case .stale where servesStale: #expect(value == 1 && change == [0, 1, 0])
        case .stale, .removed, .absent: #expect(value == 3 && change == [0, 0, 1])
        }
        let statistics = cache.statistics
        #expect(statistics.memoryHits == (situation == .fresh || servesStale ? 1 : 0))
        #expect(statistics.storeHits == (situation == .replaced ? 1 : 0))
        #expect(statistics.misses == (value == 3 ? 1 : 0))
    }

    @Test("the value in memory does not hide options that are out of range")
    func badOptions() async throws {
        let cache = try Cache<String, Int>.small()
        cache["key"] = 1
        await #expect(throws: ShaleError.self) {
            try await cache.value(for: "key", options: LoadOptions(jitter: 2)) { 2 }
        }
    }
}
