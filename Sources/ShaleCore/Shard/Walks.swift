/// A call's walks over a shard's table, in steps, from one hold of the lock to the next.
///
/// A walk goes by hash fractions, so it passes every entry that stays, however the table is laid out meanwhile.
struct Walks {
    /// What is looked for. One walk is under way at a time.
    enum Kind: UInt8 { case none, gone, orphans, partsOfGone, crowding, leastUsed, damage }

    var kind = Kind.none
    /// Where it goes on, and what is left of the whole round.
    var at: UInt64 = 0, left: UInt64 = 0
    /// Those that have found nothing in a whole round: a bit each.
    var vain: UInt8 = 0

    /// A fraction that is another one each time.
    static func somewhere(_ shard: ShardReader) -> UInt64 {
        shard.nextStamp() &* 0x9E37_79B9 & (Table.allFractions - 1)
    }

    mutating func begin(_ kind: Kind, at fraction: UInt64) {
        self.kind = kind
        (at, left) = (fraction, Table.allFractions)
    }
    /// It has found something after all.
    mutating func allow(_ kind: Kind) { vain &= ~(1 << kind.rawValue) }
}
