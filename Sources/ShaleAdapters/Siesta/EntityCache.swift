import Dispatch
#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

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
    /// Gives the stored entity another timestamp, in seconds since the reference date. Does nothing where there is none.
    func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key)
    /// Removes the entity: until the next write, reads return nil.
    func removeEntity(forKey key: Key)
    /// Where the cache does its work.
    var workQueue: DispatchQueue { get }
}

extension EntityCache {
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
    func write(_ entity: Entity<any Sendable>, for resource: Resource) async {
        guard let entity: Entity<ContentType> = entity.withContentRetyped() else { return }
        await onWorkQueue(for: resource) { $0.writeEntity(entity, forKey: $1) }
    }

    func updateTimestamp(_ timestamp: TimeInterval, for resource: Resource) async {
        await onWorkQueue(for: resource) { $0.updateEntityTimestamp(timestamp, forKey: $1) }
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
