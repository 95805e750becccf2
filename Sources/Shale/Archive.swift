#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

/// A cache as one value: its fresh entries, with what they were inserted with and when their ages end. Stale entries stay out.
extension Cache: Codable {
    public func encode(to encoder: any Encoder) throws {
        var seen = Set<Key>()
        var entries: [ArchivedEntry<Key, Value>] = []
        try store.forEach { bytes, known, value in
            // The walk may come by an entry twice.
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

    /// A new cache in memory, with the ages and limits that `init(at:)` has by itself, but as many entries as fit.
    /// Its clock is the decoder's `userInfo[.cacheClock]`, or the system's.
    public convenience init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        let entries = try container.decode([ArchivedEntry<Key, Value>].self)
        try self.init(opening: nil, Options(now: decoder.userInfo[.cacheClock] as? @Sendable () -> Date))
        for (index, entry) in entries.enumerated() {
            do {
                if let fault = entry.fault { throw failure(fault) }
                try restore(entry)
            } catch let error as ShaleError where error.code == .invalid || error.code == .tooLarge {
                throw DecodingError.dataCorruptedError(
                    in: container, debugDescription: "entry \(index) of a cache cannot be stored: \(error)")
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
        // Ages count from now, and the clock may have moved on between taking and giving one; one that moves at each look
        // is a test's.
        for _ in 0..<100 {
            guard let known = try store.entry(for: try stored(archived.key)), known.version == version,
                known.expiresAt != archived.expires
            else { return }
            try touch(archived.key, maxAge: left())
        }
    }

    /// Writes the cache to `<name>.cache` as JSON, all or nothing, in the user's caches directory or the one given.
    public func saveToDisk(
        withName name: String, in directory: URL? = nil, using fileManager: FileManager = .default
    ) throws {
        try writeArchive(self, to: try archive(name, in: directory, using: fileManager), using: fileManager)
    }

    /// Reads what `saveToDisk(withName:in:using:)` wrote, here or in a ``MemoryCache``, into a new cache in memory.
    public static func readFromDisk(
        withName name: String, in directory: URL? = nil, using fileManager: FileManager = .default,
        now: (@Sendable () -> Date)? = nil
    ) throws -> Cache {
        try readArchive(from: try archive(name, in: directory, using: fileManager), now: now)
    }
}

// MARK: The file

func archive(_ name: String, in directory: URL? = nil, using fileManager: FileManager) throws -> URL {
    let folder =
        try directory
        ?? fileManager.url(for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
    return folder.appendingPathComponent("\(name).cache")
}

func writeArchive(_ cache: some Encodable, to file: URL, using fileManager: FileManager) throws {
    try fileManager.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
    try JSONEncoder.ofCaches.encode(cache).write(to: file, options: .atomic)
}

func readArchive<C: Decodable>(from file: URL, now: (@Sendable () -> Date)?) throws -> C {
    let decoder = JSONDecoder.ofCaches
    if let now { decoder.userInfo[.cacheClock] = now }
    return try decoder.decode(C.self, from: Data(contentsOf: file))
}

/// An entry as archives have it. The article "Caching in Swift" has `expirationDate`, and none of what may be missing.
struct ArchivedEntry<Key: Codable, Value: Codable>: Codable {
    let key: Key
    let value: Value
    /// Milliseconds since 1970. Without one there may be an `expirationDate`.
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

    /// As the article has it.
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

    /// What no cache has written.
    var fault: String? {
        if let expires, !(0..<latestExpiry).contains(expires) {
            return "it expires at \(expires); that is from 0 to \(latestExpiry - 1), in milliseconds, or null"
        }
        return loadTime < 0 ? "its loadTime is \(loadTime); it is not negative" : nil
    }
}

/// Milliseconds since 1970: what is as late, or later, never comes.
private let latestExpiry: Int64 = 1 << 48 - 1

extension CodingUserInfoKey {
    /// A `@Sendable () -> Date`: the clock of the caches that a decoder makes.
    public static var cacheClock: CodingUserInfoKey {
        // Any string makes a key.
        CodingUserInfoKey(rawValue: "shale.cacheClock").unsafelyUnwrapped
    }
}
