import Foundation
import ShaleCore
import Testing
@testable import Shale

@Suite("Closing", .timeLimit(.minutes(30)))
struct ClosingTests {
    private let directory = TemporaryDirectory(), clock = TestClock()

    private func open(maxEntries: Int? = nil, refreshAhead: Double = 0) throws -> Cache<String, Int> {
        try Cache(
            at: directory.url, maxAge: .seconds(60), maxEntries: maxEntries, capacity: 4 << 20,
            refreshAhead: refreshAhead, now: clock.now)
    }

    private func isClosed(_ body: () throws -> Void) -> Bool {
        do {
            try body()
            return false
        } catch { return (error as? ShaleError)?.code == .closed }
    }

    @Test("a load that is under way when the store is closed returns its value, and stores nothing")
    func duringLoads() async throws {
        for way in ["behind", "prefetch", "waiting", "cancelled", "refresh ahead", "validating"] {
            let cache = try open(refreshAhead: 1e12)
            try cache.insert(1, for: "key", maxAge: .seconds(60))
            if way == "refresh ahead" {
                _ = try await cache.entry(for: "key", options: .reload) { _ in
                    clock.advance(milliseconds: 10)
                    return .value(1)
                }
            } else {
                clock.advance(seconds: 60)
            }
            let begun = Gate(), gate = Gate(), over = Gate()
            let load: @Sendable (Cache<String, Int>.Entry?) async throws -> Cache<String, Int>.Loaded = { _ in
                begun.open()
                await gate.waitRegardless()
                defer { over.open() }
                return way == "validating" ? .notModified() : .value(2)
            }
            var waiter: Task<Int, any Error>?
            switch way {
            case "behind":
                #expect(try await cache.entry(for: "key", options: .staleWhileRevalidate, load: load).value == 1)
            case "refresh ahead": #expect(try await cache.entry(for: "key", load: load).source != .loader)
            case "prefetch": cache.prefetch("key", load: load)
            default: waiter = Task { try await cache.entry(for: "key", load: load).value }
            }
            try await begun.wait()
            if way == "cancelled" { waiter?.cancel() }
            try cache.store.close()
            gate.open()
            try await over.wait()
            if let waiter {
                switch await waiter.result {
                case .success(let value): #expect(value == (way == "validating" ? 1 : 2), "\(way)")
                case .failure(let error): #expect(way == "cancelled" && error is CancellationError, "\(way): \(error)")
                }
            }
            let again = try open()
            #expect(try again.entry(for: "key", includingStale: true)?.value == 1, "\(way)")
            try again.removeAll()
        }
    }

    @Test("later calls fail with the code closed")
    func laterCalls() async throws {
        let cache = try open(), store = cache.store
        try cache.insert(1, for: "key")
        try store.close()
        try store.close()
        #expect(isClosed { _ = try cache.value(for: "key") })
        #expect(isClosed { try cache.insert(2, for: "key") })
        #expect(isClosed { try cache.removeValue(for: "key") })
        #expect(isClosed { _ = try cache.allKeys() })
        #expect(isClosed { try cache.removeAll() })
        #expect(isClosed { _ = try store.value(for: "key") })
        #expect(isClosed { try store.sync() })
        #expect(isClosed { _ = try store.lease("key", for: .seconds(1)) })
        #expect(cache["key"] == nil)
        let error = await #expect(throws: ShaleError.self) { try await cache.value(for: "key") { 3 } }
        #expect(error?.code == .closed && error?.message.contains(directory.path) == true)
        #expect(store.now == clock.date.millisecondsSince1970)
    }

    @Test("closing waits for calls of other threads")
    func duringCalls() async throws {
        for _ in 0..<20 {
            let cache = try open(), begun = Counter()
            let callers = (0..<4).map { i in
                Task {
                    try await onThread {
                        for n in 0... {
                            do throws(ShaleError) {
                                try cache.insert(n, for: "\(i)-\(n % 50)")
                                _ = try cache.value(for: "\((i + 1) % 4)-\(n % 50)")
                                try cache.store.forEach { _, _, _ in n % 10 == 0 }
                            } catch { return error.code }
                            if n == 10 { begun.add() }
                        }
                        return .invalid
                    }
                }
            }
            try await begun.wait(for: 4)
            try cache.store.close()
            for caller in callers { #expect(try await caller.value == .closed) }
        }
        #expect(try !open().allKeys().isEmpty)
    }

    @Test("a cache that is freed after its loads is closed: it can be opened with other options at once")
    func dropped() async throws {
        // Unordered with the end of the load's tasks.
        let others = (0..<3).map { _ in Task { while !Task.isCancelled { await Task.yield() } } }
        defer { for other in others { other.cancel() } }
        for i in 1...200 {
            var cache: Cache? = try open(maxEntries: 100 + i)
            #expect(try await cache?.value(for: "\(i)") { i } == i)
            let limits = LoadOptions(softLimit: .seconds(1000), hardLimit: .seconds(2000))
            #expect(try await cache?.value(for: "limited \(i)", options: limits) { i } == i)
            await #expect(throws: Offline.self) { try await cache?.value(for: "failing") { throw Offline() } }
            cache = nil
        }
    }
}
