import CShalePlatform

/// A shard's header in the index: 2,304 bytes of words, grouped by who writes
/// them. Readers that hold no lock share the second line, which writers touch
/// only when the table's shape, the tags or the whole shard change.
struct ShardHeader: MappedWords {
    static let size = 2304
    /// The words that a transaction may change, and where it keeps what they were before.
    static let saved = 200, savedSize = 640 - saved, savepoint = 1024
    /// Moves of a pass over the table that are under way: pairs of slots, from and to.
    static let moves = 1536, mostMoves = 64

    let at: Memory

    /// A word that is a number of things or bytes.
    struct Count {
        let offset: Int
        init(_ offset: Int) { self.offset = offset }
        /// Its bits.
        @inline(__always) var word: Word { Word(offset) }
        /// Of several, one behind the other.
        @inline(__always) subscript(_ i: Int) -> Count { Count(offset &+ i &* 8) }
    }
    typealias Word = MappedWord<ShardHeader>

    enum Field {
        static let mutex = 0
        // Read by everyone.
        static let shape = Word(64), moves = Word(72), epoch = Word(80), tagGenerations = Word(88),
            entriesHint = Word(96)
        // A counter that every hit may advance, on a line of its own.
        static let stamp = Word(128)
        // Writers, under the lock.
        static let state = Word(192), entries = Count(200), live = Count(208), raw = Count(216), stored = Count(224),
            pinned = Count(232), used = Count(240)
        /// Frames that a roll can take, in front of the log in the ring.
        static let freeCount = Count(248)
        // 256: the log's (`LogWords`).
        static let tablePages = Count(320), ghost = Word(328), lastNumber = Word(336),
            diskFullCountdown = Count(344)
        /// The longest pinned record, or a longer one (bit 0: it may have gone); and what is pinned in bytes.
        static let pinnedMost = Count(352), pinnedBytes = Count(360)
        /// What has to be finished once it was begun: `Pending`.
        static let pending = Count(368)
        /// Frames on disk.
        static let allocated = Count(376)
        static let sweepAt = Count(384), sweepLimit = Word(392), sweepState = Count(400), heapCounts = Count(408),
            heapCurrent = Count(424),
            rebases = Count(432), heapLimit = Word(440)
        static let sets = Count(448), removes = Count(456), evictions = Count(464), expirations = Count(472),
            invalidations = Count(480), cleaned = Count(488),
            corrupt = Count(496), rebuilds = Count(504)
        static let dictionaries = Count(512) // 16 words
        /// When the head's segment was begun: milliseconds since 1970.
        static let begunTime = Word(640)
        /// `Unsure`: whether the sums may be wrong until an audit has ended.
        static let unsure = Word(648)
        /// Where the head was, and the time, when what is pinned and gone was sought in vain: hints.
        static let soughtNumber = Word(656), soughtOffset = Count(664), soughtTime = Word(672)
        /// The tail's segment, where some of it could not be read: up to which hash fraction entries that need it were sought,
        /// and how many were lost.
        static let damagedTail = Word(680), damageAt = Word(688), damageLost = Count(696)
        // For whoever locks the shard after its writer was killed: see `Recovery`.
        /// Not zero while a transaction is open; the word that commits it, and its value then.
        static let transaction = Word(704), commitAt = Count(712), commitValue = Word(720)
        /// The slot whose second word the transaction has replaced, by what, and what it was.
        static let stampedSlot = Count(728), stampedNew = Word(736), stampedOld = Word(744)
        /// The frame whose state the transaction changes.
        static let frame = Word(752)
        /// How far an audit is, if one is under way: `auditBegins` and the fractions that it has passed. (Each change looks
        /// here, and has this line at hand.)
        static let auditAt = Word(760)
        /// The slot whose record is being copied to the head, and where the head ends with the copy.
        static let copiedSlot = Count(792), copyEnd = Count(800)
        /// A move within the table; how many of a pass's moves are under way, and the shape that ends them.
        static let relocation = Word(768), moveCount = Count(776), moveShape = Word(784)
        /// How often a frame was taken that somebody was preparing.
        static let takeovers = Count(816)
        /// How many sets there had been when the longest pinned record was looked for.
        static let pinsSoughtAt = Count(824)
        // For fenced sets: numbers of changes, which only rise.
        /// Nothing is known of what happened to keys and tags before; no tag was invalidated or expired later; and not zero
        /// once a token was drawn.
        static let fenceFloor = Word(832), lastTagChange = Word(840), notesChanges = Word(848)
        /// How many moments `UseTimes` has, and the stamp at which the next is due.
        static let useTimes = Count(856), useTimeDue = Word(864)
        /// How many evicted entries the sums are of, and the sums: milliseconds since they were set, and since they
        /// were used.
        static let evictedTimed = Word(872), evictedAge = Word(880), evictedIdle = Word(888)
        // For the adaptive policy: hints, which any value is good for.
        /// Where it looks for the next victim away from the tail.
        static let handNumber = Word(904), handOffset = Count(912)
        /// Bytes that a segment usually has left at its end.
        static let usualGap = Count(920)
        /// Fenced sets that were refused, by `Shard.Refusal`: 4 words.
        static let refusals = Count(928)
        /// Of each generation of tags: how many it has, and how many of these were carried over; and how far the sweep for the
        /// older one is.
        static let tagCounts = Count(960), tagsCarried = Count(976), tagSweep = Word(992)
        /// Leases that were granted and not recorded.
        static let leasesUnrecorded = Word(1016)
        /// The sums of an audit: 24 words (`Sums`).
        static let auditedSums = Count(2056)
    }

    static let auditBegins: UInt64 = 1

    enum Unsure {
        /// They come from an index without checksums that a sole writer has attached to: counted when they are needed.
        static let attached: UInt64 = 1
        /// An entry was lost whose sizes could not be read.
        static let damaged: UInt64 = 2
    }

    /// State words: what a writer that died was doing, or what is left to be done with a new index.
    enum State {
        static let quiet: UInt64 = 0, writing: UInt64 = 1, rebuilding: UInt64 = 2
        /// Bits beside `rebuilding`. The log is all that is known, as after a power cut: the index is a new one.
        static let isNew: UInt64 = 4
        /// All but parts of large values was replayed; these are left until the manifests of all shards are known.
        static let lacksParts: UInt64 = 8
        /// Beside `lacksParts`: they are being replayed. After a kill all begins anew.
        static let replaysParts: UInt64 = 16

        static func isOne(_ word: UInt64) -> Bool {
            word <= writing || word & ~(isNew | lacksParts | replaysParts) == rebuilding
        }
    }

    /// How far the sweep for victims is.
    enum SweepState { static let idle = 0, sweeping = 1, restart = 2, complete = 3 }

    /// Changes of a whole shard, a bit each: a writer that finds one set finishes it. `tail`: the log has no room until the
    /// tail's segment is clean, so a call that wants to append goes on with it first.
    enum Pending { static let clear = 1, clearInPlace = 2, tail = 4, rebase = 16 }

    @inline(__always) subscript(_ field: Count) -> Int {
        get { address(field.word).int(0) }
        nonmutating set { address(field.word).set(0, int: newValue) }
    }
    @inline(__always) func release(_ field: Count, _ value: Int) {
        address(field.word).release(0, UInt64(truncatingIfNeeded: value))
    }

    /// Whether tags may have ended entries.
    @inline(__always) var hasTags: Bool { acquire(Field.tagGenerations) > 1 }

    @inline(__always) var isBeingRebuilt: Bool { moment.isOfRebuild }
    @inline(__always) var lacksParts: Bool { acquire(Field.state) & State.lacksParts != 0 }
    /// Whether the table has all current manifests, as of that moment.
    func hasManifests(_ moment: Moment) -> Bool { !moment.isOfRebuild || lacksParts }

    /// What a reader without the lock takes before it looks for a key, and compares behind it: what it has not found may
    /// have moved meanwhile, or the shard may have been rebuilt.
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
