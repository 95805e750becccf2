import CShalePlatform

/// Fenced sets: a loaded value is stored only if its key and its tags are unchanged since a fencing token was drawn,
/// before the load.
///
/// A token is an LSN, drawn under the shard's lock from the sequence that numbers all changes. A change in this shard
/// has a lower LSN if it was complete when the token was drawn, and a higher one if it came later. If the shard does
/// not know whether a key or tag has changed, it reports a change.
extension ShardWriter {
    /// Returns a token for a fenced set. From the first token on, the shard notes changes.
    func drawToken() -> UInt64 {
        if header[Field.notesChanges] == 0 {
            raiseFloor()
            header.release(Field.notesChanges, 1)
        }
        return reader.drawLSN()
    }

    /// Notes the removal or expiry of a key. Called before it, even if the key has no entry.
    func noteRemoval(of key: Key) {
        if header[Field.notesChanges] != 0 { note(key.hashBits, reader.drawLSN()) }
    }

    /// Notes the invalidation or expiry of a tag under `lsn`. Called before it.
    func noteChange(ofTag tag: UInt64, _ lsn: UInt64) {
        header.release(Field.lastTagChange, lsn)
        if header[Field.notesChanges] != 0 { note(UInt32(truncatingIfNeeded: tag), lsn) }
    }

    /// Notes that an entry set under `lsn` is unlinked by the shard itself. Called before it. (0: damage made the LSN
    /// unreadable.)
    @inline(__always)
    func noteLeaving(_ slot: Slot, setAs lsn: UInt64) {
        if header[Field.notesChanges] != 0 { noteChange(of: slot, lsn) }
    }
    @inline(never)
    private func noteChange(of slot: Slot, _ lsn: UInt64) {
        let word0 = slot.entry
        note(table.hashBits(at: table.position(of: slot), word0, table.shape), lsn == 0 ? reader.drawLSN() : lsn)
    }

    func noteDamage(of slot: Slot) { noteLeaving(slot, setAs: 0) }

    private func note(_ hash: UInt32, _ number: UInt64) {
        let now = highestLSN
        // (An LSN that damage has changed counts as no later than now.)
        fences.note(hash, min(number, now), now: now)
    }

    /// Discards the fences of a rebuilt index: the table's content may belong to another index.
    func clearFences() {
        raiseFloor()
        fences.removeAll()
    }

    /// Refuses all tokens drawn so far. Called before the index discards changes of keys and tags.
    func raiseFloor() { header.release(Field.fenceFloor, reader.drawLSN()) }

    private var highestLSN: UInt64 { engine.pointee.head.acquire(IndexHead.lsn) }

    /// Returns why a fenced set is refused; nil if, since the token was drawn, the key was not set, removed or expired,
    /// and no tag invalidated or expired.
    @inline(never)
    func refusal(_ key: Key, since token: UInt64, _ tagged: UnsafePointer<UInt64>?, _ tagCount: Int) -> FenceTable
        .Refusal?
    {
        let now = highestLSN
        // (A token from the future belongs to an earlier index.)
        guard token > header[Field.fenceFloor], token <= now, header[Field.notesChanges] != 0 else { return .floor }
        if let slot = reader.lookup(key) {
            if reader.entry(slot, now: 0).map({ $0.value.header.lsn >= token }) ?? true { return .key }
        } else if reader.hasUnreadable(key) {
            return .key
        }
        let last = fences.lastChange(of: key.hashBits, now: now)
        if last.own >= token { return .key }
        var isShared = last.ofLine >= token
        for i in 0..<tagCount {
            guard let tagged else { break }
            let last = fences.lastChange(of: UInt32(truncatingIfNeeded: tagged[i]), now: now)
            if last.own >= token { return .tag }
            isShared = isShared || last.ofLine >= token
        }
        return isShared ? .line : nil
    }

    /// Whether the key is unchanged, and, as the tags of the value to set are unknown, no tag at all was invalidated or
    /// expired.
    func isUnchanged(_ key: Key, since token: UInt64) -> Bool {
        header[Field.lastTagChange] < token && refusal(key, since: token, nil, 0) == nil
    }

    func count(_ refusal: FenceTable.Refusal) { header[Field.refusals[refusal.rawValue]] &+= 1 }
}
