import CShalePlatform

/// The words of a shard's header that say where its log begins and ends.
struct LogWords: MappedWords {
    static let size = 64
    /// Offset in the header.
    static let offset = 256
    typealias Word = MappedWord<LogWords>

    enum Field {
        static let headFrame = Word(0), headOffset = Word(8), headNumber = Word(16), tailOffset = Word(24)
        /// The tail's position in the ring of frames, and how many frames are in the log.
        static let first = Word(32), count = Word(40)
        /// The tail's segment; in an empty log, the next one to begin.
        static let tailNumber = Word(48)
        /// The tail's segment as a header or a sync recorded it in the data file: a rebuild begins there or later.
        static let provenTail = Word(56)
    }

    let at: Memory

    @inline(__always) func int(_ word: Word) -> Int { address(word).int(0) }
    @inline(__always) func set(_ word: Word, _ value: Int) { address(word).set(0, int: value) }

    /// Whether all positions lie inside the shard: a savepoint may be damaged.
    func isInside(framesPerShard: Int, segmentSize: Int) -> Bool {
        let offset = int(Field.headOffset)
        return int(Field.headFrame) >= 0 && int(Field.headFrame) < framesPerShard && int(Field.count) >= 0
            && int(Field.count) <= framesPerShard && int(Field.first) >= 0 && int(Field.first) < framesPerShard
            && offset >= 0
            && offset <= segmentSize && offset & 7 == 0
    }
}
