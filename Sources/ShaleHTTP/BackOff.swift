#if HTTP
import Synchronization

/// URLs whose server fails. They are requested after pauses that double with each failure.
final class BackOff: Sendable {
    struct Failure {
        /// Nil if the server answered with an error.
        let error: (any Error)?
        /// Whether the error ends the requests of others too. Not if one caller's time limit is the cause.
        let isShared: Bool
        /// Consecutive failures.
        fileprivate(set) var count = 0
        /// Whether the pause after the last one lasts.
        fileprivate(set) var isPausing = true

        init(_ error: (any Error)? = nil, isShared: Bool = false) {
            self.error = error
            self.isShared = isShared
        }
    }

    private struct State {
        var failure: Failure
        var failedAt: Int64
    }

    private static let shortestPause: Int64 = 100
    /// A full table is emptied. That costs a request for each of its URLs.
    private static let limit = 4096

    private let longestPause: Int64
    /// By the hashes of URLs: they can be long.
    private let states = Mutex<[Int: State]>([:])

    init(longestPause: Duration) { self.longestPause = max(0, longestPause.milliseconds) }

    /// Nil if the last request succeeded.
    func failure(of url: String, at now: Int64) -> Failure? {
        guard let state = states.withLock({ $0[url.hashValue] }) else { return nil }
        var failure = state.failure
        let pause = min(Self.shortestPause << min(failure.count - 1, 20), longestPause)
        // A clock that was set back ends the pause.
        failure.isPausing = (0..<pause).contains(now - state.failedAt)
        return failure
    }

    func succeeded(_ url: String) { states.withLock { $0[url.hashValue] = nil } }

    func failed(_ url: String, _ failure: Failure, requestedAt: Int64, at now: Int64) {
        states.withLock { states in
            if states.count >= Self.limit { states.removeAll() }
            var failure = failure
            let last = states[url.hashValue]
            // A request that began before the last failure tells nothing new.
            if let last, requestedAt < last.failedAt { return }
            failure.count = (last?.failure.count ?? 0) + 1
            states[url.hashValue] = State(failure: failure, failedAt: now)
        }
    }
}
#endif
