import CShalePlatform

/// Growing and shrinking, under the lock: a few buckets at a time.
extension Table {
    /// Begins a pass. The memory up to the new extent must exist and be zero.
    func begin(_ mode: Int) {
        let shape = self.shape
        let frontier = mode == TableShape.Mode.growing ? shape.buckets : 0
        header.release(Field.shape, TableShape(buckets: shape.buckets, frontier: frontier, mode: mode).word)
    }

    /// Lays out up to `count` more buckets anew, and fewer once it has looked at `most` slots; how many it has looked at.
    /// `dropped` gets an entry that found no place.
    @discardableResult
    func advance(_ count: Int, looks most: Int = .max, dropped: (Slot) -> Void) -> Int {
        var left = count, looks = 0
        while left > 0, looks < most {
            let shape = self.shape
            guard shape.mode != TableShape.Mode.steady else { return looks }
            let growing = shape.mode == TableShape.Mode.growing
            if growing ? shape.frontier == 0 : shape.frontier == shape.buckets {
                header.release(
                    Field.shape, TableShape(buckets: shape.nextBuckets, frontier: 0, mode: TableShape.Mode.steady).word)
                return looks
            }
            looks += migrate(growing ? shape.frontier - 1 : shape.frontier, shape, dropped)
            left -= 1
        }
        return looks
    }

    /// What the next `count` steps of `advance` will look at and write to is fetched, so that they need not wait for
    /// it.
    func prefetchFrontier(_ count: Int) {
        let shape = self.shape
        guard shape.mode == TableShape.Mode.growing, shape.frontier > count else { return }
        let from = shape.frontier &- count
        for i in from..<shape.frontier { shim_prefetch(bucket(i)) }
        let next = shape.nextBuckets
        for i in (from &* next / shape.buckets)...(shape.frontier &* next / shape.buckets) { shim_prefetch(bucket(i)) }
    }

    private func drop(_ slot: Slot, _ dropped: (Slot) -> Void) {
        #if SHALE_FAULTS
        shim_tell(SHIM_FORCED, slot.at)
        #endif
        dropped(slot)
    }

    /// A slot near a home that one that is not pinned has to leave.
    private func yieldedSlot(near home: Int, _ dropped: (Slot) -> Void) -> Slot? {
        for position in home...(home + Table.reaches.3) {
            for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                let p = Slot(bucket(position) + i)
                if p.entry.isPinned || isMoving(index(of: p)) { continue }
                drop(p, dropped)
                return p
            }
        }
        // Or one that has just moved there.
        for i in 0..<header[Field.moveCount] {
            let from = slot(move(i).from), to = slot(move(i).to)
            if from.entry.isFree || from.entry.isPinned || position(of: to) < home
                || position(of: to) > home + Table.reaches.3
            {
                continue
            }
            drop(from, dropped)
            return to
        }
        return nil
    }

    /// How many slots it has looked at, about.
    private func migrate(_ old: Int, _ shape: TableShape, _ dropped: (Slot) -> Void) -> Int {
        let growing = shape.mode == TableShape.Mode.growing, next = shape.nextBuckets
        let after = TableShape(buckets: shape.buckets, frontier: growing ? old : old + 1, mode: shape.mode)
        let reach = reach(ofHome: old)
        let lowest = TableShape.lowestFraction(old, shape.buckets)
        var looks = (reach + 1) * Table.bucketSlots
        // At most 64 entries; their old slots are cleared once readers are told of the new ones.
        withUnsafeTemporaryAllocation(of: SlotUse.self, capacity: ShardHeader.mostMoves) { uses in
            var count = 0
            header.release(Field.moveShape, after.word)
            for displacement in 0...reach {
                let p = bucket(old + displacement)
                for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                    let slot = Slot(p + i), word0 = slot.entry
                    guard !word0.isFree, word0.displacement == displacement else { continue }
                    let home = TableShape.scale(
                        TableShape.fraction(fingerprint: word0.fingerprint, lowest: lowest), next)
                    if home == old { continue }
                    var target = nearestFreeSlot(home)
                    if target == nil {
                        looks += Table.looksForFree / 8 // (a free slot is near as a rule)
                        target =
                            makeFree(near: home, sparing: old)
                            ?? (word0.isPinned ? yieldedSlot(near: home, dropped) : nil)
                    }
                    guard let target else {
                        drop(slot, dropped)
                        continue
                    }
                    looks += (position(of: target) - home + 2) * Table.bucketSlots
                    // (Its value went to make room.)
                    if slot.entry.isFree { continue }
                    let word1 = slot.use
                    noteMove(count, index(of: slot), index(of: target))
                    publish(
                        target, home: home, fingerprint: word0.fingerprint, location: word0.location,
                        flags: word0.bits & SlotEntry.keptFlags, word1: word1)
                    uses[count] = word1
                    count += 1
                }
            }
            header.release(Field.shape, after.word)
            announceMove()
            for i in 0..<count {
                let from = slot(move(i).from), to = slot(move(i).to), word0 = from.entry
                // (Where it went to make room, its slot may be another's by now.)
                if !word0.isFree, word0.location == to.entry.location {
                    vacate(from, copied: uses[i], to: to)
                }
            }
            header.release(Field.moveCount, 0)
        }
        if reach == 0 { return looks }
        // Nobody with this home is displaced any more, except where old and new home can be the same bucket:
        // that of the lowest fraction when growing, of the highest when shrinking.
        let nearest = growing ? lowest : TableShape.lowestFraction(old + 1, shape.buckets) - 1
        if TableShape.scale(UInt32(truncatingIfNeeded: nearest), next) != old {
            let p = bucket(old)
            // (The farthest first: what a kill leaves is a reach all the same.)
            for i in stride(from: Table.bucketSize - Slot.size, through: 0, by: -Slot.size) {
                p.release(i, p.u64(i) & ~SlotEntry.reachBit)
            }
        }
        return looks
    }
}
