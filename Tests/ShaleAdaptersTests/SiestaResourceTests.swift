import Foundation
import Shale
@testable import ShaleAdapters
import Synchronization
import Testing

@Suite("Siesta: a resource with a cache", .timeLimit(.minutes(30)))
struct SiestaResourceTests {
    private typealias Story = SiestaSupport.Story
    private typealias Watched = SiestaSupport.Watched
    private let url = URL(filePath: "/news")
    private let clock = SiestaSupport.Clock()
    private let stories: ShaleEntityCache<URL, SiestaSupport.Story>

    init() throws {
        stories = try ShaleEntityCache(in: Store(at: nil, options: .init(capacity: 4 << 20)), named: "stories")
    }

    private func resource(_ cache: (any EntityCache)?, loader: @escaping Resource.Loader) -> Resource {
        Resource(url: url, cache: cache, expirationTime: 60, now: clock.now, loader: loader)
    }

    @Test("E1 With a cache, the stored entity arrives first, then the loaded one")
    func storedThenLoaded() async throws {
        stories.writeEntity(.story("stored", etag: "v1"), forKey: url)
        let resource = resource(stories) { stored in
            #expect(stored?.title == "stored" && stored?.etag == "v1")
            return .newData(.story("loaded"))
        }
        let recorder = SiestaSupport.Recorder()
        await recorder.observe(resource)
        #expect(try await resource.load().title == "loaded")
        #expect(
            recorder.events == [
                "observerAdded -", "newData(cache) stored", "requested stored", "newData(network) loaded",
            ])
        #expect(stories.readEntity(forKey: url)?.content.title == "loaded")
    }

    @MainActor private final class Screen {
        var titles: [String?] = []
        func show(_ resource: Resource, until title: String) async {
            for await update in await resource.events {
                titles.append(update.latestData?.title)
                if update.event == .error { titles.append("\(update.latestError.map { "\($0)" } ?? "none")") }
                if titles.last == title { return }
            }
        }
    }

    @Test("E1 The events are a sequence, which a screen on the main actor can show")
    @MainActor func events() async throws {
        stories.writeEntity(.story("stored"), forKey: url)
        let isOnline = Mutex(false)
        let resource = resource(stories) { _ in
            if isOnline.withLock({ $0 }) { return .newData(.story("loaded")) }
            throw SiestaSupport.Offline()
        }
        let screen = Screen()
        let showing = Task { await screen.show(resource, until: "loaded") }
        // The first observer starts the read of the cache.
        while screen.titles.last != "stored" { await Task.yield() }
        _ = try? await resource.load()
        isOnline.withLock { $0 = true }
        try await resource.load()
        await showing.value
        #expect(
            screen.titles == [nil, "stored", "stored", "stored", "Offline()", "stored", "loaded"], "\(screen.titles)")
    }

    @Test("The sequence of events ends with the resource, and is removed with its reader")
    func eventsEnd() async throws {
        var resource: Resource? = resource(nil) { _ in .newData(.story("loaded")) }
        var events = try #require(await resource?.events).makeAsyncIterator()
        do {
            let dropped = await resource?.events
            _ = dropped
        }
        let cancelled = Task { [events = await resource?.events] in
            if let events { for await _ in events {} }
        }
        cancelled.cancel()
        await cancelled.value
        try await resource?.load()
        #expect(await resource?.observers.count == 1)
        resource = nil
        var seen: [ResourceEvent] = []
        while let update = await events.next() { seen.append(update.event) }
        #expect(seen == [.observerAdded, .requested, .newData(.network)])
    }

    @Test("E2 A miss leaves the resource empty until the load")
    func miss() async throws {
        let cache = Watched(stories)
        let resource = resource(cache) { stored in
            #expect(stored == nil)
            return .newData(.story("loaded"))
        }
        let recorder = SiestaSupport.Recorder()
        await recorder.observe(resource)
        #expect(await resource.latestData == nil)
        #expect(await !resource.isUpToDate)
        #expect(try await resource.loadIfNeeded().title == "loaded")
        #expect(recorder.events == ["observerAdded -", "requested -", "newData(network) loaded"])
        #expect(cache.called == ["readEntity", "writeEntity"])
    }

    @Test("E3 Late cache data never replaces newer data")
    func lateCache() async throws {
        stories.writeEntity(.story("stored"), forKey: url)
        let cache = Watched(stories, holdingUp: "readEntity")
        defer { cache.letGo() }
        let resource = resource(cache) { _ in throw SiestaSupport.Offline() }
        let recorder = SiestaSupport.Recorder()
        await recorder.observe(resource)
        await cache.waitForCall()
        await resource.overrideLocalData(with: .story("newer"))
        cache.letGo()
        // Waits for the read, and needs no load.
        #expect(try await resource.loadIfNeeded().title == "newer")
        #expect(await resource.latestData?.title == "newer")
        #expect(recorder.events == ["observerAdded -", "newData(localOverride) newer"])
        #expect(stories.readEntity(forKey: url) == nil, "the stored entity may be wrong now")
    }

    @Test(
        "E4 One or many concurrent requests: the cache is read once, and a fresh hit causes no load",
        arguments: [1, 3, 1000])
    func askedAtOnce(times: Int) async throws {
        stories.writeEntity(.story("stored"), forKey: url)
        let cache = Watched(stories)
        let resource = resource(cache) { _ in throw SiestaSupport.Offline() }
        clock.advance(60)
        try await withThrowingTaskGroup { group in
            for _ in 0..<times { group.addTask { try await resource.loadIfNeeded() } }
            for try await entity in group { #expect(entity.title == "stored") }
        }
        #expect(cache.called == ["readEntity"])
    }

    @Test("E4 One or many concurrent requests: a miss causes one load", arguments: [1, 3, 1000])
    func missedAtOnce(times: Int) async throws {
        let cache = Watched(stories), loads = Mutex(0)
        let resource = resource(cache) { _ in
            loads.withLock { $0 += 1 }
            await Task.yield()
            return .newData(.story("loaded"))
        }
        try await withThrowingTaskGroup { group in
            for _ in 0..<times { group.addTask { try await resource.loadIfNeeded() } }
            for try await entity in group { #expect(entity.title == "loaded") }
        }
        #expect(loads.withLock { $0 } == 1)
        #expect(cache.called == ["readEntity", "writeEntity"])
    }

    @Test("E5 Stale hit: observers see the stored one, then the loaded one; the request yields the loaded one")
    func staleHit() async throws {
        stories.writeEntity(.story("stored"), forKey: url)
        clock.advance(61)
        let clock = clock
        let resource = resource(stories) { _ in .newData(.story("loaded", timestamp: clock.seconds)) }
        let recorder = SiestaSupport.Recorder()
        await recorder.observe(resource)
        #expect(try await resource.loadIfNeeded().title == "loaded")
        #expect(
            recorder.events == [
                "observerAdded -", "newData(cache) stored", "requested stored", "newData(network) loaded",
            ])
        #expect(try await resource.loadIfNeeded().title == "loaded")
        #expect(recorder.events.count == 4, "it is up to date")
    }

    @Test("E6 Errors are never cached")
    func errors() async throws {
        let cache = Watched(stories)
        let resource = resource(cache) { _ in throw SiestaSupport.Offline() }
        let recorder = SiestaSupport.Recorder()
        await recorder.observe(resource)
        await #expect(throws: SiestaSupport.Offline()) { try await resource.loadIfNeeded() }
        #expect(await resource.latestError is SiestaSupport.Offline)
        #expect(await resource.latestData == nil)
        #expect(recorder.events == ["observerAdded -", "requested -", "error -"])
        #expect(cache.called == ["readEntity"])
        #expect(stories.readEntity(forKey: url) == nil)
    }

    @Test("E6 An error changes neither the stored entity nor the data")
    func errorAfterData() async throws {
        stories.writeEntity(.story("stored"), forKey: url)
        let resource = resource(stories) { _ in throw SiestaSupport.Offline() }
        await #expect(throws: SiestaSupport.Offline()) { try await resource.load() }
        #expect(await resource.latestData?.title == "stored")
        #expect(await !resource.isUpToDate)
        #expect(stories.readEntity(forKey: url) == Resource.Entity<Story>.story("stored"))
    }

    @Test(
        "an entity that was loaded before the stored one was removed or replaced is not stored",
        arguments: [false, true])
    func changedMeanwhile(isReplaced: Bool) async throws {
        stories.writeEntity(.story("stored"), forKey: url)
        clock.advance(1000)
        let resource = resource(stories) { [stories, url] _ in
            if isReplaced {
                stories.writeEntity(.story("new"), forKey: url)
            } else {
                stories.removeEntity(forKey: url)
            }
            return .newData(.story("old"))
        }
        #expect(try await resource.loadIfNeeded().title == "old")
        #expect(stories.readEntity(forKey: url) == (isReplaced ? Resource.Entity<Story>.story("new") : nil))
    }

    @Test("E7 \"Not modified\" updates the stored timestamp only")
    func notModified() async throws {
        let cache = Watched(stories)
        stories.writeEntity(.story("stored", etag: "v1"), forKey: url)
        clock.advance(1000)
        let resource = resource(cache) { _ in .notModified }
        let recorder = SiestaSupport.Recorder()
        await recorder.observe(resource)
        let entity = try await resource.loadIfNeeded()
        #expect(entity.title == "stored" && entity.timestamp == 2000)
        #expect(await resource.isUpToDate)
        #expect(
            recorder.events == ["observerAdded -", "newData(cache) stored", "requested stored", "notModified stored"])
        #expect(cache.called == ["readEntity", "updateEntityTimestamp"])
        #expect(stories.readEntity(forKey: url) == Resource.Entity<Story>.story("stored", etag: "v1", timestamp: 2000))
    }

    @Test("E7 \"Not modified\" does not update an entity that arrived during the load")
    func notModifiedMeanwhile() async throws {
        stories.writeEntity(.story("stored", etag: "v1", timestamp: 900), forKey: url)
        let overriding = resource(stories) { [stories, url] stored in
            #expect(stored?.etag == "v1")
            // Another caller, for example another process.
            stories.writeEntity(.story("theirs", etag: "v2", timestamp: 950), forKey: url)
            return .notModified
        }
        #expect(try await overriding.load().title == "stored")
        #expect(stories.readEntity(forKey: url) == Resource.Entity<Story>.story("theirs", etag: "v2", timestamp: 950))

        let gate = AsyncStream.makeStream(of: Void.self), begun = AsyncStream.makeStream(of: Void.self)
        let overridden = resource(stories) { _ in
            begun.continuation.finish()
            for await _ in gate.stream {}
            return .notModified
        }
        async let loaded = overridden.load()
        for await _ in begun.stream {}
        await overridden.overrideLocalData(with: .story("local", timestamp: 10))
        gate.continuation.finish()
        #expect(try await loaded.title == "local")
        #expect(await overridden.latestData?.timestamp == 10)
        #expect(stories.readEntity(forKey: url) == nil)
    }

    @Test("E7 \"Not modified\" without a stored entity is an error that says so")
    func notModifiedNothing() async throws {
        let resource = resource(stories) { _ in .notModified }
        let error = await #expect(throws: ShaleError.self) { try await resource.load() }
        #expect(error?.message.contains(url.absoluteString) == true)
        #expect(await !resource.isLoading)
    }

    @Test("E10 A key of nil opts out entirely")
    func optingOut() async throws {
        let cache = Watched(
            try ShaleEntityCache<URL, Story>(
                in: Store(at: nil, options: .init(capacity: 4 << 20)), named: "none", key: { _ in nil }))
        let resource = resource(cache) { $0 == nil ? .newData(.story("loaded")) : .notModified }
        try await resource.loadIfNeeded()
        try await resource.load()
        await resource.overrideLocalData(with: .story("local"))
        #expect(await resource.latestData?.title == "local")
        #expect(cache.called == [])
    }

    @Test("E8 A removal during a write takes effect after it")
    func order() async throws {
        let cache = Watched(stories, holdingUp: "writeEntity")
        defer { cache.letGo() }
        let resource = resource(cache) { _ in .newData(.story("loaded")) }
        async let loaded = resource.load()
        await cache.waitForCall()
        async let overridden: Void = resource.overrideLocalData(with: .story("local"))
        while await resource.latestData?.title != "local" { await Task.yield() }
        // Long enough for a removal that does not wait.
        try await Task.sleep(for: .milliseconds(100))
        #expect(cache.called == ["readEntity", "writeEntity"])
        cache.letGo()
        #expect(try await loaded.title == "loaded")
        await overridden
        #expect(cache.called == ["readEntity", "writeEntity", "removeEntity"])
        #expect(stories.readEntity(forKey: url) == nil)
    }

    @Test("content of another type than the cache's bypasses it")
    func otherContent() async throws {
        let cache = Watched(stories)
        let resource = resource(cache) { _ in .newData(Resource.Entity(content: "text", contentType: "text/plain")) }
        #expect(try await resource.loadIfNeeded().typedContent() == "text")
        #expect(cache.called == ["readEntity"])
    }

    @Test("invalidated data is loaded again, also without a cache")
    func invalidating() async throws {
        let loads = Mutex(0)
        let resource = resource(nil) { _ in .newData(.story("\(loads.withLock { $0 += 1; return $0 })")) }
        #expect(try await resource.loadIfNeeded().title == "1")
        #expect(try await resource.loadIfNeeded().title == "1")
        await resource.invalidate()
        #expect(await resource.latestData?.title == "1")
        #expect(try await resource.loadIfNeeded().title == "2")
        #expect(try await resource.loadIfNeeded().title == "2")
        clock.advance(60.5)
        #expect(try await resource.loadIfNeeded().title == "3")
    }

    @Test("a resource is loading from its request to its result")
    func loading() async throws {
        let resource = resource(stories) { _ in .newData(.story("loaded")) }
        let states = Mutex<[Bool]>([]), owner = SiestaSupport.Recorder()
        await resource.addObserver(owner: owner) { resource, _ in states.withLock { $0.append(resource.isLoading) } }
        try await resource.loadIfNeeded()
        #expect(states.withLock { $0 } == [false, true, false])
    }

    @Test("an observer ends with its owner or its removal")
    func removingObservers() async throws {
        let resource = resource(nil) { _ in .newData(.story("loaded")) }
        let kept = SiestaSupport.Recorder(), removed = SiestaSupport.Recorder()
        var gone: SiestaSupport.Recorder? = SiestaSupport.Recorder()
        weak let wasThere = gone
        for recorder in [kept, removed, gone].compactMap({ $0 }) { await recorder.observe(resource) }
        gone = nil
        #expect(wasThere == nil)
        await resource.removeObservers(ownedBy: removed)
        try await resource.load()
        #expect(removed.events == ["observerAdded -"])
        #expect(kept.events == ["observerAdded -", "requested -", "newData(network) loaded"])
    }
}
