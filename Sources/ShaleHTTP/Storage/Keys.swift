#if HTTP
import Foundation
import NIOHTTP1

/// The keys of stored entries. Each URL has a selector: the sets of request fields that select among its responses, and
/// a generation number that is part of the keys of these responses. Removing the selector makes all of them unreachable.
struct Keys: Sendable {
    let prefix: String

    func selector(_ url: String) -> String { "\(prefix)s \(url)" }

    func response(_ generation: UInt64, _ vary: Vary, to request: HTTPHeaders) -> String {
        // With lengths, so that different selections have different keys.
        let selection = vary.selection(from: request).map { $0.map { "\($0.utf8.count):\($0)" } ?? "-" }.joined()
        return "\(prefix)r \(String(generation, radix: 36)) \(vary.names.joined(separator: ",")) \(selection)"
    }

    func chunk(_ body: UInt64, _ index: Int) -> String { "\(prefix)b \(String(body, radix: 36)) \(index)" }

    /// What a request's Host adds to the URL in keys: nothing if it names the URL's own host.
    static func otherHost(_ headers: HTTPHeaders, _ url: String) -> String {
        guard headers.contains(name: "Host") else { return "" }
        let host = headers["Host"].joined(separator: ",").lowercased(), parts = URLComponents(string: normalised(url))
        guard let parts, let own = parts.host, let scheme = parts.scheme else { return "\n\(host)" }
        let port = parts.port ?? defaultPorts[scheme] ?? 0
        return host == "\(own):\(port)" || (parts.port == nil && host == own) ? "" : "\n\(host)"
    }

    private static let defaultPorts = ["http": 80, "https": 443]

    /// A URL without its fragment and its scheme's default port, with scheme and host in lower case and a non-empty
    /// path. The host of other schemes can be a path.
    static func normalised(_ url: String) -> String {
        guard var parts = URLComponents(string: url), let scheme = parts.scheme?.lowercased(),
            let port = defaultPorts[scheme]
        else { return url }
        parts.scheme = scheme
        parts.host = parts.host?.lowercased()
        parts.fragment = nil
        if parts.port == port { parts.port = nil }
        if parts.path.isEmpty { parts.path = "/" }
        return parts.string ?? url
    }

    /// The URL to which a reference in the response of `url` resolves; nil if its origin differs.
    static func sameOrigin(_ reference: String, as url: String) -> String? {
        guard let base = URL(string: url), let target = URL(string: reference, relativeTo: base)?.absoluteURL,
            target.scheme?.lowercased() == base.scheme?.lowercased(),
            target.host?.lowercased() == base.host?.lowercased()
        else { return nil }
        let normal = normalised(target.absoluteString)
        return URLComponents(string: normal)?.port == URLComponents(string: normalised(url))?.port ? normal : nil
    }
}

/// The entry of a URL; see `Keys`.
struct Selector: Equatable {
    let generation: UInt64
    /// The last that were stored.
    private(set) var varies: [Vary]

    init(generation: UInt64, varies: [Vary]) {
        self.generation = generation
        self.varies = varies
    }

    /// Responses to other sets stay reachable.
    mutating func add(_ vary: Vary) { varies = varies.suffix(Limits.varySets - 1) + [vary] }

    /// Requests with the same values of these fields are answered alike.
    var union: Vary { Vary(names: Set(varies.flatMap(\.names)).sorted()) }
}
#endif
