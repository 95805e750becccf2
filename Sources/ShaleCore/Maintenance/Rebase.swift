import CShalePlatform

/// Stamps have 38 bits: at ten million uses a second they last for seven hours.
/// Long before that, under the lock, they are replaced by their ranks.
///
/// Readers go on meanwhile. The counter is set back first, so whoever draws a
/// stamp from then on draws a new, small one; every slot's stamp changes, so the
/// compare-and-swap of a reader that still holds an old, large one fails. Ranks
/// begin at another base each time: no slot keeps its stamp by chance.
///
/// Who stored an old stamp after the slots were sorted was in the middle of its
/// use when the counter was set back. So it ranks above all that were sorted, and
/// below all that is drawn from then on: a gap is left there, one for each thread.
///
/// Where a writer was killed here, some slots have their ranks, some their old
/// stamps, and some stamps that were drawn since. Who comes next ranks the second.
extension Shard {
    static let rebaseStampsAt = Sizes.rebaseStampsAt
    private static let bases: (UInt64, UInt64) = (1, Sizes.laterStamps)

    @inline(__always) func rebaseStampsIfNeeded() {
        if header.at.u64(Field.stamp) >= Shard.rebaseStampsAt { rebaseStamps() }
    }

    /// For a shard that is only read: now and then a reader takes the lock for it.
    @inline(never)
    func requestRebase() {
        var change = Change.withoutTime
        try? make(&change) { _ throws(Failure) in }
    }

    @inline(never)
    func rebaseStamps() {
        // Odd while slots are ranked. (A killed writer had done all.)
        let isUnderWay = header[Field.rebases] & 1 != 0,
            mustSetBack = header.at.u64(Field.stamp) >= Shard.rebaseStampsAt
        guard isUnderWay || mustSetBack else { return header.finish(ShardHeader.Pending.rebase) }
        let count = header[Field.used]
        struct Item { var stamp: UInt64, slot: UInt64 }
        // No memory now: there are as many stamps left as were used, and the next change tries again.
        guard let memory = shim_malloc(max(1, count) * MemoryLayout<Item>.stride) else { return }
        defer { shim_free(memory) }
        let items = UnsafeMutableBufferPointer(
            start: memory.bindMemory(to: Item.self, capacity: max(1, count)), count: count)
        header.pend(ShardHeader.Pending.rebase)
        if !isUnderWay { header[Field.rebases] += 1 }
        let base = header[Field.rebases] & 2 == 0 ? Shard.bases.1 : Shard.bases.0
        var late = base + UInt64(count)
        let start = late + Sizes.lateStamps
        if mustSetBack { shim_store64(header.at + Field.stamp, start) }
        shim_fence()
        var found = 0
        forEachSlot { slot, _ in
            let stamp = Slot.stamp(slot.u64(8))
            if !mustSetBack, stamp >= base + UInt64(count), stamp <= header.at.u64(Field.stamp) {
                // Stored since a writer that was killed had set the counter back.
                if stamp < start { late = max(late, stamp + 1) }
            } else if found < count {
                // (What has its rank already comes first, and keeps it.)
                let hasRank = !mustSetBack && stamp >= base && stamp < base + UInt64(count)
                items[found] = Item(
                    stamp: hasRank ? stamp : stamp | 1 << Slot.stampBits, slot: UInt64(UInt(bitPattern: slot)))
                found += 1
            }
        }
        var sorted = UnsafeMutableBufferPointer(rebasing: items[0..<found])
        sorted.sort { $0.stamp < $1.stamp }
        for i in 0..<found {
            guard let slot = Memory(bitPattern: UInt(sorted[i].slot)) else { continue }
            var stamp = base + UInt64(i)
            while true {
                let word1 = slot.u64(8), its = Slot.stamp(word1)
                if its != Slot.stamp(sorted[i].stamp) {
                    // Used meanwhile. A new stamp stays; an old one is the newest of all that are ranked.
                    if its > start, its <= header.at.u64(Field.stamp) { break }
                    stamp = late
                    late += 1
                }
                if shim_cas64(
                    slot + 8, word1, Slot.word1(stamp: stamp, hits: Slot.hits(word1), expiry: Slot.expiry(word1)))
                {
                    break
                }
            }
        }
        victims.reset()
        header[Field.rebases] += 1
        header.finish(ShardHeader.Pending.rebase)
    }
}
