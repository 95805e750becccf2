/// Who may be pinned, and what the cleaner may copy beside it. How much room it takes: `Log.loss`.
extension Shard {
    /// Whether the cleaner may copy what it may as well evict: the last frames are for what is pinned.
    func spares(_ length: Int) -> Bool {
        if header[Field.pinnedBytes] == 0 { return true }
        let loss = log.loss
        return log.availableFrames > loss
            && (length <= log.headRoom || log.freeFrames > loss || (try? log.provide(loss + 1)) != nil)
    }

    /// What a large value takes of a shard.
    struct Need {
        var bytes = 0
        var records = 0
        mutating func add(_ length: Int) {
            bytes += length
            records += 1
        }
    }

    /// Whether it would fit if nothing else were there but what is pinned.
    func hasRoomBesidePins(_ need: Need) -> Bool {
        let pinned = header[Field.pinnedBytes]
        if need.records == 0 { return true }
        // The table may grow on the way, and takes frames from the log. (One that is larger than its entries need gives
        // way, and nothing else but pins is there for good.)
        let used = pinned == 0 ? 0 : header[Field.used]
        var buckets = pinned == 0 ? Table.leastBuckets : table.shape.buckets
        while (used + need.records) * 64 >= buckets * 4 * Load.grow { buckets = Table.Shape.grown(buckets) }
        let tables = max(pinned == 0 ? 0 : header[Field.tablePages], geometry.shardIndexBytes(buckets: buckets))
        var frames = min(geometry.rows, max(0, geometry.shardBudget - tables) >> geometry.segmentShift)
        if header[Field.noSpace] > 0 { frames = min(frames, header[Field.allocated]) }
        return pinned + need.bytes <= log.liveLimit(of: frames, log.loss)
    }

    /// What is gone does not count, nor what damage has added.
    @inline(never)
    func dropGone(_ change: inout Change) {
        if header[Field.tagCount] != 0 { sweepTags(&change) }
        _ = purge(&change)
        _ = dropOrphans(&change)
        if header[Field.unsure] != 0 || header[Field.pinnedMost] & 1 != 0 {
            header[Field.unsure] = 0
            recount()
        }
    }

    /// Before a record pins: that it can be kept, and that the frames for it are on disk, as a full one gives no more.
    /// Where not, nothing has changed. `own`: pinned bytes of the entry that it replaces.
    @inline(never)
    func admitPin(_ length: Int, most longest: Int, replacing own: Int, _ change: inout Change) throws(Failure) -> Int {
        func fits() -> Bool {
            log.pinsFit(
                header[Field.pinnedBytes] - own + length, most: max(header[Field.pinnedMost], longest),
                in: log.budgetedFrames)
        }
        if !fits() {
            dropGone(&change)
            guard fits() else {
                throw log.noSpace(
                    header[Field.pinnedBytes] > own
                        ? """
                        beside what is pinned already, this entry is more than can be kept pinned; unpin or remove \
                        some, or raise the capacity
                        """
                        : "this entry is more than can be kept pinned; raise the capacity")
            }
        }
        let bytes = header[Field.pinnedBytes] - own + length, most = max(header[Field.pinnedMost], longest)
        try log.provide(log.frames(for: bytes, most: most) - header[Field.queueCount])
        return log.reserve(log.loss(bytes, most: most))
    }
}
