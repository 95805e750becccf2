/// All sizes that the engine's behaviour depends on. A test build (`SHALE_TINY`, for Tests/Explore) makes them so small
/// that a log wraps, a table grows, a tag table fills and a dictionary is replaced every few calls. They are
/// compile-time constants: the shipped library has no trace of the other build.
enum Sizes {
    #if SHALE_TINY
    static let page = 128
    static let superblockPage = 512, superblockCopy = 256, superblockMarks = 128
    static let indexHead = 2048, counters = 1664, stripes = 1
    static let slack = 0
    static let capacity: UInt64 = 4096
    static let segment = (least: 512, most: 4096)
    static let metaLength = 64
    static let rowsForGrowth = 2
    static let part = 512, leastParts = 3, mostParts = 3
    static let valuesPerShard = 16

    static let hashBitCount: UInt64 = 25, hashBitsBeyondVictim: UInt64 = 0
    static let leastBuckets = 2, mostBuckets = 16, spareBuckets = 4
    static let maxDisplacements = (1, 2, 3, 3), spill = 4
    static let growth = 1, shrinkage = 1, mostMultiplied = 8, mostDoubled = 8
    static let prepare = 16, grow = 24, full = 40, loose = 14, shrink = 10, sparse = 5, shrunk = 16
    static let pace = 1, bytesPerBucket = 128, share = 192, partsAtOnce = 2, tagStepsPerSet = 8, homesAudited = 1
    static let givesPagesBackEvery = 4, preparesEvery = 1

    static let chunkBuckets = 8, tagBytes = 64, heap = 3, aim = 1, sample = 2
    static let renumberStampsAt: UInt64 = 1 << 8, laterStamps: UInt64 = 1 << 5, lateStamps: UInt64 = 8
    static let leases = (group: 2, least: 2, most: 2, bytesPerGroup: 1)
    static let fenceLine = 24, leastFenceLines = 2, fenceShare = 1 << 20
    static let accessClock = 8, usesBetween: UInt64 = 1
    static let writers = (group: 4, least: 1, most: 1, bytesPerGroup: 1)
    static let patience = 4
    static let rebuildingThreads = 1

    static let noDictionaries: UInt64 = 14 << 10, fewDictionaries: UInt64 = 64 << 10
    static let dictionaries = (few: (2, 512), many: (4, 512))
    static let trialBytes = 192, sampleBytes = 96, leastDictionary = 64
    #else
    /// The kernel's unit of allocation, which `du` counts.
    static let page = 4096
    static let superblockPage = 4096, superblockCopy = 2048, superblockMarks = 1024
    static let indexHead = 3 * 4096, counters = 4096, stripes = 128
    /// Bytes that the file system itself may take: the directory, extent blocks.
    static let slack = 32 << 10
    static let capacity: UInt64 = 1 << 20
    static let segment = (least: 128 << 10, most: 16 << 20)
    static let metaLength = 65_535
    /// Rows of frames reserved per row that the capacity allows.
    static let rowsForGrowth = 4
    /// Bytes of a part of a large value, unless too few or too many parts of this length would fill a segment.
    static let part = 16 << 10, leastParts = 8, mostParts = 32
    /// A value larger than a shard's budget divided by this is spread over all shards.
    static let valuesPerShard = 16

    /// Bits of a key's hash: as many as fingerprint and home together determine in the smallest table.
    static let hashBitCount: UInt64 = 32
    /// Hash bits that a victim has no room for: it keeps 25.
    static let hashBitsBeyondVictim: UInt64 = 7
    static let leastBuckets = 256, mostBuckets = (1 << 24) - 64, spareBuckets = 64
    /// Maximum displacements, one for each value of the displacement bits, and buckets beyond the last home.
    static let maxDisplacements = (1, 3, 7, 15), spill = 16
    /// Buckets by which a pass enlarges the table at least, and by which it shrinks it in addition to a fifth.
    static let growth = 64, shrinkage = 0
    /// Buckets that a pass which multiplies the table may give it: to 4 or 8 times its size, to twice its size. (In a
    /// cache that never fills they are wasted.)
    static let mostMultiplied = 1 << 17, mostDoubled = 1 << 22
    /// In sixty-fourths of the slots.
    static let prepare = 53, grow = 54, full = 58, loose = 38, shrink = 14, sparse = 5, shrunk = 40
    static let pace = 8, bytesPerBucket = 128
    /// Slots that a call examines in one hold of a shard's lock.
    static let share = 512
    /// Parts of a large value cleared at once; homes that a set sweeps for tags whose cells are to be given back; homes
    /// that a change audits.
    static let partsAtOnce = 16, tagStepsPerSet = 40, homesAudited = 8
    /// Sets between two at which pages are given back, or allocated for a larger table. (Until the table grows, there
    /// are nine times as many sets as chunks to allocate.)
    static let givesPagesBackEvery = 64, preparesEvery = 4

    /// Buckets of a shard that lie together in the index, before the next shard's; bytes of each generation of tags in
    /// front of them; the smallest heap of victims, two of which fill a page.
    static let chunkBuckets = 1024, tagBytes = 4096, heap = 255
    static let aim = 32, sample = 16
    static let renumberStampsAt: UInt64 = 1 << 37, laterStamps: UInt64 = 1 << 34
    /// The maximum number of threads on Linux.
    static let lateStamps: UInt64 = 1 << 22
    /// Cells of a group; minimum and maximum number of groups of a shard's leases; bytes of its frames per group.
    static let leases = (group: 16, least: 5, most: 320, bytesPerGroup: 48 << 10)
    /// Bytes of a fence line (a cache line that notes changes), the minimum number of lines, and the divisor that gives
    /// their share of the capacity.
    static let fenceLine = 64, leastFenceLines = 128, fenceShare = 100
    /// Recorded moments, and the minimum number of uses between two of them.
    static let accessClock = 64, usesBetween: UInt64 = 64
    /// The same as for leases, for writers of large values.
    static let writers = (group: 16, least: 4, most: 64, bytesPerGroup: 240 << 10)
    /// Rolls until a full disk is tried again.
    static let patience = 64
    /// Maximum number of threads that rebuild shards in parallel: each keeps a processor and the memory's channels
    /// busy.
    static let rebuildingThreads = 8

    static let noDictionaries: UInt64 = 4 << 20, fewDictionaries: UInt64 = 64 << 20
    static let dictionaries = (few: (4, 16 << 10), many: (8, 64 << 10))
    /// Bytes held back from a dictionary, to evaluate it; maximum sample of one value; the smallest dictionary.
    static let trialBytes = 8 << 10, sampleBytes = 2 << 10, leastDictionary = 1024
    #endif
}
