import CShalePlatform

extension Replay {
    /// Replays all but the parts of large values, and finds the log's end.
    mutating func run(afterPowerLoss: Bool, _ shard: borrowing ShardWriter) throws(Failure) {
        synced = SyncedPosition.read(engine, shard: reader.number)
        // Within one boot no page is lost: a position that does not verify was cut off by a kill.
        if !afterPowerLoss, synced.number == .max { synced = SyncedPosition(number: 0, offset: 0) }
        let count = log.count
        var previous: UInt64 = 0
        for i in 0..<count {
            let frame = log.queued(i), segment = log.numberWord(frame).u64(0), isHead = i == count - 1
            if i == 0 { fetchSegment(frame) }
            if !isHead { fetchSegment(log.queued(i + 1)) }
            if i > 0 { try closeHole(before: frame, previous, shard) }
            previous = segment
            highestLSN = max(highestLSN, lsnAtBegin(ofFrame: frame))
            let end = try replay(frame, from: i == 0 ? log.tailOffset : SegmentHeader.size, isHead: isHead, shard)
            guard isHead else { continue }
            // No record verifies at this offset or beyond: writing continues here.
            log.headOffset = end.isMarked ? log.segmentSize : end.offset
            if !end.isMarked, synced.covers(segment, end.offset) { abandonLog(shard) }
        }
        // The newest synced segment is missing, and no tail proves that it is dead.
        if synced.number != .max, synced.number > log.headNumber,
            SyncedPosition.tail(engine, shard: reader.number).number <= synced.number
        {
            abandonLog(shard)
        }
        raiseLSN(to: highestLSN)
    }

    /// The highest LSN in the log. (The head's header has the counter at its creation, above all earlier LSNs.)
    func highestLSNOfHead() -> UInt64 {
        if log.count == 0 { return 0 }
        let frame = log.headFrame
        fetchSegment(frame)
        var highest = lsnAtBegin(ofFrame: frame), offset = SegmentHeader.size
        while let record = log.nextRecord(frame: frame, from: offset), record.kind != .end {
            if record.view.header.lsn < Numbers.end { highest = max(highest, record.view.header.lsn) }
            offset = record.end
        }
        return highest
    }

    /// Replays the parts of values in the index. Those of replaced values would take room in the table until the
    /// cleaner reaches them.
    mutating func replayParts(_ shard: borrowing ShardWriter) throws(Failure) {
        let count = log.count
        for i in 0..<count {
            let frame = log.queued(i), end = i == count - 1 ? log.headOffset : log.segmentSize
            var offset = i == 0 ? log.tailOffset : SegmentHeader.size
            while offset <= end - RecordHeader.size, let record = log.nextRecord(frame: frame, from: offset),
                record.kind != .end
            {
                if let key = record.view.partKey, reader.isOwned(key) {
                    try apply(record, shard)
                }
                offset = record.end
            }
        }
    }

    // MARK: A segment

    /// Verified records that wait for their slots' cache lines, so that these waits overlap.
    private struct Lookahead {
        static let most = 16

        let ring: UnsafeMutableBufferPointer<SoundRecord>
        private var first = 0, count = 0

        init(_ ring: UnsafeMutableBufferPointer<SoundRecord>) { self.ring = ring }

        mutating func add(_ record: SoundRecord) {
            ring.initializeElement(at: (first + count) & (Lookahead.most - 1), to: record)
            count += 1
        }
        mutating func next(leaving left: Int) -> SoundRecord? {
            guard count > left else { return nil }
            defer {
                first = (first + 1) & (Lookahead.most - 1)
                count -= 1
            }
            return ring[first]
        }
    }

    /// Prefetches a segment, which may have to come from disk, page by page otherwise.
    private func fetchSegment(_ frame: Int) {
        shim_sys_will_need(engine.pointee.data + log.offset(ofFrame: frame), log.segmentSize)
    }

    private func lsnAtBegin(ofFrame frame: Int) -> UInt64 {
        SegmentHeader(
            at: engine.pointee.data + log.offset(ofFrame: frame), shard: reader.number, frame: frame, secret: secret)?
            .lsn ?? 0
    }

    /// Returns where the segment's records end, and whether an end record marks that.
    private mutating func replay(_ frame: Int, from start: Int, isHead: Bool, _ shard: borrowing ShardWriter)
        throws(Failure) -> (
            offset: Int, isMarked: Bool
        )
    {
        try withUnsafeTemporaryAllocation(of: SoundRecord.self, capacity: Lookahead.most) { ring throws(Failure) in
            var ahead = Lookahead(ring)
            let end = try walk(frame, from: start, isHead: isHead, &ahead, shard)
            try apply(&ahead, leaving: 0, shard)
            return end
        }
    }

    private mutating func walk(
        _ frame: Int, from start: Int, isHead: Bool, _ ahead: inout Lookahead, _ shard: borrowing ShardWriter
    ) throws(Failure)
        -> (offset: Int, isMarked: Bool)
    {
        var offset = start
        while offset <= log.segmentSize - RecordHeader.size {
            if let record = log.soundRecord(frame: frame, offset: offset), record.view.header.lsn < Numbers.end {
                note(record)
                if record.kind == .end { return (offset, true) }
                if record.kind != .part, record.kind != .gap {
                    shim_prefetch(table.home(of: UInt32(truncatingIfNeeded: record.keyHash)))
                    ahead.add(record)
                    try apply(&ahead, leaving: Lookahead.most - 1, shard)
                }
                offset = record.end
                continue
            }
            let next = log.nextRecord(frame: frame, from: offset + 8)?.offset
            if next == nil, isHead { break }
            try apply(&ahead, leaving: 0, shard)
            stepOver(frame, offset, next, shard)
            guard let next else { return (offset, true) }
            offset = next
        }
        return (offset, false)
    }

    private mutating func note(_ record: SoundRecord) {
        let header = record.view.header
        highestLSN = max(highestLSN, header.lsn)
        if header.codec == RecordHeader.Codec.dictionary {
            engine.pointee.dictionaries.frames.reserve(header.dictionary)
        }
        guard record.kind == .part else { return }
        hasParts = true
        if geometry.shards > 1, let key = record.view.partKey, key.blob & PartKey.isInOneShard == 0 {
            hasSpreadParts = true
        }
    }

    // MARK: Damage

    /// Skips bytes in which no record verifies, up to the next record or the segment's end.
    private func stepOver(_ frame: Int, _ offset: Int, _ next: Int?, _ shard: borrowing ShardWriter) {
        let segment = log.numberWord(frame).u64(0)
        header[Field.corrupt] += 1
        // A record is never smaller than a header. (After a power failure, an older record may precede a newer one that
        // begins a little beyond its end; no gap record fits in between.)
        let mayHideRecord = next.map { $0 - offset >= RecordHeader.size } ?? true
        if mayHideRecord, synced.covers(segment, offset) {
            clearIndex(shard)
        } else {
            // A later sync will cover this place, and must not make it look like a loss of synced records.
            fill(frame, offset, next ?? log.segmentSize, next == nil ? .end : .gap)
        }
    }

    /// Covers unreadable bytes with a gap or end record.
    private func fill(_ frame: Int, _ from: Int, _ to: Int, _ kind: RecordHeader.Kind) {
        guard !engine.pointee.isReadOnly, to - from >= RecordHeader.size else { return }
        let length = kind == .end ? 0 : to - from - RecordHeader.size
        var record = RecordHeader(kind: kind, keyLength: 0, storedLength: length, rawLength: length)
        let p = log.address(log.location(frame: frame, offset: from))
        record.writeUnsealed(to: p)
        let here = RecordAddress(
            number: log.numberWord(frame).u64(0), offset: UInt64(log.offset(ofFrame: frame) + from))
        record.setHeadCheck(record.computeHeadCheck(at: p, keyHash: 0, address: here, secret: secret))
        record.seal(at: p)
    }

    /// Handles a missing segment before this one. If it was synced, its records may have superseded any older ones.
    private func closeHole(before frame: Int, _ previous: UInt64, _ shard: borrowing ShardWriter) throws(Failure) {
        let p = engine.pointee.data + log.offset(ofFrame: frame)
        guard let found = SegmentHeader(at: p, shard: reader.number, frame: frame, secret: secret),
            found.previous != previous
        else { return }
        if synced.number > previous {
            clearIndex(shard)
        } else if !engine.pointee.isReadOnly {
            try SegmentHeader(
                shard: reader.number, frame: frame, number: found.number, previous: previous, tail: found.tail,
                lsn: found.lsn
            )
            .replace(at: log.offset(ofFrame: frame), engine.pointee.files, secret: secret)
        }
    }

    /// Abandons a log whose synced end cannot be read: that may have superseded all the rest. Were the log continued,
    /// the next rebuild would discard all later records as well.
    private func abandonLog(_ shard: borrowing ShardWriter) {
        header[Field.corrupt] += 1
        clearIndex(shard)
        if synced.number != .max {
            header[Field.lastNumber] = max(header[Field.lastNumber], synced.number)
        }
        while log.count > 0 { log.releaseTail() }
        log.setTail(LogPosition(number: log.nextNumber))
        log.headOffset = log.segmentSize
    }

    /// Empties the index: unreadable records may have superseded any older ones.
    private func clearIndex(_ shard: borrowing ShardWriter) {
        let table = self.table
        for position in table.positions { table.bucket(position).zero(Table.bucketSize) }
        shard.resetSums()
        header[Field.residual] = log.headNumber
    }

    private func raiseLSN(to highest: UInt64) {
        let word = engine.pointee.head.address(IndexHead.lsn)
        while true {
            let now = word.u64(0)
            if now >= highest || shim_cas64(word, now, highest) { return }
        }
    }

    private mutating func apply(_ ahead: inout Lookahead, leaving left: Int, _ shard: borrowing ShardWriter)
        throws(Failure)
    {
        while let record = ahead.next(leaving: left) { try apply(record, shard) }
    }
}
