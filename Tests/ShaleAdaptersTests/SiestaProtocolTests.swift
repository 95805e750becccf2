import Dispatch
import Foundation
import Shale
import ShaleAdapters
import Synchronization
import Testing

/// Siesta's protocols, as its sources declare them.
enum SiestaSources {
    /// The released one.
    protocol EntityCache {
        associatedtype Key
        func key(for resource: Resource) -> Key?
        func readEntity(forKey key: Key) -> Resource.Entity<Any>?
        func writeEntity(_ entity: Resource.Entity<Any>, forKey key: Key)
        func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key)
        func removeEntity(forKey key: Key)
        var workQueue: DispatchQueue { get }
    }

    /// The later one, with a content type and errors.
    protocol TypedEntityCache {
        associatedtype Key
        associatedtype ContentType
        func key(for resource: Resource) -> Key?
        func readEntity(forKey key: Key) throws -> Resource.Entity<ContentType>?
        func writeEntity(_ entity: Resource.Entity<ContentType>, forKey key: Key) throws
        func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key) throws
        func removeEntity(forKey key: Key) throws
        var workQueue: DispatchQueue { get }
    }
}

extension ShaleEntityCache: SiestaSources.EntityCache {}
extension ShaleEntityCache: SiestaSources.TypedEntityCache {}

@Suite("Siesta: a project's own protocol", .timeLimit(.minutes(30)))
struct SiestaProtocolTests {
    private typealias Story = SiestaSupport.Story
    private let resource = Resource(url: URL(filePath: "/news")) { _ in .notModified }

    private func cache() throws -> ShaleEntityCache<URL, Story> {
        try ShaleEntityCache(in: Store(at: nil, options: .init(capacity: 4 << 20)), named: "stories")
    }

    @Test("An empty extension satisfies Siesta's protocol, and works as documented")
    func released() throws {
        func exercise<Cache: SiestaSources.EntityCache>(_ cache: Cache) throws {
            let key = try #require(cache.key(for: resource))
            #expect(cache.readEntity(forKey: key) == nil)
            cache.writeEntity(
                Resource.Entity<Any>(content: Story(title: "stored"), headers: ["ETag": "v1"], timestamp: 1000),
                forKey: key)
            cache.updateEntityTimestamp(2000, forKey: key)
            let entity = try #require(cache.workQueue.sync { cache.readEntity(forKey: key) })
            #expect(entity.content as? Story == Story(title: "stored"))
            #expect(entity.etag == "v1" && entity.timestamp == 2000)
            cache.writeEntity(Resource.Entity<Any>(content: { 1 }, headers: [:]), forKey: key)
            #expect(cache.readEntity(forKey: key)?.etag == "v1", "a function cannot be encoded")
            cache.removeEntity(forKey: key)
            #expect(cache.readEntity(forKey: key) == nil)
        }
        try exercise(cache())
    }

    @Test("An empty extension satisfies Siesta's later protocol, with a content type")
    func typed() throws {
        func exercise<Cache: SiestaSources.TypedEntityCache>(_ cache: Cache) throws where Cache.ContentType == Story {
            let key = try #require(cache.key(for: resource))
            try cache.writeEntity(.story("stored"), forKey: key)
            try cache.updateEntityTimestamp(2000, forKey: key)
            #expect(try cache.readEntity(forKey: key) == Resource.Entity<Story>.story("stored", timestamp: 2000))
            try cache.removeEntity(forKey: key)
            #expect(try cache.readEntity(forKey: key) == nil)
        }
        try exercise(cache())
    }

    @Test("E7 A custom cache has a default work queue and default timestamps")
    func defaults() async throws {
        final class Dictionary: ShaleAdapters.EntityCache {
            private let entities = Mutex<[String: Resource.Entity<Story>]>([:])
            func key(for resource: Resource) -> String? { resource.url.path }
            func readEntity(forKey key: String) -> Resource.Entity<Story>? { entities.withLock { $0[key] } }
            func writeEntity(_ entity: Resource.Entity<Story>, forKey key: String) {
                entities.withLock { $0[key] = entity }
            }
            func removeEntity(forKey key: String) { entities.withLock { $0[key] = nil } }
        }
        let cache = Dictionary()
        cache.updateEntityTimestamp(2000, forKey: "/news")
        #expect(cache.readEntity(forKey: "/news") == nil)
        let resource = Resource(
            url: URL(filePath: "/news"), cache: cache, now: { Date(timeIntervalSinceReferenceDate: 3000) },
            loader: { stored in
                stored == nil ? .newData(.story("loaded")) : .notModified
            })
        try await resource.load()
        #expect(cache.readEntity(forKey: "/news")?.timestamp == 1000)
        try await resource.load()
        #expect(cache.readEntity(forKey: "/news")?.timestamp == 3000)
    }
}
