#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale
import ShaleCore

/// The steps of requests and actions.
///
/// The provider's `lifeCache` at the time of a read determines whether a record has expired, counted from when the
/// record was stored. The store keeps records past the age that they were stored with, as the provider may have
/// lengthened it.
extension ProviderCache {
    private struct Record<Value: Sendable> {
        let reply: Reply<Value>
        let isExpired: Bool
        let version: UInt64
    }

    nonisolated(nonsending) func reply<Value>(
        _ provider: some CacheProvider, _ coder: RecordCoder<Value>,
        _ loader: @escaping @Sendable () async throws -> Value
    ) async throws -> Reply<Value> {
        let key = RecordKey(provider), evict = provider.evict
        try check(evict, key)
        let isEvicting = evict?.evict == true
        let record = try record(provider, key, coder)
        if let record, !record.isExpired, !isEvicting { return record.reply }

        let load: @Sendable () async throws -> Data = {
            let value: Value
            do {
                value = try await loader()
                if isNil(value) { throw ProviderCacheError.LoaderGaveNil() }
            } catch  where !Task.isCancelled {
                throw ProviderCacheError.loaderFailed(provider: key.provider, error)
            }
            return try coder.encode(value, of: key.provider)
        }
        do {
            if !isEvicting {
                // If there was no record, one that another task has stored since is accepted.
                let entry = try await records.entry(for: key, options: record == nil ? .default : .reload) { _ in
                    .value(
                        try await load(), maxAge: provider.lifeCache?.age, tags: key.tags,
                        pinned: !provider.expirable())
                }
                return Reply(source: .init(entry.source), cacheables: try coder.decode(entry.value, of: key.provider))
            }
            // Does not join a load: joining would skip this provider's eviction.
            let fence = try? records.fence(for: key)
            let data = try await load()
            let isCurrent = try fence.map { try records.isUnchanged(key, since: $0) } ?? false
            try remove(evict, key)
            // A result that cannot be stored, or whose record has changed during the load, is still returned.
            if isCurrent { _ = try? save(data, provider, key, .always) }
            return Reply(source: .cloud, cacheables: try coder.decode(data, of: key.provider))
        } catch let error as ProviderCacheError {
            guard case .loaderFailed = error, useExpiredDataIfLoaderNotAvailable, let record else { throw error }
            return record.reply
        }
    }

    /// Changes the record, starting from an empty list if there is none, and returns the new content. Repeats if
    /// another task or process has changed the record in between.
    func edit<Element: Codable & Sendable>(_ provider: some CacheProvider, _ body: (inout [Element]) -> Void) throws
        -> [Element]
    {
        let key = RecordKey(provider), coder = RecordCoder.list(of: Element.self)
        while true {
            let record = try record(provider, key, coder)
            var elements = record?.reply.cacheables ?? []
            body(&elements)
            let data = try coder.encode(elements, of: key.provider)
            if try save(data, provider, key, record.map { .ifVersion($0.version) } ?? .ifAbsent) {
                return try coder.decode(data, of: key.provider)
            }
        }
    }

    /// Removes records past the age that they were stored with.
    func removeExpired() throws(ShaleError) {
        try records.store.forEach(includingStale: true) { key, entry, _ in
            // A failed removal does not matter: readers find the record expired.
            if entry.isStale { _ = try? records.store.removeValue(for: key, ifVersion: entry.version) }
            return true
        }
    }

    /// The record. Removes an expired one, unless it may be served if the loader fails, and one that does not decode.
    private func record<Value>(_ provider: some CacheProvider, _ key: RecordKey, _ coder: RecordCoder<Value>)
        throws(ShaleError) -> Record<Value>?
    {
        guard let entry = try records.entry(for: key, includingStale: true) else { return nil }
        let isExpired =
            provider.lifeCache?.isOver(at: records.store.now - entry.createdAt.millisecondsSince1970) ?? false
        if !isExpired || useExpiredDataIfLoaderNotAvailable,
            let value = try? coder.decode(entry.value, of: key.provider)
        {
            return Record(
                reply: Reply(source: .init(entry.source), cacheables: value), isExpired: isExpired,
                version: entry.version)
        }
        // By version, as another task may have stored a record since.
        try records.removeValue(for: key, ifVersion: entry.version)
        return nil
    }

    /// Returns false and changes nothing if the condition does not hold.
    private func save(_ data: Data, _ provider: some CacheProvider, _ key: RecordKey, _ condition: Condition)
        throws(ShaleError) -> Bool
    {
        try records.insert(
            data, for: key, maxAge: provider.lifeCache?.age, tags: key.tags, pinned: !provider.expirable(),
            if: condition) != nil
    }

    private func check(_ evict: EvictProvider?, _ key: RecordKey) throws(ProviderCacheError) {
        if evict is EvictDynamicKeyGroup {
            if key.group == nil { throw .groupMissing(provider: key.provider) }
        } else if evict is EvictDynamicKey, key.dynamicKey == nil {
            throw .dynamicKeyMissing(provider: key.provider)
        }
    }

    private func remove(_ evict: EvictProvider?, _ key: RecordKey) throws(ShaleError) {
        if evict is EvictDynamicKeyGroup {
            try records.removeValue(for: key)
        } else if evict is EvictDynamicKey, let tag = key.dynamicKeyTag {
            try records.removeAll(tagged: tag)
        } else {
            try records.removeAll(tagged: key.providerTag)
        }
    }
}
