#if !hasFeature(Embedded)
/// How long an entry is fresh, or is kept once it is stale: a duration, forever, or until a point in time.
///
/// ```swift
/// try store.insert("value", for: "key", maxAge: .minutes(5))
/// try store.insert("value", for: "key", maxAge: Age(timeout))
/// ```
///
/// Ages have millisecond resolution and are measured by the store's clock.
public struct Age: Sendable, Hashable {
    package enum Form: Sendable, Hashable {
        case duration(Duration)
        /// Milliseconds since 1970.
        case until(Int64)
        case forever
    }
    package let form: Form

    private init(_ form: Form) { self.form = form }
    /// A positive duration below a millisecond counts as one millisecond; zero means stale at once. Calls that are
    /// given a negative age fail.
    public init(_ duration: Duration) { self.init(.duration(duration)) }

    public static let forever = Age(Form.forever)
    /// As a max age: stale at once. As `staleFor`: stale entries are not kept.
    public static let zero = Age(Duration.zero)
    /// Until a point in time; one in the past is an age of zero.
    public static func until(millisecondsSince1970 point: Int64) -> Age { Age(Form.until(point)) }

    public static func milliseconds(_ count: some BinaryInteger) -> Age { Age(.milliseconds(Int64(clamping: count))) }
    public static func seconds(_ count: some BinaryInteger) -> Age { times(count, 1) }
    public static func seconds(_ count: Double) -> Age { times(count, 1) }
    public static func minutes(_ count: some BinaryInteger) -> Age { times(count, 60) }
    public static func minutes(_ count: Double) -> Age { times(count, 60) }
    public static func hours(_ count: some BinaryInteger) -> Age { times(count, 3600) }
    public static func hours(_ count: Double) -> Age { times(count, 3600) }
    /// A day has 24 hours.
    public static func days(_ count: some BinaryInteger) -> Age { times(count, 86400) }
    public static func days(_ count: Double) -> Age { times(count, 86400) }

    /// A count that overflows means forever.
    private static func times(_ count: some BinaryInteger, _ seconds: Int64) -> Age {
        let (product, isFar) = Int64(clamping: count).multipliedReportingOverflow(by: seconds)
        return isFar && count > 0 ? .forever : Age(.seconds(isFar ? .min : product))
    }
    /// NaN becomes a negative age, which is an error where it is used.
    private static func times(_ count: Double, _ seconds: Double) -> Age {
        let product = count * seconds
        return product > 1e15 ? .forever : Age(.seconds(product >= -1e15 ? product : -1e15))
    }
}

extension Age {
    /// What is left of it; nil: forever. `now` is in milliseconds since 1970.
    package func left(from now: @autoclosure () -> Int64) -> Duration? {
        switch form {
        case .forever: return nil
        case .duration(let duration): return duration
        case .until(let point):
            let now = now()
            if point <= now { return .zero }
            let (left, isFar) = point.subtractingReportingOverflow(now)
            return isFar ? nil : .milliseconds(left)
        }
    }

    /// As the engine takes it.
    func milliseconds(from now: @autoclosure () -> Int64) -> Int64 {
        left(from: now())?.wholeMilliseconds ?? Time48.never
    }
}

extension Duration {
    /// As the engine takes ages and timeouts: at least one, unless it is zero; -2, which the engine refuses, if it is
    /// negative.
    var wholeMilliseconds: Int64 {
        if self < .zero { return -2 }
        // (Longer ones may have more seconds than an integer holds.)
        if self > .seconds(Int64.max / 2000) { return Time48.never }
        let parts = components
        let ms = parts.seconds * 1000 + parts.attoseconds / 1_000_000_000_000_000
        return ms == 0 ? (self == .zero ? Time48.none : 1) : ms
    }
}

extension Age: CustomStringConvertible {
    public var description: String {
        switch form {
        case .duration(let duration): "\(duration)"
        case .until(let point): "until \(point) ms since 1970"
        case .forever: "forever"
        }
    }
}
#endif
