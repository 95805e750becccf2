import CShalePlatform

extension ShardWriter {
    /// Evicts the policy's choice, or finds that dead entries have made room. Returns false if only pinned entries are
    /// left.
    func evict() throws(Failure) -> Bool {
        // (Each hold evicts one entry before it pauses, so that the call makes progress. A failed search does not
        // count.)
        if change.hasEvicted { try rest() }
        let before = header[Field.entries]
        var victim = try nextVictim()
        if victim == nil, header[Field.unsure] != 0 {
            try finishAudit()
            victim = try nextVictim()
        }
        guard let slot = victim else {
            // Expired or invalidated pinned entries are never evicted: only a walk finds them.
            if header[Field.entries] < before {
                change.hasEvicted = true
                return true
            }
            return header[Field.pinned] > 0 ? try unlinkSomeDead() : false
        }
        change.hasEvicted = true
        evict(slot)
        return true
    }

    /// Returns the policy's choice; the call's own entry keeps its place in the order. Nil if there is no other.
    private func nextVictim() throws(Failure) -> Slot? {
        spend(2 * Share.lookup)
        // (Else the hand would pass over the whole log in vain.)
        guard header[Field.entries] > header[Field.pinned] else { return nil }
        // (The hand skips damaged records.)
        if isClock {
            if let slot = try SecondChance(self).next(self) { return slot }
            return try leastUsed()
        }
        var own: Slot?
        defer { if let own { victims.putBack(own) } }
        // (A sweep that finds no other entry finds the call's own again.)
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
        return try victims.next(&search) { unlinkIfDead($0, &$1) }
    }

    /// Returns the least recently used entry that a hold's share can examine, if readers use the few remaining entries
    /// faster than sweeps can choose, or writers replace them.
    @inline(never)
    private func leastUsed() throws(Failure) -> Slot? {
        while true {
            if change.progress.walks.kind != .leastUsed { change.progress.setsBefore = header[Field.sets] }
            if let slot = try leastUsedInRound() { return slot }
            // Others may have set entries where the walk had been.
            if header[Field.sets] == change.progress.setsBefore { return nil }
            change.progress.walks.allow(.leastUsed)
        }
    }

    private func leastUsedInRound() throws(Failure) -> Slot? {
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

    /// Returns the least recently used entry in the slots that a key may have, under either policy; if all have to stay,
    /// an entry from whose slot moves make room there; nil if there is none.
    @inline(never)
    func leastUsed(near key: Key) -> Slot? {
        var least: Slot?, lowest = UInt64.max
        let home = table.shape.home(key.hashBits)
        spend((Table.maxDisplacements.3 + 1) * Table.bucketSlots)
        table.forEachSlot(at: home..<(home + Table.maxDisplacements.3 + 1)) { slot, word0, _ in
            let rank = Victims.rank(slot.use)
            if rank < lowest, mayYield(slot, word0) { (least, lowest) = (slot, rank) }
        }
        if let least { return least }
        spend(Table.looksForFree)
        return table.slot(movableTo: home, within: Table.farthestForSet) { mayYield($0, $0.entry) }
    }

    private func mayYield(_ slot: Slot, _ word0: SlotEntry) -> Bool {
        if word0.isPinned || keeps(slot) { return false }
        guard word0.isPart, let part = reader.partKey(of: word0) else { return true }
        return !reader.isBeingWritten(part.blob)
    }
}
