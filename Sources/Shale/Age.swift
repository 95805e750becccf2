#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

/// How long an entry is fresh, or is kept once it is stale: a duration, forever, or until a point in time.
///
/// ```swift
/// try articles.insert(article, for: url, maxAge: .minutes(5))
/// try articles.insert(article, for: url, maxAge: .until(midnight))
/// try articles.insert(article, for: url, maxAge: Age(timeout))
/// ```
///
/// Ages have millisecond resolution and are measured by the cache's clock.
public struct Age: Sendable, Hashable {
    private enum Form: Hashable {
        case duration(Duration)
        case until(Date)
        case forever
    }
    private let form: Form

    /// A positive duration below a millisecond counts as one millisecond; zero means stale at once. Calls that are
    /// given a negative age fail.
    public init(_ duration: Duration) { form = .duration(duration) }
    private init(_ form: Form) { self.form = form }

    public static let forever = Age(Form.forever)
    /// As a max age: stale at once. As `staleFor`: stale entries are not kept.
    public static let zero = Age(Duration.zero)
    /// Until a point in time; one in the past is an age of zero.
    public static func until(_ date: Date) -> Age { Age(Form.until(date)) }

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
    var isNegative: Bool { if case .duration(let duration) = form { duration < .zero } else { false } }

    /// The lifetime for the store; `now` is in milliseconds since 1970.
    func lifetime(from now: Int64) -> Store.Lifetime {
        switch form {
        case .forever: return .forever
        case .duration(let duration): return duration == .zero ? .zero : .of(duration)
        case .until(let date):
            let (left, isFar) = date.millisecondsSince1970.subtractingReportingOverflow(now)
            return isFar ? .forever : left <= 0 ? .zero : .of(.milliseconds(left))
        }
    }

    /// Shortened by a random part of it, at most `part`.
    func jittered(by part: Double, from now: Int64) -> Age {
        guard part > 0, case .of(let duration) = lifetime(from: now) else { return self }
        return Age(duration * (1 - part * .random(in: 0..<1)))
    }
}

extension Age: CustomStringConvertible {
    public var description: String {
        switch form {
        case .duration(let duration): "\(duration)"
        case .until(let date): "until \(date)"
        case .forever: "forever"
        }
    }
}
