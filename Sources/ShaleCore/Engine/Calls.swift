import CShalePlatform

extension Engine {
    // MARK: Get

    @inline(__always)
    public func get(_ bytes: Bytes, _ options: ReadOptions, _ buffer: inout ValueBuffer, _ found: inout Found)
        throws(Failure) -> Status
    {
        try get(try key(bytes), options, &buffer, &found)
    }

    @inline(__always)
    func get(_ key: Key, _ options: ReadOptions, _ buffer: inout ValueBuffer, _ found: inout Found) throws(Failure)
        -> Status
    {
        if ref.pointee.isReadOnly { try checkGeneration() }
        let answer = try Shard(ref, keyHash: key.hash).reader.get(key, options, &buffer, &found)
        if answer.status == .miss { return try miss(answer, options) }
        if ref.pointee.isReadOnly {
            try checkGeneration()
        } else if !options.contains(.peek) {
            countAsWriter(answer.counter)
        }
        return answer.status
    }

    /// (Out of line, so that a hit has no extra instruction.)
    @inline(never)
    private func miss(_ answer: Answer, _ options: ReadOptions) throws(Failure) -> Status {
        var number: UInt64 = 0
        if ref.pointee.isReadOnly {
            try checkGeneration()
        } else if !options.contains(.peek) {
            number = countAsWriter(answer.counter)
        }
        try ref.checkPresence(atCall: number)
        return .miss
    }

    /// The same, for callers that need no inlined copy.
    @inline(never)
    public func getOutlined(_ bytes: Bytes, _ options: ReadOptions, _ buffer: inout ValueBuffer, _ found: inout Found)
        throws(Failure) -> Status
    {
        try get(bytes, options, &buffer, &found)
    }

    #if !hasFeature(Embedded)
    /// Whether a bookmark's entry is unchanged and fresh; then this counts as a hit.
    @inline(__always)
    func hits(_ bookmark: Bookmark) -> Bool {
        guard Shard(ref, Int(bookmark.shard)).reader.use(bookmark) else { return false }
        countAsWriter(IndexHead.hits)
        return true
    }
    #endif

    /// The same; on a miss, `token` gets one for a fenced set (0 with a read-only handle).
    @inline(never)
    public func get(
        _ bytes: Bytes, _ options: ReadOptions, _ buffer: inout ValueBuffer, _ found: inout Found, token: inout UInt64
    ) throws(Failure) -> Status {
        let status = try getOutlined(bytes, options, &buffer, &found)
        guard status == .miss, !ref.pointee.isReadOnly else { return status }
        try ref.checkPresence()
        token = try withShard(of: try key(bytes)) { $0.drawToken() }
        return try getOutlined(bytes, options.union(.peek), &buffer, &found)
    }

    /// Called before and after reads of more than one entry: a replaced index looks empty, and a removed cache looks as
    /// if it were in use.
    @inline(__always)
    func checkCurrent() throws(Failure) {
        if ref.pointee.isReadOnly { try checkGeneration() }
        try ref.checkPresence()
    }

    /// Throws if a writer has replaced the index that a read-only handle uses.
    @inline(never)
    func checkGeneration() throws(Failure) {
        let own = ref.pointee.privateGeneration
        if ref.pointee.files.mayBeLower { try checkOverlay() }
        shim_fence_acquire()
        let generation = ref.pointee.data.acquire(Superblock.generation)
        let isCurrent =
            own == 0
            ? ref.pointee.head.acquire(IndexHead.retired) == 0
                && IndexHead.isOfGeneration(ref.pointee.head.acquire(IndexHead.generation), generation)
            : generation &+ 1 == own
        if !isCurrent {
            // Writers between the two loads have left words of different moments.
            shim_fence_acquire()
            if ref.pointee.data.acquire(Superblock.generation) != generation { return try checkGeneration() }
            throw Message().adding(ref.pointee.files.path).adding(
                ": a writer has replaced the index since this read-only handle was opened; open it again"
            ).failure(.busy)
        }
    }

    /// Checks by a system call for each read, where nothing cheaper shows a change.
    private func checkOverlay() throws(Failure) {
        // (Twice, as a writer may increment the generation between the two reads.)
        for _ in 0..<2 {
            var generation: UInt64 = 0
            guard try ref.pointee.files.readData(Superblock.generation, into: &generation, 8) else { break }
            if generation == ref.pointee.data.acquire(Superblock.generation) { return }
        }
        throw Message().adding(ref.pointee.files.path)
            .adding(
                ": the overlay file system has copied the cache since this read-only handle was opened; open it again"
            ).failure(.busy)
    }

    // MARK: Set

    @inline(__always)
    private func checkLengths(_ value: Bytes, metaLength: Int) throws(Failure) {
        if metaLength > Limits.metaLength {
            throw Message().adding("meta has ").adding(metaLength).adding(" bytes; it has at most 65,535").failure(
                .invalid)
        }
        let most = min(Limits.valueLength, ref.pointee.block.capacity / 4)
        if value.count > Int(most) { throw ref.pointee.tooLarge(value.count, most: Int(most), .value) }
    }

    /// Returns ok or conflict; `version` gets the entry's new one.
    public func set(_ bytes: Bytes, _ value: Bytes, _ options: borrowing SetOptions, version: inout UInt64)
        throws(Failure) -> Status
    {
        let key = try key(bytes)
        let shard = Shard(ref, keyHash: key.hash)
        shard.reader.prefetchSlot(key)
        var change = try Change(ref, of: key)
        try checkLengths(value, metaLength: options.meta.count)
        let ages = try ages(options.maxAge, options.stale)
        var scratch: Scratch?
        if ref.pointee.compression != .none, !options.isUncompressed {
            scratch = ref.pointee.scratch.take()
            if scratch == nil { throw Failure.outOfMemory }
        }
        defer { if let scratch { ref.pointee.scratch.give(scratch) } }
        let entry = NewEntry(
            key: key, lifetime: Lifetime(from: change.now, maxAge: ages.maxAge, stale: ages.stale), created: change.now)
        let status: Status
        if value.count > ref.pointee.geometry.longestWhole {
            let large = LargeSet(self, shard, entry, value, copy options, scratch)
            status = try large.store(&version, &change)
        } else {
            status = try setSmall(shard, entry, value, options, scratch, &version, &change)
        }
        return status
    }

    @inline(__always)
    private func setSmall(
        _ shard: Shard, _ entry: NewEntry, _ value: Bytes, _ options: borrowing SetOptions, _ scratch: Scratch?,
        _ version: inout UInt64, _ change: inout Change
    ) throws(Failure) -> Status {
        var encoded = encode(value.start, value.count, scratch)
        while true {
            let outcome = try put(shard, entry, .value, encoded, raw: value.count, options, &version, &change)
            switch outcome {
            case .done: return .ok
            case .conflict: return .conflict
            // The dictionary was retired between compressing and the lock.
            case .dictionaryRetired: encoded = .raw(value.start, value.count)
            }
        }
    }

    // MARK: Remove, touch, increment

    public func remove(_ bytes: Bytes, version: UInt64) throws(Failure) -> Status {
        try changeEntry(bytes, .remove, version, 0)
    }

    public func touch(_ bytes: Bytes, version: UInt64 = 0, maxAge: Int64) throws(Failure) -> Status {
        try changeEntry(bytes, .touch, version, try ages(maxAge, 0).maxAge)
    }

    /// The same, if neither the key nor the entry's tags have changed since the token was drawn; else a conflict.
    public func touch(_ bytes: Bytes, since token: UInt64, maxAge: Int64) throws(Failure) -> Status {
        try changeEntry(bytes, .touchUnchanged, token, try ages(maxAge, 0).maxAge)
    }

    /// Makes an entry stale, or removes it if it has no stale period.
    public func expire(_ bytes: Bytes) throws(Failure) -> Status {
        do throws(Failure) { return try changeEntry(bytes, .expire, 0, 0) } catch {
            // Pinned entries, a full disk or its own size may leave no room to keep it stale. There always is room to
            // remove it.
            guard error.status == .full else { throw error }
            return try changeEntry(bytes, .remove, 0, 0)
        }
    }

    private enum EntryChange { case remove, touch, touchUnchanged, expire }

    @inline(never)
    private func changeEntry(_ bytes: Bytes, _ what: EntryChange, _ version: UInt64, _ maxAge: Int64) throws(Failure)
        -> Status
    {
        let key = try key(bytes)
        let shard = Shard(ref, keyHash: key.hash)
        var change = try Change(ref, of: key)
        shard.reader.fetchRecord(key)
        return try shard.write(&change) { shard throws(Failure) in
            switch what {
            case .remove: try shard.remove(key, version: version)
            case .touch: try shard.touch(key, version: version, maxAge: maxAge)
            case .touchUnchanged: try shard.touch(key, version: 0, since: version, maxAge: maxAge)
            case .expire: try shard.expire(key)
            }
        }
    }

    public func increment(_ bytes: Bytes, delta: Int64, initial: Int64) throws(Failure) -> Int64 {
        let key = try key(bytes)
        guard let scratch = ref.pointee.scratch.take() else { throw Failure.outOfMemory }
        defer { ref.pointee.scratch.give(scratch) }
        let maxAge = ref.pointee.maxAge, stale = ref.pointee.stale
        let shard = Shard(ref, keyHash: key.hash)
        var change = try Change(ref, of: key)
        shard.reader.fetchRecord(key)
        return try shard.write(&change) { shard throws(Failure) in
            try shard.increment(
                key, delta: delta, initial: initial, maxAge: maxAge, stale: stale, room: scratch.buffer)
        }
    }

    // MARK: The whole cache

    /// `expires`: entries that carry the tag become stale, or dead if they have no stale period.
    public func invalidate(_ bytes: Bytes, expires: Bool = false) throws(Failure) {
        let tag = try tag(bytes)
        var change = try Change(ref)
        for i in 0..<ref.pointee.geometry.shards {
            let shard = Shard(ref, i)
            try shard.write(&change) { shard throws(Failure) in
                try shard.invalidate(tag, expires: expires)
                if i == 0 { shard.header[ShardHeader.Field.invalidations] += 1 }
            }
        }
    }

    public func clear() throws(Failure) {
        var change = try Change(ref)
        // In one hold: a reader finds all of a shard, or nothing.
        change.share = .max
        for i in 0..<ref.pointee.geometry.shards {
            let shard = Shard(ref, i)
            try shard.write(&change) { shard throws(Failure) in try shard.clear() }
        }
    }

    /// Evicts up to `count` entries, in each shard in the order of its policy, the shards in turn.
    public func evict(_ count: UInt64) throws(Failure) -> UInt64 {
        var change = try Change(ref)
        let shards = ref.pointee.geometry.shards
        var left = count, evicted: UInt64 = 0
        while left > 0 {
            var progress: UInt64 = 0
            let share = max(1, left / UInt64(shards))
            for i in 0..<shards where left > 0 {
                let shard = Shard(ref, i)
                let wanted = min(share, left)
                var done: UInt64 = 0
                try shard.write(&change) { shard throws(Failure) in
                    let evictions = ShardHeader.Field.evictions.word, earlier = done, before = shard.header[evictions]
                    while done < wanted, shard.change.blobCount < Change.mostBlobs {
                        // (Other callers evict between two holds.)
                        defer { done = earlier + (shard.header[evictions] &- before) }
                        guard try shard.evict() else { break }
                    }
                }
                left -= done
                progress += done
            }
            evicted += progress
            if progress == 0 { break }
        }
        return evicted
    }

    public func purge() throws(Failure) -> UInt64 {
        var change = try Change(ref)
        var purged: UInt64 = 0
        for i in 0..<ref.pointee.geometry.shards {
            let shard = Shard(ref, i)
            var expired = 0, areTagsTurned = false
            try shard.write(&change) { shard throws(Failure) in
                while try shard.unlinkSomeDead(counting: &expired) {}
                try shard.emptyTags(&areTagsTurned)
            }
            purged += UInt64(expired)
        }
        return purged
    }

    /// Returns when everything completed before the call is on the disk.
    public func sync() throws(Failure) {
        try ref.checkWritable()
        try makeDurable()
    }

    /// The same for files that may have been moved since.
    func makeDurable() throws(Failure) {
        if ref.pointee.files.isMemory { return }
        let shards = ref.pointee.geometry.shards
        typealias Ends = (head: SyncedPosition, tail: LogPosition)
        guard let memory = shim_malloc(shards * MemoryLayout<Ends>.stride) else { throw Failure.outOfMemory }
        defer { shim_free(memory) }
        let ends = memory.bindMemory(to: Ends.self, capacity: shards)
        for i in 0..<shards {
            ends[i] = try Shard(ref, i).locked { shard in
                let head = SyncedPosition(
                    number: shard.log.headNumber,
                    offset: min(shard.log.headOffset, ref.pointee.geometry.segmentSize))
                return (head, shard.log.tail)
            }
        }
        try ref.pointee.files.syncData()
        for i in 0..<shards {
            try Shard(ref, i).locked { shard throws(Failure) in
                // Another process may have synced further meanwhile.
                let known = SyncedPosition.read(ref, shard: i)
                if known.number == .max || !known.covers(ends[i].head.number, ends[i].head.offset) {
                    try ends[i].head.write(ref, shard: i)
                }
                if SyncedPosition.tail(ref, shard: i).isBefore(ends[i].tail) { try shard.log.prove(ends[i].tail) }
            }
        }
        try ref.pointee.files.syncData()
    }
}
