import Dispatch
#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

/// Persists the entities of ``Resource``s between runs of the program.
///
/// A resource calls `key(for:)` on any thread, and all other methods on the cache's work queue. The changes of one
/// resource arrive one at a time, in order; reads, and calls for other resources, may be concurrent.
public protocol EntityCache: Sendable {
    /// The key of an entity. Opaque to the resource.
    associatedtype Key: Sendable
    /// The content that the cache can store. A resource with other content bypasses it.
    associatedtype ContentType: Sendable

    /// The key for a resource, for reads and writes. Nil: the resource is not cached.
    func key(for resource: Resource) -> Key?
    /// The entity that was written last, or nil.
    func readEntity(forKey key: Key) -> Resource.Entity<ContentType>?
    /// Stores the entity. The cache may ignore entities that it cannot store.
    func writeEntity(_ entity: Resource.Entity<ContentType>, forKey key: Key)
    /// A fence that detects later changes to the key's entity; nil: the cache does not support fences. A resource calls
    /// this before each load.
    func fence(forKey key: Key) -> EntityFence?
    /// Stores a loaded entity, unless the key's entity has changed since the fence.
    func writeEntity(_ entity: Resource.Entity<ContentType>, forKey key: Key, ifUnchangedSince fence: EntityFence)
    /// Sets the timestamp of the stored entity, in seconds since the reference date. Does nothing if there is none.
    func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key)
    /// The same, if the stored entity is still the one that was validated.
    func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key, of validated: Resource.Entity<ContentType>)
    /// Removes the entity: until the next write, reads return nil.
    func removeEntity(forKey key: Key)
    /// The queue for the cache's work.
    var workQueue: DispatchQueue { get }
}

/// The state of the cache before a load.
public struct EntityFence: Sendable {
    let condition: Condition
}

extension EntityCache {
    /// Nil: does not support fences.
    public func fence(forKey key: Key) -> EntityFence? { nil }
    public func writeEntity(
        _ entity: Resource.Entity<ContentType>, forKey key: Key, ifUnchangedSince fence: EntityFence
    ) {
        writeEntity(entity, forKey: key)
    }

    /// Does not check the stored entity.
    public func updateEntityTimestamp(
        _ timestamp: TimeInterval, forKey key: Key, of validated: Resource.Entity<ContentType>
    ) {
        updateEntityTimestamp(timestamp, forKey: key)
    }

    /// The global concurrent queue for user-initiated work.
    public var workQueue: DispatchQueue { .global(qos: .userInitiated) }

    /// Reads the entity and writes it with the new timestamp. Not atomic: caches with concurrent writers should
    /// implement it.
    public func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key) {
        guard var entity = readEntity(forKey: key) else { return }
        entity.timestamp = timestamp
        writeEntity(entity, forKey: key)
    }
}

/// The calls of a resource. Each runs on the work queue, unless the cache has no key for the resource.
extension EntityCache {
    func read(for resource: Resource) async -> Resource.Entity<any Sendable>? {
        await onWorkQueue(for: resource) { $0.readEntity(forKey: $1)?.withContentRetyped() } ?? nil
    }

    /// Skips content of a type that the cache cannot store.
    func write(_ entity: Resource.Entity<any Sendable>, for resource: Resource, since fence: EntityFence?) async {
        guard let entity: Resource.Entity<ContentType> = entity.withContentRetyped() else { return }
        await onWorkQueue(for: resource) {
            if let fence {
                $0.writeEntity(entity, forKey: $1, ifUnchangedSince: fence)
            } else {
                $0.writeEntity(entity, forKey: $1)
            }
        }
    }

    func fence(for resource: Resource) async -> EntityFence? {
        await onWorkQueue(for: resource) { $0.fence(forKey: $1) } ?? nil
    }

    func updateTimestamp(_ timestamp: TimeInterval, for resource: Resource, of validated: Resource.Entity<any Sendable>)
        async
    {
        guard let validated: Resource.Entity<ContentType> = validated.withContentRetyped() else { return }
        await onWorkQueue(for: resource) { $0.updateEntityTimestamp(timestamp, forKey: $1, of: validated) }
    }

    func remove(for resource: Resource) async {
        await onWorkQueue(for: resource) { $0.removeEntity(forKey: $1) }
    }

    @discardableResult
    private func onWorkQueue<Result: Sendable>(
        for resource: Resource, _ work: @escaping @Sendable (Self, Key) -> Result
    ) async -> Result? {
        guard let key = key(for: resource) else { return nil }
        return await withCheckedContinuation { continuation in
            workQueue.async { continuation.resume(returning: work(self, key)) }
        }
    }
}
