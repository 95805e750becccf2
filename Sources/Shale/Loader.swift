import Synchronization

/// Runs one load at a time for a key, however many wait for it.
///
/// A load runs in a task of its own for as long as somebody holds it: those who wait for its result, and those
/// who want it to finish without waiting. When the last of them lets go, it is cancelled. One that is asked for
/// after that begins when the cancelled one has ended, so that there are never two at once.
final class Loader<Key: Hashable & Sendable, Output: Sendable>: Sendable {
    private let flights = Mutex<[Key: Flight<Output>]>([:])

    /// Holds the load of a key that is under way, or begins one. Where none is under way and `stored` finds what
    /// would be loaded, that is the answer. It is asked within the lock, and a load stores its result before it
    /// leaves: so nobody begins another who only came late.
    func join(_ key: Key, unless stored: () throws -> Output?, load: @escaping @Sendable () async throws -> Output)
        throws -> Joined<Output>
    {
        try flights.withLock { flights in
            let present = flights[key]
            if let hold = present?.hold() { return .load(hold) }
            if let output = try stored() { return .stored(output) }
            let flight = Flight<Output>()
            flights[key] = flight
            return .load(
                flight.begin(after: present, load) { [weak self] in
                    self?.flights.withLock { flights in
                        if flights[key] === flight { flights[key] = nil }
                    }
                })
        }
    }
}

enum Joined<Output: Sendable>: Sendable {
    case load(Hold<Output>)
    case stored(Output)
}

/// A place among those who want a load's result.
struct Hold<Output: Sendable>: Sendable {
    fileprivate let flight: Flight<Output>
    fileprivate let number: Int

    /// The result. Where the waiting task is cancelled, it lets go.
    var output: Output {
        get async throws {
            try await withTaskCancellationHandler {
                try await flight.output(number)
            } onCancel: {
                release()
            }
        }
    }

    /// Lets go. The load is cancelled if nobody else holds it.
    func release() { flight.release(number) }
}

/// One load.
private final class Flight<Output: Sendable>: Sendable {
    private struct State {
        /// Numbers of those who hold it. None: it is cancelled.
        var holders: Set<Int> = []
        var next = 0
        /// Of the holders, those who wait.
        var waiting: [Int: CheckedContinuation<Output, any Error>] = [:]
        var result: Result<Output, any Error>?
        var task: Task<Void, Never>?

        mutating func hold() -> Int {
            next += 1
            holders.insert(next)
            return next
        }
    }
    private let state = Mutex(State())

    /// Starts the load, with its first holder. `ended` is called when its result has been handed out.
    func begin(
        after previous: Flight?, _ load: @escaping @Sendable () async throws -> Output,
        ended: @escaping @Sendable () -> Void
    ) -> Hold<Output> {
        state.withLock { state in
            let before = previous?.state.withLock { $0.task }
            state.task = Task {
                await before?.value
                let result: Result<Output, any Error>
                do {
                    try Task.checkCancellation()
                    result = .success(try await load())
                } catch { result = .failure(error) }
                self.finish(result)
                ended()
            }
            return Hold(flight: self, number: state.hold())
        }
    }

    /// Nil where the load has ended or was cancelled.
    func hold() -> Hold<Output>? {
        state.withLock { state in
            state.result == nil && !state.holders.isEmpty ? Hold(flight: self, number: state.hold()) : nil
        }
    }

    func output(_ number: Int) async throws -> Output {
        try await withCheckedThrowingContinuation { continuation in
            let result: Result<Output, any Error>? = state.withLock { state in
                if !state.holders.contains(number) { return .failure(CancellationError()) }
                if state.result == nil { state.waiting[number] = continuation }
                return state.result
            }
            if let result { continuation.resume(with: result) }
        }
    }

    func release(_ number: Int) {
        let (waiter, task) = state.withLock { state in
            state.holders.remove(number)
            return (state.waiting.removeValue(forKey: number), state.holders.isEmpty ? state.task : nil)
        }
        waiter?.resume(throwing: CancellationError())
        task?.cancel()
    }

    private func finish(_ result: Result<Output, any Error>) {
        let waiting = state.withLock { state in
            state.result = result
            defer { state.waiting = [:] }
            return state.waiting
        }
        for waiter in waiting.values { waiter.resume(with: result) }
    }
}
