import CShalePlatform

/// A shard's index, made anew from its log: replayed in order, which is all
/// that it takes. Recency becomes the order of writing, and entries that had
/// been evicted may come back. Removed, replaced and invalidated ones do not:
/// what removed them comes later in the log.
struct Rebuild: ShardParts {
    private typealias State = ShardHeader.State

    let log: Log
    /// Milliseconds since 1970.
    private let now: UInt64

    init(_ shard: borrowing ShardWriter, at now: UInt64) {
        log = shard.log
        self.now = now
    }

    /// Marks a shard of a new index, which nothing else sees yet, as one to be rebuilt from its log alone. Returns the
    /// highest lsn there: before anything draws numbers, they must be above those of all shards. `lead`: as in `link`.
    static func announce(_ shard: borrowing ShardWriter, fileSize: Int, lead: UInt64) throws(Failure) -> UInt64 {
        shard.header[Field.state] = State.rebuilding | State.isNew
        shard.raiseEpoch(by: 1)
        try SegmentChain(shard, afterPowerLoss: true).link(fileSize, lead: lead)
        return Replay(shard, at: 0).highestLSNOfHead()
    }

    /// What a killed writer was changing, or a new index lacks; the lock is held. `waits`: parts that may belong to
    /// values in other shards are left until all manifests are known, so that those of values that were replaced take no
    /// room; else parts in doubt are kept, and are left to the cleaner.
    @inline(never)
    func run(waits: Bool, _ shard: borrowing ShardWriter) throws(Failure) {
        #if SHALE_FAULTS
        let outer = shim_part(("rebuild" as StaticString).utf8Start)
        defer { shim_leave(outer) }
        #endif
        let state = header[Field.state]
        if state & (State.lacksParts | State.replaysParts) == State.lacksParts {
            if waits, !othersHaveManifests { return }
            header.release(Field.state, state | State.replaysParts)
            try replayParts(shard)
        } else {
            let replay = try replayAllButParts(shard)
            if waits, replay.hasSpreadParts, !othersHaveManifests {
                return header.release(Field.state, header[Field.state] | State.lacksParts)
            }
            if replay.hasParts { try replayParts(shard) }
        }
        try finish(shard)
    }

    private var othersHaveManifests: Bool {
        for i in 0..<geometry.shards where i != number {
            let header = Log(engine, i).header
            if !header.hasManifests(header.moment) { return false }
        }
        return true
    }

    private func replayAllButParts(_ shard: borrowing ShardWriter) throws(Failure) -> Replay {
        // Before anything is changed: the program may have closed the descriptor.
        let fileSize = try engine.pointee.files.dataSize()
        #if SHALE_FAULTS
        shim_tell(SHIM_REPLAYED, header.at)
        #endif
        // (Odd, and another one: the manifests of a rebuild that was interrupted go.)
        header.release(Field.epoch, (header[Field.epoch] | 1) &+ 2)
        let isNew = header[Field.state] & State.isNew
        header[Field.state] = State.rebuilding | isNew
        shim_fence()
        // What a killed writer was changing is in the log, or is not.
        for field in [
            Field.transaction, Field.copiedSlot.word, Field.relocation, Field.moveCount.word, Field.pending.word,
        ] { header[field] = 0 }
        if header[Field.tablePages] == 0 {
            header[Field.tablePages] = geometry.shardIndexBytes(buckets: Table.leastBuckets)
        }
        shard.resetIndex()
        useTimes.removeAll()
        // The pages of a new index's log may be missing, and the states of its frames are unknown.
        let afterPowerLoss = isNew != 0
        header[Field.corrupt] += try SegmentChain(shard, afterPowerLoss: afterPowerLoss).link(fileSize)
        presizeTable(shard)
        var replay = Replay(shard, at: now)
        try replay.run(afterPowerLoss: afterPowerLoss, shard)
        // Parts of what is gone are not current.
        if replay.hasParts { try dropGonePins(shard) }
        return replay
    }

    private func replayParts(_ shard: borrowing ShardWriter) throws(Failure) {
        var replay = Replay(shard, at: now)
        try replay.replayParts(shard)
    }

    /// What is pinned and has expired or been invalidated is nobody's victim, and would be in the way of all others.
    private func dropGonePins(_ shard: borrowing ShardWriter) throws(Failure) {
        if header[Field.pinnedBytes] == 0 { return }
        try shard.with(Change(now: now)) { shard throws(Failure) in try shard.dropGone() }
    }

    private func finish(_ shard: borrowing ShardWriter) throws(Failure) {
        try dropGonePins(shard)
        try shard.with(Change.withoutTime) { shard throws(Failure) in
            // Its size was guessed before anything was known of pins.
            try shard.shrinkTableForPins()
            try enforceLimits(shard)
            reclaimDeadTail(shard)
            log.providePinned()
        }
        header[Field.rebuilds] += 1
        shard.forgetChanges()
        shim_fence()
        header.release(Field.epoch, header[Field.epoch] &+ 1)
        header.endChange()
    }

    /// As large as a segment from the middle lets expect, and a little more, so that it need not grow on the way.
    private func presizeTable(_ shard: borrowing ShardWriter) {
        let count = log.count
        guard count > 1 else { return }
        var offset = SegmentHeader.size, records = 0
        let base = engine.pointee.data + log.offset(ofFrame: log.queued(count / 2))
        while offset <= log.segmentSize - RecordHeader.size {
            let record = RecordHeader(at: base + offset)
            guard record.isPlausible(room: log.segmentSize - offset), !record.isKind(.end) else { break }
            records += 1
            offset += record.length
        }
        let wanted = records * count / 4 * 64 / (TableLoad.grow - 3)
        // (The frames that were found are no measure: the cleaner needs some beside them.)
        let most = geometry.shardBudget - (count + log.reserve) * log.segmentSize
        var buckets = Table.leastBuckets
        while buckets < wanted, geometry.shardIndexBytes(buckets: TableShape.grown(buckets)) <= most {
            buckets = TableShape.grown(buckets)
        }
        if buckets > Table.leastBuckets { _ = shard.growTable(to: buckets) }
    }

    /// The log begins again where it did when its head was begun. What had been cleaned since is dead,
    /// and goes at once, so that the cleaner finds the room that it had. (With the adaptive policy what had left is back,
    /// nothing is known of uses, and cleaning evicts: no more of that than the cleaner needs.)
    private func reclaimDeadTail(_ shard: borrowing ShardWriter) {
        if engine.pointee.isReadOnly { return }
        // Once round at most: with pinned entries over the limit it would never end.
        var left = log.count * log.segmentSize
        let wanted = reader.isAdaptive ? log.reserve : log.wantedFree
        while left > 0, log.availableFrames < wanted, let cleaned = try? Cleaner(shard).cleanRecord(shard),
            cleaned > 0
        {
            left -= cleaned
        }
    }

    /// What a smaller capacity, or evicted entries that came back, put over the limits.
    private func enforceLimits(_ shard: borrowing ShardWriter) throws(Failure) {
        let limit = geometry.entriesPerShard, evictions = header[Field.evictions]
        while limit > 0, header[Field.entries] > limit, try shard.evict() {}
        while header[Field.live] > log.mostLive(of: log.usableFrames, log.pinLoss), try shard.evict() {}
        // (They had been evicted before.)
        header[Field.evictions] = evictions
    }
}
