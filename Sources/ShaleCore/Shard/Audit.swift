import CShalePlatform

/// An audit recounts the sums from the slots while the shard stays in use: after an entry was lost whose sizes cannot
/// be read any more, and when the longest pinned record may have been removed.
///
/// It runs in the order of hash bits, a few homes with each change of the shard, and keeps sums of the entries that it
/// has passed. A change of such an entry changes these sums too. At its end they become the shard's sums. After a kill
/// it begins again.
extension ShardWriter {
    /// For an empty table.
    func resetSums() {
        let sums = Sums.running
        sums.forEach(with: sums) { field, _ in header[field] = 0 }
        header.release(Field.entriesHint, 0)
        header.release(Field.auditAt, 0)
        header[Field.unsure] = 0
    }

    @inline(never)
    func beginAudit() {
        header.release(Field.auditAt, 0)
        let sums = Sums.audited
        sums.forEach(with: sums) { field, _ in header[field] = 0 }
        header.release(Field.auditAt, ShardHeader.auditBegins)
    }

    /// Marks the sums as in doubt until an audit that begins now has ended.
    func doubtSums() {
        header[Field.unsure] = ShardHeader.Unsure.damaged
        beginAudit()
    }

    @inline(never)
    func continueAudit() {
        let from = header[Field.auditAt] &- ShardHeader.auditBegins
        guard from < Table.allHashBits else { return endAudit() }
        // (If only the longest pinned record is in doubt, other entries are not read.)
        let isSure = header[Field.unsure] == 0
        var next = from, homes = 0
        repeat {
            next =
                visit(from: next) { slot in
                    let word0 = slot.entry
                    spend(Share.lookup)
                    if isSure, !word0.isPinned { return }
                    addToAudit(reader.measure(word0.location), sign: 1)
                    countInAudit(word0, sign: 1)
                }.next
            homes += 1
        } while homes < Sizes.homesAudited && next < Table.allHashBits
        header.release(Field.auditAt, next + ShardHeader.auditBegins)
        if next == Table.allHashBits { endAudit() }
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

    @inline(never)
    func finishAudit() throws(Failure) {
        // (Each change of the shard continues the audit, and may have ended it since the call paused.)
        if !isAuditing, !change.progress.awaitsAudit { beginAudit() }
        change.progress.awaitsAudit = true
        while isAuditing {
            continueAudit()
            if isAuditing { try rest() }
        }
        change.progress.awaitsAudit = false
    }
}
