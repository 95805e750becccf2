import Synchronization

/// One load, and those who hold it.
final class Flight<Output: Sendable>: Sendable {
    private struct Holder {
        /// Of one who waits.
        var waiter: CheckedContinuation<Output, any Error>?
    }

    private struct State {
        /// By their numbers, which count up in the order in which they came. None: the load is cancelled.
        var holders: [Int: Holder] = [:]
        var next = 0
        var result: Result<Output, any Error>?
        var task: Task<Void, Never>?

        mutating func hold() -> Int {
            next += 1
            holders[next] = Holder()
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

    fileprivate func output(_ number: Int) async throws -> Output {
        try await withCheckedThrowingContinuation { continuation in
            let result: Result<Output, any Error>? = state.withLock { state in
                if let result = state.result { return result }
                if state.holders[number] == nil { return .failure(CancellationError()) }
                state.holders[number]?.waiter = continuation
                return nil
            }
            if let result { continuation.resume(with: result) }
        }
    }

    fileprivate func release(_ number: Int) {
        let (holder, task) = state.withLock { state in
            let holder = state.holders.removeValue(forKey: number)
            return (holder, state.holders.isEmpty && state.result == nil ? state.task : nil)
        }
        holder?.waiter?.resume(throwing: CancellationError())
        task?.cancel()
    }

    private func finish(_ result: Result<Output, any Error>) {
        let holders = state.withLock { state in
            state.result = result
            defer { state.holders = [:] }
            return state.holders
        }
        // In the order in which they came: a task group looks for a child that has ended from the oldest on, and
        // any other order makes it look at all who are left, each time.
        for (_, holder) in holders.sorted(by: { $0.key < $1.key }) { holder.waiter?.resume(with: result) }
    }
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
