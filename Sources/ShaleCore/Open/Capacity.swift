import CShalePlatform

extension Superblock {
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
        try rebuildShards()
        var mayFit = true
        for i in 0..<ref.pointee.geometry.shards where !Shard(ref, i).reader.canHoldPins { mayFit = false }
        if mayFit { return }
        // What is gone, or belongs to nobody, does not count: values first, then their parts.
        for _ in 0..<2 {
            try changeEach { shard throws(Failure) in
                try shard.dropGone()
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

    /// One shard after the other. Whether all said so.
    @inline(never) @discardableResult
    func changeEach(_ body: (borrowing ShardWriter) throws(Failure) -> Bool) throws(Failure) -> Bool {
        try rebuildShards()
        var change = try Change(ref)
        change.share = .max
        var all = true
        for i in 0..<ref.pointee.geometry.shards {
            if try !Shard(ref, i).write(&change, body) { all = false }
        }
        return all
    }
}
