#if HTTP
import NIOHTTP1

extension StoredResponse {
    /// The fields of a request that validates this response (RFC 9111, 4.3.1); empty if it has no validator.
    var validators: HTTPHeaders {
        var validators: HTTPHeaders = [:]
        if let tag = headers.first(name: "ETag") { validators.add(name: "If-None-Match", value: tag) }
        if lastModified != nil, let date = headers.first(name: "Last-Modified") {
            validators.add(name: "If-Modified-Since", value: date)
        }
        return validators
    }

    /// Whether a 304 with these headers refers to this response (RFC 9111, 4.3.4).
    func isValidated(by headers: HTTPHeaders) -> Bool {
        headers.first(name: "ETag").map { tag in
            self.headers.first(name: "ETag").map { tag.utf8.elementsEqual($0.utf8) } ?? false
        } ?? true
    }

    /// Whether a response to HEAD with these headers describes this one (RFC 9111, 4.3.5).
    func isDescribed(by headers: HTTPHeaders) -> Bool {
        let length = headers.first(name: "Content-Length")
        return ["ETag", "Last-Modified"].allSatisfy { headers.first(name: $0) == self.headers.first(name: $0) }
            && (length == nil || length == self.headers.first(name: "Content-Length"))
    }

    /// Whether a request with these conditions is answered with 304 (RFC 9111, 4.3.2).
    func isUnmodified(for request: HTTPHeaders) -> Bool {
        guard status == .ok else { return false }
        if request.contains(name: "If-None-Match") {
            let tags = FieldList(request["If-None-Match"]).members
            guard let tag = headers.first(name: "ETag") else { return false }
            return tags == ["*"] || tags.contains { opaque($0).elementsEqual(opaque(tag)) }
        }
        guard let since = request.first(name: "If-Modified-Since").flatMap({ HTTPDate.parse($0, now: receivedAt) })
        else { return false }
        return (lastModified ?? date) <= since
    }

    /// Weak comparison: a weak tag equals a strong one. Bytes, since strings with other bytes can be equal.
    private func opaque(_ tag: String) -> Substring.UTF8View {
        (tag.hasPrefix("W/") ? tag.dropFirst(2) : tag[...]).utf8
    }
}
#endif
