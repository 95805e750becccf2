import CShalePlatform

/// Who leaves to make room.
extension ShardWriter {
    /// Evicts the entry that the cache's policy names, or finds that expired ones have made room. False where all that is
    /// left is pinned.
    func evict() -> Bool {
        let before = header[Field.entries]
        var victim = nextVictim()
        if victim == nil, header[Field.unsure] != 0 {
            header[Field.unsure] = 0
            recount()
            victim = nextVictim()
        }
        // Pinned entries that were invalidated or have expired are nobody's victims, and gone all the same.
        if victim == nil, header[Field.pinned] > 0 { _ = purge() }
        guard let slot = victim else { return header[Field.entries] < before }
        evict(slot)
        return true
    }

    /// The policy's choice among the entries that are not the call's own, which keeps its place in the order. Nil where
    /// none is left.
    private func nextVictim() -> Slot? {
        // (The hand passes by what is damaged.)
        if isAdaptive { return SecondChance(self).next(self) ?? leastUsed() }
        var own: Slot?
        defer { if let own { victims.putBack(own) } }
        // (A sweep that finds nobody else finds it again.)
        for _ in 0..<3 {
            guard let slot = victims.next(expired: { dropIfGone($0) }) else { break }
            guard isOwn(slot) else { return slot }
            own = slot
            if header[Field.entries] - header[Field.pinned] < 2 { return nil }
        }
        return leastUsed()
    }

    /// The same, where readers use the few that are left faster than sweeps can choose from them.
    @inline(never)
    private func leastUsed() -> Slot? {
        var least: Slot?, lowest = UInt64.max
        guard header[Field.entries] > header[Field.pinned] else { return nil }
        reader.forEachSlot { slot, word0 in
            let rank = Victims.rank(slot.use)
            if word0.isPart || word0.isPinned || rank >= lowest || isOwn(slot) { return }
            (least, lowest) = (slot, rank)
        }
        return least
    }
}
