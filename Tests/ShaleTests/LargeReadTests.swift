import Foundation
import Synchronization
import Testing
@testable import Shale

@Suite("Reads of large values in tasks", .timeLimit(.minutes(30)))
struct LargeReadTests {
    /// Blocks each of twice as many calls as the cooperative pool has threads, until the last of them has begun.
    private final class Barrier: Sendable {
        let count = min(64, 2 * ProcessInfo.processInfo.activeProcessorCount)
        private let begun = Counter(), all = DispatchSemaphore(value: 0)
        var calls: Int { begun.count }
        func wait() {
            let number = begun.add()
            if number == count { for _ in 1..<count { all.signal() } }
            if number < count { all.wait() }
        }
    }
    private let barrier = Barrier(), directory = TemporaryDirectory(), clock = TestClock()

    private func open(refreshAhead: Double = 0) throws -> Cache<Int, Int> {
        let coder = Coder<Int>(
            encode: { Data(repeating: UInt8($0), count: Cache<Int, Int>.largeSize) },
            decode: { [barrier] in
                barrier.wait()
                return Int($0[$0.startIndex])
            })
        return try Cache(
            at: directory.url, maxAge: .seconds(60), capacity: 256 << 20, memoryEntries: 0, refreshAhead: refreshAhead,
            coder: coder, now: clock.now)
    }

    private func all(_ body: @escaping @Sendable (Int) async throws -> Void) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for i in 0..<barrier.count { group.addTask { try await body(i) } }
            try await group.waitForAll()
        }
    }

    @Test("the first of a key's entries blocks no thread of the cooperative pool")
    func entries() async throws {
        let cache = try open()
        for i in 0..<barrier.count { cache[i] = i }
        try await all { i in
            for try await entry in cache.entries(for: i, load: { throw Offline() }) { #expect(entry.value == i) }
        }
        #expect(barrier.calls == barrier.count)
    }

    @Test("a value that another object has loaded meanwhile blocks no thread of the cooperative pool")
    func waiting() async throws {
        let loading = try open(), waiting = try open()
        let leases = try (0..<barrier.count).map { i in
            try #require(try loading.store.lease(try loading.stored(i), for: .seconds(3000)))
        }
        // The loads have begun: their keys are absent.
        let loads = (0..<barrier.count).map { i in waiting.prefetch(i) { throw Offline() } }
        for (i, lease) in leases.enumerated() {
            loading[i] = i
            try loading.store.release(lease, of: try loading.stored(i))
        }
        for (i, load) in loads.enumerated() { #expect(try await load.value == i) }
    }

    @Test("a hit that begins a load in the background decodes the value once, and its load once for the loader")
    func once() async throws {
        let cache = try open(refreshAhead: 1e12)
        try await all { [clock] i in
            _ = try await cache.entry(for: i) { _ in
                clock.advance(milliseconds: 10)
                return .value(i)
            }
        }
        let begun = Counter(), gate = Gate()
        try await all { i in
            let entry = try await cache.entry(for: i) { _ in
                begun.add()
                try await gate.wait()
                return .value(i)
            }
            #expect(entry.value == i && entry.source == .store)
        }
        // Once for the hit, once for the loader.
        try await begun.wait(for: barrier.count)
        #expect(barrier.calls == 2 * barrier.count)
        gate.open()
    }
}
