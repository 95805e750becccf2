import ArgumentParser
import FoundationEssentials
import Glibc
import ShaleCore

/// One entry as a line of JSON. Bytes that are UTF-8 are text; others are base64, under a name that ends with 64.
private struct Line: Codable {
    var key: String?
    var key64: Data?
    var value: String?
    var value64: Data?
    var meta: String?
    var meta64: Data?
    /// Milliseconds since 1970; without: never.
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

    /// Nil where there is neither, or both.
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
        abstract: "Writes the entries as lines of JSON.",
        discussion: """
            Each line has "key" and "value" ("key64" and "value64", in base64, where the bytes are no UTF-8), and where \
            they apply "meta" or "meta64", "expires" in milliseconds since 1970, and "pinned". Stale entries, tags and \
            stale periods are left out: of tags a cache has hashes alone. The cache may be in use meanwhile.
            """)

    @OptionGroup var path: CachePath
    @Option(
        name: .shortAndLong, help: "A file to write, which replaces one of that name when it is complete.",
        completion: .file())
    var output: String?

    func run() throws {
        let store = try path.openToRead()
        guard let output else {
            try write(store, to: .shared)
            return
        }
        let unfinished = output + ".unfinished"
        let descriptor = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        if descriptor < 0 { throw ToolFailure("cannot make \(unfinished)") }
        defer { close(descriptor) }
        do {
            let file = Output(descriptor: descriptor, name: unfinished)
            try write(store, to: file)
            try file.flush()
            if rename(unfinished, output) != 0 { throw ToolFailure("cannot rename \(unfinished) to \(output)") }
        } catch {
            unlink(unfinished)
            throw error
        }
    }

    private func write(_ store: Store, to output: Output) throws {
        let total = Int(clamping: try store.statistics().entries)
        var count = 0
        try walk(store, includingStale: false) { key, entry, value in
            try output.json(Line(key, entry, value), pretty: false)
            count += 1
            Terminal.progress(count, of: total, "exporting")
            return true
        }
        Terminal.endProgress()
        if output !== Output.shared { Terminal.say("\(grouped(count)) entries exported") }
    }
}

struct Import: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Stores entries from lines of JSON, as 'shale export' writes them.",
        discussion: """
            What has expired since is left out. At a line that cannot be read, or an entry that cannot be stored, the \
            import ends; what came before stays.
            """)

    @OptionGroup var path: CachePath
    @Argument(help: "The file (default: standard input).", completion: .file())
    var file: String?
    @Flag(help: "Leave entries that are there as they are.")
    var ifAbsent = false
    @Option(name: .customLong("tag"), help: "A tag for all of them; up to 8.")
    var tags: [String] = []
    @Option(help: "How long each is kept past its age (default: the cache's).")
    var staleFor: AgeArgument?
    @OptionGroup var creation: Creation

    func run() throws {
        let descriptor = file.map { open($0, O_RDONLY | O_CLOEXEC) } ?? STDIN_FILENO
        // Before a cache is made.
        if descriptor < 0 { throw ToolFailure("cannot open \(file ?? "")") }
        var status = stat()
        fstat(descriptor, &status)
        let store = try creation.open(path)
        let name = file ?? "standard input", decoder = JSONDecoder()
        var number = 0, stored = 0, expired = 0, present = 0, done = 0
        try Input(descriptor: descriptor, name: name).forEachLine { bytes in
            number += 1
            done += bytes.count + 1
            if status.st_mode & S_IFMT == S_IFREG {
                Terminal.progress(done, of: Int(status.st_size), "importing, bytes")
            }
            if bytes.allSatisfy({ $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\r") }) { return }
            guard let line = try? decoder.decode(Line.self, from: Data(bytes)),
                let key = Line.read(line.key, line.key64), let value = Line.read(line.value, line.value64)
            else {
                throw ToolFailure(
                    .badData,
                    "\(name), line \(number): no entry; an object with key or key64, and value or value64, is wanted "
                        + "(\(grouped(stored)) stored before it)")
            }
            let left = line.expires.map { $0 - store.now }
            if let left, left <= 0 {
                expired += 1
                return
            }
            do {
                let version = try store.set(
                    value, for: key, maxAge: left.map { .milliseconds(Int($0)) } ?? .forever, stale: staleFor?.lifetime,
                    tags: tags, meta: Line.read(line.meta, line.meta64) ?? [],
                    condition: ifAbsent ? .ifAbsent : .always, pinned: line.pinned ?? false)
                if version == nil { present += 1 } else { stored += 1 }
            } catch let error as ShaleError {
                let failure = ToolFailure(error)
                throw ToolFailure(
                    failure.status, "\(name), line \(number): \(error.message) (\(grouped(stored)) stored before it)")
            }
        }
        try store.close()
        Terminal.endProgress()
        var parts = ["\(grouped(stored)) entries stored"]
        if expired > 0 { parts.append("\(grouped(expired)) had expired") }
        if present > 0 { parts.append("\(grouped(present)) were there already") }
        Terminal.say(parts.joined(separator: ", "))
    }
}
