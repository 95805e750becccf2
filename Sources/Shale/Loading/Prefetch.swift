extension Cache {
    /// Loads in the background what is not there, or stale. A failure changes nothing, nor do options that are out of range.
    ///
    /// - Returns: A token that cancels the load, unless others wait for it. Without it, the load goes to its end, or to
    ///   the options' hard limit.
    @discardableResult
    public func prefetch(
        _ key: Key, with options: LoadOptions = .default, _ load: @escaping @Sendable () async throws -> Value
    ) -> Prefetch {
        prefetch(key, with: options, revalidating: { _ in .value(try await load()) })
    }

    /// As ``prefetch(_:with:_:)``, for a loader that validates.
    @discardableResult
    public func prefetch(
        _ key: Key, with options: LoadOptions = .default,
        revalidating load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) -> Prefetch {
        guard options.fault == nil, let hold = try? loadBehind(key, insteadOf: nil, options, load) else {
            return Prefetch {}
        }
        return Prefetch { hold.release() }
    }
}

/// A load in the background.
public struct Prefetch: Sendable {
    fileprivate let release: @Sendable () -> Void

    /// Cancels the load, unless it has ended or others wait for it. More than once is once.
    public func cancel() { release() }
}
