import CShalePlatform

/// Slots for new entries. Needs the lock.
extension Table {
    /// Returns a free slot for the hash bits, to be filled before any other change. Nil if moves make no room nearby.
    func reserve(_ hashBits: UInt32, within farthest: Int = Table.farthestFree) -> Slot? {
        let home = shape.home(hashBits)
        if let slot = nearestFreeSlot(home) { return slot }
        var looks = 0
        return makeFree(near: home, within: farthest, looks: &looks)
    }

    /// Returns the first word of an entry in a reserved slot, and raises its home's maximum displacement to it.
    func word0(_ slot: Slot, _ hashBits: UInt32, location: UInt32, flags: UInt64) -> SlotEntry {
        let home = shape.home(hashBits)
        return word0(slot, home: home, fingerprint: UInt64(hashBits & 0xFF_FFFF), location: location, flags: flags)
    }

    private func word0(_ slot: Slot, home: Int, fingerprint: UInt64, location: UInt32, flags: UInt64) -> SlotEntry {
        let displacement = displacement(of: slot, from: home)
        raiseMaxDisplacement(ofHome: home, to: displacement)
        return SlotEntry(
            slot.entry.freed.bits | UInt64(location) | fingerprint << 32
                | UInt64(displacement) << SlotEntry.displacementShift | flags & ~SlotEntry.displacementBit)
    }

    func publish(_ slot: Slot, home: Int, fingerprint: UInt64, location: UInt32, flags: UInt64, word1: SlotUse) {
        let word0 = word0(slot, home: home, fingerprint: fingerprint, location: location, flags: flags)
        slot.release(word1)
        slot.release(word0)
    }

    @inline(__always) func move(_ slot: Slot, to location: UInt32) {
        slot.release(slot.entry.with(location: location))
    }

    private func raiseMaxDisplacement(ofHome home: Int, to displacement: Int) {
        if displacement == 0 { return }
        let p = bucket(home)
        let step =
            displacement <= Table.maxDisplacements.0
            ? 0 : displacement <= Table.maxDisplacements.1 ? 16 : displacement <= Table.maxDisplacements.2 ? 32 : 48
        for at in stride(from: 0, through: step, by: 16) where p.u64(at) & SlotEntry.displacementBit == 0 {
            p.release(at, p.u64(at) | SlotEntry.displacementBit)
        }
    }

    /// (Tests all four at once: a branch for each would be unpredictable.)
    @inline(__always) private func freeSlot(_ p: Memory) -> Slot? {
        let free =
            (Slot(p).entry.isFree ? 1 : 0) | (Slot(p + 16).entry.isFree ? 2 : 0) | (Slot(p + 32).entry.isFree ? 4 : 0)
            | (Slot(p + 48).entry.isFree ? 8 : 0)
        return free == 0 ? nil : Slot(p + free.trailingZeroBitCount &* Slot.size)
    }

    func nearestFreeSlot(_ home: Int) -> Slot? {
        var p = inlinedBucket(home), position = home
        while true {
            if let slot = freeSlot(p) { return slot }
            position &+= 1
            if position > home &+ Table.maxDisplacements.3 { return nil }
            p = next(p, position)
        }
    }

    /// Buckets to search for a free slot: with 96, one rebuild in ten found no place for an entry. A set
    /// searches as many in up to three holds.
    static let farthestFree = 256, farthestForSet = 72, mostSearches = 2
    /// Slots visited at most, to find a free one near and to move entries there.
    static let looksForFree = 2 * farthestForSet * bucketSlots

    /// Moves entries up, each within the displacement that its home allows, until a slot near `home` is free.
    /// `sparing`: a home whose entries are being laid out again and must stay where they are. `looks`: the slots visited
    /// are added.
    func makeFree(near home: Int, sparing: Int = -1, within farthest: Int = Table.farthestFree, looks: inout Int)
        -> Slot?
    {
        let shape = self.shape
        let end = shape.positions.upperBound
        var position = home + Table.maxDisplacements.3 + 1
        var free: Slot?
        while position < min(end, home + farthest), free == nil {
            free = freeSlot(bucket(position))
            if free == nil { position += 1 }
        }
        looks += (position - home) * Table.bucketSlots
        while let slot = free, position > home + Table.maxDisplacements.3 {
            looks += 3 * Table.bucketSlots // (an entry that can move is usually the first one)
            let from = movable(to: position, above: home, sparing: sparing)
            if let from {
                relocate(from.slot, to: slot, home: from.home, fingerprint: from.slot.entry.fingerprint)
                position = from.position
            }
            free = from?.slot
        }
        return free
    }

    /// Returns the farthest entry below `position` that may move there.
    private func movable(to position: Int, above home: Int, sparing: Int) -> (slot: Slot, position: Int, home: Int)? {
        for from in max(home, position - Table.maxDisplacements.3)..<position {
            let p = bucket(from)
            for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                let slot = Slot(p + i), owner = from - slot.entry.displacement
                if position - owner <= Table.maxDisplacements.3, owner != sparing { return (slot, from, owner) }
            }
        }
        return nil
    }

    /// Returns the nearest slot that `mayYield` accepts and from which, once it is free, `makeFree` makes room near
    /// `home`. Needs a neighbourhood without a free slot.
    func slot(movableTo home: Int, within farthest: Int, _ mayYield: (Slot) -> Bool) -> Slot? {
        let near = home + Table.maxDisplacements.3
        // Whether moves lead from a bucket to one near `home`; one bit for each bucket behind that.
        var reaches: (UInt64, UInt64) = (0, 0)
        func reach(_ position: Int) -> Bool {
            let i = position - near - 1
            if i < 0 { return true }
            return (i < 64 ? reaches.0 >> UInt64(i) : reaches.1 >> UInt64(i - 64)) & 1 != 0
        }
        for position in (near + 1)..<min(shape.positions.upperBound, home + min(farthest, near - home + 128)) {
            let p = bucket(position)
            // `makeFree` begins at the nearest free slot.
            if freeSlot(p) != nil { return nil }
            guard let from = movable(to: position, above: home, sparing: -1), reach(from.position) else { continue }
            let i = position - near - 1
            if i < 64 { reaches.0 |= 1 << UInt64(i) } else { reaches.1 |= 1 << UInt64(i - 64) }
            for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) where mayYield(Slot(p + i)) {
                return Slot(p + i)
            }
        }
        return nil
    }

    private func relocate(_ slot: Slot, to target: Slot, home: Int, fingerprint: UInt64) {
        let word0 = slot.entry, word1 = slot.use
        header.release(Field.relocation, UInt64(index(of: slot)) << 32 | UInt64(index(of: target)) | 1 << 63)
        shim_fence_release()
        publish(
            target, home: home, fingerprint: fingerprint, location: word0.location,
            flags: word0.bits & SlotEntry.keptFlags,
            word1: word1)
        announceMove()
        retargetMoves(index(of: slot), index(of: target))
        vacate(slot, copied: word1, to: target)
        header.release(Field.relocation, 0)
    }

    /// Clears a slot whose entry has moved; a use that a reader stored meanwhile moves along.
    func vacate(_ slot: Slot, copied word1: SlotUse, to target: Slot) {
        if target.at < slot.at {
            // Whether the sweep has passed the new slot and not yet the old one.
            let at = header[Field.sweepAt]
            if header[Field.sweepState] == ShardHeader.SweepState.sweeping, at > position(of: target),
                at <= position(of: slot)
            {
                header[Field.sweepState] = ShardHeader.SweepState.restart
            }
        }
        clear(slot)
        let late = slot.takeUse()
        if late != word1 { raise(target, to: late) }
    }
}
