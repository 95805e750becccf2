/// The layout of both files, derived from the superblock alone, so that every process computes the same. In bytes.
///
///     shale.data   superblock page · synced positions and tails, 32 a shard · dictionaries · segment frames
///     shale.index  superblock and counters · a region for each shard: header, segment numbers, log queue,
///                  frame states, leases, writers of large values, fences, access clock · the chunks of the tables:
///                  tags, victim heaps, buckets
///
/// Segments and chunks of all shards alternate, so a file ends where the largest shard does. Both files are sparse: a
/// part takes disk space once it is allocated.
struct Geometry {
    let shards: Int
    let segmentSize: Int
    let segmentShift: Int
    /// Segment frames of a shard at most.
    let framesPerShard: Int
    /// Bytes that a shard's segments and tables may take together.
    let shardBudget: Int
    let entriesPerShard: Int

    // shale.data
    let syncTable = Sizes.superblockPage
    let dictionaryFrames: Int
    let dictionarySize: Int
    let dictionaries: Int
    /// The end of everything before the segments. The gap up to them is a hole.
    let head: Int
    let segments: Int
    var dataSize: Int { segments + framesPerShard * shards * segmentSize }

    /// A longer value is stored in parts, `partsPerSegment` in each segment. The rest of a segment that is too short
    /// for the next record is lost until it is cleaned, and the cleaner copies more, the more of a segment is live: so
    /// parts are short, unless they would be very many.
    let longestWhole: Int
    var partsPerSegment: Int { segmentSize / longestWhole }
    /// The parts of a longer value are spread over all shards; those of others are in their manifest's shard.
    var longestInOneShard: Int { shardBudget / Sizes.valuesPerShard }

    /// Whether several segments would share a large page of the page cache.
    var hasSmallPages: Bool { segmentSize < hugePageSize }

    // shale.index
    static let indexHead = Sizes.indexHead
    let numbers = ShardHeader.size
    let queue: Int
    let states: Int
    let leases: Int
    let leaseGroups: Int
    let writers: Int
    let writerGroups: Int
    let fences: Int
    let fenceLines: Int
    let accessClock: Int
    /// Bytes that a shard always has.
    let region: Int
    /// The offset of the first chunk, and the distance from one chunk of a shard to its next.
    let chunks: Int
    let chunkStride: Int
    let chunkGap: Int
    let maxBuckets: Int
    var indexSize: Int { indexEnd(shards - 1, buckets: maxBuckets) }

    private static func slack(_ capacity: Int) -> Int { Sizes.slack + capacity / 512 }

    static func dictionaryFrames(_ capacity: Int) -> (count: Int, size: Int) {
        capacity < Int(Sizes.noDictionaries)
            ? (0, 0) : capacity < Int(Sizes.fewDictionaries) ? Sizes.dictionaries.few : Sizes.dictionaries.many
    }

    private static func global(_ block: Superblock) -> Int {
        Sizes.superblockPage + roundUp(Int(block.shards) * Int(Superblock.syncedBytes), to: pageSize)
            + Int(block.dictionaryFrames * block.dictionarySize) + indexHead + slack(Int(block.capacity))
    }

    func shardIndexBytes(buckets: Int) -> Int { region + Table.bytes(of: buckets) }

    func region(_ shard: Int) -> Int { Geometry.indexHead + shard * region }
    /// Returns the offset of a byte of a shard's chunks, counted as if they were contiguous.
    func offset(_ shard: Int, inChunks byte: Int) -> Int {
        let (chunk, rest) = byte.quotientAndRemainder(dividingBy: Table.chunkBytes)
        return chunks + chunk * chunkStride + shard * Table.chunkBytes + rest
    }
    /// Calls `body` with the pieces of the file that hold these bytes.
    func forEachPiece<E: Error>(
        _ shard: Int, from: Int, to: Int, _ body: (_ offset: Int, _ count: Int) throws(E) -> Void
    ) throws(E) {
        var at = from
        while at < to {
            // (The chunks of a single shard are contiguous.)
            let end = shards == 1 ? to : min(to, (at / Table.chunkBytes + 1) * Table.chunkBytes)
            try body(offset(shard, inChunks: at), end - at)
            at = end
        }
    }
    /// Returns where a shard's part of the index ends in the file.
    func indexEnd(_ shard: Int, buckets: Int) -> Int { indexEnd(shard, pages: shardIndexBytes(buckets: buckets)) }
    func indexEnd(_ shard: Int, pages: Int) -> Int { offset(shard, inChunks: pages - region - 1) + 1 }

    /// Returns how many segment frames a shard's budget can hold beside the smallest table.
    static func framesPerShard(_ block: Superblock) -> Int {
        let budget = (Int(block.capacity) - global(block)) / Int(block.shards), segmentSize = Int(block.segmentSize)
        let fenceLines = FenceTable.lines(capacity: budget)
        let index =
            roundUp(
                ShardHeader.size + LeaseTable.size(groups: LeaseTable.groups(frameBytes: budget))
                    + LargeWriters.size(groups: LargeWriters.groups(frameBytes: budget))
                    + FenceTable.size(lines: fenceLines) + AccessClock.size,
                to: pageSize
            ) + Table.chunkHead + pageSize
            + Table.bytes(of: Table.leastBuckets)
        // Beside its segment, a frame costs 13 bytes of the fixed part, and up to four are reserved for each.
        return max(0, (budget - index) / (segmentSize + 4 * 13))
    }

    /// 0: no limit.
    static func entriesPerShard(_ maxEntries: UInt64, shards: Int) -> Int {
        maxEntries == 0 ? 0 : max(1, Int(clamping: maxEntries) / shards)
    }

    init(_ block: Superblock) {
        shards = Int(block.shards)
        segmentSize = Int(block.segmentSize)
        segmentShift = segmentSize.trailingZeroBitCount
        longestWhole = max(segmentSize / Sizes.mostParts, min(segmentSize / Sizes.leastParts, Sizes.part))
        framesPerShard = Int(block.framesPerShard)
        shardBudget = max(0, Int(block.capacity) - Geometry.global(block)) / shards
        entriesPerShard = Geometry.entriesPerShard(block.maxEntries, shards: shards)

        dictionaryFrames = Int(block.dictionaryFrames)
        dictionarySize = Int(block.dictionarySize)
        dictionaries = Sizes.superblockPage + roundUp(shards * Int(Superblock.syncedBytes), to: pageSize)
        head = dictionaries + dictionaryFrames * dictionarySize
        // So that no segment shares a huge page with another, and the kernel can map it by huge pages.
        segments = roundUp(head, to: min(segmentSize, hugePageSize))

        queue = numbers + framesPerShard * 8
        states = roundUp(queue + framesPerShard * 4, to: 8)
        let capacity =
            block.firstFrames == 0
            ? framesPerShard * segmentSize / Sizes.rowsForGrowth : Int(block.firstFrames) * segmentSize
        leases = roundUp(states + framesPerShard, to: 64)
        leaseGroups = LeaseTable.groups(frameBytes: capacity)
        writers = leases + LeaseTable.size(groups: leaseGroups)
        writerGroups = LargeWriters.groups(frameBytes: capacity)
        fences = roundUp(writers + LargeWriters.size(groups: writerGroups), to: Sizes.fenceLine)
        fenceLines = FenceTable.lines(capacity: capacity)
        accessClock = fences + FenceTable.size(lines: fenceLines)
        region = roundUp(accessClock + AccessClock.size, to: pageSize)
        chunks = Geometry.indexHead + shards * region
        chunkStride = shards * Table.chunkBytes
        chunkGap = chunkStride - Table.chunkBuckets * Table.bucketSize
        // The smallest record, a byte of key and no value, takes 56 bytes.
        maxBuckets = min(
            Table.mostBuckets, max(Table.leastBuckets, framesPerShard * segmentSize / 56 / 2) + Sizes.spareBuckets)
    }
}
