import CShalePlatform

/// A change under way in a shard: its time, and what is left to be done once the lock is released.
struct Change {
    /// Milliseconds since 1970.
    let now: UInt64
    /// Manifests that went, whose parts are cleared in their own shards; and some that a part was taken from to make
    /// room, which go as well.
    var blobs: (Blob, Blob, Blob, Blob) = (Blob(), Blob(), Blob(), Blob())
    static let mostBlobs = 4
    var blobCount = 0
    /// A frame that the next roll will want.
    var wantsFrame = false
    /// A shard full of other shards' parts names one, whose owner should go.
    var crowdedBy: PartKey?
    /// Shards whose table has tried to grow although the disk was full: a bit each.
    private var triedShards: UInt64 = 0
    /// Whether this is the first time that the call asks for the shard, and notes it.
    mutating func triesDisk(ofShard number: Int) -> Bool {
        let bit = UInt64(1) << UInt64(number & 63)
        defer { triedShards |= bit }
        return triedShards & bit == 0
    }

    /// What goes in other shards makes room here: a call that has found none is made again (`Shard.write`).
    var makesRoomElsewhere: Bool { blobCount > 0 || crowdedBy != nil }
    /// The key that the call is about: its entry is the last to make room for the call.
    let key: Key?
    /// Its entry makes no room: the lock is released before it is replaced.
    var keepsOwn = false
    /// Twice round the log was cleaned for want of frames, lest it should, and was not enough.
    var hasRegained = false
    /// It had to make room all the same: what the call finds of it is no other's doing.
    var ownIsGone = false
    /// Pinned bytes of the entry that is about to be replaced.
    var replaced = 0
    /// Bytes that are about to be pinned, beside those that are.
    var pinning = 0

    // MARK: From one hold of the lock to the next

    /// What is left of the work that a hold may do (`Share`). Those that put a shard in order have no limit.
    var left = Int.max
    var share = Int.max
    /// How often it has paused, and whether others waited for the lock then.
    var pauses = 0, isLockWanted = false
    /// In this hold.
    var hasEvicted = false, hasWalked = false
    var progress = Progress()
    private var isUsed = false

    /// How far a call is that pauses.
    struct Progress {
        var walks = Walks()
        /// It looks for what is pinned and gone, and has counted anew what is pinned.
        var isSeeking = false, hasAudited = false
        /// Where the head was when that began.
        var soughtNumber: UInt64 = 0, soughtOffset = 0
        /// It needs the sums that an audit comes to, which is under way or has ended.
        var awaitsAudit = false
        /// Segments that the adaptive policy's hand has been through without a victim; heaps in a row that had none.
        var handSegments = 0, barrenHeaps = 0
        /// Bytes that were cleaned at the pace of what is appended.
        var cleaned = 0
        /// Segments that were cleaned for want of a frame, and how many of them since the last eviction.
        var forced = 0, idle = 0
        /// The one that is being cleaned, how much of it, and the live bytes down to which entries are evicted first.
        var forcedSegment: UInt64 = 0, forcedBytes = 0, forcedAim = Int.max
        /// The segment that is emptied because nothing can be copied from it, up to where, and whether what is in it leaves
        /// already: first it is looked through for what has to stay.
        var emptiedSegment: UInt64 = 0, emptiedOffset = 0, isEmptying = false
        /// The last segment that is cleaned for want of frames, lest the call's own entry should make room; 0: none was yet.
        var regainsUntil: UInt64 = 0
        /// The last segment that is cleaned so that the table can grow; records that were, so that an entry leaves.
        var growsUntil: UInt64 = 0, cleanedForEntry = 0
        /// A get has found its entry damaged or incomplete: where that was, and its lsn.
        var isUnreadable = false, unreadableSegment: UInt64 = 0, unreadableVersion: UInt64 = 0
        /// An expiry finds no room for its touch record.
        var removesInstead = false
        /// How often the table has grown because no slot near the key's home was free.
        var growths = 0
        /// Steps of the tags' sweep that the call still owes.
        var tagSteps = 0, hasTagSteps = false
        /// A large value, and how many of its parts are there.
        var wholeBlob: UInt64 = 0, wholeParts = 0
    }

    /// Before a shard is changed, and once room was made for that elsewhere.
    mutating func begin() {
        if isUsed { progress = Progress() }
        isUsed = true
    }

    var hasShare: Bool { share != .max }

    /// The call's own entry has made room for it. The call ends in this hold: in another, it would be about an entry that is
    /// missing, and others could see that.
    mutating func loseOwn() {
        #if SHALE_FAULTS
        if !ownIsGone { shim_rest_of_hold(("its own entry made room" as StaticString).utf8Start) }
        #endif
        ownIsGone = true
        left = .max
    }

    /// A call's, which throws where its handle may not write. Every call that changes something begins with it.
    @inline(__always)
    init(_ engine: EngineRef, of key: Key? = nil) throws(Failure) {
        try engine.checkWritable()
        now = engine.pointee.clock.now48
        self.key = key
        share = Share.ofHold
    }

    /// Of those who put a shard in order.
    init(now: UInt64) {
        self.now = now
        key = nil
    }
    /// Nothing expires in it.
    static var withoutTime: Change { Change(now: 0) }

    struct Blob {
        var blob: UInt64 = 0
        var owner: UInt64 = 0
        /// 0: it has lost one.
        var parts = 0
    }

    /// More than a few at once are left to the cleaner, which drops parts that nobody owns, and to readers, who drop
    /// what lacks one.
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
