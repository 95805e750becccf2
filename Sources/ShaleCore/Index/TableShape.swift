import CShalePlatform

/// The layout of a table: its number of buckets, the frontier of a pass over it, and the home of hash bits.
struct TableShape {
    /// `growing`: by a quarter; `shrinking`: by a fifth. Above them, odd modes multiply the size by 2, 4 or 8, and even
    /// modes divide it.
    enum Mode {
        static let steady = 0, growing = 1, shrinking = 2
        static let mostDoublings = 3
        static func multiplying(doublings: Int) -> Int { growing + 2 * doublings }
        static func dividing(halvings: Int) -> Int { shrinking + 2 * halvings }
        @inline(__always) static func isGrowing(_ mode: Int) -> Bool { mode & growing != 0 }
        static func isOne(_ mode: Int) -> Bool { mode >= steady && mode <= dividing(halvings: mostDoublings) }
    }
    var word: UInt64

    @inline(__always) init(_ word: UInt64) { self.word = word }
    init(buckets: Int, frontier: Int, mode: Int) {
        word = UInt64(buckets) | UInt64(frontier) << 24 | UInt64(mode) << 48
    }
    /// Buckets before the pass under way, if there is one.
    @inline(__always) var buckets: Int { Int(truncatingIfNeeded: word & 0xFF_FFFF) }
    @inline(__always) var frontier: Int { Int(truncatingIfNeeded: word >> 24 & 0xFF_FFFF) }
    @inline(__always) var mode: Int { Int(truncatingIfNeeded: word >> 48) }

    @inline(__always) var isGrowing: Bool { Mode.isGrowing(mode) }

    @inline(__always) var nextBuckets: Int {
        switch mode {
        case Mode.growing: TableShape.grown(buckets)
        case Mode.shrinking: TableShape.shrunk(buckets)
        default: isGrowing ? buckets << (mode >> 1) : buckets >> (mode >> 1 - 1)
        }
    }
    static func grown(_ buckets: Int) -> Int { buckets + max(Sizes.growth, buckets / 4) }
    static func shrunk(_ buckets: Int) -> Int { max(Sizes.leastBuckets, buckets - buckets / 5 - Sizes.shrinkage) }

    /// The number of homes that may be in use.
    var extent: Int { isGrowing ? nextBuckets : buckets }
    /// All buckets: those of the homes, and those behind the last home that take its spill.
    @inline(__always) var positions: Range<Int> { 0..<(extent + Sizes.spill) }

    @inline(__always) func home(_ hashBits: UInt32) -> Int {
        let old = TableShape.scale(hashBits, buckets)
        if mode == Mode.steady { return old }
        let moved = isGrowing ? old >= frontier : old < frontier
        return moved ? TableShape.scale(hashBits, nextBuckets) : old
    }
    /// Returns the number of buckets by which the entries of this home are laid out.
    @inline(__always) func buckets(ofHome home: Int) -> Int {
        if mode == Mode.steady { return buckets }
        return isGrowing == (home < frontier) ? buckets : nextBuckets
    }
    /// Returns the end of the range from `hashBits` on that has this home, too.
    func end(ofHome home: Int, from hashBits: UInt64) -> UInt64 {
        let end = TableShape.lowestHashBits(home + 1, buckets(ofHome: home))
        if mode == Mode.steady { return end }
        // Homes on either side of the frontier belong to different layouts.
        let boundary = TableShape.lowestHashBits(frontier, buckets)
        return hashBits < boundary ? min(end, boundary) : end
    }

    // MARK: Homes

    @inline(__always) static func scale(_ hashBits: UInt32, _ buckets: Int) -> Int {
        let kept = UInt64(hashBits) & (1 << Sizes.hashBitCount - 1)
        return Int(truncatingIfNeeded: (kept &* UInt64(truncatingIfNeeded: buckets)) >> Sizes.hashBitCount)
    }

    /// Returns the lowest hash bits whose home is the bucket.
    @inline(__always) static func lowestHashBits(_ bucket: Int, _ buckets: Int) -> UInt64 {
        (UInt64(bucket) << Sizes.hashBitCount + UInt64(buckets) - 1) / UInt64(buckets)
    }

    /// A bucket spans at most 2^24 hash bits, so the fingerprint determines which.
    @inline(__always) static func hashBits(fingerprint: UInt64, home: Int, buckets: Int) -> UInt32 {
        hashBits(fingerprint: fingerprint, lowest: lowestHashBits(home, buckets))
    }

    @inline(__always) static func hashBits(fingerprint: UInt64, lowest: UInt64) -> UInt32 {
        UInt32(truncatingIfNeeded: lowest &+ (fingerprint &- lowest) & 0xFF_FFFF)
    }
}

/// Loads at which a table grows or shrinks.
enum TableLoad {
    // In 64ths of the slots.
    static let prepare = Sizes.prepare, grow = Sizes.grow, full = Sizes.full, shrink = Sizes.shrink
    /// Load below which a table shrinks by a fifth if the shard is full.
    static let loose = Sizes.loose
    /// Load below which pages beyond the table are given back.
    static let giveBack = prepare - 4
    /// Lower than the load of a table that a pass has multiplied.
    static let sparse = Sizes.sparse
    /// Highest load after a pass that divides a table.
    static let divided = grow / 2
    /// Load up to which a table shrinks if its pages are needed.
    static let shrunk = Sizes.shrunk
    /// Buckets that each record relocates at least, and bytes of a long one for each of its buckets: a pass over a table
    /// that was a quarter of the capacity ends within a capacity.
    static let pace = Sizes.pace, bytesPerBucket = Sizes.bytesPerBucket
    /// Entries that each record evicts before pinned entries need a larger table.
    static let evictedForPin = 8
}
