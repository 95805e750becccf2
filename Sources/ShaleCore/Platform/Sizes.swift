/// Every size that the engine's behaviour turns on, in one place: a test build (`SHALE_TINY`, for Tests/Explore) makes
/// them so small that a log wraps, a table grows, a tag table fills and a dictionary is replaced every few calls.
/// They are constants of the compiler: the library that is shipped knows of no other build.
enum Sizes {
    #if SHALE_TINY
    /// What the kernel allocates, and what `du` counts.
    static let page = 128
    static let superblockPage = 512, superblockCopy = 256, superblockMarks = 128
    static let indexHead = 2048, counters = 1664, stripes = 1
    static let slack = 0
    static let capacity: UInt64 = 4096
    static let segment = (least: 512, most: 4096)
    static let metaLength = 64
    /// Rows reserved for each that the capacity allows.
    static let rowsForGrowth = 2
    /// A value of more than one part is stored in parts, of so many bytes unless too few or too many would fill a segment.
    static let part = 512, leastParts = 3, mostParts = 3
    /// The least of the values that are spread over all shards, of which so many would fill one.
    static let valuesPerShard = 16

    /// Of a key's hash: as many as a fingerprint and the home give back in the smallest table.
    static let fractionBits: UInt64 = 25, fractionBeyondVictim: UInt64 = 0
    static let leastBuckets = 2, mostBuckets = 16, spareBuckets = 4
    /// The farthest reach, and beyond the last home.
    static let reaches = (1, 2, 3, 3), spill = 4
    static let growth = 1, shrinkage = 1
    /// In sixty-fourths of the slots.
    static let grow = 24, full = 40, shrink = 10, shrunk = 16
    static let pace = 1, share = 192, partsAtOnce = 2, tagStepsPerSet = 8
    static let givesPagesBackEvery = 4

    static let chunkBuckets = 8, tagBytes = 64, heap = 3, aim = 1, sample = 2
    static let rebaseStampsAt: UInt64 = 1 << 8, laterStamps: UInt64 = 1 << 5, lateStamps: UInt64 = 8
    static let leases = (group: 2, least: 2, most: 2, bytesPerGroup: 1)
    static let fenceLine = 24, leastFenceLines = 2, fenceShare = 1 << 20
    static let useTimes = 8, usesBetween: UInt64 = 1
    static let writers = (group: 4, least: 1, most: 1, bytesPerGroup: 1)
    static let patience = 4
    static let rebuildingThreads = 1

    static let noDictionaries: UInt64 = 14 << 10, fewDictionaries: UInt64 = 64 << 10
    static let dictionaries = (few: (2, 512), many: (4, 512))
    static let trialBytes = 192, sampleBytes = 96, leastDictionary = 64
    #else
    /// What the kernel allocates, and what `du` counts.
    static let page = 4096
    static let superblockPage = 4096, superblockCopy = 2048, superblockMarks = 1024
    static let indexHead = 3 * 4096, counters = 4096, stripes = 128
    /// What the file system itself may take: the directory, extent blocks.
    static let slack = 32 << 10
    static let capacity: UInt64 = 1 << 20
    static let segment = (least: 128 << 10, most: 16 << 20)
    static let metaLength = 65_535
    /// Rows reserved for each that the capacity allows.
    static let rowsForGrowth = 4
    /// A value of more than one part is stored in parts, of so many bytes unless too few or too many would fill a segment.
    static let part = 16 << 10, leastParts = 8, mostParts = 32
    /// The least of the values that are spread over all shards, of which so many would fill one.
    static let valuesPerShard = 16

    /// Of a key's hash: as many as a fingerprint and the home give back in the smallest table.
    static let fractionBits: UInt64 = 32
    /// Those that a victim has no room for: it keeps 25.
    static let fractionBeyondVictim: UInt64 = 7
    static let leastBuckets = 256, mostBuckets = (1 << 24) - 64, spareBuckets = 64
    /// How far entries may be displaced, as the reach bits say it, and what lies beyond the last home.
    static let reaches = (1, 3, 7, 15), spill = 16
    /// The least that a pass makes the table larger by, and what it makes it smaller by beside a fifth.
    static let growth = 64, shrinkage = 0
    /// In sixty-fourths of the slots.
    static let grow = 54, full = 58, shrink = 14, shrunk = 40
    static let pace = 8
    /// Slots that a call looks at in one hold of a shard's lock.
    static let share = 512
    /// Parts of a large value that leave at once; homes that a set sweeps for tags whose cells are to be given back.
    static let partsAtOnce = 16, tagStepsPerSet = 40
    static let givesPagesBackEvery = 64

    /// Buckets that lie together in the index, before the next shard's; each generation of tags in front of them; and the
    /// least heap of victims: what a page has room for, with another one beside it.
    static let chunkBuckets = 1024, tagBytes = 4096, heap = 255
    static let aim = 32, sample = 16
    static let rebaseStampsAt: UInt64 = 1 << 37, laterStamps: UInt64 = 1 << 34
    /// As many as Linux has threads at most.
    static let lateStamps: UInt64 = 1 << 22
    /// Cells of a group; the groups of a shard's leases, of which there is one for so many bytes of its frames.
    static let leases = (group: 16, least: 5, most: 320, bytesPerGroup: 48 << 10)
    /// A cache line in which changes are noted, and what share of the capacity such lines take.
    static let fenceLine = 64, leastFenceLines = 128, fenceShare = 100
    /// Moments that are noted, and uses between two of them at least.
    static let useTimes = 64, usesBetween: UInt64 = 64
    /// The same for those who write large values.
    static let writers = (group: 16, least: 4, most: 64, bytesPerGroup: 240 << 10)
    /// Rolls until a full disk is tried again.
    static let patience = 64
    /// That rebuild shards side by side, at most: each keeps a processor and the memory's channels busy.
    static let rebuildingThreads = 8

    static let noDictionaries: UInt64 = 4 << 20, fewDictionaries: UInt64 = 64 << 20
    static let dictionaries = (few: (4, 16 << 10), many: (8, 64 << 10))
    /// Held back from a dictionary, to judge it by; of one value at most; the least dictionary.
    static let trialBytes = 8 << 10, sampleBytes = 2 << 10, leastDictionary = 1024
    #endif
}
