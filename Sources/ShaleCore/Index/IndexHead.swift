/// The first pages of `shale.index`: whose index it is, and what all shards share.
struct IndexHead: MappedWords {
    typealias Word = MappedWord<IndexHead>
    static let size = Sizes.indexHead
    static let magicValue: UInt64 = 0x5844_4E49_454C_4853 // "SHLEINDX"
    static let versionValue: UInt64 = 12

    let at: Memory

    // Whose: compared at attaching.
    static let magic = Word(0), version = Word(8), secretCheck = Word(16), geometryCheck = Word(24)
    static let boot = Word(32) // 2 words
    static let ownDevice = Word(48), ownInode = Word(56), dataDevice = Word(64), dataInode = Word(72)
    static let cleanMark = Word(80), pidNamespace = Word(88), libc = Word(96)
    /// Not zero once another index file has taken this one's place.
    static let retired = Word(104)
    /// The data file's when its last sole writer came.
    static let generation = Word(112)
    /// When both files were made, in nanoseconds since 1970, or 0. (The inode of a file that is gone may be given again.)
    static let ownBirth = Word(120), dataBirth = Word(128)
    /// Of the index as a clean close left it, without the words that name files: see `IndexParts`.
    static let sum = Word(136)
    /// When the data file last changed, as of a clean close. Restoring a file in place changes it.
    static let dataChanged = Word(144)

    /// Whether no other index has been in use since a first writer left this one its number. (Who is between its two
    /// stores, or was killed there, has raised the index's alone.)
    static func isOfGeneration(_ index: UInt64, _ data: UInt64) -> Bool { index &- data <= 1 }

    static let lsn = Word(512)
    static let dictionaryLock = Word(576), dictionaryCurrent = Word(640), dictionaryLast = Word(648),
        dictionaryRetiring = Word(656)
    static let dictionaryNumbers = Word(704) // 16 words

    /// Counters in stripes of a cache line each, so that threads do not share lines.
    static let counters = Sizes.counters
    static let stripes = Sizes.stripes
    static let hits = 0, staleHits = 8, leases = 40
    /// Of those that are absent; behind it, where `Miss` says, the others at 24, 32 and 48.
    static let misses = 16
}
