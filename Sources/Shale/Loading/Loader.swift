import ShaleCore
import Synchronization

/// Runs at most one load per key, for any number of callers.
///
/// A load runs in its own task while it has holders: callers that wait for the result, and callers that only want it to
/// finish. Releasing the last holder cancels it. A load that is requested after a cancellation, or after a change to
/// the key that the running load may have missed, begins when the running one has ended.
final class Loader<Key: Hashable & Sendable, Output: Sendable>: Sendable {
    /// The state of a key with a load or a caller that decides whether to begin one.
    private struct KeyState {
        var flight: Flight<Output>?
        var lookups = 0
        /// Loads that have ended during the current lookups.
        var ended = 0
    }
    private let states = Mutex<[Key: KeyState]>([:])

    /// Joins the load of a key that is under way if its result will be current; otherwise returns the result of
    /// `stored`, or begins a load if that is nil. A load stores its result before it finishes, and a lookup during
    /// which a load finishes is repeated, so that a late caller does not load again. `isUnchanged` returns whether the
    /// key is unchanged since the load under way began. Both closures are called without a lock held.
    func join(
        _ key: Key, while isUnchanged: (Condition) -> Bool, unless stored: () throws -> Output?,
        load: @escaping @Sendable (LoadFence) async throws -> Output
    ) throws -> Joined<Output> {
        while true {
            let (present, ended) = beginLookup(key)
            var begun: Flight<Output>?
            do {
                defer { endLookup(key) }
                if let present, present.mayServe(isUnchanged), let hold = present.hold() { return .load(hold) }
                if let output = try stored() { return .stored(output) }
                begun = begin(key, after: present, ended)
            }
            if let flight = begun {
                return .load(
                    flight.begin(after: present?.runningOne(), load) { [weak self] in self?.finish(key, flight) })
            }
        }
    }

    /// How many callers the key's load has.
    func holderCount(_ key: Key) -> Int { states.withLock { $0[key]?.flight }?.holderCount ?? 0 }

    func isLoading(_ key: Key) -> Bool { states.withLock { $0[key]?.flight != nil } }

    private func beginLookup(_ key: Key) -> (present: Flight<Output>?, ended: Int) {
        states.withLock { states in
            var state = states[key] ?? KeyState()
            state.lookups += 1
            states[key] = state
            return (state.flight, state.ended)
        }
    }

    private func endLookup(_ key: Key) {
        states.withLock { states in
            guard var state = states[key] else { return }
            state.lookups -= 1
            states[key] = state.flight == nil && state.lookups == 0 ? nil : state
        }
    }

    /// Nil if another load has begun or ended since the lookup began.
    private func begin(_ key: Key, after present: Flight<Output>?, _ ended: Int) -> Flight<Output>? {
        let flight = Flight<Output>()
        return states.withLock { states in
            guard let state = states[key], state.flight === present, state.ended == ended else { return nil }
            states[key]?.flight = flight
            return flight
        }
    }

    private func finish(_ key: Key, _ flight: Flight<Output>) {
        states.withLock { states in
            guard let state = states[key], state.flight === flight else { return }
            states[key] = state.lookups > 0 ? KeyState(lookups: state.lookups, ended: state.ended + 1) : nil
        }
    }
}

enum Joined<Output: Sendable>: Sendable {
    case load(Hold<Output>)
    case stored(Output)
}
