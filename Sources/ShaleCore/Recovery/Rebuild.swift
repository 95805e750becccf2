import CShalePlatform

/// Rebuilds a shard's index by replaying its log in order. Recency becomes the order of writing, and evicted entries
/// may come back; removed, replaced and invalidated ones do not: the record that ended them comes later.
struct Rebuild: ShardParts {
    private typealias State = ShardHeader.State

    let log: Log
    /// Milliseconds since 1970.
    private let now: UInt64

    init(_ shard: borrowing ShardWriter, at now: UInt64) {
        log = shard.log
        self.now = now
    }

    /// Marks a shard of a new, invisible index for a rebuild from its log. Returns the highest LSN there: new LSNs must
    /// exceed those of all shards. `lead`: see `link`.
    static func announce(_ shard: borrowing ShardWriter, fileSize: Int, lead: UInt64) throws(Failure) -> UInt64 {
        shard.header[Field.state] = State.rebuilding | State.isNew
        shard.raiseEpoch(by: 1)
        try SegmentChain(shard, afterPowerLoss: true).link(fileSize, lead: lead)
        return Replay(shard, at: 0).highestLSNOfHead()
    }

    /// Rebuilds under the lock. `waits`: leaves parts that may belong to values in other shards until all manifests are
    /// known, so that parts of replaced values take no room; else parts in doubt are kept, for the cleaner.
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
        // Before any change: the program may have closed the descriptor.
        let fileSize = try engine.pointee.files.dataSize()
        #if SHALE_FAULTS
        shim_tell(SHIM_REPLAYED, header.at)
        #endif
        // (An odd, new epoch: the manifests of an interrupted rebuild no longer count.)
        header.release(Field.epoch, (header[Field.epoch] | 1) &+ 2)
        let isNew = header[Field.state] & State.isNew
        header[Field.state] = State.rebuilding | isNew
        shim_fence()
        // A killed writer's change is in the log or is not.
        for field in [
            Field.transaction, Field.copiedSlot.word, Field.relocation, Field.moveCount.word, Field.pending.word,
        ] { header[field] = 0 }
        if header[Field.tablePages] == 0 {
            header[Field.tablePages] = geometry.shardIndexBytes(buckets: Table.leastBuckets)
        }
        shard.resetIndex()
        accessClock.removeAll()
        // A new index's log may lack pages, and the states of its frames are unknown.
        let afterPowerLoss = isNew != 0
        header[Field.corrupt] += try SegmentChain(shard, afterPowerLoss: afterPowerLoss).link(fileSize)
        presizeTable(shard)
        var replay = Replay(shard, at: now)
        try replay.run(afterPowerLoss: afterPowerLoss, shard)
        if replay.hasParts { try unlinkDeadPins(shard) }
        return replay
    }

    private func replayParts(_ shard: borrowing ShardWriter) throws(Failure) {
        var replay = Replay(shard, at: now)
        try replay.replayParts(shard)
    }

    /// Unlinks dead pinned entries, which are never evicted and are in the way of others.
    private func unlinkDeadPins(_ shard: borrowing ShardWriter) throws(Failure) {
        if header[Field.pinnedBytes] == 0 { return }
        try shard.with(Change(now: now)) { shard throws(Failure) in try shard.unlinkDead() }
    }

    private func finish(_ shard: borrowing ShardWriter) throws(Failure) {
        try unlinkDeadPins(shard)
        try shard.with(Change.withoutTime) { shard throws(Failure) in
            // The table's size was estimated before pins were known.
            try shard.shrinkTableForPins()
            try enforceLimits(shard)
            reclaimDeadTail(shard)
            log.providePinned()
        }
        header[Field.rebuilds] += 1
        shard.clearFences()
        shim_fence()
        header.release(Field.epoch, header[Field.epoch] &+ 1)
        header.endChange()
    }

    /// Sizes the table by a segment from the middle, and a little larger, so that it need not grow during the replay.
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
        // (The log needs the cleaner's reserve beside the frames found.)
        let most = geometry.shardBudget - (count + log.reserve) * log.segmentSize
        var buckets = Table.leastBuckets
        while buckets < wanted, geometry.shardIndexBytes(buckets: TableShape.grown(buckets)) <= most {
            buckets = TableShape.grown(buckets)
        }
        if buckets > Table.leastBuckets { _ = shard.growTable(to: buckets) }
    }

    /// Cleans segments that were already cleaned before: the log begins again where it began when its head was created.
    /// Their records are dead, and cleaning them gives the cleaner the room that it had. (With CLOCK, evicted entries
    /// are back, uses are unknown, and cleaning evicts: no more than the cleaner needs.)
    private func reclaimDeadTail(_ shard: borrowing ShardWriter) {
        if engine.pointee.isReadOnly { return }
        // Once round: with pinned entries over the limit it would never end.
        var left = log.count * log.segmentSize
        let wanted = reader.isClock ? log.reserve : log.wantedFree
        while left > 0, log.availableFrames < wanted, let cleaned = try? Cleaner(shard).cleanRecord(shard),
            cleaned > 0
        {
            left -= cleaned
        }
    }

    /// Evicts what exceeds a smaller capacity, or comes from evicted entries that are back.
    private func enforceLimits(_ shard: borrowing ShardWriter) throws(Failure) {
        let limit = geometry.entriesPerShard, evictions = header[Field.evictions]
        while limit > 0, header[Field.entries] > limit, try shard.evict() {}
        while header[Field.live] > log.mostLive(of: log.usableFrames, log.pinWaste), try shard.evict() {}
        // (They had been evicted before.)
        header[Field.evictions] = evictions
    }
}
