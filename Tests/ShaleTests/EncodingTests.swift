import Foundation
import Testing
@testable import Shale

@Suite("Keys and values as bytes", .timeLimit(.minutes(30)))
struct EncodingTests {
    private func bytes<Key: Hashable & Codable & Sendable>(_ key: Key) throws -> [UInt8] {
        Array(try KeySpace<Key>(name: "").encode(key).dropFirst())
    }
    private func comesBack<Key: Hashable & Codable & Sendable>(_ key: Key) throws -> Bool {
        let space = try KeySpace<Key>(name: "name")
        return try space.encode(key).withUnsafeBytes { space.decode($0) } == key
    }

    @Test("keys have the same bytes in all versions")
    func stable() throws {
        #expect(try bytes("ключ") == Array("sключ".utf8))
        #expect(
            try bytes(try #require(URL(string: "https://example.org/a b?c")))
                == Array("ahttps://example.org/a%20b?c".utf8))
        #expect(try bytes(Data([0, 255])) == [100, 0, 255])
        #expect(try bytes([UInt8]([0, 255])) == [98, 0, 255])
        #expect(
            try bytes(try #require(UUID(uuidString: "00112233-4455-6677-8899-AABBCCDDEEFF")))
                == [
                    117, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF,
                ])
        #expect(try bytes(0) == [105, 0])
        #expect(try bytes(-1) == [105, 1])
        #expect(try bytes(1) == [105, 2])
        #expect(try bytes(Int64(300)) == [105, 0xD8, 0x04])
        #expect(try bytes(Int8(-128)) == [105, 0xFF, 0x01])
        #expect(try bytes(UInt16(300)) == [110, 0xAC, 0x02])
        #expect(try bytes(UInt64.max) == [110] + [UInt8](repeating: 0xFF, count: 9) + [1])
        #expect(try KeySpace<String>(name: "é").encode("k") == [2] + Array("ésk".utf8))
    }

    @Test("a key of another type is JSON whose order does not depend on the process")
    func sortedJSON() throws {
        struct Request: Hashable, Codable {
            var zoom = 3, path = "a/b", alpha = [1, 2], options = ["z": 1, "a": 2, "m": 3]
        }
        #expect(
            try bytes(Request()) == Array(#"j{"alpha":[1,2],"options":{"a":2,"m":3,"z":1},"path":"a/b","zoom":3}"#.utf8)
        )
        #expect(try comesBack(Request()))
    }

    @Test("keys survive a round trip")
    func backAgain() throws {
        #expect(try comesBack("") && comesBack("k") && comesBack("日本語"))
        #expect(try comesBack(Data()) && comesBack([UInt8]([1, 2])))
        #expect(try comesBack(UUID()))
        #expect(try comesBack(try #require(URL(string: "https://example.org/%C3%A9?x=1#f"))))
        for number in [Int.min, Int.min + 1, -129, -1, 0, 1, 63, 64, 8191, 8192, Int.max] {
            #expect(try comesBack(number), "\(number)")
        }
        #expect(try comesBack(Int8.min) && comesBack(Int16.max) && comesBack(Int32.min) && comesBack(Int64.max))
        #expect(
            try comesBack(UInt8.max) && comesBack(UInt16.max) && comesBack(UInt32.max) && comesBack(UInt64.max)
                && comesBack(UInt.max))
        #expect(try comesBack(true) && comesBack(1.5) && comesBack(Date(timeIntervalSince1970: 0.1)))
    }

    @Test("bytes that are not a key of this cache do not decode")
    func foreign() throws {
        func decode<Key: Hashable & Codable & Sendable>(_: Key.Type, _ bytes: [UInt8]) throws -> Key? {
            try bytes.withUnsafeBytes { try KeySpace<Key>(name: "").decode($0) }
        }
        #expect(try decode(Int.self, Array("\0i".utf8)) == nil)
        #expect(try decode(Int.self, Array("\0i".utf8) + [0x80]) == nil)
        #expect(try decode(Int.self, Array("\0i".utf8) + [1, 1]) == nil)
        #expect(try decode(Int.self, Array("\0i".utf8) + [UInt8](repeating: 0xFF, count: 10)) == nil)
        #expect(try decode(Int8.self, Array("\0i".utf8) + [0x80, 0x02]) == nil)
        #expect(try decode(UInt8.self, Array("\0n".utf8) + [0x80, 0x02]) == nil)
        #expect(try decode(UInt8.self, Array("\0n".utf8)) == nil)
        #expect(try decode(UUID.self, Array("\0u123".utf8)) == nil)
        #expect(try decode(String.self, Array("\0s".utf8) + [0xFF]) == nil)
        #expect(try decode(String.self, Array("\0i1".utf8)) == nil)
        #expect(try decode(String.self, Array("\u{1}ns1".utf8)) == nil)
        #expect(try decode([Int].self, Array("\0j{".utf8)) == nil)
    }

    @Test("Data, bytes and String are stored as they are, all other types as JSON")
    func values() throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        func stored<Value: Codable & Sendable & Equatable>(_ value: Value) throws -> [UInt8]? {
            let cache = try Cache<String, Value>(in: store, named: "", memoryEntries: 0)
            try cache.insert(value, for: "key")
            #expect(try cache.value(for: "key") == value)
            return try store.value(for: Array("\0skey".utf8))
        }
        #expect(try stored(Data([1, 2, 0])) == [1, 2, 0])
        #expect(try stored([UInt8]()) == [])
        #expect(try stored("né") == Array("né".utf8))
        #expect(
            try stored(Article(title: "t")).map { String(decoding: $0, as: UTF8.self) }?.contains("\"title\":\"t\"")
                == true)
        #expect(try stored(7) == Array("7".utf8))
        #expect(try stored(Optional<Int>.none) == Array("null".utf8))
    }

    @Test("the coder can be replaced")
    func coder() throws {
        let upper = Coder<String>(
            encode: { Data($0.uppercased().utf8) }, decode: { String(decoding: $0, as: UTF8.self) + "!" })
        let cache = try Cache<String, String>.small(memoryEntries: 0, coder: upper)
        cache["key"] = "value"
        #expect(cache["key"] == "VALUE!")
        let json = try Cache<String, String>(in: cache.store, named: "json", memoryEntries: 0, coder: .json)
        json["key"] = "v"
        #expect(json["key"] == "v")
        #expect(try cache.store.value(for: "\u{4}jsonskey") == Array("\"v\"".utf8))
    }

    @Test("a stored value that does not decode is a miss, counted, and stays until it is replaced")
    func undecodableStays() async throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        let old = try Cache<String, String>(in: store, named: "c"),
            new = try Cache<String, Article>(in: store, named: "c")
        for key in ["a", "b", "c", "d"] { old[key] = "not an article" }
        for _ in 0..<2 {
            #expect(try new.entry(for: "a", includingStale: true) == nil && new["a"] == nil)
            #expect(old["a"] == "not an article")
        }
        #expect(new.statistics == CacheStatistics(misses: 4, undecodable: 4))
        // A failed load leaves it, each policy.
        for policy in [LoadPolicy.default, .staleIfError, .staleWhileRevalidate, .reload] {
            await #expect(throws: Offline.self) {
                try await new.value(for: "b", options: LoadOptions(policy)) { throw Offline() }
            }
        }
        #expect(old["b"] == "not an article")
        // A reload does not read; staleIfError reads again after the failure.
        #expect(new.statistics.undecodable == 8)
        #expect(try await new.value(for: "b") { Article(title: "loaded") }.title == "loaded")
        #expect(new["b"]?.title == "loaded" && new.statistics.unstored == 0)
        #expect(try new.update({ $0.words = 1 }, for: "c") == nil)
        #expect(old["c"] == "not an article")
        #expect(try new.update({ $0.words += 1 }, for: "c", default: Article(title: "new")).words == 1)
        #expect(new["c"]?.words == 1)
        new["d"] = Article(title: "inserted")
        #expect(new["d"]?.title == "inserted")
    }

    @Test("caches of one name and different schemas share nothing")
    func schemas() async throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        func open(_ name: String, _ schema: Int) throws -> Cache<String, String> {
            try Cache(in: store, named: name, memoryEntries: 0, schema: schema)
        }
        let caches = try [open("c", 0), open("c", 1), open("c", 2), open("c", 300), open("", 0), open("", 1)]
        for (i, cache) in caches.enumerated() { try cache.insert("\(i)", for: "key", tags: ["tag"]) }
        for (i, cache) in caches.enumerated() { #expect(try cache["key"] == "\(i)" && cache.contains("key")) }
        try caches[1].removeAll(tagged: "tag")
        try caches[2].removeAll()
        try caches[4].expireAll()
        #expect(caches.map { $0["key"] } == ["0", nil, nil, "3", nil, "5"])
        // Of the same schema they share everything.
        #expect(try open("c", 300)["key"] == "3")
        #expect(throws: ShaleError.self) { try open("c", -1) }
        let directory = TemporaryDirectory()
        try Cache<String, Int>(at: directory.path, capacity: 4 << 20, schema: 7).insert(7, for: "key")
        #expect(try Cache<String, Int>(at: directory.path)["key"] == nil)
        #expect(try Cache<String, Int>(at: directory.path, options: .init(schema: 7))["key"] == 7)
    }

    @Test("if asked to, a cache removes a value that does not decode")
    func undecodable() async throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        let old = try Cache<String, String>(in: store, named: "c"),
            new = try Cache<String, Article>(in: store, named: "c", removesUndecodable: true)
        old["a"] = "not an article"
        old["b"] = "nor this"
        var changes = new.changes.makeAsyncIterator()
        #expect(try new.entry(for: "a", includingStale: true) == nil)
        #expect(new.statistics == CacheStatistics(misses: 1, undecodable: 1))
        #expect(old["a"] == nil)
        guard case .removed("a") = await changes.next() else { Issue.record("no removal"); return }
        #expect(try await new.value(for: "b") { Article(title: "loaded") }.title == "loaded")
        #expect(new["b"]?.title == "loaded")
        #expect(
            try Cache<String, String>(
                in: store, named: "c", coder: Coder(encode: { Data($0.utf8) }, decode: { _ in throw Offline() }),
                removesUndecodable: true
            ).value(for: "b") == nil)
        #expect(new["b"] == nil)
    }

    @Test("a value that does not decode is removed only if it has not been replaced since")
    func undecodableReplaced() throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        let good = try Cache<String, String>(in: store, named: "c")
        good["key"] = "old"
        let replacing = try Cache<String, String>(
            in: store, named: "c",
            coder: Coder(
                encode: { Data($0.utf8) },
                decode: { _ in
                    good["key"] = "new"
                    throw Offline()
                }), removesUndecodable: true)
        #expect(replacing["key"] == nil)
        #expect(good["key"] == "new")
    }

    @Test("a value that does not decode in a read-only store is a miss, and stays")
    func undecodableReadOnly() async throws {
        let directory = TemporaryDirectory()
        let writer = try Cache<String, String>(at: directory.url, capacity: 4 << 20)
        writer["key"] = "text"
        var options = Store.Options()
        options.isReadOnly = true
        let reader = try Cache<String, Article>(in: Store(at: directory.path, options: options), named: "")
        #expect(try reader.value(for: "key") == nil)
        let loaded = try await reader.entry(for: "key") { _ in .value(Article(title: "loaded")) }
        #expect(
            loaded.value.title == "loaded" && loaded.version == 0 && loaded.isStale
                && loaded.expiresAt == loaded.createdAt)
        #expect(reader.statistics.unstored == 1)
        #expect(writer["key"] == "text")
    }

    @Test("metadata survives a round trip; meta bytes of other writers are ignored")
    func meta() {
        for meta in [
            Meta(), Meta(etag: ""), Meta(etag: "é\"", tags: ["a", "", "b"], loadTime: 70_000),
            Meta(tags: [String(repeating: "t", count: 300)]), Meta(loadTime: 1), Meta(isMissing: true),
            Meta(tags: ["a"], loadTime: 1, isMissing: true),
        ] {
            #expect(Meta(meta.bytes) == meta)
        }
        #expect(Meta().bytes == [])
        #expect(Meta([1, 0, 2, 65]) == Meta(etag: "A"))
        #expect(Meta([2, 0, 2, 65]) == Meta(etag: "A", isMissing: true))
        #expect(Meta([3, 0, 2, 65]) == Meta())
        #expect(!Meta.isMissing(Meta(etag: "A").bytes) && !Meta.isMissing([]) && Meta.isMissing([2, 0, 2, 65]))
        #expect(Meta([1]) == Meta())
        #expect(Meta([1, 0, 9, 65]) == Meta())
        #expect(Meta([1, 0, 2, 0xFF]) == Meta())
        #expect(Meta([1, 0, 0, 200, 1, 65]) == Meta())
    }
}
