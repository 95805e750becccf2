import CShalePlatform

/// Stamps have 38 bits: at ten million uses per second they last for seven hours. Long before that, under the lock,
/// they are replaced by their ranks.
///
/// Readers go on meanwhile. First the counter is set back, so that every stamp drawn from then on is a new, small one.
/// Every slot's stamp changes, so the compare-and-swap of a reader that still holds an old, large stamp fails. Ranks
/// begin at a different base each time, so that no slot keeps its stamp by chance.
///
/// A reader that stores an old stamp after the slots were sorted was in the middle of its use when the counter was set
/// back. Its entry ranks above all sorted ones and below all stamps drawn from then on: a gap is left there, with one
/// stamp per thread.
///
/// If a writer is killed here, some slots have their ranks, some their old stamps, and some stamps drawn since. The
/// next writer ranks the slots with old stamps.
struct Renumber: ShardParts {
    private static let bases: (UInt64, UInt64) = (1, Sizes.laterStamps)

    private struct Stamps {
        let ranks: Range<UInt64>, drawn: UInt64
        var late: UInt64

        init(base: UInt64, count: Int) {
            ranks = base..<(base + UInt64(count))
            late = ranks.upperBound
            drawn = late + Sizes.lateStamps
        }
    }
    private struct Item { var stamp: UInt64, slot: UInt64 }

    let log: Log

    @inline(__always) init(_ shard: borrowing ShardWriter) { log = shard.log }

    @inline(__always) func runIfNeeded() {
        if header[Field.stamp] >= Sizes.renumberStampsAt { run() }
    }

    @inline(never)
    func run() {
        // Odd while slots are being ranked. (If it is even, a killed writer had finished.)
        let isUnderWay = header[Field.renumberings] & 1 != 0,
            mustSetBack = header[Field.stamp] >= Sizes.renumberStampsAt
        guard isUnderWay || mustSetBack else { return header.finish(ShardHeader.Pending.renumber) }
        let count = header[Field.used]
        // Without memory now, the next change tries again: as many stamps are left as were used.
        guard let memory = shim_malloc(max(1, count) * MemoryLayout<Item>.stride) else { return }
        defer { shim_free(memory) }
        let items = UnsafeMutableBufferPointer(
            start: memory.bindMemory(to: Item.self, capacity: max(1, count)), count: count)
        header.pend(ShardHeader.Pending.renumber)
        if !isUnderWay { header[Field.renumberings] += 1 }
        var stamps = Stamps(
            base: header[Field.renumberings] & 2 == 0 ? Renumber.bases.1 : Renumber.bases.0, count: count)
        if mustSetBack { shim_store64(header.address(Field.stamp), stamps.drawn) }
        shim_fence()
        var sorted = UnsafeMutableBufferPointer(
            rebasing: items[0..<collect(into: items, isSecond: !mustSetBack, &stamps)])
        sorted.sort { $0.stamp < $1.stamp }
        for i in 0..<sorted.count { rank(sorted[i], stamps.ranks.lowerBound + UInt64(i), &stamps) }
        victims.reset()
        accessClock.removeAll()
        header[Field.renumberings] += 1
        header.finish(ShardHeader.Pending.renumber)
    }

    /// Collects the slots to rank. `isSecond`: after a writer was killed here.
    private func collect(into items: UnsafeMutableBufferPointer<Item>, isSecond: Bool, _ stamps: inout Stamps) -> Int {
        var found = 0
        reader.forEachSlot { slot, _ in
            let stamp = slot.use.stamp
            if isSecond, stamp >= stamps.ranks.upperBound, stamp <= header[Field.stamp] {
                // Stored after a killed writer had set the counter back.
                if stamp < stamps.drawn { stamps.late = max(stamps.late, stamp + 1) }
            } else if found < items.count {
                // (A slot that has its rank already comes first, and keeps it.)
                let hasRank = isSecond && stamps.ranks.contains(stamp)
                items[found] = Item(
                    stamp: hasRank ? stamp : stamp | 1 << SlotUse.stampBits, slot: UInt64(UInt(bitPattern: slot.at)))
                found += 1
            }
        }
        return found
    }

    private func rank(_ item: Item, _ rank: UInt64, _ stamps: inout Stamps) {
        guard let at = Memory(bitPattern: UInt(item.slot)) else { return }
        let slot = Slot(at)
        var stamp = rank
        while true {
            let word1 = slot.use, its = word1.stamp
            if its != SlotUse(item.stamp).stamp {
                // Used meanwhile. A new stamp stays; an old one is the newest of all ranked.
                if its > stamps.drawn, its <= header[Field.stamp] { return }
                stamp = stamps.late
                stamps.late += 1
            }
            if slot.replace(word1, with: SlotUse(stamp: stamp, hits: word1.hits, expiry: word1.expiry)) { return }
        }
    }
}
