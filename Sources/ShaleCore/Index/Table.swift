import CShalePlatform

/// The slot table of a shard: buckets of one cache line, four slots each.
///
/// A key's home is `hashBits · buckets / 2^32`; the hash bits are the low half of its hash. Homes keep the order of the
/// hash bits, so the table grows by any factor in place: entries only move up, highest bucket first (shrinking: down,
/// lowest first), a few buckets for each insertion. One pass makes the table a quarter larger, and the load stays
/// between 0.7 and 0.9. (Plain linear hashing, bucket by bucket, leaves unsplit buckets with up to twice the average
/// load, which neighbours cannot absorb at 0.8.)
///
/// An entry whose home is full goes to one of the next 15 buckets; if those are full, others move up to make room. The
/// chunks of all shards alternate in the file, so that it is no longer than the tables need.
///
/// Invariants
/// - the shape word (buckets, frontier, mode) maps hash bits to exactly one home;
/// - no entry with home `h` has a displacement above the maximum displacement of bucket `h`;
/// - an entry is published in its new slot, then the shape or `moves` announces it, then its old slot is cleared: a
///   reader that misses checks whether either has changed, and retries;
/// - an entry's stamp only grows, until all are renumbered or a killed change is rolled back. No two entries share one.
struct Table {
    static let bucketSize = 64
    static let bucketSlots = bucketSize / Slot.size
    static let chunkBuckets = Sizes.chunkBuckets
    /// A chunk: cells of both generations of tags, a page with a piece of both heaps, and the buckets.
    static let chunkHead = 2 * Sizes.tagBytes + pageSize
    static let chunkBytes = chunkHead + chunkBuckets * bucketSize
    static let leastBuckets = Sizes.leastBuckets // with fewer, 24 bits and the home do not determine all 32 hash bits
    static let mostBuckets = Sizes.mostBuckets
    static let spill = Sizes.spill
    static let maxDisplacements = Sizes.maxDisplacements

    typealias Field = ShardHeader.Field

    let header: ShardHeader
    /// The buckets of the first chunk; and the bytes between a chunk's last bucket and the next chunk's first.
    let buckets: Memory
    let gap: Int

    @inline(__always) var shape: TableShape { TableShape(header.acquire(Field.shape)) }
    func hashBits(at position: Int, _ word0: SlotEntry, _ shape: TableShape) -> UInt32 {
        // (A damaged slot may name a home below the first.)
        let home = max(0, position - word0.displacement)
        return TableShape.hashBits(fingerprint: word0.fingerprint, home: home, buckets: shape.buckets(ofHome: home))
    }

    func hashBits(of slot: Slot) -> UInt32 { hashBits(at: position(of: slot), slot.entry, shape) }

    /// Whether a probe for the hash bits visits the slot.
    func isProbed(_ slot: Slot, _ hashBits: UInt32, _ position: Int, _ shape: TableShape) -> Bool {
        let displacement = slot.entry.displacement, home = shape.home(hashBits)
        return home + displacement == position && maxDisplacement(ofHome: home) >= displacement
    }

    private static let chunkShift = chunkBuckets.trailingZeroBitCount
    var chunkStride: Int { Table.chunkBuckets &* Table.bucketSize &+ gap }
    @inline(__always) func inlinedBucket(_ position: Int) -> Memory {
        assert(position >= 0 && position < Table.mostBuckets + Table.spill, "a bucket of the table")
        return buckets + (position &* Table.bucketSize &+ (position &>> Table.chunkShift) &* gap)
    }
    @inline(never) func bucket(_ position: Int) -> Memory { inlinedBucket(position) }
    /// Returns the bucket at `position`, which follows `bucket`.
    @inline(__always) func next(_ bucket: Memory, _ position: Int) -> Memory {
        bucket + (position & (Table.chunkBuckets &- 1) == 0 ? Table.bucketSize &+ gap : Table.bucketSize)
    }
    @inline(__always) func home(of hashBits: UInt32) -> Memory { inlinedBucket(shape.home(hashBits)) }

    // MARK: Probing

    /// Decodes a maximum displacement from the first words of a home's slots.
    @inline(__always) static func maxDisplacement(_ a: SlotEntry, _ b: SlotEntry, _ c: SlotEntry, _ d: SlotEntry) -> Int
    {
        if (a.bits | b.bits | c.bits | d.bits) & SlotEntry.displacementBit == 0 { return 0 }
        return d.hasDisplacementBit
            ? maxDisplacements.3
            : c.hasDisplacementBit ? maxDisplacements.2 : b.hasDisplacementBit ? maxDisplacements.1 : maxDisplacements.0
    }
    @inline(__always) func maxDisplacement(ofHome home: Int) -> Int {
        let p = bucket(home)
        return Table.maxDisplacement(
            Slot(p).acquiredEntry, Slot(p + 16).acquiredEntry, Slot(p + 32).acquiredEntry, Slot(p + 48).acquiredEntry)
    }

    /// Calls `body` with every slot that may hold the hash bits, nearest first, until it returns true.
    @inline(__always)
    func probe(_ hashBits: UInt32, home: Int, _ body: (_ slot: Slot, _ word0: SlotEntry) -> Bool) {
        probe(from: inlinedFirst(hashBits, home: home), hashBits, home: home, body)
    }
    /// The same with less code.
    @inline(__always)
    func probe(_ hashBits: UInt32, _ body: (_ slot: Slot, _ word0: SlotEntry) -> Bool) {
        let home = shape.home(hashBits)
        probe(from: first(hashBits, home: home), hashBits, home: home, body)
    }
    @inline(__always)
    private func probe(
        from first: Match, _ hashBits: UInt32, home: Int, _ body: (_ slot: Slot, _ word0: SlotEntry) -> Bool
    ) {
        var found = first
        while let slot = found.slot {
            if !found.word0.isFree, body(slot, found.word0) { return }
            found = next(found, hashBits, home: home)
        }
    }

    /// A slot with a key's fingerprint. (A free slot looks like fingerprint 0.)
    private struct Match {
        var slot: Slot?
        var word0 = SlotEntry(0)
        var displacement = 0
    }

    @inline(never)
    private func first(_ hashBits: UInt32, home: Int) -> Match { inlinedFirst(hashBits, home: home) }
    @inline(__always)
    private func inlinedFirst(_ hashBits: UInt32, home: Int) -> Match {
        let line = inlinedBucket(home), wanted = UInt64(hashBits & 0xFF_FFFF) << 32
        // A displaced entry is most often in the next bucket: both lines come from memory together.
        shim_prefetch(line + Table.bucketSize)
        let a = Slot(line).acquiredEntry, b = Slot(line + 16).acquiredEntry, c = Slot(line + 32).acquiredEntry,
            d = Slot(line + 48).acquiredEntry
        if a.matches(wanted) { return Match(slot: Slot(line), word0: a) }
        if b.matches(wanted) { return Match(slot: Slot(line + 16), word0: b) }
        if c.matches(wanted) { return Match(slot: Slot(line + 32), word0: c) }
        if d.matches(wanted) { return Match(slot: Slot(line + 48), word0: d) }
        let maxDisplacement = Table.maxDisplacement(a, b, c, d)
        if maxDisplacement == 0 { return Match() }
        // Rarely, the search continues in the next chunk.
        if maxDisplacement > ~home & (Table.chunkBuckets &- 1) {
            return next(Match(slot: Slot(line + (Table.bucketSize &- Slot.size))), hashBits, home: home)
        }
        return Table.displaced(wanted, line, to: maxDisplacement)
    }

    /// Searches the buckets within a home's maximum displacement where they are contiguous. (A function of its own
    /// keeps everything in registers.)
    @inline(never)
    private static func displaced(_ fingerprint: UInt64, _ home: Memory, to maxDisplacement: Int) -> Match {
        var line = home, wanted = fingerprint
        let end = line + maxDisplacement &* bucketSize
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

    /// Continues behind a slot that another key, or a part, with the same fingerprint holds.
    @inline(never)
    private func next(_ last: Match, _ hashBits: UInt32, home: Int) -> Match {
        let maxDisplacement = maxDisplacement(ofHome: home)
        var displacement = last.displacement, at = last.slot.unsafelyUnwrapped.at
        while true {
            // (A bucket is a cache line.)
            at += Slot.size
            if Int(bitPattern: at) & (Table.bucketSize - 1) == 0 {
                displacement += 1
                if displacement > maxDisplacement { return Match() }
                at = bucket(home + displacement)
            }
            let slot = Slot(at), word0 = slot.acquiredEntry,
                wanted = UInt64(hashBits & 0xFF_FFFF) << 32 | UInt64(displacement) << SlotEntry.displacementShift
            if word0.matches(wanted), !word0.isFree {
                return Match(slot: slot, word0: word0, displacement: displacement)
            }
        }
    }

    /// Calls `body` with every entry that has this home and a fingerprint that differs only in the ignored bits, until
    /// it returns true.
    @inline(__always)
    func hasSlot(
        ofHome home: Int, fingerprint: UInt32, ignoring bits: UInt32, _ body: (_ slot: Slot, _ position: Int) -> Bool
    ) -> Bool {
        let mask = UInt64(0x0FFF_FFFF & ~bits) << 32
        var wanted = UInt64(fingerprint & 0xFF_FFFF) << 32
        let end = home &+ maxDisplacement(ofHome: home)
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

    /// Returns the slot that points to this location. Needs the lock.
    @inline(__always)
    func find(_ hashBits: UInt32, location: UInt32) -> Slot? {
        var found: Slot?
        probe(hashBits, home: shape.home(hashBits)) { slot, word0 in
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
    /// The same without a division, for a slot of a known bucket.
    func index(of slot: Slot, in position: Int) -> UInt32 {
        let rest = Int(bitPattern: slot.at) & (Table.bucketSize - 1)
        return UInt32(truncatingIfNeeded: position * Table.bucketSlots + rest / Slot.size)
    }
    func slot(_ index: UInt32) -> Slot {
        Slot(bucket(Int(index) / Table.bucketSlots) + Int(index) % Table.bucketSlots * Slot.size)
    }
    /// Whether an address is a slot: a damaged word may name none.
    func isSlot(_ p: Memory) -> Bool {
        p >= buckets && (p - buckets) % chunkStride <= Table.chunkBuckets * Table.bucketSize - Slot.size
            && positions.contains(position(of: Slot(p)))
    }
    func position(of slot: Slot) -> Int { Int(index(of: slot)) / Table.bucketSlots }
    /// Returns the displacement of a slot that an entry with this home may have.
    func displacement(of slot: Slot, from home: Int) -> Int {
        let bytes = slot.at - bucket(home),
            inChunk = (Table.chunkBuckets - home % Table.chunkBuckets) * Table.bucketSize
        return (bytes < inChunk ? bytes : bytes - gap) / Table.bucketSize
    }

    // MARK: Walking

    @inline(__always) var positions: Range<Int> { shape.positions }

    /// Returns how many slots a search for hash bits visits if it finds nothing: each bucket once, and the home three
    /// times.
    @inline(__always)
    func looks(for hashBits: UInt32) -> Int {
        (maxDisplacement(ofHome: shape.home(hashBits)) &+ 3) &* Table.bucketSlots
    }

    // MARK: In the order of hash bits

    /// Behind the highest hash bits.
    static let allHashBits = UInt64(1) << Sizes.hashBitCount

    /// Entries of one home whose hash bits lie in a range.
    struct Stretch {
        let home: Int
        let hashBits: Range<UInt64>
        let endsHome: Bool
        /// Slots to visit, to find it and to walk it.
        let looks: Int

        @inline(__always) var next: UInt64 { hashBits.upperBound }
    }

    /// Returns the stretch from these hash bits to the end of their home, or to the second entry there (`byOne`).
    @inline(never)
    func stretch(from hashBits: UInt64, byOne: Bool) -> Stretch {
        let shape = self.shape, home = shape.home(UInt32(truncatingIfNeeded: hashBits))
        let end = min(shape.end(ofHome: home, from: hashBits), Table.allHashBits)
        // Each scan also reads the home's bucket for its maximum displacement.
        let looks = (byOne ? 2 : 1) * (maxDisplacement(ofHome: home) + 2) * Table.bucketSlots
        var first = UInt64.max, second = end
        if byOne {
            forEachSlot(ofHome: home) { _, its in
                if its < hashBits || its == first { return }
                if its < first {
                    (first, second) = (its, min(first, end))
                } else {
                    second = min(second, its)
                }
            }
        }
        return Stretch(home: home, hashBits: hashBits..<second, endsHome: second == end, looks: looks)
    }

    /// Visits the entries of a stretch; the body may free their slots.
    @inline(__always)
    func visit<E: Error>(_ stretch: Stretch, _ body: (Slot) throws(E) -> Void) throws(E) {
        try forEachSlot(ofHome: stretch.home) { slot, its throws(E) in
            // (A damaged slot may have hash bits beyond its home's last.)
            if its >= stretch.hashBits.lowerBound, stretch.endsHome || its < stretch.next { try body(slot) }
        }
    }

    /// Visits every used slot with this home.
    @inline(__always)
    private func forEachSlot<E: Error>(ofHome home: Int, _ body: (Slot, UInt64) throws(E) -> Void) throws(E) {
        let shape = self.shape
        try forEachSlot(at: home..<(home + maxDisplacement(ofHome: home) + 1)) { slot, word0, position throws(E) in
            if position - word0.displacement == home { try body(slot, UInt64(hashBits(at: position, word0, shape))) }
        }
    }

    /// Visits every used slot, or those of some buckets. Needs the lock; the body may free the slot.
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
