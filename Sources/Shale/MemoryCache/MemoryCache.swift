#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Synchronization

/// A cache in the memory of one process, for keys and values of any type, including classes and closures.
///
/// ```swift
/// let images = MemoryCache<URL, Image>(entryLifetime: 600, maximumEntryCount: 100)
/// images[url] = image
/// ```
///
/// An entry lives for the cache's lifetime, counted from its insertion; a read that finds it expired removes it. A full
/// cache evicts expired entries first, then exactly the least recently used one; a read counts as a use. Under memory
/// pressure, on Apple's platforms, it removes all entries, from another thread. Methods do not throw, copy or encode.
/// Use ``Cache`` for values that outlive the process or that processes share.
///
/// If keys and values are `Sendable`, all methods are safe to call from any thread. No code of the client runs with the
/// cache's lock held: the date provider, and the `==`, `hash(into:)` and `deinit` of keys and values, may use the cache.
///
/// If keys and values are `Codable`, so is the cache: see ``init(from:)``.
public final class MemoryCache<Key: Hashable, Value> {
    @usableFromInline typealias Entry = EntryTable<Key, Value>.Entry
    @usableFromInline typealias Found = EntryTable<Key, Value>.Found

    // `lock` guards it.
    @usableFromInline
    @exclusivity(unchecked) var table: EntryTable<Key, Value>
    @usableFromInline let lock = Mutex(())
    @usableFromInline let dateProvider: @Sendable () -> Date
    @usableFromInline let entryLifetime: TimeInterval
    /// Nil: there is no limit of costs.
    @usableFromInline let cost: (@Sendable (Value) -> Int)?
    @usableFromInline let loadKeys = LoadKeys<Key>()
    let loader = Loader<LoadKey<Key>, Loaded>()
    private let memoryPressure = MemoryPressure()

    /// - Parameters:
    ///   - dateProvider: The clock. It may use the cache.
    ///   - entryLifetime: In seconds, counted from an entry's insertion; infinity: forever.
    ///   - maximumEntryCount: The cache evicts entries beyond it; below 1: no limit, as in `NSCache`.
    ///   - maximumTotalCost: The cache evicts entries beyond it, and does not keep a value that exceeds it alone; below
    ///     1: no limit.
    ///   - cost: What a value counts for, such as its size in bytes. Called at its insertion, on the caller's thread.
    public init(
        dateProvider: @escaping @Sendable () -> Date = { Date() }, entryLifetime: TimeInterval = 12 * 60 * 60,
        maximumEntryCount: Int = 50, maximumTotalCost: Int = 0, cost: @escaping @Sendable (Value) -> Int = { _ in 1 }
    ) {
        self.dateProvider = dateProvider
        self.entryLifetime = entryLifetime
        self.cost = maximumTotalCost < 1 ? nil : cost
        table = EntryTable(
            maximumCount: maximumEntryCount < 1 ? .max : maximumEntryCount,
            maximumCost: maximumTotalCost < 1 ? .max / 2 : min(maximumTotalCost, .max / 2))
        memoryPressure.begin { [weak self] in self?.removeAll() }
    }

    // MARK: One entry

    // Inlinable: code that is specialised for the client's types takes a third of the time.

    /// Stores the value, replacing one under the same key, and starts its lifetime.
    @inlinable
    public func insert(_ value: Value, for key: Key) {
        loadKeys.change(key)
        let now = dateProvider()
        insert(entry(value, for: key, expirationDate: now.addingTimeInterval(entryLifetime)), at: now)
    }

    /// The value, or nil if there is none or its lifetime is over.
    @inlinable
    public func value(for key: Key) -> Value? {
        let hash = key.hashValue
        guard let found = find(key, from: locked { $0.first(hash) }) else { return nil }
        let isFresh = isFresh(found.entry)
        // This entry, not one that another thread has inserted since.
        _ = locked { table in
            if !isFresh { return table.remove(found.place) }
            table.use(found.place)
            return nil
        }
        return isFresh ? found.entry.value : nil
    }

    /// Does nothing if there is no value.
    @inlinable
    public func removeValue(for key: Key) {
        loadKeys.change(key)
        let hash = key.hashValue
        if let found = find(key, from: locked { $0.first(hash) }) { _ = locked { $0.remove(found.place) } }
    }

    /// The value, or nil. Setting inserts; setting nil removes. `cache[key]? += 1` is a read and an insertion: threads
    /// that do this at once lose changes, which ``update(_:for:)`` does not.
    public subscript(key: Key) -> Value? {
        @inlinable get { value(for: key) }
        @inlinable set { if let newValue { insert(newValue, for: key) } else { removeValue(for: key) } }
    }

    /// The value, or the default if there is none. Setting inserts.
    public subscript(key: Key, default defaultValue: @autoclosure () -> Value) -> Value {
        get { value(for: key) ?? defaultValue() }
        set { insert(newValue, for: key) }
    }

    // MARK: All entries

    /// The keys of the fresh entries, the least recently used first.
    public func allKeys() -> [Key] { fresh.map(\.key) }

    /// The number of fresh entries. Removes the expired ones; otherwise takes constant time.
    public var count: Int {
        let now = dateProvider()
        return locked { table in (expired: table.removeExpired(at: now), count: table.places.count) }.count
    }

    /// Removes all entries.
    public func removeAll() {
        loadKeys.changeAll()
        _ = locked { $0.removeAll() }
    }

    var fresh: [Entry] {
        let all = locked { $0.all }, now = dateProvider()
        return all.filter { now < $0.expirationDate }
    }

    // MARK: Shared steps

    /// Does nothing if `condition`, which is called with the lock held, does not hold.
    @inlinable
    func insert(_ entry: Entry, at now: Date, if condition: () -> Bool = { true }) {
        var newest: Found?, present: Found?
        // Again if another thread has inserted a key with this hash since the search.
        while locked({ table in
            condition() ? table.insert(entry, replacing: present?.place, upTo: newest?.place, at: now) : []
        }) == nil {
            newest = locked { $0.first(entry.hash) }
            present = find(entry.key, from: newest)
        }
    }

    @inlinable
    func entry(_ value: Value, for key: Key, expirationDate: Date) -> Entry {
        Entry(
            key: key, value: value, hash: key.hashValue, expirationDate: expirationDate,
            cost: max(0, cost?(value) ?? 0))
    }

    @inlinable
    func isFresh(_ entry: Entry) -> Bool { dateProvider() < entry.expirationDate }

    /// The entry of the key, which is `first`, the newest entry with its hash, or an older one. Compares without the
    /// lock.
    @inlinable
    func find(_ key: Key, from first: Found?) -> Found? {
        var first = first, compared = 0
        while let newest = first {
            var next = first
            while let found = next, found.place.number > compared {
                if found.entry.key == key { return found }
                next = locked { $0.next(after: found) }
            }
            // Also the newer ones: another thread may have replaced the key's entry during the search.
            compared = newest.place.number
            first = locked { $0.first(newest.entry.hash) }
            if let first, first.place.number <= compared { return nil }
        }
        return nil
    }

    /// Whatever leaves the table is part of the result, so that it is freed after the lock is released. The result need
    /// not be `Sendable`: it does not leave the caller's thread.
    @inlinable
    func locked<R>(_ body: (inout EntryTable<Key, Value>) -> R) -> R {
        var result: R?
        lock.withLock { _ in result = body(&table) }
        return result.unsafelyUnwrapped
    }
}

/// The lock guards all mutable state.
extension MemoryCache: @unchecked Sendable where Key: Sendable, Value: Sendable {}

extension MemoryCache: Codable where Key: Codable, Value: Codable {
    /// A cache with the default lifetime and limit. Entries keep their expiration dates; entries that have expired
    /// since are left out, and beyond the limit the most recently used stay. Reads files of ``Cache`` and of the cache
    /// in the article "Caching in Swift".
    ///
    /// Its clock is the decoder's `userInfo[.cacheClock]`, or the system's.
    public convenience init(from decoder: any Decoder) throws {
        try self.init(
            restoring: [ArchivedEntry<Key, Value>](from: decoder),
            now: decoder.userInfo[.cacheClock] as? @Sendable () -> Date)
    }

    private convenience init(restoring entries: [ArchivedEntry<Key, Value>], now: (@Sendable () -> Date)?) {
        self.init(dateProvider: now ?? { Date() })
        let now = dateProvider()
        for archived in entries {
            let expirationDate = archived.expirationDate ?? .distantFuture
            if now < expirationDate {
                insert(entry(archived.value, for: archived.key, expirationDate: expirationDate), at: now)
            }
        }
    }

    /// The fresh entries, the least recently used first, in the format of the article.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(
            fresh.map { ArchivedEntry(key: $0.key, value: $0.value, expirationDate: $0.expirationDate) })
    }

    /// Writes the cache atomically to `<name>.cache` as JSON, in the user's caches directory or in `directory`, and
    /// returns the file. A name of another folder, as `"../x"`, is an error with the code `invalid`.
    @discardableResult
    public func saveToDisk(
        withName name: String, in directory: URL? = nil, using fileManager: FileManager = .default
    ) throws -> URL {
        try writeArchive(self, name, in: directory, using: fileManager)
    }

    /// A new cache with the entries of a file that `saveToDisk` of this type or of ``Cache`` has written, as in
    /// ``init(from:)``, with the clock `now` or the system's.
    public convenience init(contentsOf file: URL, now: (@Sendable () -> Date)? = nil) throws {
        try self.init(restoring: readArchive(file), now: now)
    }
}
