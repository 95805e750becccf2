import CShalePlatform

/// An audit counts the sums anew from the slots, beside what goes on: where an entry was lost whose sizes cannot be read
/// any more, and where the longest pinned record may have gone.
///
/// It goes by hash fractions, a home with each change of the shard, and keeps sums of the entries that it has passed.
/// What changes one of these meanwhile changes these sums too. Where it ends, they are the shard's. After a kill it begins
/// again.
extension ShardWriter {
    /// Of a table that is empty.
    func resetSums() {
        let sums = Sums.running
        sums.forEach(with: sums) { field, _ in header[field] = 0 }
        header.release(Field.entriesHint, 0)
        header.release(Field.auditAt, 0)
        header[Field.unsure] = 0
    }

    /// Begins, also anew.
    @inline(never)
    func beginAudit() {
        header.release(Field.auditAt, 0)
        let sums = Sums.audited
        sums.forEach(with: sums) { field, _ in header[field] = 0 }
        header.release(Field.auditAt, ShardHeader.auditBegins)
    }

    /// The sums are not sure until an audit has ended that begins here.
    func doubtSums() {
        header[Field.unsure] = ShardHeader.Unsure.damaged
        beginAudit()
    }

    /// A home more.
    @inline(never)
    func continueAudit() {
        let from = header[Field.auditAt] &- ShardHeader.auditBegins
        guard from < Table.allFractions else { return endAudit() }
        // (Where only the longest pinned record is in question, what others take is not read.)
        let isSure = header[Field.unsure] == 0
        let next = visit(from: from) { slot in
            let word0 = slot.entry
            spend(Share.lookup)
            if isSure, !word0.isPinned { return }
            addToAudit(reader.measure(word0.location), sign: 1)
            countInAudit(word0, sign: 1)
        }.next
        header.release(Field.auditAt, next + ShardHeader.auditBegins)
        if next == Table.allFractions { endAudit() }
    }

    private func endAudit() {
        if header[Field.unsure] != 0 {
            Sums.running.forEach(with: .audited) { header[$0] = header[$1] }
            header.release(Field.entriesHint, UInt64(header[Field.entries]))
        } else {
            let (sums, audited) = (Sums.running, Sums.audited)
            header[sums.pinned] = header[audited.pinned]
            header[sums.pinnedBytes] = header[audited.pinnedBytes]
            header[sums.pinnedMost] = header[audited.pinnedMost]
        }
        header[Field.unsure] = 0
        header.release(Field.auditAt, 0)
    }

    /// To its end.
    @inline(never)
    func finishAudit() throws(Failure) {
        // (Each change of the shard goes on with it, and may have ended it since the call paused.)
        if !isAuditing, !change.progress.awaitsAudit { beginAudit() }
        change.progress.awaitsAudit = true
        while isAuditing {
            continueAudit()
            if isAuditing { try rest() }
        }
        change.progress.awaitsAudit = false
    }
}
