/// A call's walks over a shard's table, in steps, from one hold of the lock to the next.
///
/// A walk is ordered by hash bits, so it passes every entry that stays, however the table is laid out meanwhile.
struct Walks {
    /// One walk is in progress at a time.
    enum Kind: UInt8 { case none, dead, orphans, partsOfDead, crowding, leastUsed, damage }

    var kind = Kind.none
    /// The position, and what is left of the round.
    var at: UInt64 = 0, left: UInt64 = 0
    /// Walks that found nothing in a whole round, one bit each.
    var vain: UInt8 = 0

    /// A start that differs from call to call.
    static func somewhere(_ shard: ShardReader) -> UInt64 {
        shard.nextStamp() &* 0x9E37_79B9 & (Table.allHashBits - 1)
    }

    mutating func begin(_ kind: Kind, at hashBits: UInt64) {
        self.kind = kind
        (at, left) = (hashBits, Table.allHashBits)
    }
    /// A search in vain has found something after all.
    mutating func allow(_ kind: Kind) { vain &= ~(1 << kind.rawValue) }
}
