import CShalePlatform

/// A change that a killed writer leaves done or undone, never half.
///
/// A transaction changes words of the shard's header, at most one frame's state and one slot's second word, and last
/// its commit word, which readers see. `begin` copies the header's words to the savepoint. The next writer that locks
/// the shard after a kill restores the savepoint, unless the commit word has its new value (`Recovery`). So each change
/// happens at one moment, the same for readers and for recovery.
///
/// Transactions are short: a record and its slot, an entry that is unlinked, a new head. They never nest; a call is a
/// sequence of them, with the shard consistent in between. One costs about 90 instructions.
extension ShardHeader {
    @inline(never) func begin() {
        assert(self[Field.transaction] == 0, "transactions never nest")
        assert(self[Field.state] != State.quiet, "under the lock, within a change")
        self[Field.commitAt] = 0
        self[Field.stampedSlot] = 0
        self[Field.frame] = 0
        shim_copy(at + ShardHeader.savepoint, at + ShardHeader.saved, ShardHeader.savedSize)
        release(Field.transaction, 1)
        shim_fence_release()
    }

    /// Commits the transaction: the change happens with the store of this word, which must not have had the value
    /// before.
    @inline(never) func commit(_ word: Memory, _ value: UInt64) {
        assert(
            self[Field.transaction] != 0 && word.u64(0) != value,
            "one transaction, and a value that the word did not have")
        self[Field.commitValue] = value
        release(Field.commitAt, word - at)
        word.release(0, value)
        release(Field.transaction, 0)
    }

    @inline(__always) func commit(_ slot: Slot, _ entry: SlotEntry) { commit(slot.at, entry.bits) }
    func commit(_ field: ShardHeader.Count, by step: Int) {
        commit(address(field.word), UInt64(truncatingIfNeeded: self[field] + step))
    }

    /// Ends a transaction that changes no word that readers see.
    func end() { release(Field.transaction, 0) }

    /// Within a transaction: replaces a current slot's second word before readers see the first one. Keeps a reader's
    /// later stamp.
    @inline(never) func restamp(_ slot: Slot, _ stamp: UInt64, isUse: Bool = false, expiry: UInt64) {
        assert(self[Field.transaction] != 0)
        while true {
            let old = slot.use
            let hits = isUse ? old.hitsAfterUse : old.hits
            let new = SlotUse(stamp: max(stamp, old.stamp), hits: hits, expiry: expiry)
            self[Field.stampedNew] = new.bits
            self[Field.stampedOld] = old.bits
            release(Field.stampedSlot, slot.at - at)
            if slot.replace(old, with: new) { return }
        }
    }

    /// The same for the second word of a pair that readers only read.
    func replaceSecond(_ pair: Memory, _ value: UInt64) {
        assert(self[Field.transaction] != 0)
        self[Field.stampedNew] = value
        self[Field.stampedOld] = pair.u64(8)
        release(Field.stampedSlot, pair - at)
        pair.release(8, value)
    }

    /// Marks a change of the whole shard, which the next writer after a kill finishes.
    func pend(_ bit: Int) {
        release(Field.pending.word, self[Field.pending.word] | UInt64(bit))
        shim_fence_release()
    }
    func finish(_ bit: Int) { release(Field.pending.word, self[Field.pending.word] & ~UInt64(bit)) }

    /// Marks the shard as being changed, until `endChange`.
    @inline(__always) func beginChange() {
        self[Field.state] = State.writing
        shim_fence_release()
    }
    @inline(__always) func endChange() { release(Field.state, State.quiet) }
}
