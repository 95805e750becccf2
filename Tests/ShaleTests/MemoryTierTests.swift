import Testing
@testable import Shale

@Suite("The memory tier")
struct MemoryTierTests {
    private typealias Tier = MemoryTier<Int, Int>
    private func insert(_ key: Int, cost: Int = 1, version: UInt64 = 1, into tier: Tier) -> [Int] {
        tier.insert(Tier.Item(value: key, version: version, storedKey: [], cost: cost), for: .compared(key)).map(
            \.value)
    }

    @Test("the least recently used is evicted first; reads and replacements count as uses")
    func order() {
        let tier = Tier(maxEntries: 3, maxCost: 100)
        for key in 1...3 { #expect(insert(key, into: tier) == []) }
        #expect(tier.item(for: .compared(1))?.value == 1)
        #expect(insert(2, into: tier) == [])
        #expect(insert(4, into: tier) == [3])
        #expect(insert(5, into: tier) == [1])
        #expect(insert(6, into: tier) == [2])
    }

    @Test("the cost is bounded too; an item above the limit is not kept, and neither is the one that it replaces")
    func cost() {
        let tier = Tier(maxEntries: 100, maxCost: 10)
        #expect(insert(1, cost: 4, into: tier) == [])
        #expect(insert(2, cost: 4, into: tier) == [])
        #expect(insert(3, cost: 2, into: tier) == [])
        #expect(insert(4, cost: 5, into: tier) == [1, 2])
        #expect(insert(3, cost: 10, into: tier) == [4])
        #expect(insert(3, cost: 11, version: 2, into: tier) == [])
        #expect(tier.item(for: .compared(3)) == nil)
        #expect(insert(5, cost: 10, into: tier) == [])
    }

    @Test("a version replaces only an older one")
    func version() {
        let tier = Tier(maxEntries: 3, maxCost: 10)
        _ = tier.insert(Tier.Item(value: 2, version: 2, storedKey: [], cost: 1), for: .compared(1))
        _ = tier.insert(Tier.Item(value: 1, version: 1, storedKey: [], cost: 1), for: .compared(1))
        #expect(tier.item(for: .compared(1))?.value == 2)
        _ = tier.insert(Tier.Item(value: 3, version: 3, storedKey: [], cost: 1), for: .compared(1))
        #expect(tier.item(for: .compared(1))?.value == 3)
    }

    @Test("only the present item gets another bookmark, and that is no use")
    func bookmarks() throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        try store.insert("v", for: "key")
        let bookmark = try #require(try store.readVersion(of: Array("key".utf8))).bookmark
        let tier = Tier(maxEntries: 2, maxCost: 10)
        for key in 1...2 { _ = insert(key, into: tier) }
        let old = try #require(tier.item(for: .compared(2)))
        #expect(try !store.hits(old.bookmark))
        let first = try #require(tier.list.withLock { $0[.compared(1)] })
        tier.mark(first, for: .compared(1), bookmark)
        #expect(insert(3, into: tier) == [1])
        _ = insert(2, version: 2, into: tier)
        tier.mark(old, for: .compared(2), bookmark)
        tier.mark(old, for: .compared(1), bookmark)
        let new = try #require(tier.item(for: .compared(2)))
        #expect(try new.version == 2 && !store.hits(new.bookmark) && tier.item(for: .compared(1)) == nil)
        tier.mark(new, for: .compared(2), bookmark)
        let marked = try #require(tier.item(for: .compared(2)))
        #expect(try marked.version == 2 && marked.value == 2 && store.hits(marked.bookmark))
    }

    @Test("capacity 0 keeps nothing")
    func none() throws {
        let cache = try Cache<Int, Int>.small(memoryEntries: 0)
        cache[1] = 1
        #expect(try cache.entry(for: 1)?.source == .store)
        #expect(try cache.entry(for: 1)?.source == .store)
    }

    @Test("compared with a plain list, through 20,000 random steps", arguments: [1, 2, 3])
    func model(seed: UInt64) {
        var random = Steps(state: seed)
        let tier = Tier(maxEntries: 8, maxCost: 40)
        var model: [(key: Int, cost: Int)] = [] // the most recently used last
        for step in 0..<20_000 {
            let key = random.next() % 16
            switch random.next() % 8 {
            case 0:
                tier.remove(.compared(key))
                model.removeAll { $0.key == key }
            case 1..<4:
                let cost = random.next() % 20 + 1
                let evicted = insert(key, cost: cost, into: tier)
                model.removeAll { $0.key == key }
                var expected: [Int] = []
                while model.count >= 8 || model.map(\.cost).reduce(cost, +) > 40 {
                    expected.append(model.removeFirst().key)
                }
                model.append((key, cost))
                #expect(evicted == expected, "seed \(seed), step \(step)")
            default:
                let isThere = tier.item(for: .compared(key)) != nil
                let place = model.firstIndex { $0.key == key }
                #expect(isThere == (place != nil), "seed \(seed), step \(step)")
                if let place { model.append(model.remove(at: place)) }
            }
            if random.next() % 5000 == 0 {
                tier.removeAll()
                model = []
            }
        }
    }

    /// The high bits of the linear congruential generator of Numerical Recipes.
    private struct Steps {
        var state: UInt64
        mutating func next() -> Int {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int(state >> 33)
        }
    }
}
