import CShalePlatform

extension Engine {
    /// Recovers shards whose writers were killed. Returns whether there were any. (Shards to be rebuilt can wait until
    /// others are let in.)
    func recoverShards() throws(Failure) -> Bool {
        var found = false
        for i in 0..<ref.pointee.geometry.shards {
            let shard = Shard(ref, i)
            if shard.header[ShardHeader.Field.state] != ShardHeader.State.writing { continue }
            try shard.settle()
            found = true
        }
        return found
    }

    /// Clears up after killed writers and applies the options. `recorded`: the earlier ones.
    func settleAsSoleWriter(
        _ change: CapacityChange, maxEntries: UInt64, from recorded: Superblock
    ) throws(Failure) {
        var wasPreparing = false
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).log.hasPreparations { wasPreparing = true }
        // (A copy of the index may lack pages beyond the tables.)
        for i in 0..<ref.pointee.geometry.shards { Shard(ref, i).header[ShardHeader.Field.tableReady] = 0 }
        if wasPreparing {
            try changeEach { shard throws(Failure) in
                shard.log.abandonPreparations()
                return true
            }
        }
        var wasWriting = false
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).largeWriters.endAll() { wasWriting = true }
        // (In this order: if this is killed in between, the next sole writer does it again.)
        if wasWriting {
            try unlinkOrphans()
            for i in 0..<ref.pointee.geometry.shards { Shard(ref, i).largeWriters.removeAll() }
        }
        try finish(change, maxEntries: maxEntries, from: recorded)
        shorten()
    }

    /// Cuts both files after their last chunk and last frame. Not while others read them: they may meet freed pages,
    /// but must not go beyond the end.
    private func shorten() {
        let files = ref.pointee.files
        let geometry = ref.pointee.geometry
        if FileLock.readers.isHeld(files.data) { return }
        var index = 0
        var data = geometry.head
        for i in 0..<geometry.shards {
            let shard = Shard(ref, i)
            index = max(index, geometry.indexEnd(i, pages: shard.header[ShardHeader.Field.tablePages]))
            if let last = (0..<geometry.framesPerShard).last(where: { shard.log.state(ofFrame: $0) != .absent }) {
                data = max(data, shard.log.offset(ofFrame: last) + geometry.segmentSize)
            }
        }
        files.shorten(data: data, index: index)
    }

    /// Unlinks the parts of large values whose writers were killed.
    func unlinkOrphans() throws(Failure) {
        try changeEach { shard throws(Failure) in
            while try shard.unlinkOrphans() {}
            return true
        }
    }
}
