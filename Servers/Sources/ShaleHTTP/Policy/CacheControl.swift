import NIOHTTP1

/// The directives of a message's Cache-Control (RFC 9111, 5.2).
struct CacheControl {
    /// By name, in lower case. Of a directive that comes twice, the first counts.
    private var arguments: [String: String?] = [:]

    init(_ headers: HTTPHeaders) {
        for member in FieldList.members(headers["Cache-Control"]) {
            let parts = member.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = parts[0].lowercased()
            // With space before `=` it is malformed; a number like that is 0, which is safe.
            let token = name.last == " " || name.last == "\t" ? String(name.prefix { $0 != " " && $0 != "\t" }) : name
            if arguments[token] == nil { arguments[token] = .some(parts.count > 1 ? String(parts[1]) : nil) }
            if token != name { arguments[token] = .some("malformed") }
        }
    }

    func has(_ name: String) -> Bool { arguments[name] != nil }

    /// Whether it is there without names of fields: then it is about the whole response.
    func hasUnqualified(_ name: String) -> Bool { has(name) && fields(name).isEmpty }

    /// The fields that a directive is limited to, in lower case.
    func fields(_ name: String) -> [String] {
        guard let argument = arguments[name] ?? nil else { return [] }
        return FieldList.members([FieldList.unquoted(argument).lowercased()])
    }

    /// Milliseconds; nil where the directive is absent. What is no number is 0, so that nothing counts as fresh by mistake.
    func duration(_ name: String) -> Int64? {
        arguments[name].map { argument in DeltaSeconds.parse(FieldList.unquoted(argument ?? "")) ?? 0 }
    }

    /// The same, of a directive that may stand without a number: then it is without end.
    func durationOrForever(_ name: String) -> Int64? {
        arguments[name].map { argument in
            argument.map { DeltaSeconds.parse(FieldList.unquoted($0)) ?? 0 } ?? DeltaSeconds.largest
        }
    }
}

/// Whole seconds (RFC 9111, 1.2.2), as milliseconds.
enum DeltaSeconds {
    /// What is larger counts as this.
    static let largest: Int64 = 1000 << 31

    static func parse(_ text: some StringProtocol) -> Int64? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        return Int64(text).map { min($0, largest / 1000) * 1000 } ?? largest
    }
}
