extension Cache {
    /// Loads a missing or stale value in the background. A failed load changes nothing.
    ///
    /// - Returns: A handle that can cancel the load and wait for its result. If it is discarded, the load runs to its
    ///   end or to the hard limit.
    @discardableResult
    public func prefetch(
        _ key: Key, options: LoadOptions = .default, load: @escaping @Sendable () async throws -> Value
    ) -> Prefetch<Value> {
        prefetch(key, options: options) { _ in .value(try await load()) }
    }

    /// Like the other form, for a loader that validates.
    @discardableResult
    public func prefetch(
        _ key: Key, options: LoadOptions = .default,
        load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) -> Prefetch<Value> {
        let name = description(of: key)
        do {
            if let fault = options.fault { throw failure(fault) }
            switch try loadInBackground(key, insteadOf: nil, options, load) {
            case .stored(let answer): return Prefetch(release: {}, output: { try answer.value(of: name) })
            case .load(let hold):
                let identity = try identity(of: key), clock = self.options.limitClock
                // Does not capture the cache, which the handle must not keep open.
                let output: @Sendable () async throws -> Value = {
                    // Each waiter is a holder of its own; a load that has ended keeps its result.
                    let holder = hold.another() ?? hold
                    let limit = options.hardLimit.map { TimeLimit(time: $0, clock: clock) }
                    if let answer = try await holder.output(within: limit) { return try answer.value(of: name) }
                    holder.release()
                    throw LoadError.hardLimit(key: name, limit: options.hardLimit ?? .zero)
                }
                return Prefetch(
                    release: hold.release,
                    output: {
                        if hold.hasEnded { return try await output() }
                        return try await WaitGraph.shared.waiting(for: { (identity, name) }, output)
                    })
            }
        } catch {
            return Prefetch(release: {}, output: { throw error })
        }
    }
}

/// A load in the background.
public struct Prefetch<Value: Sendable>: Sendable {
    fileprivate let release: @Sendable () -> Void
    fileprivate let output: @Sendable () async throws -> Value

    /// The loaded value, or the fresh value that was already stored. Throws what the load throws, also after the load
    /// has ended. A cancelled task stops waiting. Like a call that loads, it waits up to the hard limit, and throws
    /// ``LoadError/cycle(keys:)`` in a loader that the load waits for.
    public var value: Value {
        get async throws { try await output() }
    }

    /// Cancels the load, unless it has ended or other callers wait for it. Further calls have no effect.
    public func cancel() { release() }
}
