import Foundation
import Testing
@testable import Shale

@Suite("Caches that share a store")
struct SharingTests {
    @Test("caches of different names share no key, and removing all entries of one keeps the others")
    func names() throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        // Names and keys whose concatenated bytes would be the same.
        let names = ["", "a", "ab", "abc", "1:a", "a1:"]
        let caches = try names.map { try Cache<String, String>(in: store, named: $0) }
        for cache in caches {
            for key in ["", "s", "c", "bc", "bcs"] {
                try cache.insert("\(cache.name)/\(key)", for: key, tags: ["b", "bc", "news"])
            }
        }
        for cache in caches {
            for key in ["", "s", "c", "bc", "bcs"] { #expect(cache[key] == "\(cache.name)/\(key)") }
            #expect(try cache.allKeys().sorted() == ["", "bc", "bcs", "c", "s"])
        }
        try caches[1].removeAll(tagged: "bc")
        #expect(try caches.map { try $0.allKeys().count } == [5, 0, 5, 5, 5, 5])
        try caches[0].removeAll()
        #expect(try caches.map { try $0.allKeys().count } == [0, 0, 5, 5, 5, 5])
        #expect(caches[2]["c"] == "ab/c")
        #expect(caches[0].memory.item(for: .compared("c")) == nil && caches[2].memory.item(for: .compared("c")) != nil)
    }

    @Test("keys of different types are different, even under one name")
    func kinds() throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        let texts = try Cache<String, Data>(in: store, named: "n"),
            numbers = try Cache<Int, Data>(in: store, named: "n")
        texts["b"] = Data([1])
        numbers[49] = Data([2])
        #expect(texts["b"] == Data([1]) && numbers[49] == Data([2]))
        #expect(try texts.allKeys() == ["b"])
    }

    @Test("memory never serves an entry that another handle has replaced, removed, invalidated or cleared")
    func otherHandle() throws {
        let directory = TemporaryDirectory()
        let mine = try Cache<String, String>(at: directory.url, capacity: 4 << 20),
            theirs = try Cache<String, String>(at: directory.url, capacity: 4 << 20)
        func inMemory() throws {
            try mine.insert("mine", for: "key", tags: ["news"])
            #expect(try mine.entry(for: "key")?.source == .memory)
            // By its version, then by its bookmark.
            for _ in 0..<2 { #expect(mine["key"] == "mine") }
        }
        try inMemory()
        try theirs.insert("theirs", for: "key")
        let replaced = try #require(try mine.entry(for: "key"))
        #expect(replaced.value == "theirs" && replaced.source == .store)
        #expect(try mine.entry(for: "key")?.source == .memory)

        try inMemory()
        #expect(try theirs.removeValue(for: "key"))
        #expect(try mine.entry(for: "key", includingStale: true) == nil)
        #expect(mine.memory.item(for: .compared("key")) == nil)

        try inMemory()
        try theirs.removeAll(tagged: "news")
        #expect(mine["key"] == nil)

        try inMemory()
        try theirs.removeAll()
        #expect(mine["key"] == nil)

        try inMemory()
        try theirs.touch("key", maxAge: .zero)
        #expect(mine["key"] == nil)
        #expect(try mine.entry(for: "key", includingStale: true)?.isStale == true)

        try inMemory()
        try theirs.store.evict(1)
        #expect(mine["key"] == nil)
    }

    @Test(
        "hits in memory need no read of the store's record: the entry's bookmark is kept, and renewed if it was moved")
    func bookmark() async throws {
        let directory = TemporaryDirectory()
        let mine = try Cache<String, String>(at: directory.url, capacity: 4 << 20),
            theirs = try Cache<String, String>(at: directory.url, capacity: 4 << 20)
        func isMarked(_ cache: Cache<String, String>) throws -> Bool {
            try cache.store.hits(try #require(cache.memory.item(for: .compared("key"))).bookmark)
        }
        try mine.insert("value", for: "key", tags: ["news"])
        #expect(try !isMarked(mine))
        #expect(try mine["key"] == "value" && isMarked(mine))
        #expect(try theirs["key"] == "value" && isMarked(theirs))
        try theirs.touch("key")
        #expect(try !isMarked(mine))
        #expect(try mine["key"] == "value" && isMarked(mine))
        try theirs.touch("key")
        #expect(try await mine.value(for: "key") { "loaded" } == "value")
        #expect(try isMarked(mine))
        #expect(mine.statistics == CacheStatistics(memoryHits: 3))
    }

    @Test("entries survive the last handle, with all their metadata")
    func restart() throws {
        let directory = TemporaryDirectory(), clock = TestClock()
        func open() throws -> Cache<URL, Article> { try Cache(at: directory.url, capacity: 4 << 20, now: clock.now) }
        let url = try #require(URL(string: "https://example.org/a?b=c#d"))
        let version = try open().insert(
            Article(title: "kept", words: 7), for: url, maxAge: .seconds(300), tags: ["news"], etag: "e", pinned: true)
        clock.advance(seconds: 10)
        let entry = try #require(try open().entry(for: url))
        #expect(entry.value == Article(title: "kept", words: 7))
        #expect(entry.createdAt == clock.date - 10 && entry.expiresAt == clock.date + 290)
        #expect(
            entry.etag == "e" && entry.tags == ["news"] && entry.isPinned && entry.version == version
                && entry.source == .store)
        try open().removeAll(tagged: "news")
        #expect(try open().value(for: url) == nil)
    }

    @Test("a read from memory counts as a use in the store")
    func use() throws {
        let cache = try Cache<Int, Int>.small(maxEntries: 3)
        for i in 1...3 { cache[i] = i }
        #expect(try cache.entry(for: 1)?.source == .memory)
        cache[4] = 4
        #expect(try cache.allKeys().sorted() == [1, 3, 4])
    }

    @Test("the store counts each read once, also reads from memory")
    func counts() throws {
        let directory = TemporaryDirectory()
        let mine = try Cache<Int, Int>(at: directory.url, capacity: 4 << 20),
            theirs = try Cache<Int, Int>(at: directory.url, capacity: 4 << 20)
        mine[1] = 1
        #expect(mine[1] == 1) // memory
        #expect(theirs[1] == 1) // store
        theirs[1] = 2
        #expect(mine[1] == 2) // store, after memory
        #expect(mine[2] == nil)
        theirs[1] = nil
        #expect(mine[1] == nil) // in memory, but removed
        let counted = try mine.store.statistics()
        #expect(counted.hits == 3 && counted.misses == 2)
        #expect(mine.statistics == CacheStatistics(memoryHits: 1, storeHits: 1, misses: 2))
        #expect(theirs.statistics == CacheStatistics(storeHits: 1))
    }
}
