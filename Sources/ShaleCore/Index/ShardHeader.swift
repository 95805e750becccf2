import CShalePlatform

/// A shard's header in the index: 2048 bytes of words, grouped by who writes
/// them. Readers that hold no lock share the second line, which writers touch
/// only when the table's shape, the tags or the whole shard change.
struct ShardHeader {
    static let size = 2048
    /// The words that a transaction may change, and where it keeps what they were before.
    static let saved = 200, savedSize = 640 - saved, savepoint = 1024
    /// Moves of a pass over the table that are under way: pairs of slots, from and to.
    static let moves = 1536, mostMoves = 64

    let at: Memory

    enum Field {
        static let mutex = 0
        // Read by everyone.
        static let shape = 64, moves = 72, epoch = 80, tagCount = 88, entriesHint = 96
        // A counter that every hit may advance, on a line of its own.
        static let stamp = 128
        // Writers, under the lock.
        static let state = 192, entries = 200, live = 208, raw = 216, stored = 224, pinned = 232, used = 240
        /// Places that a roll can take, in front of the log in the ring.
        static let freeCount = 248
        static let headPlace = 256, headOffset = 264, headNumber = 272, tailOffset = 280, queueFirst = 288,
            queueCount = 296
        static let allocated = 304, tablePages = 320, ghost = 328, lastNumber = 336, noSpace = 344
        /// The longest pinned record, or a longer one (bit 0: it may have gone); and what is pinned in bytes.
        static let pinnedMost = 352, pinnedBytes = 360
        /// What has to be finished once it was begun: `Pending`.
        static let pending = 368
        /// The tail's segment; the next one to come where the log is empty.
        static let tailNumber = 376
        /// The tail's segment as a header or a sync has it in the data file: a rebuild begins there or later.
        static let provenTail = 312
        static let sweepAt = 384, sweepLimit = 392, sweepState = 400, heapCounts = 408, heapCurrent = 424,
            rebases = 432, heapLimit = 440
        static let sets = 448, removes = 456, evictions = 464, expirations = 472, invalidations = 480, cleaned = 488,
            corrupt = 496, rebuilds = 504
        static let dictionaries = 512 // 16 words
        /// When the head's segment was begun: milliseconds since 1970.
        static let begunTime = 640
        /// Not zero until the sums were counted anew since somebody attached alone: they come from an index without
        /// checksums.
        static let unsure = 648
        // For whoever locks the shard after its writer was killed: see `Recovery`.
        /// Not zero while a transaction is open; the word that commits it, and its value then.
        static let transaction = 704, commitAt = 712, commitValue = 720
        /// The slot whose second word the transaction has replaced, by what, and what it was.
        static let stampedSlot = 728, stampedNew = 736, stampedOld = 744
        /// The frame whose state the transaction changes.
        static let frame = 752
        /// The slot whose record is being copied to the head, and where the head ends with the copy.
        static let copiedSlot = 792, copyEnd = 800
        /// A move within the table; how many of a pass's moves are under way, and the shape that ends them.
        static let relocation = 768, moveCount = 776, moveShape = 784
        /// How often a place was taken that somebody was preparing.
        static let takeovers = 816
    }

    /// State words: what a writer that died was doing.
    enum State { static let quiet: UInt64 = 0, writing: UInt64 = 1, rebuilding: UInt64 = 2 }

    /// Changes of a whole shard, a bit each: a writer that finds one set finishes it.
    enum Pending { static let clear = 1, clearInPlace = 2, sweepOfTags = 4, recount = 8, rebase = 16 }

    @inline(__always) subscript(_ field: Int) -> Int {
        get {
            assert(field & 7 == 0 && field >= 0 && field < ShardHeader.size, "a word of the header")
            return at.int(field)
        }
        nonmutating set {
            assert(field & 7 == 0 && field >= 0 && field < ShardHeader.size, "a word of the header")
            at.set(field, int: newValue)
        }
    }

    /// Its epoch is odd.
    @inline(__always) var isBeingRebuilt: Bool { at.acquire(Field.epoch) & 1 != 0 }
}
