import CShalePlatform

/// The first page of `shale.data`: what the cache is. Two copies, at 0 and at
/// 2048, each within a disk sector and with its own check, so that a change is
/// never torn: the valid copy with the higher sequence counts.
struct Superblock {
    static let magic: UInt64 = 0x4154_4144_454C_4853 // "SHLEDATA"
    static let formatVersion: UInt32 = 2
    static let copies = (0, Sizes.superblockCopy)
    /// Not zero: the nonce that a clean close left in both files.
    static let cleanMark = Sizes.superblockMarks
    /// Counts index files and lone attachments: a read-only user that made its own index watches it.
    static let generation = Sizes.superblockMarks + 8

    var sequence: UInt64 = 1
    var secret: UInt64 = 0
    var capacity: UInt64 = 0
    var maxEntries: UInt64 = 0
    var shards: UInt32 = 0
    var segmentSize: UInt32 = 0
    var maxAge: Int64 = Int64.max
    var stale: Int64 = -1
    /// In units of 64 seconds: where the slots' 24-bit expiry counts from.
    var expiryBase: UInt64 = 0
    var rows: UInt32 = 0
    var mode: UInt32 = 0o600
    var dictionaryPlaces: UInt32 = 0
    var dictionarySize: UInt32 = 0
    /// For each shard: its synced position, and since format 2 its synced tail.
    var syncedBytes = Superblock.syncedBytes
    static let syncedBytes: UInt32 = 32
    /// The lower one of the sound copies': a writer brings both to its own before it changes anything else.
    var version = Superblock.formatVersion

    enum Found { case sound(Superblock), empty, foreign, newer, damaged }

    static func read(_ page: Memory) -> Found {
        var best: Superblock?
        var sawMagic = false, sawNewer = false, newest: UInt64 = 0, oldest = formatVersion
        for copy in [copies.0, copies.1] {
            let p = page + copy
            guard p.u64(0) == magic else { continue }
            sawMagic = true
            if p.u32(8) > formatVersion {
                sawNewer = true
                // Sound and later than what this library knows: the cache has been taken over.
                if p.u64(120) == check(p) { newest = max(newest, p.u64(16)) }
            }
            guard p.u32(8) >= 1, p.u32(8) <= formatVersion, p.u64(120) == check(p) else { continue }
            let block = Superblock(
                sequence: p.u64(16), secret: p.u64(24), capacity: p.u64(32), maxEntries: p.u64(40),
                shards: p.u32(48), segmentSize: p.u32(52), maxAge: Int64(bitPattern: p.u64(56)),
                stale: Int64(bitPattern: p.u64(64)), expiryBase: p.u64(72), rows: p.u32(80), mode: p.u32(84),
                dictionaryPlaces: p.u32(88), dictionarySize: p.u32(92), syncedBytes: p.u32(96) == 0 ? 16 : p.u32(96),
                version: p.u32(8))
            oldest = min(oldest, block.version)
            if best == nil || block.sequence > best.unsafelyUnwrapped.sequence { best = block }
        }
        if var best, best.sequence >= newest {
            best.version = oldest
            return .sound(best)
        }
        if sawNewer { return .newer }
        // A creation that was cut off: the copy that is written first was begun, and got no check.
        if page.u64(copies.0) == 0, page.u64(copies.1) == magic, page.u64(copies.1 + 120) == 0 { return .empty }
        if sawMagic { return .damaged }
        for at in stride(from: 0, to: Sizes.superblockPage, by: 8) where page.u64(at) != 0 { return .foreign }
        return .empty
    }

    private static let size = 128

    /// The format of today. Where the segments begin never moves: the tails get the room that there is.
    mutating func upgrade(_ files: CacheFiles) throws(Failure) {
        if roundUp(Int(shards) * 16, to: pageSize) == roundUp(Int(shards) * 32, to: pageSize) {
            syncedBytes = Superblock.syncedBytes
        }
        try write(files)
        version = Superblock.formatVersion
    }

    /// Writes both copies, the one that is not the current one first, each at once: stored word by word,
    /// a page that is written back in between and torn later could hold two halves.
    mutating func write(_ files: CacheFiles) throws(Failure) {
        for _ in 0..<2 {
            sequence &+= 1
            let offset = sequence % 2 == 0 ? Superblock.copies.1 : Superblock.copies.0
            try withUnsafeTemporaryAllocation(byteCount: Superblock.size, alignment: 8) { copy throws(Failure) in
                let p = copy.baseAddress.unsafelyUnwrapped
                fill(p)
                try files.writeData(p, Superblock.size, at: offset)
            }
        }
    }

    /// Before the first writer changes anything: who reads by an index of its own can't follow it from here on.
    static func raiseGeneration(_ files: CacheFiles) throws(Failure) {
        var word: UInt64 = 0
        guard try files.readData(generation, into: &word, 8) else { return }
        word &+= 1
        try files.writeData(&word, 8, at: generation)
    }

    private func fill(_ p: Memory) {
        p.set(0, Superblock.magic)
        p.set32(8, Superblock.formatVersion)
        p.set32(12, 0)
        p.set(16, sequence)
        p.set(24, secret)
        p.set(32, capacity)
        p.set(40, maxEntries)
        p.set32(48, shards)
        p.set32(52, segmentSize)
        p.set(56, UInt64(bitPattern: maxAge))
        p.set(64, UInt64(bitPattern: stale))
        p.set(72, expiryBase)
        p.set32(80, rows)
        p.set32(84, mode)
        p.set32(88, dictionaryPlaces)
        p.set32(92, dictionarySize)
        p.set32(96, syncedBytes)
        p.set32(100, 0)
        for at in stride(from: 104, to: 120, by: 8) { p.set(at, 0) }
        p.set(120, Superblock.check(p))
    }

    private static func check(_ p: Memory) -> UInt64 { shim_hash(p, 120, magic) }
}
