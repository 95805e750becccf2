import Testing
@testable import ShaleCore

extension CoreTests {
    @Suite("The table by itself")
    struct TableTests {
        /// In a full neighbourhood one entry moves to the last free slot, and the next finds no place and goes. The
        /// first goes with it, as the parts of a value do. So both slots of the first are free while the pass still has
        /// its move on record, and other entries that the pass moves take them: if it then cleared what the first had
        /// left, one of those would be gone.
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

            var fractions: [UInt32] = []
            func location(_ i: Int) -> UInt32 { UInt32(i + 1) }
            func find(_ i: Int) -> Slot? { table.find(fractions[i], location: location(i)) }
            /// Entries with so many fractions from this one on.
            func add(_ count: Int, from lowest: UInt64) throws -> Range<Int> {
                let first = fractions.count
                for i in first..<(first + count) {
                    fractions.append(UInt32(lowest) + UInt32(i))
                    let slot = try #require(table.reserve(fractions[i]))
                    slot.release(SlotUse(stamp: UInt64(i), expiry: 0))
                    slot.release(table.word0(slot, fractions[i], location: location(i), flags: 0))
                }
                return first..<fractions.count
            }
            // Those with the home 1 fill all that it reaches; the first ones and most others stay in it.
            let inHome1 = TableShape.lowestFraction(1, before), movingTo2 = TableShape.lowestFraction(2, after)
            _ = try add(Table.bucketSlots, from: inHome1)
            let moving = try add(5, from: movingTo2)
            _ = try add(Table.reaches.3 * Table.bucketSlots - moving.count, from: inHome1)
            // The home 2 reaches one bucket more, and has a slot left there.
            _ = try add(Table.bucketSlots - 1, from: TableShape.lowestFraction(2, before))

            var dropped: [Int] = []
            table.begin(TableShape.Mode.growing)
            table.advance(Int.max) { slot in
                dropped.append(Int(slot.entry.location) - 1)
                for leaving in [find(moving.lowerBound), slot] {
                    guard let leaving else { continue }
                    table.forgetCopy(of: leaving)
                    table.clear(leaving)
                }
            }
            #expect(table.shape.buckets == after)
            #expect(dropped == [moving.lowerBound + 1])
            let gone = moving.prefix(2)
            for i in fractions.indices { #expect((find(i) == nil) == gone.contains(i), "entry \(i)") }
        }
    }
}
