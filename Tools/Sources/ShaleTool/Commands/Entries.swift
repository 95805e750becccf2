import ArgumentParser
import FoundationEssentials
import Glibc
import ShaleCore

/// One line of `ls --json`, with the same names as `Line`.
private struct Listed: Encodable {
    let key: String
    let size: Int, stored: Int
    let created: Int64
    let expires: Int64?
    let version: UInt64
    let stale: Bool, pinned: Bool
}

struct List: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ls", abstract: "Lists the entries, in no particular order.",
        discussion: "Reads the whole cache, and does not change the order of use.")

    @OptionGroup var path: CachePath
    @Option(help: "Only keys with this prefix.")
    var prefix: Bytes?
    @Flag(name: .shortAndLong, help: "Show size, size on disk, age, time left, and flags: S stale, P pinned.")
    var long = false
    @Flag(help: "As JSON, one object per line.")
    var json = false
    @Flag(help: "Also stale entries.")
    var stale = false
    @Option(help: "The maximum number of entries.")
    var limit: Int?

    func validate() throws {
        if let limit, limit < 0 { throw ValidationError("--limit must not be negative") }
    }

    func run() throws {
        let store = try path.openToRead()
        if limit == 0 { return }
        let total = Int(clamping: try store.statistics().entries), now = store.now
        var seen = 0, shown = 0
        try walk(store, includingStale: stale) { key, entry, _ in
            seen += 1
            Terminal.progress(seen, of: total, "listing")
            if let prefix, !key.starts(with: prefix.bytes) { return true }
            shown += 1
            try write(Bytes.text(key), entry, now)
            return shown != limit
        }
        Terminal.endProgress()
    }

    private func write(_ key: String, _ entry: Store.Entry, _ now: Int64) throws {
        if json {
            return try Output.shared.json(
                Listed(
                    key: key, size: entry.size, stored: entry.storedSize, created: entry.createdAt,
                    expires: entry.expiresAt, version: entry.version, stale: entry.isStale, pinned: entry.isPinned),
                pretty: false)
        }
        if !long { return try Output.shared.line(key) }
        let left = entry.expiresAt.map { $0 <= now ? "over" : AgeArgument.text(milliseconds: $0 - now) } ?? "never"
        let columns = [
            grouped(entry.size).right(in: 13), grouped(entry.storedSize).right(in: 13),
            AgeArgument.text(milliseconds: max(0, now - entry.createdAt)).right(in: 8), left.right(in: 8),
            "\(entry.isStale ? "S" : "-")\(entry.isPinned ? "P" : "-")", key,
        ]
        try Output.shared.line(columns.joined(separator: "  "))
    }
}

/// `Store.forEach` with a body that may throw.
func walk(
    _ store: Store, includingStale: Bool,
    _ body: (UnsafeRawBufferPointer, Store.Entry, UnsafeRawBufferPointer) throws -> Bool
) throws {
    var failure: (any Error)?
    try store.forEach(includingStale: includingStale) { key, entry, value in
        do { return try body(key, entry, value) } catch {
            failure = error
            return false
        }
    }
    if let failure { throw failure }
}

struct Get: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Writes a value to standard output, as it was stored.",
        discussion: "Does not change the order of use or the counters.")

    @OptionGroup var path: CachePath
    @Argument(help: "The key.")
    var key: Bytes
    @Flag(help: "Also if it is stale.")
    var stale = false
    @Flag(help: "Show the entry's metadata instead of the value.")
    var info = false

    func run() throws {
        let store = try path.openToRead()
        let found = try store.withValue(for: key.bytes, includingStale: stale, peeking: true) { entry, value in
            Result { info ? try write(entry, store.now) : try Output.shared.write(value) }
        }
        guard let found else { throw ToolFailure(.no, "\(path.cache): no entry '\(Bytes.text(key.bytes))'") }
        try found.get()
    }

    private func write(_ entry: Store.Entry, _ now: Int64) throws {
        let expires = entry.expiresAt.map { moment($0) } ?? "never"
        let rows = [
            ["key", Bytes.text(key.bytes)], ["size", "\(grouped(entry.size)) bytes"],
            ["stored", "\(grouped(entry.storedSize)) bytes (\(percent(entry.storedSize, of: entry.size)))"],
            ["created", moment(entry.createdAt)], ["expires", expires + (entry.isStale ? ", stale" : "")],
            ["version", "\(entry.version)"], ["pinned", entry.isPinned ? "yes" : "no"],
            ["meta", entry.meta.isEmpty ? "-" : Bytes.text(entry.meta)],
        ]
        for line in table(rows) { try Output.shared.line(line) }
    }
}

struct Set: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Stores a value.", discussion: "Without a value, it is read from standard input, byte for byte.")

    @OptionGroup var path: CachePath
    @Argument(help: "The key.")
    var key: Bytes
    @Argument(help: "The value.")
    var value: Bytes?
    @Option(help: "How long it is fresh, such as 90s, 5m, 2h, 7d, never or none (default: the cache's).")
    var maxAge: AgeArgument?
    @Option(help: "How long it is kept once it is stale (default: the cache's).")
    var staleFor: AgeArgument?
    @Option(name: .customLong("tag"), help: "A tag; up to 8.")
    var tags: [String] = []
    @Option(help: "Metadata of your own, stored with the value.")
    var meta: Bytes?
    @Flag(help: "Only if there is no entry.")
    var ifAbsent = false
    @Flag(help: "Only if there is an entry.")
    var ifPresent = false
    @Flag(help: "Never evict it to make room.")
    var pinned = false
    @OptionGroup var creation: Creation

    func validate() throws {
        if ifAbsent, ifPresent { throw ValidationError("use either --if-absent or --if-present") }
    }

    func run() throws {
        let store = try creation.open(path)
        let bytes = try value?.bytes ?? Input(descriptor: STDIN_FILENO, name: "standard input").readAll()
        let version = try store.insert(
            bytes, for: key.bytes, maxAge: maxAge?.age, staleFor: staleFor?.age, tags: tags,
            meta: meta?.bytes ?? [], condition: ifAbsent ? .ifAbsent : ifPresent ? .ifPresent : .always, pinned: pinned)
        if version == nil {
            let state = ifAbsent ? "already exists" : "does not exist"
            throw ToolFailure(.no, "\(path.cache): '\(Bytes.text(key.bytes))' \(state); nothing was stored")
        }
        try store.close()
    }
}

/// Calls the body with each key. It returns false if there is no entry.
private func forEach(_ keys: [Bytes], in path: CachePath, _ body: (Store, [UInt8]) throws -> Bool) throws {
    let store = try path.openToWrite()
    var foundAll = true
    for key in keys where try !body(store, key.bytes) {
        Terminal.say("shale: \(path.cache): no entry '\(Bytes.text(key.bytes))'")
        foundAll = false
    }
    try store.close()
    if !foundAll { throw ToolFailure(.no) }
}

struct Remove: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "rm", abstract: "Removes entries.")

    @OptionGroup var path: CachePath
    @Argument(help: "The keys.")
    var keys: [Bytes]

    func run() throws { try forEach(keys, in: path) { try $0.removeValue(for: $1) } }
}

struct Expire: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Makes entries stale now.",
        discussion:
            "Each is kept for its stale period, for reads of stale data. An entry without a stale period is removed.")

    @OptionGroup var path: CachePath
    @Argument(help: "The keys.")
    var keys: [Bytes]

    func run() throws { try forEach(keys, in: path) { try $0.expire($1) } }
}

struct Tags: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Removes or expires all entries with a tag.",
        discussion: "A cache stores only hashes of tags, so it cannot list them.",
        subcommands: [Invalidate.self, ExpireTags.self])

    struct Invalidate: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Removes every entry with one of the tags.")

        @OptionGroup var path: CachePath
        @Argument(help: "The tags.")
        var tags: [String]

        func run() throws {
            let store = try path.openToWrite()
            for tag in tags { try store.removeAll(tagged: tag) }
            try store.close()
        }
    }

    struct ExpireTags: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "expire", abstract: "Makes every entry with one of the tags stale.")

        @OptionGroup var path: CachePath
        @Argument(help: "The tags.")
        var tags: [String]

        func run() throws {
            let store = try path.openToWrite()
            for tag in tags { try store.expireAll(tagged: tag) }
            try store.close()
        }
    }
}
