import CShalePlatform

/// What an opening changes in a cache that exists. `grow` needs an index for more frames; `limits` needs none.
enum CapacityChange { case none, limits, grow, shrink }

extension Superblock {
    /// Compares options that belong to the cache, and takes over those that can be changed.
    mutating func change(
        to configuration: Configuration, _ files: CacheFiles, isSoleWriter: Bool
    ) throws(Failure) -> CapacityChange {
        var message: Message { Message().adding(files.path) }
        if configuration.shards != 0, configuration.shards != shards {
            throw message.adding(" has ").adding(Int(shards))
                .adding(" shard(s), which cannot be changed; pass 0, or use another directory").failure(.invalid)
        }
        if configuration.segmentSize != 0, configuration.segmentSize != segmentSize {
            throw message.adding(" has segments of ").adding(Int(segmentSize))
                .adding(" bytes, which cannot be changed; pass 0, or use another directory").failure(.invalid)
        }
        if let eviction = configuration.eviction, eviction != self.eviction {
            let own: StaticString = self.eviction == .lru ? "LRU" : "adaptive"
            throw message.adding(" has the eviction policy ").adding(own)
                .adding(", which cannot be changed; pass none, or use another directory").failure(.invalid)
        }
        let before = self
        if configuration.capacity != 0 { capacity = configuration.capacity }
        if configuration.maxEntries != 0 { maxEntries = configuration.maxEntries }
        if capacity == before.capacity, maxEntries == before.maxEntries { return .none }
        guard isSoleWriter else {
            throw message.adding(" is in use with another capacity or max_entries; ")
                .adding("close its other users first, or pass 0").failure(.busy)
        }
        if capacity == before.capacity { return .limits }
        try fit()
        // Frames are never renumbered: a smaller budget uses fewer of them.
        return rows > before.rows ? .grow : capacity > before.capacity ? .limits : .shrink
    }

    /// A larger capacity, before anything is allocated that the smaller one has no room for, so that a kill on the way
    /// leaves no more on the disk than the capacity on record. The entry limit, which evicts, comes last.
    mutating func recordCapacity(_ files: CacheFiles, maxEntries recorded: UInt64) throws(Failure) {
        let wanted = maxEntries
        maxEntries = recorded
        try write(files, isSyncedBetween: true)
        maxEntries = wanted
    }
}

extension Engine {
    /// Puts a change in force. `recorded`: what was in force before.
    func finish(_ change: CapacityChange, from recorded: Superblock) throws(Failure) {
        let files = ref.pointee.files
        switch change {
        case .none: break
        case .grow: try ref.pointee.block.write(files)
        case .limits, .shrink:
            if change == .shrink { try checkPins() }
            try applyLimits(budget: max(ref.pointee.geometry.shardBudget, Geometry(recorded).shardBudget))
            if change == .shrink {
                // On the disk first: a power cut could bring back what was given back.
                try sync()
                try files.sync(files.index, CacheFiles.indexName)
            }
            // Last: a kill on the way leaves the larger capacity in force.
            try ref.pointee.block.write(files)
        }
    }

    /// Before anything changes: whether a smaller capacity can hold what is pinned.
    private func checkPins() throws(Failure) {
        var mayFit = true
        for i in 0..<ref.pointee.geometry.shards where !Shard(ref, i).reader.canHoldPins { mayFit = false }
        if mayFit { return }
        // What is gone, or belongs to nobody, does not count: values first, then their parts.
        for _ in 0..<2 {
            try changeEach { shard throws(Failure) in
                shard.dropGone()
                return true
            }
        }
        for i in 0..<ref.pointee.geometry.shards where !Shard(ref, i).reader.canHoldPins {
            throw Shard(ref, i).reader.cannotShrink()
        }
    }

    /// `budget`: what a shard may take on the disk meanwhile.
    private func applyLimits(budget: Int) throws(Failure) {
        // In turns: with a large value its parts go in other shards.
        while try !changeEach({ shard throws(Failure) in try shard.evictToBudget() }) {}
        try changeEach { shard throws(Failure) in
            try shard.applyBudget(from: budget)
            return true
        }
    }
}
