import Synchronization

/// Keys whose last load failed, during their pauses. Times are in milliseconds.
///
/// Keys with a stale value are as many as the store holds. Failures of other keys, which any caller can invent, share a
/// bounded table: beyond the limit, the oldest failure is removed.
final class LoadPauses<Key: Hashable & Sendable>: Sendable {
    private struct Pause {
        let cause: any Error
        let period: Range<Int64>
    }

    private struct State {
        var ofStale: [Key: Pause] = [:]
        /// The number of pauses above which unused ones are removed.
        var threshold = 1024
        var ofMissing = RecencyList<Key, Pause>()

        mutating func remove(_ key: Key) -> [Pause] {
            [ofStale.removeValue(forKey: key), ofMissing.remove(key)].compactMap(\.self)
        }
    }
    private let state = Mutex(State())
    private let limit = 1024

    /// `isStored` returns whether a key still has a stale value, which the store may have evicted.
    func begin(
        _ key: Key, hasStale: Bool, after cause: any Error, at now: Int64, for time: Duration,
        isStored: (Key) -> Bool = { _ in true }
    ) {
        // At most about 30,000 years, so that the sum below does not overflow.
        let milliseconds = Int64(min(time / .milliseconds(1), 1e15).rounded(.up))
        let pause = Pause(cause: cause, period: now..<now + milliseconds)
        // Removed pauses are freed after the lock is released: a cause may run any code when it is freed.
        let isCrowded = state.withLock { state in
            var removed = state.remove(key)
            if hasStale {
                state.ofStale[key] = pause
            } else {
                state.ofMissing.add(pause, for: key)
                if state.ofMissing.count > limit, let oldest = state.ofMissing.removeLast() { removed.append(oldest) }
            }
            return (state.ofStale.count > state.threshold, removed)
        }.0
        if isCrowded { removeUnused(at: now, isStored) }
    }

    /// Removes pauses that have expired, and those of keys without a stale value.
    private func removeUnused(at now: Int64, _ isStored: (Key) -> Bool) {
        let all = state.withLock { $0.ofStale }
        let unused = all.filter { !$0.value.period.contains(now) || !isStored($0.key) }
        state.withLock { state in
            for (key, pause) in unused where state.ofStale[key]?.period == pause.period { state.ofStale[key] = nil }
            state.threshold = max(1024, 2 * state.ofStale.count)
        }
    }

    /// Includes expired pauses that have not been removed yet.
    var count: Int { state.withLock { $0.ofStale.count + $0.ofMissing.count } }

    func end(_ key: Key) { _ = state.withLock { $0.remove(key) } }

    /// The error of the failed load during a pause, else nil. Setting the clock back ends a pause.
    func cause(for key: Key, at now: Int64) -> (any Error)? {
        state.withLock { state in
            guard let pause = state.ofStale[key] ?? state.ofMissing[key] else { return nil }
            return pause.period.contains(now) ? pause.cause : nil
        }
    }
}
