import CShalePlatform

/// A slot, 16 bytes.
///
///     word 0   location in 8-byte units (32) · fingerprint: the low 24 bits of the hash fraction ·
///              displacement (4) · reach (1) · pinned (1) · kind (2)
///     word 1   recency stamp (38) · hits (2) · expiry in 64-second units (24)
///
/// A slot with location 0 is free. The reach bits of a bucket's four slots say
/// how far its entries may have been displaced, also where the slot is free.
enum Slot {
    static let size = 16

    static let displacementShift: UInt64 = 56
    static let reachBit: UInt64 = 1 << 60
    static let pinnedBit: UInt64 = 1 << 61
    /// What the record is, as far as it matters without reading it.
    enum Kind {
        static let plain: UInt64 = 0 << 62
        static let tagged: UInt64 = 1 << 62
        static let part: UInt64 = 2 << 62
        /// Points to a touch record, whose target may carry tags.
        static let touched: UInt64 = 3 << 62
        static let mask: UInt64 = 3 << 62
    }
    static let keptFlags = pinnedBit | Kind.mask
    @inline(__always) static func isPart(_ w: UInt64) -> Bool { w & Kind.mask == Kind.part }
    @inline(__always) static func isTouched(_ w: UInt64) -> Bool { w & Kind.mask == Kind.touched }
    @inline(__always) static func isPinned(_ w: UInt64) -> Bool { w & pinnedBit != 0 }
    @inline(__always) static func mayBeTagged(_ w: UInt64) -> Bool { w & Kind.tagged != 0 }

    @inline(__always) static func location(_ w: UInt64) -> UInt32 { UInt32(truncatingIfNeeded: w) }
    @inline(__always) static func isFree(_ w: UInt64) -> Bool { UInt32(truncatingIfNeeded: w) == 0 }
    @inline(__always) static func displacement(_ w: UInt64) -> Int {
        Int(truncatingIfNeeded: w >> displacementShift) & 15
    }
    /// Whether fingerprint and displacement are those of another first word.
    @inline(__always) static func matches(_ w: UInt64, _ wanted: UInt64) -> Bool { (w ^ wanted) & probed == 0 }
    /// Whether the fingerprint is that of a key's hash fraction.
    @inline(__always) static func mayBe(_ fraction: UInt32, _ w: UInt64) -> Bool {
        (w >> 32 ^ UInt64(fraction)) & 0xFF_FFFF == 0
    }
    static let probed: UInt64 = 0x0FFF_FFFF << 32
    @inline(__always) static func with(_ w: UInt64, location: UInt32) -> UInt64 { w & ~0xFFFF_FFFF | UInt64(location) }

    static let stampBits: UInt64 = 38
    static let stampMask: UInt64 = (1 << 38) - 1
    @inline(__always) static func stamp(_ w: UInt64) -> UInt64 { w & stampMask }
    @inline(__always) static func hits(_ w: UInt64) -> UInt64 { w >> 38 & 3 }
    @inline(__always) static func expiry(_ w: UInt64) -> UInt64 { w >> 40 }
    @inline(__always) static func word1(stamp: UInt64, hits: UInt64 = 0, expiry: UInt64) -> UInt64 {
        stamp & stampMask | hits << 38 | expiry << 40
    }
    static let mostHits: UInt64 = 3, hit: UInt64 = 1 << 38
    @inline(__always) static func hitsAfterUse(_ w: UInt64) -> UInt64 { min(hits(w) + 1, mostHits) }
    @inline(__always) static func used(_ w: UInt64, stamp: UInt64) -> UInt64 {
        word1(stamp: stamp, hits: hitsAfterUse(w), expiry: expiry(w))
    }
}

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

    // MARK: Chunks

    /// What the chunks of a table take: whole ones, and of the last one what is used.
    static func bytes(of buckets: Int) -> Int {
        let (whole, rest) = (buckets + spill).quotientAndRemainder(dividingBy: chunkBuckets)
        return whole * chunkBytes + (rest == 0 ? 0 : chunkHead + roundUp(rest * bucketSize, to: pageSize))
    }
    static func chunks(of buckets: Int) -> Int { chunks(inBytes: bytes(of: buckets)) }
    static func chunks(inBytes bytes: Int) -> Int { (bytes + chunkBytes - 1) / chunkBytes }

    /// Up to where the chunks are in use, and up to where generations of tags use them.
    static func chunksEnd(_ header: ShardHeader) -> Int {
        max(bytes(of: Shape(header.acquire(Field.shape)).extent), tagsEnd(header))
    }
    static func tagsEnd(_ header: ShardHeader) -> Int {
        let chunks = TagTable.Generations(header.acquire(Field.tagGenerations)).mostChunks
        return chunks == 0 ? 0 : (chunks - 1) * chunkBytes + chunkHead
    }

    // MARK: Shape

    struct Shape {
        enum Mode { static let steady = 0, growing = 1, shrinking = 2 }
        var word: UInt64

        @inline(__always) init(_ word: UInt64) { self.word = word }
        init(buckets: Int, frontier: Int, mode: Int) {
            word = UInt64(buckets) | UInt64(frontier) << 24 | UInt64(mode) << 48
        }
        /// Buckets before the pass that is under way, if one is.
        @inline(__always) var buckets: Int { Int(truncatingIfNeeded: word & 0xFF_FFFF) }
        @inline(__always) var frontier: Int { Int(truncatingIfNeeded: word >> 24 & 0xFF_FFFF) }
        @inline(__always) var mode: Int { Int(truncatingIfNeeded: word >> 48) }

        @inline(__always) var nextBuckets: Int {
            mode == Mode.growing ? Shape.grown(buckets) : Shape.shrunk(buckets)
        }
        static func grown(_ buckets: Int) -> Int { buckets + max(Sizes.growth, buckets / 4) }
        static func shrunk(_ buckets: Int) -> Int { max(Table.leastBuckets, buckets - buckets / 5 - Sizes.shrinkage) }

        /// Homes below which positions are in use.
        var extent: Int { mode == Mode.growing ? nextBuckets : buckets }
        /// Of all buckets: those of the homes, and those behind the last that take what it spills.
        @inline(__always) var positions: Range<Int> { 0..<(extent + Table.spill) }

        @inline(__always) func home(_ fraction: UInt32) -> Int {
            let old = Table.scale(fraction, buckets)
            if mode == Mode.steady { return old }
            let moved = mode == Mode.growing ? old >= frontier : old < frontier
            return moved ? Table.scale(fraction, nextBuckets) : old
        }
        /// With how many buckets the entries of this home are laid out.
        @inline(__always) func buckets(ofHome home: Int) -> Int {
            switch mode {
            case Mode.growing: home < frontier ? buckets : nextBuckets
            case Mode.shrinking: home < frontier ? nextBuckets : buckets
            default: buckets
            }
        }
        /// The fraction behind the last one from `fraction` on that has this home too.
        func end(ofHome home: Int, from fraction: UInt64) -> UInt64 {
            let end = Table.lowestFraction(home + 1, buckets(ofHome: home))
            if mode == Mode.steady { return end }
            // On both sides of the frontier, homes are of different tables.
            let boundary = Table.lowestFraction(frontier, buckets)
            return fraction < boundary ? min(end, boundary) : end
        }
    }

    @inline(__always) static func scale(_ fraction: UInt32, _ buckets: Int) -> Int {
        let kept = UInt64(fraction) & (1 << Sizes.fractionBits - 1)
        return Int(truncatingIfNeeded: (kept &* UInt64(truncatingIfNeeded: buckets)) >> Sizes.fractionBits)
    }
    /// The lowest fraction whose home is the bucket.
    @inline(__always) static func lowestFraction(_ bucket: Int, _ buckets: Int) -> UInt64 {
        (UInt64(bucket) << Sizes.fractionBits + UInt64(buckets) - 1) / UInt64(buckets)
    }
    /// A bucket spans at most 2^24 fractions, so the fingerprint decides which one it is.
    @inline(__always) static func fraction(fingerprint word0: UInt64, home: Int, buckets: Int) -> UInt32 {
        fraction(fingerprint: word0, lowest: lowestFraction(home, buckets))
    }
    @inline(__always) private static func fraction(fingerprint word0: UInt64, lowest: UInt64) -> UInt32 {
        UInt32(truncatingIfNeeded: lowest &+ (word0 >> 32 &- lowest) & 0xFF_FFFF)
    }

    @inline(__always) var shape: Shape { Shape(header.acquire(Field.shape)) }
    func fraction(at position: Int, _ word0: UInt64, _ shape: Shape) -> UInt32 {
        // (A damaged slot may name a home below the first.)
        let home = max(0, position - Slot.displacement(word0))
        return Table.fraction(fingerprint: word0, home: home, buckets: shape.buckets(ofHome: home))
    }

    /// Whether a probe for the fraction comes by the slot.
    func reaches(_ slot: Memory, _ fraction: UInt32, _ position: Int, _ shape: Shape) -> Bool {
        let displacement = Slot.displacement(slot.u64(0)), home = shape.home(fraction)
        return home + displacement == position && reach(ofHome: home) >= displacement
    }

    private static let chunkShift = chunkBuckets.trailingZeroBitCount
    var chunkStride: Int { Table.chunkBuckets &* Table.bucketSize &+ gap }
    @inline(__always) func inlinedBucket(_ position: Int) -> Memory {
        buckets + (position &* Table.bucketSize &+ (position &>> Table.chunkShift) &* gap)
    }
    @inline(never) func bucket(_ position: Int) -> Memory { inlinedBucket(position) }
    /// The one behind another, at its position.
    @inline(__always) func next(_ bucket: Memory, _ position: Int) -> Memory {
        bucket + (position & (Table.chunkBuckets &- 1) == 0 ? Table.bucketSize &+ gap : Table.bucketSize)
    }
    @inline(__always) func home(of fraction: UInt32) -> Memory { inlinedBucket(shape.home(fraction)) }

    // MARK: Probing

    /// Of the first words of a home's slots.
    @inline(__always) static func reach(_ a: UInt64, _ b: UInt64, _ c: UInt64, _ d: UInt64) -> Int {
        if (a | b | c | d) & Slot.reachBit == 0 { return 0 }
        return d & Slot.reachBit != 0
            ? reaches.3 : c & Slot.reachBit != 0 ? reaches.2 : b & Slot.reachBit != 0 ? reaches.1 : reaches.0
    }
    @inline(__always) func reach(ofHome home: Int) -> Int {
        let p = bucket(home)
        return Table.reach(p.acquire(0), p.acquire(16), p.acquire(32), p.acquire(48))
    }

    /// Offers every slot that may hold the fraction, nearest first, until `body` returns true.
    @inline(__always)
    func probe(_ fraction: UInt32, home: Int, _ body: (_ slot: Memory, _ word0: UInt64) -> Bool) {
        probe(from: inlinedFirst(fraction, home: home), fraction, home: home, body)
    }
    /// The same with less code.
    @inline(__always)
    func probe(_ fraction: UInt32, _ body: (_ slot: Memory, _ word0: UInt64) -> Bool) {
        let home = shape.home(fraction)
        probe(from: first(fraction, home: home), fraction, home: home, body)
    }
    @inline(__always)
    private func probe(
        from first: Match, _ fraction: UInt32, home: Int, _ body: (_ slot: Memory, _ word0: UInt64) -> Bool
    ) {
        var found = first
        while let slot = found.slot {
            if !Slot.isFree(found.word0), body(slot, found.word0) { return }
            found = next(found, fraction, home: home)
        }
    }

    /// A slot with a key's fingerprint. (One that is free looks like the fingerprint 0.)
    private struct Match {
        var slot: Memory?
        var word0: UInt64 = 0
        var displacement = 0
    }

    @inline(never)
    private func first(_ fraction: UInt32, home: Int) -> Match { inlinedFirst(fraction, home: home) }
    @inline(__always)
    private func inlinedFirst(_ fraction: UInt32, home: Int) -> Match {
        let line = inlinedBucket(home), wanted = UInt64(fraction & 0xFF_FFFF) << 32
        let a = line.acquire(0), b = line.acquire(16), c = line.acquire(32), d = line.acquire(48)
        if Slot.matches(a, wanted) { return Match(slot: line, word0: a) }
        if Slot.matches(b, wanted) { return Match(slot: line + 16, word0: b) }
        if Slot.matches(c, wanted) { return Match(slot: line + 32, word0: c) }
        if Slot.matches(d, wanted) { return Match(slot: line + 48, word0: d) }
        let reach = Table.reach(a, b, c, d)
        if reach == 0 { return Match() }
        // Rarely it goes on in the next chunk.
        if reach > ~home & (Table.chunkBuckets &- 1) {
            return next(Match(slot: line + (Table.bucketSize &- Slot.size)), fraction, home: home)
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
            wanted &+= 1 << Slot.displacementShift
            var i = 0
            while i < bucketSize {
                let difference = line.acquire(i) ^ wanted
                if difference & Slot.probed == 0 {
                    return Match(slot: line + i, word0: difference ^ wanted, displacement: Slot.displacement(wanted))
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
        var displacement = last.displacement, slot = last.slot.unsafelyUnwrapped
        while true {
            // (A bucket is a line of the cache.)
            slot += Slot.size
            if Int(bitPattern: slot) & (Table.bucketSize - 1) == 0 {
                displacement += 1
                if displacement > reach { return Match() }
                slot = bucket(home + displacement)
            }
            let word0 = slot.acquire(0),
                wanted = UInt64(fraction & 0xFF_FFFF) << 32 | UInt64(displacement) << Slot.displacementShift
            if Slot.matches(word0, wanted), !Slot.isFree(word0) {
                return Match(slot: slot, word0: word0, displacement: displacement)
            }
        }
    }

    /// Offers every entry with this home whose fingerprint is the same but for its lowest bits, until `body` returns
    /// true.
    @inline(__always)
    func hasSlot(
        ofHome home: Int, fingerprint: UInt32, ignoring bits: UInt32, _ body: (_ slot: Memory, _ position: Int) -> Bool
    ) -> Bool {
        let mask = UInt64(0x0FFF_FFFF & ~bits) << 32
        var wanted = UInt64(fingerprint & 0xFF_FFFF) << 32
        let end = home &+ reach(ofHome: home)
        var position = home, line = bucket(home)
        while position <= end {
            var i = 0
            while i < Table.bucketSize {
                let word0 = line.u64(i)
                if word0 & mask == wanted, !Slot.isFree(word0), body(line + i, position) { return true }
                i &+= Slot.size
            }
            wanted &+= 1 << Slot.displacementShift
            position &+= 1
            line = next(line, position)
        }
        return false
    }

    /// The slot that points to this location. Under the lock.
    @inline(__always)
    func find(_ fraction: UInt32, location: UInt32) -> Memory? {
        var found: Memory?
        probe(fraction, home: shape.home(fraction)) { slot, word0 in
            guard Slot.location(word0) == location else { return false }
            found = slot
            return true
        }
        return found
    }

    private func index(of slot: Memory) -> UInt32 {
        let (chunk, rest) = (slot - buckets).quotientAndRemainder(dividingBy: chunkStride)
        return UInt32(truncatingIfNeeded: chunk * Table.chunkBuckets * Table.bucketSlots + rest / Slot.size)
    }
    private func slot(_ index: UInt32) -> Memory {
        bucket(Int(index) / Table.bucketSlots) + Int(index) % Table.bucketSlots * Slot.size
    }
    /// What a damaged word names may be none.
    func isSlot(_ p: Memory) -> Bool {
        p >= buckets && (p - buckets) % chunkStride <= Table.chunkBuckets * Table.bucketSize - Slot.size
            && positions.contains(position(of: p))
    }
    func position(of slot: Memory) -> Int { Int(index(of: slot)) / Table.bucketSlots }
    /// Of a slot that the home may reach.
    private func displacement(of slot: Memory, from home: Int) -> Int {
        let bytes = slot - bucket(home), inChunk = (Table.chunkBuckets - home % Table.chunkBuckets) * Table.bucketSize
        return (bytes < inChunk ? bytes : bytes - gap) / Table.bucketSize
    }

    // MARK: Walking

    @inline(__always) var positions: Range<Int> { shape.positions }

    /// Every slot in use, or those of some buckets. Under the lock; the body may free it.
    @inline(__always)
    func forEachSlot<E: Error>(
        at positions: Range<Int>? = nil, _ body: (_ slot: Memory, _ word0: UInt64, _ position: Int) throws(E) -> Void
    ) throws(E) {
        for position in positions ?? self.positions {
            let p = bucket(position)
            for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                let word0 = p.u64(i)
                if !Slot.isFree(word0) { try body(p + i, word0, position) }
            }
        }
    }

    // MARK: Changing, under the lock

    /// A free slot for the fraction, which must be filled before anything else changes. Nil where the neighbourhood is
    /// full beyond help.
    func reserve(_ fraction: UInt32) -> Memory? {
        let home = shape.home(fraction)
        return nearestFreeSlot(home) ?? makeFree(near: home)
    }

    /// The first word of an entry in a slot that was reserved for it. Its home reaches the slot from here on.
    func word0(_ slot: Memory, _ fraction: UInt32, location: UInt32, flags: UInt64) -> UInt64 {
        let home = shape.home(fraction)
        return word0(slot, home: home, fingerprint: UInt64(fraction & 0xFF_FFFF), location: location, flags: flags)
    }
    private func word0(_ slot: Memory, home: Int, fingerprint: UInt64, location: UInt32, flags: UInt64) -> UInt64 {
        let displacement = displacement(of: slot, from: home)
        raiseReach(ofHome: home, to: displacement)
        return slot.u64(0) & Slot.reachBit | UInt64(location) | fingerprint << 32
            | UInt64(displacement) << Slot.displacementShift | flags & ~Slot.reachBit
    }

    private func publish(_ slot: Memory, home: Int, fingerprint: UInt64, location: UInt32, flags: UInt64, word1: UInt64)
    {
        let word0 = word0(slot, home: home, fingerprint: fingerprint, location: location, flags: flags)
        slot.release(8, word1)
        slot.release(0, word0)
    }

    @inline(__always) func clear(_ slot: Memory) {
        slot.release(0, slot.u64(0) & Slot.reachBit)
    }
    @inline(__always) func move(_ slot: Memory, to location: UInt32) {
        slot.release(0, Slot.with(slot.u64(0), location: location))
    }

    private func raiseReach(ofHome home: Int, to displacement: Int) {
        if displacement == 0 { return }
        let p = bucket(home)
        let step =
            displacement <= Table.reaches.0
            ? 0 : displacement <= Table.reaches.1 ? 16 : displacement <= Table.reaches.2 ? 32 : 48
        for at in stride(from: 0, through: step, by: 16) where p.u64(at) & Slot.reachBit == 0 {
            p.release(at, p.u64(at) | Slot.reachBit)
        }
    }

    /// (One look at all four: which of them is free, no branch can foresee.)
    @inline(__always) private func freeSlot(_ p: Memory) -> Memory? {
        let free =
            (Slot.isFree(p.u64(0)) ? 1 : 0) | (Slot.isFree(p.u64(16)) ? 2 : 0) | (Slot.isFree(p.u64(32)) ? 4 : 0)
            | (Slot.isFree(p.u64(48)) ? 8 : 0)
        return free == 0 ? nil : p + free.trailingZeroBitCount &* Slot.size
    }

    private func nearestFreeSlot(_ home: Int) -> Memory? {
        var p = inlinedBucket(home), position = home
        while true {
            if let slot = freeSlot(p) { return slot }
            position &+= 1
            if position > home &+ Table.reaches.3 { return nil }
            p = next(p, position)
        }
    }

    /// Moves entries up, each within its own reach, until a slot near `home` is free.
    /// `sparing`: the home whose entries are being laid out anew, and must stay where they are.
    private func makeFree(near home: Int, sparing: Int = -1) -> Memory? {
        let shape = self.shape
        let end = shape.positions.upperBound
        var position = home + Table.reaches.3 + 1
        var free: Memory?
        while position < min(end, home + 256), free == nil {
            free = freeSlot(bucket(position))
            if free == nil { position += 1 }
        }
        while let slot = free, position > home + Table.reaches.3 {
            free = nil
            search: for from in max(home, position - Table.reaches.3)..<position {
                let p = bucket(from)
                for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                    let word0 = p.u64(i)
                    let owner = from - Slot.displacement(word0)
                    if position - owner <= Table.reaches.3, owner != sparing {
                        relocate(p + i, to: slot, home: owner, fingerprint: word0 >> 32 & 0xFF_FFFF)
                        free = p + i
                        position = from
                        break search
                    }
                }
            }
        }
        return free
    }

    private func relocate(_ slot: Memory, to target: Memory, home: Int, fingerprint: UInt64) {
        let word0 = slot.u64(0), word1 = slot.u64(8)
        header.release(Field.relocation, UInt64(index(of: slot)) << 32 | UInt64(index(of: target)) | 1 << 63)
        shim_fence_release()
        publish(
            target, home: home, fingerprint: fingerprint, location: Slot.location(word0), flags: word0 & Slot.keptFlags,
            word1: word1)
        announceMove()
        retargetMoves(index(of: slot), index(of: target))
        vacate(slot, copied: word1, to: target)
        header.release(Field.relocation, 0)
    }

    private func announceMove() {
        header.release(Field.moves, header[Field.moves] &+ 1)
        shim_fence_release()
    }

    /// Clears a slot whose entry lives elsewhere now; a use that a reader stored meanwhile goes along.
    private func vacate(_ slot: Memory, copied word1: UInt64, to target: Memory) {
        if target < slot {
            // The sweep may have passed the new place and not yet the old one.
            if header[Field.sweepAt] > position(of: target), header[Field.sweepState] == Victims.State.sweeping {
                header[Field.sweepState] = Victims.State.restart
            }
        }
        clear(slot)
        let late = shim_exchange64(slot + 8, 0)
        if late != word1 { raise(target, to: late) }
    }

    /// Brings a use along from where the entry was. (What was there is zero now. No reader expects that: one that has
    /// read the word before fails, and looks for the entry.)
    private func raise(_ slot: Memory, to late: UInt64) {
        while true {
            let word1 = slot.u64(8)
            if Slot.stamp(word1) >= Slot.stamp(late) || shim_cas64(slot + 8, word1, late) { return }
        }
    }

    // MARK: Growing and shrinking

    /// Begins a pass. The memory up to the new extent must exist and be zero.
    func begin(_ mode: Int) {
        let shape = self.shape
        let frontier = mode == Shape.Mode.growing ? shape.buckets : 0
        header.release(Field.shape, Shape(buckets: shape.buckets, frontier: frontier, mode: mode).word)
    }

    /// Lays out up to `count` more buckets anew. `dropped` gets an entry that found no place.
    func advance(_ count: Int, dropped: (Memory) -> Void) {
        var left = count
        while left > 0 {
            let shape = self.shape
            guard shape.mode != Shape.Mode.steady else { return }
            let growing = shape.mode == Shape.Mode.growing
            if growing ? shape.frontier == 0 : shape.frontier == shape.buckets {
                header.release(
                    Field.shape, Shape(buckets: shape.nextBuckets, frontier: 0, mode: Shape.Mode.steady).word)
                return
            }
            migrate(growing ? shape.frontier - 1 : shape.frontier, shape, dropped)
            left -= 1
        }
    }

    /// What the next `count` steps of `advance` will look at and write to is fetched, so that they need not wait for
    /// it.
    func prefetchFrontier(_ count: Int) {
        let shape = self.shape
        guard shape.mode == Shape.Mode.growing, shape.frontier > count else { return }
        let from = shape.frontier &- count
        for i in from..<shape.frontier { shim_prefetch(bucket(i)) }
        let next = shape.nextBuckets
        for i in (from &* next / shape.buckets)...(shape.frontier &* next / shape.buckets) { shim_prefetch(bucket(i)) }
    }

    private func drop(_ slot: Memory, _ dropped: (Memory) -> Void) {
        #if SHALE_FAULTS
        shim_tell(SHIM_FORCED, slot)
        #endif
        dropped(slot)
    }

    /// A slot near a home that one that is not pinned has to leave.
    private func yieldedSlot(near home: Int, _ dropped: (Memory) -> Void) -> Memory? {
        for position in home...(home + Table.reaches.3) {
            for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                let p = bucket(position) + i
                if Slot.isPinned(p.u64(0)) || isMoving(index(of: p)) { continue }
                drop(p, dropped)
                return p
            }
        }
        // Or one that has just moved there.
        for i in 0..<header[Field.moveCount] {
            let from = slot(move(i).from), to = slot(move(i).to)
            if Slot.isFree(from.u64(0)) || Slot.isPinned(from.u64(0)) || position(of: to) < home
                || position(of: to) > home + Table.reaches.3
            {
                continue
            }
            drop(from, dropped)
            return to
        }
        return nil
    }

    private func migrate(_ old: Int, _ shape: Shape, _ dropped: (Memory) -> Void) {
        let growing = shape.mode == Shape.Mode.growing, next = shape.nextBuckets
        let after = Shape(buckets: shape.buckets, frontier: growing ? old : old + 1, mode: shape.mode)
        let reach = reach(ofHome: old)
        let lowest = Table.lowestFraction(old, shape.buckets)
        // At most 64 entries; their old slots are cleared once readers are told of the new ones.
        withUnsafeTemporaryAllocation(of: UInt64.self, capacity: ShardHeader.mostMoves) { stamps in
            var count = 0
            header.release(Field.moveShape, after.word)
            for displacement in 0...reach {
                let p = bucket(old + displacement)
                for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                    let word0 = p.u64(i)
                    guard !Slot.isFree(word0), Slot.displacement(word0) == displacement else { continue }
                    let home = Table.scale(Table.fraction(fingerprint: word0, lowest: lowest), next)
                    if home == old { continue }
                    guard
                        let target = nearestFreeSlot(home) ?? makeFree(near: home, sparing: old)
                            ?? (Slot.isPinned(word0) ? yieldedSlot(near: home, dropped) : nil)
                    else {
                        drop(p + i, dropped)
                        continue
                    }
                    // (Its value went to make room.)
                    if Slot.isFree(p.u64(i)) { continue }
                    let word1 = p.u64(i + 8)
                    noteMove(count, index(of: p + i), index(of: target))
                    publish(
                        target, home: home, fingerprint: word0 >> 32 & 0xFF_FFFF, location: Slot.location(word0),
                        flags: word0 & Slot.keptFlags, word1: word1)
                    stamps[count] = word1
                    count += 1
                }
            }
            header.release(Field.shape, after.word)
            announceMove()
            for i in 0..<count {
                let from = slot(move(i).from), to = slot(move(i).to), word0 = from.u64(0)
                // (Where it went to make room, its slot may be another's by now.)
                if !Slot.isFree(word0), Slot.location(word0) == Slot.location(to.u64(0)) {
                    vacate(from, copied: stamps[i], to: to)
                }
            }
            header.release(Field.moveCount, 0)
        }
        if reach == 0 { return }
        // Nobody with this home is displaced any more, except where old and new home can be the same bucket:
        // that of the lowest fraction when growing, of the highest when shrinking.
        let nearest = growing ? lowest : Table.lowestFraction(old + 1, shape.buckets) - 1
        if Table.scale(UInt32(truncatingIfNeeded: nearest), next) != old {
            let p = bucket(old)
            // (The farthest first: what a kill leaves is a reach all the same.)
            for i in stride(from: Table.bucketSize - Slot.size, through: 0, by: -Slot.size) {
                p.release(i, p.u64(i) & ~Slot.reachBit)
            }
        }
    }
}

/// Moves under way, for whoever comes after a kill. While one is, two slots hold the same entry.
extension Table {
    private func move(_ i: Int) -> (from: UInt32, to: UInt32) {
        let word = header.at.u64(ShardHeader.moves + i * 8)
        return (UInt32(truncatingIfNeeded: word >> 32), UInt32(truncatingIfNeeded: word))
    }
    private func setMove(_ i: Int, _ from: UInt32, _ to: UInt32) {
        header.at.release(ShardHeader.moves + i * 8, UInt64(from) << 32 | UInt64(to))
    }
    private func noteMove(_ i: Int, _ from: UInt32, _ to: UInt32) {
        setMove(i, from, to)
        header.release(Field.moveCount, i + 1)
        shim_fence_release()
    }
    /// The entry that had moved to one slot is in another now.
    private func retargetMoves(_ old: UInt32, _ new: UInt32) {
        for i in 0..<header[Field.moveCount] where move(i).to == old { setMove(i, move(i).from, new) }
    }

    private func isMoving(_ slot: UInt32) -> Bool {
        for i in 0..<header[Field.moveCount] where move(i).from == slot || move(i).to == slot { return true }
        return false
    }
    /// Before an entry leaves: where a pass has copied it already, the copy goes first.
    @inline(__always) func forgetCopy(of slot: Memory) {
        if header[Field.moveCount] != 0 { clearCopy(of: index(of: slot)) }
    }
    @inline(never) private func clearCopy(of slot: UInt32) {
        for i in 0..<header[Field.moveCount] where move(i).from == slot {
            clear(self.slot(move(i).to), keeping: self.slot(slot))
        }
    }

    /// Clears one of two slots that hold the same entry.
    private func clear(_ duplicate: Memory, keeping other: Memory) {
        guard !Slot.isFree(other.u64(0)), Slot.location(duplicate.u64(0)) == Slot.location(other.u64(0)) else { return }
        announceMove()
        clear(duplicate)
    }

    /// Clears the slot that an entry has left, if that was not done, and brings a use along, if there was one.
    private func endMove(from: Memory, to: Memory) {
        clear(from, keeping: to)
        if Slot.isFree(from.u64(0)), !Slot.isFree(to.u64(0)) { raise(to, to: shim_exchange64(from + 8, 0)) }
    }

    /// A move within the table is completed; those of a pass over a bucket are completed if readers have been told of
    /// its new shape, and otherwise taken back.
    func endMoves() {
        let slots = UInt32(shape.positions.count * Table.bucketSlots)
        let relocation = header[Field.relocation]
        if relocation != 0 {
            let from = UInt32(truncatingIfNeeded: relocation >> 32) & 0x7FFF_FFFF,
                to = UInt32(truncatingIfNeeded: relocation)
            if from < slots, to < slots {
                if Slot.location(slot(from).u64(0)) == Slot.location(slot(to).u64(0)) { retargetMoves(from, to) }
                endMove(from: slot(from), to: slot(to))
            }
            header.release(Field.relocation, 0)
        }
        let isDone = header[Field.shape] == header[Field.moveShape]
        for i in 0..<min(header[Field.moveCount], ShardHeader.mostMoves) {
            let (from, to) = move(i)
            guard from < slots, to < slots else { continue }
            if isDone { endMove(from: slot(from), to: slot(to)) } else { clear(slot(to), keeping: slot(from)) }
        }
        header.release(Field.moveCount, 0)
    }
}

extension Table {
    /// How full a table is made larger, or smaller.
    enum Load {
        // In sixty-fourths of the slots.
        static let grow = Sizes.grow, full = Sizes.full, shrink = Sizes.shrink
        /// Up to there a table is made smaller where its pages are wanted.
        static let shrunk = Sizes.shrunk
        static let pace = Sizes.pace
    }
}
