import ShaleCore
import Synchronization

/// One load and its holders. It starts with one holder.
final class Flight<Output: Sendable>: Sendable {
    typealias Load = @Sendable (LoadFence) async throws -> Output

    let fence = LoadFence()
    private struct State {
        /// Empty before the load has ended: it is cancelled.
        var holders = Holders()
        /// Nil once it runs.
        var load: Load?
        var task: Task<Void, Never>?
        /// The load before this one, until this one runs.
        var previous: Flight?
        /// The highest of the holders. The task has it once it exists.
        var priority = TaskPriority(rawValue: 0)
        var result: Result<Output, any Error>?
        /// Loads of the same key that begin after this one.
        var successors: [CheckedContinuation<Void, Never>] = []
    }
    private let state: Mutex<State>
    private let first: Int

    init() {
        var state = State()
        first = state.holders.add()
        self.state = Mutex(state)
    }

    /// Starts the load. Calls `ended` after all holders have the result.
    func begin(after previous: Flight?, _ load: @escaping Load, ended: @escaping @Sendable () -> Void) -> Hold<Output> {
        let own = Task.currentPriority
        state.withLock { state in
            state.load = load
            state.previous = previous
            state.priority = max(state.priority, own)
        }
        let task = Task(priority: own) {
            await previous?.end()
            self.finish(await self.run())
            ended()
        }
        let (isCancelled, priority) = state.withLock { state in
            state.task = task
            return (state.holders.isEmpty && state.result == nil, state.priority)
        }
        if isCancelled { task.cancel() }
        if priority > own { raise(task, to: priority) }
        previous?.raisePriority(to: priority)
        return Hold(flight: self, number: first)
    }

    /// Releases the load closure before the result reaches the holders: they may then free the cache that it captures,
    /// which closes it.
    private func run() async -> Result<Output, any Error> {
        let (load, previous) = state.withLock { ($0.load.take(), $0.previous.take()) }
        withExtendedLifetime(previous) {}
        guard let load else { return .failure(CancellationError()) }
        do {
            try Task.checkCancellation()
            return .success(try await load(fence))
        } catch { return .failure(error) }
    }

    /// Raises the load, and the one that it waits for, to the priority of a caller that waits for it.
    fileprivate func raisePriority(to priority: TaskPriority) {
        let (task, previous) = state.withLock { state -> (Task<Void, Never>?, Flight?) in
            guard priority > state.priority, state.result == nil else { return (nil, nil) }
            state.priority = priority
            return (state.task, state.previous)
        }
        if let task { raise(task, to: priority) }
        previous?.raisePriority(to: priority)
    }

    private func raise(_ task: Task<Void, Never>, to priority: TaskPriority) {
        if #available(macOS 26, *) { task.escalatePriority(to: priority) }
    }

    /// Returns when the load has ended.
    private func end() async {
        await withCheckedContinuation { continuation in
            let hasEnded = state.withLock { state in
                if state.result == nil { state.successors.append(continuation) }
                return state.result != nil
            }
            if hasEnded { continuation.resume() }
        }
    }

    /// Whether the result will be current for a caller that asks now.
    func mayServe(_ isUnchanged: (Condition) -> Bool) -> Bool {
        switch fence.state {
        case .open: true
        case .since(let condition): isUnchanged(condition)
        case .closed: false
        }
    }

    /// A further holder; nil if the load has ended or was cancelled.
    func hold() -> Hold<Output>? {
        state.withLock { state in
            state.result == nil && !state.holders.isEmpty ? Hold(flight: self, number: state.holders.add()) : nil
        }
    }

    fileprivate nonisolated(nonsending) func output(_ number: Int, within limit: TimeLimit?) async throws -> Output? {
        let call: Holders.Call = try await withCheckedThrowingContinuation { continuation in
            let call: Result<Holders.Call, any Error>? = state.withLock { state in
                if state.result != nil { return .success(.ended) }
                if state.holders[number] == nil { return .failure(CancellationError()) }
                state.holders[number]?.waiter = continuation
                return nil
            }
            if let call {
                continuation.resume(with: call)
            } else if let limit {
                set(limit.timer { self.stopWaiting(number) }, for: number)
            }
        }
        return call == .timeOver ? nil : try state.withLock { $0.result }?.get()
    }

    /// Cancels the timer if the holder has been released.
    private func set(_ timer: Task<Void, Never>, for number: Int) {
        let unused = state.withLock { state -> Task<Void, Never>? in
            guard state.holders[number] != nil else { return timer }
            let before = state.holders[number]?.timer
            state.holders[number]?.timer = timer
            return before
        }
        unused?.cancel()
    }

    private func stopWaiting(_ number: Int) {
        state.withLock { $0.holders[number]?.waiter.take() }?.resume(returning: .timeOver)
    }

    fileprivate func release(_ number: Int, after limit: TimeLimit, expired: @escaping @Sendable () -> Void) {
        set(limit.timer { if self.release(number) { expired() } }, for: number)
    }

    /// Returns false if the holder had been released or the load had ended.
    @discardableResult
    fileprivate func release(_ number: Int) -> Bool {
        let (holder, task) = state.withLock { state in
            let holder = state.holders[number]
            state.holders[number] = nil
            return (holder, state.holders.isEmpty && state.result == nil ? state.task : nil)
        }
        holder?.timer?.cancel()
        holder?.waiter?.resume(throwing: CancellationError())
        task?.cancel()
        return holder != nil
    }

    private func finish(_ result: Result<Output, any Error>) {
        let (holders, successors) = state.withLock { state in
            state.result = result
            return (state.holders.takeAll(), state.successors)
        }
        // In arrival order: a task group searches for a finished child from the oldest on, and any other order makes
        // each search visit all remaining children.
        for holder in holders {
            holder.timer?.cancel()
            holder.waiter?.resume(returning: .ended)
        }
        for successor in successors { successor.resume() }
    }
}

/// One holder of a load.
struct Hold<Output: Sendable>: Sendable {
    fileprivate let flight: Flight<Output>
    fileprivate let number: Int

    /// The result; nil if the limit was reached first: this still holds the load. Cancelling the waiting task releases
    /// the load, which gets at least the priority of the task, and the higher one that the task gets meanwhile.
    nonisolated(nonsending) func output(within limit: TimeLimit? = nil) async throws -> Output? {
        flight.raisePriority(to: Task.currentPriority)
        guard #available(macOS 26, *) else { return try await cancellable(within: limit) }
        return try await withTaskPriorityEscalationHandler {
            try await cancellable(within: limit)
        } onPriorityEscalated: { [flight] _, priority in
            flight.raisePriority(to: priority)
        }
    }

    private nonisolated(nonsending) func cancellable(within limit: TimeLimit?) async throws -> Output? {
        try await withTaskCancellationHandler {
            try await flight.output(number, within: limit)
        } onCancel: {
            release()
        }
    }

    /// A further holder; nil if the load has ended or was cancelled.
    func another() -> Hold? { flight.hold() }

    /// Releases the load, which is cancelled if it has no other holder.
    func release() { flight.release(number) }

    /// Releases the load after a time, without waiting, and calls `expired`, unless the load has ended by then.
    func release(after limit: TimeLimit, expired: @escaping @Sendable () -> Void) {
        flight.release(number, after: limit, expired: expired)
    }
}

/// The state of the store at which a load may have read its origin. The load may miss later changes to its key.
final class LoadFence: Sendable {
    enum State {
        /// The load has not read its origin yet, or there is no fence.
        case open
        case since(Condition)
        /// The load returns an entry that it has found in the store, which may be too old for later callers.
        case closed
    }
    private let current = Mutex(State.open)

    var state: State { current.withLock { $0 } }
    func set(_ state: State) { current.withLock { $0 = state } }
}

/// A duration from now, and the clock that measures it.
struct TimeLimit: Sendable {
    let time: Duration
    let clock: any Clock<Duration>

    fileprivate func timer(_ isOver: @escaping @Sendable () -> Void) -> Task<Void, Never> {
        Task { [self] in if (try? await clock.sleep(for: time)) != nil { isOver() } }
    }
}
