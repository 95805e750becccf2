import Foundation
import Testing
@testable import Shale

@Suite("Ages of loaded values", .timeLimit(.minutes(30)))
struct LoadAgeTests {
    private let clock = TestClock()

    /// Milliseconds left.
    private func age(_ entry: Cache<Int, Int>.Entry?) throws -> Int64 {
        try #require(entry?.expiresAt).millisecondsSince1970 - clock.date.millisecondsSince1970
    }

    @Test("the loader sets the age of loaded and of unmodified values")
    func byValue() async throws {
        let cache = try Cache<Int, Int>.small(clock: clock)
        for seconds in [1, 7, 300] {
            let entry = try await cache.entry(for: seconds) { _ in .value(seconds, maxAge: .seconds(seconds)) }
            #expect(try age(entry) == Int64(seconds) * 1000)
            #expect(entry.source == .loader && entry.error == nil)
            let renewed = try await cache.entry(for: seconds, options: .reload) { present in
                .notModified(maxAge: .seconds((present?.value ?? 0) * 2))
            }
            #expect(try age(renewed) == Int64(seconds) * 2000)
        }
    }

    @Test("jitter shortens ages at random, at most by its limit: of values, of unmodified values, of missing values")
    func jitter() async throws {
        let cache = try Cache<Int, Int>.small(clock: clock)
        let options = LoadOptions(.reload, jitter: 0.5)
        var loaded = Set<Int64>(), renewed = Set<Int64>(), missing = Set<Int64>()
        for key in 0..<100 {
            loaded.insert(try age(try await cache.entry(for: key, options: options) { _ in .value(key) }))
            renewed.insert(try age(try await cache.entry(for: key, options: options) { _ in .notModified() }))
            _ = try? await cache.entry(for: key, options: options) { _ in .missing() }
            let known = try cache.store.entry(for: try cache.stored(key))
            missing.insert(try #require(known?.expiresAt) - clock.date.millisecondsSince1970)
        }
        for ages in [loaded, renewed, missing] {
            // A hundred draws from 30,000 values differ.
            #expect(ages.count > 10)
            #expect(ages.allSatisfy { 30_000...60_000 ~= $0 })
        }
    }

    @Test("without jitter ages are exact; and forever stays forever")
    func exact() async throws {
        let cache = try Cache<Int, Int>.small(clock: clock)
        for key in 0..<20 { #expect(try age(try await cache.entry(for: key) { _ in .value(key) }) == 60_000) }
        let entry = try await cache.entry(for: 100, options: LoadOptions(jitter: 1)) { _ in
            .value(1, maxAge: .forever)
        }
        #expect(entry.expiresAt == nil)
    }
}
