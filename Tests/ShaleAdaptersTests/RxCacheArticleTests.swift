import Foundation
import ShaleAdapters
import Synchronization
import Testing

/// What Documentation/migrating/rxcache.md shows, as it shows it.
@Suite("RxCache: the article", .timeLimit(.minutes(30)))
struct RxCacheArticleTests {
    struct Mock: Codable, Sendable, Equatable {
        var id: Int
        var isActive = true
    }

    final class API: Sendable {
        private let loads = Mutex(0)
        var calls: Int { loads.withLock { $0 } }

        @Sendable func getMocks() async throws -> [Mock] {
            loads.withLock { $0 += 1 }
            return [Mock(id: 5, isActive: true), Mock(id: 6, isActive: false)]
        }
    }

    enum CacheProviders: CacheProvider {
        case getMocks(evict: Bool)
        case getMocksFiltered(filter: String, page: Int, evict: Bool)
        case getSettings

        var lifeCache: LifeCache? {
            switch self {
            case .getMocks: LifeCache(duration: 5, timeUnit: .minutes)
            default: nil
            }
        }
        var dynamicKeyGroup: DynamicKeyGroup? {
            switch self {
            case .getMocksFiltered(let filter, let page, _): DynamicKeyGroup(dynamicKey: filter, group: String(page))
            default: nil
            }
        }
        var evict: EvictProvider? {
            switch self {
            case .getMocks(let evict): EvictProvider(evict: evict)
            case .getMocksFiltered(_, _, let evict): EvictDynamicKey(evict: evict)
            default: nil
            }
        }
        func expirable() -> Bool {
            if case .getSettings = self { false } else { true }
        }
    }

    struct MockRepository {
        let providers: ProviderCache
        let api: API

        func getMocks(update: Bool) async throws -> [Mock] {
            try await providers.cache(api.getMocks, provider: CacheProviders.getMocks(evict: update))
        }
    }

    private let files = RxCacheSupport.Directory()

    @Test("Providers and requests")
    func requests() async throws {
        let directory = files.url, api = API(), shown = Mutex<[[Mock]]>([])
        func show(_ mocks: [Mock]) { shown.withLock { $0.append(mocks) } }
        func report(_ error: any Error) { Issue.record(error) }

        let repository = MockRepository(providers: try ProviderCache(at: directory), api: api)
        do { show(try await repository.getMocks(update: true)) } catch { report(error) }

        do { show(try await repository.getMocks(update: false)) } catch { report(error) }
        #expect(api.calls == 1)
        do { show(try await repository.getMocks(update: true)) } catch { report(error) }
        #expect(api.calls == 2)
        #expect(
            shown.withLock { $0 }
                == Array(repeating: [Mock(id: 5, isActive: true), Mock(id: 6, isActive: false)], count: 3))
    }

    @Test("A page of a filter is evicted with the others of its filter, and settings are never evicted for space")
    func scopes() async throws {
        let providers = try ProviderCache(at: files.url), api = API()
        func page(_ page: Int, of filter: String, evict: Bool = false) async throws {
            _ = try await providers.cache(
                api.getMocks, provider: CacheProviders.getMocksFiltered(filter: filter, page: page, evict: evict))
        }
        for filter in ["new", "old"] { for number in 1...2 { try await page(number, of: filter) } }
        try await page(1, of: "new", evict: true)
        #expect(api.calls == 5)
        for filter in ["new", "old"] { for number in 1...2 { try await page(number, of: filter) } }
        #expect(api.calls == 6)
        #expect(!CacheProviders.getSettings.expirable() && CacheProviders.getMocks(evict: false).expirable())
    }

    @Test("Actions")
    func actions() async throws {
        let providers = try ProviderCache(
            at: files.url, maxMBPersistenceCache: 100, useExpiredDataIfLoaderNotAvailable: true)
        let mock = Mock(id: 1), api = API()
        _ = try await providers.cache(api.getMocks, provider: CacheProviders.getMocks(evict: false))

        try await ProviderCache.Actions<Mock>.with(CacheProviders.getMocks(evict: false), in: providers)
            .addFirst(mock)
            .evictLast { count in count > 300 }
            .evictIterable { position, count, mock in !mock.isActive }
            .update({ mock in mock.id == 5 }, replace: { mock in Mock(id: mock.id, isActive: true) })
            .result()

        let reply = try await providers.cacheWithReply(api.getMocks, provider: CacheProviders.getMocks(evict: false))
        #expect(reply == Reply(source: .memory, cacheables: [mock, Mock(id: 5)]))
        #expect(api.calls == 1)
        try providers.evictAll()
        #expect(
            try await providers.cacheWithReply(api.getMocks, provider: CacheProviders.getMocks(evict: false)).source
                == .cloud)
    }
}
