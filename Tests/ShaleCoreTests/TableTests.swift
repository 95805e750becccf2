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
    }
}
