#if HTTP
import NIOHTTP1

/// A request's fields, parsed once.
struct RequestHead: Sendable {
    let headers: HTTPHeaders
    let control: CacheControl
    let isWithinLimits: Bool

    init(_ headers: HTTPHeaders) {
        self.headers = headers
        isWithinLimits = Limits.allow(headers)
        control = isWithinLimits ? CacheControl(headers) : CacheControl([:])
    }
}

/// A stored response without its body. Its fields are parsed once.
struct StoredResponse: Equatable, Sendable {
    let status: HTTPResponseStatus
    let headers: HTTPHeaders
    /// When the request was sent and when the response head was received, in milliseconds since 1970.
    let requestedAt: Int64
    let receivedAt: Int64

    let isWithinLimits: Bool
    let control: CacheControl
    /// When the origin generated the response: its Date, or the time at which it was received.
    let date: Int64
    /// Its Age when it was received, in milliseconds. The first of several values counts; an invalid number counts as 0.
    private let receivedAge: Int64
    /// Nil if no other request matches.
    let vary: Vary?

    init(status: HTTPResponseStatus, headers: HTTPHeaders, requestedAt: Int64, receivedAt: Int64) {
        self.status = status
        self.headers = headers
        self.requestedAt = requestedAt
        self.receivedAt = receivedAt
        isWithinLimits = Limits.allow(headers)
        // The others are not stored.
        let headers = isWithinLimits ? headers : [:]
        control = CacheControl(headers)
        date = headers.first(name: "Date").flatMap { HTTPDate.parse($0, now: receivedAt) } ?? receivedAt
        receivedAge = FieldList(headers["Age"]).members.first.flatMap { DeltaSeconds.parse($0) } ?? 0
        vary = Vary(headers)
    }

    var lastModified: Int64? {
        headers.first(name: "Last-Modified").flatMap { HTTPDate.parse($0, now: receivedAt) }
    }

    var hasValidator: Bool { headers.contains(name: "ETag") || lastModified != nil }

    /// Milliseconds since the origin generated or validated the response (RFC 9111, 4.2.3).
    func age(at now: Int64) -> Int64 {
        let apparent = max(0, receivedAt - date), delay = max(0, receivedAt - requestedAt)
        return max(apparent, receivedAge + delay) + max(0, now - receivedAt)
    }

    /// Updated with the fields of a 304 (RFC 9111, 3.2 and 4.3.4), except for the fields that describe the body.
    func updated(with headers: HTTPHeaders, requestedAt: Int64, receivedAt: Int64) -> StoredResponse {
        let fields = headers.filter { !Fields.ofTheBody.contains($0.name.lowercased()) }
        // With the age of the previous message.
        let replaced = Set(fields.map { $0.name.lowercased() }).union(["age"])
        let kept = self.headers.filter { !replaced.contains($0.name.lowercased()) }
        return StoredResponse(
            status: status, headers: HTTPHeaders(kept + fields), requestedAt: requestedAt, receivedAt: receivedAt)
    }
}

/// Field names in lower case, for comparison, except for `conditions`.
enum Fields {
    /// Fields of the connection, not of the message (RFC 9110, 7.6.1; RFC 9111, 3.1).
    static let ofTheConnection: Set<String> = [
        "connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    ]

    /// Fields that describe the body: a 304 does not change them.
    static let ofTheBody: Set<String> = ["content-encoding", "content-length", "content-range"]

    /// Conditions of a request that the cache evaluates itself.
    static let conditions = ["If-None-Match", "If-Modified-Since"]
}
#endif
