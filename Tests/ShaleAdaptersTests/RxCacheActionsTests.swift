import Foundation
@testable import ShaleAdapters
import Synchronization
import Testing

@Suite("RxCache: actions", .timeLimit(.minutes(30)))
struct RxCacheActionsTests {
    typealias Mock = RxCacheSupport.Mock
    typealias Provider = RxCacheSupport.Provider

    private let directory = RxCacheSupport.Directory()
    private let clock = RxCacheSupport.Clock()
    private func open(useExpired: Bool = false) throws -> ProviderCache {
        try ProviderCache(
            at: directory.url, maxMBPersistenceCache: 4, useExpiredDataIfLoaderNotAvailable: useExpired, now: clock.now)
    }

    /// The result of actions on a stored list; checks that it is stored.
    private func ids(_ list: [Int], _ actions: (ProviderCache.Actions<Mock>) -> ProviderCache.Actions<Mock>)
        async throws -> [Int]
    {
        let cache = try open(), provider = Provider()
        try await cache.put(list, provider)
        let result = try await actions(.with(provider, in: cache)).result().map(\.id)
        #expect(await cache.ids(provider) == result)
        return result
    }

    @Test("R24 actions are lazy until result(), which saves")
    func lazy() async throws {
        let cache = try open(), provider = Provider(), seen = Mutex<[Int]>([])
        try await cache.put([1, 2], provider)
        let actions = ProviderCache.Actions<Mock>.with(provider, in: cache).addFirst(Mock(id: 0)).evict { mock in
            seen.withLock { $0.append(mock.id) }
            return mock.id == 2
        }
        #expect(seen.withLock { $0 } == [])
        #expect(await cache.ids(provider) == [1, 2])

        #expect(try await actions.result().map(\.id) == [0, 1])
        #expect(seen.withLock { $0 } == [0, 1, 2])
        #expect(await cache.ids(provider) == [0, 1])
        #expect(await (try open()).ids(provider) == [0, 1])
        // A second result() runs them again.
        #expect(try await actions.result().map(\.id) == [0, 0, 1])
    }

    @Test("R24 an action does not change the actions that it is called on")
    func values() async throws {
        let cache = try open(),
            base = ProviderCache.Actions<Mock>.with(Provider(), in: cache).evictAll().addLast(Mock(id: 1))
        let longer = base.addLast(Mock(id: 2))
        #expect(try await base.result().map(\.id) == [1])
        #expect(try await longer.result().map(\.id) == [1, 2])
    }

    @Test("R25 addFirst, addLast, addAllFirst, addAllLast")
    func adding() async throws {
        let more = [Mock(id: 8), Mock(id: 9)]
        for list in [[], [1], [1, 2, 3]] {
            #expect(try await ids(list) { $0.addFirst(Mock(id: 9)) } == [9] + list)
            #expect(try await ids(list) { $0.addLast(Mock(id: 9)) } == list + [9])
            #expect(try await ids(list) { $0.addAllFirst(more) } == [8, 9] + list)
            #expect(try await ids(list) { $0.addAllLast(more) } == list + [8, 9])
            #expect(try await ids(list) { $0.addAllLast([]) } == list)
        }
    }

    @Test("R25 add at the first position that satisfies the predicate")
    func addingAt() async throws {
        for position in 0...3 {
            #expect(
                try await ids([1, 2, 3]) { $0.add({ at, _ in at == position }, candidate: Mock(id: 9)) }
                    == [1, 2, 3].prefix(position) + [9] + [1, 2, 3].dropFirst(position))
        }
        #expect(
            try await ids([1, 2, 3]) { $0.add({ at, count in at * 2 >= count }, candidate: Mock(id: 9)) } == [
                1, 2, 9, 3,
            ])
        #expect(
            try await ids([1, 2, 3]) { $0.addAll({ at, _ in at > 0 }, candidates: [Mock(id: 8), Mock(id: 9)]) } == [
                1, 8, 9, 2, 3,
            ])
        #expect(try await ids([1, 2, 3]) { $0.add({ at, _ in at == 4 }, candidate: Mock(id: 9)) } == [1, 2, 3])
    }

    @Test("R26 evictFirst and evictLast, with n, with a count predicate")
    func evictingEnds() async throws {
        let list = [1, 2, 3, 4]
        #expect(try await ids(list) { $0.evictFirst() } == [2, 3, 4])
        #expect(try await ids(list) { $0.evictLast() } == [1, 2, 3])
        #expect(try await ids(list) { $0.evictFirst { count in count > 3 } } == [2, 3, 4])
        #expect(try await ids(list) { $0.evictFirst { count in count > 4 } } == list)
        #expect(try await ids(list) { $0.evictLast { count in count > 3 } } == [1, 2, 3])
        #expect(try await ids(list) { $0.evictLast { count in count > 4 } } == list)
        for n in [-1, 0, 1, 3, 4, 5, .min, .max] {
            let most = min(max(n, 0), 4)
            #expect(try await ids(list) { $0.evictFirstN(n) } == Array(list.dropFirst(most)))
            #expect(try await ids(list) { $0.evictLastN(n) } == Array(list.dropLast(most)))
            #expect(
                try await ids(list) { $0.evictFirstN({ count in count == 4 }, n: n) } == Array(list.dropFirst(most)))
            #expect(try await ids(list) { $0.evictLastN({ count in count == 4 }, n: n) } == Array(list.dropLast(most)))
            #expect(
                try await ids(list) {
                    $0.evictFirstN({ count in count == 3 }, n: n).evictLastN({ count in count == 3 }, n: n)
                } == list)
        }
    }

    @Test("R26 evictAllKeepingFirstN, evictAllKeepingLastN, evictAll", arguments: [-1, 0, 1, 3, 4, 5, .min, .max])
    func keeping(n: Int) async throws {
        let list = [1, 2, 3, 4], kept = min(max(n, 0), 4)
        #expect(try await ids(list) { $0.evictAllKeepingFirstN(n) } == Array(list.prefix(kept)))
        #expect(try await ids(list) { $0.evictAllKeepingLastN(n) } == Array(list.suffix(kept)))
        #expect(try await ids(list) { $0.evictAll() } == [])
    }

    @Test("R27 evict the first match, evictIterable all")
    func evicting() async throws {
        let list = [1, 2, 3, 4]
        #expect(try await ids(list) { $0.evict { mock in mock.id % 2 == 0 } } == [1, 3, 4])
        #expect(
            try await ids(list) { $0.evict { position, count, mock in position == count - 2 && mock.id == 3 } } == [
                1, 2, 4,
            ])
        #expect(try await ids(list) { $0.evict { mock in mock.id == 5 } } == list)
        #expect(try await ids(list) { $0.evictIterable { _, _, mock in mock.id % 2 == 0 } } == [1, 3])
        // Positions and the count are those before the action.
        #expect(
            try await ids(list) { $0.evictIterable { position, count, _ in position < 2 && count == 4 } } == [3, 4])
    }

    @Test("R28 update the first match, updateIterable all")
    func updating() async throws {
        let cache = try open(), provider = Provider()
        func active(_ actions: (ProviderCache.Actions<Mock>) -> ProviderCache.Actions<Mock>) async throws -> [Bool] {
            try await cache.put([1, 2, 3, 4], provider)
            let result = try await actions(.with(provider, in: cache)).result()
            #expect(result.map(\.id) == [1, 2, 3, 4])
            return result.map(\.active)
        }
        let activate: ProviderCache.Actions<Mock>.Replace = { Mock(id: $0.id, active: true) }
        #expect(try await active { $0.update({ $0.id > 1 }, replace: activate) } == [false, true, false, false])
        #expect(
            try await active { $0.update({ position, count, _ in position == count - 1 }, replace: activate) } == [
                false, false, false, true,
            ])
        #expect(try await active { $0.update({ $0.id > 4 }, replace: activate) } == [false, false, false, false])
        #expect(try await active { $0.updateIterable({ $0.id > 1 }, replace: activate) } == [false, true, true, true])
        #expect(
            try await active { $0.updateIterable({ position, count, _ in position < count - 2 }, replace: activate) }
                == [true, true, false, false])
    }

    @Test("R29 actions on a provider with no record start from an empty list; nothing traps")
    func empty() async throws {
        let cache = try open(), all: ProviderCache.Actions<Mock>.Func3 = { _, _, _ in true }
        let actions = ProviderCache.Actions<Mock>.with(Provider(), in: cache)
            .evictFirst().evictLast().evictFirstN(2).evictLastN(2).evictFirst { _ in true }.evictLast { _ in true }
            .evict(all).evictIterable(all).evictAll().evictAllKeepingFirstN(1).evictAllKeepingLastN(1)
            .update(all) { $0 }.updateIterable(all) { $0 }
        #expect(try await actions.result() == [])
        #expect(await cache.ids(Provider()) == [])
        #expect(
            try await ProviderCache.Actions<Mock>.with(Provider("other"), in: cache).addLast(Mock(id: 1)).result() == [
                Mock(id: 1)
            ])
    }

    @Test("R29 an expired record counts as none, unless expired data may be used", arguments: [false, true])
    func expired(useExpired: Bool) async throws {
        let cache = try open(useExpired: useExpired), provider = Provider(seconds: 10)
        try await cache.put([1], provider)
        clock.advance(10)
        #expect(
            try await ProviderCache.Actions<Mock>.with(provider, in: cache).addLast(Mock(id: 2)).result().map(\.id)
                == (useExpired ? [1, 2] : [2]))
        // The stored record is new.
        clock.advance(9)
        #expect(await cache.ids(provider) == (useExpired ? [1, 2] : [2]))
    }

    @Test("R30 saving by actions does not change siblings, also if the provider evicts")
    func siblings() async throws {
        let siblings = [
            Provider(), Provider(key: "1"), Provider(group: ("1", "a")), Provider(group: ("1", "b")),
            Provider(key: "2"), Provider("other"),
        ]
        for place in siblings.indices {
            for evict in [
                nil, EvictProvider(evict: true), EvictDynamicKey(evict: true), EvictDynamicKeyGroup(evict: true),
            ] {
                let cache = try open()
                for (id, provider) in siblings.enumerated() { try await cache.put([id], provider) }
                var provider = siblings[place]
                provider.evict = evict
                #expect(
                    try await ProviderCache.Actions<Mock>.with(provider, in: cache).addLast(Mock(id: 100)).result().map(
                        \.id) == [
                            place, 100,
                        ])
                for (id, provider) in siblings.enumerated() where id != place {
                    #expect(await cache.ids(provider) == [id])
                }
            }
        }
    }

    @Test("R30 saving by actions does not change expirable")
    func expirable() async throws {
        let cache = try ProviderCache(at: directory.url, maxMBPersistenceCache: 1)
        let pinned = Provider("getPinned", isExpirable: false), ordinary = Provider("getOrdinary")
        for provider in [pinned, ordinary] {
            try await cache.put([1], provider)
            try await ProviderCache.Actions<Mock>.with(provider, in: cache).addLast(Mock(id: 2)).result()
        }
        for i in 0..<200 {
            let text = RxCacheSupport.noise(20_000, seed: i)
            _ = try await cache.cache({ text }, provider: Provider(key: String(i)))
        }
        #expect(await cache.ids(pinned) == [1, 2])
        #expect(await cache.ids(ordinary) == nil)
    }

    @Test("R31 a single value is edited as a list of one")
    func single() async throws {
        let cache = try open(), loader: @Sendable () async throws -> Mock = { Mock(id: 1) }
        _ = try await cache.cache(loader, provider: Provider())
        try await ProviderCache.Actions<Mock>.with(Provider(), in: cache).update(
            { _ in true }, replace: { Mock(id: $0.id, active: true) }
        ).result()
        #expect(try await cache.cache(loader, provider: Provider()) == Mock(id: 1, active: true))
    }

    /// Runs each job on a thread of its own, so that jobs are concurrent even if other tests keep the shared threads
    /// busy.
    final class Threads: TaskExecutor {
        func enqueue(_ job: consuming ExecutorJob) {
            let job = UnownedJob(job)
            Thread.detachNewThread { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
        }
    }

    @Test("Concurrent results lose no action")
    func concurrent() async throws {
        let cache = try open(), threads = Threads()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for id in 0..<50 {
                let actions = ProviderCache.Actions<Mock>.with(Provider(), in: cache).add(
                    { position, count in
                        // Time for another task between reading and saving.
                        if position == count { usleep(1000) }
                        return position == count
                    }, candidate: Mock(id: id))
                group.addTask(executorPreference: threads) { try await actions.result() }
            }
            try await group.waitForAll()
        }
        #expect(await cache.ids(Provider())?.sorted() == Array(0..<50))
    }

    @Test("Actions may use the cache, and are applied again to a record that another caller has stored since")
    func reentrant() async throws {
        let cache = try open(), other = try open()
        try await cache.put([1], Provider())
        let calls = Mutex(0)
        let result = try await ProviderCache.Actions<Mock>.with(Provider(), in: cache).update(
            { _ in true },
            replace: { mock in
                // Through another object, like another process.
                if calls.withLock({
                    $0 += 1
                    return $0
                }) == 1 {
                    _ = try? other.edit(Provider()) { (mocks: inout [Mock]) in mocks.append(Mock(id: 2)) }
                }
                return Mock(id: mock.id + 10)
            }
        ).result()
        #expect(result.map(\.id) == [11, 2] && calls.withLock { $0 } == 2)
        #expect(await other.ids(Provider()) == [11, 2])
    }

    @Test("R14 a read removes the expired record that it found, not one that was stored since")
    func expiredVersion() async throws {
        struct Late: CacheProvider {
            let cache: ProviderCache
            let stores = Once()
            let providerKey = "getMocks"
            var lifeCache: LifeCache? {
                if stores.take() { _ = try? cache.edit(Provider()) { (mocks: inout [Mock]) in mocks = [Mock(id: 2)] } }
                return LifeCache(duration: 5, timeUnit: .seconds)
            }
        }
        let cache = try open()
        try await cache.put([1], Provider())
        clock.advance(10)
        let loader: @Sendable () async throws -> [Mock] = { throw RxCacheSupport.Offline() }
        #expect(try await cache.cache(loader, provider: Late(cache: cache)) == [Mock(id: 2)])
        #expect(await cache.ids(Provider()) == [2])
    }
}

/// True once.
private final class Once: Sendable {
    private let isLeft = Mutex(true)
    func take() -> Bool {
        isLeft.withLock { isLeft in
            defer { isLeft = false }
            return isLeft
        }
    }
}
