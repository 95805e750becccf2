import CShalePlatform

/// Writes to the log: records at its head, and the begin and end of segments.
extension Log {
    /// Ends the head and begins a segment. `isNewTail`: the log starts there, and `finishClear` frees everything older.
    func roll(isNewTail: Bool = false, overdraws: Bool = false) throws(Failure) {
        try provideFree(overdraws: overdraws)
        let frame = queued(-header[Field.freeCount]), previous = headNumber, newNumber = nextNumber
        // (Not rolled back: no two frames ever have the same number.)
        header[Field.lastNumber] = newNumber
        header.begin()
        if count > 0, headOffset <= segmentSize - RecordHeader.size {
            var end = Draft(RecordHeader(kind: .end, keyLength: 0), keyHash: 0, key: UnsafeRawPointer(header.at))
            write(&end)
        }
        let startsLog = count == 0
        if !startsLog { header[Field.usualGap] += (max(0, headRoom) - header[Field.usualGap]) / 8 }
        let newTail = isNewTail || startsLog ? LogPosition(number: newNumber, offset: SegmentHeader.size) : tail
        change(frame: frame, to: .inLog, isNewHead: true)
        // Readers that still hold the frame's old records see the number change before the bytes.
        numberWord(frame).release(0, newNumber)
        shim_fence_release()
        SegmentHeader(
            shard: number, frame: frame, number: newNumber, previous: previous, tail: newTail,
            lsn: engine.pointee.head[IndexHead.lsn]
        )
        .write(to: engine.pointee.data + offset(ofFrame: frame), secret: secret)
        setQueued(count, frame)
        header[Field.freeCount] -= 1
        count += 1
        headFrame = frame
        header[Field.begunTime] = UInt64(truncatingIfNeeded: shim_now_ms())
        headOffset = SegmentHeader.size
        if !isNewTail { provenTail = newTail.number }
        if startsLog {
            tailOffset = SegmentHeader.size
            tailNumber = newNumber
        }
        if isNewTail { header.pend(ShardHeader.Pending.clear) }
        header.commit(words.address(LogWords.Field.headNumber), newNumber)
    }

    /// Takes the tail's segment out of the log; its bytes stay readable until the frame is reused.
    func releaseTail() {
        let left = count - 1
        header.begin()
        change(frame: queued(0), to: .free)
        tailOffset = SegmentHeader.size
        first = (first + 1) % geometry.framesPerShard
        header[Field.freeCount] += 1
        tailNumber = left > 0 ? numberWord(queued(0)).u64(0) : nextNumber
        if left == 0 { headOffset = segmentSize }
        header.commit(words.address(LogWords.Field.count), UInt64(left))
    }

    /// Appends at the head, which must have room. Returns the location.
    @discardableResult
    func append(_ draft: inout Draft, lsn: UInt64) -> UInt32 {
        draft.record.lsn = lsn
        return write(&draft)
    }

    @discardableResult
    private func write(_ draft: inout Draft) -> UInt32 {
        assert(header[Field.state] != ShardHeader.State.quiet, "under the lock, within a change")
        assert(headOffset + draft.record.length <= segmentSize, "room for the record in the head")
        let at = location(frame: headFrame, offset: headOffset)
        let p = self.address(at)
        let address = RecordAddress(number: headNumber, offset: UInt64(offset(of: at)))
        var record = draft.record
        record.bodyCheck = draft.bodyHash ^ address.mix(secret: secret)
        record.writeUnsealed(to: p)
        var q = p + RecordHeader.size
        if record.keepsStale {
            q.set(0, draft.lifetime.staleWord)
            q += 8
        }
        if let tags = draft.tags {
            for i in 0..<record.tagCount { (q + i * 8).set(0, tags[i]) }
            q += record.tagCount * 8
        }
        shim_copy(q, draft.key, record.keyLength)
        q += record.keyLength
        if record.metaLength > 0 { shim_copy(q, draft.meta, record.metaLength) }
        q += record.metaLength
        if record.storedLength > 0 { shim_copy(q, draft.stored, record.storedLength) }
        record.setHeadCheck(record.computeHeadCheck(at: p, keyHash: draft.keyHash, address: address, secret: secret))
        record.seal(at: p)
        draft.record = record
        headOffset += record.length
        #if SHALE_FAULTS
        shim_count_appended(record.length)
        #endif
        return at
    }
}
