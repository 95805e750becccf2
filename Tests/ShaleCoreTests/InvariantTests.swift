import Testing
@testable import ShaleCore

#if DEBUG
extension CoreTests {
    /// Drives the engine through every operation and checks its invariants after every step.
    @Suite("Invariants of shard, log and index hold after every step")
    struct InvariantTests {
        @Test("small steps in small caches", arguments: [UInt64(1), 2, 3, 4])
        func steps(seed: UInt64) throws {
            var random = SplitMix(seed)
            let clock = TestTime()
            var options = Store.Options(
                capacity: seed % 2 == 0 ? 1 << 20 : 3 << 20, maxEntries: seed % 3 == 0 ? 40 : nil)
            options.now = { clock.now }
            let store = try Store(at: nil, options: options)
            for step in 0..<1500 {
                let key = "key \(random.next() % 120)"
                let what = random.next() % 20
                switch what {
                case 0..<10:
                    let size = random.next() % 7 == 0 ? Int(random.next() % 60_000) : Int(random.next() % 600)
                    let value = (0..<size).map { _ in UInt8(truncatingIfNeeded: random.next()) }
                    _ = try store.insert(
                        value, for: key,
                        maxAge: random.next() % 3 == 0 ? .milliseconds(Int(random.next() % 5000)) : nil,
                        staleFor: random.next() % 4 == 0 ? .milliseconds(2000) : nil,
                        tags: random.next() % 3 == 0 ? ["t\(random.next() % 5)"] : [],
                        pinned: random.next() % 30 == 0)
                case 10..<13: _ = try store.value(for: key)
                case 13: _ = try store.removeValue(for: key)
                case 14, 15: _ = try store.touch(key, maxAge: .milliseconds(Int(random.next() % 9000)))
                case 16: try store.removeAll(tagged: "t\(random.next() % 5)")
                case 17: _ = try store.evict(Int(random.next() % 3))
                case 18: _ = try store.increment("n \(random.next() % 4)")
                default:
                    clock.now += Int64(random.next() % 3000)
                    if random.next() % 60 == 0 { try store.removeAll() }
                    if random.next() % 8 == 0 { _ = try store.purge() }
                }
                let broken = store.brokenInvariants()
                try #require(broken.isEmpty, "seed \(seed), step \(step), operation \(what): \(broken.prefix(5))")
            }
        }

        @Test("the order of use survives the stamps' being renumbered, again and again")
        func rebase() throws {
            let store = try Store(at: nil, options: .init(capacity: 4 << 20))
            let shard = Shard(store.engine.ref, 0)
            for i in 0..<100 { try store.insert("v", for: "key \(i)") }
            for round in 0..<5 {
                // Use all in another order, let the stamps run out, and change something.
                let order = (0..<100).map { ($0 * 37 + round * 11) % 100 }
                for i in order { #expect(try store.value(for: "key \(i)") != nil) }
                shard.header[ShardHeader.Field.stamp] = Sizes.renumberStampsAt + UInt64(round)
                for i in order { #expect(try store.value(for: "key \(i)") != nil) }
                try store.insert("w", for: "newest")
                #expect(shard.header[ShardHeader.Field.stamp] < 1 << 35)
                #expect(store.brokenInvariants() == [])
                // The ten that were used first are evicted first; then they are set again for the next round.
                #expect(try store.evict(10) == 10)
                for (place, i) in order.enumerated() {
                    #expect((try store.entry(for: "key \(i)") == nil) == (place < 10), "round \(round), place \(place)")
                }
                for i in order.prefix(10) { try store.insert("v", for: "key \(i)") }
            }
        }

        @Test("a clear that was killed, begun in place and ended with a frame that it found, happens once")
        func clearOnce() throws {
            let store = try Store(at: nil, options: .init(capacity: 1 << 20))
            let shard = Shard(store.engine.ref, 0)
            func recover() throws {
                shard.header[ShardHeader.Field.state] = ShardHeader.State.writing
                try shard.settle()
            }
            try store.insert("before", for: "key")
            shard.header.pend(ShardHeader.Pending.clearInPlace | ShardHeader.Pending.clear)
            try recover()
            #expect(try store.value(for: "key") == nil)
            #expect(store.brokenInvariants() == [])
            try store.insert("after", for: "key")
            try recover()
            #expect(try store.value(for: "key") != nil)
        }

        @Test("the lowest buckets keep what is displaced when the table shrinks", arguments: 0..<60)
        func lowestBuckets(run: Int) throws {
            let store = try Store(at: nil, options: .init(capacity: 8 << 20))
            let shard = Shard(store.engine.ref, 0)
            let count = 1500 + run * 20
            for i in 0..<(2 * count) { try store.insert("v", for: "\(run) \(i)") }
            for i in count..<(2 * count) { try store.removeValue(for: "\(run) \(i)") }
            shard.table.advance(Int.max) { _ in Issue.record("an entry found no place") }
            // Fuller than a shrinking table ever is, so that entries are displaced everywhere.
            while TableShape.shrunk(shard.table.shape.buckets) * 4 * 93 / 100 > count {
                shard.table.begin(TableShape.Mode.shrinking)
                while shard.table.shape.mode != TableShape.Mode.steady {
                    shard.table.advance(1) { _ in Issue.record("an entry found no place") }
                    try #require(store.brokenInvariants() == [])
                    if shard.table.shape.frontier > 8 {
                        shard.table.advance(Int.max) { _ in Issue.record("an entry found no place") }
                    }
                }
            }
            #expect(store.brokenInvariants() == [])
        }

        @Test("the table through growth and shrinking")
        func table() throws {
            let store = try Store(at: nil, options: .init(capacity: 8 << 20))
            for round in 0..<2 {
                for i in 0..<9000 {
                    try store.insert("v", for: "\(round) \(i)")
                    if i % 300 == 0 { try #require(store.brokenInvariants().isEmpty, "growing, \(i)") }
                }
                for i in 0..<9000 {
                    #expect(try store.value(for: "\(round) \(i)") != nil)
                    try store.removeValue(for: "\(round) \(i)")
                    if i % 300 == 0 { try #require(store.brokenInvariants().isEmpty, "removing, \(i)") }
                }
                // Insertions shrink the table again.
                for i in 0..<4000 { try store.insert("w", for: "few \(i % 40)") }
                #expect(store.brokenInvariants() == [])
            }
            #expect(try store.statistics().evictions == 0)
            #expect(Shard(store.engine.ref, 0).table.shape.buckets < 1000)
        }
    }
}
#endif

/// SplitMix64, https://prng.di.unimi.it/splitmix64.c.
struct SplitMix {
    private var state: UInt64
    init(_ seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 }
    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}
