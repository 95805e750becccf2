import CShalePlatform

/// Moves under way, for recovery after a kill. During a move, two slots hold the same entry.
extension Table {
    func move(_ i: Int) -> (from: UInt32, to: UInt32) {
        let word = header.at.u64(ShardHeader.moves + i * 8)
        return (UInt32(truncatingIfNeeded: word >> 32), UInt32(truncatingIfNeeded: word))
    }

    private func setMove(_ i: Int, _ from: UInt32, _ to: UInt32) {
        header.at.release(ShardHeader.moves + i * 8, UInt64(from) << 32 | UInt64(to))
    }

    func noteMove(_ i: Int, _ from: UInt32, _ to: UInt32) {
        setMove(i, from, to)
        header.release(Field.moveCount, i + 1)
        shim_fence_release()
    }

    /// Redirects moves whose target, `old`, has itself moved to `new`.
    func retargetMoves(_ old: UInt32, _ new: UInt32) {
        for i in 0..<header[Field.moveCount] where move(i).to == old { setMove(i, move(i).from, new) }
    }

    func isMoving(_ slot: UInt32) -> Bool {
        for i in 0..<header[Field.moveCount] where move(i).from == slot || move(i).to == slot { return true }
        return false
    }

    /// Clears the copy that a pass has made of an entry, before the entry is unlinked.
    @inline(__always) func clearCopy(of slot: Slot) {
        if header[Field.moveCount] != 0 { clearCopy(of: index(of: slot)) }
    }

    @inline(never) private func clearCopy(of slot: UInt32) {
        for i in 0..<header[Field.moveCount] where move(i).from == slot {
            clear(self.slot(move(i).to), keeping: self.slot(slot))
        }
    }

    /// Clears one of two slots that hold the same entry.
    func clear(_ duplicate: Slot, keeping other: Slot) {
        guard !other.entry.isFree, duplicate.entry.location == other.entry.location else { return }
        announceMove()
        clear(duplicate)
    }

    /// Clears the slot that an entry has left, if it still holds the entry, and moves a late use along.
    private func endMove(from: Slot, to: Slot) {
        clear(from, keeping: to)
        if from.entry.isFree, !to.entry.isFree { raise(to, to: from.takeUse()) }
    }

    /// Ends moves that a kill has left. Completes a move within the table. Completes the moves of a pass over a bucket
    /// if its new shape was published, and otherwise rolls them back.
    func endMoves() {
        let slots = UInt32(shape.positions.count * Table.bucketSlots)
        let relocation = header[Field.relocation]
        if relocation != 0 {
            let from = UInt32(truncatingIfNeeded: relocation >> 32) & 0x7FFF_FFFF,
                to = UInt32(truncatingIfNeeded: relocation)
            if from < slots, to < slots {
                if slot(from).entry.location == slot(to).entry.location { retargetMoves(from, to) }
                endMove(from: slot(from), to: slot(to))
            }
            header.release(Field.relocation, 0)
        }
        let isDone = header[Field.shape] == header[Field.moveShape]
        for i in 0..<min(header[Field.moveCount], ShardHeader.mostMoves) {
            let (from, to) = move(i)
            guard from < slots, to < slots else { continue }
            if isDone { endMove(from: slot(from), to: slot(to)) } else { clear(slot(to), keeping: slot(from)) }
        }
        header.release(Field.moveCount, 0)
    }

    @inline(__always) func clear(_ slot: Slot) {
        slot.release(slot.entry.freed)
    }

    func announceMove() {
        header.release(Field.moves, header[Field.moves] &+ 1)
        shim_fence_release()
    }

    /// Moves a late use along from the entry's old slot. (That word is zero now, which no reader expects: a reader that
    /// has read it before fails to replace it, and searches for the entry.)
    func raise(_ slot: Slot, to late: SlotUse) {
        while true {
            let word1 = slot.use
            if word1.stamp >= late.stamp || slot.replace(word1, with: late) { return }
        }
    }
}
