import CShalePlatform

/// The log of a shard: a queue of segments, appended at the head, cleaned at the tail.
///
/// One ring holds the places: those that are free, the one that was freed first in front, then the log from
/// the tail to the head. Cleaning moves the border between the two; a roll takes the front and puts it at the end.
/// So places are reused, and given back, in the order in which they were freed: the segments that can still
/// be read are always the newest ones, without a gap, and no record is gone while one that it supersedes is left.
///
/// Invariants
/// - a place is in the log exactly while its state is `inLog`, and in front of it while it is `free`;
/// - a segment's number is stored in the hot array, behind a release fence, before its bytes change;
/// - the head has room for an end record;
/// - callers leave `reserve` places to the cleaner, which needs at most two to empty the tail.
struct Log {
    typealias Field = ShardHeader.Field

    enum PlaceState: UInt8 { case absent = 0, free, inLog, preparing }
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

    // MARK: Places

    @inline(__always) var segmentSize: Int { engine.pointee.geometry.segmentSize }

    /// The hot array: which segment is in a place now. Readers compare it before and after.
    @inline(__always) func numberWord(_ place: Int) -> Memory {
        assert(place >= 0 && place < geometry.rows, "a place of the shard")
        return header.at + (ShardHeader.size &+ place &* 8)
    }

    @inline(__always) func offset(ofPlace place: Int) -> Int {
        engine.pointee.geometry.segments
            &+ ((place &* engine.pointee.geometry.shards &+ number) &<< engine.pointee.geometry.segmentShift)
    }
    @inline(__always) func place(of location: UInt32) -> Int {
        (Int(location) &<< 3) &>> engine.pointee.geometry.segmentShift
    }
    @inline(__always) func offsetInSegment(_ location: UInt32) -> Int {
        (Int(location) &<< 3) & (engine.pointee.geometry.segmentSize &- 1)
    }
    /// In the data file.
    @inline(__always) func offset(of location: UInt32) -> Int {
        offset(ofPlace: place(of: location)) &+ offsetInSegment(location)
    }
    @inline(__always) func address(_ location: UInt32) -> Memory {
        assert(isInside(location), "a location of the shard's log")
        return engine.pointee.data + offset(of: location)
    }
    @inline(__always) func location(place: Int, offset: Int) -> UInt32 {
        UInt32(truncatingIfNeeded: ((place &<< engine.pointee.geometry.segmentShift) &+ offset) &>> 3)
    }
    /// Whether a location lies inside the shard's places: what comes from a slot may be damaged.
    @inline(__always) func isInside(_ location: UInt32) -> Bool {
        place(of: location) < engine.pointee.geometry.rows
            && offsetInSegment(location) <= segmentSize &- RecordHeader.size
    }
    /// And whether a segment was ever there: a place without a number may lie beyond the end of the file.
    @inline(__always) func isSound(_ location: UInt32) -> Bool {
        isInside(location) && numberWord(place(of: location)).u64(0) != 0
    }
    /// The segment that a location is in; 0 where it leads nowhere.
    func segment(of location: UInt32) -> UInt64 { isInside(location) ? numberWord(place(of: location)).u64(0) : 0 }
    @inline(__always) func placeOf(_ location: UInt32) -> Place {
        Place(number: numberWord(place(of: location)).u64(0), offset: UInt64(truncatingIfNeeded: offset(of: location)))
    }

    func state(ofPlace place: Int) -> Log.PlaceState {
        Log.PlaceState(rawValue: (header.at + geometry.states + place).load(as: UInt8.self)) ?? .absent
    }
    func setState(ofPlace place: Int, _ state: Log.PlaceState) {
        shim_store8(header.at + geometry.states + place, state.rawValue)
    }
    /// A position of the ring, counted from the log's tail: the log goes on from 0, the free places end at -1.
    private func cell(_ i: Int) -> Memory {
        header.at + geometry.queue + (header[Field.queueFirst] + geometry.rows + i) % geometry.rows * 4
    }
    func queued(_ i: Int) -> Int { Int(cell(i).u32(0)) % geometry.rows }
    func setQueued(_ i: Int, _ place: Int) { cell(i).set32(0, UInt32(place)) }
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
    // MARK: Places

    private var indexBytes: Int { header[Field.tablePages] }

    /// What the budget leaves beside the tables.
    @inline(__always) var budgetedPlaces: Int {
        min(geometry.rows, max(0, geometry.shardBudget &- indexBytes) &>> geometry.segmentShift)
    }
    /// How many places the shard may use: what its budget leaves beside the tables, or, on a full
    /// disk, what it has.
    var usablePlaces: Int {
        let byBudget = budgetedPlaces
        return header[Field.noSpace] > 0 ? min(byBudget, header[Field.allocated]) : byBudget
    }
    /// Places that a roll can still take.
    var availablePlaces: Int { usablePlaces - header[Field.queueCount] }

    private func firstPlace(_ state: Log.PlaceState) -> Int? {
        for place in 0..<geometry.rows where self.state(ofPlace: place) == state { return place }
        return nil
    }

    /// Sees that a place is free. Prefers what exists on disk. `overdraws`: one beyond the budget where there is none.
    private func provideFree(overdraws: Bool) throws(Failure) {
        if header[Field.noSpace] > 0 { header[Field.noSpace] -= 1 }
        if header[Field.freeCount] > 0 { return }
        let allowed = overdraws || header[Field.allocated] < budgetedPlaces
        var cause: Failure?
        // Also where the disk was full lately: otherwise the call fails for certain.
        if allowed, let place = firstPlace(.absent) {
            do throws(Failure) {
                try allocate(place)
                return
            } catch { cause = error }
        }
        if let place = firstPlace(.preparing) {
            try takeOver(place)
            return
        }
        throw cause ?? filled()
    }

    /// A place that holds no segment is free, and goes first.
    private func addFree(_ place: Int) {
        header.begin()
        setQueued(-1 - header[Field.freeCount], place)
        change(frame: place, to: .free)
        header.commit(Field.freeCount, by: 1)
    }

    /// A place that takes space from here on, or takes none any more.
    private func changeAllocated(_ place: Int, to state: Log.PlaceState, by step: Int) {
        header.begin()
        change(frame: place, to: state)
        header.commit(Field.allocated, by: step)
    }

    /// Counted first, so that a kill in between never lets the directory outgrow its capacity.
    private func allocate(_ place: Int) throws(Failure) {
        Holes(engine: engine).forget(number, place: place)
        changeAllocated(place, to: .preparing, by: 1)
        do throws(Failure) { try engine.pointee.files.allocateData(offset(ofPlace: place), segmentSize) } catch {
            giveUp(place)
            if error.isDiskFull { header[Field.noSpace] = Log.patience }
            throw error
        }
        Holes(engine: engine).touchEnds(number, place: place)
        addFree(place)
    }

    /// A place that somebody else prepares, who is slow, or dead: allocating twice does no harm.
    private func takeOver(_ place: Int) throws(Failure) {
        header[Field.takeovers] += 1
        try engine.pointee.files.allocateData(offset(ofPlace: place), segmentSize)
        addFree(place)
    }

    func takeOverAll() throws(Failure) {
        while hasPreparations, let place = firstPlace(.preparing) { try takeOver(place) }
    }

    /// Where nobody else is attached: what writers were preparing that are gone.
    func abandonPreparations() {
        for place in 0..<geometry.rows where state(ofPlace: place) == .preparing { giveUp(place) }
    }
    /// What is on disk, neither in the log nor free.
    var hasPreparations: Bool { freePlaces > header[Field.freeCount] }

    /// What could be allocated of a place goes back, or counts as a place that is not ready yet.
    @inline(never)
    private func giveUp(_ place: Int) {
        guard engine.pointee.files.releaseData(offset(ofPlace: place), segmentSize) else { return }
        changeAllocated(place, to: .absent, by: -1)
    }

    /// Places that are on disk and not in the log, and those that somebody prepares.
    var freePlaces: Int { header[Field.allocated] - header[Field.queueCount] }

    /// Allocates until so many places are free, whatever the budget: while a cache shrinks, the larger one is in force.
    func provide(_ places: Int) throws(Failure) {
        try takeOverAll()
        while freePlaces < places, let place = firstPlace(.absent) {
            try allocate(place)
        }
    }

    /// Gives free places back to the file system until the budget holds with `extra` more bytes.
    func trim(extra: Int = 0) {
        while header[Field.allocated] * segmentSize + indexBytes + extra > geometry.shardBudget,
            freePlaces > reserve, releaseFree()
        {}
    }

    /// Gives free places back until there are no more than so many places on disk.
    func giveBack(downTo most: Int) {
        while header[Field.allocated] > most, releaseFree() {}
    }

    /// Gives the first of the free places back to the file system.
    private func releaseFree() -> Bool {
        guard header[Field.freeCount] > 0, !engine.pointee.isReadOnly else { return false }
        let place = queued(-header[Field.freeCount])
        numberWord(place).release(0, 0)
        shim_fence_release()
        // Whatever becomes of its blocks, no later rebuild finds this segment after newer ones have gone.
        SegmentHeader.destroy(at: engine.pointee.data + offset(ofPlace: place))
        // Before its blocks go: a kill in between must not leave a hole that passes for a place.
        header.begin()
        change(frame: place, to: .preparing)
        header.commit(Field.freeCount, by: -1)
        shim_fence_release()
        guard engine.pointee.files.releaseData(offset(ofPlace: place), segmentSize) else {
            addFree(place)
            return false
        }
        changeAllocated(place, to: .absent, by: -1)
        Holes(engine: engine).touchNeighbours(number, place: place)
        return true
    }

    /// Whether the next roll should find one more place on disk: there is none, or the log is about to
    /// be cleaned for want of places that it may still have.
    var wantsPlace: Bool {
        header[Field.allocated] == header[Field.queueCount]
            || header[Field.allocated] < usablePlaces && availablePlaces <= wantedFree + 1
    }

    /// Whether the head's segment fills so fast that its pages will be full before the kernel writes them back, after
    /// 30 seconds by default. A huge page is written whole: a set now and then must not cost 2 MiB of writing.
    private var isFast: Bool { UInt64(truncatingIfNeeded: shim_now_ms()) &- header.at.u64(Field.begunTime) < 10_000 }
    /// Pages of the file's own cache are as large as the segment allows, where the file system has such.
    private var hasHugePages: Bool { !geometry.hasSmallPages && !engine.pointee.files.isMemory }

    struct Preparation { let place: Int, takeovers: Int }
    enum Prepared { case done, full, failed }

    /// Without the lock: allocates a place that `beginPreparing` has chosen, and populates it where the head fills
    /// fast.
    func prepare(_ place: Int) -> Prepared {
        do throws(Failure) { try engine.pointee.files.allocateData(offset(ofPlace: place), segmentSize) } catch {
            // Any other cause is this handle's own; the next roll says what it is.
            return error.isDiskFull ? .full : .failed
        }
        Holes(engine: engine).touchEnds(number, place: place)
        if isFast {
            let p = engine.pointee.data + offset(ofPlace: place)
            if hasHugePages { shim_sys_huge_pages(p, segmentSize) }
            shim_sys_populate(p, segmentSize)
        }
        return .done
    }

    func beginPreparing() -> Preparation? {
        if wantsPlace, header[Field.noSpace] == 0, header[Field.allocated] < budgetedPlaces,
            let place = firstPlace(.absent)
        {
            header.beginChange()
            Holes(engine: engine).forget(number, place: place)
            changeAllocated(place, to: .preparing, by: 1)
            header.endChange()
            return Preparation(place: place, takeovers: header[Field.takeovers])
        }
        return nil
    }

    func endPreparing(_ own: Preparation, _ result: Prepared) {
        // A place that was taken over, used and given back may be in preparation again, by somebody else. Where
        // that cannot be ruled out it stays as it is: whoever needs it takes it over.
        header.beginChange()
        defer { header.endChange() }
        guard state(ofPlace: own.place) == .preparing, header[Field.takeovers] == own.takeovers else {
            // Given back before it was allocated: nobody counts it.
            if result == .done, state(ofPlace: own.place) == .absent {
                _ = engine.pointee.files.releaseData(offset(ofPlace: own.place), segmentSize)
            }
            return
        }
        if result == .done { addFree(own.place) } else { giveUp(own.place) }
        if result == .full { header[Field.noSpace] = Log.patience }
    }

    /// Within a transaction: changes a frame's state. `isNewHead`: its segment's header is written as well.
    func change(frame: Int, to state: Log.PlaceState, isNewHead: Bool = false) {
        let before = UInt64(self.state(ofPlace: frame).rawValue)
        header.at.release(Field.frame, UInt64(frame) | before << 32 | (isNewHead ? 1 << 40 : 0) | 1 << 48)
        setState(ofPlace: frame, state)
    }

    // MARK: Appending

    /// What a record at an offset may take: it fits behind any segment's header, with an end record behind it,
    /// or the cleaner could not move it.
    func room(from offset: Int) -> Int { min(segmentSize - offset, segmentRoom) }
    var segmentRoom: Int { segmentSize - SegmentHeader.size - RecordHeader.size }
    var headRoom: Int { segmentSize - header[Field.headOffset] - RecordHeader.size }

    /// Ends the head and begins a segment. `isNewTail`: the log starts here; `finishClear` frees all before it.
    func roll(isNewTail: Bool = false, overdraws: Bool = false) throws(Failure) {
        try provideFree(overdraws: overdraws)
        let place = queued(-header[Field.freeCount]), previous = header.at.u64(Field.headNumber), newNumber = nextNumber
        // (Also where this is taken back: no two places ever have the same number.)
        header.at.set(Field.lastNumber, newNumber)
        header.begin()
        if header[Field.queueCount] > 0, header[Field.headOffset] <= segmentSize - RecordHeader.size {
            var end = Draft(RecordHeader(kind: .end, keyLength: 0), keyHash: 0, key: UnsafeRawPointer(header.at))
            write(&end)
        }
        let startsLog = header[Field.queueCount] == 0
        let newTail = isNewTail || startsLog ? LogPosition(number: newNumber, offset: SegmentHeader.size) : tail
        change(frame: place, to: .inLog, isNewHead: true)
        // Readers that still hold the place's old records see the number change before the bytes do.
        numberWord(place).release(0, newNumber)
        shim_fence_release()
        SegmentHeader(
            shard: number, place: place, number: newNumber, previous: previous, tail: newTail,
            lsn: engine.pointee.index.u64(IndexHead.lsn)
        )
        .write(to: engine.pointee.data + offset(ofPlace: place), secret: secret)
        // The first of the free places becomes the head.
        setQueued(header[Field.queueCount], place)
        header[Field.freeCount] -= 1
        header[Field.queueCount] += 1
        header[Field.headPlace] = place
        header.at.set(Field.begunTime, UInt64(truncatingIfNeeded: shim_now_ms()))
        header[Field.headOffset] = SegmentHeader.size
        if !isNewTail { header.at.set(Field.provenTail, newTail.number) }
        if startsLog {
            header[Field.tailOffset] = SegmentHeader.size
            header.at.set(Field.tailNumber, newNumber)
        }
        if isNewTail { header.pend(ShardHeader.Pending.clear) }
        header.commit(header.at + Field.headNumber, newNumber)
    }

    /// The tail's segment leaves the log; its bytes stay readable until the place is used again.
    func releaseTail() {
        let left = header[Field.queueCount] - 1
        header.begin()
        change(frame: queued(0), to: .free)
        header[Field.tailOffset] = SegmentHeader.size
        header[Field.queueFirst] = (header[Field.queueFirst] + 1) % geometry.rows
        header[Field.freeCount] += 1
        header.at.set(Field.tailNumber, left > 0 ? numberWord(queued(0)).u64(0) : nextNumber)
        header.commit(Field.queueCount, by: -1)
    }

    /// A rebuild begins here at the earliest from now on. (A power cut may undo that, with all that came after the
    /// last sync.)
    func prove(_ tail: LogPosition) throws(Failure) {
        try SyncedPosition.writeTail(engine, shard: number, tail)
        guard geometry.hasSyncedTails else { return }
        header.at.set(Field.provenTail, max(header.at.u64(Field.provenTail), tail.number))
    }

    /// The number of the next segment.
    var nextNumber: UInt64 { max(header.at.u64(Field.headNumber), header.at.u64(Field.lastNumber)) + 1 }

    /// Where the log begins: what is before it is dead.
    var tail: LogPosition { LogPosition(number: header.at.u64(Field.tailNumber), offset: header[Field.tailOffset]) }

    /// For a rebuild. In three steps, so that a kill in between leaves no tail that is too far on.
    func setTail(_ position: LogPosition) {
        header[Field.tailOffset] = SegmentHeader.size
        header.at.set(Field.tailNumber, position.number)
        header[Field.tailOffset] = isOffset(position.offset) ? position.offset : SegmentHeader.size
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
        assert(header[Field.headOffset] + draft.record.length <= segmentSize, "room for the record in the head")
        let at = location(place: header[Field.headPlace], offset: header[Field.headOffset])
        let p = address(at)
        let place = Place(number: header.at.u64(Field.headNumber), offset: UInt64(offset(of: at)))
        var record = draft.record
        record.bodyCheck = draft.bodyHash ^ place.mix(secret: secret)
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
        record.setHeadCheck(record.computeHeadCheck(at: p, keyHash: draft.keyHash, place: place, secret: secret))
        record.seal(at: p)
        draft.record = record
        header[Field.headOffset] += record.length
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
