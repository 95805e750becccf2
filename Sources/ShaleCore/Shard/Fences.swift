import CShalePlatform

/// Fenced sets: a value that was loaded is stored only if nothing has happened to its key, or to its tags, since a token
/// was drawn, before the load.
///
/// A token is a number of the sequence that all changes are numbered by, drawn under the shard's lock. So a change in
/// this shard has a lower number if it was complete when the token was drawn, and a higher one if it came later.
/// Where the shard does not know what happened since, it says that something has.
extension ShardWriter {
    /// A number for a fenced set. With the first one, the shard begins to note changes.
    func drawToken() -> UInt64 {
        if header[Field.notesChanges] == 0 {
            raiseFloor()
            header.release(Field.notesChanges, 1)
        }
        return reader.drawLSN()
    }

    /// Before a key's entry is removed or expired, also where it has none.
    func noteRemoval(of key: Key) {
        if header[Field.notesChanges] != 0 { note(key.fraction, reader.drawLSN()) }
    }

    /// Before a tag is invalidated or expired under this number.
    func noteChange(ofTag tag: UInt64, _ lsn: UInt64) {
        header.release(Field.lastTagChange, lsn)
        if header[Field.notesChanges] != 0 { note(UInt32(truncatingIfNeeded: tag), lsn) }
    }

    /// Before an entry that was set under this number leaves the index by itself. (0: damage has made that unreadable.)
    @inline(__always)
    func noteLeaving(_ slot: Slot, setAs lsn: UInt64) {
        if header[Field.notesChanges] != 0 { noteChange(of: slot, lsn) }
    }
    @inline(never)
    private func noteChange(of slot: Slot, _ lsn: UInt64) {
        let word0 = slot.entry
        note(table.fraction(at: table.position(of: slot), word0, table.shape), lsn == 0 ? reader.drawLSN() : lsn)
    }

    /// Before an entry leaves the index that cannot be read.
    func noteLoss(of slot: Slot) { noteLeaving(slot, setAs: 0) }

    private func note(_ hash: UInt32, _ number: UInt64) {
        let now = highestLSN
        // (What damage has made of the number is no later than now.)
        fences.note(hash, min(number, now), now: now)
    }

    /// Of an index that was made anew: what is in the table may be another's.
    func forgetChanges() {
        raiseFloor()
        fences.removeAll()
    }

    /// Before the index forgets what happened to keys and tags.
    func raiseFloor() { header.release(Field.fenceFloor, reader.drawLSN()) }

    private var highestLSN: UInt64 { engine.pointee.head.acquire(IndexHead.lsn) }

    /// Nil where the key was not set, removed or expired, and none of the tags invalidated or expired, since the token
    /// was drawn.
    @inline(never)
    func refusal(_ key: Key, since token: UInt64, _ tagged: UnsafePointer<UInt64>?, _ tagCount: Int) -> FenceTable
        .Refusal?
    {
        let now = highestLSN
        // (A token from the future is one of an index that is gone.)
        guard token > header[Field.fenceFloor], token <= now, header[Field.notesChanges] != 0 else { return .floor }
        if let slot = reader.lookup(key) {
            if reader.entry(slot, now: 0).map({ $0.value.header.lsn >= token }) ?? true { return .key }
        } else if reader.hasUnreadable(key) {
            return .key
        }
        let last = fences.lastChange(of: key.fraction, now: now)
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

    /// The same, where the tags of what would be set are not known: none at all was invalidated or expired.
    func isUntouched(_ key: Key, since token: UInt64) -> Bool {
        header[Field.lastTagChange] < token && refusal(key, since: token, nil, 0) == nil
    }

    func count(_ refusal: FenceTable.Refusal) { header[Field.refusals[refusal.rawValue]] &+= 1 }
}
