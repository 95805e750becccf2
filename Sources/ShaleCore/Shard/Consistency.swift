import CShalePlatform

/// Checks an index before it is trusted. The index has no checksums, so the sole writer checks once that every length,
/// count and position of a shard header that is later used unchecked is possible, and that they agree with each other,
/// with the files' sizes and with the synced position. If they do not, the index is rebuilt from the log.
///
/// The check takes about two microseconds per shard, as it omits the tables: a slot is checked each time that it is
/// used.
extension ShardReader {
    /// Whether the shard header is consistent. `isClean`: a close left the index unchanged, so the log ends where it
    /// was synced.
    func isConsistent(dataSize: Int, indexSize: Int, isClean: Bool) -> Bool {
        // No count that later additions could make overflow.
        for offset in stride(from: Field.state.offset, through: Field.unsure.offset, by: 8)
        where header[ShardHeader.Word(offset)] >= (isNumber(offset) ? Numbers.end : 1 << 56) { return false }
        let isQuiet = header[Field.state] == ShardHeader.State.quiet
        return ShardHeader.State.isOne(header[Field.state])
            && !(isQuiet && header[Field.epoch] & 1 != 0)
            && isTableConsistent(indexSize, isQuiet) && isLogConsistent(dataSize: dataSize, isQuiet: isQuiet)
            && !(isQuiet && log.count > 0 && !agreesWithSynced(isClean))
            && (!isQuiet || isAtRest)
    }

    private func isNumber(_ offset: Int) -> Bool {
        typealias Log = LogWords.Field
        switch offset - LogWords.offset {
        case Log.headNumber.offset, Log.tailNumber.offset, Log.provenTail.offset: return true
        default: return offset == Field.residual.offset || offset == Field.lastNumber.offset
        }
    }

    private var isAtRest: Bool {
        header[Field.transaction] | header[Field.relocation] == 0
            && header[Field.copiedSlot] | header[Field.moveCount] == 0
            && header[Field.pending] & ~ShardHeader.Pending.tail == 0
    }

    private func isTableConsistent(_ indexSize: Int, _ isQuiet: Bool) -> Bool {
        let shape = table.shape, pages = header[Field.tablePages]
        guard TableShape.Mode.isOne(shape.mode), shape.buckets >= Table.leastBuckets,
            shape.mode == TableShape.Mode.steady || shape.nextBuckets >= Table.leastBuckets,
            shape.frontier <= shape.buckets,
            shape.extent <= geometry.maxBuckets - Table.spill,
            pages >= geometry.shardIndexBytes(buckets: shape.extent),
            pages <= geometry.shardIndexBytes(buckets: geometry.maxBuckets),
            geometry.indexEnd(number, buckets: shape.extent) <= indexSize
        else { return false }
        // (After a shrinking pass there may be more items than the smaller table wants.)
        let items = max(header[Field.heapCounts[0]], header[Field.heapCounts[1]])
        guard items <= Victims.capacity(buckets: geometry.maxBuckets),
            header.at + (indexSize - geometry.region(number)) > victims.item(1, items), header[Field.heapCurrent] <= 1,
            header[Field.sweepState] <= ShardHeader.SweepState.complete,
            header[Field.sweepAt] <= geometry.maxBuckets + Table.spill,
            header[Field.used] <= shape.positions.count * Table.bucketSlots,
            tags.isConsistent, tags.generations.mostChunks <= Table.chunks(inBytes: pages - geometry.region)
        else { return false }
        if !isQuiet { return true }
        return header[Field.entries] <= header[Field.used] && header[Field.pinned] <= header[Field.entries]
            && header[Field.pinnedBytes] <= header[Field.live]
    }

    func isLogConsistent(dataSize: Int, isQuiet: Bool) -> Bool {
        let framesPerShard = geometry.framesPerShard, count = log.count, free = header[Field.freeCount]
        guard log.first < framesPerShard, count <= framesPerShard, free <= framesPerShard,
            log.headFrame < framesPerShard,
            log.isOffset(log.headOffset), log.isOffset(log.tailOffset),
            log.provenTail <= log.tailNumber,
            log.tailNumber <= log.nextNumber
        else { return false }
        var allocated = 0, inLog = 0, isFree = 0
        for frame in 0..<framesPerShard {
            let state = (header.at + geometry.states + frame).load(as: UInt8.self),
                number = log.numberWord(frame).u64(0)
            if number != 0 || state == Log.FrameState.free.rawValue || state == Log.FrameState.inLog.rawValue {
                guard log.offset(ofFrame: frame) + log.segmentSize <= dataSize else { return false }
            }
            guard state <= Log.FrameState.preparing.rawValue, number < Numbers.end,
                number == 0 || state != Log.FrameState.absent.rawValue
            else { return false }
            if state != Log.FrameState.absent.rawValue { allocated += 1 }
            if state == Log.FrameState.inLog.rawValue { inLog += 1 }
            if state == Log.FrameState.free.rawValue { isFree += 1 }
        }
        if !isQuiet { return true }
        guard allocated == header[Field.allocated], inLog == count, isFree == free,
            header[Field.live] <= count * log.segmentSize,
            header[Field.lastNumber] >= log.headNumber
        else { return false }
        var previous: UInt64 = 0
        for i in -free..<count {
            let frame = log.queued(i), segment = log.numberWord(frame).u64(0)
            guard log.state(ofFrame: frame) == (i < 0 ? .free : .inLog),
                segment > previous || i < 0 && segment == 0 && previous == 0
            else { return false }
            previous = segment
        }
        return count == 0
            || log.queued(count - 1) == log.headFrame && previous == log.headNumber
                && log.numberWord(log.queued(0)).u64(0) == log.tailNumber
    }

    /// Whether the log reaches at least as far as it was synced; after a clean close, exactly as far.
    private func agreesWithSynced(_ isClean: Bool) -> Bool {
        let synced = SyncedPosition.read(engine, shard: number)
        let segment = log.headNumber, offset = log.headOffset
        if synced.number == .max { return true }
        if log.tail.isBefore(SyncedPosition.tail(engine, shard: number)) { return false }
        return isClean ? synced.number == segment && synced.offset == offset : !synced.covers(segment, offset)
    }
}
