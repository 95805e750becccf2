import Dispatch
#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// An ``EntityCache`` in a Shale store: persistent, bounded by the store's capacity, and shared by all processes that
/// open the store.
///
/// ```swift
/// let store = try Store(at: "/var/cache/news", options: .init(capacity: 64 << 20))
/// let cache = try ShaleEntityCache<URL, Story>(in: store, named: "stories")
/// ```
///
/// Entities do not expire in the store; a resource compares their timestamps with ``Resource/expirationTime``. All
/// methods are safe to call from any thread. They do not throw: a failed read is a miss, and `onFailure` gets each
/// error.
public struct ShaleEntityCache<Key: Hashable & Codable & Sendable, Content: Codable & Sendable>: EntityCache {
    public typealias ContentType = Content
    public let workQueue: DispatchQueue
    private let entities: Cache<Key, Resource.Entity<Content>>
    private let keyForResource: @Sendable (Resource) -> Key?
    private let onFailure: @Sendable (ShaleError) -> Void

    /// - Parameters:
    ///   - store: Holds the entities; it may also hold other caches.
    ///   - name: Separates this cache from others in the store; at most 255 bytes of UTF-8. Caches with different
    ///     content types or coders need different names.
    ///   - memoryEntries: The number of decoded entities to keep in memory; 0: none.
    ///   - coder: Encodes and decodes content.
    ///   - workQueue: The queue on which resources call this cache.
    ///   - onFailure: Called on the calling thread with the error of a failed read, encoding, write or removal.
    ///   - key: The key for a resource. It has to distinguish URLs and, if users must not see each other's data, users.
    ///     Nil: the resource is not cached.
    public init(
        in store: Store, named name: String, memoryEntries: Int = 256, coder: Coder<Content> = .standard,
        workQueue: DispatchQueue = .global(qos: .userInitiated),
        onFailure: @escaping @Sendable (ShaleError) -> Void = { _ in },
        key: @escaping @Sendable (Resource) -> Key?
    ) throws(ShaleError) {
        let coder = EntityCoder(content: coder)
        entities = try Cache(
            in: store, named: name, maxAge: .forever, memoryEntries: memoryEntries,
            coder: Coder(encode: coder.encode, decode: coder.decode))
        self.workQueue = workQueue
        self.onFailure = onFailure
        keyForResource = key
    }

    public func key(for resource: Resource) -> Key? { keyForResource(resource) }

    public func readEntity(forKey key: Key) -> Resource.Entity<Content>? {
        reporting { () throws(ShaleError) in try entities.value(for: key) } ?? nil
    }

    /// The entity if its content is of the type that the context requires, for example `Any`.
    public func readEntity<Expected>(forKey key: Key) -> Resource.Entity<Expected>? {
        let entity: Resource.Entity<Content>? = readEntity(forKey: key)
        return entity?.withContentRetyped()
    }

    /// Stores the entity. Ignores content of another type than this cache's, and content that the coder cannot encode.
    public func writeEntity<Given>(_ entity: Resource.Entity<Given>, forKey key: Key) {
        guard let entity: Resource.Entity<Content> = entity.withContentRetyped() else { return }
        reporting { () throws(ShaleError) in _ = try entities.insert(entity, for: key) }
    }

    public func fence(forKey key: Key) -> EntityFence? {
        reporting { () throws(ShaleError) in EntityFence(condition: try entities.fence(for: key)) }
    }

    /// Like ``writeEntity(_:forKey:)``, for a loaded entity: stores nothing if any process has written or removed the
    /// key's entity since the fence.
    public func writeEntity(_ entity: Resource.Entity<Content>, forKey key: Key, ifUnchangedSince fence: EntityFence) {
        reporting { () throws(ShaleError) in _ = try entities.insert(entity, for: key, if: fence.condition) }
    }

    /// Sets the timestamp of the stored entity, in seconds since the reference date. Does nothing if there is none, or
    /// if another caller or process replaces it at the same time.
    public func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key) {
        updateTimestamp(timestamp, forKey: key) { _ in true }
    }

    /// The same, if the stored entity is the one that was validated, which means that it has the same timestamp and
    /// etag.
    public func updateEntityTimestamp(
        _ timestamp: TimeInterval, forKey key: Key, of validated: Resource.Entity<Content>
    ) {
        updateTimestamp(timestamp, forKey: key) { $0.timestamp == validated.timestamp && $0.etag == validated.etag }
    }

    private func updateTimestamp(
        _ timestamp: TimeInterval, forKey key: Key, if isMeant: (Resource.Entity<Content>) -> Bool
    ) {
        reporting { () throws(ShaleError) in
            guard let stored = try entities.entry(for: key), isMeant(stored.value) else { return }
            var entity = stored.value
            entity.timestamp = timestamp
            _ = try entities.insert(entity, for: key, ifVersion: stored.version)
        }
    }

    /// Removes the entity: until the next write, reads return nil, in all processes.
    public func removeEntity(forKey key: Key) {
        reporting { () throws(ShaleError) in _ = try entities.removeValue(for: key) }
    }

    @discardableResult
    private func reporting<Result>(_ work: () throws(ShaleError) -> Result) -> Result? {
        do throws(ShaleError) { return try work() } catch {
            onFailure(error)
            return nil
        }
    }
}

extension ShaleEntityCache where Key == URL {
    /// The same, with the resource's URL as its key.
    public init(
        in store: Store, named name: String, memoryEntries: Int = 256, coder: Coder<Content> = .standard,
        workQueue: DispatchQueue = .global(qos: .userInitiated),
        onFailure: @escaping @Sendable (ShaleError) -> Void = { _ in }
    ) throws(ShaleError) {
        try self.init(
            in: store, named: name, memoryEntries: memoryEntries, coder: coder, workQueue: workQueue,
            onFailure: onFailure
        ) { $0.url }
    }
}
