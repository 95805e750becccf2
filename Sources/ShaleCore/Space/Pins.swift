import CShalePlatform

/// The room of pinned entries: see `Log.pinWaste`.
extension ShardReader {
    struct Need {
        var bytes = 0, longest = 0, records = 0
        /// Bytes of the value that it replaces.
        var kept = 0
        mutating func add(_ length: Int) {
            bytes += length
            longest = max(longest, length)
            records += 1
        }
    }

    /// Whether the value would fit beside the pinned entries alone. `isKept`: without the cleaner ever having to evict
    /// part of it, or of the value that it replaces. `isPinned`: the value is to be pinned.
    func hasRoomBesidePins(_ need: Need, isKept: Bool, isPinned: Bool) -> Bool {
        if need.records == 0, need.kept == 0 { return true }
        let pinned = header[Field.pinnedBytes]
        // The table may grow meanwhile, at the log's expense. (An oversized table can shrink, and all but pinned
        // entries be evicted.)
        var used = 0, buckets = Table.leastBuckets, tables = 0
        if pinned > 0 { (used, buckets, tables) = (header[Field.used], table.shape.buckets, header[Field.tablePages]) }
        while (used + need.records) * 64 >= buckets * 4 * TableLoad.grow { buckets = TableShape.grown(buckets) }
        // (If the disk was full lately, the attempt tells whether it still is.)
        let frames = log.budgetedFrames(beside: max(tables, geometry.shardIndexBytes(buckets: buckets)))
        let bytes = pinned + need.bytes
        if bytes > log.liveLimit(of: frames, log.pinWaste) { return false }
        if isPinned, !log.pinsFit(bytes, most: max(header[Field.pinnedMost], need.longest), in: frames) { return false }
        return pinned == 0 || !isKept
            || log.frames(for: bytes + need.kept, most: max(header[Field.pinnedMost], need.longest)) <= frames
    }
}

extension ShardWriter {
    /// Unlinks dead entries and orphaned parts, and corrects sums that damage has made too high.
    @inline(never)
    func unlinkDead() throws(Failure) {
        while try unlinkSomeDead() {}
        while try unlinkOrphans() {}
        if !change.progress.hasAudited, header[Field.unsure] != 0 || header[Field.pinnedBytes] > 0 {
            try finishAudit()
            change.progress.hasAudited = true
        }
        if change.replaced > 0, change.key.flatMap({ reader.lookup($0) }) == nil { change.replaced = 0 }
    }

    /// Like `unlinkDead`, and also finds pinned parts whose owners, in other shards, are dead: throws so that the call
    /// clears these first and runs again. After a walk without result, the next one waits until something is appended
    /// or 100 ms have passed: a caller that tries to pin many entries does not wait for a walk each time.
    @inline(never)
    func unlinkAllDead() throws(Failure) {
        if !change.progress.isSeeking, header[Field.soughtNumber] == log.headNumber,
            header[Field.soughtOffset] == log.headOffset,
            change.now &- header[Field.soughtTime] < ShardWriter.pauseOfSearch
        {
            return
        }
        if !change.progress.isSeeking {
            #if SHALE_FAULTS
            shim_tell(SHIM_SOUGHT, nil)
            #endif
            change.progress.isSeeking = true
            // (Records appended meanwhile may end entries that the walk has passed.)
            (change.progress.soughtNumber, change.progress.soughtOffset) = (log.headNumber, log.headOffset)
        }
        let before = header[Field.pinnedBytes]
        try unlinkDead()
        if geometry.shards > 1, header[Field.pinnedBytes] > 0, let part = try partOfDead(change.now) {
            change.crowdedBy = part
            throw log.filled()
        }
        change.progress.isSeeking = false
        if header[Field.pinnedBytes] < before { return }
        header[Field.soughtNumber] = change.progress.soughtNumber
        header[Field.soughtOffset] = change.progress.soughtOffset
        header[Field.soughtTime] = change.now
    }
    /// Milliseconds.
    private static var pauseOfSearch: UInt64 { 100 }

    /// Whether an audit lowers the recorded length of the longest pinned record, which counts until an audit notices
    /// its removal. At most one audit per `used / 4` sets.
    @inline(never)
    func lookForLongestPin() throws(Failure) -> Bool {
        let most = header[Field.pinnedMost], sets = header[Field.sets]
        guard most & 1 != 0 else { return false }
        if !isAuditing {
            guard abs(sets - header[Field.pinsSoughtAt]) >= header[Field.used] / 4 else { return false }
            header[Field.pinsSoughtAt] = sets
        }
        try finishAudit()
        return header[Field.pinnedMost] < most
    }

    /// Whether the pinned entries could be admitted beside a table at its maximum load. (A power failure may have
    /// brought more back.)
    private var wasAdmitted: Bool {
        let buckets = header[Field.pinned] * 64 / (TableLoad.full + 1) / 4
        let index = geometry.shardIndexBytes(buckets: max(Table.leastBuckets, buckets))
        return log.pinsFit(in: log.budgetedFrames(beside: index))
    }

    /// Checks that a record to be pinned can be kept, and reserves its frames: a full disk gives no more later. Returns
    /// the frames needed. Throws `full` with nothing changed.
    @inline(never)
    func admitPin(_ length: Int, most longest: Int) throws(Failure) -> Int {
        // A record no larger than the pinned one that it replaces was admitted with it, maybe beside a smaller table.
        if length <= change.replaced, longest <= header[Field.pinnedMost], wasAdmitted { return 0 }
        func fits() -> Bool {
            let bytes = header[Field.pinnedBytes] - change.replaced + length
            return log.pinsFit(bytes, most: max(header[Field.pinnedMost], longest), in: log.budgetedFrames)
        }
        if !fits() {
            try unlinkAllDead()
            guard fits() else {
                throw log.noSpace(
                    header[Field.pinnedBytes] > change.replaced
                        ? """
                        beside what is pinned already, this entry is too large to be pinned; unpin or remove \
                        some, or raise the capacity
                        """
                        : "this entry is too large to be pinned; raise the capacity")
            }
        }
        let bytes = header[Field.pinnedBytes] - change.replaced + length, most = max(header[Field.pinnedMost], longest)
        try log.provide(log.frames(for: bytes, most: most) - log.count)
        return log.reserve(log.pinWaste(bytes, most: most))
    }
}
