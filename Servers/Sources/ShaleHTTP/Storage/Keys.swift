import Foundation

/// The keys of what is stored. Of each URL there is a selector, which says which fields of a request select among its responses, and a
/// number that is in the keys of all of these: without the selector, none of them is found any more.
struct Keys: Sendable {
    let prefix: String

    func selector(_ url: String) -> String { "\(prefix)s \(url)" }

    func response(_ selector: Selector, to request: [String?]) -> String {
        // Lengths, so that no two selections are one key.
        let selection = request.map { $0.map { "\($0.utf8.count):\($0)" } ?? "-" }.joined()
        return "\(prefix)r \(String(selector.generation, radix: 36)) \(selection)"
    }

    func chunk(_ body: UInt64, _ index: Int) -> String { "\(prefix)b \(String(body, radix: 36)) \(index)" }

    /// A URL as servers see it: without its fragment, the port if it is the scheme's, and differences that mean nothing.
    static func normalised(_ url: String) -> String {
        guard var parts = URLComponents(string: url), let scheme = parts.scheme?.lowercased() else { return url }
        parts.scheme = scheme
        parts.host = parts.host?.lowercased()
        parts.fragment = nil
        if parts.port == ["http": 80, "https": 443][scheme] { parts.port = nil }
        if parts.path.isEmpty { parts.path = "/" }
        return parts.string ?? url
    }

    /// What a reference in the response of a URL names, where that is of the same origin.
    static func sameOrigin(_ reference: String, as url: String) -> String? {
        guard let base = URL(string: url), let target = URL(string: reference, relativeTo: base)?.absoluteURL,
            target.scheme?.lowercased() == base.scheme?.lowercased(),
            target.host?.lowercased() == base.host?.lowercased()
        else { return nil }
        let normal = normalised(target.absoluteString)
        return URLComponents(string: normal)?.port == URLComponents(string: normalised(url))?.port ? normal : nil
    }
}

/// Which fields of a request select among the responses of a URL.
struct Selector: Equatable {
    let generation: UInt64
    let vary: Vary
}
