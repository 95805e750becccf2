#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

/// A cache as one value: its fresh entries, with what they were inserted with and when their ages end. Stale entries stay out.
extension Cache: Codable {
    private struct ArchivedEntry: Codable {
        let key: Key
        let value: Value
        /// Milliseconds since 1970; nil: never.
        let expires: Int64?
        let etag: String?
        let tags: [String]
        let isPinned: Bool
        let loadTime: Int64

        /// What no cache has written.
        var fault: String? {
            if let expires, !(0..<latestExpiry).contains(expires) {
                return "it expires at \(expires); that is from 0 to \(latestExpiry - 1), in milliseconds, or null"
            }
            return loadTime < 0 ? "its loadTime is \(loadTime); it is not negative" : nil
        }
    }

    public func encode(to encoder: any Encoder) throws {
        var seen = Set<Key>()
        var entries: [ArchivedEntry] = []
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
        let entries = try container.decode([ArchivedEntry].self)
        try self.init(opening: nil, now: decoder.userInfo[.cacheClock] as? @Sendable () -> Date)
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

    private func restore(_ archived: ArchivedEntry) throws {
        func left() -> Store.Lifetime {
            guard let expires = archived.expires else { return .forever }
            return expires > store.now ? .of(.milliseconds(expires - store.now)) : .zero
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
    public func saveToDisk(withName name: String, in directory: URL? = nil) throws {
        let file = try Cache.archive(name, in: directory)
        try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try JSONEncoder.ofCaches.encode(self).write(to: file, options: .atomic)
    }

    /// Reads what `saveToDisk(withName:in:)` wrote into a new cache in memory.
    public static func readFromDisk(withName name: String, in directory: URL? = nil, now: (@Sendable () -> Date)? = nil)
        throws -> Cache
    {
        let decoder = JSONDecoder.ofCaches
        if let now { decoder.userInfo[.cacheClock] = now }
        return try decoder.decode(Cache.self, from: Data(contentsOf: archive(name, in: directory)))
    }

    private static func archive(_ name: String, in directory: URL?) throws -> URL {
        let folder =
            try directory
            ?? FileManager.default.url(for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
        return folder.appendingPathComponent("\(name).cache")
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
