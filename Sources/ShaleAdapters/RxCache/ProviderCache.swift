#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale
import Synchronization

/// RxCache's providers, with async functions instead of observables.
///
/// ```swift
/// let providers = try ProviderCache(at: directory)
/// let mocks = try await providers.cache(api.mocks, provider: Providers.getMocksOfPage(1, evict: false))
/// ```
///
/// A record is served from memory or disk within its provider's `lifeCache`; otherwise the cache calls the loader and
/// stores the result. All tasks that miss a record at the same time share one loader, unless they evict.
///
/// Results are copies, made through JSON: changing them, or the loader's result, does not change the stored record.
///
/// All methods are safe to call from any thread; several processes may use one directory.
public final class ProviderCache: Sendable {
    /// Whether a record that is past its age, or that the provider evicts, is served if the loader fails. A new value
    /// applies from the next request on.
    public var useExpiredDataIfLoaderNotAvailable: Bool {
        get { usesExpired.load(ordering: .relaxed) }
        set { usesExpired.store(newValue, ordering: .relaxed) }
    }
    private let usesExpired: Atomic<Bool>
    let records: Cache<RecordKey, Data>

    /// Opens the cache in a directory, creating it and missing parents.
    ///
    /// - Parameters:
    ///   - directory: On a local file system, for this cache only. A cache without a directory is
    ///     ``inMemory(maxMBPersistenceCache:useExpiredDataIfLoaderNotAvailable:memoryEntries:now:)``.
    ///   - maxMBPersistenceCache: The maximum size of all files, in megabytes of 2^20 bytes, at least 1. Near the limit
    ///     the cache evicts the least recently used records, except those whose provider is not `expirable()`. Nil: 300
    ///     for a new cache, unchanged for an existing one.
    ///   - useExpiredDataIfLoaderNotAvailable: Whether a record that is past its age, or that the provider evicts, is
    ///     served if the loader fails. If false, this call removes records past the age that they were stored with.
    ///   - memoryEntries: The number of records to keep in memory; 0: none.
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
        if !directory.isFileURL { throw ShaleError(code: .invalid, message: "\(directory) is not a file URL") }
        try self.init(
            opening: directory.path, maxMBPersistenceCache: maxMBPersistenceCache,
            useExpiredDataIfLoaderNotAvailable: useExpiredDataIfLoaderNotAvailable, memoryEntries: memoryEntries,
            now: now)
    }

    /// A new cache in memory, which its last reference frees. Otherwise it behaves like a cache in a directory.
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
                message: "\(place): maxMBPersistenceCache is \(megabytes); it must be at least 1")
        }
        usesExpired = Atomic(useExpiredDataIfLoaderNotAvailable)
        var options = Store.Options(capacity: capacity)
        // One shard keeps the exact order of use with any capacity.
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

    /// The provider's record, or the loader's result.
    ///
    /// A loader that returns nil has failed, like one that throws.
    ///
    /// If the provider evicts, the cache always calls the loader; once it has returned, the cache removes the records
    /// in the scope of the provider's `evict` and then stores the result. A failed loader evicts nothing. A result that
    /// cannot be stored, for example in a full cache, is still returned. A result is not stored if the record changed
    /// during the load; a change by another process between that check and the storing is lost.
    ///
    /// Throws `ProviderCacheError` if the provider evicts by a key that it lacks, if the loader fails and no record may
    /// be served instead, and if data cannot be encoded to or decoded from JSON; `CancellationError` if the task is
    /// cancelled.
    public nonisolated(nonsending) func cache<Element: Codable & Sendable>(
        _ loader: @escaping @Sendable () async throws -> [Element],
        provider: some CacheProvider
    ) async throws -> [Element] {
        try await cacheWithReply(loader, provider: provider).cacheables
    }

    /// The same, for a single value. It is stored as a list of one.
    public nonisolated(nonsending) func cache<Value: Codable & Sendable>(
        _ loader: @escaping @Sendable () async throws -> Value,
        provider: some CacheProvider
    ) async throws -> Value {
        try await cacheWithReply(loader, provider: provider).cacheables
    }

    /// Like `cache(_:provider:)`, with the source of the data.
    public nonisolated(nonsending) func cacheWithReply<Element: Codable & Sendable>(
        _ loader: @escaping @Sendable () async throws -> [Element],
        provider: some CacheProvider
    ) async throws -> Reply<[Element]> {
        try await reply(provider, .list(of: Element.self), loader)
    }

    /// The same, for a single value.
    public nonisolated(nonsending) func cacheWithReply<Value: Codable & Sendable>(
        _ loader: @escaping @Sendable () async throws -> Value,
        provider: some CacheProvider
    ) async throws -> Reply<Value> {
        try await reply(provider, .single, loader)
    }

    /// Removes every record of every provider, in constant time.
    public func evictAll() throws(ShaleError) { try records.removeAll() }
}
