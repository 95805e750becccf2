import Foundation
import Testing
@testable import Shale

@Suite("Archives")
struct ArchiveTests {
    private func decoder(_ clock: TestClock) -> JSONDecoder {
        let decoder = JSONDecoder()
        decoder.userInfo[.cacheClock] = clock.now
        return decoder
    }

    @Test("S7 A cache can be encoded and decoded; expired entries are left out")
    func coded() throws {
        let clock = TestClock()
        let cache = try Cache<String, Article>.small(clock: clock)
        for i in 0..<100 { try cache.insert(Article(title: "\(i)"), for: "\(i)") }
        try cache.insert(Article(title: "brief"), for: "brief", maxAge: .seconds(1))
        clock.advance(seconds: 1)
        let other = try Cache<String, Article>(in: cache.store, named: "other")
        other["not this"] = Article(title: "other")
        let data = try JSONEncoder().encode(cache)
        #expect(!String(decoding: data, as: UTF8.self).contains("brief"))
        let copy = try decoder(clock).decode(Cache<String, Article>.self, from: data)
        #expect(try Set(copy.allKeys()) == Set((0..<100).map(String.init)))
        for i in 0..<100 { #expect(copy["\(i)"]?.title == "\(i)") }
        #expect(try copy.entry(for: "brief", includingStale: true) == nil)
    }

    @Test("S8 Decoding keeps the original expirations, validators, tags and pins")
    func expirations() throws {
        let clock = TestClock()
        let cache = try Cache<Int, String>.small(clock: clock)
        try cache.insert("a", for: 1, maxAge: .milliseconds(1234), tags: ["news"], etag: "e", pinned: true)
        try cache.insert("b", for: 2, maxAge: .forever)
        try cache.insert("c", for: 3, maxAge: .milliseconds(500))
        let expires = try cache.entry(for: 1)?.expiresAt
        let data = try JSONEncoder().encode(cache)
        clock.advance(milliseconds: 1000)
        let copy = try decoder(clock).decode(Cache<Int, String>.self, from: data)
        let entry = try #require(try copy.entry(for: 1))
        #expect(entry.expiresAt == expires && expires != nil)
        #expect(entry.etag == "e" && entry.tags == ["news"] && entry.isPinned)
        #expect(try copy.entry(for: 2)?.expiresAt == nil && copy[2] == "b")
        #expect(try copy.entry(for: 3, includingStale: true) == nil)
        clock.advance(milliseconds: 234)
        #expect(copy[1] == nil)
        try copy.removeAll(tagged: "news")
        #expect(try copy.entry(for: 1, includingStale: true) == nil)
    }

    @Test("S8 Expirations stay exact while the clock runs")
    func runningClock() throws {
        let clock = TestClock()
        let cache = try Cache<Int, Int>.small(clock: clock)
        for i in 0..<20 { try cache.insert(i, for: i, maxAge: .seconds(1000 + i)) }
        // Each of the first reads of this clock is some milliseconds later than the one before.
        let looks = Counter()
        let decoder = JSONDecoder()
        let running: @Sendable () -> Date = {
            if looks.add() % 3 == 0 { clock.advance(milliseconds: 1) }
            return clock.date
        }
        decoder.userInfo[.cacheClock] = running
        let copy = try decoder.decode(Cache<Int, Int>.self, from: JSONEncoder().encode(cache))
        for i in 0..<20 { #expect(try copy.entry(for: i)?.expiresAt == cache.entry(for: i)?.expiresAt, "\(i)") }
    }

    @Test("S9 saveToDisk(withName:) writes <name>.cache in the caches directory, and it can be read back")
    func savedInCaches() throws {
        let name = "shale-test-\(UUID().uuidString)"
        let folder = try FileManager.default.url(
            for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
        let file = folder.appendingPathComponent("\(name).cache")
        defer { try? FileManager.default.removeItem(at: file) }
        let cache = try Cache<String, Article>.small(clock: TestClock())
        cache["key"] = Article(title: "saved", words: 3)
        #expect(try cache.saveToDisk(withName: name) == file)
        let copy = try Cache<String, Article>(contentsOf: file)
        #expect(copy["key"] == Article(title: "saved", words: 3))
    }

    @Test("S9 A custom directory is created if it does not exist; a missing archive is an error")
    func savedElsewhere() throws {
        let directory = TemporaryDirectory(), clock = TestClock()
        let folder = directory.url.appendingPathComponent("some/where")
        let cache = try Cache<String, Int>.small(clock: clock)
        for i in [1, 2] {
            cache["key"] = i
            let file = try cache.saveToDisk(withName: "numbers", in: folder)
            #expect(try Cache<String, Int>(contentsOf: file, now: clock.now)["key"] == i)
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == ["numbers.cache"])
        #expect(throws: (any Error).self) {
            try Cache<String, Int>(contentsOf: folder.appendingPathComponent("others.cache"))
        }
    }

    @Test(
        "A name that would lead out of the directory is an error, and nothing is written",
        arguments: [
            "../x", "a/b", "/x", "", "a\0b",
        ])
    func namesOfOtherFolders(name: String) throws {
        let directory = TemporaryDirectory(), folder = directory.url.appendingPathComponent("inside")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let cache = try Cache<String, Int>.small(clock: TestClock()), inMemory = MemoryCache<String, Int>()
        for save in [cache.saveToDisk(withName:in:using:), inMemory.saveToDisk(withName:in:using:)] {
            let error = #expect(throws: ShaleError.self) { try save(name, folder, .default) }
            #expect(error?.code == .invalid && error?.message.contains(name.debugDescription) == true)
        }
        #expect(try FileManager.default.subpathsOfDirectory(atPath: directory.url.path) == ["inside"])
    }

    @Test("a foreign archive: impossible entries are dataCorrupted, possible ones are read")
    func foreign() throws {
        let clock = TestClock()
        func decode(_ fields: String) throws -> Cache<String, Int> {
            try decoder(clock).decode(
                Cache<String, Int>.self,
                from: Data("[{\"key\":\"k\",\"value\":1,\(fields)}]".utf8))
        }
        func fields(expires: String = "null", loadTime: String = "0", tags: String = "[]") -> String {
            "\"expires\":\(expires),\"loadTime\":\(loadTime),\"tags\":\(tags),\"isPinned\":false"
        }
        let later = clock.date.millisecondsSince1970 + 1000
        #expect(try decode(fields())["k"] == 1)
        #expect(try decode(fields(expires: "\(later)"))["k"] == 1)
        #expect(try decode(fields(expires: "0"))["k"] == nil)
        let latest: Int64 = 1 << 48 - 2
        #expect(
            try decode(fields(expires: "\(latest)")).entry(for: "k")?.expiresAt == Date(millisecondsSince1970: latest))
        #expect(try decode(fields(loadTime: "9223372036854775807"))["k"] == 1)
        for bad in [
            fields(expires: "\(Int64.max)"), fields(expires: "\(latest + 1)"), fields(expires: "-1"),
            fields(expires: "\(Int64.min)"), fields(loadTime: "-1"), fields(loadTime: "\(Int64.min)"),
            fields(tags: "[\"\"]"), fields(tags: "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\"]"),
            fields(expires: "1e300"), fields(expires: "\(later)0000000000000000000000"),
        ] {
            let error = #expect(throws: DecodingError.self, "\(bad)") { _ = try decode(bad) }
            guard case .dataCorrupted = error else {
                Issue.record("\(bad): \(String(describing: error))")
                continue
            }
        }
    }

    @Test("decoding ends with a clock that advances at each read, or returns no valid time")
    func strangeClocks() throws {
        let clock = TestClock()
        let cache = try Cache<Int, Int>.small(clock: clock)
        try cache.insert(1, for: 1, maxAge: .seconds(1000))
        let data = try JSONEncoder().encode(cache)
        let decoder = JSONDecoder()
        let running: @Sendable () -> Date = {
            clock.advance(milliseconds: 1)
            return clock.date
        }
        decoder.userInfo[.cacheClock] = running
        #expect(try decoder.decode(Cache<Int, Int>.self, from: data)[1] == 1)
        for seconds in [Double.nan, .infinity, -.infinity, 1e300, -1e300] {
            let cache = try Cache<Int, Int>.inMemory(capacity: 1 << 20, now: { Date(timeIntervalSince1970: seconds) })
            cache[1] = 1
            #expect(cache[1] == 1)
        }
    }
}
