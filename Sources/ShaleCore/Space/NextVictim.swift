import CShalePlatform

/// Who leaves to make room.
extension ShardWriter {
    /// Evicts the entry that the cache's policy names, or finds that expired ones have made room. False where all that is
    /// left is pinned.
    func evict() throws(Failure) -> Bool {
        // (Each hold lets one entry go before it pauses, so that the call comes further. A search in vain does not count.)
        if change.hasEvicted { try rest() }
        let before = header[Field.entries]
        var victim = try nextVictim()
        if victim == nil, header[Field.unsure] != 0 {
            try finishAudit()
            victim = try nextVictim()
        }
        guard let slot = victim else {
            // Pinned entries that were invalidated or have expired are nobody's victims, and gone all the same.
            if header[Field.entries] < before {
                change.hasEvicted = true
                return true
            }
            return header[Field.pinned] > 0 ? try dropSomeGone() : false
        }
        change.hasEvicted = true
        evict(slot)
        return true
    }

    /// The policy's choice among the entries that are not the call's own, which keeps its place in the order. Nil where
    /// none is left.
    private func nextVictim() throws(Failure) -> Slot? {
        spend(2 * Share.lookup)
        // (Where all is pinned, the hand would go round the log in vain.)
        guard header[Field.entries] > header[Field.pinned] else { return nil }
        // (The hand passes by what is damaged.)
        if isAdaptive {
            if let slot = try SecondChance(self).next(self) { return slot }
            return try leastUsed()
        }
        var own: Slot?
        defer { if let own { victims.putBack(own) } }
        // (A sweep that finds nobody else finds it again.)
        for _ in 0..<3 {
            guard let slot = try nextInOrder() else { break }
            guard isOwn(slot) else { return slot }
            own = slot
            if header[Field.entries] - header[Field.pinned] < 2 { return nil }
        }
        return try leastUsed()
    }

    private func nextInOrder() throws(Failure) -> Slot? {
        if !change.hasShare { change.progress.barrenHeaps = 0 }
        var search = Victims.Search(left: change.left, barren: change.progress.barrenHeaps)
        defer { (change.left, change.progress.barrenHeaps) = (search.left, search.barren) }
        return try victims.next(&search) { dropIfGone($0, &$1) }
    }

    /// The same, where readers use the few that are left faster than sweeps can choose from them: the least recently used
    /// one of those that a hold's share can look at.
    @inline(never)
    private func leastUsed() throws(Failure) -> Slot? {
        var least: Slot?, lowest = UInt64.max
        let start = Walks.somewhere(reader)
        do throws(Failure) {
            _ = try walk(.leastUsed, from: start) { slot in
                let word0 = slot.entry, rank = Victims.rank(slot.use)
                if !word0.isPart, !word0.isPinned, rank < lowest, !isOwn(slot) { (least, lowest) = (slot, rank) }
                return false
            }
        } catch {
            if !error.isPause || least == nil { throw error }
            #if SHALE_FAULTS
            shim_tell(SHIM_FORCED, nil)
            #endif
        }
        if least != nil { change.progress.walks.allow(.leastUsed) }
        return least
    }

    /// Of the entries in the slots that a key may have: the least recently used one, whatever the policy. Nil where all of
    /// them have to stay.
    @inline(never)
    func leastUsed(near key: Key) -> Slot? {
        var least: Slot?, lowest = UInt64.max
        let home = table.shape.home(key.fraction)
        spend((Table.reaches.3 + 1) * Table.bucketSlots)
        table.forEachSlot(at: home..<(home + Table.reaches.3 + 1)) { slot, word0, _ in
            let rank = Victims.rank(slot.use)
            if word0.isPinned || rank >= lowest || keeps(slot) { return }
            if word0.isPart, let part = reader.partKey(of: word0), reader.isBeingWritten(part.blob) { return }
            (least, lowest) = (slot, rank)
        }
        return least
    }
}
