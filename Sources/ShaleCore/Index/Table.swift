import CShalePlatform

/// The slot table of a shard: buckets of one cache line, four slots each.
///
/// A key's home is `fraction · buckets / 2^32`, with the fraction the low half
/// of its hash. Homes keep the order of the fractions, so the table can grow by
/// any factor in place: entries only ever move up, highest bucket first
/// (shrinking: down, lowest first), a few buckets for each insertion. One full
/// pass makes the table a quarter larger, and the load stays between 0.7 and
/// 0.9. (Doubling bucket by bucket, as plain linear hashing does, leaves the
/// buckets that are not yet split with up to twice the average load, which
/// neighbours cannot take up at 0.8.)
///
/// An entry that does not fit into its home goes to one of the next 15 buckets;
/// where those are full, others are moved up to make room.
///
/// The buckets lie in chunks: those of all shards in turn, so that the file is not longer than what the tables take.
///
/// Invariants
/// - the shape word (buckets, frontier, mode) says for every fraction where its one home is;
/// - bucket `h` reaches at least as far as the entry with home `h` that was displaced furthest;
/// - an entry is published in its new slot, then the shape or `moves` says so, then its old slot
///   is cleared: a reader that misses looks whether either has changed, and repeats;
/// - an entry's stamp only grows, until all are rebased, or a killed change is taken back. No two have the same one.
struct Table {
    static let bucketSize = 64
    static let bucketSlots = bucketSize / Slot.size
    static let chunkBuckets = Sizes.chunkBuckets
    /// In a chunk: cells of each generation of tags, a page with a piece of both heaps, and the buckets.
    static let chunkHead = 2 * Sizes.tagBytes + pageSize
    static let chunkBytes = chunkHead + chunkBuckets * bucketSize
    static let leastBuckets = Sizes.leastBuckets // with fewer, 24 bits of a fraction do not give back all 32
    static let mostBuckets = Sizes.mostBuckets
    static let spill = Sizes.spill
    static let reaches = Sizes.reaches

    typealias Field = ShardHeader.Field

    let header: ShardHeader
    /// Those of the first chunk; and what lies between its last one and the next chunk's first.
    let buckets: Memory
    let gap: Int

    @inline(__always) var shape: TableShape { TableShape(header.acquire(Field.shape)) }
    func fraction(at position: Int, _ word0: SlotEntry, _ shape: TableShape) -> UInt32 {
        // (A damaged slot may name a home below the first.)
        let home = max(0, position - word0.displacement)
        return TableShape.fraction(fingerprint: word0.fingerprint, home: home, buckets: shape.buckets(ofHome: home))
    }

    func fraction(of slot: Slot) -> UInt32 { fraction(at: position(of: slot), slot.entry, shape) }

    /// Whether a probe for the fraction comes by the slot.
    func reaches(_ slot: Slot, _ fraction: UInt32, _ position: Int, _ shape: TableShape) -> Bool {
        let displacement = slot.entry.displacement, home = shape.home(fraction)
        return home + displacement == position && reach(ofHome: home) >= displacement
    }

    private static let chunkShift = chunkBuckets.trailingZeroBitCount
    var chunkStride: Int { Table.chunkBuckets &* Table.bucketSize &+ gap }
    @inline(__always) func inlinedBucket(_ position: Int) -> Memory {
        assert(position >= 0 && position < Table.mostBuckets + Table.spill, "a bucket of the table")
        return buckets + (position &* Table.bucketSize &+ (position &>> Table.chunkShift) &* gap)
    }
    @inline(never) func bucket(_ position: Int) -> Memory { inlinedBucket(position) }
    /// The one behind another, at its position.
    @inline(__always) func next(_ bucket: Memory, _ position: Int) -> Memory {
        bucket + (position & (Table.chunkBuckets &- 1) == 0 ? Table.bucketSize &+ gap : Table.bucketSize)
    }
    @inline(__always) func home(of fraction: UInt32) -> Memory { inlinedBucket(shape.home(fraction)) }

    // MARK: Probing

    /// Of the first words of a home's slots.
    @inline(__always) static func reach(_ a: SlotEntry, _ b: SlotEntry, _ c: SlotEntry, _ d: SlotEntry) -> Int {
        if (a.bits | b.bits | c.bits | d.bits) & SlotEntry.reachBit == 0 { return 0 }
        return d.isReaching ? reaches.3 : c.isReaching ? reaches.2 : b.isReaching ? reaches.1 : reaches.0
    }
    @inline(__always) func reach(ofHome home: Int) -> Int {
        let p = bucket(home)
        return Table.reach(
            Slot(p).acquiredEntry, Slot(p + 16).acquiredEntry, Slot(p + 32).acquiredEntry, Slot(p + 48).acquiredEntry)
    }

    /// Offers every slot that may hold the fraction, nearest first, until `body` returns true.
    @inline(__always)
    func probe(_ fraction: UInt32, home: Int, _ body: (_ slot: Slot, _ word0: SlotEntry) -> Bool) {
        probe(from: inlinedFirst(fraction, home: home), fraction, home: home, body)
    }
    /// The same with less code.
    @inline(__always)
    func probe(_ fraction: UInt32, _ body: (_ slot: Slot, _ word0: SlotEntry) -> Bool) {
        let home = shape.home(fraction)
        probe(from: first(fraction, home: home), fraction, home: home, body)
    }
    @inline(__always)
    private func probe(
        from first: Match, _ fraction: UInt32, home: Int, _ body: (_ slot: Slot, _ word0: SlotEntry) -> Bool
    ) {
        var found = first
        while let slot = found.slot {
            if !found.word0.isFree, body(slot, found.word0) { return }
            found = next(found, fraction, home: home)
        }
    }

    /// A slot with a key's fingerprint. (One that is free looks like the fingerprint 0.)
    private struct Match {
        var slot: Slot?
        var word0 = SlotEntry(0)
        var displacement = 0
    }

    @inline(never)
    private func first(_ fraction: UInt32, home: Int) -> Match { inlinedFirst(fraction, home: home) }
    @inline(__always)
    private func inlinedFirst(_ fraction: UInt32, home: Int) -> Match {
        let line = inlinedBucket(home), wanted = UInt64(fraction & 0xFF_FFFF) << 32
        let a = Slot(line).acquiredEntry, b = Slot(line + 16).acquiredEntry, c = Slot(line + 32).acquiredEntry,
            d = Slot(line + 48).acquiredEntry
        if a.matches(wanted) { return Match(slot: Slot(line), word0: a) }
        if b.matches(wanted) { return Match(slot: Slot(line + 16), word0: b) }
        if c.matches(wanted) { return Match(slot: Slot(line + 32), word0: c) }
        if d.matches(wanted) { return Match(slot: Slot(line + 48), word0: d) }
        let reach = Table.reach(a, b, c, d)
        if reach == 0 { return Match() }
        // Rarely it goes on in the next chunk.
        if reach > ~home & (Table.chunkBuckets &- 1) {
            return next(Match(slot: Slot(line + (Table.bucketSize &- Slot.size))), fraction, home: home)
        }
        return Table.displaced(wanted, line, to: reach)
    }

    /// In the buckets that a home reaches, where they lie behind each other. (A function by itself has all that it
    /// needs in registers.)
    @inline(never)
    private static func displaced(_ fingerprint: UInt64, _ home: Memory, to reach: Int) -> Match {
        var line = home, wanted = fingerprint
        let end = line + reach &* bucketSize
        while line != end {
            line += bucketSize
            wanted &+= 1 << SlotEntry.displacementShift
            var i = 0
            while i < bucketSize {
                let word0 = Slot(line + i).acquiredEntry
                if word0.matches(wanted) {
                    return Match(slot: Slot(line + i), word0: word0, displacement: SlotEntry(wanted).displacement)
                }
                i &+= Slot.size
            }
        }
        return Match()
    }

    /// Behind a slot: where another key has the same fingerprint, or a part.
    @inline(never)
    private func next(_ last: Match, _ fraction: UInt32, home: Int) -> Match {
        let reach = reach(ofHome: home)
        var displacement = last.displacement, at = last.slot.unsafelyUnwrapped.at
        while true {
            // (A bucket is a line of the cache.)
            at += Slot.size
            if Int(bitPattern: at) & (Table.bucketSize - 1) == 0 {
                displacement += 1
                if displacement > reach { return Match() }
                at = bucket(home + displacement)
            }
            let slot = Slot(at), word0 = slot.acquiredEntry,
                wanted = UInt64(fraction & 0xFF_FFFF) << 32 | UInt64(displacement) << SlotEntry.displacementShift
            if word0.matches(wanted), !word0.isFree {
                return Match(slot: slot, word0: word0, displacement: displacement)
            }
        }
    }

    /// Offers every entry with this home whose fingerprint is the same but for its lowest bits, until `body` returns
    /// true.
    @inline(__always)
    func hasSlot(
        ofHome home: Int, fingerprint: UInt32, ignoring bits: UInt32, _ body: (_ slot: Slot, _ position: Int) -> Bool
    ) -> Bool {
        let mask = UInt64(0x0FFF_FFFF & ~bits) << 32
        var wanted = UInt64(fingerprint & 0xFF_FFFF) << 32
        let end = home &+ reach(ofHome: home)
        var position = home, line = bucket(home)
        while position <= end {
            var i = 0
            while i < Table.bucketSize {
                let slot = Slot(line + i), word0 = slot.entry
                if word0.bits & mask == wanted, !word0.isFree, body(slot, position) { return true }
                i &+= Slot.size
            }
            wanted &+= 1 << SlotEntry.displacementShift
            position &+= 1
            line = next(line, position)
        }
        return false
    }

    /// The slot that points to this location. Under the lock.
    @inline(__always)
    func find(_ fraction: UInt32, location: UInt32) -> Slot? {
        var found: Slot?
        probe(fraction, home: shape.home(fraction)) { slot, word0 in
            guard word0.location == location else { return false }
            found = slot
            return true
        }
        return found
    }

    func index(of slot: Slot) -> UInt32 {
        let (chunk, rest) = (slot.at - buckets).quotientAndRemainder(dividingBy: chunkStride)
        return UInt32(truncatingIfNeeded: chunk * Table.chunkBuckets * Table.bucketSlots + rest / Slot.size)
    }
    func slot(_ index: UInt32) -> Slot {
        Slot(bucket(Int(index) / Table.bucketSlots) + Int(index) % Table.bucketSlots * Slot.size)
    }
    /// What a damaged word names may be none.
    func isSlot(_ p: Memory) -> Bool {
        p >= buckets && (p - buckets) % chunkStride <= Table.chunkBuckets * Table.bucketSize - Slot.size
            && positions.contains(position(of: Slot(p)))
    }
    func position(of slot: Slot) -> Int { Int(index(of: slot)) / Table.bucketSlots }
    /// Of a slot that the home may reach.
    func displacement(of slot: Slot, from home: Int) -> Int {
        let bytes = slot.at - bucket(home),
            inChunk = (Table.chunkBuckets - home % Table.chunkBuckets) * Table.bucketSize
        return (bytes < inChunk ? bytes : bytes - gap) / Table.bucketSize
    }

    // MARK: Walking

    @inline(__always) var positions: Range<Int> { shape.positions }

    /// Looks at slots for a search for a fraction, if it finds nothing: each bucket once, and the home three times.
    @inline(__always)
    func looks(for fraction: UInt32) -> Int { (reach(ofHome: shape.home(fraction)) &+ 3) &* Table.bucketSlots }

    // MARK: In the order of fractions

    /// Behind the last one.
    static let allFractions = UInt64(1) << Sizes.fractionBits

    /// Entries of one home: those with these fractions.
    struct Stretch {
        let home: Int
        let fractions: Range<UInt64>
        let endsHome: Bool
        /// At slots, to find it and to visit it.
        let looks: Int

        /// Where the next one begins.
        @inline(__always) var next: UInt64 { fractions.upperBound }
    }

    /// From a fraction on to the end of its home, or to the second entry there (`byOne`).
    @inline(never)
    func stretch(from fraction: UInt64, byOne: Bool) -> Stretch {
        let shape = self.shape, home = shape.home(UInt32(truncatingIfNeeded: fraction))
        let end = min(shape.end(ofHome: home, from: fraction), Table.allFractions)
        // Each scan also reads the home's bucket for its reach.
        let looks = (byOne ? 2 : 1) * (reach(ofHome: home) + 2) * Table.bucketSlots
        var first = UInt64.max, second = end
        if byOne {
            forEachSlot(ofHome: home) { _, its in
                if its < fraction || its == first { return }
                if its < first {
                    (first, second) = (its, min(first, end))
                } else {
                    second = min(second, its)
                }
            }
        }
        return Stretch(home: home, fractions: fraction..<second, endsHome: second == end, looks: looks)
    }

    /// Visits the entries of a stretch, wherever they are; the body may free their slots.
    @inline(__always)
    func visit<E: Error>(_ stretch: Stretch, _ body: (Slot) throws(E) -> Void) throws(E) {
        try forEachSlot(ofHome: stretch.home) { slot, its throws(E) in
            // (A damaged slot may be beyond its home's last fraction.)
            if its >= stretch.fractions.lowerBound, stretch.endsHome || its < stretch.next { try body(slot) }
        }
    }

    /// Every slot in use with this home, and its fraction.
    @inline(__always)
    private func forEachSlot<E: Error>(ofHome home: Int, _ body: (Slot, UInt64) throws(E) -> Void) throws(E) {
        let shape = self.shape
        try forEachSlot(at: home..<(home + reach(ofHome: home) + 1)) { slot, word0, position throws(E) in
            if position - word0.displacement == home { try body(slot, UInt64(fraction(at: position, word0, shape))) }
        }
    }

    /// Every slot in use, or those of some buckets. Under the lock; the body may free it.
    @inline(__always)
    func forEachSlot<E: Error>(
        at positions: Range<Int>? = nil, _ body: (_ slot: Slot, _ word0: SlotEntry, _ position: Int) throws(E) -> Void
    ) throws(E) {
        for position in positions ?? self.positions {
            let p = bucket(position)
            for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                let slot = Slot(p + i), word0 = slot.entry
                if !word0.isFree { try body(slot, word0, position) }
            }
        }
    }
}
