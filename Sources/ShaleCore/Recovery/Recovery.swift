import CShalePlatform

/// Recovers a shard, in the next call that locks it after its writer was killed: undoes the open transaction or lets it
/// stand, ends moves within the table, and finishes operations on the whole shard. Reads only one record's head of the
/// log, and touches 20 KiB at most. Readers go on. It may itself be killed anywhere: all steps can be repeated. The
/// victims' heaps and a sweep's state are discarded; the stamps, and so the order of use, are in the slots.
struct Recovery: ShardParts {
    let log: Log

    init(_ shard: borrowing ShardWriter) { log = shard.log }

    /// Throws `rebuildFirst` if the index is damaged: no writer leaves such words.
    @inline(never)
    func run(_ shard: borrowing ShardWriter) throws(Failure) {
        #if SHALE_FAULTS
        let outer = shim_part(("recovery" as StaticString).utf8Start)
        defer { shim_leave(outer) }
        #endif
        guard isRecoverable else { throw .rebuildFirst }
        table.endMoves()
        if header[Field.transaction] != 0 {
            if !isCommitted { undo() }
            header.release(Field.transaction, 0)
        }
        endCopy()
        guard isLogAgreed else { throw .rebuildFirst }
        discardUnfinishedRecord()
        header.release(Field.entriesHint, header[Field.entries.word])
        victims.reset()
        // (Its sums may contain half of a change.)
        if shard.isAuditing { shard.beginAudit() }
        try finishPending(shard)
        header.endChange()
    }

    private var isCommitted: Bool {
        let commitAt = header[Field.commitAt]
        return commitAt != 0 && header.at.u64(commitAt) == header[Field.commitValue]
    }

    /// Restores the second word, but keeps the stamp of a reader that has used the entry meanwhile.
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
                // A head that was never published: a rebuild would trust its header. The frame holds no segment.
                SegmentHeader.destroy(at: engine.pointee.data + log.offset(ofFrame: frame))
                log.numberWord(frame).release(0, 0)
            }
            log.setState(ofFrame: frame, Log.FrameState(rawValue: UInt8(truncatingIfNeeded: noted >> 32)) ?? .absent)
        }
        shim_copy(at + ShardHeader.saved, at + ShardHeader.savepoint, ShardHeader.savedSize)
        shim_fence_release()
    }

    /// Ends a copy: if its slot already points to it, it is part of the log.
    private func endCopy() {
        let slot = header[Field.copiedSlot]
        if slot == 0 { return }
        let head = log.location(frame: log.headFrame, offset: log.headOffset)
        if Slot(header.at + slot).entry.location == head {
            log.releaseHeadOffset(header[Field.copyEnd])
        }
        header.release(Field.copiedSlot, 0)
    }

    /// Discards a record beyond the head's end, sealed by a call that never returned. Readers cannot see it, but a
    /// rebuild would.
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
        if pending & ShardHeader.Pending.renumber != 0 { Renumber(shard).run() }
    }

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
        // (A table that has shrunk since may have left the last transaction's slots beyond its end.)
        let isOpen = header[Field.transaction] != 0
        return (!isOpen || isOffset(Field.commitAt) && isOffset(Field.stampedSlot)) && isOffset(Field.copiedSlot)
            && header[Field.copyEnd] >= 0 && header[Field.copyEnd] <= log.segmentSize && header[Field.copyEnd] & 7 == 0
            && isLogInside(ShardHeader.saved) && isLogInside(ShardHeader.savepoint)
            && isFrameRecoverable
    }

    /// Whether the frame of an unpublished head lies inside the file, as a free frame does.
    private var isFrameRecoverable: Bool {
        let noted = header[Field.frame], frame = Int(noted & 0xFFFF_FFFF)
        guard frame < geometry.framesPerShard else { return false }
        let state = log.state(ofFrame: frame)
        return noted >> 40 & 1 == 0 || state == .free || state == .inLog
    }

    /// The restored words may be damaged too, and the log is written next. (Without the descriptor, which the program
    /// may close, the file's size is unknown; the index was consistent when attached.)
    private var isLogAgreed: Bool {
        guard let size = try? engine.pointee.files.dataSize() else { return true }
        return reader.isLogConsistent(dataSize: size, isQuiet: true)
    }
}

extension Failure {
    /// Not an error: the shard has to be rebuilt first.
    static var rebuildFirst: Failure { Failure(status: .end, errno: 1) }
    var isRebuildFirst: Bool { status == .end && errno == 1 }
}
