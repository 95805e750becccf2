import CShalePlatform

/// What whoever locks a shard does whose writer was killed: it takes the transaction that was under way back, or
/// lets it stand, ends moves within the table, and finishes what concerns the whole shard. The log is not read, but
/// for one record's head. Some 20 KiB are touched at most; readers go on, and it may itself be killed anywhere: all
/// that it does can be done again.
///
/// What the victims' heaps and a sweep held is forgotten; stamps, and so the order of use, are in the slots.
struct Recovery: ShardParts {
    let log: Log

    init(_ shard: borrowing ShardWriter) { log = shard.log }

    @inline(never)
    func run(_ shard: borrowing ShardWriter) throws(Failure) {
        #if SHALE_FAULTS
        let outer = shim_part(("recovery" as StaticString).utf8Start)
        defer { shim_leave(outer) }
        #endif
        // (Words that no writer leaves: the index is damaged.)
        guard isRecoverable else { return try rebuild(shard) }
        table.endMoves()
        if header[Field.transaction] != 0 {
            if !isCommitted { undo() }
            header.release(Field.transaction, 0)
        }
        endCopy()
        guard isLogAgreed else { return try rebuild(shard) }
        discardUnfinishedRecord()
        header.release(Field.entriesHint, header[Field.entries.word])
        victims.reset()
        // (What it has counted may be half of a change.)
        if shard.isAuditing { shard.beginAudit() }
        try finishPending(shard)
        header.endChange()
    }

    private func rebuild(_ shard: borrowing ShardWriter) throws(Failure) {
        try Rebuild(shard, at: engine.pointee.clock.now48).run(waits: false, shard)
    }

    private var isCommitted: Bool {
        let commitAt = header[Field.commitAt]
        return commitAt != 0 && header.at.u64(commitAt) == header[Field.commitValue]
    }

    /// As it was; where a reader has used the entry meanwhile, with that stamp.
    private func restoreSecondWord(_ slot: Slot) {
        let new = SlotUse(header[Field.stampedNew]), old = SlotUse(header[Field.stampedOld])
        while true {
            let found = slot.acquiredUse
            let used = SlotUse(stamp: found.stamp, hits: found.hits, expiry: old.expiry)
            if slot.replace(found, with: found == new ? old : used) { return }
        }
    }

    private func undo() {
        let at = header.at
        if header[Field.stampedSlot] != 0 {
            restoreSecondWord(Slot(at + header[Field.stampedSlot]))
        }
        let noted = header[Field.frame]
        if noted != 0 {
            let frame = Int(noted & 0xFFFF_FFFF)
            if noted >> 40 & 1 != 0 {
                // A head that never was: a rebuild would take its header for one. The frame holds no segment any more.
                SegmentHeader.destroy(at: engine.pointee.data + log.offset(ofFrame: frame))
                log.numberWord(frame).release(0, 0)
            }
            log.setState(ofFrame: frame, Log.FrameState(rawValue: UInt8(truncatingIfNeeded: noted >> 32)) ?? .absent)
        }
        shim_copy(at + ShardHeader.saved, at + ShardHeader.savepoint, ShardHeader.savedSize)
        shim_fence_release()
    }

    /// A copy that its slot points to already is part of the log.
    private func endCopy() {
        let slot = header[Field.copiedSlot]
        if slot == 0 { return }
        let head = log.location(frame: log.headFrame, offset: log.headOffset)
        if Slot(header.at + slot).entry.location == head {
            log.releaseHeadOffset(header[Field.copyEnd])
        }
        header.release(Field.copiedSlot, 0)
    }

    /// A record behind the head's end was sealed by a call that never returned, and nothing shows it to readers. Left
    /// there, a rebuild would.
    private func discardUnfinishedRecord() {
        guard log.count > 0, log.headOffset <= log.segmentSize - RecordHeader.size else {
            return
        }
        log.address(log.location(frame: log.headFrame, offset: log.headOffset)).release(16, 0)
    }

    private func finishPending(_ shard: borrowing ShardWriter) throws(Failure) {
        let pending = header[Field.pending]
        if pending & ShardHeader.Pending.clear != 0 { shard.finishClear() }
        // (Parts in other shards are left to the cleaner.)
        if pending & ShardHeader.Pending.clearInPlace != 0 { try shard.clear() }
        if pending & ShardHeader.Pending.rebase != 0 { Rebase(shard).run() }
    }

    /// Whether all that recovery goes by lies inside the shard.
    private var isRecoverable: Bool {
        let framesPerShard = geometry.framesPerShard
        func isOffset(_ field: ShardHeader.Count) -> Bool {
            let offset = header[field]
            return offset & 7 == 0 && offset >= 0
                && (offset <= geometry.region - 16
                    || offset < geometry.indexSize
                        && (table.isSlot(header.at + offset) || tags.isCell(header.at + offset)))
        }
        func isLogInside(_ saved: Int) -> Bool {
            LogWords(at: header.at + saved + LogWords.offset - ShardHeader.saved)
                .isInside(framesPerShard: framesPerShard, segmentSize: log.segmentSize)
        }
        // (A table that has become smaller since the last transaction may have had its slots beyond.)
        let isOpen = header[Field.transaction] != 0
        return (!isOpen || isOffset(Field.commitAt) && isOffset(Field.stampedSlot)) && isOffset(Field.copiedSlot)
            && header[Field.copyEnd] >= 0 && header[Field.copyEnd] <= log.segmentSize && header[Field.copyEnd] & 7 == 0
            && isLogInside(ShardHeader.saved) && isLogInside(ShardHeader.savepoint)
            && isFrameRecoverable
    }

    /// A head that never was took a free frame, which lies inside the file.
    private var isFrameRecoverable: Bool {
        let noted = header[Field.frame], frame = Int(noted & 0xFFFF_FFFF)
        guard frame < geometry.framesPerShard else { return false }
        let state = log.state(ofFrame: frame)
        return noted >> 40 & 1 == 0 || state == .free || state == .inLog
    }

    /// What was put back may be damaged too, and the log is written to next. (A program that has closed the descriptor
    /// has nobody to ask for the file's size, and an index that was sound when it was attached.)
    private var isLogAgreed: Bool {
        guard let size = try? engine.pointee.files.dataSize() else { return true }
        return reader.isLogConsistent(dataSize: size, isQuiet: true)
    }
}
