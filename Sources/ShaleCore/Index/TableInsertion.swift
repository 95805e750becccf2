import CShalePlatform

/// Slots for new entries, under the lock.
extension Table {
    /// A free slot for the fraction, which must be filled before anything else changes. Nil where the neighbourhood is
    /// full beyond help.
    func reserve(_ fraction: UInt32) -> Memory? {
        let home = shape.home(fraction)
        return nearestFreeSlot(home) ?? makeFree(near: home)
    }

    /// The first word of an entry in a slot that was reserved for it. Its home reaches the slot from here on.
    func word0(_ slot: Memory, _ fraction: UInt32, location: UInt32, flags: UInt64) -> UInt64 {
        let home = shape.home(fraction)
        return word0(slot, home: home, fingerprint: UInt64(fraction & 0xFF_FFFF), location: location, flags: flags)
    }

    private func word0(_ slot: Memory, home: Int, fingerprint: UInt64, location: UInt32, flags: UInt64) -> UInt64 {
        let displacement = displacement(of: slot, from: home)
        raiseReach(ofHome: home, to: displacement)
        return slot.u64(0) & Slot.reachBit | UInt64(location) | fingerprint << 32
            | UInt64(displacement) << Slot.displacementShift | flags & ~Slot.reachBit
    }

    func publish(_ slot: Memory, home: Int, fingerprint: UInt64, location: UInt32, flags: UInt64, word1: UInt64)
    {
        let word0 = word0(slot, home: home, fingerprint: fingerprint, location: location, flags: flags)
        slot.release(8, word1)
        slot.release(0, word0)
    }

    @inline(__always) func move(_ slot: Memory, to location: UInt32) {
        slot.release(0, Slot.with(slot.u64(0), location: location))
    }

    private func raiseReach(ofHome home: Int, to displacement: Int) {
        if displacement == 0 { return }
        let p = bucket(home)
        let step =
            displacement <= Table.reaches.0
            ? 0 : displacement <= Table.reaches.1 ? 16 : displacement <= Table.reaches.2 ? 32 : 48
        for at in stride(from: 0, through: step, by: 16) where p.u64(at) & Slot.reachBit == 0 {
            p.release(at, p.u64(at) | Slot.reachBit)
        }
    }

    /// (One look at all four: which of them is free, no branch can foresee.)
    @inline(__always) private func freeSlot(_ p: Memory) -> Memory? {
        let free =
            (Slot.isFree(p.u64(0)) ? 1 : 0) | (Slot.isFree(p.u64(16)) ? 2 : 0) | (Slot.isFree(p.u64(32)) ? 4 : 0)
            | (Slot.isFree(p.u64(48)) ? 8 : 0)
        return free == 0 ? nil : p + free.trailingZeroBitCount &* Slot.size
    }

    func nearestFreeSlot(_ home: Int) -> Memory? {
        var p = inlinedBucket(home), position = home
        while true {
            if let slot = freeSlot(p) { return slot }
            position &+= 1
            if position > home &+ Table.reaches.3 { return nil }
            p = next(p, position)
        }
    }

    /// Moves entries up, each within its own reach, until a slot near `home` is free.
    /// `sparing`: the home whose entries are being laid out anew, and must stay where they are.
    func makeFree(near home: Int, sparing: Int = -1) -> Memory? {
        let shape = self.shape
        let end = shape.positions.upperBound
        var position = home + Table.reaches.3 + 1
        var free: Memory?
        while position < min(end, home + 256), free == nil {
            free = freeSlot(bucket(position))
            if free == nil { position += 1 }
        }
        while let slot = free, position > home + Table.reaches.3 {
            free = nil
            search: for from in max(home, position - Table.reaches.3)..<position {
                let p = bucket(from)
                for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                    let word0 = p.u64(i)
                    let owner = from - Slot.displacement(word0)
                    if position - owner <= Table.reaches.3, owner != sparing {
                        relocate(p + i, to: slot, home: owner, fingerprint: word0 >> 32 & 0xFF_FFFF)
                        free = p + i
                        position = from
                        break search
                    }
                }
            }
        }
        return free
    }

    private func relocate(_ slot: Memory, to target: Memory, home: Int, fingerprint: UInt64) {
        let word0 = slot.u64(0), word1 = slot.u64(8)
        header.release(Field.relocation, UInt64(index(of: slot)) << 32 | UInt64(index(of: target)) | 1 << 63)
        shim_fence_release()
        publish(
            target, home: home, fingerprint: fingerprint, location: Slot.location(word0), flags: word0 & Slot.keptFlags,
            word1: word1)
        announceMove()
        retargetMoves(index(of: slot), index(of: target))
        vacate(slot, copied: word1, to: target)
        header.release(Field.relocation, 0)
    }

    /// Clears a slot whose entry lives elsewhere now; a use that a reader stored meanwhile goes along.
    func vacate(_ slot: Memory, copied word1: UInt64, to target: Memory) {
        if target < slot {
            // The sweep may have passed the new place and not yet the old one.
            if header[Field.sweepAt] > position(of: target), header[Field.sweepState] == ShardHeader.SweepState.sweeping {
                header[Field.sweepState] = ShardHeader.SweepState.restart
            }
        }
        clear(slot)
        let late = shim_exchange64(slot + 8, 0)
        if late != word1 { raise(target, to: late) }
    }
}
