import Foundation
import Synchronization
import Testing
@testable import Shale

/// Priorities, executors and threads. A test that a promise is broken hangs up to its limit.
@Suite("Loads are good citizens among tasks", .timeLimit(.minutes(30)))
struct TaskTests {
    // MARK: Priorities

    /// Returns once its task has at least the priority.
    private static func reaches(_ priority: TaskPriority) async {
        while Task.currentPriority < priority { await Task.yield() }
    }

    @Test("a load gets the priority of a caller that joins it")
    func joining() async throws {
        let cache = try Cache<String, Int>.small(), memory = MemoryCache<String, Int>(), begun = Counter()
        for caching in [cache, memory.caching] as [any Caching<String, Int>] {
            let before = begun.count
            let first = Task(priority: .background) {
                try await caching.value(for: "key") {
                    begun.add()
                    await Self.reaches(.high)
                    return 1
                }
            }
            try await begun.wait(for: before + 1)
            let second = Task(priority: .high) { try await caching.value(for: "key") { 2 } }
            #expect(try await second.value == 1)
            #expect(try await first.value == 1)
        }
    }

    @Test("a load gets the priority that a waiting caller gets")
    func escalated() async throws {
        guard #available(macOS 26, *) else { return }
        let cache = try Cache<String, Int>.small(), begun = Gate()
        let caller = Task(priority: .background) {
            try await cache.value(for: "key") {
                begun.open()
                await Self.reaches(.high)
                return 1
            }
        }
        try await begun.wait()
        caller.escalatePriority(to: .high)
        #expect(try await caller.value == 1)
    }

    @Test("a load that ends before another one can begin gets the priority of those who wait for that")
    func successor() async throws {
        let cache = try Cache<String, Int>.small(), begun = Gate()
        let first = Task(priority: .background) {
            try await cache.value(for: "key") {
                begun.open()
                await Self.reaches(.high)
                return 1
            }
        }
        try await begun.wait()
        // Later callers do not join.
        try cache.removeValue(for: "key")
        let second = Task(priority: .background) { try await cache.value(for: "key") { 2 } }
        let third = Task(priority: .high) { try await cache.value(for: "key") { 3 } }
        #expect(try await first.value == 1)
        let (value, same) = (try await second.value, try await third.value)
        #expect(value == same)
    }

    // MARK: Executors

    private static let mainQueue = DispatchSpecificKey<Bool>()
    /// Whether this is the main actor's code. (Its thread need not be the main one.)
    private static var isMain: Bool { DispatchQueue.getSpecific(key: mainQueue) == true }

    @MainActor @Test("a hit makes no hop: it runs on the caller's executor")
    func hits() async throws {
        DispatchQueue.main.setSpecific(key: Self.mainQueue, value: true)
        let decoded = Counter(), hashed = Counter()
        let coder = Coder<Int>(
            encode: { Data("\($0)".utf8) },
            decode: { _ in
                if Self.isMain { decoded.add() }
                return 1
            })
        let cache = try Cache<String, Int>.inMemory(capacity: 4 << 20, memoryEntries: 0, coder: coder)
        cache["key"] = 1
        #expect(Self.isMain)
        #expect(try await cache.value(for: "key") { 2 } == 1)
        #expect(try await cache.entry(for: "key") { _ in .value(2) }.value == 1)
        #expect(try await (cache as any Caching<String, Int>).value(for: "key") { 2 } == 1)
        for try await entry in cache.entries(for: "key", load: { 2 }) { #expect(entry.value == 1) }
        #expect(decoded.count == 4)

        struct Key: Hashable {
            let hashed: Counter
            static func == (a: Key, b: Key) -> Bool { true }
            func hash(into: inout Hasher) { if TaskTests.isMain { hashed.add() } }
        }
        let memory = MemoryCache<Key, Int>(), key = Key(hashed: hashed)
        memory[key] = 1
        #expect(try await memory.value(for: key) { 2 } == 1)
        #expect(try await memory.caching.value(for: key) { 2 } == 1)
        #expect(hashed.count == 3)
    }

    // MARK: Threads

    /// Blocks each of twice as many calls as the pool has threads, until the last of them has begun.
    private final class Barrier: Sendable {
        let count = min(64, 2 * ProcessInfo.processInfo.activeProcessorCount)
        private let begun = Counter(), all = DispatchSemaphore(value: 0)
        func wait() {
            let number = begun.add()
            if number == count { for _ in 1..<count { all.signal() } }
            // A load in the background may call, too.
            if number < count { all.wait() }
        }

        func run(_ body: @escaping @Sendable (Int) async throws -> Void) async throws {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for i in 0..<count { group.addTask { try await body(i) } }
                try await group.waitForAll()
            }
            #expect(begun.count >= count)
        }
    }

    @Test("onThread blocks no thread of the cooperative pool, and throws what its body throws")
    func onThread() async throws {
        let barrier = Barrier()
        let coder = Coder<Int>(
            encode: {
                barrier.wait()
                return Data("\($0)".utf8)
            }, decode: { _ in 0 })
        let cache = try Cache<Int, Int>.small(coder: coder)
        try await barrier.run { i in
            let version = try await cache.onThread { try $0.insert(i, for: i) }
            #expect(version > 0)
        }
        try await cache.onThread { try $0.removeValue(for: 0) }
        try await cache.onThread { try $0.store.sync() }
        let count = try await cache.onThread { try $0.count() }
        #expect(count == barrier.count - 1)
        await #expect(throws: Offline.self) { try await cache.onThread { _ -> Int in throw Offline() } }
    }

    @Test("a load's call that finds a large value reads it on a thread of its own", arguments: [false, true])
    func largeReads(isStale: Bool) async throws {
        let barrier = Barrier(), clock = TestClock()
        let coder = Coder<Int>(
            encode: { Data(repeating: UInt8($0), count: Cache<Int, Int>.largeSize) },
            decode: {
                barrier.wait()
                return Int($0[$0.startIndex])
            })
        let cache = try Cache<Int, Int>.inMemory(
            maxAge: .seconds(60), capacity: 256 << 20, memoryEntries: 0, coder: coder, now: clock.now)
        for i in 0..<barrier.count { cache[i] = i }
        if isStale { clock.advance(seconds: 60) }
        try await barrier.run { i in
            let entry = try await cache.entry(for: i, options: .staleWhileRevalidate) { _ in throw Offline() }
            #expect(entry.value == i)
        }
    }

    /// Waits in the barrier while it is encoded to store a loaded value.
    private final class Key: Codable, Hashable, Sendable {
        let id: Int
        let barrier: Barrier?
        let isStoring = Atomic(false)
        init(_ id: Int, _ barrier: Barrier) {
            self.id = id
            self.barrier = barrier
        }
        init(from decoder: any Decoder) throws {
            id = try decoder.singleValueContainer().decode(Int.self)
            barrier = nil
        }
        func encode(to encoder: any Encoder) throws {
            if isStoring.exchange(false, ordering: .sequentiallyConsistent) { barrier?.wait() }
            try id.encode(to: encoder)
        }
        static func == (a: Key, b: Key) -> Bool { a.id == b.id }
        func hash(into hasher: inout Hasher) { hasher.combine(id) }
    }

    @Test("a load stores a large value on a thread of its own")
    func largeLoads() async throws {
        let barrier = Barrier()
        let keys = (0..<barrier.count).map { Key($0, barrier) }
        let coder = Coder<Int>(
            encode: {
                keys[$0].isStoring.store(true, ordering: .sequentiallyConsistent)
                return Data(repeating: 0, count: Cache<Key, Int>.largeSize)
            }, decode: { _ in 0 })
        let cache = try Cache<Key, Int>.inMemory(capacity: 256 << 20, memoryEntries: 0, coder: coder)
        try await barrier.run { i in
            let value = try await cache.value(for: keys[i]) { i }
            #expect(value == i)
        }
        #expect(cache.statistics.unstored == 0)
    }

    @Test("threads for blocking calls are bounded, run every call, and end")
    func bounded() async throws {
        let threads = BlockingThreads(limit: 2), ended = Counter()
        let running = Mutex((now: 0, most: 0)), first = DispatchSemaphore(value: 0)
        for call in 0..<200 {
            threads.run {
                running.withLock { $0 = ($0.now + 1, max($0.most, $0.now + 1)) }
                if call == 0 { first.wait() }
                running.withLock { $0.now -= 1 }
                ended.add()
            }
        }
        try await ended.wait(for: 199)
        first.signal()
        try await ended.wait(for: 200)
        #expect(running.withLock { $0.most } <= 2)
        threads.run { ended.add() }
        try await ended.wait(for: 201)
    }
}
