/// Which generation of tags is the newer one, and how many chunks each has (0: empty).
struct TagGenerations {
    static let cellSize = 32
    /// One generation's cells in a chunk.
    static let cellsPerChunk = Sizes.tagBytes / cellSize
    private static let chunkBits: UInt64 = 20
    let word: UInt64

    @inline(__always) init(_ word: UInt64) { self.word = word }
    init(newer: Int, chunks: Int, olderChunks: Int) {
        let both = newer == 0 ? (chunks, olderChunks) : (olderChunks, chunks)
        word = UInt64(newer) | UInt64(both.0) << 1 | UInt64(both.1) << (1 + TagGenerations.chunkBits)
    }
    @inline(__always) var newer: Int { Int(truncatingIfNeeded: word & 1) }
    @inline(__always) var older: Int { 1 - newer }
    @inline(__always) func chunks(_ which: Int) -> Int {
        Int(truncatingIfNeeded: word >> (1 + TagGenerations.chunkBits * UInt64(which)))
            & (1 << Int(TagGenerations.chunkBits) - 1)
    }
    @inline(__always) func cells(_ which: Int) -> Int { chunks(which) &* TagGenerations.cellsPerChunk }
    var hasOlder: Bool { chunks(older) > 0 }
    var mostChunks: Int { max(chunks(0), chunks(1)) }
}
