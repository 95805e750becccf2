import Foundation
import Testing
@testable import Shale

@Suite("Limits of waits", .timeLimit(.minutes(30)))
struct LimitOfWaitTests {
    @Test("a loader that waits for a prefetch whose load waits for the loader gets an error")
    func prefetchCycle() async throws {
        let cache = try Cache<String, Int>.small()
        for other in ["a", "b"] {
            let error = await #expect(throws: LoadError.self) {
                try await cache.value(for: "a") {
                    try await cache.prefetch(other) { try await cache.value(for: "a") { 1 } }.value
                }
            }
            guard case .cycle? = error else { Issue.record("\(String(describing: error))"); return }
            // Nothing holds the loads any more.
            #expect(try await cache.value(for: other, options: .reload) { 2 } == 2)
            try cache.removeAll()
        }
        // One that has ended is no wait.
        let ended = cache.prefetch("a") { 3 }
        #expect(try await ended.value == 3)
        #expect(try await cache.value(for: "a", options: .reload) { try await ended.value + 1 } == 4)
    }

    @Test("who waits for a prefetch waits no longer than its hard limit")
    func prefetchLimit() async throws {
        let time = ManualClock(), begun = Gate(), never = Gate(), cancelled = Counter()
        let cache = try Cache<String, Int>.small(limitClock: time)
        let prefetch = cache.prefetch("key", options: LoadOptions(hardLimit: .seconds(3))) {
            begun.open()
            do { try await never.wait() } catch {
                cancelled.add()
                throw error
            }
            return 1
        }
        try await begun.wait()
        let waiter = Task { try await prefetch.value }
        try await time.sleeps.wait(for: 2)
        time.advance(by: .seconds(3))
        let error = await #expect(throws: LoadError.self) { try await waiter.value }
        guard case .hardLimit("key", .seconds(3))? = error else { Issue.record("\(String(describing: error))"); return }
        try await cancelled.wait(for: 1)
    }

    @Test(
        "limits beyond what a clock can measure are no limits",
        arguments: [
            Duration.seconds(Int64.max), .seconds(Int64.max / 1_000_000_000), .seconds(1 << 34), .seconds(1 << 40),
            .nanoseconds(Int64.max), Duration(secondsComponent: 100_000_000_000_000_000, attosecondsComponent: 0),
        ])
    func huge(limit: Duration) async throws {
        let cache = try Cache<String, Int>.small(), memory = MemoryCache<String, Int>()
        // Also at once: the limits' tasks begin after these loads have ended, or before.
        for options in [LoadOptions(softLimit: limit), LoadOptions(hardLimit: limit)] {
            for caching in [cache, memory.caching] as [any Caching<String, Int>] {
                try caching.removeAll()
                let value = try await caching.value(for: "key", options: options) {
                    try await Task.sleep(for: .milliseconds(20))
                    return 1
                }
                #expect(value == 1)
            }
        }
        await #expect(throws: Offline.self) {
            try await cache.value(for: "other", options: LoadOptions(pauseAfterFailure: limit)) { throw Offline() }
        }
        await #expect(throws: Offline.self) {
            try await cache.value(for: "other", options: LoadOptions(pauseAfterFailure: limit)) { 1 }
        }
    }

    @Test("a point in time in the past is an age of zero, however far")
    func farPast() throws {
        let cache = try Cache<String, Int>.small()
        for seconds in [-9.223372036854775e15, -1e15, -1, 0, -Double.infinity, .nan] {
            try cache.insert(1, for: "key", maxAge: .until(Date(timeIntervalSince1970: seconds)))
            #expect(cache["key"] == nil, "\(seconds)")
            #expect(try cache.entry(for: "key", includingStale: true)?.value == 1)
        }
        for seconds in [9.2e15, 1e300, .infinity] {
            try cache.insert(1, for: "key", maxAge: .until(Date(timeIntervalSince1970: seconds)))
            #expect(try cache.entry(for: "key")?.expiresAt == nil, "\(seconds)")
        }
    }

    @Test("a duration of more seconds than an integer holds is for ever, or negative")
    func hugeAge() throws {
        let huge = Duration.seconds(1e20)
        let cache = try Cache<String, Int>.inMemory(
            maxAge: Age(huge), staleFor: Age(huge), capacity: 4 << 20, lockTimeout: huge)
        try cache.insert(1, for: "key")
        #expect(try cache.entry(for: "key")?.expiresAt == nil && cache["key"] == 1)
        let error = #expect(throws: ShaleError.self) { try cache.insert(2, for: "key", maxAge: Age(.zero - huge)) }
        #expect(error?.code == .invalid && cache["key"] == 1)
        let timeout = #expect(throws: ShaleError.self) {
            try Cache<String, Int>.inMemory(capacity: 4 << 20, lockTimeout: .zero - huge)
        }
        #expect(timeout?.code == .invalid)
    }

    @Test("pauses of keys whose stale values were evicted are removed")
    func evictedPauses() async throws {
        let cache = try Cache<Int, Int>.small(maxEntries: 100)
        let options = LoadOptions(.staleIfError, pauseAfterFailure: .seconds(3600))
        for key in 0..<3000 {
            try cache.insert(key, for: key, maxAge: .zero)
            let entry = try await cache.entry(for: key, options: options) { _ in throw Offline() }
            #expect(entry.error is Offline)
        }
        #expect(cache.pauses.count <= 1025)
        let paused = try await cache.entry(for: 2999, options: options) { _ in .value(0) }
        #expect(paused.value == 2999 && paused.error is LoadError)
    }
}
