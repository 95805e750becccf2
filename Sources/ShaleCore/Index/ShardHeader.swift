import CShalePlatform

/// A shard's header in the index: 1024 bytes of words, grouped by who writes
/// them. Readers that hold no lock share the second line, which writers touch
/// only when the table's shape, the tags or the whole shard change.
struct ShardHeader {
    static let size = 1024

    let at: Memory

    enum Field {
        static let mutex = 0
        // Read by everyone.
        static let shape = 64, moves = 72, epoch = 80, tagCount = 88, entriesHint = 96, shrinks = 104
        // A counter that every hit may advance, on a line of its own.
        static let stamp = 128
        // Writers, under the lock.
        static let state = 192, entries = 200, live = 208, raw = 216, stored = 224, pinned = 232, used = 240
        static let headPlace = 256, headOffset = 264, headNumber = 272, tailOffset = 280, queueFirst = 288, queueCount = 296
        static let allocated = 304, begunOffset = 312, tablePages = 320, ghost = 328, lastNumber = 336, noSpace = 344
        /// Not zero until the sums were counted anew since somebody attached alone: they come from an index without checksums.
        static let unsure = 352
        /// When the head's segment was begun: milliseconds since 1970.
        static let begunTime = 360
        static let sweepAt = 384, sweepLimit = 392, sweepState = 400, heapCounts = 408, heapCurrent = 424, rebases = 432, heapLimit = 440
        static let sets = 448, removes = 456, evictions = 464, expirations = 472, invalidations = 480, cleaned = 488, corrupt = 496, rebuilds = 504
        static let dictionaries = 512 // 16 words
    }

    /// State words: what a writer that died was doing.
    enum State { static let quiet: UInt64 = 0, writing: UInt64 = 1, rebuilding: UInt64 = 2 }

    @inline(__always) subscript(_ field: Int) -> Int {
        get { at.int(field) }
        nonmutating set { at.set(field, int: newValue) }
    }
}
