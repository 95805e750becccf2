import Foundation
import Synchronization
import Testing
@testable import Shale

@Suite("Atomic changes", .timeLimit(.minutes(30)))
struct UpdateTests {
    private let clock = TestClock()

    /// Runs the body in four tasks at once.
    private func fourTimes(_ body: @escaping @Sendable (Int) throws -> Void) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for task in 0..<4 { group.addTask { try body(task) } }
            try await group.waitForAll()
        }
    }

    @Test("20,000 changes by four tasks and two cache objects lose none", arguments: [0, 256])
    func counting(memoryEntries: Int) async throws {
        let directory = TemporaryDirectory()
        let caches = try (0..<2).map { _ in
            try Cache<String, Int>(at: directory.path, capacity: 32 << 20, memoryEntries: memoryEntries)
        }
        caches[0]["present"] = 0
        try await fourTimes { task in
            for _ in 0..<2500 {
                try caches[task % 2].update({ $0 += 1 }, for: "present")
                try caches[task % 2].update({ $0 += 1 }, for: "absent", default: 10)
            }
        }
        #expect(caches[0]["present"] == 10_000 && caches[1]["absent"] == 10_010)
    }

    @Test("it keeps the expiry time, the tags and the pin; a default value has the cache's age")
    func metadata() throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        try cache.insert(1, for: "key", maxAge: .seconds(10), tags: ["t"], etag: "e", pinned: true)
        clock.advance(seconds: 4)
        #expect(try cache.update({ $0 += 1 }, for: "key") == 2)
        #expect(try cache.update({ $0 += 1 }, for: "key", default: 9) == 3)
        let entry = try #require(try cache.entry(for: "key"))
        #expect(entry.expiresAt == clock.date + 6 && entry.tags == ["t"] && entry.isPinned && entry.etag == nil)
        #expect(try cache.update({ $0 += 1 }, for: "new", default: 9) == 10)
        #expect(try cache.entry(for: "new")?.expiresAt == clock.date + 60)
        try cache.insert(1, for: "forever", maxAge: .forever)
        try cache.update({ $0 += 1 }, for: "forever")
        let forever = try #require(try cache.entry(for: "forever"))
        #expect(forever.value == 2 && forever.expiresAt == nil)
    }

    @Test("without a fresh value it calls nothing and returns nil; the default replaces what is no value")
    func absent() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        func fails(_ key: String) throws { #expect(try cache.update({ _ in Issue.record("called") }, for: key) == nil) }
        try fails("never")
        cache["stale"] = 1
        clock.advance(seconds: 60)
        try fails("stale")
        #expect(try cache.entry(for: "stale", includingStale: true)?.value == 1)
        await #expect(throws: LoadError.self) { try await cache.entry(for: "missing") { _ in .missing() } }
        try fails("missing")
        for key in ["never", "stale", "missing"] {
            #expect(try cache.update({ $0 += 1 }, for: key, default: 5) == 6)
            #expect(cache[key] == 6)
        }
    }

    @Test("it begins again if the entry was changed meanwhile: replaced, removed, or inserted", arguments: [0, 256])
    func again(memoryEntries: Int) throws {
        let cache = try Cache<String, Int>.small(memoryEntries: memoryEntries, clock: clock)
        var calls = 0
        func once(_ body: () -> Void) {
            calls += 1
            if calls == 1 { body() }
        }
        cache["key"] = 1
        let replaced = try cache.update(
            {
                once { cache["key"] = 10 }
                $0 += 1
            }, for: "key")
        #expect(replaced == 11 && calls == 2)
        calls = 0
        let removed = try cache.update(
            {
                once { cache["key"] = nil }
                $0 += 1
            }, for: "key")
        #expect(removed == nil && cache["key"] == nil && calls == 1)
        calls = 0
        let inserted = try cache.update(
            {
                once { cache["key"] = 20 }
                $0 += 1
            }, for: "key", default: 0)
        #expect(inserted == 21 && calls == 2)
    }

    @Test("if the change throws, nothing has changed")
    func failing() throws {
        let cache = try Cache<String, Int>.small(clock: clock), memory = MemoryCache<String, Int>()
        (cache["key"], memory["key"]) = (1, 1)
        let fail: (inout Int) throws -> Void = {
            $0 = 2
            throw Offline()
        }
        for key in ["key", "none"] {
            #expect(throws: Offline.self) { try cache.update(fail, for: key, default: 0) }
            #expect(throws: Offline.self) { try memory.update(fail, for: key, default: 0) }
        }
        #expect(throws: Offline.self) { try cache.update(fail, for: "key") }
        #expect(throws: Offline.self) { try memory.update(fail, for: "key") }
        #expect(cache["key"] == 1 && memory["key"] == 1 && cache["none"] == nil && memory["none"] == nil)
    }

    @Test("a load under way does not undo a change")
    func loading() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        let loaded = try await cache.value(for: "key") {
            try cache.update({ $0 += 1 }, for: "key", default: 5)
            return 1
        }
        #expect(loaded == 1 && cache["key"] == 6)
    }

    // MARK: In memory

    @Test("in memory, changes by four tasks lose none")
    func countingInMemory() async throws {
        let cache = MemoryCache<String, Int>()
        cache["present"] = 0
        try await fourTimes { _ in
            for _ in 0..<5000 {
                cache.update({ $0 += 1 }, for: "present")
                cache.update({ $0 += 1 }, for: "absent", default: 10)
            }
        }
        #expect(cache["present"] == 20_000 && cache["absent"] == 20_010)
    }

    @Test("in memory, it begins again if the entry was changed, and does not start the lifetime again")
    func memory() {
        let cache = MemoryCache<String, Int>(dateProvider: clock.now, entryLifetime: 10)
        var calls = 0
        func once(_ body: () -> Void) {
            calls += 1
            if calls == 1 { body() }
        }
        #expect(cache.update({ _ in Issue.record("called") }, for: "key") == nil)
        #expect(cache.update({ $0 += 1 }, for: "key", default: 0) == 1)
        clock.advance(seconds: 9)
        let replaced = cache.update(
            {
                once { cache.update({ $0 = 10 }, for: "key") }
                $0 += 1
            }, for: "key")
        #expect(replaced == 11 && calls == 2)
        clock.advance(seconds: 1)
        #expect(cache.update({ _ in Issue.record("called") }, for: "key") == nil)
        calls = 0
        let inserted = cache.update(
            {
                once { cache["key"] = 20 }
                $0 += 1
            }, for: "key", default: 0)
        #expect(inserted == 21 && calls == 2)
        calls = 0
        let removed = cache.update(
            {
                once { cache["key"] = nil }
                $0 += 1
            }, for: "key")
        #expect(removed == nil && cache["key"] == nil)
    }
}
