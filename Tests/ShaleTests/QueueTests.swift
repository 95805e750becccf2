import Foundation
import Synchronization
import Testing
@testable import Shale

@Suite("Loads that wait for their turn", .timeLimit(.minutes(30)))
struct QueueTests {
    private let cache = MemoryCache<String, Int>()

    /// A load that continues after its cancellation, until `gate` opens.
    private func stuck(_ gate: Gate) async throws -> Task<Int, any Error> {
        let begun = Gate(), cache = cache
        let first = Task(priority: .low) {
            try await cache.value(for: "key") {
                begun.open()
                await gate.waitRegardless()
                return 1
            }
        }
        try await begun.wait()
        first.cancel()
        _ = await first.result
        return first
    }

    /// A caller that is cancelled while it waits.
    private func leave(_ load: @escaping @Sendable () async throws -> Int) async {
        let cache = cache
        let caller = Task(priority: .low) { try await cache.value(for: "key", load: load) }
        caller.cancel()
        await #expect(throws: CancellationError.self) { try await caller.value }
    }

    @Test("callers that come and leave behind a load that does not end free what they have, and do not queue up")
    func abandoned() async throws {
        final class Object: Sendable {
            let freed: Counter
            init(_ freed: Counter) { self.freed = freed }
            deinit { freed.add() }
        }
        let gate = Gate(), cache = cache, freed = Counter()
        _ = try await stuck(gate)
        for _ in 0..<5_000 {
            let object = Object(freed)
            await leave { withExtendedLifetime(object) { 2 } }
        }
        try await freed.wait(for: 5_000)
        // Raises all loads that it waits for.
        let last = Task(priority: .high) { try await cache.value(for: "key") { 3 } }
        await leave { 4 }
        gate.open()
        // (It joins the other's load if that one came first.)
        let value = try await last.value
        #expect(value == 3 || value == 4)
    }

    @Test("of loads that are begun and abandoned by several threads, one runs at a time")
    func alone() async throws {
        let running = Atomic(0), cache = cache
        let load: @Sendable (Int) async -> Int = { number in
            #expect(running.add(1, ordering: .relaxed).newValue == 1)
            for _ in 0..<20 { await Task.yield() }
            running.subtract(1, ordering: .relaxed)
            return number
        }
        for round in 0..<300 {
            await withTaskGroup { group in
                for number in 0..<12 {
                    group.addTask {
                        let caller = Task { try await cache.value(for: "key", options: .reload) { await load(number) } }
                        for _ in 0..<number * round % 17 { await Task.yield() }
                        if number % 4 != 0 { caller.cancel() }
                        let result = await caller.result
                        if number % 4 == 0 { #expect(throws: Never.self) { try result.get() } }
                    }
                }
            }
        }
        #expect(cache.loadKeys.isEmpty)
    }

    @Test("callers that are served a stale value while its load runs do not add up, and the load runs to its end")
    func behind() async throws {
        let clock = TestClock(), cache = try Cache<String, Int>.small(clock: clock), gate = Gate()
        cache["key"] = 1
        clock.advance(seconds: 60)
        for _ in 0..<1000 {
            let stale = try await cache.value(for: "key", options: .staleWhileRevalidate) {
                try await gate.wait()
                return 2
            }
            #expect(stale == 1)
        }
        #expect(cache.loader.holderCount(try cache.stored("key")) == 1)
        let line = LineExecutor()
        let waiter = Task(executorPreference: line) { try await cache.value(for: "key") { 3 } }
        await Task(executorPreference: line) {}.value
        waiter.cancel()
        await #expect(throws: CancellationError.self) { try await waiter.value }
        let joined = cache.prefetch("key") { 4 }
        gate.open()
        #expect(try await joined.value == 2)
        #expect(cache["key"] == 2 && cache.statistics.loads == 1)
    }

    @Test("a caller raises a long chain of loads, up to the last one")
    func raised() async throws {
        guard #available(macOS 26, *) else { return }
        let cache = MemoryCache<Int, Int>(maximumEntryCount: 0), begun = Gate()
        let last = 20_000
        @Sendable func load(_ key: Int) async throws -> Int {
            try await cache.value(for: key) {
                if key < last { return try await load(key + 1) + 1 }
                begun.open()
                while Task.currentPriority < .high { await Task.yield() }
                return 0
            }
        }
        let low = Task(priority: .low) { try await load(0) }
        try await begun.wait()
        let high = Task(priority: .high) { try await load(0) }
        #expect(try await high.value == last)
        #expect(try await low.value == last)
    }

    @Test("a load that waits for a long chain of loads is no cycle, and one that closes the chain is")
    func chain() async throws {
        let cache = MemoryCache<Int, Int>(maximumEntryCount: 0), begun = Gate(), gate = Gate(), asked = Counter()
        let last = 20_000
        @Sendable func load(_ key: Int) async throws -> Int {
            try await cache.value(for: key) {
                if key < last { return try await load(key + 1) + 1 }
                begun.open()
                try await gate.wait()
                let error = await #expect(throws: LoadError.self) { try await load(0) }
                if case .cycle(let keys)? = error { #expect(keys == (0...last).map { "\($0)" } + ["0"]) }
                return 0
            }
        }
        let all = Task { try await load(0) }
        try await begun.wait()
        let other = Task {
            try await cache.value(for: -1) {
                asked.add()
                return try await load(0) + 1
            }
        }
        try await asked.wait(for: 1)
        gate.open()
        #expect(try await all.value == last)
        #expect(try await other.value == last + 1)
    }
}
