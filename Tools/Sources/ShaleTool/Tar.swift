/// Entries as members of a tar archive, in the pax format (POSIX.1-2001).
///
/// A member's name is the key, or an encoding of it if no file can have that name. The entry's metadata is in extended
/// attributes, in the form that GNU tar and libarchive use: `tar --xattrs` keeps them when it extracts and creates
/// archives.
enum Tar {
    static let blockSize = 512
    /// The prefix of the attributes `user.shale.key` and so on, whose values are text.
    static let attributes = "SCHILY.xattr.user.shale."

    /// A valid file name in one folder, and whether it equals the key.
    static func name(of key: some Collection<UInt8>) -> (name: String, isKey: Bool) {
        let longest = 200
        var name = ""
        for byte in key {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-"),
                UInt8(ascii: ":"), UInt8(ascii: "="), UInt8(ascii: "@"), UInt8(ascii: ","), UInt8(ascii: "+"):
                name.unicodeScalars.append(UnicodeScalar(byte))
            default:
                name += byte < 16 ? "%0" : "%"
                name += String(byte, radix: 16, uppercase: true)
            }
        }
        // "." and ".." are folders.
        if name == "." || name == ".." { name = "%2E" + name.dropFirst() }
        if name.utf8.count > longest {
            // A prefix, and a hash that distinguishes it from other names with the prefix.
            var hash: UInt64 = 0xCBF2_9CE4_8422_2325
            for byte in key { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
            name = name.prefix(longest) + "~" + String(hash, radix: 16)
        }
        return (name, name.utf8.elementsEqual(key))
    }
}

extension Tar {
    /// The headers of a member. Its bytes and `padding(after:)` have to follow.
    static func headers(
        name: String, size: Int, modified seconds: Int64, attributes: [(name: String, value: String)]
    ) -> [UInt8] {
        var records: [UInt8] = []
        if name.utf8.count > 100 { records += record("path", name) }
        for each in attributes { records += record(Tar.attributes + each.name, each.value) }
        let extended =
            records.isEmpty
            ? []
            : header("PaxHeaders/\(name)", size: records.count, seconds, kind: "x") + records
                + padding(after: records.count)
        return extended + header(name, size: size, seconds, kind: "0")
    }

    static func padding(after size: Int) -> [UInt8] { Array(repeating: 0, count: -size & (blockSize - 1)) }

    static let end = [UInt8](repeating: 0, count: 2 * blockSize)

    private static func header(_ name: String, size: Int, _ seconds: Int64, kind: Character) -> [UInt8] {
        func octal(_ number: Int64, _ digits: Int) -> String {
            let text = String(max(0, number), radix: 8)
            return String(repeating: "0", count: max(0, digits - text.count)) + text
        }
        var block = [UInt8](repeating: 0, count: blockSize)
        func put(_ text: String, at offset: Int) {
            block.replaceSubrange(offset..<offset + text.utf8.count, with: text.utf8)
        }
        put(String(decoding: name.utf8.prefix(100), as: UTF8.self), at: 0)
        put(octal(0o600, 7), at: 100)
        put(octal(0, 7), at: 108)
        put(octal(0, 7), at: 116)
        put(octal(Int64(size), 11), at: 124)
        put(octal(seconds, 11), at: 136)
        put(String(kind), at: 156)
        put("ustar\0" + "00", at: 257)
        // The checksum is computed with spaces in its field.
        put(String(repeating: " ", count: 8), at: 148)
        put(octal(block.reduce(0) { $0 + Int64($1) }, 6) + "\0 ", at: 148)
        return block
    }

    /// "LENGTH KEYWORD=VALUE\n". The length includes its own digits.
    private static func record(_ keyword: String, _ value: String) -> [UInt8] {
        let rest = " \(keyword)=\(value)\n"
        var length = rest.utf8.count + 1
        while "\(length)".utf8.count + rest.utf8.count != length { length += 1 }
        return Array("\(length)\(rest)".utf8)
    }
}

extension Tar {
    /// A file in an archive.
    struct Member {
        let name: [UInt8]
        let attributes: [String: [UInt8]]
        let value: [UInt8]

        /// Without the "./" in front of each name in archives of a folder.
        var plainName: [UInt8] { name.starts(with: "./".utf8) ? Array(name.dropFirst(2)) : name }
    }

    /// Reads archives in the ustar, pax and GNU formats.
    struct Reader {
        private let input: Input
        /// Members that are not files: folders, links.
        private(set) var skipped = 0
        /// Bytes that have been read.
        private(set) var position = 0

        init(_ input: Input) { self.input = input }

        /// Whether the input starts like an archive. Consumes nothing.
        static func isNext(in input: Input) throws -> Bool {
            let block = try input.peek(blockSize)
            guard block.count == blockSize else { return false }
            return block[257..<262].elementsEqual("ustar".utf8) || block.allSatisfy { $0 == 0 }
        }

        /// The next file; nil at the end.
        mutating func next() throws -> Member? {
            var records: [String: [UInt8]] = [:], longName: [UInt8]?
            while true {
                let start = position
                let block = try take(blockSize)
                // Some archives lack the two empty blocks at the end.
                if block.isEmpty && records.isEmpty && longName == nil || block.allSatisfy({ $0 == 0 }) { return nil }
                guard block.count == blockSize, Reader.hasItsSum(block), let given = Reader.number(block[124..<136])
                else {
                    throw failure(at: start, "not a valid member header")
                }
                let size = records["size"].flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? given
                guard (0...1 << 48).contains(size) else { throw failure(at: start, "not a valid member size") }
                switch block[156] {
                case 0, UInt8(ascii: "0"), UInt8(ascii: "7"):
                    let value = try body(size, start)
                    let prefix = block[257..<263].elementsEqual("ustar\0".utf8) ? Reader.text(block[345..<500]) : []
                    let short = (prefix.isEmpty ? [] : prefix + [UInt8(ascii: "/")]) + Reader.text(block[0..<100])
                    let name = records["path"] ?? longName ?? short
                    // A folder in the oldest format.
                    if name.last == UInt8(ascii: "/") { break }
                    let mine = records.filter { $0.key.hasPrefix(Tar.attributes) }
                    return Member(
                        name: name,
                        attributes: Dictionary(
                            uniqueKeysWithValues: mine.map {
                                (String($0.key.dropFirst(Tar.attributes.count)), $0.value)
                            }),
                        value: value)
                case UInt8(ascii: "x"):
                    guard let read = Reader.records(try body(given, start)) else {
                        throw failure(at: start, "not a valid pax header")
                    }
                    records = read
                    continue
                case UInt8(ascii: "L"):
                    longName = Reader.text(try body(given, start)[...])
                    continue
                case UInt8(ascii: "g"), UInt8(ascii: "K"): // global headers, long link targets
                    try skip(given, start)
                    continue
                default: try skip(size, start)
                }
                skipped += 1
                (records, longName) = ([:], nil)
            }
        }

        private mutating func take(_ count: Int) throws -> [UInt8] {
            let bytes = try input.read(upTo: count)
            position += bytes.count
            return bytes
        }

        private mutating func body(_ size: Int, _ start: Int) throws -> [UInt8] {
            let bytes = try take(size)
            let padding = try take(-size & (blockSize - 1))
            if bytes.count < size || padding.count < -size & (blockSize - 1) {
                throw failure(at: start, "the archive ends early")
            }
            return bytes
        }

        private mutating func skip(_ size: Int, _ start: Int) throws {
            var left = (size + blockSize - 1) & -blockSize
            while left > 0 {
                let piece = try take(min(left, 1 << 18))
                if piece.isEmpty { throw failure(at: start, "the archive ends early") }
                left -= piece.count
            }
        }

        private func failure(at position: Int, _ what: String) -> ToolFailure {
            ToolFailure(.badData, "\(input.name): byte \(grouped(position)): \(what)")
        }

        private static func hasItsSum(_ block: [UInt8]) -> Bool {
            let sum = block.enumerated().reduce(0) { $0 + ((148..<156).contains($1.offset) ? 32 : Int($1.element)) }
            return number(block[148..<156]) == sum
        }

        /// Octal digits, or GNU tar's form for larger numbers: a binary number after a set bit.
        private static func number(_ field: ArraySlice<UInt8>) -> Int? {
            guard let first = field.first else { return nil }
            if first & 0x80 != 0 {
                let bytes = [first & 0x7F] + field.dropFirst()
                guard bytes.dropLast(7).allSatisfy({ $0 == 0 }) else { return nil }
                return bytes.suffix(7).reduce(0) { $0 << 8 | Int($1) }
            }
            let digits = field.filter { $0 != 0 && $0 != UInt8(ascii: " ") }
            return digits.isEmpty ? 0 : Int(String(decoding: digits, as: UTF8.self), radix: 8)
        }

        private static func text(_ field: ArraySlice<UInt8>) -> [UInt8] { Array(field.prefix { $0 != 0 }) }

        private static func records(_ bytes: [UInt8]) -> [String: [UInt8]]? {
            var found: [String: [UInt8]] = [:], rest = bytes[...]
            while !rest.isEmpty {
                guard let space = rest.firstIndex(of: UInt8(ascii: " ")),
                    let length = Int(String(decoding: rest[..<space], as: UTF8.self)),
                    length > space - rest.startIndex + 2, length <= rest.count,
                    case let record = rest.prefix(length), record.last == UInt8(ascii: "\n"),
                    let equals = record[space...].firstIndex(of: UInt8(ascii: "="))
                else { return nil }
                let keyword = String(decoding: record[(space + 1)..<equals], as: UTF8.self)
                found[keyword] = Array(record[(equals + 1)...].dropLast())
                rest = rest.dropFirst(length)
            }
            return found
        }
    }
}
