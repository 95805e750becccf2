import NIOHTTP1

/// Which of a request's fields select among the responses of one URL (RFC 9111, 4.1).
struct Vary: Equatable {
    /// In lower case, sorted.
    let names: [String]

    init(names: [String]) { self.names = names }

    /// Nil: `*`, which no request matches.
    init?(_ response: HTTPHeaders) {
        let names = Set(FieldList.members(response["Vary"]).map { $0.lowercased() })
        if names.contains("*") { return nil }
        self.names = names.sorted()
    }

    /// What a request says in those fields: its lines joined, without the space around commas. Absent is not empty.
    func selection(from request: HTTPHeaders) -> [String?] {
        names.map { name in
            request.contains(name: name) ? FieldList.members(request[name]).joined(separator: ",") : nil
        }
    }
}
