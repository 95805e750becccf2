#if HTTP
import NIOHTTP1

/// The request fields that select among the responses of a URL (RFC 9111, 4.1).
struct Vary: Equatable, Sendable {
    /// In lower case, sorted.
    let names: [String]

    init(names: [String]) { self.names = names }

    /// Nil for `*`, which no request matches, and for what cannot be parsed.
    init?(_ response: HTTPHeaders) {
        guard let names = FieldList.names(response["Vary"], limit: Limits.varyNames), !names.contains("*")
        else { return nil }
        self.names = Set(names).sorted()
    }

    /// The values of these fields in a request, with lines joined and without space around commas. Nil for an absent
    /// field.
    func selection(from request: HTTPHeaders) -> [String?] {
        names.map { name in
            let lines = request[name]
            if lines.isEmpty { return nil }
            let list = FieldList(lines)
            return (list.isWellFormed ? list.members : lines).joined(separator: ",")
        }
    }
}
#endif
