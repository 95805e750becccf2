#if HTTP
import NIOHTTP1

/// The directives of a message's Cache-Control (RFC 9111, 5.2) that the cache knows. What cannot be parsed has its
/// strictest meaning: it restricts as if it were well-formed and without arguments, and permits nothing.
struct CacheControl: Equatable, Sendable {
    enum Directive: String {
        case maxAge = "max-age"
        case maxStale = "max-stale"
        case minFresh = "min-fresh"
        case mustRevalidate = "must-revalidate"
        case mustUnderstand = "must-understand"
        case noCache = "no-cache"
        case noStore = "no-store"
        case onlyIfCached = "only-if-cached"
        case `private`
        case proxyRevalidate = "proxy-revalidate"
        case `public`
        case sMaxAge = "s-maxage"
        case staleIfError = "stale-if-error"
        case staleWhileRevalidate = "stale-while-revalidate"

        fileprivate static let longest = "stale-while-revalidate".utf8.count
    }

    private struct Value: Equatable {
        var isMalformed = false
        /// Of a repeated directive, the first number counts. Nil if there is none.
        var milliseconds: Int64?
        /// Field names in lower case, of all repetitions.
        var fields: [String] = []
        /// Whether it is present without field names.
        var isUnqualified = false

        mutating func restrictAll() {
            isMalformed = true
            isUnqualified = true
        }
    }

    private var values: [Directive: Value] = [:]
    private var count = 0

    init(_ headers: HTTPHeaders) {
        for line in headers["Cache-Control"] where count <= Limits.directives { read(line) }
        guard count > Limits.directives else { return }
        // The rest is not read.
        for directive in values.keys { values[directive]!.restrictAll() }
        values[.noStore, default: Value()].restrictAll()
    }

    /// Whether the directive is present, in whatever form: for those that restrict the cache.
    func has(_ directive: Directive) -> Bool { values[directive] != nil }

    /// Whether the directive is present and well-formed: for those that permit something.
    func permits(_ directive: Directive) -> Bool { values[directive]?.isMalformed == false }

    /// Whether the directive is present without field names: it then applies to the whole response.
    func hasUnqualified(_ directive: Directive) -> Bool { values[directive]?.isUnqualified == true }

    /// The field names that a directive is limited to, in lower case.
    func fields(_ directive: Directive) -> [String] { values[directive]?.fields ?? [] }

    /// In milliseconds; nil if the directive is absent. A malformed number is 0: it permits nothing.
    func duration(_ directive: Directive, ifMalformed: Int64 = 0) -> Int64? {
        values[directive].map { $0.isMalformed ? ifMalformed : $0.milliseconds ?? ifMalformed }
    }

    /// The same for a directive whose number is optional: without one, `DeltaSeconds.largest`.
    func durationOrForever(_ directive: Directive) -> Int64? {
        values[directive].map { $0.isMalformed ? 0 : $0.milliseconds ?? DeltaSeconds.largest }
    }

    // MARK: Parsing

    /// A member of the list is `name`, `name=token` or `name="string"`. In any other, all names count as directives and
    /// are malformed. After a quotation mark that is not closed it is uncertain what is a member: the rest of the line
    /// is malformed.
    private mutating func read(_ line: String) {
        var scanner = FieldScanner(line), inMember: [Directive] = [], names = 0
        var isMalformed = false, isUncertain = false
        func endMember(_ values: inout [Directive: Value]) {
            if isMalformed || names > 1 {
                for directive in inMember { values[directive]!.restrictAll() }
            }
            inMember = []
            names = 0
            isMalformed = isUncertain
        }
        while let byte = scanner.next {
            if byte == UInt8(ascii: ",") {
                endMember(&values)
                scanner.skip()
                continue
            }
            if FieldScanner.isSpace(byte) {
                scanner.skip()
                continue
            }
            let name = scanner.token()
            if name.isEmpty {
                isMalformed = true
                if scanner.string() == nil {
                    isUncertain = isUncertain || byte == UInt8(ascii: "\"")
                    scanner.skip()
                }
                continue
            }
            names += 1
            count += 1
            if count > Limits.directives { break }
            var argument: String?
            if scanner.skip(UInt8(ascii: "=")) {
                argument = scanner.string() ?? String(decoding: scanner.token(), as: UTF8.self)
            }
            guard name.count <= Directive.longest,
                let directive = Directive(rawValue: String(decoding: name, as: UTF8.self).lowercased())
            else { continue }
            inMember.append(directive)
            add(directive, argument)
        }
        endMember(&values)
    }

    private mutating func add(_ directive: Directive, _ argument: String?) {
        var value = values[directive] ?? Value()
        switch directive {
        case .noCache, .private:
            let names = argument.map { FieldList.names([$0], limit: max(0, Limits.directives - count)) }
            if let names = names ?? nil, !names.isEmpty {
                count += names.count
                value.fields += names
            } else {
                value.isUnqualified = true
                value.isMalformed = value.isMalformed || argument != nil
            }
        case .maxAge, .maxStale, .minFresh, .sMaxAge, .staleIfError, .staleWhileRevalidate:
            value.isUnqualified = true
            if let number = argument.flatMap({ DeltaSeconds.parse($0) }) {
                value.milliseconds = value.milliseconds ?? number
            } else if argument != nil || directive != .maxStale {
                value.isMalformed = true
            }
        default:
            value.isUnqualified = true
            value.isMalformed = value.isMalformed || argument != nil
        }
        values[directive] = value
    }
}

/// Whole seconds (RFC 9111, 1.2.2), in milliseconds.
enum DeltaSeconds {
    /// Larger values are clamped to this.
    static let largest: Int64 = 1000 << 31

    static func parse(_ text: some StringProtocol) -> Int64? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        return Int64(text).map { min($0, largest / 1000) * 1000 } ?? largest
    }
}
#endif
