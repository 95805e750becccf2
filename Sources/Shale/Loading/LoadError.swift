/// Why there is no loaded value, or a stale one in its place. What a loader throws is thrown as it is.
///
/// Keys are described as `String(describing:)` does, with the name of their cache where it has one.
public enum LoadError: Error, Sendable {
    /// A loader asked for a key whose load waits for it: the keys from the one that was asked for, each of which
    /// waits for the next, to the same one again.
    ///
    /// Thrown at once, where the loader asks, whatever the policy. Loads of this process are seen, through whichever
    /// cache objects they were begun; what a loader asks for from a detached task is not, nor a cycle through other
    /// processes, which ``LoadOptions/hardLimit`` ends.
    case cycle(keys: [String])
    /// The load was not over at the caller's ``LoadOptions/softLimit``. Never thrown: the ``Cache/Entry/error`` of what
    /// was served.
    case softLimit(key: String, limit: Duration)
    /// The load was not over at the caller's ``LoadOptions/hardLimit``.
    case hardLimit(key: String, limit: Duration)
    /// No load was tried, as the last one had failed a moment ago, see ``LoadOptions/pauseAfterFailure``. Never thrown:
    /// the ``Cache/Entry/error`` of what was served.
    case paused(key: String, cause: any Error)
    /// A loader has found that there is no value, now or within the age of what it found, see
    /// ``Cache/Loaded/missing(maxAge:tags:)``.
    case missing(key: String)
}

extension LoadError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .cycle(let keys): "a load waits for itself: \(keys.joined(separator: " → "))"
        case .softLimit(let key, let limit): "the load of \(key) takes longer than its soft limit, \(limit)"
        case .hardLimit(let key, let limit): "the load of \(key) takes longer than its hard limit, \(limit)"
        case .paused(let key, let cause): "the load of \(key) is not tried again yet after it failed: \(cause)"
        case .missing(let key): "\(key) is known to be missing"
        }
    }
}
