import CShalePlatform

/// A shard's index, made anew from its log: replayed in order, which is all
/// that it takes. Recency becomes the order of writing, and entries that had
/// been evicted may come back. Removed, replaced and invalidated ones do not:
/// what removed them comes later in the log.
struct Rebuild: ShardParts {
    let log: Log

    init(_ shard: borrowing ShardWriter) { log = shard.log }

    /// What a killed writer was changing; the lock is held.
    @inline(never)
    func run(_ shard: borrowing ShardWriter) throws(Failure) {
        #if SHALE_FAULTS
        let outer = shim_part(("rebuild" as StaticString).utf8Start)
        defer { shim_leave(outer) }
        #endif
        if try begin(afterPowerLoss: false, shard) { try replayParts(othersAreKnown: false, shard) }
        try finish(shard)
    }

    /// All of a cache's shards, whose index is gone: no part is judged before all manifests are known, and nothing
    /// is cleaned before all parts are. `lead`: how far numbers go on above those that are found, as others were
    /// used and lost. A random one, since the numbers that one life used may be lost as well, and the next must not
    /// use them for other bytes.
    static func all(_ engine: EngineRef, lead: UInt64) throws(Failure) {
        let shards = engine.pointee.geometry.shards
        func each(_ body: (Rebuild, borrowing ShardWriter) throws(Failure) -> Void) throws(Failure) {
            for i in 0..<shards {
                try Shard(engine, i).unshared { shard throws(Failure) in try body(Rebuild(shard), shard) }
            }
        }
        try each { $1.raiseEpoch(by: 1) }
        var hasParts = false
        try each { rebuild, shard throws(Failure) in
            if try rebuild.begin(afterPowerLoss: true, lead: lead, shard) { hasParts = true }
        }
        if hasParts {
            try each { rebuild, shard throws(Failure) in try rebuild.dropGonePins(shard) }
            try each { rebuild, shard throws(Failure) in try rebuild.replayParts(othersAreKnown: true, shard) }
        }
        try each { rebuild, shard throws(Failure) in try rebuild.finish(shard) }
    }

    /// Everything but the parts of large values; whether there are such. `afterPowerLoss`: memory is gone, so pages
    /// may be missing and states unknown.
    private func begin(afterPowerLoss: Bool, lead: UInt64 = 0, _ shard: borrowing ShardWriter) throws(Failure) -> Bool {
        // Before anything is changed: the program may have closed the descriptor.
        let fileSize = try engine.pointee.files.dataSize()
        #if SHALE_FAULTS
        shim_tell(SHIM_REPLAYED, header.at)
        #endif
        header.release(Field.epoch, header[Field.epoch] | 1)
        header[Field.state] = ShardHeader.State.rebuilding
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
        header[Field.corrupt] += try SegmentChain(shard, afterPowerLoss: afterPowerLoss).link(fileSize, lead: lead)
        presizeTable(shard)
        var replay = Replay(shard)
        try replay.run(afterPowerLoss: afterPowerLoss, lead: lead, shard)
        return replay.hasParts
    }

    private func replayParts(othersAreKnown: Bool, _ shard: borrowing ShardWriter) throws(Failure) {
        var replay = Replay(shard)
        try replay.replayParts(othersAreKnown: othersAreKnown, shard)
    }

    /// What is pinned and has expired or been invalidated is nobody's victim, and would be in the way of all others.
    private func dropGonePins(_ shard: borrowing ShardWriter) throws(Failure) {
        if header[Field.pinnedBytes] == 0 { return }
        try shard.with(Change(now: engine.pointee.clock.now48)) { shard throws(Failure) in try shard.dropGone() }
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
        while header[Field.live] > log.liveLimit, try shard.evict() {}
        // (They had been evicted before.)
        header[Field.evictions] = evictions
    }
}
