import CShalePlatform

/// What the first writer does before it lets others in.
extension Engine {
    /// Settles what killed writers have left in shards; whether there was any. (Those that are to be rebuilt have time
    /// until others may come as well.)
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

    /// `recorded`: what was in force before.
    func settleAsSoleWriter(
        _ change: CapacityChange, maxEntries: UInt64, from recorded: Superblock
    ) throws(Failure) {
        var wasPreparing = false
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).log.hasPreparations { wasPreparing = true }
        if wasPreparing {
            try changeEach { shard throws(Failure) in
                shard.log.abandonPreparations()
                return true
            }
        }
        var wasWriting = false
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).largeWriters.giveUpAll() { wasWriting = true }
        // (In this order: who is killed on the way leaves it to the next one.)
        if wasWriting {
            try dropOrphans()
            for i in 0..<ref.pointee.geometry.shards { Shard(ref, i).largeWriters.removeAll() }
        }
        try finish(change, maxEntries: maxEntries, from: recorded)
        shorten()
    }

    /// Both files end where the last chunk and the last frame do. Where others read them, what they look at may have
    /// been given back, but is not beyond the end.
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

    /// What killed writers of large values had stored.
    func dropOrphans() throws(Failure) {
        try changeEach { shard throws(Failure) in
            while try shard.dropOrphans() {}
            return true
        }
    }
}
