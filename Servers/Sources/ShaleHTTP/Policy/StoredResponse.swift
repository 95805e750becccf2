import NIOHTTP1

/// What is kept of a response beside its body.
struct StoredResponse: Equatable, Sendable {
    var status: HTTPResponseStatus
    var headers: HTTPHeaders
    /// When the request was sent and when the response began, in milliseconds since 1970.
    var requestedAt: Int64
    var receivedAt: Int64

    var control: CacheControl { CacheControl(headers) }

    /// When the origin made it: by its Date, or else when it came.
    var date: Int64 { headers.first(name: "Date").flatMap { HTTPDate.parse($0, now: receivedAt) } ?? receivedAt }

    var lastModified: Int64? {
        headers.first(name: "Last-Modified").flatMap { HTTPDate.parse($0, now: receivedAt) }
    }

    var hasValidator: Bool { headers.contains(name: "ETag") || lastModified != nil }

    /// Milliseconds since the origin made or validated it (RFC 9111, 4.2.3).
    func age(at now: Int64) -> Int64 {
        let apparent = max(0, receivedAt - date)
        // Of several values the first counts, and what is no number does not.
        let said = FieldList.members(headers["Age"]).first.flatMap { DeltaSeconds.parse($0) } ?? 0
        let delay = max(0, receivedAt - requestedAt)
        return max(apparent, said + delay) + max(0, now - receivedAt)
    }

    /// With what a 304 says (RFC 9111, 3.2 and 4.3.4). The fields that describe the body stay as the body is.
    func updated(with headers: HTTPHeaders, requestedAt: Int64, receivedAt: Int64) -> StoredResponse {
        var updated = self
        updated.requestedAt = requestedAt
        updated.receivedAt = receivedAt
        // It was the age of the message before this one.
        updated.headers.remove(name: "Age")
        for name in Set(headers.map { $0.name.lowercased() }).subtracting(Fields.ofTheBody) {
            updated.headers.remove(name: name)
        }
        for (name, value) in headers where !Fields.ofTheBody.contains(name.lowercased()) {
            updated.headers.add(name: name, value: value)
        }
        return updated
    }
}

/// Names of fields, in lower case.
enum Fields {
    /// Of a connection, not of the message (RFC 9110, 7.6.1; RFC 9111, 3.1).
    static let ofTheConnection: Set<String> = [
        "connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    ]

    /// What a message about the same body does not change.
    static let ofTheBody: Set<String> = ["content-encoding", "content-length", "content-range"]

    /// Those that make a request conditional, and that a cache answers itself.
    static let conditions = ["If-None-Match", "If-Modified-Since"]
}
