/// How many frames of a log are left to whom: to the cleaner, and to what is live.
///
/// What pinned entries need of the log, so that it can be cleaned whatever else happens.
///
/// A segment that the cleaner fills has less than one pinned record's length free at its end, since only a record
/// that did not fit begins the next one; and two neighbours hold more than one segment has room for. So pinned bytes
/// that took `n` full segments take up to `n + pinLoss` once they are copied. With `pinLoss` frames free a whole round of
/// the log can be copied, if the rest is evicted, and leaves `frames(for:)` of them for anything else.
extension Log {
    private enum Share {
        /// One in so many segments is kept free, at least `Log.reserve` and one.
        static let free = 20
        /// Percent of the log that may be live: what remains is the cleaner's profit.
        static let live = 82
    }

    /// Frames that cleaning keeps free.
    var wantedFree: Int { wantedFree(of: usableFrames, pinLoss) }
    @inline(__always) func wantedFree(of usable: Int, _ pinLoss: Int) -> Int {
        max(Log.reserve + 1, (isAdaptive ? Log.reserve : usable / Share.free) + pinLoss)
    }

    /// Live bytes at most, so that a whole round of cleaning always gains something.
    var liveLimit: Int { liveLimit(of: usableFrames, pinLoss) }
    @inline(__always) func liveLimit(of frames: Int, _ pinLoss: Int) -> Int {
        let byShare = (frames - pinLoss) * segmentSize / 100 * Share.live
        let byReserve = (frames - reserve(pinLoss) - 1) * (segmentRoom - segmentSize / 16)
        return max(segmentSize / 2, min(byShare, byReserve))
    }

    /// Live bytes beyond which a set evicts before it cleans: the same. Where cleaning evicts, more than what the log can
    /// hold when that begins: it is the tail that chooses.
    @inline(__always) func mostLive(of frames: Int, _ pinLoss: Int) -> Int {
        isAdaptive ? max(segmentSize / 2, (frames - reserve(pinLoss)) * segmentRoom) : liveLimit(of: frames, pinLoss)
    }
    /// Whether entries leave at the log's tail.
    @inline(__always) var isAdaptive: Bool { engine.pointee.block.eviction == .adaptive }

    /// Whether more than a tenth of what was appended is dead: then cleaning gains room without eviction.
    var isSparse: Bool {
        let segments = count - 1
        let appended =
            segments * (segmentSize - header[Field.usualGap]) + headOffset
            - tailOffset
        return header[Field.live] < appended / 10 * 9
    }

    /// What a segment can hold, and what it holds at least where the cleaner filled it with records of up to `most`
    /// bytes.
    private func fill(_ most: Int) -> (room: Int, least: Int) {
        (segmentRoom, segmentRoom - min(most & ~1, segmentRoom / 2))
    }

    /// How many more frames pinned entries may take once they are copied.
    func pinLoss(_ bytes: Int, most: Int) -> Int {
        if bytes == 0 { return 0 }
        let fill = fill(most), whole = fill.room * fill.least
        // (What damage makes of the sums overflows nothing.)
        return (min(bytes, geometry.framesPerShard * segmentSize) * (fill.room - fill.least) + whole - 1) / whole
    }
    var pinLoss: Int { pinLoss(header[Field.pinnedBytes], most: header[Field.pinnedMost]) }

    /// Frames that are left to the cleaner: two, which it needs to empty one, or what it needs for pinned entries, and
    /// one.
    func reserve(_ pinLoss: Int) -> Int { max(Log.reserve, pinLoss + 1) }
    var reserve: Int { reserve(pinLoss) }

    /// Beside pinned entries two for what is not pinned, where there are so many: with one, the cleaner may have to evict
    /// what it has come to.
    @inline(never) var ampleReserve: Int {
        let frames = usableFrames, pinLoss = pinLoss
        if pinLoss == 0 { return Log.reserve }
        let reserve = pinLoss + Log.reserve
        return self.frames(for: header[Field.pinnedBytes], most: header[Field.pinnedMost]) < frames
            ? reserve : self.reserve(pinLoss)
    }

    /// Whether so many pinned bytes can be kept in so many frames: once they are copied, the cleaner has its reserve,
    /// and a frame is free. An eighth of what may be live is left to other entries.
    @inline(never) func pinsFit(_ bytes: Int, most: Int, in frames: Int) -> Bool {
        if bytes == 0 { return true }
        let pinLoss = pinLoss(bytes, most: most)
        return self.frames(for: bytes, most: most) <= frames && bytes <= liveLimit(of: frames, pinLoss) / 8 * 7
    }
    /// `more`: bytes of one record that is about to be pinned.
    func pinsFit(adding more: Int = 0, in frames: Int) -> Bool {
        pinsFit(header[Field.pinnedBytes] + more, most: max(header[Field.pinnedMost], more), in: frames)
    }

    func frames(for bytes: Int, most: Int) -> Int {
        let least = fill(most).least
        return (bytes + least - 1) / least + reserve(pinLoss(bytes, most: most)) + 1
    }
}

/// How many frames a shard may use.
extension Log {
    var indexBytes: Int { header[Field.tablePages] }

    /// What the budget leaves beside tables of so many bytes.
    @inline(__always) func budgetedFrames(beside tables: Int) -> Int {
        min(geometry.framesPerShard, max(0, geometry.shardBudget &- tables) &>> geometry.segmentShift)
    }

    @inline(__always) var budgetedFrames: Int { budgetedFrames(beside: indexBytes) }

    /// How many frames the shard may use: what its budget leaves, or, on a full disk, what it has.
    var usableFrames: Int {
        let byBudget = budgetedFrames
        return header[Field.diskFullCountdown] > 0 ? min(byBudget, count + freeFrames) : byBudget
    }

    /// Frames that a roll can still take.
    var availableFrames: Int { usableFrames - count }

    /// Frames that a roll finds on disk. (One that somebody prepares may never come to be.)
    var freeFrames: Int { header[Field.freeCount] }

    /// Whether the next roll should find one more frame on disk: there is none, or the log is about to
    /// be cleaned for want of frames that it may still have.
    var wantsFrame: Bool {
        header[Field.allocated] == count
            || header[Field.allocated] < usableFrames && availableFrames <= wantedFree + 1
    }
}
