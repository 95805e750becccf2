import Foundation
import Shale
import Synchronization

/// A directory that its last reference removes.
final class TemporaryDirectory: Sendable {
    let url = FileManager.default.temporaryDirectory.appendingPathComponent("shale-cache-\(UUID().uuidString)")
    var path: String { url.path }
    deinit { try? FileManager.default.removeItem(at: url) }
}

/// A clock that the test advances.
final class TestClock: Sendable {
    private let milliseconds = Mutex<Int64>(1_800_000_000_000)
    func advance(milliseconds by: Int64) { milliseconds.withLock { $0 += by } }
    func advance(seconds: Int64) { advance(milliseconds: seconds * 1000) }
    var date: Date { Date(timeIntervalSince1970: Double(milliseconds.withLock { $0 }) / 1000) }
    var now: @Sendable () -> Date { { self.date } }
}

/// A clock for limits that the test advances.
final class ManualClock: Clock {
    struct Instant: InstantProtocol {
        var time: Duration
        func advanced(by duration: Duration) -> Instant { Instant(time: time + duration) }
        func duration(to other: Instant) -> Duration { other.time - time }
        static func < (a: Instant, b: Instant) -> Bool { a.time < b.time }
    }

    private struct State {
        var now = Instant(time: .zero)
        var sleepers: [(end: Instant, gate: Gate)] = []
    }
    private let state = Mutex(State())
    /// The number of sleeps that have begun.
    let sleeps = Counter()

    var now: Instant { state.withLock { $0.now } }
    var minimumResolution: Duration { .nanoseconds(1) }

    func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        let gate = Gate()
        state.withLock { state in
            state.sleepers.append((deadline, gate))
            if deadline <= state.now { gate.open() }
        }
        sleeps.add()
        try await gate.wait()
    }

    func advance(by time: Duration) {
        state.withLock { state in
            state.now = state.now.advanced(by: time)
            for sleeper in state.sleepers where sleeper.end <= state.now { sleeper.gate.open() }
            state.sleepers.removeAll { $0.end <= state.now }
        }
    }
}

/// Opens once. Waiters resume then, or with an error when they are cancelled.
final class Gate: Sendable {
    private struct State {
        var isOpen = false
        var waiting: [UUID: CheckedContinuation<Void, any Error>] = [:]
    }
    private let state = Mutex(State())

    func open() {
        let waiting = state.withLock { state in
            state.isOpen = true
            defer { state.waiting = [:] }
            return state.waiting
        }
        for waiter in waiting.values { waiter.resume() }
    }

    func wait() async throws {
        let id = UUID()
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
                let result: Result<Void, any Error>? = state.withLock { state in
                    if state.isOpen { return .success(()) }
                    if Task.isCancelled { return .failure(CancellationError()) }
                    state.waiting[id] = continuation
                    return nil
                }
                if let result { continuation.resume(with: result) }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: id) }?.resume(throwing: CancellationError())
        }
    }

    /// Ignores cancellation.
    func waitRegardless() async {
        await withCheckedContinuation { continuation in
            let task = Task.detached { try? await self.wait() }
            Task.detached {
                await task.value
                continuation.resume()
            }
        }
    }
}

/// On a thread that may block.
func onThread<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
    try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread { continuation.resume(with: Result { try body() }) }
    }
}

/// A counter with waits for a count.
final class Counter: Sendable {
    private struct State {
        var count = 0
        var waiting: [(Int, Gate)] = []
    }
    private let state = Mutex(State())
    var count: Int { state.withLock { $0.count } }

    @discardableResult
    func add() -> Int {
        let (count, reached) = state.withLock { state in
            state.count += 1
            let count = state.count
            return (count, state.waiting.filter { $0.0 <= count }.map(\.1))
        }
        for gate in reached { gate.open() }
        return count
    }

    func wait(for count: Int) async throws {
        let gate = Gate()
        let isReached = state.withLock { state in
            state.waiting.append((count, gate))
            return state.count >= count
        }
        if !isReached { try await gate.wait() }
    }
}

/// An executor that runs jobs one after the other, in the order in which they were enqueued.
final class LineExecutor: TaskExecutor {
    private let queue = DispatchQueue(label: "line")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job), executor = asUnownedTaskExecutor()
        queue.async { job.runSynchronously(on: executor) }
    }
}

struct Article: Codable, Sendable, Equatable {
    var title: String
    var words = 0
}

struct Offline: Error, Equatable {}

extension Cache {
    /// A small cache in memory.
    static func small(
        maxAge: Age = .seconds(60), staleFor: Age = .forever, maxEntries: Int? = nil,
        memoryEntries: Int = 256, memoryBytes: Int = 1 << 20,
        refreshAhead: Double = 0, coder: Coder<Value> = .standard, clock: TestClock = TestClock(),
        limitClock: any Clock<Duration> = ContinuousClock()
    ) throws -> Cache {
        try Cache.inMemory(
            maxAge: maxAge, staleFor: staleFor, maxEntries: maxEntries, capacity: 4 << 20,
            memoryEntries: memoryEntries,
            memoryBytes: memoryBytes, refreshAhead: refreshAhead, coder: coder, now: clock.now,
            limitClock: limitClock)
    }
}
