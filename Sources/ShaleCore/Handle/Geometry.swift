/// Where everything is, derived from the superblock alone, so that every
/// process computes the same. All in bytes.
///
///     shale.data   superblock page · synced positions and tails, 32 a shard · dictionaries · segment places
///     shale.index  superblock and counters · a region for each shard: header, segment numbers,
///                  log queue, place states, tag table, leases · two victim heaps · slot table
///
/// Both files are sparse: a part exists on disk once it is allocated.
struct Geometry {
    let shards: Int
    let segmentSize: Int
    let segmentShift: Int
    /// Segment places of a shard, at most.
    let rows: Int
    /// What a shard's segments and tables may take together.
    let shardBudget: Int
    let entriesPerShard: Int

    // shale.data
    let syncTable = Sizes.superblockPage
    let hasSyncedTails: Bool
    let dictionaryPlaces: Int
    let dictionarySize: Int
    let dictionaries: Int
    /// The end of what comes before the segments. The gap up to them is a hole.
    let head: Int
    let segments: Int
    var dataSize: Int { segments + rows * shards * segmentSize }

    /// Several segments would share a large page of the file's cache.
    var hasSmallPages: Bool { segmentSize < hugePageSize }

    // shale.index
    static let indexHead = Sizes.indexHead
    let numbers = ShardHeader.size
    let queue: Int
    let states: Int
    let tags: Int
    let leases: Int
    /// The end of what a shard always has.
    let fixed: Int
    let heaps: (Int, Int)
    let table: Int
    let maxBuckets: Int
    let shardStride: Int
    var indexSize: Int { Geometry.indexHead + shards * shardStride }

    private static func slack(_ capacity: Int) -> Int { Sizes.slack + capacity / 512 }

    static func dictionaryPlaces(_ capacity: Int) -> (count: Int, size: Int) {
        capacity < Int(Sizes.noDictionaries) ? (0, 0) : capacity < Int(Sizes.fewDictionaries) ? Sizes.dictionaries.few : Sizes.dictionaries.many
    }

    private static func global(_ block: Superblock) -> Int {
        Sizes.superblockPage + roundUp(Int(block.shards) * Int(block.syncedBytes), to: pageSize) + Int(block.dictionaryPlaces * block.dictionarySize) + indexHead + slack(Int(block.capacity))
    }

    static func tableBytes(_ buckets: Int) -> Int { roundUp((buckets + Table.spill) * Table.bucketSize, to: pageSize) }
    static func heapBytes(_ buckets: Int) -> Int { roundUp(Victims.capacity(buckets: buckets) * 8, to: pageSize) }
    func shardIndexBytes(buckets: Int) -> Int { fixed + Geometry.tableBytes(buckets) + 2 * Geometry.heapBytes(buckets) }

    /// How many segment places a shard's budget can hold beside the smallest table.
    static func rows(_ block: Superblock) -> Int {
        let budget = (Int(block.capacity) - global(block)) / Int(block.shards), segmentSize = Int(block.segmentSize)
        let index = roundUp(ShardHeader.size + TagTable.size + LeaseTable.size, to: pageSize) + 2 * pageSize + tableBytes(Table.leastBuckets) + 2 * heapBytes(Table.leastBuckets)
        // A place costs 13 bytes of the fixed part beside the segment itself, and there are up to four rows for each.
        return max(0, (budget - index) / (segmentSize + 4 * 13))
    }

    init(_ block: Superblock) {
        shards = Int(block.shards)
        segmentSize = Int(block.segmentSize)
        segmentShift = segmentSize.trailingZeroBitCount
        rows = Int(block.rows)
        shardBudget = max(0, Int(block.capacity) - Geometry.global(block)) / shards
        entriesPerShard = block.maxEntries == 0 ? 0 : max(1, Int(clamping: block.maxEntries) / shards)

        dictionaryPlaces = Int(block.dictionaryPlaces)
        dictionarySize = Int(block.dictionarySize)
        hasSyncedTails = block.syncedBytes == Superblock.syncedBytes
        dictionaries = Sizes.superblockPage + roundUp(shards * Int(block.syncedBytes), to: pageSize)
        head = dictionaries + dictionaryPlaces * dictionarySize
        // So that no segment shares a huge page with another, and the kernel can map it by huge pages.
        segments = roundUp(head, to: min(segmentSize, hugePageSize))

        queue = numbers + rows * 8
        states = roundUp(queue + rows * 4, to: 8)
        tags = roundUp(states + rows, to: 64)
        leases = tags + TagTable.size
        fixed = roundUp(leases + LeaseTable.size, to: pageSize)
        // The smallest record, a byte of key and no value, takes 56 bytes.
        maxBuckets = min(Table.mostBuckets, max(Table.leastBuckets, rows * segmentSize / 56 / 2) + Sizes.spareBuckets)
        let heap = Geometry.heapBytes(maxBuckets)
        heaps = (fixed, fixed + heap)
        table = fixed + 2 * heap
        shardStride = table + Geometry.tableBytes(maxBuckets)
    }
}
