import CShalePlatform

/// A shard's header in the index: 2,304 bytes of words, grouped by writer. Readers without the lock use the second
/// line, which writers change only with the table's shape, the tags or the whole shard.
struct ShardHeader: MappedWords {
    static let size = 2304
    /// The words that a transaction may change, and the offset of their savepoint.
    static let saved = 200, savedSize = 640 - saved, savepoint = 1024
    /// Moves of a pass over the table that are under way: pairs of slots, from and to.
    static let moves = 1536, mostMoves = 64

    let at: Memory

    /// A word that counts things or bytes.
    struct Count {
        let offset: Int
        init(_ offset: Int) { self.offset = offset }
        @inline(__always) var word: Word { Word(offset) }
        @inline(__always) subscript(_ i: Int) -> Count { Count(offset &+ i &* 8) }
    }
    typealias Word = MappedWord<ShardHeader>

    enum Field {
        /// Not the first word, for which ThreadSanitizer takes each store to a word of the header.
        static let lock = 8
        // Read without the lock.
        static let shape = Word(64), moves = Word(72), epoch = Word(80), tagGenerations = Word(88),
            entriesHint = Word(96)
        // A counter that every hit may advance, on a line of its own.
        static let stamp = Word(128)
        // Changed under the lock.
        static let state = Word(192), entries = Count(200), live = Count(208), raw = Count(216), stored = Count(224),
            pinned = Count(232), used = Count(240)
        /// Frames that a roll can take; they precede the log in the ring.
        static let freeCount = Count(248)
        // 256: the log's words (`LogWords`).
        static let tablePages = Count(320), residual = Word(328), lastNumber = Word(336),
            diskFullCountdown = Count(344)
        /// The longest pinned record, or an upper bound (bit 0: that record may have left); and the bytes of pinned
        /// records.
        static let pinnedMost = Count(352), pinnedBytes = Count(360)
        /// Changes that must be finished once begun: `Pending`.
        static let pending = Count(368)
        /// Frames on disk.
        static let allocated = Count(376)
        static let sweepAt = Count(384), sweepLimit = Word(392), sweepState = Count(400), heapCounts = Count(408),
            heapCurrent = Count(424),
            renumberings = Count(432), heapLimit = Word(440)
        static let sets = Count(448), removes = Count(456), evictions = Count(464), expirations = Count(472),
            invalidations = Count(480), cleaned = Count(488),
            corrupt = Count(496), rebuilds = Count(504)
        static let dictionaries = Count(512) // 16 words
        /// When the head's segment was begun: milliseconds since 1970.
        static let begunTime = Word(640)
        /// `Unsure`: whether the sums may be wrong until an audit ends.
        static let unsure = Word(648)
        /// The head's position and the time of the last futile search for expired pinned entries: hints.
        static let soughtNumber = Word(656), soughtOffset = Count(664), soughtTime = Word(672)
        /// The tail's segment, if part of it could not be read; the hash bits up to which entries that need it were
        /// searched for, and how many were lost.
        static let damagedTail = Word(680), damageAt = Word(688), damageLost = Count(696)
        // For the next writer after a kill: see `Recovery`.
        /// Nonzero while a transaction is open; its commit word, and the value that commits it.
        static let transaction = Word(704), commitAt = Count(712), commitValue = Word(720)
        /// The slot whose second word the transaction has replaced, the new word and the old one.
        static let stampedSlot = Count(728), stampedNew = Word(736), stampedOld = Word(744)
        /// The frame whose state the transaction changes.
        static let frame = Word(752)
        /// Progress of an audit under way: `auditBegins` and the hash bits that it has passed. (Each change reads it,
        /// and uses this line anyway.)
        static let auditAt = Word(760)
        /// The slot whose record is being copied to the head, and where the head ends with the copy.
        static let copiedSlot = Count(792), copyEnd = Count(800)
        /// A move within the table; the number of a pass's moves under way, and the shape that ends them.
        static let relocation = Word(768), moveCount = Count(776), moveShape = Word(784)
        /// Bytes of the chunks up to which pages are known to be allocated, also beyond the table; 0: unknown.
        static let tableReady = Count(808)
        /// How many frames were taken over that another caller was preparing.
        static let takeovers = Count(816)
        /// The number of sets when the longest pinned record was last determined.
        static let pinsSoughtAt = Count(824)
        // For fenced sets: numbers of changes, which only rise.
        /// Earlier changes of keys and tags are unknown; upper bound of all changes of tags; nonzero once a token was
        /// drawn.
        static let fenceFloor = Word(832), lastTagChange = Word(840), notesChanges = Word(848)
        /// The number of `AccessClock`'s pairs, and the stamp at which the next is due.
        static let accessClock = Count(856), accessClockDue = Word(864)
        /// How many evicted entries the sums cover, and the sums: milliseconds since they were set, and since they were
        /// used.
        static let evictedTimed = Word(872), evictedAge = Word(880), evictedIdle = Word(888)
        // For the CLOCK policy: hints, for which any value is safe.
        /// Where the search for the next victim away from the tail continues.
        static let handNumber = Word(904), handOffset = Count(912)
        /// Bytes that a segment usually leaves unused at its end.
        static let usualGap = Count(920)
        /// Refused fenced sets, by `FenceTable.Refusal`: 4 words.
        static let refusals = Count(928)
        /// For each generation of tags, how many it has and how many of them were carried over; and the progress of the
        /// sweep for the older one.
        static let tagCounts = Count(960), tagsCarried = Count(976), tagSweep = Word(992)
        /// Leases that were granted but not recorded.
        static let leasesUnrecorded = Word(1016)
        /// The sums of an audit: 24 words (`Sums`).
        static let auditedSums = Count(2056)
    }

    static let auditBegins: UInt64 = 1

    enum Unsure {
        /// They come from an index without checksums that a sole writer attached to: counted when needed.
        static let attached: UInt64 = 1
        /// An entry was lost whose sizes were unreadable.
        static let damaged: UInt64 = 2
    }

    /// State words: what a killed writer was doing, or what remains to be done with a new index.
    enum State {
        static let quiet: UInt64 = 0, writing: UInt64 = 1, rebuilding: UInt64 = 2
        /// Bits beside `rebuilding`. Only the log is known, as after a power failure: the index is new.
        static let isNew: UInt64 = 4
        /// Everything but parts of large values was replayed; parts wait until the manifests of all shards are known.
        static let lacksParts: UInt64 = 8
        /// Beside `lacksParts`: parts are being replayed. A kill restarts the whole rebuild.
        static let replaysParts: UInt64 = 16

        static func isOne(_ word: UInt64) -> Bool {
            word <= writing || word & ~(isNew | lacksParts | replaysParts) == rebuilding
        }
    }

    /// Progress of the sweep for victims.
    enum SweepState { static let idle = 0, sweeping = 1, restart = 2, complete = 3 }

    /// Changes of a whole shard, one bit each: a writer that finds one set finishes the change. `tail`: the log has no
    /// room until the tail's segment is clean, so a call that appends finishes that first.
    enum Pending { static let clear = 1, clearInPlace = 2, tail = 4, renumber = 16 }

    @inline(__always) subscript(_ field: Count) -> Int {
        get { address(field.word).int(0) }
        nonmutating set { address(field.word).set(0, int: newValue) }
    }
    @inline(__always) func release(_ field: Count, _ value: Int) {
        address(field.word).release(0, UInt64(truncatingIfNeeded: value))
    }

    /// Whether tags may have ended entries, or made them stale.
    @inline(__always) var hasTags: Bool { acquire(Field.tagGenerations) > 1 }

    @inline(__always) var isBeingRebuilt: Bool { moment.isOfRebuild }
    @inline(__always) var lacksParts: Bool { acquire(Field.state) & State.lacksParts != 0 }
    /// Whether the table has all current manifests, as of that moment.
    func hasManifests(_ moment: Moment) -> Bool { !moment.isOfRebuild || lacksParts }

    /// What a reader without the lock loads before it searches for a key and compares afterwards: a key that it did not
    /// find may have moved meanwhile, or the shard may have been rebuilt.
    struct Moment {
        let epoch, moves: UInt64
        @inline(__always) var isOfRebuild: Bool { epoch & 1 != 0 }
    }
    @inline(__always) var moment: Moment { Moment(epoch: acquire(Field.epoch), moves: acquire(Field.moves)) }
    @inline(__always) func isStill(_ moment: Moment) -> Bool {
        shim_fence_acquire()
        return acquire(Field.moves) == moment.moves && acquire(Field.epoch) == moment.epoch
    }
}
