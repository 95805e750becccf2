#if HTTP
import NIOHTTP1

/// Decides which responses may be stored, which are fresh and which need validation, following RFC 9111 and RFC 5861.
/// Its methods depend only on messages and the time, and have no side effects.
public struct HTTPCachePolicy: Sendable, Equatable {
    public enum Kind: Sendable {
        /// For many users: stores no private response, and the response to a request with Authorization only if it
        /// permits sharing.
        case shared
        /// For one user.
        case `private`
    }

    public var kind: Kind
    /// A response without explicit freshness is fresh for this fraction of the time since its last modification. 0:
    /// never fresh.
    public var heuristicFraction = 0.1
    /// The upper bound of that time.
    public var longestHeuristic = Duration.seconds(24 * 3600)
    /// How long after becoming stale a response is served while its server cannot be reached, unless the response
    /// forbids that or has its own `stale-if-error`.
    public var staleIfUnreachable = Duration.zero
    /// Whether a shared cache stores responses with Set-Cookie, so that one user's cookie may reach others. A response
    /// that excludes the field, by `private="set-cookie"` or `no-cache="set-cookie"`, is stored without it in any case.
    public var storesSetCookie = false

    public init(_ kind: Kind = .shared) { self.kind = kind }

    // MARK: Requests

    /// Whether a request may be answered from the store and its response stored. A request for a part of the body, or
    /// with a condition that only the origin can evaluate, is passed through.
    func concerns(_ method: HTTPMethod, _ request: RequestHead) -> Bool {
        (method == .GET || method == .HEAD) && request.isWithinLimits && !request.control.has(.noStore)
            && !["Range", "If-Range", "If-Match", "If-Unmodified-Since"]
                .contains(where: request.headers.contains(name:))
    }

    /// Whether a response to this method invalidates the stored responses of its URL (RFC 9111, 4.4).
    func invalidates(_ method: HTTPMethod, _ status: HTTPResponseStatus) -> Bool {
        let safe: [HTTPMethod] = [.GET, .HEAD, .OPTIONS, .TRACE, .PROPFIND, .REPORT, .SEARCH, .RAW(value: "QUERY")]
        return !safe.contains(method) && (200..<400).contains(status.code)
    }

    // MARK: Storing (RFC 9111, 3)

    func mayStore(_ response: StoredResponse, to request: RequestHead) -> Bool {
        let control = response.control, status = response.status.code
        guard response.isWithinLimits, status >= 200, status != 206, status != 304, response.vary != nil else {
            return false
        }
        let unstored = unstored(response.headers, control)
        guard unstored.isDisjoint(with: Self.decisive) else { return false }
        if control.permits(.mustUnderstand) {
            guard Self.understood.contains(status) else { return false }
        } else if control.has(.noStore) || control.has(.mustUnderstand) {
            return false
        }
        if kind == .shared {
            if control.hasUnqualified(.private) { return false }
            if !storesSetCookie, response.headers.contains(name: "Set-Cookie"), !unstored.contains("set-cookie") {
                return false
            }
            if request.headers.contains(name: "Authorization"),
                ![.public, .mustRevalidate, .sMaxAge].contains(where: control.permits)
            {
                return false
            }
        }
        let isExplicit =
            [.public, .maxAge, kind == .shared ? .sMaxAge : .private].contains(where: control.has)
            || response.headers.contains(name: "Expires")
        return isExplicit || (Self.heuristicallyCacheable.contains(status) && response.hasValidator)
    }

    /// The fields of a response that are stored. Without a Date, it gets the time at which it was received.
    func storedFields(_ headers: HTTPHeaders, _ control: CacheControl, receivedAt: Int64) -> HTTPHeaders {
        let unstored = unstored(headers, control)
        var stored = HTTPHeaders(headers.filter { !unstored.contains($0.name.lowercased()) })
        if !stored.contains(name: "Date") { stored.add(name: "Date", value: HTTPDate.format(receivedAt)) }
        return stored
    }

    private func unstored(_ headers: HTTPHeaders, _ control: CacheControl) -> Set<String> {
        Fields.ofTheConnection.union(FieldList.tokens(headers["Connection"]))
            .union(control.fields(.noCache)).union(kind == .shared ? control.fields(.private) : [])
    }

    /// Fields that a response must not lose: they determine how it may be used.
    private static let decisive: Set<String> = ["age", "cache-control", "date", "expires", "vary"]

    // MARK: Using stored responses (RFC 9111, 4)

    enum Evaluation: Equatable {
        case use
        /// Stale, and served while it is validated (RFC 5861, 3).
        case useAndValidate
        case validate
    }

    func evaluate(_ response: StoredResponse, for request: RequestHead, at now: Int64) -> Evaluation {
        let asked = request.control, said = response.control
        let age = response.age(at: now), left = freshness(of: response) - age
        if asked.has(.noCache) || said.hasUnqualified(.noCache) { return .validate }
        if let most = asked.duration(.maxAge), age > most || most == 0 { return .validate }
        if let least = asked.duration(.minFresh, ifMalformed: .max), left < least { return .validate }
        if left > 0 { return .use }
        if forbidsStale(said) { return .validate }
        if let most = asked.durationOrForever(.maxStale) { return isWithin(most, left) ? .use : .validate }
        if let most = said.duration(.staleWhileRevalidate), !asked.has(.maxAge), isWithin(most, left) {
            return .useAndValidate
        }
        return .validate
    }

    /// Whether a stale response is served when the origin answers with an error or not at all (RFC 5861, 4; RFC 9111,
    /// 4.2.4).
    func servesDespiteError(
        _ response: StoredResponse, for request: RequestHead, at now: Int64, isUnreachable: Bool
    ) -> Bool {
        let asked = request.control, said = response.control
        if forbidsStale(said) || [.noCache, .maxAge, .minFresh].contains(where: asked.has) { return false }
        let most =
            asked.duration(.staleIfError) ?? said.duration(.staleIfError)
            ?? (isUnreachable ? staleIfUnreachable.milliseconds : 0)
        return isWithin(most, freshness(of: response) - response.age(at: now))
    }

    /// Whether a response that has been stale for `-left` may be used. A malformed number is 0 and permits nothing.
    private func isWithin(_ most: Int64, _ left: Int64) -> Bool { most > 0 && -left <= most }

    /// The freshness lifetime in milliseconds, from age 0 (RFC 9111, 4.2.1).
    func freshness(of response: StoredResponse) -> Int64 {
        let control = response.control
        if kind == .shared, let time = control.duration(.sMaxAge) { return time }
        if let time = control.duration(.maxAge) { return time }
        if let expires = response.headers.first(name: "Expires") {
            return HTTPDate.parse(expires, now: response.receivedAt).map { max(0, $0 - response.date) } ?? 0
        }
        guard Self.heuristicallyCacheable.contains(response.status.code) || control.permits(.public),
            let modified = response.lastModified, modified < response.date, heuristicFraction > 0
        else { return 0 }
        let longest = Double(max(0, longestHeuristic.milliseconds))
        return Int64(min(Double(response.date - modified) * heuristicFraction, longest))
    }

    private func forbidsStale(_ control: CacheControl) -> Bool {
        control.has(.mustRevalidate) || control.hasUnqualified(.noCache)
            || (kind == .shared && (control.has(.proxyRevalidate) || control.has(.sMaxAge)))
    }

    // MARK: Status codes

    /// RFC 9110, 15.1, less 206.
    private static let heuristicallyCacheable: Set<UInt> = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501]

    /// The status codes of RFC 9110 that the cache understands: all final ones except 206 and 304.
    private static let understood: Set<UInt> = [
        200, 201, 202, 203, 204, 205, 300, 301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409,
        410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 426, 500, 501, 502, 503, 504, 505,
    ]
}

extension Duration {
    /// Clamped to what Int64 can represent.
    var milliseconds: Int64 {
        let (whole, overflow) = components.seconds.multipliedReportingOverflow(by: 1000)
        return overflow
            ? (components.seconds < 0 ? .min : .max) : whole + components.attoseconds / 1_000_000_000_000_000
    }
}
#endif
