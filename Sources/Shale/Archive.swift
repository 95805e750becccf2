#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

/// Encodes the fresh entries with their expiry times and everything they were inserted with. Stale entries are left
/// out.
extension Cache: Codable {
    public func encode(to encoder: any Encoder) throws {
        var seen = Set<Key>()
        var entries: [ArchivedEntry<Key, Value>] = []
        try store.forEach { bytes, known, value in
            // The iteration may visit an entry twice.
            if !Meta.isMissing(known.meta), let key = keys.decode(bytes), let value = try? coder.decode(Data(value)),
                seen.insert(key).inserted
            {
                let meta = Meta(known.meta)
                entries.append(
                    ArchivedEntry(
                        key: key, value: value, expires: known.expiresAt, etag: meta.etag, tags: meta.tags,
                        isPinned: known.isPinned, loadTime: meta.loadTime))
            }
            return true
        }
        var container = encoder.singleValueContainer()
        try container.encode(entries)
    }

    /// A new cache in memory with the default options; it holds as many entries as fit.
    /// Its clock is the decoder's `userInfo[.cacheClock]`, or the system's.
    public convenience init(from decoder: any Decoder) throws {
        try self.init(
            restoring: [ArchivedEntry<Key, Value>](from: decoder), at: decoder.codingPath,
            now: decoder.userInfo[.cacheClock] as? @Sendable () -> Date)
    }

    private convenience init(
        restoring entries: [ArchivedEntry<Key, Value>], at path: [any CodingKey] = [], now: (@Sendable () -> Date)?
    ) throws {
        try self.init(opening: nil, Options(now: now))
        for (index, entry) in entries.enumerated() {
            do {
                if let fault = entry.fault { throw failure(fault) }
                try restore(entry)
            } catch let error as ShaleError where error.code == .invalid || error.code == .tooLarge {
                throw DecodingError.dataCorrupted(
                    .init(codingPath: path, debugDescription: "entry \(index) of a cache cannot be stored: \(error)"))
            }
        }
    }

    private func restore(_ archived: ArchivedEntry<Key, Value>) throws {
        func left() -> Age {
            guard let expires = archived.expires else { return .forever }
            return expires > store.now ? .milliseconds(expires - store.now) : .zero
        }
        if left() == .zero { return }
        let version = try insert(
            archived.value, for: archived.key, maxAge: left(), pinned: archived.isPinned,
            Meta(etag: archived.etag, tags: archived.tags, loadTime: archived.loadTime))
        // The clock may advance between computing the age and storing it: retry until the expiry is exact. The bound is
        // for test clocks that advance at every read.
        for _ in 0..<100 {
            guard let known = try store.entry(for: try stored(archived.key)), known.version == version,
                known.expiresAt != archived.expires
            else { return }
            try touch(archived.key, maxAge: left())
        }
    }

    /// Writes the cache atomically to `<name>.cache` as JSON, in the user's caches directory or in `directory`, and
    /// returns the file. A name of another folder, as `"../x"`, is an error with the code `invalid`.
    @discardableResult
    public func saveToDisk(
        withName name: String, in directory: URL? = nil, using fileManager: FileManager = .default
    ) throws -> URL {
        try writeArchive(self, name, in: directory, using: fileManager)
    }

    /// A new cache in memory with the entries of a file that `saveToDisk` of this type or of ``MemoryCache`` has
    /// written, as in ``init(from:)``, with the clock `now` or the system's.
    public convenience init(contentsOf file: URL, now: (@Sendable () -> Date)? = nil) throws {
        try self.init(restoring: readArchive(file), now: now)
    }
}

// MARK: The file

func writeArchive(
    _ cache: some Encodable, _ name: String, in directory: URL?, using fileManager: FileManager
) throws -> URL {
    if name.isEmpty || name.contains("/") || name.contains("\0") {
        throw ShaleError(
            code: .invalid,
            message: "\(name.debugDescription) is not the name of a file; give a name without slashes, and a directory")
    }
    let folder =
        try directory
        ?? fileManager.url(for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
    try fileManager.createDirectory(at: folder, withIntermediateDirectories: true)
    let file = folder.appendingPathComponent("\(name).cache")
    try JSONEncoder.ofCaches.encode(cache).write(to: file, options: .atomic)
    return file
}

func readArchive<Key, Value>(_ file: URL) throws -> [ArchivedEntry<Key, Value>] {
    try JSONDecoder.ofCaches.decode([ArchivedEntry<Key, Value>].self, from: Data(contentsOf: file))
}

/// An entry in an archive. Archives of the cache in the article "Caching in Swift" have `expirationDate` and none of
/// the optional fields.
struct ArchivedEntry<Key: Codable, Value: Codable>: Codable {
    let key: Key
    let value: Value
    /// Milliseconds since 1970; nil: never, unless there is an `expirationDate`.
    private(set) var expires: Int64?
    private var date: Date?
    private(set) var etag: String?
    private(set) var tags: [String] = []
    private(set) var isPinned = false
    private(set) var loadTime: Int64 = 0

    private enum CodingKeys: String, CodingKey {
        case key, value, expires, etag, tags, isPinned, loadTime
        case date = "expirationDate"
    }

    init(key: Key, value: Value, expires: Int64?, etag: String?, tags: [String], isPinned: Bool, loadTime: Int64) {
        self.key = key
        self.value = value
        self.expires = expires
        self.etag = etag
        self.tags = tags
        self.isPinned = isPinned
        self.loadTime = loadTime
    }

    /// In the article's format.
    init(key: Key, value: Value, expirationDate: Date) {
        self.key = key
        self.value = value
        date = expirationDate
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        key = try container.decode(Key.self, forKey: .key)
        value = try container.decode(Value.self, forKey: .value)
        date = try container.decodeIfPresent(Date.self, forKey: .date)
        expires = try container.decodeIfPresent(Int64.self, forKey: .expires)
        etag = try container.decodeIfPresent(String.self, forKey: .etag)
        tags = try container.decodeIfPresent([String].self, forKey: .tags) ?? []
        isPinned = try container.decodeIfPresent(Bool.self, forKey: .isPinned) ?? false
        loadTime = try container.decodeIfPresent(Int64.self, forKey: .loadTime) ?? 0
        if expires == nil, let milliseconds = date?.millisecondsSince1970, milliseconds < latestExpiry {
            expires = max(0, milliseconds)
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(key, forKey: .key)
        try container.encode(value, forKey: .value)
        if let date {
            try container.encode(date, forKey: .date)
            return
        }
        try container.encodeIfPresent(expires, forKey: .expires)
        try container.encodeIfPresent(etag, forKey: .etag)
        try container.encode(tags, forKey: .tags)
        try container.encode(isPinned, forKey: .isPinned)
        try container.encode(loadTime, forKey: .loadTime)
    }

    /// Nil: never.
    var expirationDate: Date? { date ?? expires.map(Date.init(millisecondsSince1970:)) }

    /// Why the entry is invalid; nil: it is valid.
    var fault: String? {
        if let expires, !(0..<latestExpiry).contains(expires) {
            return "expires is \(expires); it must be from 0 to \(latestExpiry - 1), in milliseconds, or null"
        }
        return loadTime < 0 ? "loadTime is \(loadTime); it must not be negative" : nil
    }
}

/// Milliseconds since 1970. Times at or after this one mean never.
private let latestExpiry: Int64 = 1 << 48 - 1

extension CodingUserInfoKey {
    /// A `@Sendable () -> Date`: the clock of the caches that a decoder creates.
    public static var cacheClock: CodingUserInfoKey {
        // The initializer accepts every string.
        CodingUserInfoKey(rawValue: "shale.cacheClock").unsafelyUnwrapped
    }
}
