import CShalePlatform

/// Finds a shard's segments and the log's start by the segment headers.
struct SegmentChain: ShardParts {
    let log: Log
    /// Memory was lost, so pages may be missing and frame states are unknown.
    private let afterPowerLoss: Bool

    init(_ shard: borrowing ShardWriter, afterPowerLoss: Bool) {
        log = shard.log
        self.afterPowerLoss = afterPowerLoss
    }

    /// Finds the segments and fills the ring. Returns how many are missing. `lead`: distance of later numbers from the
    /// highest found.
    @discardableResult
    func link(_ fileSize: Int, lead: UInt64 = 0) throws(Failure) -> Int {
        guard
            let memory = shim_malloc(geometry.framesPerShard * MemoryLayout<SegmentHeader>.stride + SegmentHeader.size)
        else {
            throw Failure.outOfMemory
        }
        defer { shim_free(memory) }
        let found = UnsafeMutableBufferPointer(
            start: (memory + SegmentHeader.size).bindMemory(to: SegmentHeader.self, capacity: geometry.framesPerShard),
            count: geometry.framesPerShard)
        log.first = 0
        log.count = 0
        header[Field.freeCount] = 0
        let count = try collectSegments(fileSize, page: memory, found)
        var all = UnsafeMutableBufferPointer(rebasing: found[..<count])
        all.sort { $0.number < $1.number }
        let newest = all.last?.number ?? 0
        // (A synced tail may name a number not yet used; lower numbers would not count.)
        let last = max(newest, header[Field.lastNumber], SyncedPosition.tail(engine, shard: number).number)
        header[Field.lastNumber] = last + lead
        log.headNumber = newest
        log.headOffset = log.segmentSize

        beginLog(all)
        return queue(all)
    }

    /// Queues the segments from the tail on, and the earlier ones before it as free. Returns how many are missing.
    private func queue(_ all: UnsafeMutableBufferPointer<SegmentHeader>) -> Int {
        let tail = log.tail
        var missing = 0, previous: UInt64 = 0
        for segment in all {
            log.numberWord(segment.frame).release(0, segment.number)
            guard segment.number >= tail.number else {
                addLastFree(segment.frame)
                continue
            }
            // (The tail may have advanced since it was last recorded, and its frame may be gone.)
            if log.count == 0
                ? segment.number != tail.number && !afterPowerLoss : segment.previous != previous
            {
                missing += 1
            }
            previous = segment.number
            log.setQueued(log.count, segment.frame)
            log.count += 1
            log.setState(ofFrame: segment.frame, .inLog)
            log.headFrame = segment.frame
        }
        if log.count == 0 {
            log.setTail(LogPosition(number: log.nextNumber))
        } else if log.numberWord(log.queued(0)).u64(0) != tail.number {
            log.setTail(LogPosition(number: log.numberWord(log.queued(0)).u64(0)))
        }
        return missing
    }

    /// Adds a free frame. Needs a ring without a frame of the log.
    private func addLastFree(_ frame: Int) {
        log.setQueued(0, frame)
        log.first = (log.first + 1) % geometry.framesPerShard
        header[Field.freeCount] += 1
        log.setState(ofFrame: frame, .free)
    }

    /// Collects the valid headers, and puts frames without one in front of the ring.
    private func collectSegments(
        _ fileSize: Int, page: Memory, _ found: UnsafeMutableBufferPointer<SegmentHeader>
    ) throws(Failure) -> Int {
        var count = 0, allocated = 0
        for frame in 0..<geometry.framesPerShard {
            let known = log.state(ofFrame: frame)
            if !afterPowerLoss, known == .absent { continue }
            if log.offset(ofFrame: frame) >= fileSize {
                log.numberWord(frame).release(0, 0)
                log.setState(ofFrame: frame, .absent)
                continue
            }
            var sound: SegmentHeader?
            // The whole segment must lie inside the file before the mapping is used.
            if log.offset(ofFrame: frame) + log.segmentSize <= fileSize,
                try engine.pointee.files.readData(log.offset(ofFrame: frame), into: page, SegmentHeader.size)
            {
                sound = SegmentHeader(at: page, shard: number, frame: frame, secret: secret)
            }
            if let sound {
                found[count] = sound
                count += 1
                log.setState(ofFrame: frame, .free)
                allocated += 1
            } else if afterPowerLoss {
                // It is unknown whether the frame is allocated: give it back, so that the sum is right, or count it.
                let released = engine.pointee.files.releaseData(log.offset(ofFrame: frame), log.segmentSize)
                log.numberWord(frame).release(0, 0)
                log.setState(ofFrame: frame, released ? .absent : .preparing)
                if !released { allocated += 1 }
            } else {
                log.numberWord(frame).release(0, 0)
                if known != .preparing { addLastFree(frame) }
                allocated += 1
            }
        }
        header[Field.allocated] = allocated
        return count
    }

    /// Starts the log at the furthest tail that a header or the synced position proves. Older segments are dead, and
    /// may be missing.
    private func beginLog(_ all: UnsafeMutableBufferPointer<SegmentHeader>) {
        var proven = SyncedPosition.tail(engine, shard: number)
        for segment in all where proven.isBefore(segment.tail) { proven = segment.tail }
        let isKnown = !afterPowerLoss && proven.isBefore(log.tail)
        if !isKnown { log.setTail(proven) }
        log.provenTail = proven.number
        // A later rebuild may begin earlier, and find records that this one does not see.
        header[Field.residual] = isKnown ? log.tail.number : 0
    }
}
