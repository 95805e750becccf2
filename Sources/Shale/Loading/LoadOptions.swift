import ShaleCore

/// When a value is loaded, and what is served meanwhile.
public enum LoadPolicy: Sendable {
    /// Serves what is fresh; else loads.
    case `default`
    /// As the default; where the load fails, serves what is stale, if there is any.
    case staleIfError
    /// Serves what is there, even stale, and loads in the background where it is stale. Loads first where there is nothing.
    case staleWhileRevalidate
    /// Loads, whatever is there. Joins a load that is under way, unless its key was changed since that began.
    case reload
}

/// When a value is loaded, how long that may take, and what is served meanwhile.
///
/// ```swift
/// let careful = LoadOptions(
///     .staleIfError, softLimit: .milliseconds(300), hardLimit: .seconds(10), pauseAfterFailure: .seconds(30))
/// let entry = try await articles.entry(for: url, policy: careful) { _ in .value(try await download(url)) }
/// ```
///
/// Options are each caller's own; how the load itself goes is decided by those of the caller who began it. A limit costs
/// each waiting caller a timer, which is a task; without limits there is none.
public struct LoadOptions: Sendable, Equatable {
    public var policy: LoadPolicy
    /// After how long what is stored, even stale, is served in place of a load that goes on. The load stores its
    /// result when it has one; ``Cache/Entry/error`` is ``LoadError/softLimit(key:limit:)``.
    ///
    /// Where nothing is stored at that moment, the caller waits on. Nil: no limit. A limit that is not below
    /// ``hardLimit`` does nothing.
    public var softLimit: Duration?
    /// How long the caller takes part in a load, from when it asks: after that it gets ``LoadError/hardLimit(key:limit:)``
    /// as if the load had failed with it. So does one that waits for another process to load.
    ///
    /// The load goes on for others whose limits are not reached, and is cancelled with the last of them. One in the
    /// background ends by the limit of the caller who was served. Nil: no limit.
    public var hardLimit: Duration?
    /// For how long after a failed load what is stale is served without another try, by this cache object. It counts by
    /// the cache's clock, and ends with the next load that succeeds.
    ///
    /// ``Cache/Entry/error`` is ``LoadError/paused(key:cause:)``. Where nothing is stale, each caller tries. With policies
    /// that serve nothing stale, ``LoadPolicy/default`` and ``LoadPolicy/reload``, it does nothing. A load that was
    /// cancelled has not failed; one whose caller reached its hard limit has. Nil: no pause.
    public var pauseAfterFailure: Duration?
    /// By how much at most the age of what is loaded is shortened, by chance: 0 to 1 of that age. So entries that were
    /// loaded together do not go stale together. 0: each has its full age.
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
    /// What is wrong with them, if anything.
    var fault: String? {
        if let softLimit, softLimit < .zero { return "softLimit is \(softLimit); it is not negative" }
        if let hardLimit, hardLimit <= .zero { return "hardLimit is \(hardLimit); it is above zero" }
        if let pauseAfterFailure, pauseAfterFailure < .zero {
            return "pauseAfterFailure is \(pauseAfterFailure); it is not negative"
        }
        return (0...1).contains(jitter) ? nil : "jitter is \(jitter); it is from 0 to 1"
    }

    var servesStaleAfterFailure: Bool { policy == .staleIfError || policy == .staleWhileRevalidate }

    /// Where it comes before the hard limit.
    var usableSoftLimit: Duration? {
        guard let softLimit, let hardLimit else { return softLimit }
        return softLimit < hardLimit ? softLimit : nil
    }
}
