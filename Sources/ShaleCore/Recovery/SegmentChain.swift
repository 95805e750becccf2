import CShalePlatform

/// The segments of a shard's log, as the headers in the data file tell: which there are, and where the log begins.
struct SegmentChain: ShardParts {
    let log: Log
    /// Memory is gone, so pages may be missing and states unknown.
    private let afterPowerLoss: Bool

    init(_ shard: borrowing ShardWriter, afterPowerLoss: Bool) {
        log = shard.log
        self.afterPowerLoss = afterPowerLoss
    }

    /// Finds the log's segments and sets the ring. Returns how many are missing. `lead`: how far the numbers of later
    /// ones are above those that are found.
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
        // (A synced tail may name a number that was about to be given, and nothing below it would count.)
        let last = max(newest, header[Field.lastNumber], SyncedPosition.tail(engine, shard: number).number)
        header[Field.lastNumber] = last + lead
        log.headNumber = newest
        log.headOffset = log.segmentSize

        beginLog(all)
        return queue(all)
    }

    /// Puts the segments from the tail on into the ring, and those before it in front. Returns how many are missing.
    private func queue(_ all: UnsafeMutableBufferPointer<SegmentHeader>) -> Int {
        let tail = log.tail
        var missing = 0, previous: UInt64 = 0
        for segment in all {
            log.numberWord(segment.frame).release(0, segment.number)
            guard segment.number >= tail.number else {
                addLastFree(segment.frame)
                continue
            }
            // (The tail may have moved on since anything named it, and its frame may be gone.)
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

    /// Before the ring holds any of the log.
    private func addLastFree(_ frame: Int) {
        log.setQueued(0, frame)
        log.first = (log.first + 1) % geometry.framesPerShard
        header[Field.freeCount] += 1
        log.setState(ofFrame: frame, .free)
    }

    /// Notes the sound headers of all frames, and puts the frames without one in front of the ring: they hold nothing.
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
            // The whole segment must be inside the file before the mapping is used.
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
                // Allocated or not, nobody knows: give it back, so that the sum is right, or count it.
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

    /// Where the log begins: at the furthest tail that anything proves. What is older is dead, and some of it may be
    /// gone.
    private func beginLog(_ all: UnsafeMutableBufferPointer<SegmentHeader>) {
        var proven = SyncedPosition.tail(engine, shard: number)
        for segment in all where proven.isBefore(segment.tail) { proven = segment.tail }
        let isKnown = !afterPowerLoss && proven.isBefore(log.tail)
        if !isKnown { log.setTail(proven) }
        log.provenTail = proven.number
        // A later rebuild may begin earlier than this one, and finds what this one does not see.
        header[Field.ghost] = isKnown ? log.tail.number : 0
    }
}
