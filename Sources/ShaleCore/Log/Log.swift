import CShalePlatform

/// The log of a shard: a queue of segments, appended at the head, cleaned at the tail.
///
/// One ring holds the frames: the free ones, in the order in which they were freed, then the log from tail to head.
/// Cleaning moves the border between the two; a roll moves the first free frame to the end. So frames are reused and
/// given back in the order in which they were freed: the segments that can still be read are always the newest, without
/// a gap, and no record disappears before one that it supersedes.
///
/// Invariants
/// - a frame is in the log exactly while its state is `inLog`, and before the log in the ring while it is `free`;
/// - a segment's number is stored in the hot array, followed by a release fence, before its bytes change;
/// - the head has room for an end record;
/// - callers leave `reserve` frames to the cleaner, which needs at most two to empty the tail.
struct Log {
    typealias Field = ShardHeader.Field

    enum FrameState: UInt8 { case absent = 0, free, inLog, preparing }
    static let reserve = 2
    static let patience = Sizes.patience
    /// Bytes of damage to read at once in search of the next record.
    static let mostSkipped = 64 << 10

    let engine: EngineRef
    /// The shard's number.
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
    /// Length in frames.
    @inline(__always) var count: Int {
        get { words.int(LogWords.Field.count) }
        nonmutating set { words.set(LogWords.Field.count, newValue) }
    }
    /// Moves the head's end. Bytes behind it are no records yet.
    func releaseHeadOffset(_ end: Int) {
        words.release(LogWords.Field.headOffset, UInt64(truncatingIfNeeded: end))
    }

    // MARK: Frames

    @inline(__always) var segmentSize: Int { engine.pointee.geometry.segmentSize }

    /// The hot array: the number of the segment in a frame. Readers compare it before and after they read.
    @inline(__always) func numberWord(_ frame: Int) -> Memory {
        assert(frame >= 0 && frame < geometry.framesPerShard, "a frame of the shard")
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
    /// Offset in the data file.
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
    /// Whether a location lies inside the shard's frames: a damaged slot may lead elsewhere.
    @inline(__always) func isInside(_ location: UInt32) -> Bool {
        frame(of: location) < engine.pointee.geometry.framesPerShard
            && offsetInSegment(location) <= segmentSize &- RecordHeader.size
    }
    /// Whether, in addition, the frame has ever held a segment: one without a number may lie beyond the end of the
    /// file.
    @inline(__always) func isSound(_ location: UInt32) -> Bool {
        isInside(location) && numberWord(frame(of: location)).u64(0) != 0
    }
    /// Returns the number of the segment that a location is in; 0 if it is outside the shard.
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
    /// A position of the ring relative to the tail: the log begins at 0, the free frames end at -1.
    private func cell(_ i: Int) -> Memory {
        assert(abs(i) <= geometry.framesPerShard, "a place in the queue: free frames are before the first one")
        return header.at + geometry.queue + (first + geometry.framesPerShard + i) % geometry.framesPerShard * 4
    }
    func queued(_ i: Int) -> Int { Int(cell(i).u32(0)) % geometry.framesPerShard }
    func setQueued(_ i: Int, _ frame: Int) { cell(i).set32(0, UInt32(frame)) }

    /// Within a transaction: changes a frame's state. `isNewHead`: its segment's header is written as well.
    func change(frame: Int, to state: Log.FrameState, isNewHead: Bool = false) {
        let before = UInt64(self.state(ofFrame: frame).rawValue)
        header.release(Field.frame, UInt64(frame) | before << 32 | (isNewHead ? 1 << 40 : 0) | 1 << 48)
        setState(ofFrame: frame, state)
    }

    /// Makes later rebuilds begin at `tail` or later. (A power failure may undo that, with everything since the last
    /// sync.)
    func prove(_ tail: LogPosition) throws(Failure) {
        try SyncedPosition.writeTail(engine, shard: number, tail)
        provenTail = max(provenTail, tail.number)
    }

    var nextNumber: UInt64 { max(headNumber, header[Field.lastNumber]) + 1 }

    /// Where the log begins: everything before it is dead.
    var tail: LogPosition { LogPosition(number: tailNumber, offset: tailOffset) }

    /// For a rebuild. In three steps, so that a kill in between leaves no tail that is too far ahead.
    func setTail(_ position: LogPosition) {
        tailOffset = SegmentHeader.size
        tailNumber = position.number
        tailOffset = isOffset(position.offset) ? position.offset : SegmentHeader.size
    }

    /// Whether a record, or a segment's end, can be at an offset.
    func isOffset(_ offset: Int) -> Bool {
        offset >= SegmentHeader.size && offset <= segmentSize && offset & 7 == 0
    }

    // MARK: Errors

    /// The error if no entry is left that may be evicted.
    func filled() -> Failure {
        if header[Field.pinnedBytes] > 0 {
            return noSpace("pinned entries fill the cache; unpin or remove some, or raise its capacity")
        }
        return noSpace(
            header[Field.diskFullCountdown] > 0
                ? "the disk is full; free space on it, or give the cache a smaller capacity"
                : """
                large values that are being written fill the cache; try again when they are stored, or raise its \
                capacity
                """
        )
    }

    func indexFilled() -> Failure {
        noSpace("pinned entries fill the index; unpin or remove some, or raise the capacity")
    }

    @inline(never)
    func noSpace(_ why: StaticString) -> Failure {
        Message().adding("no space in ").adding(engine.pointee.files.path).adding(": ").adding(why).failure(.full)
    }

    /// Returns how many bytes a record at an offset may take: it must fit behind any segment's header, with an end
    /// record behind it, or the cleaner could not move it.
    func room(from offset: Int) -> Int { min(segmentSize - offset, segmentRoom) }

    var segmentRoom: Int { segmentSize - SegmentHeader.size - RecordHeader.size }
    var headRoom: Int { segmentSize - headOffset - RecordHeader.size }
}
