import NIOHTTP1

/// What may be stored, what is fresh and what has to be validated, by RFC 9111 and RFC 5861. It knows messages and the time, and does
/// nothing.
public struct HTTPCachePolicy: Sendable, Equatable {
    public enum Kind: Sendable {
        /// For many users: nothing that is private, and of what was asked for with Authorization only what says that it may be shared.
        case shared
        /// For one user.
        case `private`
    }

    public var kind: Kind
    /// A response that does not say for how long it is fresh is fresh for this part of the time since it was modified. 0: not at all.
    public var heuristicFraction = 0.1
    /// The longest time for which such a response is fresh.
    public var longestHeuristic = Duration.seconds(24 * 3600)
    /// For how long past its freshness a response serves while its server cannot be reached, unless it forbids that or says
    /// `stale-if-error` itself.
    public var staleIfUnreachable = Duration.zero

    public init(_ kind: Kind = .shared) { self.kind = kind }

    // MARK: Requests

    /// Whether a request may be answered from the store, and its response stored. One with a condition that only the origin can judge,
    /// or for a part of the body, is passed through.
    func concerns(_ method: HTTPMethod, _ request: HTTPHeaders) -> Bool {
        (method == .GET || method == .HEAD) && !CacheControl(request).has("no-store")
            && !["Range", "If-Range", "If-Match", "If-Unmodified-Since"].contains(where: request.contains(name:))
    }

    /// Whether a response to this method says that what is stored of its URL has changed (RFC 9111, 4.4).
    func invalidates(_ method: HTTPMethod, _ status: HTTPResponseStatus) -> Bool {
        let safe: [HTTPMethod] = [.GET, .HEAD, .OPTIONS, .TRACE, .PROPFIND, .REPORT, .SEARCH, .RAW(value: "QUERY")]
        return !safe.contains(method) && (200..<400).contains(status.code)
    }

    // MARK: Storing (RFC 9111, 3)

    func mayStore(_ response: StoredResponse, to request: HTTPHeaders) -> Bool {
        let control = response.control, status = response.status.code
        guard status >= 200, status != 206, status != 304, Vary(response.headers) != nil,
            unstored(response.headers).isDisjoint(with: Self.decisive)
        else { return false }
        if control.has("must-understand") {
            guard Self.understood.contains(status) else { return false }
        } else if control.has("no-store") {
            return false
        }
        if kind == .shared {
            if control.hasUnqualified("private") { return false }
            if request.contains(name: "Authorization"),
                !["public", "must-revalidate", "s-maxage"].contains(where: control.has)
            {
                return false
            }
        }
        let isExplicit =
            ["public", "max-age", kind == .shared ? "s-maxage" : "private"].contains(where: control.has)
            || response.headers.contains(name: "Expires")
        return isExplicit || (Self.heuristicallyCacheable.contains(status) && response.hasValidator)
    }

    /// The fields of a response that are stored. What has no Date gets the time at which it came.
    func storedFields(_ headers: HTTPHeaders, receivedAt: Int64) -> HTTPHeaders {
        let unstored = unstored(headers)
        var stored = HTTPHeaders(headers.filter { !unstored.contains($0.name.lowercased()) })
        if !stored.contains(name: "Date") { stored.add(name: "Date", value: HTTPDate.format(receivedAt)) }
        return stored
    }

    private func unstored(_ headers: HTTPHeaders) -> Set<String> {
        let control = CacheControl(headers)
        return Fields.ofTheConnection.union(FieldList.members(headers["Connection"]).map { $0.lowercased() })
            .union(control.fields("no-cache")).union(kind == .shared ? control.fields("private") : [])
    }

    /// Without these it is not known how a response may be used.
    private static let decisive: Set<String> = ["age", "cache-control", "date", "expires", "vary"]

    // MARK: Using what is stored (RFC 9111, 4)

    enum Verdict: Equatable {
        case use
        /// It is stale, and serves while it is validated (RFC 5861, 3).
        case useAndValidate
        case validate
    }

    func verdict(on response: StoredResponse, for request: HTTPHeaders, at now: Int64) -> Verdict {
        let asked = CacheControl(request), said = response.control
        let age = response.age(at: now), left = freshness(of: response) - age
        if asked.has("no-cache") || said.hasUnqualified("no-cache") { return .validate }
        if let most = asked.duration("max-age"), age > most || most == 0 { return .validate }
        if let least = asked.duration("min-fresh"), left < least { return .validate }
        if left > 0 { return .use }
        if forbidsStale(said) { return .validate }
        if let most = asked.durationOrForever("max-stale") { return isWithin(most, left) ? .use : .validate }
        if let most = said.duration("stale-while-revalidate"), !asked.has("max-age"), isWithin(most, left) {
            return .useAndValidate
        }
        return .validate
    }

    /// Whether a stale response serves where the origin answers with an error, or does not answer (RFC 5861, 4; RFC 9111, 4.2.4).
    func servesDespiteError(
        _ response: StoredResponse, for request: HTTPHeaders, at now: Int64, isUnreachable: Bool
    ) -> Bool {
        let asked = CacheControl(request), said = response.control
        if forbidsStale(said) || ["no-cache", "max-age", "min-fresh"].contains(where: asked.has) { return false }
        let most =
            asked.duration("stale-if-error") ?? said.duration("stale-if-error")
            ?? (isUnreachable ? staleIfUnreachable.milliseconds : 0)
        return isWithin(most, freshness(of: response) - response.age(at: now))
    }

    /// Whether what has been stale since `left` was 0 may still be used. A number that is malformed is 0, and allows nothing.
    private func isWithin(_ most: Int64, _ left: Int64) -> Bool { most > 0 && -left <= most }

    /// For how many milliseconds a response is fresh, from its age 0 on (RFC 9111, 4.2.1).
    func freshness(of response: StoredResponse) -> Int64 {
        let control = response.control
        if kind == .shared, let time = control.duration("s-maxage") { return time }
        if let time = control.duration("max-age") { return time }
        if let expires = response.headers.first(name: "Expires") {
            return HTTPDate.parse(expires, now: response.receivedAt).map { max(0, $0 - response.date) } ?? 0
        }
        guard Self.heuristicallyCacheable.contains(response.status.code) || control.has("public"),
            let modified = response.lastModified, modified < response.date, heuristicFraction > 0
        else { return 0 }
        let longest = Double(max(0, longestHeuristic.milliseconds))
        return Int64(min(Double(response.date - modified) * heuristicFraction, longest))
    }

    private func forbidsStale(_ control: CacheControl) -> Bool {
        control.has("must-revalidate") || control.hasUnqualified("no-cache")
            || (kind == .shared && (control.has("proxy-revalidate") || control.has("s-maxage")))
    }

    // MARK: Status codes

    /// RFC 9110, 15.1, less 206.
    private static let heuristicallyCacheable: Set<UInt> = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501]

    /// Whose meaning for caches is known: those of RFC 9110 that are no part of a body and validate nothing.
    private static let understood: Set<UInt> = [
        200, 201, 202, 203, 204, 205, 300, 301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409,
        410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 426, 500, 501, 502, 503, 504, 505,
    ]
}

extension Duration {
    /// What is longer than a number of milliseconds can say is the longest.
    var milliseconds: Int64 {
        let (whole, overflow) = components.seconds.multipliedReportingOverflow(by: 1000)
        return overflow
            ? (components.seconds < 0 ? .min : .max) : whole + components.attoseconds / 1_000_000_000_000_000
    }
}
