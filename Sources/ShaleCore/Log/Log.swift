import CShalePlatform

/// The log of a shard: a queue of segments, appended at the head, cleaned at the tail.
///
/// One ring holds the frames: those that are free, the one that was freed first in front, then the log from
/// the tail to the head. Cleaning moves the border between the two; a roll takes the front and puts it at the end.
/// So frames are reused, and given back, in the order in which they were freed: the segments that can still
/// be read are always the newest ones, without a gap, and no record is gone while one that it supersedes is left.
///
/// Invariants
/// - a frame is in the log exactly while its state is `inLog`, and in front of it while it is `free`;
/// - a segment's number is stored in the hot array, behind a release fence, before its bytes change;
/// - the head has room for an end record;
/// - callers leave `reserve` frames to the cleaner, which needs at most two to empty the tail.
struct Log {
    typealias Field = ShardHeader.Field

    enum FrameState: UInt8 { case absent = 0, free, inLog, preparing }
    static let reserve = 2
    static let patience = Sizes.patience

    let engine: EngineRef
    /// The shard's.
    let number: Int
    let header: ShardHeader

    @inline(__always)
    init(_ engine: EngineRef, _ number: Int) {
        self.engine = engine
        self.number = number
        header = ShardHeader(at: engine.pointee.regions + number &* engine.pointee.geometry.region)
    }

    @inline(__always) var geometry: Geometry { @inline(__always) get { engine.pointee.geometry } }
    @inline(__always) var secret: UInt64 { engine.pointee.secret }

    // MARK: Where it begins and ends

    @inline(__always) var words: LogWords { LogWords(at: header.at + LogWords.offset) }

    @inline(__always) var headFrame: Int {
        get { words.int(LogWords.Field.headFrame) }
        nonmutating set { words.set(LogWords.Field.headFrame, newValue) }
    }
    @inline(__always) var headOffset: Int {
        get { words.int(LogWords.Field.headOffset) }
        nonmutating set { words.set(LogWords.Field.headOffset, newValue) }
    }
    @inline(__always) var headNumber: UInt64 {
        get { words[LogWords.Field.headNumber] }
        nonmutating set { words[LogWords.Field.headNumber] = newValue }
    }
    @inline(__always) var tailOffset: Int {
        get { words.int(LogWords.Field.tailOffset) }
        nonmutating set { words.set(LogWords.Field.tailOffset, newValue) }
    }
    @inline(__always) var tailNumber: UInt64 {
        get { words[LogWords.Field.tailNumber] }
        nonmutating set { words[LogWords.Field.tailNumber] = newValue }
    }
    @inline(__always) var provenTail: UInt64 {
        get { words[LogWords.Field.provenTail] }
        nonmutating set { words[LogWords.Field.provenTail] = newValue }
    }
    /// The tail's position in the ring.
    @inline(__always) var first: Int {
        get { words.int(LogWords.Field.first) }
        nonmutating set { words.set(LogWords.Field.first, newValue) }
    }
    /// Its length in frames.
    @inline(__always) var count: Int {
        get { words.int(LogWords.Field.count) }
        nonmutating set { words.set(LogWords.Field.count, newValue) }
    }
    /// The head goes on to here. Records behind it are none yet.
    func releaseHeadOffset(_ end: Int) {
        words.release(LogWords.Field.headOffset, UInt64(truncatingIfNeeded: end))
    }

    // MARK: Frames

    @inline(__always) var segmentSize: Int { engine.pointee.geometry.segmentSize }

    /// The hot array: which segment is in a frame now. Readers compare it before and after.
    @inline(__always) func numberWord(_ frame: Int) -> Memory {
        assert(frame >= 0 && frame < geometry.rows, "a frame of the shard")
        return header.at + (ShardHeader.size &+ frame &* 8)
    }

    @inline(__always) func offset(ofFrame frame: Int) -> Int {
        engine.pointee.geometry.segments
            &+ ((frame &* engine.pointee.geometry.shards &+ number) &<< engine.pointee.geometry.segmentShift)
    }
    @inline(__always) func frame(of location: UInt32) -> Int {
        (Int(location) &<< 3) &>> engine.pointee.geometry.segmentShift
    }
    @inline(__always) func offsetInSegment(_ location: UInt32) -> Int {
        (Int(location) &<< 3) & (engine.pointee.geometry.segmentSize &- 1)
    }
    /// In the data file.
    @inline(__always) func offset(of location: UInt32) -> Int {
        offset(ofFrame: frame(of: location)) &+ offsetInSegment(location)
    }
    @inline(__always) func address(_ location: UInt32) -> Memory {
        assert(isInside(location), "a location of the shard's log")
        return engine.pointee.data + offset(of: location)
    }
    @inline(__always) func location(frame: Int, offset: Int) -> UInt32 {
        UInt32(truncatingIfNeeded: ((frame &<< engine.pointee.geometry.segmentShift) &+ offset) &>> 3)
    }
    /// Whether a location lies inside the shard's frames: what comes from a slot may be damaged.
    @inline(__always) func isInside(_ location: UInt32) -> Bool {
        frame(of: location) < engine.pointee.geometry.rows
            && offsetInSegment(location) <= segmentSize &- RecordHeader.size
    }
    /// And whether a segment was ever there: a frame without a number may lie beyond the end of the file.
    @inline(__always) func isSound(_ location: UInt32) -> Bool {
        isInside(location) && numberWord(frame(of: location)).u64(0) != 0
    }
    /// The segment that a location is in; 0 where it leads nowhere.
    func segment(of location: UInt32) -> UInt64 { isInside(location) ? numberWord(frame(of: location)).u64(0) : 0 }
    @inline(__always) func recordAddress(of location: UInt32) -> RecordAddress {
        RecordAddress(
            number: numberWord(frame(of: location)).u64(0), offset: UInt64(truncatingIfNeeded: offset(of: location)))
    }

    func state(ofFrame frame: Int) -> Log.FrameState {
        Log.FrameState(rawValue: shim_load8(header.at + geometry.states + frame)) ?? .absent
    }
    func setState(ofFrame frame: Int, _ state: Log.FrameState) {
        shim_store8(header.at + geometry.states + frame, state.rawValue)
    }
    /// A position of the ring, counted from the log's tail: the log goes on from 0, the free frames end at -1.
    private func cell(_ i: Int) -> Memory {
        header.at + geometry.queue + (first + geometry.rows + i) % geometry.rows * 4
    }
    func queued(_ i: Int) -> Int { Int(cell(i).u32(0)) % geometry.rows }
    func setQueued(_ i: Int, _ frame: Int) { cell(i).set32(0, UInt32(frame)) }
}

/// A record that is about to be appended.
struct Draft {
    var record: RecordHeader
    var keyHash: UInt64
    var lifetime = Lifetime.forever
    var tags: UnsafePointer<UInt64>?
    var key: UnsafeRawPointer
    var meta: UnsafeRawPointer
    var stored: UnsafeRawPointer
    var bodyHash: UInt64

    init(
        _ record: RecordHeader, keyHash: UInt64, key: UnsafeRawPointer, meta: UnsafeRawPointer? = nil,
        stored: UnsafeRawPointer? = nil, bodyHash: UInt64 = 0
    ) {
        self.record = record
        self.keyHash = keyHash
        self.key = key
        self.meta = meta ?? key
        self.stored = stored ?? key
        self.bodyHash = bodyHash
    }
}

extension Log {
    // MARK: Frames

    private var indexBytes: Int { header[Field.tablePages] }

    /// What the budget leaves beside tables of so many bytes.
    @inline(__always) func budgetedFrames(beside tables: Int) -> Int {
        min(geometry.rows, max(0, geometry.shardBudget &- tables) &>> geometry.segmentShift)
    }
    @inline(__always) var budgetedFrames: Int { budgetedFrames(beside: indexBytes) }
    /// How many frames the shard may use: what its budget leaves, or, on a full disk, what it has.
    var usableFrames: Int {
        let byBudget = budgetedFrames
        return header[Field.noSpace] > 0 ? min(byBudget, header[Field.allocated]) : byBudget
    }
    /// Frames that a roll can still take.
    var availableFrames: Int { usableFrames - count }

    private func firstFrame(_ state: Log.FrameState) -> Int? {
        for frame in 0..<geometry.rows where self.state(ofFrame: frame) == state { return frame }
        return nil
    }

    /// Sees that a frame is free. Prefers what exists on disk. `overdraws`: one beyond the budget where there is none.
    private func provideFree(overdraws: Bool) throws(Failure) {
        if header[Field.noSpace] > 0 { header[Field.noSpace] -= 1 }
        if header[Field.freeCount] > 0 { return }
        let allowed = overdraws || header[Field.allocated] < budgetedFrames
        var cause: Failure?
        // Also where the disk was full lately: otherwise the call fails for certain.
        if allowed, let frame = firstFrame(.absent) {
            do throws(Failure) {
                try allocate(frame)
                return
            } catch { cause = error }
        }
        if let frame = firstFrame(.preparing) {
            try takeOver(frame)
            return
        }
        throw cause ?? filled()
    }

    /// A frame that holds no segment is free, and goes first.
    private func addFree(_ frame: Int) {
        header.begin()
        setQueued(-1 - header[Field.freeCount], frame)
        change(frame: frame, to: .free)
        header.commit(Field.freeCount, by: 1)
    }

    /// A frame that takes space from here on, or takes none any more.
    private func changeAllocated(_ frame: Int, to state: Log.FrameState, by step: Int) {
        header.begin()
        change(frame: frame, to: state)
        header.commit(Field.allocated, by: step)
    }

    /// Counted first, so that a kill in between never lets the directory outgrow its capacity.
    private func allocate(_ frame: Int) throws(Failure) {
        Holes(engine: engine).forget(number, frame: frame)
        changeAllocated(frame, to: .preparing, by: 1)
        do throws(Failure) { try engine.pointee.files.allocateData(offset(ofFrame: frame), segmentSize) } catch {
            giveUp(frame)
            if error.isDiskFull { header[Field.noSpace] = Log.patience }
            throw error
        }
        Holes(engine: engine).touchEnds(number, frame: frame)
        addFree(frame)
    }

    /// A frame that somebody else prepares, who is slow, or dead: allocating twice does no harm.
    private func takeOver(_ frame: Int) throws(Failure) {
        header[Field.takeovers] += 1
        try engine.pointee.files.allocateData(offset(ofFrame: frame), segmentSize)
        addFree(frame)
    }

    func takeOverAll() throws(Failure) {
        while hasPreparations, let frame = firstFrame(.preparing) { try takeOver(frame) }
    }

    /// Where nobody else is attached: what writers were preparing that are gone.
    func abandonPreparations() {
        for frame in 0..<geometry.rows where state(ofFrame: frame) == .preparing { giveUp(frame) }
    }
    /// What is on disk, neither in the log nor free.
    var hasPreparations: Bool { freeFrames > header[Field.freeCount] }

    /// What could be allocated of a frame goes back, or counts as a frame that is not ready yet.
    @inline(never)
    private func giveUp(_ frame: Int) {
        guard engine.pointee.files.releaseData(offset(ofFrame: frame), segmentSize) else { return }
        changeAllocated(frame, to: .absent, by: -1)
    }

    /// Frames that are on disk and not in the log, and those that somebody prepares.
    var freeFrames: Int { header[Field.allocated] - count }

    /// Allocates until so many frames are free, whatever the budget: while a cache shrinks, the larger one is in force.
    func provide(_ frames: Int) throws(Failure) {
        try takeOverAll()
        while freeFrames < frames, let frame = firstFrame(.absent) {
            try allocate(frame)
        }
    }

    /// Gives free frames back to the file system until the budget holds with `extra` more bytes.
    func trim(extra: Int = 0) {
        while header[Field.allocated] * segmentSize + indexBytes + extra > geometry.shardBudget,
            freeFrames > reserve, releaseFree()
        {}
    }

    /// Gives free frames back until there are no more than so many frames on disk.
    func giveBack(downTo most: Int) {
        while header[Field.allocated] > most, releaseFree() {}
    }

    /// Gives the first of the free frames back to the file system.
    private func releaseFree() -> Bool {
        guard header[Field.freeCount] > 0, !engine.pointee.isReadOnly else { return false }
        let frame = queued(-header[Field.freeCount])
        numberWord(frame).release(0, 0)
        shim_fence_release()
        // Whatever becomes of its blocks, no later rebuild finds this segment after newer ones have gone.
        SegmentHeader.destroy(at: engine.pointee.data + offset(ofFrame: frame))
        // Before its blocks go: a kill in between must not leave a hole that passes for a frame.
        header.begin()
        change(frame: frame, to: .preparing)
        header.commit(Field.freeCount, by: -1)
        shim_fence_release()
        guard engine.pointee.files.releaseData(offset(ofFrame: frame), segmentSize) else {
            addFree(frame)
            return false
        }
        changeAllocated(frame, to: .absent, by: -1)
        Holes(engine: engine).touchNeighbours(number, frame: frame)
        return true
    }

    /// Whether the next roll should find one more frame on disk: there is none, or the log is about to
    /// be cleaned for want of frames that it may still have.
    var wantsFrame: Bool {
        header[Field.allocated] == count
            || header[Field.allocated] < usableFrames && availableFrames <= wantedFree + 1
    }

    /// Whether the head's segment fills so fast that its pages will be full before the kernel writes them back, after
    /// 30 seconds by default. A huge page is written whole: a set now and then must not cost 2 MiB of writing.
    private var isFast: Bool { UInt64(truncatingIfNeeded: shim_now_ms()) &- header[Field.begunTime] < 10_000 }
    /// Pages of the file's own cache are as large as the segment allows, where the file system has such.
    private var hasHugePages: Bool { !geometry.hasSmallPages && !engine.pointee.files.isMemory }

    struct Preparation { let frame: Int, takeovers: Int }
    enum Prepared { case done, full, failed }

    /// Without the lock: allocates a frame that `beginPreparing` has chosen, and populates it where the head fills
    /// fast.
    func prepare(_ frame: Int) -> Prepared {
        do throws(Failure) { try engine.pointee.files.allocateData(offset(ofFrame: frame), segmentSize) } catch {
            // Any other cause is this handle's own; the next roll says what it is.
            return error.isDiskFull ? .full : .failed
        }
        Holes(engine: engine).touchEnds(number, frame: frame)
        if isFast {
            let p = engine.pointee.data + offset(ofFrame: frame)
            if hasHugePages { shim_sys_huge_pages(p, segmentSize) }
            shim_sys_populate(p, segmentSize)
        }
        return .done
    }

    func beginPreparing() -> Preparation? {
        if wantsFrame, header[Field.noSpace] == 0, header[Field.allocated] < budgetedFrames,
            let frame = firstFrame(.absent)
        {
            header.beginChange()
            Holes(engine: engine).forget(number, frame: frame)
            changeAllocated(frame, to: .preparing, by: 1)
            header.endChange()
            return Preparation(frame: frame, takeovers: header[Field.takeovers])
        }
        return nil
    }

    func endPreparing(_ own: Preparation, _ result: Prepared) {
        // A frame that was taken over, used and given back may be in preparation again, by somebody else. Where
        // that cannot be ruled out it stays as it is: whoever needs it takes it over.
        header.beginChange()
        defer { header.endChange() }
        guard state(ofFrame: own.frame) == .preparing, header[Field.takeovers] == own.takeovers else {
            // Given back before it was allocated: nobody counts it.
            if result == .done, state(ofFrame: own.frame) == .absent {
                _ = engine.pointee.files.releaseData(offset(ofFrame: own.frame), segmentSize)
            }
            return
        }
        if result == .done { addFree(own.frame) } else { giveUp(own.frame) }
        if result == .full { header[Field.noSpace] = Log.patience }
    }

    /// Within a transaction: changes a frame's state. `isNewHead`: its segment's header is written as well.
    func change(frame: Int, to state: Log.FrameState, isNewHead: Bool = false) {
        let before = UInt64(self.state(ofFrame: frame).rawValue)
        header.release(Field.frame, UInt64(frame) | before << 32 | (isNewHead ? 1 << 40 : 0) | 1 << 48)
        setState(ofFrame: frame, state)
    }

    // MARK: Appending

    /// What a record at an offset may take: it fits behind any segment's header, with an end record behind it,
    /// or the cleaner could not move it.
    func room(from offset: Int) -> Int { min(segmentSize - offset, segmentRoom) }
    var segmentRoom: Int { segmentSize - SegmentHeader.size - RecordHeader.size }
    var headRoom: Int { segmentSize - headOffset - RecordHeader.size }

    /// Ends the head and begins a segment. `isNewTail`: the log starts here; `finishClear` frees all before it.
    func roll(isNewTail: Bool = false, overdraws: Bool = false) throws(Failure) {
        try provideFree(overdraws: overdraws)
        let frame = queued(-header[Field.freeCount]), previous = headNumber, newNumber = nextNumber
        // (Also where this is taken back: no two frames ever have the same number.)
        header[Field.lastNumber] = newNumber
        header.begin()
        if count > 0, headOffset <= segmentSize - RecordHeader.size {
            var end = Draft(RecordHeader(kind: .end, keyLength: 0), keyHash: 0, key: UnsafeRawPointer(header.at))
            write(&end)
        }
        let startsLog = count == 0
        if !startsLog { header[Field.usualGap] += (max(0, headRoom) - header[Field.usualGap]) / 8 }
        let newTail = isNewTail || startsLog ? LogPosition(number: newNumber, offset: SegmentHeader.size) : tail
        change(frame: frame, to: .inLog, isNewHead: true)
        // Readers that still hold the frame's old records see the number change before the bytes do.
        numberWord(frame).release(0, newNumber)
        shim_fence_release()
        SegmentHeader(
            shard: number, frame: frame, number: newNumber, previous: previous, tail: newTail,
            lsn: engine.pointee.head[IndexHead.lsn]
        )
        .write(to: engine.pointee.data + offset(ofFrame: frame), secret: secret)
        // The first of the free frames becomes the head.
        setQueued(count, frame)
        header[Field.freeCount] -= 1
        count += 1
        headFrame = frame
        header[Field.begunTime] = UInt64(truncatingIfNeeded: shim_now_ms())
        headOffset = SegmentHeader.size
        if !isNewTail { provenTail = newTail.number }
        if startsLog {
            tailOffset = SegmentHeader.size
            tailNumber = newNumber
        }
        if isNewTail { header.pend(ShardHeader.Pending.clear) }
        header.commit(words.address(LogWords.Field.headNumber), newNumber)
    }

    /// The tail's segment leaves the log; its bytes stay readable until the frame is used again.
    func releaseTail() {
        let left = count - 1
        header.begin()
        change(frame: queued(0), to: .free)
        tailOffset = SegmentHeader.size
        first = (first + 1) % geometry.rows
        header[Field.freeCount] += 1
        tailNumber = left > 0 ? numberWord(queued(0)).u64(0) : nextNumber
        header.commit(words.address(LogWords.Field.count), UInt64(left))
    }

    /// A rebuild begins here at the earliest from now on. (A power cut may undo that, with all that came after the
    /// last sync.)
    func prove(_ tail: LogPosition) throws(Failure) {
        try SyncedPosition.writeTail(engine, shard: number, tail)
        provenTail = max(provenTail, tail.number)
    }

    /// The number of the next segment.
    var nextNumber: UInt64 { max(headNumber, header[Field.lastNumber]) + 1 }

    /// Where the log begins: what is before it is dead.
    var tail: LogPosition { LogPosition(number: tailNumber, offset: tailOffset) }

    /// For a rebuild. In three steps, so that a kill in between leaves no tail that is too far on.
    func setTail(_ position: LogPosition) {
        tailOffset = SegmentHeader.size
        tailNumber = position.number
        tailOffset = isOffset(position.offset) ? position.offset : SegmentHeader.size
    }

    /// Whether a record, or a segment's end, can be there.
    func isOffset(_ offset: Int) -> Bool {
        offset >= SegmentHeader.size && offset <= segmentSize && offset & 7 == 0
    }

    /// Appends at the head, where the caller has made room. Returns the location.
    @discardableResult
    func append(_ draft: inout Draft, lsn: UInt64) -> UInt32 {
        draft.record.lsn = lsn
        return write(&draft)
    }

    @discardableResult
    private func write(_ draft: inout Draft) -> UInt32 {
        assert(headOffset + draft.record.length <= segmentSize, "room for the record in the head")
        let at = location(frame: headFrame, offset: headOffset)
        let p = self.address(at)
        let address = RecordAddress(number: headNumber, offset: UInt64(offset(of: at)))
        var record = draft.record
        record.bodyCheck = draft.bodyHash ^ address.mix(secret: secret)
        record.writeUnsealed(to: p)
        var q = p + RecordHeader.size
        if record.keepsStale {
            q.set(0, draft.lifetime.staleWord)
            q += 8
        }
        if let tags = draft.tags {
            for i in 0..<record.tagCount { (q + i * 8).set(0, tags[i]) }
            q += record.tagCount * 8
        }
        shim_copy(q, draft.key, record.keyLength)
        q += record.keyLength
        if record.metaLength > 0 { shim_copy(q, draft.meta, record.metaLength) }
        q += record.metaLength
        if record.storedLength > 0 { shim_copy(q, draft.stored, record.storedLength) }
        record.setHeadCheck(record.computeHeadCheck(at: p, keyHash: draft.keyHash, address: address, secret: secret))
        record.seal(at: p)
        draft.record = record
        headOffset += record.length
        #if SHALE_FAULTS
        shim_count_appended(record.length)
        #endif
        return at
    }

    // MARK: Errors

    /// Nothing is left that may be evicted.
    func filled() -> Failure {
        if header[Field.pinnedBytes] > 0 {
            return noSpace("pinned entries fill the cache; unpin or remove some, or raise its capacity")
        }
        return noSpace(
            header[Field.noSpace] > 0
                ? "the disk is full; free space on it, or give the cache a smaller capacity"
                : """
                large values that are being written fill the cache; try again when they are stored, or raise its \
                capacity
                """
        )
    }

    @inline(never)
    func noSpace(_ why: StaticString) -> Failure {
        Message().adding("no space in ").adding(engine.pointee.files.path).adding(": ").adding(why).failure(.full)
    }
}
