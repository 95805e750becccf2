import ShaleCore
import Synchronization

/// One load and its holders. It starts with one holder.
final class Flight<Output: Sendable>: Sendable {
    typealias Load = @Sendable (LoadFence) async throws -> Output

    let fence = LoadFence()
    private struct State {
        /// Empty before the load has ended: it is cancelled.
        var holders = Holders()
        /// Whether one of them never leaves.
        var isKept = false
        /// Nil once it runs or is cancelled.
        var load: Load?
        var task: Task<Void, Never>?
        /// The load that has to end before this one runs; nil once it has.
        var previous: Flight?
        /// Waits for that end.
        var turn: CheckedContinuation<Void, Never>?
        /// The load that begins after this one.
        var next: Flight?
        /// The highest of the holders. The task has it once it exists.
        var priority = TaskPriority(rawValue: 0)
        var result: Result<Output, any Error>?
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
        previous?.precede(self)
        let task = Task(priority: own) {
            if previous != nil { await self.turn() }
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
        let (load, isCancelled) = state.withLock { ($0.load.take(), $0.holders.isEmpty) }
        guard let load, !isCancelled else { return .failure(CancellationError()) }
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

    // MARK: One load after the other

    /// Returns when the previous load has ended.
    private func turn() async {
        await withCheckedContinuation { continuation in
            let hasCome = state.withLock { state in
                if state.previous != nil { state.turn = continuation }
                return state.previous == nil
            }
            if hasCome { continuation.resume() }
        }
    }

    private func takeTurn() {
        let (previous, turn) = state.withLock { ($0.previous.take(), $0.turn.take()) }
        withExtendedLifetime(previous) { turn?.resume() }
    }

    /// Another load runs when this one has ended.
    private func precede(_ next: Flight) {
        let (hasEnded, replaced) = state.withLock { state in
            if state.result != nil { return (true, nil as Flight?) }
            let replaced = state.next
            state.next = next
            return (false, replaced)
        }
        if hasEnded { next.takeTurn() }
        withExtendedLifetime(replaced) {}
    }

    /// The load that one after this has to wait for: this one, or if this was cancelled before its turn, the previous
    /// one. Then this one ends at once, so that callers that come and leave while a load runs do not queue up.
    func runningOne() -> Flight {
        guard let previous = state.withLock({ $0.holders.isEmpty ? $0.previous : nil }) else { return self }
        takeTurn()
        return previous
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

    fileprivate var hasEnded: Bool { state.withLock { $0.result != nil } }

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

    /// Turns the holder into the one that never leaves, or removes it if there is one: callers that do not wait must not
    /// add up while a load runs.
    fileprivate func keep(_ number: Int) {
        state.withLock { state in
            if state.isKept { state.holders[number] = nil }
            state.isKept = true
        }
    }

    var holderCount: Int { state.withLock { $0.holders.count } }

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

    /// Frees what a cancelled load that has not begun would use. Not called when a task is cancelled, as the runtime may
    /// hold a lock then.
    fileprivate func clearUnused() {
        let unused = state.withLock { $0.holders.isEmpty ? $0.load.take() : nil }
        withExtendedLifetime(unused) {}
    }

    private func finish(_ result: Result<Output, any Error>) {
        let (holders, next) = state.withLock { state in
            state.result = result
            return (state.holders.takeAll(), state.next.take())
        }
        // In arrival order: a task group searches for a finished child from the oldest on, and any other order makes
        // each search visit all remaining children.
        for holder in holders {
            holder.timer?.cancel()
            holder.waiter?.resume(returning: .ended)
        }
        next?.takeTurn()
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
            // In a task of its own: along a chain of loads that wait for each other, the calls would nest.
            Task.detached(priority: priority) { flight.raisePriority(to: priority) }
        }
    }

    private nonisolated(nonsending) func cancellable(within limit: TimeLimit?) async throws -> Output? {
        do {
            return try await withTaskCancellationHandler {
                try await flight.output(number, within: limit)
            } onCancel: {
                flight.release(number)
            }
        } catch {
            flight.clearUnused()
            throw error
        }
    }

    /// A further holder; nil if the load has ended or was cancelled.
    func another() -> Hold? { flight.hold() }

    var hasEnded: Bool { flight.hasEnded }

    /// Holds the load to its end. The hold cannot be used any more.
    func keep() { flight.keep(number) }

    /// Releases the load, which is cancelled if it has no other holder.
    func release() {
        flight.release(number)
        flight.clearUnused()
    }

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
        // A century: the system's clocks overflow a little beyond.
        let time = min(time, .seconds(3_000_000_000))
        return Task { [clock] in if (try? await clock.sleep(for: time)) != nil { isOver() } }
    }
}
