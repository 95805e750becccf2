extension Configuration {
    var mayCreate: Bool { !isReadOnly && !mustExist }
}

extension Clock {
    init(_ configuration: Configuration) {
        self.init(function: configuration.clock, context: configuration.clockContext)
    }
}

/// `grow` needs an index for more frames; `limits` needs none.
enum CapacityChange { case none, limits, grow, shrink }

extension Superblock {
    /// Adopts the options that can be changed; the others must match.
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
            let own: StaticString = self.eviction == .lru ? "LRU" : "clock"
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
        try fit(reserving: configuration.reserveCapacity)
        // Frames are never renumbered: a smaller budget uses fewer of them.
        return framesPerShard > before.framesPerShard ? .grow : capacity > before.capacity ? .limits : .shrink
    }
}
