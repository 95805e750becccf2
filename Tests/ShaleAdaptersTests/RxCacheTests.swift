import Foundation
import Shale
import ShaleAdapters
import Testing

@Suite("RxCache: providers", .timeLimit(.minutes(30)))
struct RxCacheTests {
    typealias Mock = RxCacheSupport.Mock
    typealias Provider = RxCacheSupport.Provider
    typealias Origin = RxCacheSupport.Origin
    typealias Offline = RxCacheSupport.Offline

    enum Providers: CacheProvider {
        case getMocks
        case getMocksOfPage(Int, evict: Bool)
        case getMocksFiltered(filter: String, page: Int)

        var dynamicKey: DynamicKey? {
            if case .getMocksOfPage(let page, _) = self { DynamicKey(dynamicKey: String(page)) } else { nil }
        }
        var dynamicKeyGroup: DynamicKeyGroup? {
            if case .getMocksFiltered(let filter, let page) = self {
                DynamicKeyGroup(dynamicKey: filter, group: String(page))
            } else {
                nil
            }
        }
        var evict: EvictProvider? {
            if case .getMocksOfPage(_, let evict) = self { EvictDynamicKey(evict: evict) } else { nil }
        }
    }

    private let directory = RxCacheSupport.Directory()
    private let clock = RxCacheSupport.Clock()

    private func open(maxMB: Int = 4, useExpired: Bool = false, memoryEntries: Int = 256) throws -> ProviderCache {
        try ProviderCache(
            at: directory.url, maxMBPersistenceCache: maxMB, useExpiredDataIfLoaderNotAvailable: useExpired,
            memoryEntries: memoryEntries, now: clock.now)
    }

    /// The records on disk, expired or not.
    private func recordsOnDisk() throws -> UInt64 { try Store(at: directory.url.path).statistics().entries }

    // MARK: Requests

    @Test("R1 nothing runs before the result is awaited")
    func lazy() async throws {
        let cache = try open(), origin = Origin([2])
        try await cache.put([1], Provider())
        let request = { try await cache.cache(origin.mocks, provider: Provider(evict: EvictProvider(evict: true))) }
        #expect(origin.calls == 0)
        #expect(await cache.ids(Provider()) == [1])
        #expect(try await request() == [Mock(id: 2)])
        #expect(origin.calls == 1)
        #expect(try await request() == [Mock(id: 2)])
        #expect(origin.calls == 2)
    }

    @Test(
        "a record that was loaded before evictAll is not stored, whether or not the load evicts",
        arguments: [false, true])
    func evictedMeanwhile(evicts: Bool) async throws {
        let cache = try open(), other = try open()
        if evicts { try await cache.put([1], Provider()) }
        let loaded = try await cache.cache(
            {
                try other.evictAll()
                return [Mock(id: 2)]
            }, provider: Provider(evict: EvictProvider(evict: evicts)))
        #expect(loaded == [Mock(id: 2)])
        #expect(try await cache.cache({ [Mock(id: 3)] }, provider: Provider()) == [Mock(id: 3)])
        #expect(await cache.ids(Provider()) == [3])
    }

    @Test("R2 the source is the loader, then memory; after memory is lost persistence, then memory")
    func sources() async throws {
        let origin = Origin([1, 2])
        var cache = try open()
        func source() async throws -> Reply<[Mock]>.Source {
            let reply = try await cache.cacheWithReply(origin.mocks, provider: Provider(seconds: 60))
            #expect(reply.cacheables.map(\.id) == [1, 2])
            return reply.source
        }
        #expect(try await source() == .cloud)
        #expect(try await source() == .memory)
        cache = try open()
        #expect(try await source() == .persistence)
        #expect(try await source() == .memory)
        #expect(origin.calls == 1)
        cache = try open(memoryEntries: 0)
        #expect(try await source() == .persistence)
        #expect(try await source() == .persistence)
        #expect(
            [Reply<[Mock]>.Source.memory, .persistence, .cloud].map(\.rawValue) == ["Memory", "Persistence", "Cloud"])
    }

    @Test("R3 a record's key is provider, dynamic key, group")
    func keys() async throws {
        let cache = try open()
        // Parts whose concatenation would be the same.
        let providers = [
            Provider("a"), Provider("ab"), Provider("a", key: ""), Provider("a", key: "b"), Provider("a", key: "bc"),
            Provider("ab", key: "c"),
            Provider("a", group: ("b", "")), Provider("a", group: ("b", "c")), Provider("a", group: ("bc", "")),
            Provider("a", group: ("", "b")),
        ]
        for (id, provider) in providers.enumerated() { try await cache.put([id], provider) }
        for (id, provider) in providers.enumerated() { #expect(await cache.ids(provider) == [id]) }
        // The group's key has precedence.
        #expect(await cache.ids(Provider("a", key: "x", group: ("b", "c"))) == [7])
    }

    @Test("R3 the provider key is the case's name without its arguments")
    func caseNames() async throws {
        #expect(Providers.getMocks.providerKey == "getMocks")
        #expect(Providers.getMocksOfPage(1, evict: true).providerKey == "getMocksOfPage")
        #expect(Providers.getMocksFiltered(filter: "a(b)", page: 2).providerKey == "getMocksFiltered")
        let cache = try open(), origin = Origin([1])
        for evict in [false, false, true] {
            _ = try await cache.cache(origin.mocks, provider: Providers.getMocksOfPage(1, evict: evict))
        }
        #expect(origin.calls == 2)
        _ = try await cache.cache(origin.mocks, provider: Providers.getMocksOfPage(2, evict: false))
        _ = try await cache.cache(origin.mocks, provider: Providers.getMocksFiltered(filter: "1", page: 1))
        _ = try await cache.cache(origin.mocks, provider: Providers.getMocks)
        #expect(origin.calls == 5)
    }

    // MARK: Eviction

    /// Records with keys and groups of two providers, one of whose names is a prefix of the other.
    private let siblings = [
        Provider("get"), Provider("get", key: "1"), Provider("get", key: "2"), Provider("get", group: ("1", "a")),
        Provider("get", group: ("1", "b")),
        Provider("get", group: ("2", "a")), Provider("get=1"), Provider("getMore", key: "1"),
        Provider("getMore", group: ("1", "a")),
    ]

    /// The records that remain after an evicting provider has loaded one of them.
    private func left(afterEvicting evict: EvictProvider, at place: Int, in cache: ProviderCache) async throws -> [Int]
    {
        for (id, provider) in siblings.enumerated() { try await cache.put([id], provider) }
        _ = try await cache.cache(Origin([100]).mocks, provider: siblings[place].evicting(evict))
        var left: [Int] = []
        for provider in siblings { left += await cache.ids(provider) ?? [] }
        return left
    }

    @Test("R4 EvictProvider removes every record of the provider")
    func evictProvider() async throws {
        let cache = try open()
        for place in 0..<6 {
            #expect(try await left(afterEvicting: EvictProvider(evict: true), at: place, in: cache) == [100, 6, 7, 8])
        }
        #expect(
            try await left(afterEvicting: EvictProvider(evict: true), at: 6, in: cache) == [
                0, 1, 2, 3, 4, 5, 100, 7, 8,
            ])
    }

    @Test("R5 EvictDynamicKey removes all groups of that key only")
    func evictDynamicKey() async throws {
        let cache = try open()
        #expect(
            try await left(afterEvicting: EvictDynamicKey(evict: true), at: 1, in: cache) == [0, 100, 2, 5, 6, 7, 8])
        #expect(
            try await left(afterEvicting: EvictDynamicKey(evict: true), at: 4, in: cache) == [0, 2, 100, 5, 6, 7, 8])
        #expect(
            try await left(afterEvicting: EvictDynamicKey(evict: true), at: 8, in: cache) == [0, 1, 2, 3, 4, 5, 6, 100])
    }

    @Test("R6 EvictDynamicKeyGroup removes one record")
    func evictDynamicKeyGroup() async throws {
        #expect(
            try await left(afterEvicting: EvictDynamicKeyGroup(evict: true), at: 4, in: open()) == [
                0, 1, 2, 3, 100, 5, 6, 7, 8,
            ])
    }

    @Test(
        "R7 evict: false does not evict",
        arguments: [
            EvictProvider(evict: false), EvictDynamicKey(evict: false), EvictDynamicKeyGroup(evict: false),
        ] as [EvictProvider])
    func evictNothing(evict: EvictProvider) async throws {
        #expect(try await left(afterEvicting: evict, at: 4, in: open()) == Array(0..<9))
    }

    @Test(
        "R8 a scope without its key is an error with the original's message, and the loader is not called",
        arguments: [true, false])
    func scopes(isEvicting: Bool) async throws {
        let cache = try open(), origin = Origin([1])
        func message(_ provider: Provider) async -> String {
            do {
                _ = try await cache.cache(origin.mocks, provider: provider)
                return "no error"
            } catch { return "\(error)" }
        }
        let key = await message(Provider(evict: EvictDynamicKey(evict: isEvicting)))
        #expect(key.hasPrefix("getMocks: EvictDynamicKey was provided but not was provided any DynamicKey"))
        for provider in [Provider(), Provider(key: "1")] {
            let group = await message(provider.evicting(EvictDynamicKeyGroup(evict: isEvicting)))
            #expect(group.hasPrefix("getMocks: EvictDynamicKeyGroup was provided but not was provided any Group"))
        }
        #expect(origin.calls == 0)
        #expect(await message(Provider(key: "1", evict: EvictDynamicKey(evict: isEvicting))) == "no error")
        #expect(await message(Provider(group: ("1", "a"), evict: EvictDynamicKey(evict: isEvicting))) == "no error")
    }

    @Test("R9 eviction follows the loader's return; then the new data is saved")
    func order() async throws {
        let cache = try open(), page1 = Provider(key: "1"), page2 = Provider(key: "2")
        try await cache.put([1], page1)
        try await cache.put([2], page2)
        let loaded = try await cache.cache(
            {
                #expect(await cache.ids(page1) == [1])
                #expect(await cache.ids(page2) == [2])
                return [Mock(id: 3)]
            }, provider: page1.evicting(EvictProvider(evict: true)))
        #expect(loaded == [Mock(id: 3)])
        #expect(await cache.ids(page1) == [3])
        #expect(await cache.ids(page2) == nil)
    }

    // MARK: Failing loaders

    @Test("R10 loader error and no record: an error that names the provider")
    func noRecord() async throws {
        for useExpired in [false, true] {
            let cache = try open(useExpired: useExpired)
            let error = await #expect(throws: ProviderCacheError.self) {
                try await cache.cache(Origin(nil).mocks, provider: Provider("getMocks", key: "1"))
            }
            #expect(
                "\(try #require(error))".hasPrefix(
                    "getMocks: The Loader provided did not return any data and there is not data to load from the Cache: Offline"
                ))
            guard case .loaderFailed(provider: "getMocks", let cause) = error else {
                return #expect(Bool(false), "\(error as Any)")
            }
            #expect(cause is Offline)
        }
        #expect(try recordsOnDisk() == 0)
    }

    @Test("R11 evict and loader error: the old data with useExpiredDataIfLoaderNotAvailable, else the error")
    func evictAndError() async throws {
        let page = Provider(key: "1"), evicting = page.evicting(EvictProvider(evict: true))
        var cache = try open()
        try await cache.put([1], page)
        try await cache.put([2], Provider(key: "2"))
        await #expect(throws: ProviderCacheError.self) { try await cache.cache(Origin(nil).mocks, provider: evicting) }

        cache = try open(useExpired: true)
        let origin = Origin(nil)
        for source in [Reply<[Mock]>.Source.persistence, .memory] {
            #expect(
                try await cache.cacheWithReply(origin.mocks, provider: evicting)
                    == Reply(source: source, cacheables: [Mock(id: 1)]))
        }
        #expect(origin.calls == 2)
        // A failed loader evicts nothing.
        #expect(await cache.ids(Provider(key: "2")) == [2])
    }

    // MARK: Ages

    @Test(
        "R12 lifeCache nil or 0 never expires", arguments: [nil, 0, .infinity, .greatestFiniteMagnitude] as [Double?])
    func forever(seconds: Double?) async throws {
        let cache = try open(), provider = Provider(seconds: seconds)
        try await cache.put([1], provider)
        clock.advance(100 * 365 * 86400)
        #expect(await cache.ids(provider) == [1])
        #expect(await (try open()).ids(provider) == [1])
    }

    @Test(
        "R12 lifeCache uses its unit",
        arguments: [
            (LifeCache(duration: 5, timeUnit: .seconds), 5.0), (LifeCache(duration: 1.5, timeUnit: .minutes), 90),
            (LifeCache(duration: 2, timeUnit: .hours), 7200),
            (LifeCache(duration: 1, timeUnit: .days), 86400), (LifeCache(duration: -1, timeUnit: .days), 0),
        ] as [(LifeCache, Double)])
    func units(lifeCache: LifeCache, seconds: Double) async throws {
        var provider = Provider()
        provider.lifeCache = lifeCache
        let cache = try open()
        try await cache.put([1], provider)
        if seconds > 0 {
            clock.advance(seconds - 0.001)
            #expect(await cache.ids(provider) == [1])
            clock.advance(0.001)
        }
        #expect(await cache.ids(provider) == nil)
    }

    @Test("R13 the current lifeCache applies to records already stored")
    func currentAge() async throws {
        let cache = try open()
        try await cache.put([1], Provider(key: "shorter"))
        try await cache.put([2], Provider(seconds: 5, key: "longer"))
        try await cache.put([3], Provider(seconds: 5, key: "for ever"))
        clock.advance(10)
        // Stored forever.
        #expect(await cache.ids(Provider(seconds: 11, key: "shorter")) == [1])
        #expect(await cache.ids(Provider(seconds: 10, key: "shorter")) == nil)
        // Past the age that they were stored with.
        #expect(await cache.ids(Provider(seconds: 11, key: "longer")) == [2])
        #expect(await cache.ids(Provider(key: "for ever")) == [3])
        // Counted from storing, not from reading.
        clock.advance(1)
        #expect(await cache.ids(Provider(seconds: 11, key: "longer")) == nil)
    }

    @Test("R14 a read removes the expired record, and no sibling")
    func expiredRead() async throws {
        let cache = try open()
        for provider in siblings { try await cache.put([1], provider) }
        clock.advance(10)
        var aged = siblings[0]
        aged.lifeCache = LifeCache(duration: 10, timeUnit: .seconds)
        #expect(await cache.ids(aged) == nil)
        #expect(await cache.ids(siblings[0]) == nil)
        for provider in siblings.dropFirst() { #expect(await cache.ids(provider) == [1]) }
    }

    @Test("The flag can be set while the cache is open")
    func changedFlag() async throws {
        let cache = try open(), provider = Provider(seconds: 10)
        try await cache.put([1], provider)
        cache.useExpiredDataIfLoaderNotAvailable = true
        clock.advance(10)
        let loader: @Sendable () async throws -> [Mock] = { throw Offline() }
        #expect(try await cache.cache(loader, provider: provider) == [Mock(id: 1)])
        cache.useExpiredDataIfLoaderNotAvailable = false
        await #expect(throws: ProviderCacheError.self) { try await cache.cache(loader, provider: provider) }
    }

    @Test("R15 expired, flag off: the loader; its error is the error")
    func expired() async throws {
        let cache = try open(), provider = Provider(seconds: 10), origin = Origin([2])
        try await cache.put([1], provider)
        clock.advance(10)
        #expect(
            try await cache.cacheWithReply(origin.mocks, provider: provider)
                == Reply(source: .cloud, cacheables: [Mock(id: 2)]))
        #expect(await cache.ids(provider) == [2])
        clock.advance(10)
        let error = await #expect(throws: ProviderCacheError.self) {
            try await cache.cache(Origin(nil).mocks, provider: provider)
        }
        guard case .loaderFailed(_, is Offline) = error else { return #expect(Bool(false), "\(error as Any)") }
    }

    @Test("R16 expired, flag on: the loader is called first, and expired data is returned only if it fails")
    func expiredAndUsed() async throws {
        let provider = Provider(seconds: 10), origin = Origin([2]), unreachable = Origin(nil)
        var cache = try open(useExpired: true)
        try await cache.put([1], provider)
        clock.advance(10)
        #expect(
            try await cache.cacheWithReply(unreachable.mocks, provider: provider)
                == Reply(source: .memory, cacheables: [Mock(id: 1)]))
        // Again, and after a restart.
        cache = try open(useExpired: true)
        #expect(
            try await cache.cacheWithReply(unreachable.mocks, provider: provider)
                == Reply(source: .persistence, cacheables: [Mock(id: 1)]))
        #expect(unreachable.calls == 2)
        #expect(
            try await cache.cacheWithReply(origin.mocks, provider: provider)
                == Reply(source: .cloud, cacheables: [Mock(id: 2)]))
        #expect(
            try await cache.cacheWithReply(origin.mocks, provider: provider)
                == Reply(source: .memory, cacheables: [Mock(id: 2)]))
        #expect(origin.calls == 1)
    }

    // MARK: Space

    @Test("R17 expired records are removed from disk: at their next read, and when the cache is opened")
    func expiredLeave() async throws {
        let cache = try open()
        for key in ["1", "2", "3"] { try await cache.put([1], Provider(seconds: 10, key: key)) }
        try await cache.put([1], Provider(seconds: 11, key: "younger"))
        try await cache.put([1], Provider(key: "ageless"))
        clock.advance(10)
        #expect(try recordsOnDisk() == 5)
        #expect(await cache.ids(Provider(seconds: 10, key: "1")) == nil)
        #expect(try recordsOnDisk() == 4)
        // They are served if the loader fails.
        _ = try open(useExpired: true)
        #expect(try recordsOnDisk() == 4)
        let again = try open()
        #expect(try recordsOnDisk() == 2)
        #expect(await again.ids(Provider(seconds: 11, key: "younger")) == [1])
        #expect(await again.ids(Provider(key: "ageless")) == [1])
    }

    @Test("R18 maxMBPersistenceCache bounds the disk", arguments: [1, 3])
    func bounded(maxMB: Int) async throws {
        let cache = try open(maxMB: maxMB)
        for i in 0..<200 {
            let text = RxCacheSupport.noise(40_000, seed: i)
            _ = try await cache.cache({ text }, provider: Provider(key: String(i)))
            if i % 20 == 0 { #expect(try directory.bytes <= maxMB << 20) }
        }
        #expect(try directory.bytes <= maxMB << 20)
        #expect(try directory.bytes > maxMB << 19)
        #expect(try recordsOnDisk() > 8)
    }

    @Test("R18 maxMBPersistenceCache is 300 by default, and can be changed from one opening to the next")
    func limits() async throws {
        func capacity() throws -> UInt64 { try Store(at: directory.url.path).statistics().capacity }
        try await ProviderCache(at: directory.url).put([1], Provider())
        #expect(try capacity() == 300 << 20)
        let cache = try ProviderCache(at: directory.url, maxMBPersistenceCache: 100)
        #expect(try capacity() == 100 << 20)
        #expect(await cache.ids(Provider()) == [1])
        // The default does not change an existing cache.
        #expect(try await ProviderCache(at: directory.url.path).ids(Provider()) == [1])
        #expect(try capacity() == 100 << 20)
        let empty = RxCacheSupport.Directory()
        try FileManager.default.createDirectory(at: empty.url, withIntermediateDirectories: true)
        try await ProviderCache(at: empty.url).put([1], Provider())
        #expect(try Store(at: empty.url.path).statistics().capacity == 300 << 20)
    }

    @Test("a cache in memory is only opened on request")
    func inMemory() async throws {
        let cache = try ProviderCache.inMemory(maxMBPersistenceCache: 4)
        try await cache.put([1], Provider())
        #expect(await cache.ids(Provider()) == [1])
        #expect(throws: ShaleError.self) { try ProviderCache(at: "") }
    }

    @Test("a loader that returns nil is not available", arguments: [false, true])
    func loaderGivesNil(useExpired: Bool) async throws {
        let cache = try open(useExpired: useExpired)
        let nothing: @Sendable () async throws -> Int? = { nil }
        for evict in [false, true] {
            let provider = Provider("number", evict: EvictProvider(evict: evict))
            let error = await #expect(throws: ProviderCacheError.self) {
                try await cache.cache(nothing, provider: provider)
            }
            guard case .loaderFailed("number", is ProviderCacheError.LoaderGaveNil)? = error else {
                Issue.record("\(String(describing: error))")
                return
            }
        }
        #expect(try recordsOnDisk() == 0)

        let something: @Sendable () async throws -> Int? = { 7 }
        #expect(try await cache.cache(something, provider: Provider("number")) == 7)
        #expect(try await cache.cache(nothing, provider: Provider("number")) == 7)
        let evicting = Provider("number", evict: EvictProvider(evict: true))
        let answer = try? await cache.cache(nothing, provider: evicting)
        #expect(answer == (useExpired ? .some(7) : .none))
        // Evicts nothing.
        #expect(try await cache.cache(nothing, provider: Provider("number")) == 7)
        // A nil within a list is data.
        let list: @Sendable () async throws -> [Int?] = { [nil, 1] }
        #expect(try await cache.cache(list, provider: Provider("list")) == [nil, 1])
    }

    @Test("R18 an invalid limit is an error that names the directory and the limit", arguments: [0, -1, .max])
    func badLimit(maxMB: Int) throws {
        let error = #expect(throws: ShaleError.self) { try open(maxMB: maxMB) }
        #expect(error?.code == .invalid)
        #expect("\(try #require(error))".hasPrefix("\(directory.url.path): maxMBPersistenceCache is \(maxMB)"))
    }

    @Test("R19 near the limit expirable records are evicted, the least recently used first")
    func leastRecentlyUsed() async throws {
        let cache = try open(maxMB: 1, memoryEntries: 0)
        @Sendable func record(_ i: Int) -> Provider { Provider(seconds: i % 2 == 0 ? nil : 1000, key: String(i)) }
        let unreachable: @Sendable () async throws -> String = { throw Offline() }
        for i in 0..<100 {
            let text = RxCacheSupport.noise(20_000, seed: i)
            _ = try await cache.cache({ text }, provider: record(i))
            // The first one is used repeatedly.
            #expect(try await cache.cache(unreachable, provider: record(0)) == RxCacheSupport.noise(20_000, seed: 0))
        }
        var present: [Int] = []
        for i in 0..<100 where (try? await cache.cache(unreachable, provider: record(i))) != nil { present.append(i) }
        #expect(present.count > 8 && present.count < 60)
        #expect(present == [0] + Array((100 - present.count + 1)..<100))
    }

    @Test("R20 expirable() == false is never removed for space")
    func notExpirable() async throws {
        let pinned = Provider("getPinned", isExpirable: false),
            unreachable: @Sendable () async throws -> String = { throw Offline() }
        let cache = try open(maxMB: 1, memoryEntries: 0), text = RxCacheSupport.noise(20_000, seed: 0)
        #expect(try await cache.cache({ text }, provider: pinned) == text)
        for i in 1..<200 {
            let other = RxCacheSupport.noise(20_000, seed: i)
            _ = try await cache.cache({ other }, provider: Provider(key: String(i)))
        }
        #expect(try await cache.cache(unreachable, provider: pinned) == text)
        await #expect(throws: ProviderCacheError.self) {
            try await cache.cache(unreachable, provider: Provider(key: "1"))
        }
        // Removal and age apply to it as to any other record.
        #expect(try await cache.cache({ "new" }, provider: pinned.evicting(EvictProvider(evict: true))) == "new")
        clock.advance(10)
        #expect(await cache.ids(Provider("getPinned", seconds: 10)) == nil)
        #expect(await cache.ids(pinned) == nil)
    }

    @Test(
        "R20 a record without room because of pinned records is still returned",
        arguments: [nil, EvictProvider(evict: true)] as [EvictProvider?])
    func full(evict: EvictProvider?) async throws {
        let cache = try open(maxMB: 1)
        for i in 0..<30 {
            let text = RxCacheSupport.noise(40_000, seed: i)
            let reply = try await cache.cacheWithReply(
                { text }, provider: Provider("pinned \(i)", evict: evict, isExpirable: false))
            #expect(reply == Reply(source: .cloud, cacheables: text))
        }
        #expect(try recordsOnDisk() < 26)
        await #expect(throws: ShaleError.self) {
            try await ProviderCache.Actions<String>.with(Provider("another", isExpirable: false), in: cache).addFirst(
                RxCacheSupport.noise(200_000, seed: 0)
            ).result()
        }
    }

    @Test(
        "R21 eviction in every scope includes records that are only on disk, also after a restart",
        arguments: [
            (EvictProvider(evict: true), [100, 6, 7, 8]), (EvictDynamicKey(evict: true), [0, 2, 100, 5, 6, 7, 8]),
            (EvictDynamicKeyGroup(evict: true), [0, 1, 2, 100, 4, 5, 6, 7, 8]),
        ] as [(EvictProvider, [Int])])
    func evictOnDisk(evict: EvictProvider, expected: [Int]) async throws {
        func fill() async throws {
            let cache = try open()
            for (id, provider) in siblings.enumerated() { try await cache.put([id], provider) }
        }
        func left(in cache: ProviderCache) async -> [Int] {
            var left: [Int] = []
            for provider in siblings { left += await cache.ids(provider) ?? [] }
            return left
        }
        try await fill()
        let restarted = try open()
        _ = try await restarted.cache(Origin([100]).mocks, provider: siblings[3].evicting(evict))
        #expect(await left(in: restarted) == expected)
        #expect(await left(in: try open()) == expected)

        try await fill()
        let memoryless = try open(memoryEntries: 0)
        _ = try await memoryless.cache(Origin([100]).mocks, provider: siblings[3].evicting(evict))
        #expect(await left(in: memoryless) == expected)
    }

    // MARK: Data

    final class Box: Codable, @unchecked Sendable {
        var text: String
        init(_ text: String) { self.text = text }
    }

    @Test(
        "R22 values are copies: changing a loaded or returned value does not change the stored one",
        arguments: [0, 256])
    func copies(memoryEntries: Int) async throws {
        let cache = try open(memoryEntries: memoryEntries), box = Box("stored")
        func stored() async throws -> Box { try await cache.cache({ box }, provider: Provider()) }
        for _ in 0..<3 {
            let returned = try await stored()
            #expect(returned.text == "stored")
            returned.text = "changed"
            box.text = "changed"
        }
        for _ in 0..<2 {
            let list = try await ProviderCache.Actions<Box>.with(Provider("list"), in: cache).evictAll().addFirst(
                Box("stored")
            )
            .result()
            list[0].text = "changed"
            #expect(try await cache.cache({ [Box]() }, provider: Provider("list")).map(\.text) == ["stored"])
        }
    }

    @Test("R23 evictAll clears everything, on disk as well")
    func evictAll() async throws {
        let cache = try open()
        for (id, provider) in siblings.enumerated() { try await cache.put([id], provider) }
        try await cache.put([1], Provider("getPinned", isExpirable: false))
        try cache.evictAll()
        for cache in [cache, try open()] {
            for provider in siblings + [Provider("getPinned")] { #expect(await cache.ids(provider) == nil) }
        }
        try await cache.put([2], siblings[0])
        #expect(await cache.ids(siblings[0]) == [2])
    }

    @Test("R31 a single value and a list are both accepted, and one can be read as the other")
    func singleAndList() async throws {
        let cache = try open()
        let one = try await cache.cacheWithReply({ Mock(id: 1) }, provider: Provider("one"))
        #expect(one == Reply(source: .cloud, cacheables: Mock(id: 1)))
        #expect(
            try await cache.cacheWithReply({ Mock(id: 2) }, provider: Provider("one"))
                == Reply(source: .memory, cacheables: Mock(id: 1)))
        let many = try await cache.cacheWithReply({ [Mock(id: 3), Mock(id: 4)] }, provider: Provider("many"))
        #expect(many == Reply(source: .cloud, cacheables: [Mock(id: 3), Mock(id: 4)]))
        #expect(try await cache.cache({ [Mock]() }, provider: Provider("many")) == [Mock(id: 3), Mock(id: 4)])

        #expect(await cache.ids(Provider("one")) == [1])
        #expect(try await cache.cache({ Mock(id: 5) }, provider: Provider("many")) == Mock(id: 3))
        // An empty list is not a single value.
        #expect(try await cache.cache({ [Mock]() }, provider: Provider("none")) == [])
        #expect(
            try await cache.cacheWithReply({ [Mock(id: 6)] }, provider: Provider("none"))
                == Reply(source: .memory, cacheables: []))
        #expect(
            try await cache.cacheWithReply({ Mock(id: 6) }, provider: Provider("none"))
                == Reply(source: .cloud, cacheables: Mock(id: 6)))
    }

    // MARK: Further behaviour

    @Test("Of many tasks that miss a record, one loads")
    func oneLoad() async throws {
        let cache = try open(), origin = Origin([1])
        try await withThrowingTaskGroup(of: [Mock].self) { group in
            for _ in 0..<100 { group.addTask { try await cache.cache(origin.mocks, provider: Provider()) } }
            for try await mocks in group { #expect(mocks == [Mock(id: 1)]) }
        }
        #expect(origin.calls == 1)
    }

    @Test("An evicting provider does not join another load, which would skip its eviction")
    func evictingLoadsItself() async throws {
        let cache = try open(), page = Provider(key: "1")
        let (begun, begin) = AsyncStream.makeStream(of: Void.self), (ended, end) = AsyncStream.makeStream(of: Void.self)
        try await cache.put([2], Provider(key: "2"))
        async let slow = cache.cache(
            {
                begin.finish()
                for await _ in ended {}
                return [Mock(id: 1)]
            }, provider: page)
        for await _ in begun {}
        #expect(
            try await cache.cache(Origin([3]).mocks, provider: page.evicting(EvictProvider(evict: true))) == [
                Mock(id: 3)
            ])
        #expect(await cache.ids(Provider(key: "2")) == nil)
        end.finish()
        #expect(try await slow == [Mock(id: 1)])
    }

    @Test(
        "A cancelled task gets a CancellationError, not expired data",
        arguments: [nil, EvictProvider(evict: true)] as [EvictProvider?])
    func cancelled(evict: EvictProvider?) async throws {
        let cache = try open(useExpired: true), provider = Provider(seconds: 10, evict: evict)
        try await cache.put([1], provider)
        clock.advance(10)
        let (begun, begin) = AsyncStream.makeStream(of: Void.self)
        let task = Task {
            try await cache.cache(
                {
                    begin.finish()
                    try await Task.sleep(for: .seconds(600))
                    return [Mock]()
                }, provider: provider)
        }
        for await _ in begun {}
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }

    @Test("A record of another type is a miss, and replaced")
    func otherType() async throws {
        let cache = try open(), texts: @Sendable () async throws -> [String] = { ["text"] }
        try await cache.put([1], Provider())
        #expect(
            try await cache.cacheWithReply(texts, provider: Provider()) == Reply(source: .cloud, cacheables: ["text"]))
        #expect(
            try await cache.cacheWithReply(texts, provider: Provider()) == Reply(source: .memory, cacheables: ["text"]))
    }

    @Test("Data that JSON cannot represent is an error that names the provider, and evicts nothing")
    func notCodable() async throws {
        struct Unencodable: Codable {
            func encode(to encoder: any Encoder) throws {
                throw EncodingError.invalidValue(self, .init(codingPath: [], debugDescription: "never"))
            }
        }
        let cache = try open()
        try await cache.put([1], Provider(key: "1"))
        for evict in [nil, EvictProvider(evict: true)] {
            let error = await #expect(throws: ProviderCacheError.self) {
                try await cache.cache({ Unencodable() }, provider: Provider(key: "2", evict: evict))
            }
            guard case .notCodable(provider: "getMocks", is EncodingError) = error else {
                return #expect(Bool(false), "\(error as Any)")
            }
        }
        await #expect(throws: ProviderCacheError.self) {
            try await ProviderCache.Actions<Unencodable>.with(Provider(key: "2"), in: cache).addFirst(Unencodable())
                .result()
        }
        #expect(await cache.ids(Provider(key: "1")) == [1])
        #expect(try recordsOnDisk() == 1)
    }

    @Test("A URL that is not a file URL is an error")
    func noFile() throws {
        let url = try #require(URL(string: "https://example.org/cache"))
        #expect(throws: ShaleError.self) { try ProviderCache(at: url) }
    }
}
