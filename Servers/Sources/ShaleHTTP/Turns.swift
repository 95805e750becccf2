import ShaleCore
import Synchronization

/// Who loads what, so that of all who ask for one thing one sends a request: within this process by turns, between processes by the
/// store's leases.
final class Turns: Sendable {
    private let turns = Mutex<[String: Turn]>([:])

    enum Place {
        /// The caller loads, and ends the turn.
        case first(Turn)
        /// Another one loads.
        case waiting(Turn)
    }

    func take(_ key: String) -> Place {
        turns.withLock { turns in
            if let turn = turns[key] { return .waiting(turn) }
            let turn = Turn { [weak self] turn in self?.remove(turn, key) }
            turns[key] = turn
            return .first(turn)
        }
    }

    /// How many wait: for tests.
    var waiting: Int { turns.withLock { $0.values.reduce(0) { $0 + $1.waiting } } }

    private func remove(_ turn: Turn, _ key: String) {
        turns.withLock { turns in
            if turns[key] === turn { turns[key] = nil }
        }
    }
}

/// The right to load something.
final class Turn: Sendable {
    private struct State {
        var waiting: [AsyncStream<Never>.Continuation] = []
        var isOver = false
        var atEnd: [@Sendable () -> Void] = []
    }

    private let state = Mutex(State())
    private let leave: @Sendable (Turn) -> Void

    init(leave: @escaping @Sendable (Turn) -> Void) { self.leave = leave }

    /// Calls `body` when the turn ends, or now where it has.
    func atEnd(_ body: @escaping @Sendable () -> Void) {
        let isOver = state.withLock { state in
            if !state.isOver { state.atEnd.append(body) }
            return state.isOver
        }
        if isOver { body() }
    }

    var waiting: Int { state.withLock { $0.waiting.count } }

    /// Lets those who wait go on. Further calls do nothing.
    func end() {
        let over: State? = state.withLock { state in
            if state.isOver { return nil }
            defer { state = State(isOver: true) }
            return state
        }
        guard let over else { return }
        over.atEnd.forEach { $0() }
        leave(self)
        over.waiting.forEach { $0.finish() }
    }

    /// Returns when the turn has ended, when the time is over, or when the task is cancelled.
    func wait(atMost time: Duration) async {
        let (ends, continuation) = AsyncStream.makeStream(of: Never.self)
        let isOver = state.withLock { state in
            if !state.isOver { state.waiting.append(continuation) }
            return state.isOver
        }
        if isOver { return }
        await withTaskGroup { group in
            group.addTask { for await _ in ends {} }
            group.addTask { try? await Task.sleep(for: time) }
            await group.next()
            group.cancelAll()
        }
    }
}
