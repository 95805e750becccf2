extension Cache {
    /// Loads in the background what is not there, or stale. A failure changes nothing.
    ///
    /// - Returns: A token that cancels the load, unless others wait for it, and that knows what it comes to. Without it, the load
    ///   goes to its end, or to the policy's hard limit.
    @discardableResult
    public func prefetch(
        _ key: Key, policy options: LoadOptions = .default, load: @escaping @Sendable () async throws -> Value
    ) -> Prefetch<Value> {
        prefetch(key, policy: options) { _ in .value(try await load()) }
    }

    /// As the other form, for a loader that validates.
    @discardableResult
    public func prefetch(
        _ key: Key, policy options: LoadOptions = .default,
        load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) -> Prefetch<Value> {
        let name = description(of: key)
        do {
            if let fault = options.fault { throw failure(fault) }
            switch try loadBehind(key, insteadOf: nil, options, load) {
            case .stored(let answer): return Prefetch(release: {}, output: { try answer.value(of: name) })
            case .load(let hold):
                return Prefetch(
                    release: hold.release,
                    output: {
                        // Each who waits holds the load; what is over has its result for all.
                        guard let answer = try await (hold.another() ?? hold).output() else {
                            throw CancellationError()
                        }
                        return try answer.value(of: name)
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

    /// What is loaded, or was there and fresh. Throws what the load throws; also after it has ended. A task that is cancelled stops
    /// waiting.
    public var value: Value {
        get async throws { try await output() }
    }

    /// Cancels the load, unless it has ended or others wait for it. More than once is once.
    public func cancel() { release() }
}
