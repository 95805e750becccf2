#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale
import Synchronization

/// RxCache's providers, with async functions in the place of observables.
///
/// ```swift
/// let providers = try ProviderCache(at: directory)
/// let mocks = try await providers.cache(api.mocks, provider: Providers.getMocksOfPage(1, evict: false))
/// ```
///
/// A record is served from memory, else from disk, as long as its provider's `lifeCache` lasts; else the loader is asked,
/// and what it gives is stored. All tasks that miss one record at the same time wait for one loader, unless they evict.
///
/// What is returned is always a copy, made through JSON: changing it, or what the loader gave, changes nothing stored.
///
/// Any thread and task may use it, and several processes the same directory.
public final class ProviderCache: Sendable {
    /// Whether a record past its age, or one that was to be evicted, is served where the loader fails. Set: applies from the next
    /// request on.
    public var useExpiredDataIfLoaderNotAvailable: Bool {
        get { usesExpired.load(ordering: .relaxed) }
        set { usesExpired.store(newValue, ordering: .relaxed) }
    }
    private let usesExpired: Atomic<Bool>
    let records: Cache<RecordKey, Data>

    /// Opens the cache in a directory, creating it and missing parents.
    ///
    /// - Parameters:
    ///   - directory: On a local file system, and of this cache alone. For a cache without one there is
    ///     ``inMemory(maxMBPersistenceCache:useExpiredDataIfLoaderNotAvailable:memoryEntries:now:)``.
    ///   - maxMBPersistenceCache: Megabytes, of 2^20 bytes, at least 1, that all files together may have. Near the limit records leave,
    ///     the least recently used first, except those whose provider is not `expirable()`. Nil: 300 for a new cache, unchanged
    ///     for an existing one.
    ///   - useExpiredDataIfLoaderNotAvailable: Whether a record past its age, or one that was to be evicted, is served where
    ///     the loader fails. Without it, records past the age that they were stored with leave the disk now.
    ///   - memoryEntries: Records that are kept in memory; 0: none.
    ///   - now: The clock. Nil: the system's.
    public convenience init(
        at directory: String, maxMBPersistenceCache: Int? = nil, useExpiredDataIfLoaderNotAvailable: Bool = false,
        memoryEntries: Int = 256, now: (@Sendable () -> Date)? = nil
    ) throws(ShaleError) {
        try self.init(
            opening: directory, maxMBPersistenceCache: maxMBPersistenceCache,
            useExpiredDataIfLoaderNotAvailable: useExpiredDataIfLoaderNotAvailable, memoryEntries: memoryEntries,
            now: now)
    }

    /// The same, in a directory that a file URL names.
    public convenience init(
        at directory: URL, maxMBPersistenceCache: Int? = nil, useExpiredDataIfLoaderNotAvailable: Bool = false,
        memoryEntries: Int = 256, now: (@Sendable () -> Date)? = nil
    ) throws(ShaleError) {
        if !directory.isFileURL { throw ShaleError(code: .invalid, message: "\(directory) names no file") }
        try self.init(
            opening: directory.path, maxMBPersistenceCache: maxMBPersistenceCache,
            useExpiredDataIfLoaderNotAvailable: useExpiredDataIfLoaderNotAvailable, memoryEntries: memoryEntries,
            now: now)
    }

    /// A new cache in memory, which goes with its last reference. The rest is as for a cache in a directory.
    public static func inMemory(
        maxMBPersistenceCache: Int? = nil, useExpiredDataIfLoaderNotAvailable: Bool = false,
        memoryEntries: Int = 256, now: (@Sendable () -> Date)? = nil
    ) throws(ShaleError) -> ProviderCache {
        try ProviderCache(
            opening: nil, maxMBPersistenceCache: maxMBPersistenceCache,
            useExpiredDataIfLoaderNotAvailable: useExpiredDataIfLoaderNotAvailable, memoryEntries: memoryEntries,
            now: now)
    }

    /// Nil: in memory.
    private init(
        opening directory: String?, maxMBPersistenceCache: Int?, useExpiredDataIfLoaderNotAvailable: Bool,
        memoryEntries: Int, now: (@Sendable () -> Date)?
    ) throws(ShaleError) {
        let megabytes = maxMBPersistenceCache ?? 300
        let (capacity, overflow) = megabytes.multipliedReportingOverflow(by: 1 << 20)
        if megabytes < 1 || overflow {
            let place = directory ?? "memory"
            throw ShaleError(
                code: .invalid,
                message: "\(place): maxMBPersistenceCache is \(megabytes); a cache has at least 1 megabyte")
        }
        usesExpired = Atomic(useExpiredDataIfLoaderNotAvailable)
        var options = Store.Options(capacity: capacity)
        // One shard keeps the exact order of use whatever the capacity.
        options.shards = 1
        if let now { options.now = { now().millisecondsSince1970 } }
        let store =
            if let directory, maxMBPersistenceCache == nil {
                try Store.withOwnLimits(at: directory, options: options)
            } else {
                try Store(at: directory, options: options)
            }
        records = try Cache(in: store, named: "records", maxAge: .forever, memoryEntries: memoryEntries)
        if !useExpiredDataIfLoaderNotAvailable { try removeExpired() }
    }

    /// The provider's record, or what the loader gives.
    ///
    /// A loader that gives nil has failed, as one that throws has.
    ///
    /// Where the provider evicts, the loader is asked in any case; once it has answered, the records in the scope of the
    /// provider's `evict` are removed, and then what it gave is stored. A loader that fails evicts nothing. What cannot be
    /// stored, in a full cache for one, is returned all the same.
    ///
    /// Throws `ProviderCacheError` where the provider contradicts itself, where the loader fails and nothing may be served in
    /// its place, and where data does not go through JSON; `CancellationError` in a task that is cancelled meanwhile.
    public func cache<Element: Codable & Sendable>(
        _ loader: @escaping @Sendable () async throws -> [Element],
        provider: some CacheProvider
    ) async throws -> [Element] {
        try await cacheWithReply(loader, provider: provider).cacheables
    }

    /// The same, for a single value. It is stored as a list of one.
    public func cache<Value: Codable & Sendable>(
        _ loader: @escaping @Sendable () async throws -> Value,
        provider: some CacheProvider
    ) async throws -> Value {
        try await cacheWithReply(loader, provider: provider).cacheables
    }

    /// As `cache(_:provider:)`, with where the data came from.
    public func cacheWithReply<Element: Codable & Sendable>(
        _ loader: @escaping @Sendable () async throws -> [Element],
        provider: some CacheProvider
    ) async throws -> Reply<[Element]> {
        try await reply(provider, .list(of: Element.self), loader)
    }

    /// The same, for a single value.
    public func cacheWithReply<Value: Codable & Sendable>(
        _ loader: @escaping @Sendable () async throws -> Value,
        provider: some CacheProvider
    ) async throws -> Reply<Value> {
        try await reply(provider, .single, loader)
    }

    /// Removes every record of every provider, at a cost that does not depend on how many there are.
    public func evictAll() throws(ShaleError) { try records.removeAll() }
}
