import Dispatch
#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

/// Where a ``Resource`` keeps its entity between runs of the program.
///
/// A resource asks for the key from any thread, and calls everything else on the cache's work queue. Its changes come one at a time, in
/// their order; a read, and calls for other resources, may come at the same time.
public protocol EntityCache: Sendable {
    /// What the cache looks entities up by. A resource passes it on and looks at nothing in it.
    associatedtype Key: Sendable
    /// What the cache can store. A resource with other content bypasses it.
    associatedtype ContentType: Sendable

    /// The key for a resource, for reads and writes. Nil: the cache has nothing to do with it.
    func key(for resource: Resource) -> Key?
    /// The entity as it was written last, or nil.
    func readEntity(forKey key: Key) -> Entity<ContentType>?
    /// Stores the entity. What is not fit to be stored may be ignored.
    func writeEntity(_ entity: Entity<ContentType>, forKey key: Key)
    /// What tells later whether the key's entity was changed from now on; nil: the cache does not know. A resource asks
    /// before each load.
    func fence(forKey key: Key) -> EntityFence?
    /// Stores the entity, which was loaded, unless its key's was changed since the fence was asked for.
    func writeEntity(_ entity: Entity<ContentType>, forKey key: Key, ifUntouchedSince fence: EntityFence)
    /// Gives the stored entity another timestamp, in seconds since the reference date. Does nothing where there is none.
    func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key)
    /// The same, if what is stored is still the entity that was found to be valid at that time.
    func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key, of validated: Entity<ContentType>)
    /// Removes the entity: until the next write, reads return nil.
    func removeEntity(forKey key: Key)
    /// Where the cache does its work.
    var workQueue: DispatchQueue { get }
}

/// Since when a load may have looked at its origin, as the cache counts.
public struct EntityFence: Sendable {
    let condition: Condition
}

extension EntityCache {
    /// The cache does not know what others do.
    public func fence(forKey key: Key) -> EntityFence? { nil }
    public func writeEntity(_ entity: Entity<ContentType>, forKey key: Key, ifUntouchedSince fence: EntityFence) {
        writeEntity(entity, forKey: key)
    }

    /// The cache does not know whether it is.
    public func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key, of validated: Entity<ContentType>) {
        updateEntityTimestamp(timestamp, forKey: key)
    }

    /// The concurrent queue for what the user waits for.
    public var workQueue: DispatchQueue { .global(qos: .userInitiated) }

    /// Reads the entity and writes it with the new timestamp. Not atomic: a cache that others write to at the same time does better.
    public func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key) {
        guard var entity = readEntity(forKey: key) else { return }
        entity.timestamp = timestamp
        writeEntity(entity, forKey: key)
    }
}

/// What a resource asks of its cache: each call runs on the work queue, unless the cache has no key for the resource.
extension EntityCache {
    func read(for resource: Resource) async -> Entity<any Sendable>? {
        await onWorkQueue(for: resource) { $0.readEntity(forKey: $1)?.withContentRetyped() } ?? nil
    }

    /// Content of a type that the cache cannot store is skipped.
    func write(_ entity: Entity<any Sendable>, for resource: Resource, since fence: EntityFence?) async {
        guard let entity: Entity<ContentType> = entity.withContentRetyped() else { return }
        await onWorkQueue(for: resource) {
            if let fence {
                $0.writeEntity(entity, forKey: $1, ifUntouchedSince: fence)
            } else {
                $0.writeEntity(entity, forKey: $1)
            }
        }
    }

    func fence(for resource: Resource) async -> EntityFence? {
        await onWorkQueue(for: resource) { $0.fence(forKey: $1) } ?? nil
    }

    func updateTimestamp(_ timestamp: TimeInterval, for resource: Resource, of validated: Entity<any Sendable>) async {
        guard let validated: Entity<ContentType> = validated.withContentRetyped() else { return }
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
