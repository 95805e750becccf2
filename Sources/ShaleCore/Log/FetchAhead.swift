import CShalePlatform

/// Brings into memory what a set will read or overwrite in the log, before it takes the lock. All of it is a hint, from
/// words that others may change: only the speed depends on it.
extension Log {
    /// A handle's own words for each shard.
    enum Ahead {
        static let size = 64
        /// Up to where the cleaner's records were fetched: a segment's number and an offset.
        static let fetched = 0
        /// The two latest frames with huge pages, each plus one; 0: none.
        static let huge = 8, earlierHuge = 16
    }
    @inline(__always) private var ahead: Memory { engine.pointee.ahead + number &* Ahead.size }

    // MARK: The cleaner

    /// Fetches the records that the cleaner will read next, unless that was done.
    @inline(__always) func fetchTail() {
        let at = tailNumber &<< UInt64(geometry.segmentShift) &+ UInt64(truncatingIfNeeded: tailOffset)
        if at &+ UInt64(truncatingIfNeeded: segmentSize / 16) > ahead.u64(Ahead.fetched) { fetchTail(from: at) }
    }

    @inline(never)
    private func fetchTail(from at: UInt64) {
        let shift = UInt64(geometry.segmentShift), known = ahead.u64(Ahead.fetched)
        // (After a clear or a rebuild it may be far ahead.)
        let start = known > at && known - at <= UInt64(segmentSize) ? known : at
        ahead.set(Ahead.fetched, start &+ UInt64(segmentSize / 8))
        let segment = Int(truncatingIfNeeded: (start >> shift) &- (at >> shift))
        guard !engine.pointee.files.isMemory, segment < count else { return }
        let offset = Int(truncatingIfNeeded: start) & (segmentSize - 1) & ~(pageSize - 1)
        let p = engine.pointee.data + (self.offset(ofFrame: queued(segment)) + offset)
        let length = min(segmentSize / 8 + pageSize, segmentSize - offset)
        if shim_sys_are_resident(p, length) { return }
        // (Populating alone would read page by page.)
        shim_sys_will_need(p, length)
        _ = shim_sys_populate_read(p, length)
    }

    // MARK: The head

    /// Whether the head's segment fills so fast that its pages will be full before the kernel writes them back, after
    /// 30 seconds by default. A huge page is written whole: an occasional set must not cost 2 MiB of writes.
    var isFast: Bool { UInt64(truncatingIfNeeded: shim_now_ms()) &- header[Field.begunTime] < 10_000 }

    /// Fetches the frame that the next roll will reuse: its old bytes, as no file system overwrites part of a page that
    /// it has not read.
    func fetchNextFrame() {
        let free = freeFrames
        guard free > 0, free < geometry.framesPerShard, !engine.pointee.files.isMemory else { return }
        let frame = queued(-free), p = engine.pointee.data + offset(ofFrame: frame)
        if isFast, usesHugePages(frame) {
            _ = shim_sys_populate_read(p, segmentSize)
        } else if !shim_sys_are_resident(p, segmentSize) {
            shim_sys_will_need(p, segmentSize)
        }
    }

    /// Maps a frame that is about to be filled with huge pages, if there are any, and no longer the one before the
    /// head's: there, each fault would read a huge page once memory is short.
    @discardableResult
    func usesHugePages(_ frame: Int) -> Bool {
        guard !geometry.hasSmallPages, !engine.pointee.files.isMemory else { return false }
        let own = UInt64(frame) + 1, latest = shim_exchange64(ahead + Ahead.huge, own)
        let earlier = latest == own ? 0 : shim_exchange64(ahead + Ahead.earlierHuge, latest)
        if earlier > 0, earlier != own {
            shim_sys_no_huge_pages(engine.pointee.data + offset(ofFrame: Int(earlier) - 1), segmentSize)
        }
        shim_sys_huge_pages(engine.pointee.data + offset(ofFrame: frame), segmentSize)
        return true
    }
}
