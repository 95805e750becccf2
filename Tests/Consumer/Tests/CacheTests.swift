import Foundation
import Shale
import Testing

private struct Rock: Codable, Sendable, Equatable {
    var name: String
    var hardness = 3
}

@Suite("A program that uses Shale", .timeLimit(.minutes(30)))
struct CacheTests {
    private let directory = Directory()

    @Test("opens a cache, stores, reads, and reads again after reopening")
    func reopening() throws {
        for round in 0..<2 {
            let rocks = try Cache<String, Rock>(at: directory.url, maxAge: .seconds(3600), maxEntries: 1000)
            if round == 0 { try rocks.insert(Rock(name: "Slate"), for: "slate", tags: ["metamorphic"], etag: "v1") }
            let entry = try #require(try rocks.entry(for: "slate"))
            #expect(entry.value == Rock(name: "Slate") && entry.etag == "v1" && entry.tags == ["metamorphic"])
            #expect(entry.source == (round == 0 ? .memory : .store))
            rocks["marl"] = Rock(name: "Marl")
            #expect(try rocks.allKeys().sorted() == ["marl", "slate"])
            rocks["marl"] = nil
            #expect(rocks["marl"] == nil)
        }
    }

    @Test("loads a missing value once for all callers")
    func loading() async throws {
        let rocks = try Cache<String, Rock>(at: directory.url)
        let names = try await withThrowingTaskGroup { group in
            for _ in 0..<100 { group.addTask { try await rocks.value(for: "slate") { Rock(name: "Slate") }.name } }
            return try await group.reduce(into: Set()) { $0.insert($1) }
        }
        #expect(names == ["Slate"])
        #expect(rocks.statistics.loads == 1)
        try rocks.touch("slate", maxAge: .zero)
        struct Offline: Error {}
        #expect(try await rocks.value(for: "slate", options: .staleIfError) { throw Offline() }.name == "Slate")
        let validated = try await rocks.entry(for: "slate") { $0 == nil ? .value(Rock(name: "Marl")) : .notModified() }
        #expect(validated.value.name == "Slate" && !validated.isStale)
        var seen: [String] = []
        try rocks.touch("slate", maxAge: .zero)
        for try await entry in rocks.entries(for: "slate", load: { Rock(name: "Shale") }) {
            seen.append(entry.value.name)
        }
        #expect(seen == ["Slate", "Shale"])
    }

    @Test("shares one store between several caches")
    func sharing() throws {
        let store = try Store(at: directory.url.path, options: .init(capacity: 16 << 20))
        let rocks = try Cache<String, Rock>(in: store, named: "rocks"),
            images = try Cache<String, Data>(in: store, named: "images")
        let numbers = try Cache<Int, String>(in: store, named: "numbers", maxAge: .forever, coder: .json)
        rocks["slate"] = Rock(name: "Slate")
        images["slate"] = Data([1, 2, 3])
        numbers[1] = "one"
        try rocks.removeAll()
        #expect(rocks["slate"] == nil && images["slate"] == Data([1, 2, 3]) && numbers[1] == "one")
        #expect(try store.statistics().entries > 0)
    }

    @Test("streams changes")
    func changes() async throws {
        let rocks = try Cache<String, Rock>(at: directory.url)
        let changes = rocks.changes
        try rocks.insert(Rock(name: "Slate"), for: "slate")
        try rocks.removeValue(for: "slate")
        try rocks.removeAll(tagged: "metamorphic")
        var seen: [String] = []
        for await change in changes {
            switch change {
            case .inserted(let key, _): seen.append("inserted \(key)")
            case .removed(let key): seen.append("removed \(key)")
            case .removedAll(let tag): seen.append("removed all \(tag ?? "")")
            default: seen.append("\(change)")
            }
            if seen.count == 3 { break }
        }
        #expect(seen == ["inserted slate", "removed slate", "removed all metamorphic"])
    }

    @Test("saves a cache as an archive and reads it back")
    func archive() throws {
        let rocks = try Cache<String, Rock>(at: directory.url), archives = Directory()
        try rocks.insert(Rock(name: "Slate"), for: "slate", etag: "v1")
        try rocks.insert(Rock(name: "Old"), for: "old", maxAge: .zero)
        let copy = try Cache<String, Rock>(contentsOf: rocks.saveToDisk(withName: "rocks", in: archives.url))
        #expect(try copy.allKeys() == ["slate"])
        #expect(try copy.entry(for: "slate")?.etag == "v1")
        #expect(try copy.entry(for: "slate")?.expiresAt == rocks.entry(for: "slate")?.expiresAt)
    }

    @Test("reads in one process what another has stored")
    func processes() async throws {
        let path = directory.url.path
        let rocks = try Cache<String, String>(at: directory.url)
        rocks["mine"] = "Slate"
        await #expect(processExitsWith: .success) { [path = path as String] in
            let there = try Cache<String, String>(at: path)
            #expect(there["mine"] == "Slate")
            try there.insert("Marl", for: "theirs")
            try there.removeValue(for: "mine")
        }
        #expect(rocks["theirs"] == "Marl" && rocks["mine"] == nil)
    }
}
