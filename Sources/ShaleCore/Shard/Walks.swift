import CShalePlatform

/// A call's walks over a shard's table, in steps, from one hold of the lock to the next.
///
/// A walk goes by hash fractions, so it passes every entry that stays, however the table is laid out meanwhile.
struct Walks {
    /// What is looked for. One walk is under way at a time.
    enum Kind: UInt8 { case none, gone, orphans, partsOfGone, crowding, leastUsed, damage }

    fileprivate var kind = Kind.none
    /// Where it goes on, and what is left of the whole round.
    fileprivate var at: UInt64 = 0, left: UInt64 = 0
    /// Those that have found nothing in a whole round: a bit each.
    fileprivate var vain: UInt8 = 0

    fileprivate mutating func begin(_ kind: Kind, at fraction: UInt64) {
        self.kind = kind
        (at, left) = (fraction, Table.allFractions)
    }
    /// It has found something after all.
    mutating func allow(_ kind: Kind) { vain &= ~(1 << kind.rawValue) }
    /// Something else is looked for.
    mutating func restart(_ kind: Kind) {
        allow(kind)
        if self.kind == kind { self.kind = .none }
    }
}

extension ShardWriter {
    /// Goes on until `body` has found something, with that home's entries all visited; or once round in vain, which holds
    /// for the rest of the call, unless it makes room elsewhere. `first`: where a walk begins.
    @inline(never)
    func walk(_ kind: Walks.Kind, from first: UInt64 = 0, _ body: (Slot) throws(Failure) -> Bool) throws(Failure) -> Bool
    {
        let bit = UInt8(1) << kind.rawValue
        if change.progress.walks.vain & bit != 0 { return false }
        if change.progress.walks.kind != kind { change.progress.walks.begin(kind, at: first) }
        while change.progress.walks.left > 0 {
            let at = change.progress.walks.at, table = self.table
            let homes = table.homes(from: at, atMost: Walks.step)
            var found = false
            let buckets = try table.visit(homes) { slot throws(Failure) in
                if try body(slot) { found = true }
            }
            spend(buckets * Table.bucketSlots)
            change.progress.walks.left -= min(change.progress.walks.left, homes.next - at)
            change.progress.walks.at = homes.next < Table.allFractions ? homes.next : 0
            if found {
                change.progress.walks.left = Table.allFractions
                return true
            }
            if change.progress.walks.left > 0 { try rest() }
        }
        if change.hasShare { change.progress.walks.vain |= bit }
        change.progress.walks.kind = .none
        return false
    }
}

extension Walks {
    /// Homes that are visited at once.
    fileprivate static let step = Sizes.homesPerStep
}
