import ShaleCore

/// When to load a value, and when to serve a stale one.
public enum LoadPolicy: Sendable {
    /// Serves a fresh entry; otherwise loads.
    case `default`
    /// Like `default`, but if the load fails, serves the stale entry if there is one.
    case staleIfError
    /// Serves a fresh or stale entry; if it is stale, also loads in the background. Without an entry, loads.
    case staleWhileRevalidate
    /// Always loads. Joins a load that is under way, unless the key has changed since it began.
    case reload
}

/// When to load a value, how long to wait for the load, and when to serve a stale value.
///
/// ```swift
/// let careful = LoadOptions(
///     .staleIfError, softLimit: .milliseconds(300), hardLimit: .seconds(10), pauseAfterFailure: .seconds(30))
/// let entry = try await articles.entry(for: url, options: careful) { _ in .value(try await download(url)) }
/// ```
///
/// Each caller has its own options. The options of the caller that began a load apply to the load itself. A limit costs
/// each waiting caller a timer task.
public struct LoadOptions: Sendable, Equatable {
    public var policy: LoadPolicy
    /// How long the caller waits before it gets the stored entry, fresh or stale, with the ``Cache/Entry/error``
    /// ``LoadError/softLimit(key:limit:)``. The load continues and stores its result.
    ///
    /// If nothing is stored at that moment, the caller continues to wait. Nil: no limit. A soft limit at or above
    /// ``hardLimit`` has no effect.
    public var softLimit: Duration?
    /// How long the caller waits for a load, counted from its call, also while another process loads. Then the load
    /// counts as failed for this caller, with ``LoadError/hardLimit(key:limit:)``.
    ///
    /// The load continues for callers that have not reached their limits, and is cancelled after the last of them. A
    /// caller that was served a stale entry counts for its background load until its limit. Nil: no limit.
    public var hardLimit: Duration?
    /// How long after a failed load callers of this cache object that have a pause get its outcome without another
    /// load: the stale entry if their policy serves it, with the ``Cache/Entry/error``
    /// ``LoadError/paused(key:cause:)``, else what the load threw. Measured by the cache's clock; ends with the next
    /// successful load.
    ///
    /// The failures of keys without a stale entry are remembered for the last 1,024 of them. ``LoadPolicy/reload``
    /// always loads, and its failures start no pause. Nor does a cancelled load; one whose caller reached its hard
    /// limit does. Nil: no pause.
    public var pauseAfterFailure: Duration?
    /// The largest random reduction of the max age of loaded entries, as a fraction from 0 to 1, so that entries that
    /// were loaded together do not go stale together. 0: each entry has its full max age.
    public var jitter: Double

    public init(
        _ policy: LoadPolicy = .default, softLimit: Duration? = nil, hardLimit: Duration? = nil,
        pauseAfterFailure: Duration? = nil, jitter: Double = 0
    ) {
        self.policy = policy
        self.softLimit = softLimit
        self.hardLimit = hardLimit
        self.pauseAfterFailure = pauseAfterFailure
        self.jitter = jitter
    }

    /// ``LoadPolicy/default``, without limits.
    public static var `default`: LoadOptions { LoadOptions(.default) }
    /// ``LoadPolicy/staleIfError``, without limits.
    public static var staleIfError: LoadOptions { LoadOptions(.staleIfError) }
    /// ``LoadPolicy/staleWhileRevalidate``, without limits.
    public static var staleWhileRevalidate: LoadOptions { LoadOptions(.staleWhileRevalidate) }
    /// ``LoadPolicy/reload``, without limits.
    public static var reload: LoadOptions { LoadOptions(.reload) }
}

extension LoadOptions {
    /// Which option is invalid and why; nil: all are valid.
    @usableFromInline var fault: String? {
        if let softLimit, softLimit < .zero { return "softLimit is \(softLimit); it must not be negative" }
        if let hardLimit, hardLimit <= .zero { return "hardLimit is \(hardLimit); it must be positive" }
        if let pauseAfterFailure, pauseAfterFailure < .zero {
            return "pauseAfterFailure is \(pauseAfterFailure); it must not be negative"
        }
        return (0...1).contains(jitter) ? nil : "jitter is \(jitter); it must be from 0 to 1"
    }

    var servesStaleAfterFailure: Bool { policy == .staleIfError || policy == .staleWhileRevalidate }

    /// Nil unless it is below the hard limit.
    var usableSoftLimit: Duration? {
        guard let softLimit, let hardLimit else { return softLimit }
        return softLimit < hardLimit ? softLimit : nil
    }
}
