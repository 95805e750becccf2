import CShalePlatform

/// How a table is laid out: how many buckets it has, which of them a pass over it has come to, and where the home of a hash
/// fraction is.
struct TableShape {
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
        mode == Mode.growing ? TableShape.grown(buckets) : TableShape.shrunk(buckets)
    }
    static func grown(_ buckets: Int) -> Int { buckets + max(Sizes.growth, buckets / 4) }
    static func shrunk(_ buckets: Int) -> Int { max(Sizes.leastBuckets, buckets - buckets / 5 - Sizes.shrinkage) }

    /// Homes below which positions are in use.
    var extent: Int { mode == Mode.growing ? nextBuckets : buckets }
    /// Of all buckets: those of the homes, and those behind the last that take what it spills.
    @inline(__always) var positions: Range<Int> { 0..<(extent + Sizes.spill) }

    @inline(__always) func home(_ fraction: UInt32) -> Int {
        let old = TableShape.scale(fraction, buckets)
        if mode == Mode.steady { return old }
        let moved = mode == Mode.growing ? old >= frontier : old < frontier
        return moved ? TableShape.scale(fraction, nextBuckets) : old
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
        let end = TableShape.lowestFraction(home + 1, buckets(ofHome: home))
        if mode == Mode.steady { return end }
        // On both sides of the frontier, homes are of different tables.
        let boundary = TableShape.lowestFraction(frontier, buckets)
        return fraction < boundary ? min(end, boundary) : end
    }

    // MARK: Homes

    @inline(__always) static func scale(_ fraction: UInt32, _ buckets: Int) -> Int {
        let kept = UInt64(fraction) & (1 << Sizes.fractionBits - 1)
        return Int(truncatingIfNeeded: (kept &* UInt64(truncatingIfNeeded: buckets)) >> Sizes.fractionBits)
    }

    /// The lowest fraction whose home is the bucket.
    @inline(__always) static func lowestFraction(_ bucket: Int, _ buckets: Int) -> UInt64 {
        (UInt64(bucket) << Sizes.fractionBits + UInt64(buckets) - 1) / UInt64(buckets)
    }

    /// A bucket spans at most 2^24 fractions, so the fingerprint decides which one it is.
    @inline(__always) static func fraction(fingerprint: UInt64, home: Int, buckets: Int) -> UInt32 {
        fraction(fingerprint: fingerprint, lowest: lowestFraction(home, buckets))
    }

    @inline(__always) static func fraction(fingerprint: UInt64, lowest: UInt64) -> UInt32 {
        UInt32(truncatingIfNeeded: lowest &+ (fingerprint &- lowest) & 0xFF_FFFF)
    }
}

/// How full a table is made larger, or smaller.
enum TableLoad {
    // In sixty-fourths of the slots.
    static let grow = Sizes.grow, full = Sizes.full, shrink = Sizes.shrink
    /// Up to there a table is made smaller where its pages are wanted.
    static let shrunk = Sizes.shrunk
    static let pace = Sizes.pace
}
