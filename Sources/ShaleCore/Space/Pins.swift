import CShalePlatform

/// Who may be pinned, and what the cleaner may copy beside it. How much room it takes: `Log.pinLoss`.
extension ShardReader {
    /// What a large value takes of a shard.
    struct Need {
        var bytes = 0, longest = 0, records = 0
        /// Of what it replaces.
        var kept = 0
        mutating func add(_ length: Int) {
            bytes += length
            longest = max(longest, length)
            records += 1
        }
    }

    /// Whether it would fit if nothing else were there but what is pinned. `isKept`: so that the cleaner never has to let
    /// go of some of it, or of what it replaces. `isPinned`: it is to be pinned itself.
    func hasRoomBesidePins(_ need: Need, isKept: Bool, isPinned: Bool) -> Bool {
        if need.records == 0, need.kept == 0 { return true }
        let pinned = header[Field.pinnedBytes]
        // The table may grow on the way, and takes frames from the log. (One that is larger than its entries need gives
        // way, and nothing else but pins is there for good.)
        var used = 0, buckets = Table.leastBuckets, tables = 0
        if pinned > 0 { (used, buckets, tables) = (header[Field.used], table.shape.buckets, header[Field.tablePages]) }
        while (used + need.records) * 64 >= buckets * 4 * TableLoad.grow { buckets = TableShape.grown(buckets) }
        // (If the disk was full lately, the attempt says whether it still is.)
        let frames = log.budgetedFrames(beside: max(tables, geometry.shardIndexBytes(buckets: buckets)))
        let bytes = pinned + need.bytes
        if bytes > log.liveLimit(of: frames, log.pinLoss) { return false }
        if isPinned, !log.pinsFit(bytes, most: max(header[Field.pinnedMost], need.longest), in: frames) { return false }
        return pinned == 0 || !isKept
            || log.frames(for: bytes + need.kept, most: max(header[Field.pinnedMost], need.longest)) <= frames
    }
}

extension ShardWriter {
    /// Whether the cleaner may copy what it may as well evict: the last frames are for what is pinned.
    func spares() -> Bool {
        if header[Field.pinnedBytes] == 0 { return true }
        let pinLoss = log.pinLoss
        // (While the cache is made smaller, more frames are free than there may be.)
        return log.freeFrames > pinLoss || log.availableFrames > pinLoss && (try? log.provide(pinLoss + 1)) != nil
    }

    /// What is gone does not count, nor what damage has added.
    @inline(never)
    func dropGone() throws(Failure) {
        while try dropSomeGone() {}
        while try dropOrphans() {}
        if !change.progress.hasAudited, header[Field.unsure] != 0 || header[Field.pinnedBytes] > 0 {
            try finishAudit()
            change.progress.hasAudited = true
        }
        if change.replaced > 0, change.key.flatMap({ reader.lookup($0) }) == nil { change.replaced = 0 }
    }

    /// Also pinned parts whose owners, in other shards, are gone: these go first, and the call is made again.
    ///
    /// It walks over the table. Where that was in vain, it is in vain again until something is appended or a while has
    /// passed: who tries to pin one entry after the other does not wait for a walk each time.
    @inline(never)
    func dropAllGone() throws(Failure) {
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
            // (What is appended meanwhile may have ended what the walk has passed.)
            (change.progress.soughtNumber, change.progress.soughtOffset) = (log.headNumber, log.headOffset)
        }
        let before = header[Field.pinnedBytes]
        try dropGone()
        if geometry.shards > 1, header[Field.pinnedBytes] > 0, let part = try partOfGone(change.now) {
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

    /// The length of the longest pinned record counts until its removal is noticed, for which an audit looks: one at most
    /// for a quarter as many sets as there are slots in use. Whether it has become less.
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

    /// Whether what is pinned could be admitted beside a table that is as full as it may be. (A power cut may have
    /// brought more back.)
    private var wasAdmitted: Bool {
        let buckets = header[Field.pinned] * 64 / (TableLoad.full + 1) / 4
        let index = geometry.shardIndexBytes(buckets: max(Table.leastBuckets, buckets))
        return log.pinsFit(in: log.budgetedFrames(beside: index))
    }

    /// Before a record pins: that it can be kept, and that the frames for it are on disk, as a full one gives no more.
    /// Where not, nothing has changed.
    @inline(never)
    func admitPin(_ length: Int, most longest: Int) throws(Failure) -> Int {
        // What takes no more than what it replaces was admitted with that, maybe beside a smaller table.
        if length <= change.replaced, longest <= header[Field.pinnedMost], wasAdmitted { return 0 }
        func fits() -> Bool {
            let bytes = header[Field.pinnedBytes] - change.replaced + length
            func fits(in frames: Int) -> Bool {
                log.pinsFit(bytes, most: max(header[Field.pinnedMost], longest), in: frames)
            }
            guard fits(in: log.budgetedFrames) else { return false }
            // An eighth of the slots is left to other entries as well, or the table can become larger.
            let slots = table.shape.extent * 4, pinned = header[Field.pinned] + 1
            if pinned * 64 <= slots / 8 * 7 * TableLoad.grow { return true }
            // (An entry that is pinned already has its slot.)
            if let slot = change.key.flatMap({ reader.lookup($0) }), slot.entry.isPinned { return true }
            let grown = TableShape.grown(table.shape.extent)
            return grown <= geometry.maxBuckets - Table.spill
                && fits(in: log.budgetedFrames(beside: geometry.shardIndexBytes(buckets: grown)))
        }
        if !fits() {
            try dropAllGone()
            guard fits() else {
                throw log.noSpace(
                    header[Field.pinnedBytes] > change.replaced
                        ? """
                        beside what is pinned already, this entry is more than can be kept pinned; unpin or remove \
                        some, or raise the capacity
                        """
                        : "this entry is more than can be kept pinned; raise the capacity")
            }
        }
        let bytes = header[Field.pinnedBytes] - change.replaced + length, most = max(header[Field.pinnedMost], longest)
        try log.provide(log.frames(for: bytes, most: most) - log.count)
        return log.reserve(log.pinLoss(bytes, most: most))
    }
}
