/// Values that are lists (RFC 9110, 5.6.1), on one line or on many.
enum FieldList {
    /// The members, without the space around them and without empty ones. A comma in a quoted string separates nothing. A quotation
    /// mark that nothing closes is no beginning of a string: what comes after it could be `no-store`.
    static func members(_ lines: [String]) -> [String] { lines.flatMap(members(ofLine:)) }

    private static func members(ofLine line: String) -> [String] {
        let bytes = Array(line.utf8)
        var members: [String] = [], start = 0, at = 0
        func add(_ end: Int) {
            let member = trimmed(bytes[start..<end])
            if !member.isEmpty { members.append(String(decoding: member, as: UTF8.self)) }
        }
        while at < bytes.count {
            if bytes[at] == UInt8(ascii: "\""), let end = endOfString(bytes, at) {
                at = end
            } else if bytes[at] == UInt8(ascii: ",") {
                add(at)
                start = at + 1
            }
            at += 1
        }
        add(bytes.count)
        return members
    }

    /// What a quoted string says; anything else as it is.
    static func unquoted(_ text: some StringProtocol) -> String {
        let bytes = Array(text.utf8)
        guard bytes.first == UInt8(ascii: "\""), endOfString(bytes, 0) == bytes.count - 1 else { return String(text) }
        var result: [UInt8] = [], at = 1
        while at < bytes.count - 1 {
            if bytes[at] == UInt8(ascii: "\\") { at += 1 }
            result.append(bytes[at])
            at += 1
        }
        return String(decoding: result, as: UTF8.self)
    }

    private static func endOfString(_ bytes: [UInt8], _ start: Int) -> Int? {
        var at = start + 1
        while at < bytes.count {
            if bytes[at] == UInt8(ascii: "\"") { return at }
            at += bytes[at] == UInt8(ascii: "\\") ? 2 : 1
        }
        return nil
    }

    private static func trimmed(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        func isSpace(_ byte: UInt8) -> Bool { byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
        guard let first = bytes.firstIndex(where: { !isSpace($0) }), let last = bytes.lastIndex(where: { !isSpace($0) })
        else { return [] }
        return bytes[first...last]
    }
}
