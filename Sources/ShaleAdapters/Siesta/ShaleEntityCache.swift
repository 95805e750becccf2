import Dispatch
#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// An ``EntityCache`` in a Shale store: it survives restarts and `kill -9`, is bounded by the store's capacity, and is shared by all
/// processes that open the store.
///
/// ```swift
/// let store = try Store(at: "/var/cache/news", options: .init(capacity: 64 << 20))
/// let cache = try ShaleEntityCache<URL, Story>(in: store, named: "stories")
/// ```
///
/// Entities do not expire; ``Resource/expirationTime`` judges their timestamps. Every method may be called from any thread. None
/// throws: reads that fail are misses, and what failed is given to `onFailure`.
public struct ShaleEntityCache<Key: Hashable & Codable & Sendable, Content: Codable & Sendable>: EntityCache {
    public typealias ContentType = Content
    public let workQueue: DispatchQueue
    private let entities: Cache<Key, Entity<Content>>
    private let keyForResource: @Sendable (Resource) -> Key?
    private let onFailure: @Sendable (ShaleError) -> Void

    /// - Parameters:
    ///   - store: Where the entities are, perhaps beside other caches.
    ///   - name: What tells this cache from others in the store, at most 255 bytes of UTF-8. Give caches whose content or coder differs names that differ.
    ///   - memoryEntries: Decoded entities that are kept in memory; 0: none.
    ///   - coder: How content becomes bytes.
    ///   - workQueue: Where resources call this cache.
    ///   - onFailure: Is told, on the calling thread, what could not be read, encoded, written or removed, and why.
    ///   - key: The key for a resource, at least as distinctive as its URL; where users must not see each other's data, with the user in it.
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

    public func readEntity(forKey key: Key) -> Entity<Content>? {
        reporting { () throws(ShaleError) in try entities.value(for: key) } ?? nil
    }

    /// The entity if its content is of the type that the context asks for, `Any` for one.
    public func readEntity<Expected>(forKey key: Key) -> Entity<Expected>? {
        let entity: Entity<Content>? = readEntity(forKey: key)
        return entity?.withContentRetyped()
    }

    /// Stores the entity. Content of another type than this cache's, or that its coder cannot encode, is skipped: what was stored stays.
    public func writeEntity<Given>(_ entity: Entity<Given>, forKey key: Key) {
        guard let entity: Entity<Content> = entity.withContentRetyped() else { return }
        reporting { () throws(ShaleError) in _ = try entities.insert(entity, for: key) }
    }

    public func fence(forKey key: Key) -> EntityFence? {
        reporting { () throws(ShaleError) in EntityFence(condition: try entities.fence(for: key)) }
    }

    /// As ``writeEntity(_:forKey:)``, for an entity that was loaded: not over what somebody, perhaps in another process, has written
    /// since, nor after a removal.
    public func writeEntity(_ entity: Entity<Content>, forKey key: Key, ifUntouchedSince fence: EntityFence) {
        reporting { () throws(ShaleError) in _ = try entities.insert(entity, for: key, if: fence.condition) }
    }

    /// Gives the stored entity another timestamp, in seconds since the reference date. Does nothing where there is none, and leaves an
    /// entity alone that somebody else, perhaps in another process, is just replacing.
    public func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key) {
        updateTimestamp(timestamp, forKey: key) { _ in true }
    }

    /// The same, if the stored entity is the one that was found to be valid: one that somebody else has stored meanwhile, with another
    /// timestamp or validator, is left alone.
    public func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key, of validated: Entity<Content>) {
        updateTimestamp(timestamp, forKey: key) { $0.timestamp == validated.timestamp && $0.etag == validated.etag }
    }

    private func updateTimestamp(_ timestamp: TimeInterval, forKey key: Key, if isMeant: (Entity<Content>) -> Bool) {
        reporting { () throws(ShaleError) in
            guard let stored = try entities.entry(for: key), isMeant(stored.value) else { return }
            var entity = stored.value
            entity.timestamp = timestamp
            _ = try entities.replace(stored.version, with: entity, for: key)
        }
    }

    /// Removes the entity: until the next write, reads return nil, in all processes.
    public func removeEntity(forKey key: Key) {
        reporting { () throws(ShaleError) in _ = try entities.remove(key) }
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
