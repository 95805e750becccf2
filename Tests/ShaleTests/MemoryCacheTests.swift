import Foundation
import Synchronization
import Testing
@testable import Shale

@Suite("A cache in memory for any type", .timeLimit(.minutes(30)))
struct MemoryCacheTests {
    private let clock = TestClock()

    private func cache<Key: Hashable, Value>(
        _: Key.Type = String.self, _: Value.Type = Int.self, lifetime: TimeInterval = 60, count: Int = 50
    ) -> MemoryCache<Key, Value> {
        MemoryCache(dateProvider: clock.now, entryLifetime: lifetime, maximumEntryCount: count)
    }

    @Test("S1, S5, S10 By default an entry lives for 12 hours, 50 are kept, and the clock is the system's")
    func defaults() {
        let cache = MemoryCache<Int, Int>(dateProvider: clock.now)
        for i in 0..<60 { cache[i] = i }
        #expect(cache.count == 50 && cache.allKeys() == Array(10..<60))
        clock.advance(seconds: 12 * 60 * 60 - 1)
        #expect(cache[59] == 59)
        clock.advance(seconds: 1)
        #expect(cache[59] == nil && cache.count == 0)
        let now = MemoryCache<Int, Int>()
        now[1] = 1
        #expect(now[1] == 1)
    }

    @Test(
        "S2 A value is returned only while now is before its expiration; a read removes an expired one"
    )
    func expires() {
        final class Value {}
        let cache = cache(String.self, Value.self, lifetime: 10)
        weak var value: Value?
        do {
            let fresh = Value()
            value = fresh
            cache["a"] = fresh
        }
        clock.advance(milliseconds: 9999)
        #expect(cache["a"] != nil)
        clock.advance(milliseconds: 1)
        #expect(value != nil && cache["a"] == nil)
        #expect(value == nil)
        clock.advance(seconds: -100)
        #expect(cache["a"] == nil)
    }

    @Test("S2 A read of an expired entry does not remove a value that was inserted since")
    func expiredMeanwhile() {
        let cache = Mutex<MemoryCache<String, Int>?>(nil), clock = clock
        let isInserting = Mutex(false)
        let own = MemoryCache<String, Int>(
            dateProvider: {
                let now = clock.date
                let inserts = isInserting.withLock { inserts in
                    defer { inserts = false }
                    return inserts
                }
                if inserts { cache.withLock { $0 }?["a"] = 2 }
                return now
            }, entryLifetime: 10)
        cache.withLock { $0 = own }
        own["a"] = 1
        clock.advance(seconds: 10)
        isInserting.withLock { $0 = true }
        #expect(own["a"] == nil)
        #expect(own["a"] == 2)
        cache.withLock { $0 = nil }
    }

    @Test("S3 The subscript inserts, and removes with nil; with a default")
    func subscripts() {
        let cache = cache()
        cache["a"] = 1
        cache["a"] = 2
        #expect(cache["a"] == 2 && cache.count == 1)
        cache["a"] = nil
        #expect(cache["a"] == nil && cache.allKeys().isEmpty)
        #expect(cache["b", default: 5] == 5 && cache["b"] == nil)
        cache["b", default: 5] += 1
        cache["b", default: 5] += 1
        #expect(cache["b"] == 7)
        cache.removeValue(for: "none")
        cache.removeAll()
        #expect(cache["b"] == nil)
    }

    @Test("S4 Any Hashable key and any value: classes, closures, characters, optionals, NaN")
    func anything() {
        final class Object {}
        struct Folded: Hashable {
            var text: String
            static func == (a: Folded, b: Folded) -> Bool { a.text.lowercased() == b.text.lowercased() }
            func hash(into hasher: inout Hasher) { text.lowercased().hash(into: &hasher) }
        }
        let object = Object()
        let objects = cache(ObjectIdentifier.self, Object.self)
        objects[ObjectIdentifier(object)] = object
        #expect(objects[ObjectIdentifier(object)] === object)
        let functions = cache(Character.self, ((Int) -> Int).self)
        functions["e\u{301}"] = { $0 + 1 }
        #expect(functions["é"]?(1) == 2)
        let folded = cache(Folded.self, Character.self)
        folded[Folded(text: "A")] = "x"
        folded[Folded(text: "a")] = "y"
        #expect(folded[Folded(text: "A")] == "y" && folded.count == 1)
        let numbers = cache(Double.self, Double.self)
        numbers[0.0] = .infinity
        #expect(numbers[-0.0] == .infinity)
        numbers[1] = .nan
        #expect(numbers[1]?.isNaN == true)
        let metatypes = cache(AnyHashable.self, Any.Type.self)
        metatypes[[1]] = Int.self
        #expect(metatypes[[1]] == Int.self)
        let optionals = cache(String?.self, Int?.self)
        optionals.insert(nil, for: nil)
        #expect(optionals.value(for: nil) == .some(nil))
    }

    /// A key with one of a few hashes.
    private struct Colliding: Hashable {
        let id: Int, hashes: Int
        func hash(into hasher: inout Hasher) { hasher.combine(id % hashes) }
    }

    @Test(
        "Exactly the least recently used entry is evicted, compared with a list, also if keys have one hash",
        arguments: [1, 3, 17], [1, 3, 1000])
    func order(limit: Int, hashes: Int) {
        let cache = cache(Colliding.self, Int.self, count: limit)
        var random = SystemRandomNumberGenerator(), model: [(key: Colliding, value: Int)] = []
        for step in 0..<10_000 {
            let key = Colliding(id: .random(in: 0..<limit * 2, using: &random), hashes: hashes)
            let position = model.firstIndex { $0.key == key }
            switch Int.random(in: 0..<10, using: &random) {
            case 0:
                cache.removeValue(for: key)
                if let position { model.remove(at: position) }
            case 1..<4:
                cache[key] = step
                if let position { model.remove(at: position) }
                model.append((key, step))
                if model.count > limit { model.removeFirst() }
            default:
                #expect(cache[key] == position.map { model[$0].value })
                if let position { model.append(model.remove(at: position)) }
            }
            #expect(cache.allKeys() == model.map(\.key))
        }
    }

    @Test("at the limit, an expired entry goes before a fresh one, also from an archive; a count removes expired ones")
    func expiredFirst() throws {
        let cache = cache(String.self, Int.self, lifetime: 10, count: 3)
        cache["old"] = 2
        clock.advance(seconds: 5)
        cache["a"] = 1
        cache["b"] = 3
        _ = cache["old"]
        clock.advance(seconds: 5)
        // It was used last.
        cache["c"] = 4
        #expect(cache.allKeys() == ["a", "b", "c"])
        clock.advance(seconds: 5)
        #expect(cache.count == 1)
        // Not there when the clock is set back.
        clock.advance(seconds: -5)
        #expect(cache.count == 1 && cache.allKeys() == ["c"])

        let mixed: MemoryCache<Int, Int> = try decode(
            "["
                + (0..<50).map { i in
                    let left = (i * 7) % 50 + 1
                    let date = clock.date.timeIntervalSinceReferenceDate + Double(left)
                    return "{\"key\": \(i), \"value\": \(left), \"expirationDate\": \(date)}"
                }.joined(separator: ",") + "]")
        for gone in 0..<50 {
            #expect(mixed.count == 50 - gone)
            #expect(mixed.allKeys().compactMap { mixed[$0] }.allSatisfy { $0 > gone })
            clock.advance(seconds: 1)
        }
    }

    @Test("the total cost is bounded, and a value that exceeds the limit alone is not kept")
    func costs() {
        let cache = MemoryCache<String, Int>(
            dateProvider: clock.now, entryLifetime: 10, maximumEntryCount: 0, maximumTotalCost: 100
        ) { $0 }
        cache["a"] = 40
        cache["b"] = 40
        cache["c"] = 20
        #expect(cache.allKeys() == ["a", "b", "c"])
        _ = cache["a"]
        cache["d"] = 1
        #expect(cache.allKeys() == ["c", "a", "d"])
        cache["a"] = 79
        #expect(cache.allKeys() == ["c", "d", "a"])
        cache.update({ $0 += 1 }, for: "a")
        #expect(cache.allKeys() == ["d", "a"])
        cache["d"] = 101
        #expect(cache.allKeys() == ["a"])
        cache["e"] = 20
        cache.update({ $0 = 101 }, for: "e")
        cache["f"] = 101
        #expect(cache.allKeys() == ["a"])
        cache["a"] = nil
        // Neither negative costs nor removals leave room beyond the limit.
        cache["minus"] = -50
        for key in ["a", "b"] { cache[key] = 60 }
        #expect(cache.allKeys() == ["b"] || cache.allKeys() == ["minus", "b"])
        cache.removeAll()
        for key in ["a", "b", "c"] { cache[key] = 50 }
        #expect(cache.allKeys() == ["b", "c"])
        let huge = MemoryCache<Int, Int>(maximumTotalCost: .max) { _ in .max / 2 }
        for key in 0..<3 { huge[key] = key }
        #expect(huge.allKeys() == [2])
    }

    @Test("the earliest deadline, compared with a list")
    func deadlines() {
        var deadlines = Deadlines(), model: [Int: Double] = [:]
        for _ in 0..<5000 {
            let position = Int.random(in: 0..<min(model.count + 1, 64))
            if model.removeValue(forKey: position) != nil {
                deadlines.remove(position)
            } else if position == 0 || model.count >= position {
                let deadline = Double(Int.random(in: 0..<20))
                deadlines.add(position, deadline)
                model[position] = deadline
            }
            #expect(deadlines.earliest?.deadline == model.values.min())
            #expect(deadlines.earliest.map { model[$0.position] == $0.deadline } ?? model.isEmpty)
        }
    }

    @Test("a lifetime that is not a number is over at once")
    func notANumber() {
        let cache = cache(Int.self, Int.self, lifetime: .nan, count: 2)
        for i in 0..<4 { cache[i] = i }
        #expect(cache[3] == nil && cache.count == 0)
    }

    @Test("a limit below 1 means no limit")
    func noLimit() {
        for count in [0, -1] {
            let cache = cache(Int.self, Int.self, count: count)
            for i in 0..<1000 { cache[i] = i }
            #expect(cache.count == 1000)
        }
    }

    @Test("a value's deinit, a key's deinit and the clock may use the cache")
    func reentrant() {
        final class Node: Hashable, @unchecked Sendable {
            static func == (a: Node, b: Node) -> Bool { a.id == b.id }
            func hash(into hasher: inout Hasher) { hasher.combine(id) }
            let id: Int
            let use: @Sendable () -> Void
            init(_ id: Int, _ use: @escaping @Sendable () -> Void) {
                self.id = id
                self.use = use
            }
            deinit { use() }
        }
        let cache = Mutex<MemoryCache<Node, Node>?>(nil), uses = Counter(), clock = clock
        let use: @Sendable () -> Void = {
            let cache = cache.withLock { $0 }
            if uses.add() % 10 == 0 { cache?[Node(-1) {}] = Node(0) {} }
            _ = cache?[Node(1) {}]
        }
        let own = MemoryCache<Node, Node>(
            dateProvider: {
                _ = uses.count
                return clock.date
            }, entryLifetime: 10, maximumEntryCount: 4)
        cache.withLock { $0 = own }
        for round in 0..<10 {
            for i in 0..<10 { own[Node(i, use)] = Node(i, use) }
            for i in 0..<10 { own[Node(i, use)] = nil }
            for i in 0..<3 { own[Node(i, use)] = Node(i, use) }
            if round % 2 == 0 { own.removeAll() } else { clock.advance(seconds: 10) }
            for i in 0..<3 { #expect(own[Node(i, use)] == nil) }
        }
        let last = cache.withLock { cache in
            defer { cache = nil }
            return cache
        }
        #expect(uses.count > 100 && last != nil)
    }

    @Test("it is safe to use from any thread, and no key is present twice", arguments: [1, 1000])
    func threads(hashes: Int) async throws {
        let cache = cache(Colliding.self, Int.self, count: 20)
        @Sendable func key(_ id: Int) -> Colliding { Colliding(id: id, hashes: hashes) }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for thread in 0..<8 {
                group.addTask {
                    for i in 0..<2000 {
                        cache[key(i % 40)] = i % 40
                        if let value = cache[key((i * 7 + thread) % 40)] { #expect(value == (i * 7 + thread) % 40) }
                        if i % 7 == 0 { cache[key(i % 40)] = nil }
                        if i % 100 == 0 {
                            let keys = cache.allKeys()
                            #expect(Set(keys).count == keys.count)
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        for i in 0..<40 { cache[key(i)] = i }
        #expect(cache.allKeys().map(\.id) == Array(20..<40))
    }

    // MARK: Archives

    private func decode<Key: Codable, Value: Codable>(_ text: String) throws -> MemoryCache<Key, Value> {
        let decoder = JSONDecoder()
        decoder.userInfo[.cacheClock] = clock.now
        return try decoder.decode(MemoryCache<Key, Value>.self, from: Data(text.utf8))
    }

    @Test(
        "S7, S8 It is Codable if its parts are: expired entries are left out, expirations and the order of use are kept"
    )
    func coded() throws {
        let cache = cache(String.self, Double.self, lifetime: 10)
        cache["old"] = 1
        clock.advance(seconds: 5)
        for (i, key) in ["a", "b", "c"].enumerated() { cache[key] = Double(i) }
        _ = cache["a"]
        clock.advance(seconds: 5)
        let text = String(decoding: try JSONEncoder().encode(cache), as: UTF8.self)
        #expect(!text.contains("old"))
        clock.advance(milliseconds: 4999)
        let copy: MemoryCache<String, Double> = try decode(text)
        #expect(copy.allKeys() == ["b", "c", "a"] && copy["b"] == 1)
        clock.advance(milliseconds: 1)
        #expect(copy.count == 0)
    }

    @Test("S7 Files of the article's code and of a Cache load, here and in a Cache")
    func articles() throws {
        // What "Caching in Swift" encodes: entries, with dates in seconds since 2001.
        struct Entry: Codable {
            var key: String, value: Article, expirationDate: Date
        }
        let fresh = clock.date + 100
        let written = try JSONEncoder().encode([
            Entry(key: "fresh", value: Article(title: "one"), expirationDate: fresh),
            Entry(key: "expired", value: Article(title: "two"), expirationDate: clock.date),
            Entry(key: "for ever", value: Article(title: "three"), expirationDate: .distantFuture),
        ])
        let text = String(decoding: written, as: UTF8.self)
        let cache: MemoryCache<String, Article> = try decode(text)
        #expect(cache.allKeys() == ["fresh", "for ever"] && cache["fresh"]?.title == "one")
        // And vice versa.
        let back = try JSONDecoder().decode([Entry].self, from: JSONEncoder().encode(cache))
        #expect(back.map(\.key) == ["for ever", "fresh"] && back[1].expirationDate == fresh)
        let decoder = JSONDecoder()
        decoder.userInfo[.cacheClock] = clock.now
        let stored = try decoder.decode(Cache<String, Article>.self, from: written)
        #expect(try Set(stored.allKeys()) == ["fresh", "for ever"])
        #expect(try stored.entry(for: "fresh")?.expiresAt == fresh)
        let again: MemoryCache<String, Article> = try decode(
            String(decoding: JSONEncoder().encode(stored), as: UTF8.self))
        #expect(Set(again.allKeys()) == ["fresh", "for ever"])
        clock.advance(seconds: 100)
        #expect(stored["fresh"] == nil && cache["fresh"] == nil && again["fresh"] == nil)
        #expect(cache["for ever"]?.title == "three")
    }

    @Test("from an archive with more than 50 entries, the last 50 stay")
    func largeArchive() throws {
        let cache = cache(Int.self, Int.self, count: 0)
        for i in 0..<60 { cache[i] = i }
        let copy: MemoryCache<Int, Int> = try decode(
            String(decoding: JSONEncoder().encode(cache), as: UTF8.self))
        #expect(copy.allKeys() == Array(10..<60))
    }

    @Test("S9 saveToDisk(withName:using:) writes <name>.cache in the caches directory, and it can be read back")
    func saved() throws {
        let name = "shale-test-\(UUID().uuidString)"
        let folder = try FileManager.default.url(
            for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
        let file = folder.appendingPathComponent("\(name).cache")
        defer { try? FileManager.default.removeItem(at: file) }
        let cache = cache(String.self, Double.self, lifetime: .infinity)
        cache["infinite"] = .infinity
        cache["not a number"] = .nan
        #expect(try cache.saveToDisk(withName: name, using: .default) == file)
        let copy = try MemoryCache<String, Double>(contentsOf: file, now: clock.now)
        #expect(copy["infinite"] == .infinity && copy["not a number"]?.isNaN == true)
        clock.advance(seconds: 1 << 32)
        #expect(copy["infinite"] == .infinity)
    }
}
