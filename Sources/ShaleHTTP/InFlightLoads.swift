#if HTTP
import Synchronization

/// Coalesces requests for the same response: one is sent, and the others wait for it. This class coordinates the tasks
/// of this process; the store's leases coordinate processes.
final class InFlightLoads: Sendable {
    /// By bytes: strings with other bytes can be equal.
    private let loads = Mutex<[[UInt8]: InFlightLoad]>([:])

    enum Role {
        /// The caller sends the request and must end the turn.
        case leader(InFlightLoad.Turn)
        case follower(InFlightLoad)
    }

    func join(_ key: String) -> Role {
        let key = Array(key.utf8)
        return loads.withLock { loads in
            if let load = loads[key] { return .follower(load) }
            let load = InFlightLoad { [weak self] load in self?.remove(load, key) }
            loads[key] = load
            return .leader(InFlightLoad.Turn(load))
        }
    }

    /// The load gets a second key, unless another load has that.
    func add(_ load: InFlightLoad, _ key: String) {
        let key = Array(key.utf8)
        let isNew = loads.withLock { loads in
            if loads[key] != nil { return false }
            loads[key] = load
            return true
        }
        if isNew { load.atEnd { [weak self, weak load] in load.map { self?.remove($0, key) } } }
    }

    /// For tests.
    var followers: Int {
        let all = loads.withLock { Dictionary($0.values.map { (ObjectIdentifier($0), $0) }) { $1 } }
        return all.values.reduce(0) { $0 + $1.followers }
    }

    private func remove(_ load: InFlightLoad, _ key: [UInt8]) {
        loads.withLock { loads in
            if loads[key] === load { loads[key] = nil }
        }
    }
}

/// A response that several callers want. One of them at a time, the leader, sends the request. A leader that fails or
/// is cancelled hands its turn to the follower that has waited longest.
final class InFlightLoad: Sendable {
    enum Outcome {
        /// The follower is now the leader.
        case turn(Turn)
        /// The response is stored, or certain not to be: look again. Also if the task is cancelled.
        case over
        /// The response has arrived in part.
        case flowing(SharedResponse)
        /// The deadline has passed.
        case timedOut
    }

    final class Turn: Sendable {
        let load: InFlightLoad
        private let isOpen = Mutex(true)

        init(_ load: InFlightLoad) { self.load = load }

        /// Ends the load: no follower needs to send this request. No effect if the turn has ended.
        func end() { if close() { load.end() } }

        /// Ends this turn without an outcome. No effect if the turn has ended.
        func handOn() { if close() { load.handOn() } }

        private func close() -> Bool {
            isOpen.withLock { isOpen in
                defer { isOpen = false }
                return isOpen
            }
        }
    }

    private struct State {
        /// More than one if a leader took too long.
        var leaders = 1
        var lastTurn = ContinuousClock.now
        var followers: [Int: CheckedContinuation<Outcome, Never>] = [:]
        var nextID = 0
        /// No follower has a smaller identifier.
        var oldest = 0
        var flowing: SharedResponse?
        var isOver = false
        var isLeased = false
        var atEnd: [@Sendable () -> Void] = []

        mutating func removeOldest() -> CheckedContinuation<Outcome, Never>? {
            while oldest < nextID {
                defer { oldest += 1 }
                if let follower = followers.removeValue(forKey: oldest) { return follower }
            }
            return nil
        }
    }

    private let state = Mutex(State())
    private let leave: @Sendable (InFlightLoad) -> Void

    init(leave: @escaping @Sendable (InFlightLoad) -> Void) { self.leave = leave }

    /// Calls `body` when the load ends, or at once if it has ended.
    func atEnd(_ body: @escaping @Sendable () -> Void) {
        let isOver = state.withLock { state in
            if !state.isOver { state.atEnd.append(body) }
            return state.isOver
        }
        if isOver { body() }
    }

    /// Whether the load has the store's lease, or goes on without.
    var isLeased: Bool {
        get { state.withLock { $0.isLeased } }
        set { state.withLock { $0.isLeased = newValue } }
    }

    var followers: Int { state.withLock { $0.followers.count } }

    // MARK: The leader

    private func end() {
        let over: State? = state.withLock { state in
            if state.isOver { return nil }
            defer { state = State(isOver: true) }
            return state
        }
        guard let over else { return }
        over.atEnd.forEach { $0() }
        leave(self)
        over.followers.values.forEach { $0.resume(returning: .over) }
    }

    private func handOn() {
        let (isLast, next) = state.withLock { state in
            state.leaders -= 1
            if state.isOver || state.leaders > 0 { return (false, nil as CheckedContinuation<Outcome, Never>?) }
            guard let next = state.removeOldest() else { return (true, nil) }
            state.leaders = 1
            state.lastTurn = .now
            return (false, next)
        }
        next?.resume(returning: .turn(Turn(self)))
        if isLast { end() }
    }

    /// All followers, present and future, read the response while it arrives.
    func flow(_ response: SharedResponse) {
        state.withLock { if !$0.isOver { $0.flowing = response } }
        resumeAll(.flowing(response))
    }

    /// All followers look again, each for its own variant.
    func sendAway() { resumeAll(.over) }

    private func resumeAll(_ outcome: Outcome) {
        let followers = state.withLock { state in
            defer { state.followers = [:] }
            return state.followers
        }
        followers.values.forEach { $0.resume(returning: outcome) }
    }

    // MARK: A follower

    /// - Parameter patience: How long the load may have the same leader. Then one follower becomes a second leader.
    func wait(patience: Duration, deadline: ContinuousClock.Instant) async -> Outcome {
        let id = state.withLock { state in
            defer { state.nextID += 1 }
            return state.nextID
        }
        let timer = Task {
            while !Task.isCancelled {
                try? await Task.sleep(until: check(id, patience, deadline), clock: .continuous)
            }
        }
        defer { timer.cancel() }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let outcome: Outcome? = state.withLock { state in
                    if state.isOver || Task.isCancelled { return .over }
                    if let flowing = state.flowing { return .flowing(flowing) }
                    state.followers[id] = continuation
                    state.oldest = min(state.oldest, id)
                    return nil
                }
                if let outcome { continuation.resume(returning: outcome) }
            }
        } onCancel: {
            state.withLock { $0.followers.removeValue(forKey: id) }?.resume(returning: .over)
        }
    }

    /// Resumes the follower if it need not wait any longer. Returns when to look again.
    private func check(_ id: Int, _ patience: Duration, _ deadline: ContinuousClock.Instant) -> ContinuousClock.Instant
    {
        let now = ContinuousClock.now
        let (next, follower, outcome) = state.withLock { state in
            let turnEnds = state.lastTurn + patience
            // Not yet or no longer waiting.
            guard state.followers[id] != nil else {
                return (now + .milliseconds(10), nil as CheckedContinuation<Outcome, Never>?, Outcome.over)
            }
            if now >= deadline { return (deadline, state.followers.removeValue(forKey: id), .timedOut) }
            if now < turnEnds { return (min(turnEnds, deadline), nil, .over) }
            state.leaders += 1
            state.lastTurn = now
            return (deadline, state.followers.removeValue(forKey: id), .turn(Turn(self)))
        }
        follower?.resume(returning: outcome)
        return next
    }
}
#endif
