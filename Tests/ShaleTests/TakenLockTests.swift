import Foundation
import Testing
@testable import Shale

@Suite("Loads while a lock is taken", .timeLimit(.minutes(30)))
struct TakenLockTests {
    private let directory = TemporaryDirectory(), count = min(64, 2 * ProcessInfo.processInfo.activeProcessorCount)

    private func open() throws -> Cache<Int, Int> {
        // Renews each of its leases all the time.
        try Cache(at: directory.path, capacity: 4 << 20, leaseTime: .milliseconds(3), lockTimeout: .seconds(3600))
    }

    /// Holds the lock of the only shard, as a stopped process would, until the returned gate opens.
    private func takeLock() async throws -> (held: DispatchSemaphore, released: Task<Void, any Error>) {
        let release = DispatchSemaphore(value: 0), taken = Gate(), directory = directory
        let released = Task {
            try await onThread {
                let held = try HeldLock(of: directory.path)
                taken.open()
                release.wait()
                held.release()
            }
        }
        try await taken.wait()
        return (release, released)
    }

    /// Fails, some time later, if all threads of the cooperative pool are blocked.
    private func useThreads() async {
        for _ in 0..<100 { await Task.detached { await Task.yield() }.value }
    }

    @Test("loads that cannot get their lease yet block no thread of the cooperative pool")
    func leases() async throws {
        let cache = try open()
        let (release, released) = try await takeLock()
        let loads = (0..<count).map { i in cache.prefetch(i) { i } }
        await useThreads()
        release.signal()
        try await released.value
        for (i, load) in loads.enumerated() { #expect(try await load.value == i) }
        #expect(cache.statistics.unstored == 0 && cache.statistics.loads == count)
    }

    @Test("nor do loads under way, callers that join them, and their results")
    func results() async throws {
        let cache = try open(), begun = Counter(), gate = Gate()
        let loads = (0..<count).map { i in
            cache.prefetch(i) {
                begun.add()
                try await gate.wait()
                return i
            }
        }
        try await begun.wait(for: count)
        let (release, released) = try await takeLock()
        let callers = (0..<count).map { i in Task { try await cache.value(for: i) { -1 } } }
        await useThreads()
        gate.open()
        await useThreads()
        release.signal()
        try await released.value
        for (i, load) in loads.enumerated() { #expect(try await load.value == i) }
        for (i, caller) in callers.enumerated() { #expect(try await caller.value == i) }
        #expect(cache.statistics.unstored == 0 && cache.statistics.loads == count)
    }

    @Test("a lock that stays taken costs a load its lease, not its value")
    func stuck() async throws {
        let cache = try Cache<Int, Int>(at: directory.path, capacity: 4 << 20, lockTimeout: .milliseconds(20))
        let (release, released) = try await takeLock()
        #expect(try await cache.value(for: 1) { 2 } == 2)
        #expect(cache.statistics.unstored == 1)
        release.signal()
        try await released.value
        #expect(try await cache.value(for: 1) { 3 } == 3)
        #expect(cache.statistics.unstored == 1 && cache[1] == 3)
    }
}
