/// How many frames of a log are reserved for the cleaner and for pinned entries, so that the log can always be cleaned,
/// and how many bytes may be live.
///
/// A segment that the cleaner fills has less than one pinned record's length free at its end, since only a record that
/// did not fit begins the next one; and two neighbours hold more than one segment has room for. So pinned bytes that
/// took `n` full segments take up to `n + pinWaste` once they are copied. With `pinWaste` frames free, a whole round of
/// the log can be copied if all other entries are evicted; pinned entries need `frames(for:)` frames in all.
extension Log {
    private enum Share {
        /// One segment in so many is kept free, at least `Log.reserve` and one.
        static let free = 20
        /// Percent of the log that may be live: cleaning gains the rest.
        static let live = 82
    }

    /// Frames that cleaning keeps free.
    var wantedFree: Int { wantedFree(of: usableFrames, pinWaste) }
    @inline(__always) func wantedFree(of usable: Int, _ pinWaste: Int) -> Int {
        max(Log.reserve + 1, (isClock ? Log.reserve : usable / Share.free) + pinWaste)
    }

    /// The most live bytes with which a whole round of cleaning always gains something.
    var liveLimit: Int { liveLimit(of: usableFrames, pinWaste) }
    @inline(__always) func liveLimit(of frames: Int, _ pinWaste: Int) -> Int {
        let byShare = (frames - pinWaste) * segmentSize / 100 * Share.live
        let byReserve = (frames - reserve(pinWaste) - 1) * (segmentRoom - segmentSize / 16)
        return max(segmentSize / 2, min(byShare, byReserve))
    }

    /// Live bytes beyond which a set evicts before it cleans: `liveLimit`. With CLOCK, where cleaning evicts, more than
    /// the log can hold when cleaning begins: the tail selects the victims.
    @inline(__always) func mostLive(of frames: Int, _ pinWaste: Int) -> Int {
        isClock ? max(segmentSize / 2, (frames - reserve(pinWaste)) * segmentRoom) : liveLimit(of: frames, pinWaste)
    }
    /// Whether entries are evicted at the log's tail.
    @inline(__always) var isClock: Bool { engine.pointee.block.eviction == .clock }

    /// Whether more than a tenth of the appended bytes is dead: then cleaning gains room without eviction.
    var isSparse: Bool {
        let segments = count - 1
        let appended =
            segments * (segmentSize - header[Field.usualGap]) + headOffset
            - tailOffset
        return header[Field.live] < appended / 10 * 9
    }

    /// Returns a segment's capacity, and the least that it holds if the cleaner filled it with records of up to `most`
    /// bytes.
    private func fill(_ most: Int) -> (room: Int, least: Int) {
        (segmentRoom, segmentRoom - min(most & ~1, segmentRoom / 2))
    }

    /// Returns how many more frames pinned entries may take once they are copied.
    func pinWaste(_ bytes: Int, most: Int) -> Int {
        if bytes == 0 { return 0 }
        let fill = fill(most), whole = fill.room * fill.least
        // (So that damaged sums overflow nothing.)
        return (min(bytes, geometry.framesPerShard * segmentSize) * (fill.room - fill.least) + whole - 1) / whole
    }
    var pinWaste: Int { pinWaste(header[Field.pinnedBytes], most: header[Field.pinnedMost]) }

    /// Frames reserved for the cleaner: two, which it needs to empty one, or those that pinned entries need, and one.
    func reserve(_ pinWaste: Int) -> Int { max(Log.reserve, pinWaste + 1) }
    var reserve: Int { reserve(pinWaste) }

    /// The reserve with two frames for unpinned entries beside the pinned ones, if there are so many: with one, the
    /// cleaner may have to evict entries that it reaches.
    @inline(never) var ampleReserve: Int {
        let frames = usableFrames, pinWaste = pinWaste
        if pinWaste == 0 { return Log.reserve }
        let reserve = pinWaste + Log.reserve
        return self.frames(for: header[Field.pinnedBytes], most: header[Field.pinnedMost]) < frames
            ? reserve : self.reserve(pinWaste)
    }

    /// Whether so many pinned bytes fit into so many frames: once they are copied, the cleaner has its reserve, and one
    /// frame is free. An eighth of the live limit stays for other entries.
    @inline(never) func pinsFit(_ bytes: Int, most: Int, in frames: Int) -> Bool {
        if bytes == 0 { return true }
        let pinWaste = pinWaste(bytes, most: most)
        return self.frames(for: bytes, most: most) <= frames && bytes <= liveLimit(of: frames, pinWaste) / 8 * 7
    }
    /// `more`: bytes of a record that is about to be pinned.
    func pinsFit(adding more: Int = 0, in frames: Int) -> Bool {
        pinsFit(header[Field.pinnedBytes] + more, most: max(header[Field.pinnedMost], more), in: frames)
    }

    func frames(for bytes: Int, most: Int) -> Int {
        let least = fill(most).least
        return (bytes + least - 1) / least + reserve(pinWaste(bytes, most: most)) + 1
    }
}

/// How many frames a shard may use.
extension Log {
    var indexBytes: Int { header[Field.tablePages] }

    /// Returns how many frames the budget leaves beside tables of so many bytes.
    @inline(__always) func budgetedFrames(beside tables: Int) -> Int {
        min(geometry.framesPerShard, max(0, geometry.shardBudget &- tables) &>> geometry.segmentShift)
    }

    @inline(__always) var budgetedFrames: Int { budgetedFrames(beside: indexBytes) }

    /// Frames that the shard may use: those that its budget leaves or, on a full disk, those that it has.
    var usableFrames: Int {
        let byBudget = budgetedFrames
        return header[Field.diskFullCountdown] > 0 ? min(byBudget, count + freeFrames) : byBudget
    }

    /// Frames that a roll can still take.
    var availableFrames: Int { usableFrames - count }

    /// Frames that a roll finds on disk. (One that another caller prepares may never become free.)
    var freeFrames: Int { header[Field.freeCount] }

    /// Whether the next roll should find one more frame on disk: there is none, or the log is about to be cleaned for
    /// want of frames that it may still allocate.
    var wantsFrame: Bool {
        header[Field.allocated] == count
            || header[Field.allocated] < usableFrames && availableFrames <= wantedFree + 1
    }
}
