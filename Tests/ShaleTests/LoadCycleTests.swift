import Foundation
import Testing
@testable import Shale

@Suite("Loads that would wait for themselves", .timeLimit(.minutes(30)))
struct LoadCycleTests {
    private let directory = TemporaryDirectory()

    private func open(_ path: String? = nil) throws -> Cache<String, Int> {
        try Cache(at: path ?? directory.path, capacity: 4 << 20, leaseTime: .milliseconds(50))
    }

    /// The keys in the caller's error.
    private func cycle(_ ask: () async throws -> Int) async -> [String]? {
        do { Issue.record("\(try await ask())") } catch LoadError.cycle(let keys) { return keys } catch {
            Issue.record(error)
        }
        return nil
    }

    @Test("a loader that asks for its own key gets an error, and the key can be loaded afterwards")
    func direct() async throws {
        for policy in [LoadOptions.default, .staleIfError, .staleWhileRevalidate, .reload] {
            let cache = try Cache<String, Int>.small()
            let keys = await cycle {
                try await cache.value(for: "a", options: policy) {
                    try await cache.value(for: "a", options: policy) { 1 }
                }
            }
            #expect(keys == ["a", "a"], "\(policy)")
            #expect(try await cache.value(for: "a") { 2 } == 2)
        }
        #expect(LoadError.cycle(keys: ["a", "b", "a"]).description == "a load waits for itself: a → b → a")
    }

    @Test("a loader that gets the error may continue without the value, with every policy")
    func caught() async throws {
        let clock = TestClock(), cache = try Cache<String, Int>.small(clock: clock)
        cache["a"] = 1
        clock.advance(seconds: 60)
        let value = try await cache.value(for: "a") {
            await #expect(throws: LoadError.self) {
                try await cache.value(for: "a", options: .staleIfError) { 2 }
            }
            return 3
        }
        #expect(value == 3)
    }

    @Test("through other keys and other caches in the store: the error names all keys")
    func chain() async throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        let letters = try Cache<String, Int>(in: store, named: "letters")
        let numbers = try Cache<Int, Int>(in: store, named: "numbers")
        let keys = await cycle {
            try await letters.value(for: "a") {
                try await letters.value(for: "b") {
                    try await numbers.value(for: 1) { try await letters.value(for: "b") { 1 } }
                }
            }
        }
        #expect(keys == ["b of \"letters\"", "1 of \"numbers\"", "b of \"letters\""])
    }

    @Test("through another cache object on the same directory, also by another path", arguments: [false, true])
    func otherObject(byLink: Bool) async throws {
        let mine = try open()
        let link = directory.url.deletingLastPathComponent().appendingPathComponent("link-\(UUID().uuidString)")
        try FileManager.default.createSymbolicLink(at: link, withDestinationURL: directory.url)
        defer { try? FileManager.default.removeItem(at: link) }
        let theirs = try open(byLink ? link.path : nil)
        let keys = await cycle {
            try await mine.value(for: "a") { try await theirs.value(for: "a") { 1 } }
        }
        #expect(keys == ["a", "a"])
        #expect(theirs.statistics.loads == 0)
        let chain = await cycle {
            try await mine.value(for: "a") {
                try await theirs.value(for: "b") { try await mine.value(for: "a") { 1 } }
            }
        }
        #expect(chain == ["a", "b", "a"])
    }

    @Test("of two loads of different tasks that ask for each other's key, one gets the error")
    func twoTasks() async throws {
        let cache = try Cache<String, Int>.small()
        let bothBegun = Counter(), cycles = Counter()
        @Sendable func load(_ other: String) async throws -> Int {
            bothBegun.add()
            try await bothBegun.wait(for: 2)
            do { return try await cache.value(for: other) { 0 } } catch LoadError.cycle { return cycles.add() }
        }
        async let a = cache.value(for: "a") { try await load("b") }
        async let b = cache.value(for: "b") { try await load("a") }
        #expect(try await [a, b] == [1, 1])
        #expect(cycles.count == 1)
    }

    @Test("the same key in another store is another load")
    func otherStore() async throws {
        let mine = try Cache<String, Int>.small(), theirs = try Cache<String, Int>.small()
        let other = TemporaryDirectory(), here = try open(), there = try open(other.path)
        let value = try await mine.value(for: "a") {
            try await theirs.value(for: "a") {
                try await here.value(for: "a") { try await there.value(for: "a") { 1 } }
            }
        }
        #expect(value == 1)
    }

    @Test("a load in the background and a task that outlives its load do not count as waiting")
    func noCycle() async throws {
        let clock = TestClock(), cache = try Cache<String, Int>.small(clock: clock)
        cache["b"] = 0
        clock.advance(seconds: 60)
        let first = try await cache.value(for: "a") {
            // Served at once: "b" is loaded in the background, and waits for "a".
            try await cache.value(for: "b", options: .staleWhileRevalidate) {
                try await cache.value(for: "a") { 9 } + 1
            }
        }
        #expect(first == 0)
        #expect(try await cache.value(for: "b") { 5 } == 1)

        let ended = Gate(), later = Later()
        _ = try await cache.value(for: "c") {
            later.task = Task {
                try await ended.wait()
                return try await cache.value(for: "c", options: .reload) { 2 }
            }
            return 1
        }
        ended.open()
        #expect(try await later.task?.value == 2)
    }

    @Test("a load ends with its last caller, also while its loader asks for other keys")
    func cancellation() async throws {
        let cache = try Cache<String, Int>.small()
        let begun = Gate(), never = Gate(), cancelled = Counter()
        let waiter = Task {
            try await cache.value(for: "a") {
                try await cache.value(for: "b") {
                    begun.open()
                    do { try await never.wait() } catch {
                        cancelled.add()
                        throw error
                    }
                    return 1
                }
            }
        }
        try await begun.wait()
        waiter.cancel()
        await #expect(throws: CancellationError.self) { try await waiter.value }
        try await cancelled.wait(for: 1)
        #expect(try await cache.value(for: "a") { 2 } == 2)
    }

    @Test("a load that continues after its cancellation delays other processes only for its lease time")
    func stubborn() async throws {
        let mine = try open(), theirs = try open()
        let begun = Gate(), gate = Gate()
        let waiter = Task {
            try await mine.value(for: "a") {
                begun.open()
                await gate.waitRegardless()
                return 1
            }
        }
        try await begun.wait()
        waiter.cancel()
        #expect(try await theirs.value(for: "a") { 2 } == 2)
        gate.open()
        await #expect(throws: CancellationError.self) { try await waiter.value }
        #expect(try await mine.value(for: "a", options: .reload) { 3 } == 3)
    }

    /// A task that outlives its loader.
    private final class Later: @unchecked Sendable {
        var task: Task<Int, any Error>?
    }
}
