#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Synchronization

/// A cache in the memory of one process, of any keys and any values: classes, closures, what cannot be encoded.
///
/// ```swift
/// let images = MemoryCache<URL, Image>(entryLifetime: 600, maximumEntryCount: 100)
/// images[url] = image
/// ```
///
/// An entry lives for the cache's lifetime from its insertion on; the read that finds an expired one removes it. Beyond the limit exactly
/// the least recently used entry leaves, and a read counts as a use. Nothing throws, and nothing is copied or encoded. For values that
/// outlive the process, or that processes share, there is ``Cache``.
///
/// Every method may be called from any thread, where keys and values are `Sendable`. Keys are compared under the cache's lock, so a
/// key's `==` and `hash(into:)` must not use the cache; the date provider and whatever is released may.
///
/// Where keys and values are `Codable`, so is the cache: see ``init(from:)``.
public final class MemoryCache<Key: Hashable, Value> {
    @usableFromInline
    struct Entry {
        @usableFromInline let key: Key
        @usableFromInline let value: Value
        @usableFromInline let expirationDate: Date
        /// Tells it from others under its key.
        @usableFromInline var number = 0

        @inlinable
        init(key: Key, value: Value, expirationDate: Date) {
            self.key = key
            self.value = value
            self.expirationDate = expirationDate
        }
    }

    /// By their keys; and how many were inserted.
    @usableFromInline
    @exclusivity(unchecked) var entries = RecencyList<Key, Entry>() // the lock sees to that
    @usableFromInline
    @exclusivity(unchecked) var inserted = 0
    @usableFromInline let lock = Mutex(())
    @usableFromInline let dateProvider: @Sendable () -> Date
    @usableFromInline let entryLifetime: TimeInterval
    @usableFromInline let maximumEntryCount: Int

    /// - Parameters:
    ///   - dateProvider: The clock. It may use the cache.
    ///   - entryLifetime: Seconds from an entry's insertion on; infinity: for ever.
    ///   - maximumEntryCount: Entries beyond it leave; below 1: no limit, as in `NSCache`.
    public init(
        dateProvider: @escaping @Sendable () -> Date = { Date() }, entryLifetime: TimeInterval = 12 * 60 * 60,
        maximumEntryCount: Int = 50
    ) {
        self.dateProvider = dateProvider
        self.entryLifetime = entryLifetime
        self.maximumEntryCount = maximumEntryCount < 1 ? .max : maximumEntryCount
    }

    // MARK: One entry

    // Inlinable: what its users' compiler specialises for their types takes a third of the time.

    /// Stores the value in place of another under its key, and begins its lifetime.
    @inlinable
    public func insert(_ value: Value, forKey key: Key) {
        insert(Entry(key: key, value: value, expirationDate: dateProvider().addingTimeInterval(entryLifetime)))
    }

    /// The value, unless its lifetime is over.
    @inlinable
    public func value(forKey key: Key) -> Value? {
        guard let entry = locked({ $0.use(key) }) else { return nil }
        if dateProvider() < entry.expirationDate { return entry.value }
        // Not another one that was inserted meanwhile.
        _ = locked { $0.use(key)?.number == entry.number ? $0.remove(key) : nil }
        return nil
    }

    /// Does nothing where there is none.
    @inlinable
    public func removeValue(forKey key: Key) { _ = locked { $0.remove(key) } }

    /// Set: inserts, or removes with nil.
    public subscript(key: Key) -> Value? {
        @inlinable get { value(forKey: key) }
        @inlinable set { if let newValue { insert(newValue, forKey: key) } else { removeValue(forKey: key) } }
    }

    /// The value, or the default where there is none; set: inserts.
    public subscript(key: Key, default defaultValue: @autoclosure () -> Value) -> Value {
        get { value(forKey: key) ?? defaultValue() }
        set { insert(newValue, forKey: key) }
    }

    // MARK: All entries

    /// Of the entries that are fresh, from the least recently used on.
    public var keys: [Key] { fresh.map(\.key) }

    /// How many entries are fresh. Looks at all of them.
    public var count: Int { fresh.count }

    /// Removes all entries.
    public func removeAll() {
        _ = locked { entries in
            let all = entries
            entries = RecencyList()
            return all
        }
    }

    var fresh: [Entry] {
        let all = locked { $0.items }, now = dateProvider()
        return all.filter { now < $0.expirationDate }
    }

    @inlinable
    func insert(_ entry: Entry) {
        var entry = entry
        // What leaves is released behind the lock.
        _ = locked { entries in
            inserted += 1
            entry.number = inserted
            if let present = entries.use(entry.key) {
                entries.replaceNewest(with: entry)
                return [present]
            }
            var left: [Entry] = []
            while entries.count >= maximumEntryCount, let victim = entries.removeLast() { left.append(victim) }
            entries.add(entry, for: entry.key)
            return left
        }
    }

    /// What `body` gives need not be `Sendable`: whoever calls this may have it.
    @inlinable
    func locked<R>(_ body: (inout RecencyList<Key, Entry>) -> R) -> R {
        var result: R?
        lock.withLock { _ in result = body(&entries) }
        return result.unsafelyUnwrapped
    }
}

/// Its lock guards what changes.
extension MemoryCache: @unchecked Sendable where Key: Sendable, Value: Sendable {}

extension MemoryCache: Codable where Key: Codable, Value: Codable {
    /// A cache with the default lifetime and limit, and the entries with the expirations that they had: what has expired since
    /// stays out, and of more than fit, the most recently used stay. Reads what the cache of the article "Caching in Swift" has
    /// written, and what a ``Cache`` has.
    ///
    /// Its clock is the decoder's `userInfo[.cacheClock]`, or the system's.
    public convenience init(from decoder: any Decoder) throws {
        self.init(dateProvider: decoder.userInfo[.cacheClock] as? @Sendable () -> Date ?? { Date() })
        let now = dateProvider()
        for archived in try decoder.singleValueContainer().decode([ArchivedEntry<Key, Value>].self) {
            let expirationDate = archived.expirationDate ?? .distantFuture
            if now < expirationDate {
                insert(Entry(key: archived.key, value: archived.value, expirationDate: expirationDate))
            }
        }
    }

    /// The fresh entries, the least recently used first, as the article's code writes and reads them.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(
            fresh.map { ArchivedEntry(key: $0.key, value: $0.value, expirationDate: $0.expirationDate) })
    }

    /// Writes the cache to `<name>.cache` as JSON, all or nothing, in the user's caches directory.
    public func saveToDisk(withName name: String, using fileManager: FileManager = .default) throws {
        try writeArchive(self, to: try archive(name, using: fileManager), using: fileManager)
    }

    /// Reads what `saveToDisk(withName:using:)` wrote, here or in a ``Cache``, into a new cache.
    public static func readFromDisk(
        withName name: String, using fileManager: FileManager = .default, now: (@Sendable () -> Date)? = nil
    ) throws -> MemoryCache {
        try readArchive(from: try archive(name, using: fileManager), now: now)
    }
}
