/// The first pages of `shale.index`: the identity of the index, and what all shards share.
struct IndexHead: MappedWords {
    typealias Word = MappedWord<IndexHead>
    static let size = Sizes.indexHead
    static let magicValue: UInt64 = 0x5844_4E49_454C_4853 // "SHLEINDX"
    static let versionValue: UInt64 = 17

    let at: Memory

    // Identity: compared on attach.
    static let magic = Word(0), version = Word(8), secretCheck = Word(16), geometryCheck = Word(24)
    static let boot = Word(32) // 2 words
    static let ownDevice = Word(48), ownInode = Word(56), dataDevice = Word(64), dataInode = Word(72)
    static let cleanMark = Word(80)
    /// Nonzero once another index file has replaced this one.
    static let retired = Word(104)
    /// The data file's generation as of its last sole writer.
    static let generation = Word(112)
    /// When both files were created, in nanoseconds since 1970, or 0. (The inode of a deleted file may be reused.)
    static let ownBirth = Word(120), dataBirth = Word(128)
    /// Checksum of the index as a clean close left it, without the words that identify files: see `IndexParts`.
    static let sum = Word(136)
    /// When the data file last changed, as of a clean close. Restoring a file in place changes it.
    static let dataChanged = Word(144)

    /// How many numbers owners have got; and, as a hint, which process has which (`Owner`).
    static let owners = Word(152), ownerRows = Word(160) // 32 words

    /// Whether no other index has been in use since a sole writer stored the generation in this one. (A sole writer
    /// between its two stores, or killed there, has raised only the index's.)
    static func isOfGeneration(_ index: UInt64, _ data: UInt64) -> Bool { index &- data <= 1 }

    static let lsn = Word(512)
    static let dictionaryLock = Word(576), dictionaryCurrent = Word(640), dictionaryLast = Word(648),
        dictionaryRetiring = Word(656)
    static let dictionaryNumbers = Word(704) // 16 words

    /// Counters in stripes of one cache line each, so that threads do not share lines.
    static let counters = Sizes.counters
    static let stripes = Sizes.stripes
    static let hits = 0, staleHits = 8, leases = 40
    /// Misses of absent keys; those for other reasons follow at 24, 32 and 48, as `Miss` defines.
    static let misses = 16
}
