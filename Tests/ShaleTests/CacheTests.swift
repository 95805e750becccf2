import Foundation
import Testing
@testable import Shale

@Suite("Cache: the generic cache")
struct CacheTests {
    @Test("S1 An entry expires after its lifetime, by default 12 hours from now")
    func lifetime() throws {
        let clock = TestClock()
        let cache = try Cache<String, Int>.inMemory(capacity: 4 << 20, now: clock.now)
        try cache.insert(1, for: "default")
        try cache.insert(2, for: "own", maxAge: .seconds(60))
        #expect(try cache.entry(for: "default")?.expiresAt == clock.date + 12 * 60 * 60)
        #expect(try cache.entry(for: "own")?.expiresAt == clock.date + 60)
        try cache.insert(3, for: "for ever", maxAge: .forever)
        #expect(try cache.entry(for: "for ever")?.expiresAt == nil)
    }

    @Test("S2 A value is returned only while now is before its expiration", arguments: [0, 256])
    func expiration(memoryEntries: Int) throws {
        let clock = TestClock()
        let cache = try Cache<String, Int>.small(maxAge: .seconds(60), memoryEntries: memoryEntries, clock: clock)
        cache["key"] = 1
        clock.advance(milliseconds: 59_999)
        #expect(cache["key"] == 1)
        clock.advance(milliseconds: 1)
        #expect(cache["key"] == nil)
        #expect(try cache.value(for: "key") == nil)
        #expect(try cache.entry(for: "key") == nil)
    }

    @Test("S3 Subscript: nil removes, a value inserts")
    func subscripts() throws {
        let cache = try Cache<String, Int>.small()
        cache["key"] = 1
        #expect(cache["key"] == 1)
        cache["key"] = 2
        #expect(cache["key"] == 2)
        cache["key"] = nil
        #expect(cache["key"] == nil)
        #expect(try !cache.removeValue(for: "key"))
    }

    @Test("S4 Any hashable key; values in memory and on disk")
    func anyKey() throws {
        struct Place: Hashable, Codable { var row: Int, column: Int }
        let directory = TemporaryDirectory()
        for round in 0..<2 {
            let cache = try Cache<Place, Article>(at: directory.url, capacity: 4 << 20)
            for i in 0..<10 {
                let place = Place(row: i, column: -i)
                if round == 0 { try cache.insert(Article(title: "\(i)"), for: place) }
                let entry = try #require(try cache.entry(for: place))
                #expect(entry.value == Article(title: "\(i)"))
                #expect(entry.source == (round == 0 ? .memory : .store))
            }
        }
    }

    @Test("S5 The number of entries is bounded; the least recently used are evicted first")
    func entryCount() throws {
        let cache = try Cache<Int, Int>.inMemory(maxEntries: 50, capacity: 4 << 20)
        for i in 0..<50 { cache[i] = i }
        #expect(cache[0] == 0)
        cache[50] = 50
        cache[51] = 51
        #expect(try Set(cache.allKeys()) == Set([0] + Array(3...51)))
        let four = try Cache<Int, Int>.small(maxEntries: 4)
        for i in 0..<10 { four[i] = i }
        #expect(try four.allKeys().sorted() == [6, 7, 8, 9])
    }

    @Test("The first cache of a store sets its eviction policy")
    func eviction() throws {
        let directory = TemporaryDirectory()
        let cache = try Cache<Int, Int>(at: directory.url, capacity: 4 << 20, eviction: .clock)
        #expect(try cache.store.statistics().eviction == .clock)
        #expect(try Cache<Int, Int>(at: directory.url).store.statistics().eviction == .clock)
        let error = #expect(throws: ShaleError.self) { try Cache<Int, Int>(at: directory.path, eviction: .lru) }
        #expect(error?.code == .invalid)
        #expect(try Cache<Int, Int>.inMemory(capacity: 4 << 20).store.statistics().eviction == .lru)
    }

    @Test("S6 The listed keys are the present ones")
    func keys() throws {
        let clock = TestClock()
        let cache = try Cache<String, Int>.small(clock: clock)
        #expect(try cache.allKeys() == [])
        for key in ["a", "b", "c", "d"] { cache[key] = 1 }
        try cache.insert(2, for: "brief", maxAge: .seconds(1))
        try cache.removeValue(for: "b")
        clock.advance(seconds: 1)
        #expect(try cache.allKeys().sorted() == ["a", "c", "d"])
        try cache.removeAll()
        #expect(try cache.allKeys() == [])
    }

    @Test("S10 The clock can be replaced")
    func clock() throws {
        let clock = TestClock()
        let cache = try Cache<String, Int>.small(clock: clock)
        clock.advance(seconds: 1000)
        try cache.insert(1, for: "key")
        let entry = try #require(try cache.entry(for: "key"))
        #expect(entry.createdAt == clock.date)
        #expect(entry.expiresAt == clock.date + 60)
    }

    @Test("dates are whole milliseconds, and survive a round trip")
    func milliseconds() {
        for start in [Int64(0), 1_000_000_000_000, 1_795_000_000_000, 4_000_000_000_000] {
            for milliseconds in stride(from: start, to: start + 10_000, by: 7) {
                #expect(Date(millisecondsSince1970: milliseconds).millisecondsSince1970 == milliseconds)
            }
        }
    }

    @Test("an entry has the value's metadata")
    func entry() throws {
        let clock = TestClock()
        let cache = try Cache<String, Article>.small(memoryEntries: 1, clock: clock)
        let version = try cache.insert(
            Article(title: "one"), for: "key", tags: ["news", "über"], etag: "\"v1\"", pinned: true)
        for source in [EntrySource.memory, .store, .memory] {
            if source == .store { try cache.insert(Article(title: "two"), for: "other") }
            let entry = try #require(try cache.entry(for: "key"))
            #expect(entry.value == Article(title: "one"))
            #expect(entry.createdAt == clock.date)
            #expect(entry.expiresAt == clock.date + 60)
            #expect(!entry.isStale)
            #expect(entry.etag == "\"v1\"")
            #expect(entry.tags == ["news", "über"])
            #expect(entry.version == version)
            #expect(entry.isPinned)
            #expect(entry.source == source)
        }
        let plain = try #require(try cache.entry(for: "other"))
        #expect(plain.etag == nil && plain.tags == [] && !plain.isPinned)
        #expect(plain.version != version)
    }

    @Test("stale entries are returned on request until the end of their stale period", arguments: [0, 256])
    func stale(memoryEntries: Int) throws {
        let clock = TestClock()
        let cache = try Cache<String, Int>.small(
            maxAge: .seconds(10), staleFor: .seconds(5), memoryEntries: memoryEntries, clock: clock)
        cache["key"] = 1
        #expect(try cache.entry(for: "key", includingStale: true)?.isStale == false)
        clock.advance(seconds: 10)
        #expect(try cache.entry(for: "key") == nil)
        for _ in 0..<2 {
            let entry = try #require(try cache.entry(for: "key", includingStale: true))
            #expect(entry.isStale && entry.value == 1)
        }
        clock.advance(seconds: 5)
        #expect(try cache.entry(for: "key", includingStale: true) == nil)
    }

    @Test("by default stale entries are kept while there is room")
    func staleForEver() throws {
        let clock = TestClock()
        let cache = try Cache<String, Int>.inMemory(capacity: 4 << 20, now: clock.now)
        cache["key"] = 1
        clock.advance(seconds: 1_000_000_000)
        #expect(try cache.entry(for: "key", includingStale: true)?.value == 1)
    }

    @Test("touch sets a new age and keeps value and version", arguments: [0, 256])
    func touch(memoryEntries: Int) throws {
        let clock = TestClock()
        let cache = try Cache<String, Int>.small(memoryEntries: memoryEntries, clock: clock)
        let version = try cache.insert(1, for: "key", etag: "e")
        clock.advance(seconds: 60)
        #expect(cache["key"] == nil)
        #expect(try cache.touch("key", maxAge: .seconds(5)))
        let entry = try #require(try cache.entry(for: "key"))
        #expect(entry.value == 1 && entry.version == version && entry.etag == "e")
        #expect(entry.expiresAt == clock.date + 5)
        #expect(try cache.touch("key"))
        #expect(try cache.entry(for: "key")?.expiresAt == clock.date + 60)
        #expect(try !cache.touch("other"))
    }

    @Test("an expired entry is stale at once, from memory and from the store", arguments: [0, 256])
    func expire(memoryEntries: Int) throws {
        let clock = TestClock()
        let cache = try Cache<String, Int>.small(
            staleFor: .seconds(100), memoryEntries: memoryEntries, clock: clock)
        for key in ["a", "b", "c"] { try cache.insert(1, for: key, tags: key == "c" ? [] : ["tag"]) }
        for key in ["a", "b", "c"] { #expect(try cache.value(for: key) == 1) }
        #expect(try cache.expire("a"))
        #expect(try !cache.expire("absent"))
        clock.advance(seconds: 10)
        #expect(try cache.value(for: "a") == nil)
        #expect(try cache.entry(for: "a", includingStale: true)?.expiresAt == clock.date - 10)
        #expect(try cache.value(for: "b") == 1)
        try cache.expireAll(tagged: "tag")
        #expect(try cache.value(for: "b") == nil)
        let known = try #require(try cache.entry(for: "b", includingStale: true))
        #expect(known.value == 1 && known.isStale && known.expiresAt == clock.date)
        #expect(try cache.value(for: "c") == 1)
        #expect(try cache.touch("b"))
        #expect(try cache.value(for: "b") == 1)
        try cache.expireAll()
        for key in ["a", "b", "c"] {
            #expect(try cache.value(for: key) == nil)
            #expect(try cache.entry(for: key, includingStale: true)?.value == 1)
        }
        clock.advance(seconds: 100)
        for key in ["b", "c"] { #expect(try cache.entry(for: key, includingStale: true) == nil) }
    }

    @Test("replace replaces only the version that was read", arguments: [0, 256])
    func replacing(memoryEntries: Int) throws {
        let clock = TestClock()
        let cache = try Cache<String, Int>.small(memoryEntries: memoryEntries, clock: clock)
        let first = try cache.insert(1, for: "key")
        clock.advance(seconds: 60)
        let second = try #require(
            try cache.insert(
                2, for: "key", ifVersion: first, maxAge: .seconds(5), tags: ["news"], etag: "e", pinned: true))
        let entry = try #require(try cache.entry(for: "key"))
        #expect(entry.value == 2 && entry.version == second && second != first)
        #expect(entry.expiresAt == clock.date + 5 && entry.tags == ["news"] && entry.etag == "e" && entry.isPinned)
        #expect(try cache.insert(3, for: "key", ifVersion: first) == nil)
        #expect(cache["key"] == 2)
        try cache.removeValue(for: "key")
        #expect(try cache.insert(3, for: "key", ifVersion: second) == nil)
        #expect(cache["key"] == nil)
    }

    @Test("removing a tag removes its entries", arguments: [0, 256])
    func tags(memoryEntries: Int) throws {
        let cache = try Cache<String, Int>.small(memoryEntries: memoryEntries)
        try cache.insert(1, for: "a", tags: ["news"])
        try cache.insert(2, for: "b", tags: ["news", "sport", "3", "4", "5", "6", "7"])
        try cache.insert(3, for: "c", tags: ["sport"])
        try cache.removeAll(tagged: "news")
        #expect(cache["a"] == nil && cache["b"] == nil && cache["c"] == 3)
        try cache.insert(4, for: "a", tags: ["news"])
        #expect(cache["a"] == 4)
    }

    @Test("pinned entries are not evicted; removing all removes them")
    func pinning() throws {
        let cache = try Cache<Int, Int>.small(maxEntries: 4)
        try cache.insert(100, for: 100, pinned: true)
        for i in 0..<20 { cache[i] = i }
        #expect(cache[100] == 100)
        for i in 101...102 { try cache.insert(i, for: i, pinned: true) }
        #expect(throws: Never.self) { try cache.insert(103, for: 103) }
        #expect(try cache.allKeys().sorted() == [100, 101, 102, 103])
        try cache.removeAll()
        #expect(try cache.allKeys() == [])
        for i in 200..<204 { try cache.insert(i, for: i, pinned: true) }
        #expect(try cache.allKeys().sorted() == [200, 201, 202, 203])
        #expect(try cache.removeValue(for: 200))
        #expect(cache[200] == nil)
    }

    @Test("if pinned entries fill the cache, an insertion fails and changes nothing")
    func pinnedFull() throws {
        let cache = try Cache<Int, Int>.small(maxEntries: 4)
        for i in 0..<4 { try cache.insert(i, for: i, pinned: true) }
        let error = #expect(throws: ShaleError.self) { try cache.insert(5, for: 5) }
        #expect(error?.code == .full)
        #expect(cache[5] == nil)
        #expect(try cache.allKeys().sorted() == [0, 1, 2, 3])
    }

    @Test("errors name the directory, the cache and the cause")
    func errors() throws {
        struct Broken: Codable, Hashable {
            func encode(to encoder: any Encoder) throws { throw Offline() }
        }
        let directory = TemporaryDirectory()
        let store = try Store(at: directory.path, options: .init(capacity: 4 << 20))
        let cache = try Cache<Broken, Broken>(in: store, named: "articles")
        let error = #expect(throws: ShaleError.self) { try cache.insert(Broken(), for: Broken()) }
        #expect(error?.code == .invalid)
        for part in [directory.path, "articles", "key", "Offline"] {
            #expect(error?.message.contains(part) == true, "\(part)")
        }
        let values = try Cache<String, Broken>(in: store, named: "articles")
        #expect(throws: ShaleError.self) { try values.insert(Broken(), for: "key") }.map {
            #expect($0.message.contains("value") && $0.message.contains("Offline"))
        }

        let file = directory.url.appendingPathComponent("file")
        try Data().write(to: file)
        let opening = #expect(throws: ShaleError.self) {
            try Cache<String, Int>(at: file.appendingPathComponent("cache"))
        }
        #expect(opening?.errno == ENOTDIR)
        #expect(opening?.message.contains(file.path) == true)

        let elsewhere = try #require(URL(string: "https://example.org/cache"))
        #expect(throws: ShaleError.self) { try Cache<String, Int>(at: elsewhere) }
        #expect(throws: ShaleError.self) {
            try Cache<String, Int>(in: store, named: String(repeating: "n", count: 256))
        }
        let strings = try Cache<String, Int>(in: store, named: String(repeating: "n", count: 255))
        strings["key"] = 1
        #expect(strings["key"] == 1)
        #expect(throws: ShaleError.self) { try strings.insert(1, for: "key", tags: [""]) }
        #expect(throws: ShaleError.self) { try strings.removeAll(tagged: "") }
        let tooMany = #expect(throws: ShaleError.self) {
            try strings.insert(1, for: "key", tags: (0..<8).map(String.init))
        }
        #expect(tooMany?.code == .invalid && tooMany?.message.hasSuffix("8 tags; an entry has at most seven") == true)
        #expect(throws: ShaleError.self) { try strings.insert(1, for: String(repeating: "k", count: 65_536)) }
        #expect(strings["key"] == 1)
    }
}
