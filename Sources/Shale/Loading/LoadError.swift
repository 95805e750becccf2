/// Why a load returned no value, or a stale one. Errors of loaders are thrown unchanged.
///
/// A key is described by `String(describing:)`, with the name of its cache if it has one.
public enum LoadError: Error, Sendable {
    /// A loader asked for a key whose load waits for that loader. `keys` starts and ends with the requested key; the
    /// load of each waits for the next.
    ///
    /// Thrown in the loader at once, with every policy. All loads of this process count, whichever cache objects began
    /// them, except those that a loader requests from a detached task. Cycles through other processes are not detected:
    /// only ``LoadOptions/hardLimit`` or a cancellation ends them.
    case cycle(keys: [String])
    /// The load was still running at the caller's ``LoadOptions/softLimit``. Never thrown, but the
    /// ``Cache/Entry/error`` of the stale entry that was served.
    case softLimit(key: String, limit: Duration)
    /// The load was still running at the caller's ``LoadOptions/hardLimit``.
    case hardLimit(key: String, limit: Duration)
    /// No load was tried, as the last one failed less than ``LoadOptions/pauseAfterFailure`` ago. Never thrown, but the
    /// ``Cache/Entry/error`` of the stale entry that was served.
    case paused(key: String, cause: any Error)
    /// A loader has found, now or within the max age of its result, that there is no value, see
    /// ``Cache/Loaded/missing(maxAge:tags:)``.
    case missing(key: String)
}

extension LoadError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .cycle(let keys): "a load waits for itself: \(keys.joined(separator: " → "))"
        case .softLimit(let key, let limit): "the load of \(key) exceeded its soft limit of \(limit)"
        case .hardLimit(let key, let limit): "the load of \(key) exceeded its hard limit of \(limit)"
        case .paused(let key, let cause): "the load of \(key) failed recently and is not retried yet: \(cause)"
        case .missing(let key): "\(key) is known to be missing"
        }
    }
}
