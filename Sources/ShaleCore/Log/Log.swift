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
enum Log {
    enum PlaceState: UInt8 { case absent = 0, free, inLog, preparing }
    static let reserve = 2
    static let patience = Sizes.patience
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

    init(_ record: RecordHeader, keyHash: UInt64, key: UnsafeRawPointer, meta: UnsafeRawPointer? = nil, stored: UnsafeRawPointer? = nil, bodyHash: UInt64 = 0) {
        self.record = record
        self.keyHash = keyHash
        self.key = key
        self.meta = meta ?? key
        self.stored = stored ?? key
        self.bodyHash = bodyHash
    }
}

extension Shard {
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
        begin()
        setQueued(-1 - header[Field.freeCount], place)
        change(frame: place, to: .free)
        commit(Field.freeCount, by: 1)
    }

    /// A place that takes space from here on, or takes none any more.
    private func changeAllocated(_ place: Int, to state: Log.PlaceState, by step: Int) {
        begin()
        change(frame: place, to: state)
        commit(Field.allocated, by: step)
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
              freePlaces > reserve, releaseFree() {}
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
        begin()
        change(frame: place, to: .preparing)
        commit(Field.freeCount, by: -1)
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
        header[Field.allocated] == header[Field.queueCount] || header[Field.allocated] < usablePlaces && availablePlaces <= wantedFree + 1
    }

    /// Whether the head's segment fills so fast that its pages will be full before the kernel writes them back, after
    /// 30 seconds by default. A huge page is written whole: a set now and then must not cost 2 MiB of writing.
    private var isFast: Bool { UInt64(truncatingIfNeeded: shim_now_ms()) &- header.at.u64(Field.begunTime) < 10_000 }
    /// Pages of the file's own cache are as large as the segment allows, where the file system has such.
    private var hasHugePages: Bool { !geometry.hasSmallPages && !engine.pointee.files.isMemory }

    /// Allocates the next place before anyone holds the lock for it, and populates it where the head fills fast.
    func prepareNextPlace() {
        guard (try? lock()) != nil else { return }
        let chosen = beginPreparing()
        unlock()
        guard let chosen else { return }
        let place = chosen.place
        var done = true, isFull = false
        do throws(Failure) { try engine.pointee.files.allocateData(offset(ofPlace: place), segmentSize) } catch {
            done = false
            isFull = error.isDiskFull
        }
        if done { Holes(engine: engine).touchEnds(number, place: place) }
        if done, isFast {
            let p = engine.pointee.data + offset(ofPlace: place)
            if hasHugePages { shim_sys_huge_pages(p, segmentSize) }
            shim_sys_populate(p, segmentSize)
        }
        guard (try? lock()) != nil else { return }
        endPreparing(chosen, isDone: done, isFull: isFull)
        unlock()
    }

    struct Preparation { let place: Int, takeovers: Int }

    func beginPreparing() -> Preparation? {
        if wantsPlace, header[Field.noSpace] == 0, header[Field.allocated] < budgetedPlaces, let place = firstPlace(.absent) {
            beginChange()
            Holes(engine: engine).forget(number, place: place)
            changeAllocated(place, to: .preparing, by: 1)
            endChange()
            return Preparation(place: place, takeovers: header[Field.takeovers])
        }
        return nil
    }

    func endPreparing(_ own: Preparation, isDone: Bool, isFull: Bool) {
        // A place that was taken over, used and given back may be in preparation again, by somebody else. Where
        // that cannot be ruled out it stays as it is: whoever needs it takes it over.
        beginChange()
        defer { endChange() }
        guard state(ofPlace: own.place) == .preparing, header[Field.takeovers] == own.takeovers else {
            // Given back before it was allocated: nobody counts it.
            if isDone, state(ofPlace: own.place) == .absent { _ = engine.pointee.files.releaseData(offset(ofPlace: own.place), segmentSize) }
            return
        }
        if isDone { addFree(own.place) } else { giveUp(own.place) }
        // Any other cause is this handle's own; the next roll says what it is.
        if isFull { header[Field.noSpace] = Log.patience }
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
        begin()
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
        SegmentHeader(shard: number, place: place, number: newNumber, previous: previous, tail: newTail, lsn: engine.pointee.index.u64(IndexHead.lsn))
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
        if isNewTail { pend(ShardHeader.Pending.clear) }
        commit(header.at + Field.headNumber, newNumber)
    }

    /// The tail's segment leaves the log; its bytes stay readable until the place is used again.
    func releaseTail() {
        let left = header[Field.queueCount] - 1
        begin()
        change(frame: queued(0), to: .free)
        header[Field.tailOffset] = SegmentHeader.size
        header[Field.queueFirst] = (header[Field.queueFirst] + 1) % geometry.rows
        header[Field.freeCount] += 1
        header.at.set(Field.tailNumber, left > 0 ? numberWord(queued(0)).u64(0) : nextNumber)
        commit(Field.queueCount, by: -1)
    }

    /// A rebuild begins here at the earliest from now on. (A power cut may undo that, with all that came after the last sync.)
    func prove(_ tail: LogPosition) throws(Failure) {
        try SyncedPosition.writeTail(engine, shard: number, tail)
        guard geometry.hasSyncedTails else { return }
        header.at.set(Field.provenTail, max(header.at.u64(Field.provenTail), tail.number))
    }

    /// The number of the next segment.
    var nextNumber: UInt64 { max(header.at.u64(Field.headNumber), header.at.u64(Field.lastNumber)) + 1 }

    /// Where the log begins: what is before it is dead.
    var tail: LogPosition { LogPosition(number: header.at.u64(Field.tailNumber), offset: header[Field.tailOffset]) }

    /// Appends at the head, where the caller has made room. Returns the location.
    @discardableResult
    func append(_ draft: inout Draft, lsn: UInt64) -> UInt32 {
        draft.record.lsn = lsn
        return write(&draft)
    }

    @discardableResult
    private func write(_ draft: inout Draft) -> UInt32 {
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
}
