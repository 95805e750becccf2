#if HTTP
/// List-valued fields (RFC 9110, 5.6.1), on one line or several.
struct FieldList {
    /// The members, without surrounding space and without empty ones. A comma inside a quoted string is no separator.
    private(set) var members: [String] = []
    /// Whether all quotation marks are closed.
    private(set) var isWellFormed = true

    init(_ lines: [String]) {
        for line in lines { read(line) }
    }

    private mutating func read(_ line: String) {
        var scanner = FieldScanner(line), start = 0
        while let byte = scanner.next {
            if byte == UInt8(ascii: ",") {
                add(scanner.trimmed(from: start))
                scanner.skip()
                start = scanner.position
            } else if scanner.string() == nil {
                if byte == UInt8(ascii: "\"") { isWellFormed = false }
                scanner.skip()
            }
        }
        add(scanner.trimmed(from: start))
    }

    private mutating func add(_ member: ArraySlice<UInt8>) {
        if !member.isEmpty { members.append(String(decoding: member, as: UTF8.self)) }
    }

    /// The names in a list of field names, in lower case. Nil if the list has other members, or more than `limit`.
    static func names(_ lines: [String], limit: Int) -> [String]? {
        var names: [String] = []
        for line in lines {
            var scanner = FieldScanner(line), isMember = true
            while let byte = scanner.next {
                if FieldScanner.isSpace(byte) {
                    scanner.skip()
                } else if byte == UInt8(ascii: ",") {
                    scanner.skip()
                    isMember = true
                } else {
                    let name = scanner.token()
                    guard isMember, !name.isEmpty, names.count < limit else { return nil }
                    names.append(String(decoding: name, as: UTF8.self).lowercased())
                    isMember = false
                }
            }
        }
        return names
    }

    /// All tokens, in lower case, whatever is between them: a name counts even if the list is malformed.
    static func tokens(_ lines: [String]) -> [String] {
        var tokens: [String] = []
        for line in lines {
            var scanner = FieldScanner(line)
            while scanner.next != nil {
                let token = scanner.token()
                if token.isEmpty { scanner.skip() } else { tokens.append(String(decoding: token, as: UTF8.self)) }
            }
        }
        return tokens.map { $0.lowercased() }
    }
}

/// Reads a line of a field from left to right, in time linear in its length.
struct FieldScanner {
    private let bytes: [UInt8]
    private(set) var position = 0
    /// Whether a quotation mark was found that is not closed. The end of the line was then reached in search of its
    /// end, so any later mark was seen as escaped, and is not closed either: there is nothing to search for again.
    private var hasUnclosedString = false

    init(_ line: String) { bytes = Array(line.utf8) }

    /// The next byte.
    var next: UInt8? {
        Steps.add(1)
        return position < bytes.count ? bytes[position] : nil
    }

    mutating func skip() { position += 1 }

    /// Nil if another byte is next.
    mutating func skip(_ byte: UInt8) -> Bool {
        guard next == byte else { return false }
        position += 1
        return true
    }

    /// Possibly empty.
    mutating func token() -> ArraySlice<UInt8> {
        let start = position
        while let byte = next, Self.isToken(byte) { position += 1 }
        return bytes[start..<position]
    }

    /// The content of the quoted string that is next. Nil if there is none: a quotation mark without a closing one does
    /// not begin a string, since the text after it could be `no-store`.
    mutating func string() -> String? {
        guard !hasUnclosedString, next == UInt8(ascii: "\"") else { return nil }
        let start = position
        var content: [UInt8] = []
        position += 1
        while let byte = next {
            position += 1
            if byte == UInt8(ascii: "\"") { return String(decoding: content, as: UTF8.self) }
            if byte == UInt8(ascii: "\\"), let escaped = next {
                position += 1
                content.append(escaped)
            } else {
                content.append(byte)
            }
        }
        hasUnclosedString = true
        position = start
        return nil
    }

    /// What has been read since `start`, without the space around it.
    func trimmed(from start: Int) -> ArraySlice<UInt8> {
        var part = bytes[start..<position]
        while let first = part.first, Self.isSpace(first) { part.removeFirst() }
        while let last = part.last, Self.isSpace(last) { part.removeLast() }
        return part
    }

    static func isSpace(_ byte: UInt8) -> Bool { byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }

    /// RFC 9110, 5.6.2.
    private static func isToken(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "^")...UInt8(ascii: "z"), UInt8(ascii: "#")...UInt8(ascii: "'"), UInt8(ascii: "!"),
            UInt8(ascii: "*"), UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "|"),
            UInt8(ascii: "~"):
            true
        default: false
        }
    }
}
#endif
