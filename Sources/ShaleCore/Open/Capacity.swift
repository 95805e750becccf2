import CShalePlatform

extension Engine {
    /// Applies a new capacity or entry limit. `recorded`: the earlier ones; its entry limit is still in force.
    func finish(_ change: CapacityChange, maxEntries: UInt64, from recorded: Superblock) throws(Failure) {
        let files = ref.pointee.files
        let isLowered = maxEntries != 0 && (recorded.maxEntries == 0 || maxEntries < recorded.maxEntries)
        if change == .shrink || isLowered { try checkPins(change, limit: isLowered ? maxEntries : 0) }
        ref.pointee.block.maxEntries = maxEntries
        ref.pointee.geometry = Geometry(ref.pointee.block)
        switch change {
        case .none: break
        case .grow where !isLowered: try ref.pointee.block.write(files)
        case .grow, .limits, .shrink:
            try applyLimits(budget: max(ref.pointee.geometry.shardBudget, Geometry(recorded).shardBudget))
            if change == .shrink {
                // On disk first: after a power failure, freed pages could reappear.
                try sync()
                try files.sync(files.index, CacheFiles.indexName)
            }
            // Last: until then the larger capacity is in force.
            try ref.pointee.block.write(files)
        }
    }

    /// Checks, before any eviction, that the pinned entries fit.
    private func checkPins(_ change: CapacityChange, limit: UInt64) throws(Failure) {
        try rebuildShards()
        let most = Geometry.entriesPerShard(limit, shards: ref.pointee.geometry.shards)
        func check() throws(Failure) {
            for i in 0..<ref.pointee.geometry.shards {
                let shard = Shard(ref, i).reader
                if change == .shrink, !shard.canShrink { throw shard.cannotShrink() }
                if most > 0, shard.header[ShardHeader.Field.pinned] > most { throw shard.cannotLowerLimit() }
            }
        }
        do throws(Failure) { return try check() } catch { if error.status != .full { throw error } }
        // Dead entries and orphaned parts do not count. Unlink values first, then their parts.
        for _ in 0..<2 {
            try changeEach { shard throws(Failure) in
                try shard.unlinkDead()
                return true
            }
        }
        try check()
    }

    /// `budget`: bytes that a shard may take on disk meanwhile.
    private func applyLimits(budget: Int) throws(Failure) {
        // In rounds: evicting a large value clears parts in other shards.
        while try !changeEach({ shard throws(Failure) in try shard.evictToBudget() }) {}
        try changeEach { shard throws(Failure) in
            try shard.applyBudget(from: budget)
            return true
        }
    }

    /// Returns whether `body` returned true for all shards.
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
