import Foundation
import Testing
@testable import Shale

@Suite("Time limits of loads", .timeLimit(.minutes(30)))
struct LoadLimitTests {
    private let clock = TestClock(), time = ManualClock()

    /// With a stale value, 1, under "key".
    private func stale() throws -> Cache<String, Int> {
        let cache = try Cache<String, Int>.small(clock: clock, limitClock: time)
        cache["key"] = 1
        clock.advance(seconds: 60)
        return cache
    }

    private func isHard(_ error: (any Error)?, _ key: String, _ limit: Duration) -> Bool {
        if case .hardLimit(key, limit)? = error as? LoadError { true } else { false }
    }

    /// A load that signals its start, and waits until it is released or cancelled.
    private final class Load: Sendable {
        let begun = Gate(), gate = Gate(), cancelled = Counter(), loads = Counter()
        func callAsFunction() async throws -> Int {
            loads.add()
            begun.open()
            do { try await gate.wait() } catch {
                cancelled.add()
                throw error
            }
            return 2
        }
    }

    @Test("at the soft limit the stale value is served with the reason; the load continues and stores")
    func soft() async throws {
        for policy in [LoadPolicy.default, .staleIfError, .reload] {
            let cache = try stale(), load = Load(), sleeps = time.sleeps.count
            var changes = cache.changes.makeAsyncIterator()
            let asked = Task {
                try await cache.entry(for: "key", options: LoadOptions(policy, softLimit: .seconds(1))) { _ in
                    .value(try await load())
                }
            }
            try await time.sleeps.wait(for: sleeps + 1)
            time.advance(by: .seconds(1))
            let entry = try await asked.value
            #expect(entry.value == 1 && entry.isStale && entry.source == .memory, "\(policy)")
            guard case LoadError.softLimit("key", .seconds(1))? = entry.error else {
                Issue.record("\(String(describing: entry.error))")
                return
            }
            load.gate.open()
            guard case .inserted = await changes.next() else { Issue.record("not stored"); return }
            #expect(cache["key"] == 2 && load.cancelled.count == 0, "\(policy)")
        }
    }

    @Test("the result of a load that ends before the soft limit is served, without an error")
    func beforeSoft() async throws {
        let cache = try stale(), load = Load()
        let asked = Task {
            try await cache.entry(for: "key", options: LoadOptions(softLimit: .seconds(1))) { _ in
                .value(try await load())
            }
        }
        try await time.sleeps.wait(for: 1)
        time.advance(by: .milliseconds(999))
        load.gate.open()
        let entry = try await asked.value
        #expect(entry.value == 2 && entry.source == .loader && !entry.isStale && entry.error == nil)
    }

    @Test("with nothing stored, the soft limit has no effect, and the hard limit counts from the start")
    func softWithout() async throws {
        let cache = try Cache<String, Int>.small(limitClock: time), load = Load()
        let options = LoadOptions(softLimit: .seconds(1), hardLimit: .seconds(5))
        let first = Task { try await cache.value(for: "key", options: options) { try await load() } }
        try await time.sleeps.wait(for: 1)
        time.advance(by: .seconds(1))
        // It continues to wait.
        try await time.sleeps.wait(for: 2)
        load.gate.open()
        #expect(try await first.value == 2)

        let never = Load()
        let second = Task { try await cache.value(for: "other", options: options) { try await never() } }
        try await time.sleeps.wait(for: 3)
        time.advance(by: .seconds(1))
        try await time.sleeps.wait(for: 4)
        time.advance(by: .seconds(4))
        do { Issue.record("\(try await second.value)") } catch { #expect(isHard(error, "other", .seconds(5))) }
    }

    @Test("at the hard limit the caller gets an error that names key and limit, and the load is cancelled")
    func hard() async throws {
        for policy in [LoadPolicy.default, .staleIfError, .staleWhileRevalidate, .reload] {
            let cache = try Cache<String, Int>.small(limitClock: time), load = Load(), sleeps = time.sleeps.count
            let options = LoadOptions(policy, softLimit: .seconds(5), hardLimit: .seconds(3))
            let asked = Task { try await cache.value(for: "key", options: options) { try await load() } }
            try await load.begun.wait()
            // The only timer is that of the hard limit.
            try await time.sleeps.wait(for: sleeps + 1)
            time.advance(by: .seconds(3))
            do { Issue.record("\(try await asked.value)") } catch { #expect(isHard(error, "key", .seconds(3))) }
            try await load.cancelled.wait(for: 1)
            #expect(try await cache.value(for: "key") { 3 } == 3)
        }
        #expect(
            LoadError.hardLimit(key: "key", limit: .seconds(3)).description
                == "the load of key exceeded its hard limit of 3.0 seconds")
    }

    @Test("a hard limit applies only to its caller: the load continues for the others")
    func hardOfOne() async throws {
        let cache = try Cache<String, Int>.small(limitClock: time), load = Load()
        let patient = Task { try await cache.value(for: "key") { try await load() } }
        try await load.begun.wait()
        let hasty = Task { try await cache.value(for: "key", options: LoadOptions(hardLimit: .seconds(1))) { 9 } }
        try await time.sleeps.wait(for: 1)
        time.advance(by: .seconds(1))
        do { Issue.record("\(try await hasty.value)") } catch { #expect(isHard(error, "key", .seconds(1))) }
        load.gate.open()
        #expect(try await patient.value == 2)
        #expect(load.loads.count == 1 && load.cancelled.count == 0)
    }

    @Test("staleIfError: at the hard limit the stale value is served, with the limit as its error")
    func hardWithStale() async throws {
        let cache = try stale(), load = Load()
        let asked = Task {
            try await cache.entry(for: "key", options: LoadOptions(.staleIfError, hardLimit: .seconds(3))) { _ in
                .value(try await load())
            }
        }
        try await time.sleeps.wait(for: 1)
        time.advance(by: .seconds(3))
        let entry = try await asked.value
        #expect(entry.value == 1 && entry.isStale && isHard(entry.error, "key", .seconds(3)))
        try await load.cancelled.wait(for: 1)
    }

    @Test(
        "a load in the background ends at the hard limit: after a soft limit, after a stale value, or as a prefetch"
    )
    func hardBehind() async throws {
        let served = try stale(), first = Load()
        let asked = Task {
            try await served.value(for: "key", options: LoadOptions(softLimit: .seconds(1), hardLimit: .seconds(3))) {
                try await first()
            }
        }
        try await first.begun.wait()
        try await time.sleeps.wait(for: 1)
        time.advance(by: .seconds(1))
        #expect(try await asked.value == 1)
        try await time.sleeps.wait(for: 2)
        #expect(first.cancelled.count == 0)
        time.advance(by: .seconds(2))
        try await first.cancelled.wait(for: 1)

        let behind = try stale(), second = Load()
        let options = LoadOptions(.staleWhileRevalidate, hardLimit: .seconds(3))
        #expect(try await behind.value(for: "key", options: options) { try await second() } == 1)
        try await second.begun.wait()
        try await time.sleeps.wait(for: 3)
        time.advance(by: .seconds(3))
        try await second.cancelled.wait(for: 1)

        let third = Load()
        behind.prefetch("other", options: LoadOptions(hardLimit: .seconds(3))) { try await third() }
        try await third.begun.wait()
        try await time.sleeps.wait(for: 4)
        time.advance(by: .seconds(3))
        try await third.cancelled.wait(for: 1)
    }

    @Test("the hard limit also ends the wait for another object's load")
    func hardElsewhere() async throws {
        let directory = TemporaryDirectory()
        let cache = try Cache<String, Int>(at: directory.url, capacity: 4 << 20, limitClock: time)
        let lease = try #require(try cache.store.lease(try cache.stored("key"), for: .seconds(3000)))
        let asked = Task { try await cache.value(for: "key", options: LoadOptions(hardLimit: .seconds(3))) { 1 } }
        try await time.sleeps.wait(for: 1)
        time.advance(by: .seconds(3))
        do { Issue.record("\(try await asked.value)") } catch { #expect(isHard(error, "key", .seconds(3))) }
        try cache.store.release(lease, of: try cache.stored("key"))
        #expect(cache.statistics.loads == 0)
    }

    @Test("a cancelled caller with limits returns at once, and its load is cancelled")
    func cancelled() async throws {
        let cache = try stale(), load = Load()
        let asked = Task {
            try await cache.value(for: "key", options: LoadOptions(.staleIfError, softLimit: .seconds(1))) {
                try await load()
            }
        }
        try await load.begun.wait()
        try await time.sleeps.wait(for: 1)
        asked.cancel()
        await #expect(throws: CancellationError.self) { try await asked.value }
        try await load.cancelled.wait(for: 1)
    }

    @Test("options out of range are an error, and prefetch nothing")
    func outOfRange() async throws {
        let cache = try Cache<String, Int>.small()
        for options in [
            LoadOptions(softLimit: .seconds(-1)), LoadOptions(hardLimit: .zero), LoadOptions(hardLimit: .seconds(-1)),
            LoadOptions(pauseAfterFailure: .seconds(-1)), LoadOptions(jitter: -0.1), LoadOptions(jitter: 1.1),
            LoadOptions(jitter: .nan),
        ] {
            await #expect(throws: ShaleError.self, "\(options)") {
                try await cache.value(for: "key", options: options) { 1 }
            }
            cache.prefetch("key", options: options) { 1 }
        }
        #expect(cache.statistics.loads == 0)
    }
}
