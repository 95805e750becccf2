import CShalePlatform

/// The log's segments, one after the other, and where the log ends.
extension Replay {
    /// All but the parts of large values, and where the log ends.
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
            // Nothing that verifies is behind this offset: writing goes on here.
            log.headOffset = end.isMarked ? log.segmentSize : end.offset
            if !end.isMarked, synced.covers(segment, end.offset) { abandonLog(shard) }
        }
        // The newest segment that was synced is not there at all.
        if synced.number != .max, synced.number > log.headNumber { abandonLog(shard) }
        raiseLSN(to: highestLSN)
    }

    /// The highest number in the log. (Its head begins with the counter of that moment, above all that comes before.)
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

    /// The parts of values that are current. Those of values that were replaced since are in the log as well, and
    /// would take the table's room, and with it entries, until the cleaner comes by.
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

    /// Records that were verified and wait for their slots' cache lines, so that these waits overlap.
    private struct Lookahead {
        static let most = 16

        /// Room for `most`.
        let ring: UnsafeMutableBufferPointer<SoundRecord>
        private var first = 0, count = 0

        init(_ ring: UnsafeMutableBufferPointer<SoundRecord>) { self.ring = ring }

        mutating func add(_ record: SoundRecord) {
            ring.initializeElement(at: (first + count) & (Lookahead.most - 1), to: record)
            count += 1
        }
        /// The oldest, where there are more than so many.
        mutating func next(leaving left: Int) -> SoundRecord? {
            guard count > left else { return nil }
            defer {
                first = (first + 1) & (Lookahead.most - 1)
                count -= 1
            }
            return ring[first]
        }
    }

    /// What may have to come from the disk, and would come page by page.
    private func fetchSegment(_ frame: Int) {
        if engine.pointee.geometry.hasSmallPages {
            shim_sys_will_need(engine.pointee.data + log.offset(ofFrame: frame), log.segmentSize)
        }
    }

    private func lsnAtBegin(ofFrame frame: Int) -> UInt64 {
        SegmentHeader(
            at: engine.pointee.data + log.offset(ofFrame: frame), shard: reader.number, frame: frame, secret: secret)?
            .lsn ?? 0
    }

    /// Returns where the segment's records end, and whether that is marked.
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

    // MARK: What cannot be read

    /// Nothing verifies from an offset to the next record, or to the segment's end.
    private func stepOver(_ frame: Int, _ offset: Int, _ next: Int?, _ shard: borrowing ShardWriter) {
        let segment = log.numberWord(frame).u64(0)
        header[Field.corrupt] += 1
        // No record was ever in less than a header. (A power cut may leave an older record in front of a newer
        // one, which is a little further than it reaches; no gap record fits there.)
        let mayBeLoss = next.map { $0 - offset >= RecordHeader.size } ?? true
        if mayBeLoss, synced.covers(segment, offset) {
            forgetOlder(shard)
        } else {
            // A later sync will cover this place, and must not make it look like a loss of what was synced.
            fill(frame, offset, next ?? log.segmentSize, next == nil ? .end : .gap)
        }
    }

    /// Covers bytes that nothing can be read from with a record that says so.
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

    /// A segment is missing before this one. What it held may have superseded anything older, if it was synced.
    private func closeHole(before frame: Int, _ previous: UInt64, _ shard: borrowing ShardWriter) throws(Failure) {
        let p = engine.pointee.data + log.offset(ofFrame: frame)
        guard let found = SegmentHeader(at: p, shard: reader.number, frame: frame, secret: secret),
            found.previous != previous
        else { return }
        if synced.number > previous {
            forgetOlder(shard)
        } else if !engine.pointee.isReadOnly {
            try SegmentHeader(
                shard: reader.number, frame: frame, number: found.number, previous: previous, tail: found.tail,
                lsn: found.lsn
            )
            .replace(at: log.offset(ofFrame: frame), engine.pointee.files, secret: secret)
        }
    }

    /// The end of what was synced cannot be read, and may have superseded all that is left. The log begins
    /// anew: were it continued, the next rebuild would drop what is written from here on as well.
    private func abandonLog(_ shard: borrowing ShardWriter) {
        header[Field.corrupt] += 1
        forgetOlder(shard)
        if synced.number != .max {
            header[Field.lastNumber] = max(header[Field.lastNumber], synced.number)
        }
        while log.count > 0 { log.releaseTail() }
        log.setTail(LogPosition(number: log.nextNumber))
        log.headOffset = log.segmentSize
    }

    /// What was unreadable may have superseded anything older.
    private func forgetOlder(_ shard: borrowing ShardWriter) {
        let table = self.table
        for position in table.positions { table.bucket(position).zero(Table.bucketSize) }
        shard.resetSums()
        header[Field.ghost] = log.headNumber
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
