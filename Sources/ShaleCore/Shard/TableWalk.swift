import CShalePlatform

extension ShardWriter {
    /// A step of a walk: visits the entries of a home, or some of them, and pays for that. One at a time where their tags are
    /// looked up, of which each may have eight, and their keys read, which may be long.
    @inline(__always)
    func visit<E: Error>(from fraction: UInt64, byOne: Bool = false, _ body: (Slot) throws(E) -> Void) throws(E)
        -> Table.Stretch
    {
        let stretch = table.stretch(from: fraction, byOne: byOne)
        spend(stretch.looks)
        try table.visit(stretch, body)
        return stretch
    }

    /// Goes on until `body` has found something, with that step's entries all visited; or once round in vain, which holds
    /// for the rest of the call, unless it makes room elsewhere. `first`: where a walk begins.
    @inline(never)
    func walk(_ kind: Walks.Kind, from first: UInt64 = 0, _ body: (Slot) throws(Failure) -> Bool) throws(Failure)
        -> Bool
    {
        let bit = UInt8(1) << kind.rawValue
        if change.progress.walks.vain & bit != 0 { return false }
        if change.progress.walks.kind != kind { change.progress.walks.begin(kind, at: first) }
        while change.progress.walks.left > 0 {
            // (The first step in a hold is for progress, whatever the call has done before.)
            if change.hasWalked { try rest() }
            change.hasWalked = true
            let at = change.progress.walks.at
            var found = false
            let next = try visit(from: at, byOne: kind == .gone) { slot throws(Failure) in
                if try body(slot) { found = true }
            }.next
            change.progress.walks.left -= min(change.progress.walks.left, next - at)
            change.progress.walks.at = next < Table.allFractions ? next : 0
            if found {
                // (Entries may be gone faster than they are found: once round finds all that were before.)
                if kind != .gone { change.progress.walks.left = Table.allFractions }
                return true
            }
        }
        if change.hasShare { change.progress.walks.vain |= bit }
        change.progress.walks.kind = .none
        return false
    }
}
