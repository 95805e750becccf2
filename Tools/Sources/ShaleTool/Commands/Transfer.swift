import ArgumentParser
import FoundationEssentials
import Glibc
import ShaleCore

/// One entry as a line of JSON. UTF-8 bytes are text; other bytes are base64, under a name that ends with 64.
private struct Line: Codable {
    var key: String?
    var key64: Data?
    var value: String?
    var value64: Data?
    var meta: String?
    var meta64: Data?
    /// Milliseconds since 1970; nil: never.
    var expires: Int64?
    var pinned: Bool?

    init(_ key: UnsafeRawBufferPointer, _ entry: Store.Entry, _ value: UnsafeRawBufferPointer) {
        (self.key, key64) = Line.written(key)
        (self.value, value64) = Line.written(value)
        if !entry.meta.isEmpty { (meta, meta64) = entry.meta.withUnsafeBytes { Line.written($0) } }
        expires = entry.expiresAt
        if entry.isPinned { pinned = true }
    }

    private static func written(_ bytes: UnsafeRawBufferPointer) -> (String?, Data?) {
        if let text = String(validating: bytes, as: UTF8.self) { return (text, nil) }
        return (nil, Data(bytes))
    }

    /// Nil if there is neither or both.
    static func read(_ text: String?, _ base64: Data?) -> [UInt8]? {
        switch (text, base64) {
        case (let text?, nil): Array(text.utf8)
        case (nil, let data?): Array(data)
        default: nil
        }
    }
}

struct Export: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Writes the entries as lines of JSON, or as a tar archive.",
        discussion: """
            Each line has "key" and "value" ("key64" and "value64", in base64, if the bytes are not UTF-8) and, if \
            they apply, "meta" or "meta64", "expires" in milliseconds since 1970, and "pinned".

            In a tar archive each entry is a file named like its key, with the entry's time. If the key is not a plain \
            file name, bytes in the name are %NN, and the extended attribute user.shale.key has the key. If they \
            apply, there are also user.shale.meta, user.shale.expires and user.shale.pinned. Key and meta are in the \
            form in which this tool shows bytes. 'tar --xattrs' keeps the attributes.

            Stale entries, tags and stale periods are not exported; a cache has only hashes of tags. The cache may be \
            in use during the export.
            """)

    @OptionGroup var path: CachePath
    @Flag(help: "A tar archive.")
    var tar = false
    @Option(
        name: .shortAndLong, help: "The file to write; it replaces an existing one when it is complete.",
        completion: .file())
    var output: String?

    func run() throws {
        let store = try path.openToRead()
        try withOutput(output) { try write(store, to: $0) }
    }

    private func write(_ store: Store, to output: Output) throws {
        let total = Int(clamping: try store.statistics().entries)
        var count = 0
        try walk(store, includingStale: false) { key, entry, value in
            if tar {
                try output.write(header(key, entry))
                try output.write(value)
                try output.write(Tar.padding(after: value.count))
            } else {
                try output.json(Line(key, entry, value), pretty: false)
            }
            count += 1
            Terminal.progress(count, of: total, "exporting")
            return true
        }
        if tar { try output.write(Tar.end) }
        Terminal.endProgress()
        if output !== Output.shared { Terminal.say("\(grouped(count)) entries exported") }
    }

    private func header(_ key: UnsafeRawBufferPointer, _ entry: Store.Entry) -> [UInt8] {
        let (name, isKey) = Tar.name(of: key)
        var attributes: [(String, String)] = []
        if !isKey { attributes.append(("key", Bytes.text(key))) }
        if !entry.meta.isEmpty { attributes.append(("meta", Bytes.text(entry.meta))) }
        if let expires = entry.expiresAt { attributes.append(("expires", "\(expires)")) }
        if entry.isPinned { attributes.append(("pinned", "1")) }
        return Tar.headers(name: name, size: entry.size, modified: entry.createdAt / 1000, attributes: attributes)
    }
}

struct Import: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Stores entries from lines of JSON or a tar archive, in the format of 'shale export'.",
        discussion: """
            Skips expired entries. Ends at the first line or member that cannot be read, or entry that cannot be \
            stored; the entries before it stay. Reads any uncompressed tar archive: a file's name is its key, unless \
            it has the attribute user.shale.key.
            """)

    @OptionGroup var path: CachePath
    @Argument(help: "The file (default: standard input).", completion: .file())
    var file: String?
    @Flag(help: "Do not replace existing entries.")
    var ifAbsent = false
    @Option(name: .customLong("tag"), help: "A tag for all entries; up to 8.")
    var tags: [String] = []
    @Option(help: "How long entries are kept once they are stale (default: the cache's).")
    var staleFor: AgeArgument?
    @OptionGroup var creation: Creation

    func run() throws {
        let descriptor = file.map { open($0, O_RDONLY | O_CLOEXEC) } ?? STDIN_FILENO
        // Before creating a cache.
        if descriptor < 0 { throw ToolFailure("cannot open \(file ?? "")") }
        var status = stat()
        fstat(descriptor, &status)
        let input = Input(descriptor: descriptor, name: file ?? "standard input")
        let isTar = try Tar.Reader.isNext(in: input)
        var work = Work(
            command: self, store: try creation.open(path), name: input.name,
            size: status.st_mode & S_IFMT == S_IFREG ? Int(status.st_size) : nil)
        try isTar ? work.storeMembers(of: input) : work.storeLines(of: input)
        try work.store.close()
        Terminal.endProgress()
        Terminal.say(work.summary)
    }

    /// An import and its counts.
    private struct Work {
        let command: Import
        let store: Store
        let name: String
        /// The size of the input in bytes, if known.
        let size: Int?
        var stored = 0, expired = 0, present = 0, skipped = 0

        mutating func storeLines(of input: Input) throws {
            let decoder = JSONDecoder()
            var number = 0, done = 0
            try input.forEachLine { bytes in
                number += 1
                done += bytes.count + 1
                progress(done)
                if bytes.allSatisfy({ $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\r") }) { return }
                let place = "line \(number)"
                guard let line = try? decoder.decode(Line.self, from: Data(bytes)),
                    let key = Line.read(line.key, line.key64), let value = Line.read(line.value, line.value64)
                else {
                    throw failure(
                        place, "not an entry; expected an object with key or key64, and value or value64")
                }
                try set(
                    value, for: key, meta: Line.read(line.meta, line.meta64), expires: line.expires,
                    pinned: line.pinned ?? false, place)
            }
        }

        mutating func storeMembers(of input: Input) throws {
            var reader = Tar.Reader(input)
            while true {
                let member: Tar.Member
                do {
                    guard let next = try reader.next() else { break }
                    member = next
                } catch let error as ToolFailure {
                    throw ToolFailure(error.status, "\(error.message ?? "") (\(grouped(stored)) entries stored before)")
                }
                progress(reader.position)
                let place = Bytes.text(member.name)
                func text(_ attribute: String) -> String? {
                    member.attributes[attribute].map { String(decoding: $0, as: UTF8.self) }
                }
                func bytes(_ attribute: String) throws -> [UInt8]? {
                    guard let text = text(attribute) else { return nil }
                    guard let bytes = Bytes(argument: text) else {
                        throw failure(place, "user.shale.\(attribute) is '\(text)'; \\ must precede \\ or xNN")
                    }
                    return bytes.bytes
                }
                let expires = text("expires")
                if let expires, Int64(expires) == nil {
                    throw failure(place, "user.shale.expires is '\(expires)', not a number of milliseconds")
                }
                try set(
                    member.value, for: bytes("key") ?? member.plainName, meta: bytes("meta"),
                    expires: expires.flatMap { Int64($0) }, pinned: text("pinned") == "1", place)
            }
            skipped = reader.skipped
        }

        private mutating func set(
            _ value: [UInt8], for key: [UInt8], meta: [UInt8]?, expires: Int64?, pinned: Bool, _ place: String
        ) throws {
            let left = expires.map { $0.subtractingReportingOverflow(store.now).partialValue }
            if let expires, expires <= store.now {
                expired += 1
                return
            }
            do {
                let version = try store.insert(
                    value, for: key, maxAge: left.map { .milliseconds(Int($0)) } ?? .forever,
                    staleFor: command.staleFor?.age, tags: command.tags, meta: meta ?? [],
                    condition: command.ifAbsent ? .ifAbsent : .always, pinned: pinned)
                if version == nil { present += 1 } else { stored += 1 }
            } catch {
                throw failure(place, error.message, ToolFailure(error).status)
            }
        }

        private func failure(_ place: String, _ what: String, _ status: ExitStatus = .badData) -> ToolFailure {
            ToolFailure(status, "\(name): \(place): \(what) (\(grouped(stored)) entries stored before)")
        }

        private func progress(_ done: Int) {
            if let size { Terminal.progress(done, of: size, "importing, bytes") }
        }

        var summary: String {
            var parts = ["\(grouped(stored)) entries stored"]
            if expired > 0 { parts.append("\(grouped(expired)) had expired") }
            if present > 0 { parts.append("\(grouped(present)) already existed") }
            if skipped > 0 { parts.append("\(grouped(skipped)) members are not files") }
            return parts.joined(separator: ", ")
        }
    }
}
