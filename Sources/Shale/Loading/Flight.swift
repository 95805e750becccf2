import ShaleCore
import Synchronization

/// One load, and those who hold it. It has its first holder from the start.
final class Flight<Output: Sendable>: Sendable {
    typealias Load = @Sendable (LoadFence) async throws -> Output

    let fence = LoadFence()
    private struct State {
        /// None: the load is cancelled.
        var holders = Holders()
        /// Until it runs.
        var load: Load?
        var task: Task<Void, Never>?
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

    /// Starts the load. `ended` is called when its result has been handed out.
    func begin(after previous: Flight?, _ load: @escaping Load, ended: @escaping @Sendable () -> Void) -> Hold<Output> {
        state.withLock { $0.load = load }
        let task = Task {
            await previous?.end()
            self.finish(await self.run())
            ended()
        }
        let isCancelled = state.withLock { state in
            state.task = task
            return state.holders.isEmpty && state.result == nil
        }
        if isCancelled { task.cancel() }
        return Hold(flight: self, number: first)
    }

    /// What the load refers to is released when this returns, before its result is handed out: whoever gets that may drop, and
    /// so close, what it was loaded through.
    private func run() async -> Result<Output, any Error> {
        guard let load = state.withLock({ $0.load.take() }) else { return .failure(CancellationError()) }
        do {
            try Task.checkCancellation()
            return .success(try await load(fence))
        } catch { return .failure(error) }
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

    /// Whether what it comes to is new enough for somebody who asks now.
    func mayServe(_ isUntouched: (Condition) -> Bool) -> Bool {
        switch fence.state {
        case .open: true
        case .since(let condition): isUntouched(condition)
        case .closed: false
        }
    }

    /// Nil where the load has ended or was cancelled.
    func hold() -> Hold<Output>? {
        state.withLock { state in
            state.result == nil && !state.holders.isEmpty ? Hold(flight: self, number: state.holders.add()) : nil
        }
    }

    fileprivate func output(_ number: Int, within limit: TimeLimit?) async throws -> Output? {
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

    /// Where there is no such holder any more, the timer has nothing to do.
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

    /// False where it was no holder any more, or the load is over.
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
        // In the order in which they came: a task group looks for a child that has ended from the oldest on, and
        // any other order makes it look at all who are left, each time.
        for holder in holders {
            holder.timer?.cancel()
            holder.waiter?.resume(returning: .ended)
        }
        for successor in successors { successor.resume() }
    }
}

/// A place among those who want a load's result.
struct Hold<Output: Sendable>: Sendable {
    fileprivate let flight: Flight<Output>
    fileprivate let number: Int

    /// The result; nil where the limit was reached first, and this holds the load still. Where the waiting task is cancelled, it
    /// lets go.
    func output(within limit: TimeLimit? = nil) async throws -> Output? {
        try await withTaskCancellationHandler {
            try await flight.output(number, within: limit)
        } onCancel: {
            release()
        }
    }

    /// A further one; nil where the load has ended or was cancelled.
    func another() -> Hold? { flight.hold() }

    /// Lets go. The load is cancelled if nobody else holds it.
    func release() { flight.release(number) }

    /// Lets go after a time, without waiting, and says so, unless the load is over by then.
    func release(after limit: TimeLimit, expired: @escaping @Sendable () -> Void) {
        flight.release(number, after: limit, expired: expired)
    }
}

/// Since when a load may have looked at its origin: what happens to its key after that, it may not know of.
final class LoadFence: Sendable {
    enum State {
        /// It has not looked yet, or there is no telling.
        case open
        case since(Condition)
        /// It answers with what it has found in the store: that may be old for whoever comes later.
        case closed
    }
    private let current = Mutex(State.open)

    var state: State { current.withLock { $0 } }
    func set(_ state: State) { current.withLock { $0 = state } }
}

/// A time from now, and what measures it.
struct TimeLimit: Sendable {
    let time: Duration
    let clock: any Clock<Duration>

    fileprivate func timer(_ isOver: @escaping @Sendable () -> Void) -> Task<Void, Never> {
        Task { [self] in if (try? await clock.sleep(for: time)) != nil { isOver() } }
    }
}
