import Testing
@testable import ShaleCore

extension CoreTests {
    @Suite("The table by itself")
    struct TableTests {
        /// In a full neighbourhood one entry moves to the last free slot, and the next finds no place and is unlinked.
        /// The first is unlinked with it, as the parts of a value are. So both slots of the first are free while the
        /// pass still has its move on record, and other entries that the pass moves take them: if it then cleared the
        /// slot that the first had left, one of those would be lost.
        @Test("a pass clears no slot that another entry has taken meanwhile")
        func takenSlots() throws {
            let size = ShardHeader.size + Table.chunkBuckets * Table.bucketSize
            let memory = Memory.allocate(byteCount: size, alignment: Table.bucketSize)
            defer { memory.deallocate() }
            memory.zero(size)
            let table = Table(header: ShardHeader(at: memory), buckets: memory + ShardHeader.size, gap: 0)
            let before = Table.leastBuckets, after = TableShape.grown(before)
            memory.set(
                ShardHeader.Field.shape.offset,
                TableShape(buckets: before, frontier: 0, mode: TableShape.Mode.steady).word)

            var hashBits: [UInt32] = []
            func location(_ i: Int) -> UInt32 { UInt32(i + 1) }
            func find(_ i: Int) -> Slot? { table.find(hashBits[i], location: location(i)) }
            /// Adds so many entries, with hash bits from `lowest` on.
            func add(_ count: Int, from lowest: UInt64) throws -> Range<Int> {
                let first = hashBits.count
                for i in first..<(first + count) {
                    hashBits.append(UInt32(lowest) + UInt32(i))
                    let slot = try #require(table.reserve(hashBits[i]))
                    slot.release(SlotUse(stamp: UInt64(i), expiry: 0))
                    slot.release(table.word0(slot, hashBits[i], location: location(i), flags: 0))
                }
                return first..<hashBits.count
            }
            // Entries with home 1 fill all slots up to its maximum displacement; the first ones and most others stay in
            // it.
            let inHome1 = TableShape.lowestHashBits(1, before), movingTo2 = TableShape.lowestHashBits(2, after)
            _ = try add(Table.bucketSlots, from: inHome1)
            let moving = try add(5, from: movingTo2)
            _ = try add(Table.maxDisplacements.3 * Table.bucketSlots - moving.count, from: inHome1)
            // Home 2 extends one bucket further, and has a slot left there.
            _ = try add(Table.bucketSlots - 1, from: TableShape.lowestHashBits(2, before))

            var unlinked: [Int] = []
            table.begin(TableShape.Mode.growing)
            table.advance(Int.max) { slot in
                unlinked.append(Int(slot.entry.location) - 1)
                for leaving in [find(moving.lowerBound), slot] {
                    guard let leaving else { continue }
                    table.clearCopy(of: leaving)
                    table.clear(leaving)
                }
            }
            #expect(table.shape.buckets == after)
            #expect(unlinked == [moving.lowerBound + 1])
            let dead = moving.prefix(2)
            for i in hashBits.indices { #expect((find(i) == nil) == dead.contains(i), "entry \(i)") }
        }

        @Test(
            "a table is multiplied while entries of this length would fill it, then grows by quarters",
            arguments: [(100, 0), (3000, 0), (100, 3000)])
        func multiplying(size: Int, maxEntries: Int) throws {
            let store = try Store(
                at: nil, options: .init(capacity: 32 << 20, maxEntries: maxEntries == 0 ? nil : maxEntries))
            let shard = Shard(store.engine.ref, 0), value = [UInt8](repeating: 7, count: size)
            try #require(store.engine.ref.pointee.geometry.shards == 1)
            var passes: [Int] = [], last = shard.table.shape, count = 0
            while shard.header[ShardHeader.Field.evictions] == 0 {
                let pages = shard.header[ShardHeader.Field.tablePages]
                try store.insert(value, for: "key \(count)", uncompressed: true)
                count += 1
                let shape = shard.table.shape
                if shape.mode != last.mode, shape.mode != TableShape.Mode.steady {
                    passes.append(shape.mode)
                    // Earlier insertions have allocated all but a chunk at most.
                    let allocated = shard.header[ShardHeader.Field.tablePages] - pages
                    #expect(shape.mode == TableShape.Mode.growing || allocated <= Table.chunkBytes, "\(shape)")
                }
                last = shape
                // In the middle of passes, too. (The oldest one may be the first to be evicted.)
                if count % 9973 == 0 {
                    for i in 1..<count { try #require(try store.value(for: "key \(i)") == value, "\(i) of \(count)") }
                }
            }
            let multiplied = passes.prefix { $0 != TableShape.Mode.growing }
            // Short entries fill the largest multiple, of which earlier insertions have allocated the chunks.
            let largest = TableShape.Mode.multiplying(doublings: TableShape.Mode.mostDoublings)
            #expect(size > 100 || maxEntries > 0 ? !multiplied.isEmpty : multiplied.starts(with: [largest, largest]))
            #expect(multiplied.elementsEqual(multiplied.sorted(by: >)))
            #expect(passes.dropFirst(multiplied.count).allSatisfy { $0 == TableShape.Mode.growing })
            // No larger than the entries of the full shard need.
            let needed = count * 64 / 4 / TableLoad.grow
            #expect(TableShape.shrunk(last.extent) <= max(Table.leastBuckets, needed), "\(last.extent) for \(count)")
            #expect(store.brokenInvariants() == [])
        }
    }
}
