import Synchronization

/// Keys whose last load has failed, for as long as nobody is to try again. Times are in milliseconds.
final class LoadPauses<Key: Hashable & Sendable>: Sendable {
    private struct Pause {
        let cause: any Error
        let period: Range<Int64>
    }

    private struct State {
        var pauses: [Key: Pause] = [:]
        /// As many as there may be before those that are over are looked for.
        var room = 1024
    }
    private let state = Mutex(State())

    func begin(_ key: Key, after cause: any Error, at now: Int64, for time: Duration) {
        // The longest is some 30,000 years.
        let milliseconds = Int64(min(time / .milliseconds(1), 1e15).rounded(.up))
        // What leaves is released behind the lock: a cause may be anything.
        _ = state.withLock { state -> (Pause?, [Key: Pause]) in
            let replaced = state.pauses.updateValue(
                Pause(cause: cause, period: now..<now + milliseconds), forKey: key)
            guard state.pauses.count > state.room else { return (replaced, [:]) }
            let all = state.pauses
            state.pauses = all.filter { $0.value.period.contains(now) }
            state.room = max(1024, 2 * state.pauses.count)
            return (replaced, all)
        }
    }

    /// Those that are over included, until they are looked for.
    var count: Int { state.withLock { $0.pauses.count } }

    func end(_ key: Key) { _ = state.withLock { $0.pauses.removeValue(forKey: key) } }

    /// Why the key is not to be loaded now; nil: it may be. A clock that is set back ends a pause.
    func cause(for key: Key, at now: Int64) -> (any Error)? {
        state.withLock { state in
            guard let pause = state.pauses[key] else { return nil }
            return pause.period.contains(now) ? pause.cause : nil
        }
    }
}
