import CShalePlatform

/// Growing and shrinking, a few buckets at a time. Needs the lock.
extension Table {
    /// Begins a pass. The memory up to the new extent must exist and be zero.
    func begin(_ mode: Int) {
        let shape = self.shape
        let frontier = TableShape.Mode.isGrowing(mode) ? shape.buckets : 0
        header.release(Field.shape, TableShape(buckets: shape.buckets, frontier: frontier, mode: mode).word)
    }

    /// Lays out up to `count` more buckets, fewer once it has visited `most` slots. Returns how many slots it has
    /// visited. `unlink` gets entries that found no place.
    @discardableResult
    func advance(_ count: Int, looks most: Int = .max, unlink: (Slot) -> Void) -> Int {
        var left = count, looks = 0
        while left > 0, looks < most {
            let shape = self.shape
            guard shape.mode != TableShape.Mode.steady else { return looks }
            let growing = shape.isGrowing
            if growing ? shape.frontier == 0 : shape.frontier == shape.buckets {
                header.release(
                    Field.shape, TableShape(buckets: shape.nextBuckets, frontier: 0, mode: TableShape.Mode.steady).word)
                return looks
            }
            looks += migrate(growing ? shape.frontier - 1 : shape.frontier, shape, unlink)
            left -= 1
        }
        return looks
    }

    /// Prefetches what the next `count` steps of `advance` read and write, so that they need not wait.
    func prefetchFrontier(_ count: Int) {
        let shape = self.shape
        guard shape.isGrowing, shape.frontier > count else { return }
        let from = shape.frontier &- count
        for i in from..<shape.frontier { shim_prefetch(bucket(i)) }
        let next = shape.nextBuckets
        for i in (from &* next / shape.buckets)...(shape.frontier &* next / shape.buckets) { shim_prefetch(bucket(i)) }
    }

    private func forceOut(_ slot: Slot, _ unlink: (Slot) -> Void) {
        #if SHALE_FAULTS
        shim_tell(SHIM_FORCED, slot.at)
        #endif
        unlink(slot)
    }

    /// Returns a slot near a home after unlinking its entry, which is not pinned.
    private func yieldedSlot(near home: Int, _ unlink: (Slot) -> Void) -> Slot? {
        for position in home...(home + Table.maxDisplacements.3) {
            for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                let p = Slot(bucket(position) + i)
                if p.entry.isPinned || isMoving(index(of: p)) { continue }
                forceOut(p, unlink)
                return p
            }
        }
        // Or an entry that has just moved there.
        for i in 0..<header[Field.moveCount] {
            let from = slot(move(i).from), to = slot(move(i).to)
            if from.entry.isFree || from.entry.isPinned || position(of: to) < home
                || position(of: to) > home + Table.maxDisplacements.3
            {
                continue
            }
            forceOut(from, unlink)
            return to
        }
        return nil
    }

    /// Lays out one bucket. Returns about how many slots it has visited.
    private func migrate(_ old: Int, _ shape: TableShape, _ unlink: (Slot) -> Void) -> Int {
        let growing = shape.isGrowing, next = shape.nextBuckets
        let after = TableShape(buckets: shape.buckets, frontier: growing ? old : old + 1, mode: shape.mode)
        let maxDisplacement = maxDisplacement(ofHome: old)
        let lowest = TableShape.lowestHashBits(old, shape.buckets)
        var looks = (maxDisplacement + 1) * Table.bucketSlots
        // At most 64 entries; their old slots are cleared once the new shape is published.
        withUnsafeTemporaryAllocation(of: SlotUse.self, capacity: ShardHeader.mostMoves) { uses in
            var count = 0
            header.release(Field.moveShape, after.word)
            for displacement in 0...maxDisplacement {
                let p = bucket(old + displacement)
                for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                    let slot = Slot(p + i), word0 = slot.entry
                    guard !word0.isFree, word0.displacement == displacement else { continue }
                    let home = TableShape.scale(
                        TableShape.hashBits(fingerprint: word0.fingerprint, lowest: lowest), next)
                    if home == old { continue }
                    var target = nearestFreeSlot(home)
                    if target == nil {
                        target =
                            makeFree(near: home, sparing: old, looks: &looks)
                            ?? (word0.isPinned ? yieldedSlot(near: home, unlink) : nil)
                    }
                    guard let target else {
                        forceOut(slot, unlink)
                        continue
                    }
                    let reached = home + self.displacement(of: target, from: home)
                    looks += (reached - home + 2) * Table.bucketSlots
                    // (It was unlinked to make room.)
                    if slot.entry.isFree { continue }
                    let word1 = slot.use
                    noteMove(count, index(of: slot, in: old + displacement), index(of: target, in: reached))
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
                // (If it was unlinked to make room, its slot may hold another entry by now.)
                if !word0.isFree, word0.location == to.entry.location {
                    vacate(from, copied: uses[i], to: to)
                }
            }
            header.release(Field.moveCount, 0)
        }
        if maxDisplacement == 0 { return looks }
        // No entry with this home is displaced any more, unless its old and new home can be the same bucket: that of
        // the lowest hash bits when growing, of the highest when shrinking.
        let nearest = growing ? lowest : TableShape.lowestHashBits(old + 1, shape.buckets) - 1
        if TableShape.scale(UInt32(truncatingIfNeeded: nearest), next) != old {
            let p = bucket(old)
            // (The farthest first: a kill in between leaves a valid maximum displacement.)
            for i in stride(from: Table.bucketSize - Slot.size, through: 0, by: -Slot.size) {
                p.release(i, p.u64(i) & ~SlotEntry.displacementBit)
            }
        }
        return looks
    }
}
