import Testing
@testable import Shale

@Suite("The pause after a failed load", .timeLimit(.minutes(30)))
struct LoadPauseTests {
    private let clock = TestClock(), time = ManualClock()
    private let options = LoadOptions(.staleIfError, pauseAfterFailure: .seconds(10))

    /// With a stale value, 1, under "key".
    private func stale() throws -> Cache<String, Int> {
        let cache = try Cache<String, Int>.small(clock: clock, limitClock: time)
        cache["key"] = 1
        clock.advance(seconds: 60)
        return cache
    }

    /// Calls with a load that fails. Returns whether it was tried.
    private func fail(_ cache: Cache<String, Int>, _ options: LoadOptions) async throws -> (
        entry: Cache<String, Int>.Entry, wasTried: Bool
    ) {
        let tries = Counter()
        let entry = try await cache.entry(for: "key", options: options) { _ in
            tries.add()
            throw Offline()
        }
        return (entry, tries.count == 1)
    }

    private func isPaused(_ error: (any Error)?) -> Bool {
        if case .paused("key", is Offline)? = error as? LoadError { true } else { false }
    }

    @Test("the stale value is served with the reason, without another load, until the pause is over")
    func pause() async throws {
        let cache = try stale()
        let failed = try await fail(cache, options)
        #expect(failed.wasTried && failed.entry.value == 1 && failed.entry.isStale && failed.entry.error is Offline)
        for wait in [0, 9_999] as [Int64] {
            clock.advance(milliseconds: wait)
            let paused = try await fail(cache, options)
            #expect(!paused.wasTried && paused.entry.value == 1 && paused.entry.isStale)
            #expect(isPaused(paused.entry.error))
        }
        clock.advance(milliseconds: 1)
        #expect(try await fail(cache, options).wasTried)
    }

    @Test("without the option each caller loads, and so does reload; a policy that serves no stale value throws")
    func without() async throws {
        let cache = try stale()
        #expect(try await fail(cache, options).wasTried)
        #expect(try await fail(cache, .staleIfError).wasTried)
        for (policy, loads) in [(LoadPolicy.default, 2), (.reload, 3)] {
            let options = LoadOptions(policy, pauseAfterFailure: .seconds(10))
            await #expect(throws: Offline.self) { try await fail(cache, options) }
            #expect(cache.statistics.loads == loads)
        }
    }

    @Test("staleWhileRevalidate: no load in the background either")
    func behind() async throws {
        let cache = try stale(), gate = Gate()
        let options = LoadOptions(.staleWhileRevalidate, pauseAfterFailure: .seconds(10))
        let first = try await cache.entry(for: "key", options: options) { _ in
            try await gate.wait()
            throw Offline()
        }
        #expect(first.value == 1 && first.isStale && first.error == nil)
        // Waits for that load.
        let waiter = Task { try await cache.value(for: "key") { throw Offline() } }
        gate.open()
        await #expect(throws: Offline.self) { try await waiter.value }
        let loads = cache.statistics.loads
        let paused = try await fail(cache, options)
        #expect(paused.entry.value == 1 && isPaused(paused.entry.error))
        // Would join a load if there were one.
        #expect(try await cache.value(for: "key") { 2 } == 2)
        #expect(cache.statistics.loads == loads + 1)
    }

    @Test("a successful load ends it, and so does setting the clock back")
    func ends() async throws {
        let cache = try stale()
        #expect(try await fail(cache, options).wasTried)
        #expect(try await cache.value(for: "key", options: .reload, maxAge: .zero) { 2 } == 2)
        let again = try await fail(cache, options)
        #expect(again.wasTried && again.entry.value == 2)
        clock.advance(seconds: -1)
        try cache.touch("key", maxAge: .zero)
        #expect(try await fail(cache, options).wasTried)
    }

    @Test(
        "without a stale value, a load fails once: the others get its error until the pause is over",
        arguments: [LoadPolicy.default, .staleIfError, .staleWhileRevalidate])
    func nothing(policy: LoadPolicy) async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        let options = LoadOptions(policy, pauseAfterFailure: .seconds(10))
        for (wait, loads) in [(0, 1), (0, 1), (9_999, 1), (1, 2)] as [(Int64, Int)] {
            clock.advance(milliseconds: wait)
            await #expect(throws: Offline.self) { try await fail(cache, options) }
            #expect(cache.statistics.loads == loads)
        }
        // A value from elsewhere is served at once.
        cache["key"] = 3
        #expect(try await fail(cache, options).entry.value == 3)
        try cache.removeValue(for: "key")
        await #expect(throws: Offline.self) { try await fail(cache, options) }
        #expect(try await cache.value(for: "key", options: .reload) { 4 } == 4)
    }

    @Test("200,000 keys without a value share a table of 1,024 failures")
    func bounded() async throws {
        let cache = try Cache<Int, Int>.small(clock: clock)
        for key in 0..<2000 {
            await #expect(throws: Offline.self) {
                try await cache.value(for: key, options: options) { throw Offline() }
            }
        }
        #expect(cache.pauses.count == 1024)
        let pauses = LoadPauses<Int>()
        for key in 0..<200_000 { pauses.begin(key, hasStale: false, after: Offline(), at: 0, for: .seconds(1)) }
        #expect(pauses.count == 1024)
        #expect(pauses.cause(for: 200_000 - 1024, at: 0) is Offline && pauses.cause(for: 200_000 - 1025, at: 0) == nil)
        // The latest failure of a key counts, and in one table only.
        pauses.begin(200_000 - 1024, hasStale: false, after: Offline(), at: 0, for: .seconds(1))
        pauses.begin(0, hasStale: false, after: Offline(), at: 0, for: .seconds(1))
        #expect(pauses.cause(for: 200_000 - 1024, at: 0) is Offline && pauses.cause(for: 200_000 - 1023, at: 0) == nil)
        pauses.begin(0, hasStale: true, after: Offline(), at: 0, for: .seconds(1))
        #expect(pauses.count == 1024)
        pauses.end(0)
        #expect(pauses.cause(for: 0, at: 0) == nil && pauses.count == 1023)
    }

    @Test("a hard limit is a failure; a cancellation is not")
    func limits() async throws {
        let cache = try stale()
        var options = options
        options.hardLimit = .seconds(3)
        let begun = Gate(), never = Gate()
        let cancelled = Task { [options] in
            try await cache.value(for: "key", options: options) {
                begun.open()
                try await never.wait()
                return 2
            }
        }
        try await begun.wait()
        cancelled.cancel()
        await #expect(throws: CancellationError.self) { try await cancelled.value }

        let tries = Counter(), sleeps = time.sleeps.count
        let overdue = Task { [options] in
            try await cache.entry(for: "key", options: options) { _ in
                tries.add()
                try await never.wait()
                return .value(2)
            }
        }
        try await tries.wait(for: 1)
        try await time.sleeps.wait(for: sleeps + 1)
        time.advance(by: .seconds(3))
        #expect(try await overdue.value.value == 1)
        let paused = try await fail(cache, options)
        guard !paused.wasTried, case LoadError.paused("key", let cause)? = paused.entry.error,
            case LoadError.hardLimit? = cause as? LoadError
        else { Issue.record("\(paused)"); return }
    }

    @Test("expired pauses are removed when there are many")
    func many() {
        let pauses = LoadPauses<Int>()
        for key in 0..<1024 { pauses.begin(key, hasStale: true, after: Offline(), at: 0, for: .seconds(1)) }
        #expect(pauses.count == 1024)
        pauses.begin(1024, hasStale: true, after: Offline(), at: 1000, for: .seconds(1))
        #expect(pauses.count == 1)
        #expect(pauses.cause(for: 1024, at: 1999) is Offline && pauses.cause(for: 1024, at: 2000) == nil)
        for key in 0..<3000 { pauses.begin(key, hasStale: true, after: Offline(), at: 1500, for: .seconds(1000)) }
        #expect(pauses.count == 3000)
    }
}
