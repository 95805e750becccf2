import Foundation
import Testing
@testable import Shale

@Suite("Equal keys are one key, in memory and in the store", .timeLimit(.minutes(30)))
struct EqualKeyTests {
    /// Each operation on one of two equal keys applies to both, through this cache object and through another.
    private func areOne<Key: Hashable & Codable & Sendable>(_ a: Key, _ b: Key) async throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        for memoryEntries in [0, 256] {
            let cache = try Cache<Key, Int>(in: store, named: "c", memoryEntries: memoryEntries)
            let other = try Cache<Key, Int>(in: store, named: "c", memoryEntries: memoryEntries)
            for (a, b) in [(a, b), (b, a)] {
                try cache.insert(1, for: a)
                #expect(try other.value(for: b) == 1, "\(a), \(b)")
                try cache.insert(2, for: b)
                #expect(try cache.value(for: a) == 2 && other.value(for: a) == 2, "\(a), \(b)")
                #expect(try cache.allKeys().count == 1)
                #expect(try cache.removeValue(for: a))
                #expect(try cache.value(for: b) == nil && other.value(for: b) == nil, "\(a), \(b)")
                let loads = Counter()
                async let first = cache.value(for: a) { loads.add() }
                async let second = cache.value(for: b) { loads.add() }
                #expect(try await first == 1)
                #expect(try await second == 1)
                try cache.removeAll()
            }
        }
    }

    private func areTwo<Key: Hashable & Codable & Sendable>(_ a: Key, _ b: Key) throws {
        for memoryEntries in [0, 256] {
            let cache = try Cache<Key, Int>.small(memoryEntries: memoryEntries)
            try cache.insert(1, for: a)
            try cache.insert(2, for: b)
            #expect(try cache.value(for: a) == 1 && cache.value(for: b) == 2, "\(a), \(b)")
        }
    }

    private struct Place: Hashable, Codable {
        var name = "", height = 0.0, tags: Set<String> = [], numbers: [Int: Set<Int>] = [:], names: [String: Int] = [:]
    }

    @Test("strings, however they are composed")
    func strings() async throws {
        try await areOne("é", "e\u{301}")
        try await areOne("한국", "\u{1112}\u{1161}\u{11AB}\u{1100}\u{116E}\u{11A8}")
        try await areOne("a\u{323}\u{307}", "a\u{307}\u{323}")
        try await areOne(["é"], ["e\u{301}"])
        try await areOne(Place(name: "Å"), Place(name: "\u{212B}"))
        try await areOne(Place(names: ["é": 1, "z": 2]), Place(names: ["z": 2, "e\u{301}": 1]))
        try areTwo("é", "e")
        // Compatible but not canonically equivalent.
        try areTwo("ﬁ", "fi")
        try areTwo(Place(name: "a"), Place(name: "b"))
        try areTwo(Place(names: ["a": 1]), Place(names: ["a": 2]))
    }

    @Test("zero with either sign, and every NaN")
    func numbers() async throws {
        try await areOne(0.0, -0.0)
        try await areOne(Float(0), -Float(0))
        try await areOne([0.0, 1], [-0.0, 1])
        try await areOne(Place(height: 0), Place(height: -0.0))
        try await areOne(Decimal(sign: .plus, exponent: -2, significand: 100), Decimal(1))
        try await areOne(Decimal(sign: .plus, exponent: 2, significand: 1), Decimal(100))
        try areTwo(0.1, 0.2)
        try areTwo(Double.infinity, -Double.infinity)
        let cache = try Cache<Double, Int>.small()
        try cache.insert(1, for: .nan)
        #expect(try cache.value(for: -.nan) == 1)
        #expect(try cache.value(for: Double(nan: 7, signaling: false)) == 1)
        #expect(try cache.allKeys().map(\.isNaN) == [true])
    }

    @Test("sets and dictionaries in any order")
    func collections() async throws {
        // The order depends on the capacity and on a per-process seed.
        for count in 1...20 {
            let forward = Set(0..<count)
            var backward = Set<Int>(minimumCapacity: 1000)
            for number in (0..<count).reversed() { backward.insert(number) }
            try await areOne(forward, backward)
            let pairs = (0..<count).map { ("\($0)", $0) }, numbers = (0..<count).map { ([$0], forward) }
            try await areOne(
                Dictionary(uniqueKeysWithValues: pairs), Dictionary(uniqueKeysWithValues: pairs.reversed()))
            try await areOne(
                Dictionary(uniqueKeysWithValues: numbers),
                Dictionary(uniqueKeysWithValues: numbers.reversed().map { ($0.0, backward) }))
            try await areOne(
                Place(tags: Set(pairs.map(\.0)), numbers: [1: forward]),
                Place(tags: Set(pairs.reversed().map(\.0)), numbers: [1: backward]))
        }
        try areTwo(Set([1, 2]), Set([1, 3]))
        // The order of a list is significant.
        try areTwo([1, 2], [2, 1])
        #expect(try KeySpace<Set<Int>>(name: "").encode([3, 1, 2]) == Array("\0j[1,2,3]".utf8))
    }

    @Test("a type with a custom == has a canonical value, also where it is nested")
    func canonical() async throws {
        struct Host: CacheKey {
            var name: String
            var canonical: Host { Host(name: name.lowercased()) }
            static func == (a: Host, b: Host) -> Bool { a.name.lowercased() == b.name.lowercased() }
            func hash(into hasher: inout Hasher) { hasher.combine(name.lowercased()) }
        }
        struct Page: Hashable, Codable { var hosts: Set<Host>, path: String }
        try await areOne(Host(name: "Example"), Host(name: "example"))
        try await areOne([Host(name: "Example")], [Host(name: "example")])
        try await areOne(
            Page(hosts: [Host(name: "B"), Host(name: "a")], path: "/"),
            Page(hosts: [Host(name: "A"), Host(name: "b")], path: "/"))
        try areTwo(Host(name: "a"), Host(name: "b"))
    }

    /// One key by its custom `==`, two by its encoding.
    private struct Blurred: Hashable, Codable {
        var name: String
        static func == (a: Blurred, b: Blurred) -> Bool { a.name.lowercased() == b.name.lowercased() }
        func hash(into hasher: inout Hasher) { hasher.combine(name.lowercased()) }
    }

    @Test("memory and store agree if a type's == and its encoding do not", arguments: [0, 256])
    func agreement(memoryEntries: Int) async throws {
        let cache = try Cache<Blurred, Int>.small(memoryEntries: memoryEntries)
        try cache.insert(1, for: Blurred(name: "A"))
        #expect(try cache.value(for: Blurred(name: "a")) == nil)
        #expect(try await cache.value(for: Blurred(name: "a")) { 2 } == 2)
        #expect(try cache.value(for: Blurred(name: "A")) == 1)
        try cache.removeValue(for: Blurred(name: "a"))
        #expect(try cache.value(for: Blurred(name: "A")) == 1)
    }

    @Test("equal tags and names are the same")
    func tagsAndNames() throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        let cache = try Cache<Int, Int>(in: store, named: "é"), same = try Cache<Int, Int>(in: store, named: "e\u{301}")
        try cache.insert(1, for: 1, tags: ["ü"])
        #expect(try same.value(for: 1) == 1)
        try same.removeAll(tagged: "u\u{308}")
        #expect(try cache.value(for: 1) == nil)
    }

    @Test("an entry under bytes that no key encodes to is a miss, and is not listed")
    func foreignBytes() throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        let texts = try Cache<String, Int>(in: store, named: ""), numbers = try Cache<Double, Int>(in: store, named: "")
        let sets = try Cache<Set<Int>, Int>(in: store, named: "")
        for bytes in ["se\u{301}", "j-0", "j[2,1]"] {
            try store.insert("1", for: [0] + Array(bytes.utf8), tags: ["0:"])
        }
        #expect(try texts.value(for: "é") == nil && numbers.value(for: 0) == nil && sets.value(for: [1, 2]) == nil)
        #expect(try texts.allKeys() == [] && numbers.allKeys() == [] && sets.allKeys() == [])
        try texts.insert(2, for: "é")
        let copy = try JSONDecoder().decode(Cache<String, Int>.self, from: JSONEncoder().encode(texts))
        #expect(try copy.value(for: "é") == 2)
    }

    @Test("keys encode as JSON that a decoder reads, with every kind of container")
    func containers() throws {
        struct Everything: Hashable, Codable {
            var text = "\"\\\n\u{1}é/", flag = true, nothing: Int?, small = Int8(-1), large = UInt64.max
            var third = 1.0 / 3, float = Float(0.1), tiny = Double.leastNonzeroMagnitude, infinite = -Double.infinity
            var data = Data([0, 255]), date = Date(timeIntervalSince1970: 0.1)
            var url = URL(string: "https://example.org/a/b?c=d")
            var decimal = Decimal(string: "-10.50"), id = UUID()
            var nested = [["a": [1: [true]]]], empty = [String](), maybe: [Int?] = [nil, 1]
        }
        let space = try KeySpace<Everything>(name: "n"), key = Everything()
        #expect(try space.encode(key).withUnsafeBytes { space.decode($0) } == key)

        struct Manual: Hashable, Codable {
            private enum Name: CodingKey { case list, object, nothing }
            init() {}
            init(from decoder: any Decoder) throws {
                let object = try decoder.container(keyedBy: Name.self)
                var list = try object.nestedUnkeyedContainer(forKey: .list)
                #expect(try list.decodeNil())
                #expect(try list.decode(Int.self) == 1)
                #expect(try list.nestedContainer(keyedBy: Name.self).decode(Bool.self, forKey: .nothing))
                var inner = try list.nestedUnkeyedContainer()
                #expect(try inner.decode(String.self) == "in")
                #expect(try list.superDecoder().singleValueContainer().decode(Int.self) == 2)
                #expect(try object.decodeNil(forKey: .nothing))
                #expect(try object.superDecoder().singleValueContainer().decode(Int.self) == 3)
                #expect(
                    try object.nestedContainer(keyedBy: Name.self, forKey: .object).decode(Int.self, forKey: .list) == 4
                )
            }
            func encode(to encoder: any Encoder) throws {
                var object = encoder.container(keyedBy: Name.self)
                var list = object.nestedUnkeyedContainer(forKey: .list)
                try list.encodeNil()
                try list.encode(1)
                var first = list.nestedContainer(keyedBy: Name.self)
                try first.encode(true, forKey: .nothing)
                var inner = list.nestedUnkeyedContainer()
                try inner.encode("in")
                var above = list.superEncoder().singleValueContainer()
                try above.encode(2)
                try object.encodeNil(forKey: .nothing)
                var over = object.superEncoder().singleValueContainer()
                try over.encode(3)
                var last = object.nestedContainer(keyedBy: Name.self, forKey: .object)
                try last.encode(4, forKey: .list)
            }
        }
        let manual = try KeySpace<Manual>(name: "")
        let bytes = try manual.encode(Manual())
        #expect(
            bytes
                == Array(
                    #"\#0j{"list":[null,1,{"nothing":true},["in"],2],"nothing":null,"object":{"list":4},"super":3}"#
                        .utf8))
        #expect(bytes.withUnsafeBytes { manual.decode($0) } != nil)
    }
}
