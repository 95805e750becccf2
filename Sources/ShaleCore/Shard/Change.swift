import CShalePlatform

/// A change in progress: its time, and the work left for after the lock is released.
struct Change {
    /// Milliseconds since 1970.
    let now: UInt64
    /// Unlinked manifests whose parts are cleared in their own shards, and manifests that lost a part to make room and
    /// are unlinked as well.
    var blobs: (Blob, Blob, Blob, Blob) = (Blob(), Blob(), Blob(), Blob())
    static let mostBlobs = 4
    var blobCount = 0
    var wantsFrame = false
    /// Whether the call has allocated a chunk of a larger table. (Not again: it may need the space itself.)
    var hasPrepared = false
    /// A part of another shard's value, in a shard full of such parts: its owner should be evicted.
    var crowdedBy: PartKey?
    /// Shards whose table has tried to grow although the disk was full, one bit each.
    private var triedShards: UInt64 = 0
    /// Whether the call asks for the shard for the first time; notes it.
    mutating func triesDisk(ofShard number: Int) -> Bool {
        let bit = UInt64(1) << UInt64(number & 63)
        defer { triedShards |= bit }
        return triedShards & bit == 0
    }

    /// Whether unlinking in other shards makes room here: then the call runs again (`Shard.write`).
    var makesRoomElsewhere: Bool { blobCount > 0 || crowdedBy != nil }
    /// The call's key: its entry is the last to be evicted for the call.
    let key: Key?
    /// Whether its entry must not be evicted: the lock is released before the entry is replaced.
    var keepsOwn = false
    /// Whether cleaning twice round the log, so as not to evict it, has not freed enough frames.
    var hasRegained = false
    /// Whether it was evicted all the same: that the entry is missing is then the call's own doing.
    var ownIsDead = false
    /// Pinned bytes of the entry to be replaced.
    var replaced = 0
    /// Bytes to be pinned, beside those already pinned.
    var pinning = 0

    // MARK: From one hold of the lock to the next

    /// What is left of a hold's share of work (`Share`). Recovery has no limit.
    var left = Int.max
    var share = Int.max
    /// How often the call has paused, and whether others waited for the lock at the last pause.
    var pauses = 0, isLockWanted = false
    /// In this hold.
    var hasEvicted = false, hasWalked = false
    var progress = Progress()
    private var isUsed = false

    /// The progress of a call that pauses.
    struct Progress {
        var walks = Walks()
        /// Sets in the shard before the walk for the least recently used entry.
        var setsBefore = 0
        /// Whether it is looking for dead pinned entries, and whether it has audited the pinned sums.
        var isSeeking = false, hasAudited = false
        /// Where the head was when the search began.
        var soughtNumber: UInt64 = 0, soughtOffset = 0
        /// Whether it needs the sums of an audit that is in progress or has ended.
        var awaitsAudit = false
        /// Segments that CLOCK's hand has passed without a victim; consecutive heaps without one.
        var handSegments = 0, barrenHeaps = 0
        /// Bytes cleaned at the pace of appends.
        var cleaned = 0
        /// Segments cleaned for lack of a frame, and how many of them since the last eviction.
        var forced = 0, idle = 0
        /// The segment being cleaned, how much of it, and the live bytes down to which entries are evicted first.
        var forcedSegment: UInt64 = 0, forcedBytes = 0, forcedAim = Int.max
        /// The segment emptied because nothing can be copied from it, the position, and whether entries are evicted
        /// yet: a first pass looks for entries that have to stay.
        var emptiedSegment: UInt64 = 0, emptiedOffset = 0, isEmptying = false
        /// The last segment to clean for lack of frames, so as to keep the call's own entry; 0: none yet.
        var regainsUntil: UInt64 = 0
        /// The last segment to clean so that the table can grow; records cleaned so that an entry leaves.
        var growsUntil: UInt64 = 0, cleanedForEntry = 0
        /// Whether a get has found its entry damaged or incomplete; the entry's segment and LSN.
        var isUnreadable = false, unreadableSegment: UInt64 = 0, unreadableVersion: UInt64 = 0
        /// Whether an expire found no room for its touch record.
        var removesInstead = false
        /// Steps of a pass over the table that the call still has to do; nil: it has met none.
        var tableSteps: Int?
        /// Whether a set has evicted entries for a table that pinned ones will need.
        var hasEvictedForTable = false
        /// How often a set has found no slot near its key's home, and searched farther.
        var searches = 0
        /// How often the table has grown because no slot near the key's home was free.
        var growths = 0
        /// Steps of the tag sweep that the call still has to do.
        var tagSteps = 0, hasTagSteps = false
        /// A large value, and how many of its parts were found so far.
        var wholeBlob: UInt64 = 0, wholeParts = 0
    }

    /// Called before a shard is changed, and before each repetition.
    mutating func begin() {
        if isUsed { progress = Progress() }
        isUsed = true
    }

    var hasShare: Bool { share != .max }

    /// Notes that the call evicts its own entry. It ends in this hold: in a later one the entry would be missing,
    /// visible to others.
    mutating func evictOwn() {
        #if SHALE_FAULTS
        if !ownIsDead { shim_rest_of_hold(("its own entry made room" as StaticString).utf8Start) }
        #endif
        ownIsDead = true
        left = .max
    }

    /// Begins a call's change. Throws if the handle may not write: every changing call starts here.
    @inline(__always)
    init(_ engine: EngineRef, of key: Key? = nil) throws(Failure) {
        try engine.checkWritable()
        now = engine.pointee.clock.now48
        self.key = key
        share = Share.ofHold
    }

    init(now: UInt64) {
        self.now = now
        key = nil
    }
    static var withoutTime: Change { Change(now: 0) }

    struct Blob {
        var blob: UInt64 = 0
        var owner: UInt64 = 0
        /// 0: it has lost a part.
        var parts = 0
    }

    /// Adds a value whose parts are to be cleared. Beyond `mostBlobs`, the cleaner unlinks ownerless parts, and readers
    /// incomplete values.
    mutating func add(_ blob: Blob) {
        if blob.parts == 0, blobCount > 0, blobs.0.blob == blob.blob { return }
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
