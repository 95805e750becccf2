/// The first pages of `shale.index`: whose index it is, and what all shards share.
enum IndexHead {
    static let magic: UInt64 = 0x5844_4E49_454C_4853 // "SHLEINDX"
    static let version: UInt64 = 7

    // Whose: compared at attaching.
    static let magicWord = 0, versionWord = 8, secretCheck = 16, geometryCheck = 24
    static let bootLow = 32, bootHigh = 40, ownDevice = 48, ownInode = 56, dataDevice = 64, dataInode = 72
    static let cleanMark = 80, pidNamespace = 88, libc = 96
    /// Not zero once another index file has taken this one's place.
    static let retired = 104

    static let lsn = 512
    static let dictionaryLock = 576, dictionaryCurrent = 640, dictionaryLast = 648, dictionaryRetiring = 656
    static let dictionaryNumbers = 704 // 16 words

    /// Large values that are being written: their parts have no manifest yet, and are kept all the same, as long as
    /// their writer lives (`LargeWriters`).
    static let writing = 1024, writingPlaces = Sizes.writing, writingTurn = 1536, writers = 1600

    /// Counters in stripes of a cache line each, so that threads do not share lines.
    static let counters = Sizes.counters
    static let stripes = Sizes.stripes
    static let hits = 0, staleHits = 8, leases = 40
    /// Of those that are absent; behind it, where `Miss` says, the others at 24, 32 and 48.
    static let misses = 16
}
