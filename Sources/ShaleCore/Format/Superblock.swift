import CShalePlatform

/// The first page of `shale.data`: the parameters of the cache. Two copies, at 0 and 2048, each within a disk sector
/// and with its own check, so that a change is never torn: the valid copy with the higher sequence counts.
struct Superblock {
    static let magic: UInt64 = 0x4154_4144_454C_4853 // "SHLEDATA"
    static let formatVersion: UInt32 = 5
    static let copies = (0, Sizes.superblockCopy)
    /// Nonzero: the nonce that a clean close left in both files.
    static let cleanMark = Sizes.superblockMarks
    /// Counts index files (by two) and sole writers, before they change anything: a read-only user with an index of its
    /// own watches it, and an index that is behind was not in use meanwhile.
    static let generation = Sizes.superblockMarks + 8

    var sequence: UInt64 = 1
    var secret: UInt64 = 0
    var capacity: UInt64 = 0
    var maxEntries: UInt64 = 0
    var shards: UInt32 = 0
    var segmentSize: UInt32 = 0
    var maxAge: Int64 = Int64.max
    var stale: Int64 = -1
    /// The origin of the slots' 24-bit expiry, in units of 64 seconds.
    var expiryBase: UInt64 = 0
    var framesPerShard: UInt32 = 0
    /// How many of them the capacity had room for when they were reserved; 0: a quarter.
    var firstFrames: UInt32 = 0
    var mode: UInt32 = 0o600
    var dictionaryFrames: UInt32 = 0
    var dictionarySize: UInt32 = 0
    /// For each shard: its synced position and its synced tail.
    static let syncedBytes: UInt32 = 32
    var eviction = Eviction.lru
    /// How often the cache was renewed because its numbers neared their end.
    var renewals: UInt32 = 0

    /// Whether both copies have this capacity, and this secret. If not, the writer was killed before the change was
    /// durable, or before everything sealed with the other secret was removed.
    var isSettled = true, isRenewed = true

    enum Found { case sound(Superblock), empty, foreign, otherVersion, damaged }

    static func read(_ page: Memory) -> Found {
        var best: Superblock?, isSettled = true, isRenewed = true
        var sawMagic = false, sawOther = false, lastOther: UInt64 = 0
        for copy in [copies.0, copies.1] {
            let p = Copy(at: page + copy)
            guard p[Copy.magic] == magic else { continue }
            sawMagic = true
            let version = p[Copy.version, 0], isSound = p.isSound
            if !isSound, version == formatVersion || version == 0 { continue }
            guard version == formatVersion, let block = Superblock(p) else {
                // Sound and later than any that this library version has written: another version uses the cache now.
                (sawOther, lastOther) = (true, max(lastOther, isSound ? p[Copy.sequence] : 0))
                continue
            }
            if let other = best {
                if other.capacity != block.capacity { isSettled = false }
                if other.secret != block.secret { isRenewed = false }
            }
            if best == nil || block.sequence > best.unsafelyUnwrapped.sequence { best = block }
        }
        if var best, best.sequence >= lastOther {
            best.isSettled = isSettled
            best.isRenewed = isRenewed
            return .sound(best)
        }
        if sawOther { return .otherVersion }
        // An interrupted creation: the copy that is written first was begun, and got no check.
        if page.u64(copies.0) == 0, Copy(at: page + copies.1).isBegun { return .empty }
        if sawMagic { return .damaged }
        for at in stride(from: 0, to: Sizes.superblockPage, by: 8) where page.u64(at) != 0 { return .foreign }
        return .empty
    }

    /// Writes both copies, the one that is not current first. `isSyncedBetween`: so that a kill before the first is
    /// durable shows in the other.
    mutating func write(_ files: CacheFiles, isSyncedBetween: Bool = false) throws(Failure) {
        try writeOther(files)
        if isSyncedBetween { try files.syncData() }
        try writeOther(files)
        isSettled = true
    }

    /// Writes the copy that is not current, which makes it current. At once: stored word by word, a page that is
    /// written back in between and torn later could hold two halves.
    mutating func writeOther(_ files: CacheFiles) throws(Failure) {
        sequence &+= 1
        let offset = sequence % 2 == 0 ? Superblock.copies.1 : Superblock.copies.0
        try withUnsafeTemporaryAllocation(byteCount: Copy.size, alignment: 8) { memory throws(Failure) in
            let p = memory.baseAddress.unsafelyUnwrapped
            Copy(at: p).fill(self)
            try files.writeData(p, Copy.size, at: offset)
        }
    }
}

extension Superblock {
    /// One of the two copies, as format.md defines it.
    fileprivate struct Copy: MappedWords {
        typealias Word = MappedWord<Copy>
        static let size = 128
        static let magic = Word(0), sequence = Word(16), secret = Word(24), capacity = Word(32), maxEntries = Word(40)
        static let maxAge = Word(56), stale = Word(64), expiryBase = Word(72), check = Word(120)
        // Two halves each, the lower one first.
        static let version = Word(8), shardsAndSegmentSize = Word(48), rowsAndMode = Word(80), dictionaries = Word(88),
            syncedBytesAndEviction = Word(96), renewalsAndFeatures = Word(104), firstRows = Word(112)

        let at: Memory

        subscript(_ word: Word, _ half: Int) -> UInt32 {
            get { address(word).u32(half * 4) }
            nonmutating set { address(word).set32(half * 4, newValue) }
        }

        private var sum: UInt64 { shim_hash(at, Copy.check.offset, Superblock.magic) }
        var isSound: Bool { self[Copy.check] == sum }
        /// Whether an interrupted creation has begun this copy.
        var isBegun: Bool { self[Copy.magic] == Superblock.magic && self[Copy.check] == 0 }

        func fill(_ block: Superblock) {
            at.zero(Copy.size)
            self[Copy.magic] = Superblock.magic
            self[Copy.version, 0] = Superblock.formatVersion
            self[Copy.sequence] = block.sequence
            self[Copy.secret] = block.secret
            self[Copy.capacity] = block.capacity
            self[Copy.maxEntries] = block.maxEntries
            self[Copy.shardsAndSegmentSize, 0] = block.shards
            self[Copy.shardsAndSegmentSize, 1] = block.segmentSize
            self[Copy.maxAge] = UInt64(bitPattern: block.maxAge)
            self[Copy.stale] = UInt64(bitPattern: block.stale)
            self[Copy.expiryBase] = block.expiryBase
            self[Copy.rowsAndMode, 0] = block.framesPerShard
            self[Copy.rowsAndMode, 1] = block.mode
            self[Copy.dictionaries, 0] = block.dictionaryFrames
            self[Copy.dictionaries, 1] = block.dictionarySize
            self[Copy.syncedBytesAndEviction, 0] = Superblock.syncedBytes
            self[Copy.syncedBytesAndEviction, 1] = block.eviction.rawValue
            self[Copy.renewalsAndFeatures, 0] = block.renewals
            self[Copy.firstRows, 0] = block.firstFrames
            self[Copy.check] = sum
        }
    }

    /// Nil if a field has a value of another library version.
    private init?(_ p: Copy) {
        guard p[Copy.syncedBytesAndEviction, 0] == Superblock.syncedBytes,
            let policy = Eviction(rawValue: p[Copy.syncedBytesAndEviction, 1]), p[Copy.renewalsAndFeatures, 1] == 0
        else { return nil }
        eviction = policy
        sequence = p[Copy.sequence]
        secret = p[Copy.secret]
        capacity = p[Copy.capacity]
        maxEntries = p[Copy.maxEntries]
        shards = p[Copy.shardsAndSegmentSize, 0]
        segmentSize = p[Copy.shardsAndSegmentSize, 1]
        maxAge = Int64(bitPattern: p[Copy.maxAge])
        stale = Int64(bitPattern: p[Copy.stale])
        expiryBase = p[Copy.expiryBase]
        framesPerShard = p[Copy.rowsAndMode, 0]
        mode = p[Copy.rowsAndMode, 1]
        dictionaryFrames = p[Copy.dictionaries, 0]
        dictionarySize = p[Copy.dictionaries, 1]
        renewals = p[Copy.renewalsAndFeatures, 0]
        firstFrames = p[Copy.firstRows, 0]
    }
}
