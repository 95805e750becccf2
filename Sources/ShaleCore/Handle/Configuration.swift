/// How a cache is opened. Every default is stated here.
public struct Configuration: Sendable {
    /// Bytes on disk, all files together; 0: 1 GiB for a new cache, unchanged for an existing one.
    public var capacity: UInt64 = 0
    /// The capacity up to which a new cache reserves address space, so that it can grow with its index; 0, or more than
    /// that: four times its own.
    public var reserveCapacity: UInt64 = 0
    /// 0: as many as fit.
    public var maxEntries: UInt64 = 0
    /// Milliseconds; 0: as set at creation, or for ever. `Int64.max`: for ever, -1: none.
    public var maxAge: Int64 = 0
    /// Milliseconds that an entry is kept past its age; 0: as set at creation, or none.
    public var stale: Int64 = 0
    /// 0: chosen from the capacity.
    public var shards: UInt32 = 0
    /// Bytes; 0: chosen from the capacity.
    public var segmentSize: UInt32 = 0
    /// Nil: LRU for a new cache, unchanged for an existing one.
    public var eviction: Eviction?
    /// Permission bits of new files; 0: 0600.
    public var mode: UInt32 = 0
    public var compression: Compression = .dictionary
    public var isReadOnly = false
    public var mustExist = false
    /// Whether the last close makes everything durable.
    public var syncsAtClose = true
    /// Nil: the system's wall clock. Milliseconds since 1970; called before any lock is taken.
    public var clock: (@convention(c) (UnsafeMutableRawPointer?) -> Int64)?
    nonisolated(unsafe) public var clockContext: UnsafeMutableRawPointer?
    public var waits = WaitOptions()

    public init() {}

    static let defaultCapacity: UInt64 = 1 << 30

    static func isAge(_ age: Int64) -> Bool { age >= Time48.none }

    func validate() throws(Failure) {
        if capacity != 0, capacity < Limits.capacity {
            throw Message().adding("capacity ").adding(Int(capacity)).adding(
                " is below the minimum of 1 MiB (1048576 bytes)"
            ).failure(.invalid)
        }
        if capacity > Limits.mostCapacity { throw Failure.because(.invalid, "capacity is above the maximum of 16 TiB") }
        if segmentSize != 0,
            segmentSize < Limits.segmentSizes.least || segmentSize > Limits.segmentSizes.most
                || segmentSize & (segmentSize - 1) != 0
        {
            throw Message().adding("segment_size ").adding(Int(segmentSize)).adding(
                " is not a power of two from 128 KiB to 16 MiB"
            ).failure(.invalid)
        }
        if shards > Limits.shards {
            throw Message().adding("shards ").adding(Int(shards)).adding(" is above 65536").failure(.invalid)
        }
        if !Configuration.isAge(maxAge) || !Configuration.isAge(stale) {
            throw Failure.because(.invalid, "an age is negative; use 0 for the default, SHALE_NEVER or SHALE_NONE")
        }
        if waits.limit < 0 { throw Failure.because(.invalid, "lock_timeout_ms is negative") }
        if mode & ~0o777 != 0 { throw Failure.because(.invalid, "mode has bits outside 0777") }
        if isReadOnly, capacity != 0 || maxEntries != 0 {
            throw Failure.because(.invalid, "a read-only handle cannot set capacity or max_entries; leave them 0")
        }
    }

    func newSuperblock(secret: UInt64, now: Int64) throws(Failure) -> Superblock {
        var block = Superblock()
        block.secret = secret
        block.capacity = capacity == 0 ? Configuration.defaultCapacity : capacity
        block.maxEntries = maxEntries
        block.eviction = eviction ?? .lru
        block.shards = shards != 0 ? shards : newShards(block.capacity)
        block.segmentSize = segmentSize != 0 ? segmentSize : newSegmentSize(of: block)
        block.maxAge = maxAge == 0 ? Time48.never : maxAge
        block.stale = stale == 0 ? Time48.none : stale
        let units = Time48.point(now) / SlotExpiry.unit
        block.expiryBase = units > 65_536 ? units - 65_536 : 0
        block.mode = mode == 0 ? 0o600 : mode
        let dictionary = Geometry.dictionaryFrames(Int(block.capacity))
        block.dictionaryFrames = UInt32(dictionary.count)
        block.dictionarySize = UInt32(dictionary.size)
        try block.fit(reserving: reserveCapacity)
        return block
    }

    /// As many as concurrent writers use, and no more: each makes an empty data file look a segment longer.
    private func newShards(_ capacity: UInt64) -> UInt32 {
        if maxEntries != 0, maxEntries <= Limits.oneShardEntries, capacity <= Limits.shardLogBytes / 2 { return 1 }
        func shards(of size: Int) -> UInt64 { (capacity + UInt64(size) - 1) / UInt64(size) }
        return UInt32(max(min(shards(of: Limits.leastShard), 32), shards(of: Limits.usualShard)))
    }

    /// With more than 40 segments, a shard can spare the few that are free; the CLOCK policy, which fills all others,
    /// gains more from smaller ones. From 2 MiB on they are huge pages.
    private func newSegmentSize(of block: Superblock) -> UInt32 {
        let share = Int(block.capacity) / Int(block.shards), most = block.shards <= 16 ? 4 << 20 : hugePageSize
        let wanted = share / (block.eviction == .clock ? 64 : 40)
        var size = Limits.segmentSizes.least
        while size * 2 <= wanted, size < most { size *= 2 }
        return UInt32(size)
    }
}

extension Superblock {
    /// A shard needs a head, the cleaner's reserve, and room for entries.
    static let leastFrames = 6

    /// Sets the frames that the capacity allows, or throws what does not fit. `reserved`: as in `Configuration`.
    mutating func fit(reserving reserved: UInt64) throws(Failure) {
        let count = Geometry.framesPerShard(self)
        guard count >= Superblock.leastFrames else {
            throw Message().adding("a capacity of ").adding(Int(capacity)).adding(" bytes is too small for ").adding(
                Int(shards)
            ).adding(" shard(s) with segments of ")
                .adding(Int(segmentSize)).adding(
                    " bytes; choose a larger capacity, or fewer shards or smaller segments"
                ).failure(.invalid)
        }
        guard count <= Limits.framesPerShard, count * Int(segmentSize) <= Limits.shardLogBytes else {
            throw Message().adding("a capacity of ").adding(Int(capacity)).adding(" bytes is too large for ").adding(
                Int(shards)
            ).adding(" shard(s) with segments of ")
                .adding(Int(segmentSize)).adding(" bytes; choose more shards or larger segments").failure(.invalid)
        }
        // Room to grow fourfold without a new index; unused frames cost only addresses. Nothing is written beyond the
        // largest capacity, and an index for more would not fit into a file on ext4.
        let fitting = (Limits.fileBytes - Geometry(self).segments) / (Int(shards) * Int(segmentSize))
        let most = min(Limits.framesPerShard, Limits.shardLogBytes / Int(segmentSize), fitting)
        guard count > Int(framesPerShard) else { return }
        var larger = self
        larger.capacity = min(max(capacity, reserved), Limits.mostCapacity)
        let wanted = reserved == 0 ? .max : Geometry.framesPerShard(larger)
        firstFrames = wanted < count * Sizes.rowsForGrowth ? UInt32(count) : 0
        framesPerShard = UInt32(min(wanted, count * Sizes.rowsForGrowth, most))
    }
}
