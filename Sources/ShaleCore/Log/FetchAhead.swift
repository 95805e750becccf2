import CShalePlatform

/// Brings into memory what a set will read or overwrite at the ends of the log, before it takes the lock. All of it is
/// a hint, from words that others may change meanwhile: only the speed depends on it.
extension Log {
    /// A handle's own words for each shard.
    enum Ahead {
        static let size = 64
        /// Up to where the cleaner's records, and the pages to append to, were fetched: a segment's number and an
        /// offset.
        static let tail = 0, head = 8
        /// The two latest frames with huge pages, each plus one; 0: none.
        static let huge = 16, earlierHuge = 24
    }
    @inline(__always) private var ahead: Memory { engine.pointee.ahead + number &* Ahead.size }

    // MARK: Both ends

    /// Has the next sixteenth of a segment read from the disk as soon as less than an eighth is left of what was.
    @inline(__always) func fetchEnds() {
        while isShort(Ahead.tail, tailNumber, tailOffset) { fetchTail() }
        while isShort(Ahead.head, headNumber, headOffset) { fetchHead() }
    }

    @inline(__always) private func position(_ number: UInt64, _ offset: Int) -> UInt64 {
        number &<< UInt64(truncatingIfNeeded: geometry.segmentShift) &+ UInt64(truncatingIfNeeded: offset)
    }
    @inline(__always) private func isShort(_ word: Int, _ number: UInt64, _ offset: Int) -> Bool {
        position(number, offset) &+ UInt64(truncatingIfNeeded: segmentSize / 8) > ahead.u64(word)
    }

    @inline(never) private func fetchTail() {
        fetch(Ahead.tail, position(tailNumber, tailOffset), queued(0), count > 1 ? queued(1) : nil)
    }
    /// (No file system overwrites part of a page that it has not read.)
    @inline(never) private func fetchHead() {
        fetch(Ahead.head, position(headNumber, headOffset), headFrame, nextFree)
    }

    private func fetch(_ word: Int, _ at: UInt64, _ frame: Int, _ next: Int?) {
        let known = ahead.u64(word), step = segmentSize / 16
        let start = known > at && known - at <= UInt64(segmentSize) ? known : at
        shim_store64_own(ahead + word, start &+ UInt64(step))
        let isNext = start >> UInt64(geometry.segmentShift) != at >> UInt64(geometry.segmentShift)
        guard let frame = isNext ? next : frame, frame >= 0, frame < geometry.framesPerShard,
            numberWord(frame).u64(0) != 0, !engine.pointee.files.isMemory
        else { return }
        let offset = Int(truncatingIfNeeded: start) & (segmentSize - 1)
        let p = engine.pointee.data + (self.offset(ofFrame: frame) + offset)
        let length = min(step, segmentSize - offset)
        // (No system call while all is in memory. Twice, since a thread may be interrupted.)
        if shim_load_is_slow(p), shim_load_is_slow(p + (length - 1)) { shim_sys_will_need(p, length) }
    }

    // MARK: The next head

    /// Whether the head's segment fills so fast that its pages will be full before the kernel writes them back, after
    /// 30 seconds by default. A huge page is written whole: an occasional set must not cost 2 MiB of writes.
    var isFast: Bool { UInt64(truncatingIfNeeded: shim_now_ms()) &- header[Field.begunTime] < 10_000 }

    /// The frame that the next roll will reuse.
    private var nextFree: Int? {
        let free = freeFrames
        return free > 0 && free < geometry.framesPerShard ? queued(-free) : nil
    }

    /// Maps the frame that the next roll will reuse with huge pages, if it is in memory and will fill fast. Returns the
    /// frame if it has been given back meanwhile: on a tmpfs, reading its hole has allocated it.
    func mapNextFrame() -> Int? {
        guard let frame = nextFree, isFast, !geometry.hasSmallPages, !engine.pointee.files.isMemory else { return nil }
        let p = engine.pointee.data + offset(ofFrame: frame)
        guard shim_sys_are_resident(p, segmentSize) else { return nil }
        useHugePages(frame)
        _ = shim_sys_populate_read(p, segmentSize)
        shim_fence()
        let state = state(ofFrame: frame)
        return state == .free || state == .inLog ? nil : frame
    }

    /// Frees what reading an absent frame may have allocated. Needs the lock.
    func freeHole(_ frame: Int) {
        if state(ofFrame: frame) == .absent {
            _ = engine.pointee.files.releaseData(offset(ofFrame: frame), segmentSize)
        }
    }

    /// Allows huge pages in a frame that is about to be filled, and no longer in the one before the head's: there, each
    /// fault would read a huge page once memory is short.
    func useHugePages(_ frame: Int) {
        let own = UInt64(frame) + 1, latest = shim_exchange64(ahead + Ahead.huge, own)
        let earlier = latest == own ? 0 : shim_exchange64(ahead + Ahead.earlierHuge, latest)
        if earlier > 0, earlier != own {
            shim_sys_no_huge_pages(engine.pointee.data + offset(ofFrame: Int(earlier) - 1), segmentSize)
        }
        shim_sys_huge_pages(engine.pointee.data + offset(ofFrame: frame), segmentSize)
    }
}
