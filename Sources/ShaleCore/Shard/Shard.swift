import CShalePlatform

/// A complete small cache: one lock for writers, one slot table, one log.
///
/// Invariants, under the lock while `state` is quiet
/// - every slot points to a record of the log whose key has the slot's fraction;
/// - `entries`, `used`, `live`, `raw`, `stored` and `pinned` are the sums over the slots;
/// - the queue holds the log's places from the tail to the head, numbers ascending;
/// - at least `Log.reserve` places are left for the cleaner.
struct Shard {
    typealias Field = ShardHeader.Field

    let engine: EngineRef
    let number: Int
    let header: ShardHeader

    @inline(__always)
    init(_ engine: EngineRef, _ number: Int) {
        self.engine = engine
        self.number = number
        header = ShardHeader(at: engine.pointee.index + (Geometry.indexHead &+ number &* engine.pointee.geometry.shardStride))
    }

    @inline(__always) init(_ engine: EngineRef, keyHash: UInt64) {
        self.init(engine, Int(truncatingIfNeeded: (keyHash >> 32 &* UInt64(truncatingIfNeeded: engine.pointee.geometry.shards)) >> 32))
    }

    @inline(__always) var geometry: Geometry { @inline(__always) get { engine.pointee.geometry } }
    @inline(__always) var secret: UInt64 { engine.pointee.secret }
    @inline(__always) var table: Table { Table(header: header, buckets: header.at + engine.pointee.geometry.table) }
    var tags: TagTable { TagTable(header: header, at: header.at + engine.pointee.geometry.tags) }
    var leases: LeaseTable { LeaseTable(at: header.at + engine.pointee.geometry.leases) }
    var victims: Victims {
        Victims(table: table, heaps: (header.at + engine.pointee.geometry.heaps.0, header.at + engine.pointee.geometry.heaps.1))
    }

    // MARK: Places

    @inline(__always) var segmentSize: Int { engine.pointee.geometry.segmentSize }

    /// The hot array: which segment is in a place now. Readers compare it before and after.
    @inline(__always) func numberWord(_ place: Int) -> Memory { header.at + (ShardHeader.size &+ place &* 8) }

    @inline(__always) func offset(ofPlace place: Int) -> Int {
        engine.pointee.geometry.segments &+ ((place &* engine.pointee.geometry.shards &+ number) &<< engine.pointee.geometry.segmentShift)
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
    @inline(__always) func address(_ location: UInt32) -> Memory { engine.pointee.data + offset(of: location) }
    @inline(__always) func location(place: Int, offset: Int) -> UInt32 {
        UInt32(truncatingIfNeeded: ((place &<< engine.pointee.geometry.segmentShift) &+ offset) &>> 3)
    }
    /// Whether a location lies inside the shard's places: what comes from a slot may be damaged.
    @inline(__always) func isInside(_ location: UInt32) -> Bool {
        place(of: location) < engine.pointee.geometry.rows && offsetInSegment(location) <= segmentSize &- RecordHeader.size
    }
    /// And whether a segment was ever there: a place without a number may lie beyond the end of the file.
    @inline(__always) func isSound(_ location: UInt32) -> Bool {
        isInside(location) && numberWord(place(of: location)).u64(0) != 0
    }
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

    // MARK: Time and recency

    @inline(__always) func nextStamp() -> UInt64 {
        let stamp = shim_add64(header.at + Field.stamp, 1) &+ 1
        return stamp
    }
    func drawLSN() -> UInt64 { shim_add64(engine.pointee.index + IndexHead.lsn, 1) &+ 1 }

    // MARK: Lock

    /// Whoever finds that a writer died settles what it was changing.
    func lock() throws(Failure) {
        let result = shim_mutex_lock(header.at + Field.mutex)
        guard result == 0 || result == shim_owner_dead() else {
            throw Message().adding("cannot lock a shard of ").adding(engine.pointee.files.path).adding(": ").adding(errno: result)
                .adding("; close every user of the cache and open it again").failure(.io, errno: result)
        }
        let state = header.at.u64(Field.state)
        if state != ShardHeader.State.quiet {
            do throws(Failure) {
                if state == ShardHeader.State.writing { try recover() } else { try rebuild() }
            } catch {
                unlock()
                throw error
            }
        }
    }
    func unlock() { shim_mutex_unlock(header.at + Field.mutex) }

    /// The marks around a change.
    @inline(__always) func beginChange() {
        header.at.set(Field.state, ShardHeader.State.writing)
        shim_fence_release()
    }
    @inline(__always) func endChange() { header.at.release(Field.state, ShardHeader.State.quiet) }

    /// Runs a change under the lock, marked, and afterwards what must not be done under it.
    @inline(__always)
    func change<R>(_ after: inout Aftermath, _ body: (inout Aftermath) throws(Failure) -> R) throws(Failure) -> R {
        try Engine(engine).checkWritable()
        try lock()
        beginChange()
        rebaseStampsIfNeeded()
        defer {
            endChange()
            unlock()
        }
        return try body(&after)
    }

    /// A reader that meets a rebuild waits for it.
    func waitForRebuild() throws(Failure) {
        if engine.pointee.isReadOnly {
            // Its mapping cannot take the lock; the rebuild takes a tenth of a second.
            for _ in 0..<20_000 {
                if header.at.acquire(Field.epoch) & 1 == 0 { return }
                shim_sleep_us(500)
            }
            throw Failure.because(.busy, "the cache is being rebuilt and its writer does not go on; open it for writing to recover it")
        }
        try lock()
        unlock()
    }
}

/// What a change leaves to be done once the lock is released.
struct Aftermath {
    /// Manifests that went; their parts are cleared in their own shards.
    var blobs: (Blob, Blob, Blob, Blob) = (Blob(), Blob(), Blob(), Blob())
    static let mostBlobs = 4
    var blobCount = 0
    /// A place that the next roll will want.
    var wantsPlace = false
    /// A shard full of other shards' parts names one, whose owner should go.
    var crowdedBy: PartKey?

    struct Blob {
        var blob: UInt64 = 0
        var owner: UInt64 = 0
        var parts = 0
    }

    /// More than a few at once are left to the cleaner, which drops parts that nobody owns.
    mutating func add(_ blob: Blob) {
        switch blobCount {
        case 0: blobs.0 = blob
        case 1: blobs.1 = blob
        case 2: blobs.2 = blob
        case 3: blobs.3 = blob
        default: return
        }
        blobCount += 1
    }
}
