import CShalePlatform

/// Counters since the index was created, of all processes together.
public struct Statistics: Sendable {
    public var shards: UInt32 = 0
    public var entries: UInt64 = 0, capacity: UInt64 = 0, maxEntries: UInt64 = 0, dataBytes: UInt64 = 0,
        indexBytes: UInt64 = 0
    public var liveBytes: UInt64 = 0, rawBytes: UInt64 = 0, storedBytes: UInt64 = 0
    public var hits: UInt64 = 0, misses: UInt64 = 0, staleHits: UInt64 = 0, sets: UInt64 = 0, removes: UInt64 = 0,
        evictions: UInt64 = 0
    public var expirations: UInt64 = 0, invalidations: UInt64 = 0, cleanedBytes: UInt64 = 0, corruptRecords: UInt64 = 0,
        rebuilds: UInt64 = 0, dictionaries: UInt64 = 0
    /// The misses, by their reason.
    public var absent: UInt64 = 0, expired: UInt64 = 0, invalidated: UInt64 = 0, damaged: UInt64 = 0
    /// Leases that were granted.
    public var leases: UInt64 = 0
    /// Fenced sets that were refused: their key had changed; one of their tags had; so many others had that the store
    /// does not know whether these had; the store was cleared or its index rebuilt.
    public var conflictsByKey: UInt64 = 0, conflictsByTag: UInt64 = 0, conflictsByOverflow: UInt64 = 0,
        conflictsByReset: UInt64 = 0
    public var conflicts: UInt64 { conflictsByKey &+ conflictsByTag &+ conflictsByOverflow &+ conflictsByReset }
    /// Evicted entries whose times are known, and the sums: milliseconds since they were set, and since they were used
    /// (with the CLOCK policy, since they were set).
    public var evictedTimed: UInt64 = 0, evictedAge: UInt64 = 0, evictedIdle: UInt64 = 0
    /// Leases granted without being recorded, because no cell was free.
    public var leasesUnrecorded: UInt64 = 0
    /// How often the store was restarted empty, because its version numbers neared their end.
    public var renewals: UInt64 = 0
    public var eviction = Eviction.lru
}

extension Engine {
    public func statistics() throws(Failure) -> Statistics {
        try checkCurrent()
        typealias Field = ShardHeader.Field
        let geometry = ref.pointee.geometry, files = ref.pointee.files, index = ref.pointee.index
        var s = Statistics()
        s.shards = UInt32(geometry.shards)
        s.capacity = ref.pointee.block.capacity
        s.maxEntries = ref.pointee.block.maxEntries
        s.eviction = ref.pointee.block.eviction
        s.renewals = UInt64(ref.pointee.block.renewals)
        s.dictionaries = ref.pointee.head[IndexHead.dictionaryLast]
        for i in 0..<geometry.shards {
            let header = Shard(ref, i).header
            if header.isBeingRebuilt { try Shard(ref, i).waitForRebuild() }
            s.entries &+= header[Field.entries.word]
            s.liveBytes &+= header[Field.live.word]
            s.rawBytes &+= header[Field.raw.word]
            s.storedBytes &+= header[Field.stored.word]
            s.sets &+= header[Field.sets.word]
            s.removes &+= header[Field.removes.word]
            s.evictions &+= header[Field.evictions.word]
            s.expirations &+= header[Field.expirations.word]
            s.invalidations &+= header[Field.invalidations.word]
            s.cleanedBytes &+= header[Field.cleaned.word]
            s.corruptRecords &+= header[Field.corrupt.word]
            s.rebuilds &+= header[Field.rebuilds.word]
            func refused(_ why: FenceTable.Refusal) -> UInt64 { header[Field.refusals[why.rawValue].word] }
            s.conflictsByKey &+= refused(.key)
            s.conflictsByTag &+= refused(.tag)
            s.conflictsByOverflow &+= refused(.line)
            s.conflictsByReset &+= refused(.floor)
            s.evictedTimed &+= header[Field.evictedTimed]
            s.evictedAge &+= header[Field.evictedAge]
            s.evictedIdle &+= header[Field.evictedIdle]
            s.leasesUnrecorded &+= header[Field.leasesUnrecorded]
            if files.isMemory {
                s.dataBytes &+= header[Field.allocated.word] &* UInt64(geometry.segmentSize)
                s.indexBytes &+= header[Field.tablePages.word]
            }
        }
        for i in 0..<IndexHead.stripes {
            let p = index + IndexHead.counters + i * 64
            s.hits &+= p.u64(IndexHead.hits)
            s.staleHits &+= p.u64(IndexHead.staleHits)
            s.leases &+= p.u64(IndexHead.leases)
            s.absent &+= p.u64(Miss.absent.counter)
            s.expired &+= p.u64(Miss.expired.counter)
            s.invalidated &+= p.u64(Miss.invalidated.counter)
            s.damaged &+= p.u64(Miss.damaged.counter)
        }
        s.misses = s.absent &+ s.expired &+ s.invalidated &+ s.damaged
        if files.isMemory {
            s.indexBytes += UInt64(Geometry.indexHead)
        } else {
            s.dataBytes = files.diskBytes(files.data, files.dataIdentity)
            s.indexBytes = files.diskBytes(files.index, files.indexIdentity)
        }
        try checkCurrent()
        return s
    }
}
