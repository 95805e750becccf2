import CShalePlatform

extension ShardWriter {
    /// A step of a walk: visits a home's entries, or some of them, and charges the hold. `byOne`: one at a time, if
    /// tags, up to eight per entry, and keys, maybe long, are looked up.
    @inline(__always)
    func visit<E: Error>(from hashBits: UInt64, byOne: Bool = false, _ body: (Slot) throws(E) -> Void) throws(E)
        -> Table.Stretch
    {
        let stretch = table.stretch(from: hashBits, byOne: byOne)
        spend(stretch.looks)
        try table.visit(stretch, body)
        return stretch
    }

    /// Walks until `body` has found something, then finishes that step. Returns false after a whole round in vain,
    /// which holds for the rest of the call unless it makes room elsewhere. `first`: where the walk begins.
    @inline(never)
    func walk(_ kind: Walks.Kind, from first: UInt64 = 0, _ body: (Slot) throws(Failure) -> Bool) throws(Failure)
        -> Bool
    {
        let bit = UInt8(1) << kind.rawValue
        if change.progress.walks.vain & bit != 0 { return false }
        if change.progress.walks.kind != kind { change.progress.walks.begin(kind, at: first) }
        while change.progress.walks.left > 0 {
            // (The first step in a hold always runs, for progress.)
            if change.hasWalked { try rest() }
            change.hasWalked = true
            let at = change.progress.walks.at
            var found = false
            let next = try visit(from: at, byOne: kind == .dead) { slot throws(Failure) in
                if try body(slot) { found = true }
            }.next
            change.progress.walks.left -= min(change.progress.walks.left, next - at)
            change.progress.walks.at = next < Table.allHashBits ? next : 0
            if found {
                // (Entries may expire faster than they are found: one round finds all that were dead before.)
                if kind != .dead { change.progress.walks.left = Table.allHashBits }
                return true
            }
        }
        if change.hasShare { change.progress.walks.vain |= bit }
        change.progress.walks.kind = .none
        return false
    }
}
