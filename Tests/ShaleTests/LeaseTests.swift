import Foundation
import Testing
@testable import Shale

/// Cache objects that share only the store's directory, like those of several processes.
@Suite("Loads of several processes", .timeLimit(.minutes(30)))
struct LeaseTests {
    private let clock = TestClock()
    private let directory = TemporaryDirectory()

    /// By default the lease outlasts the test, however busy the machine is: tasks renew it.
    private func open(leaseTime: Duration = .seconds(3600)) throws -> Cache<String, Int> {
        try Cache(at: directory.url, maxAge: .seconds(60), capacity: 4 << 20, leaseTime: leaseTime, now: clock.now)
    }

    /// A load that begins and does not end, as in a killed process.
    private func abandonLoad(of key: String, in cache: Cache<String, Int>, leaseTime: Duration) throws -> Lease {
        try #require(try cache.store.lease(try cache.stored(key), for: leaseTime))
    }

    @Test("one process loads, and the others get its value from the store")
    func oneLoad() async throws {
        let caches = try (0..<8).map { _ in try open() }
        let loads = Counter(), asked = Counter()
        for round in 1...10 {
            let key = "\(round)"
            let values = try await withThrowingTaskGroup(of: Int.self) { group in
                for cache in caches {
                    group.addTask {
                        asked.add()
                        return try await cache.value(for: key) {
                            try await asked.wait(for: round * caches.count)
                            return loads.add()
                        }
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(values == Array(repeating: round, count: caches.count))
        }
        #expect(loads.count == 10)
        #expect(caches.reduce(0) { $0 + $1.statistics.loads } == 10)
    }

    @Test("a lease that is not renewed expires")
    func abandoned() async throws {
        let cache = try open()
        let begun = ContinuousClock.now
        _ = try abandonLoad(of: "key", in: cache, leaseTime: .milliseconds(50))
        #expect(try await cache.value(for: "key") { 1 } == 1)
        #expect(ContinuousClock.now - begun >= .milliseconds(45))
    }

    @Test("a load that takes longer than its lease keeps it")
    func renewal() async throws {
        // A task renews the lease. If it got no thread in time, because of other tests, retry with a longer lease.
        for seconds in [1, 4, 16, 64, 256, 1024] {
            let leaseTime = Duration.seconds(seconds), key = "\(seconds)"
            let mine = try open(leaseTime: leaseTime), theirs = try open(leaseTime: leaseTime)
            let begun = Gate(), loads = Counter()
            let witness = Task {
                var longest = Duration.zero, last = ContinuousClock.now
                while !Task.isCancelled {
                    try? await Task.sleep(for: leaseTime / 3)
                    longest = max(longest, ContinuousClock.now - last)
                    last = .now
                }
                return longest
            }
            let first = Task {
                try await mine.value(for: key) {
                    begun.open()
                    try await Task.sleep(for: leaseTime * 11 / 10)
                    return loads.add()
                }
            }
            try await begun.wait()
            let second = try await theirs.value(for: key) { loads.add() }
            _ = try await first.value
            witness.cancel()
            if await witness.value < leaseTime / 2 {
                #expect(second == 1 && loads.count == 1)
                return
            }
        }
        Issue.record("tasks never got a thread in time")
    }

    @Test("after a failed load, another process loads")
    func failure() async throws {
        let mine = try open(), theirs = try open()
        let begun = Gate(), gate = Gate()
        let first = Task {
            try await mine.value(for: "key") {
                begun.open()
                try await gate.wait()
                throw Offline()
            }
        }
        try await begun.wait()
        let second = Task { try await theirs.value(for: "key") { 2 } }
        gate.open()
        await #expect(throws: Offline.self) { _ = try await first.value }
        #expect(try await second.value == 2)
    }

    @Test("a caller that accepts a stale value does not wait for another object's load, and gets its value afterwards")
    func stale() async throws {
        let mine = try open(), theirs = try open()
        try mine.insert(1, for: "key")
        clock.advance(seconds: 60)
        let lease = try abandonLoad(of: "key", in: mine, leaseTime: .seconds(3000))
        #expect(try await theirs.value(for: "key", options: .staleWhileRevalidate) { 3 } == 1)
        try mine.insert(2, for: "key")
        #expect(try await theirs.value(for: "key", options: .staleWhileRevalidate) { 3 } == 2)
        try mine.store.release(lease, of: try mine.stored("key"))
        #expect(theirs.statistics.loads == 0)
    }

    @Test("a reload joins another object's load")
    func reload() async throws {
        // The start of the second one's wait is not observable: if it was too late, retry with more time.
        for round in 1...20 {
            let mine = try open(), theirs = try open(), key = "\(round)"
            let begun = Gate(), gate = Gate()
            let first = Task {
                try await mine.value(for: key, options: .reload) {
                    begun.open()
                    try await gate.wait()
                    return 2
                }
            }
            try await begun.wait()
            let second = Task { try await theirs.value(for: key, options: .reload) { 3 } }
            try await Task.sleep(for: .milliseconds(20 * round * round))
            gate.open()
            #expect(try await first.value == 2)
            if try await second.value == 2 { return }
        }
        Issue.record("no reload joined another's load")
    }

    @Test("a wait for another object's load can be cancelled")
    func cancellation() async throws {
        let cache = try open()
        let lease = try abandonLoad(of: "key", in: cache, leaseTime: .seconds(3000))
        let task = Task { try await cache.value(for: "key") { 1 } }
        try await Task.sleep(for: .milliseconds(20))
        task.cancel()
        await #expect(throws: CancellationError.self) { _ = try await task.value }
        #expect(cache.statistics.loads == 0)
        try cache.store.release(lease, of: try cache.stored("key"))
        #expect(try await cache.value(for: "key") { 2 } == 2)
    }

    @Test("a value that another object has renewed is not loaded")
    func touched() async throws {
        let mine = try open(), theirs = try open()
        try mine.insert(1, for: "key")
        clock.advance(seconds: 60)
        let lease = try abandonLoad(of: "key", in: mine, leaseTime: .seconds(3000))
        let waiting = Task { try await theirs.value(for: "key") { 2 } }
        try await Task.sleep(for: .milliseconds(20))
        #expect(try mine.touch("key"))
        #expect(try await waiting.value == 1)
        try mine.store.release(lease, of: try mine.stored("key"))
        #expect(theirs.statistics.loads == 0)
    }

    @Test("a store's lease has one holder, which alone can renew it, and can be released once")
    func store() throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        let lease = try #require(try store.lease("key", for: .seconds(3000)))
        #expect(try store.lease("key", for: .seconds(3000)) == nil)
        #expect(try store.renew(lease, of: "key", for: .milliseconds(30)))
        usleep(50_000)
        let next = try #require(try store.lease("key", for: .seconds(3000)))
        #expect(next != lease)
        #expect(try !store.renew(lease, of: "key", for: .seconds(3000)))
        #expect(try !store.release(lease, of: "key"))
        #expect(try store.release(next, of: "key"))
        #expect(try !store.release(next, of: "key"))
    }

    @Test("a lease time that is out of range is an error")
    func badLeaseTime() {
        for time in [Duration.zero, .microseconds(900), .seconds(3601), .seconds(-1)] {
            #expect(throws: ShaleError.self) { _ = try Cache<String, Int>.inMemory(leaseTime: time) }
            #expect(throws: ShaleError.self) {
                _ = try Store(at: nil).lease("key", for: time == .microseconds(900) ? .zero : time)
            }
        }
    }
}
