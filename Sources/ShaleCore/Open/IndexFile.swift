import CShalePlatform

extension Attachment {
    func attachIndex(_ files: inout CacheFiles, mustReplace: Bool) throws(Failure) -> Engine {
        let trust = try openIndex(&files)
        if !isSoleWriter, !configuration.isReadOnly { try demandLive(trust, files) }
        let hasWriters = configuration.isReadOnly && FileLock.writers.isHeld(files.data)
        let isTrusted =
            switch trust {
            case .live, .clean: true
            // (The sole writer makes it its own.)
            case .copied: !hasWriters
            case .absent, .unusable, .otherVersion, .stale: false
            }
        if hasWriters, !isTrusted {
            if case .otherVersion(let version) = trust { throw otherVersion(version, files) }
            throw Message().adding(files.path)
                .adding(" is in use, and its index is missing or damaged; ")
                .adding("close its writers, then open it again").failure(.busy)
        }
        if isTrusted, !mustReplace, let engine = try useIndex(files, trust) { return engine }
        if configuration.isReadOnly { return try makePrivateIndex(&files) }
        try removeCleanMark(files, index: nil)
        if !isNew { data.release(Superblock.generation, data.u64(Superblock.generation) &+ 2) }
        return try replaceIndex(&files)
    }

    /// Raises the generation. Called by the sole writer before its first change.
    private func raiseGeneration(_ index: IndexHead) {
        let next = data.u64(Superblock.generation) &+ 1
        index.release(IndexHead.generation, next)
        data.release(Superblock.generation, next)
    }

    private func openIndex(_ files: inout CacheFiles) throws(Failure) -> Trust {
        let fd = files.open(CacheFiles.indexName, configuration.isReadOnly ? SHIM_O_RDONLY : SHIM_O_RDWR)
        if fd == -SHIM_ENOENT { return .absent }
        if fd < 0 { throw files.cannotOpen(CacheFiles.indexName, fd) }
        files.index = Int32(fd)
        files.indexIdentity = try files.checkOwner(files.index, CacheFiles.indexName)
        files.indexBirth = shim_sys_birth(files.index)
        return try Trust.inIndex(files, self)
    }

    /// Throws unless a further writer can share the others' index and locks.
    private func demandLive(_ trust: Trust, _ files: CacheFiles) throws(Failure) {
        switch trust {
        case .live: break
        case .otherVersion(let version): throw otherVersion(version, files)
        default:
            throw Message().adding(files.path)
                .adding("/shale.index was removed or replaced while the cache is in use; ")
                .adding("close all its users, then open it again").failure(.busy)
        }
    }

    private func otherVersion(_ version: UInt64, _ files: CacheFiles) -> Failure {
        Message().adding(files.path).adding(" is in use by processes with version ").adding(
            Int(truncatingIfNeeded: version)
        )
        .adding(" of the index, and this library has version ").adding(
            Int(IndexHead.versionValue)
        )
        .adding("; close them first, or use their version of Shale").failure(.busy)
    }

    /// Returns nil if the index turns out to be unusable.
    private func useIndex(_ files: CacheFiles, _ trust: Trust) throws(Failure) -> Engine? {
        let isReadOnly = configuration.isReadOnly, isCopy = trust == .copied
        var files = files
        let index = try files.map(files.index, geometry.indexSize, writable: !isReadOnly, CacheFiles.indexName)
        keepPagesSmall(index, geometry.indexSize)
        files.indexBase = index
        // Other writers keep changing its words; the sole writer has checked them.
        let isAtRest = isSoleWriter || isReadOnly && !FileLock.writers.isHeld(files.data)
        var isUsable = true
        let engine = try finish(files, index: index) { engine throws(Failure) in
            if isSoleWriter {
                try engine.ref.pointee.files.lengthen(engine.ref.pointee.files.index, to: geometry.indexSize)
            }
            if isCopy { try engine.provideIndex() }
            // (An interrupted rebuild: a read-only handle would wait for it in vain.)
            if isAtRest {
                isUsable = try engine.isConsistent() && !(isReadOnly && Shard.areSomeBeingRebuilt(engine.ref))
            }
            if isCopy, isUsable { isUsable = try engine.isWholeCopy() }
            if isSoleWriter, isUsable {
                raiseGeneration(IndexHead(at: index))
                try PageCacheGuard(engine: engine.ref).separateAll()
                try removeCleanMark(files, index: IndexHead(at: index))
                try engine.initialiseLocks()
                if isCopy || trust == .clean { try engine.adopt() }
                // A killed writer's changes can be checked only once recovered.
                if try engine.recoverShards() { isUsable = try engine.isConsistent() }
            } else if !isReadOnly {
                // (The sole writer has done so; but a lock that fails may report one that does not exist.)
                try removeCleanMark(files, index: IndexHead(at: index))
            }
        }
        if isUsable {
            if isAtRest { engine.fetchTables() }
            return engine
        }
        engine.detachIndex()
        return nil
    }

    /// Removes the clean marks, durably, before the first change: after a power failure, a changed index must not be
    /// trusted, nor one that was replaced and came back. The index's mark goes last: while it exists, the other's
    /// removal may not be synced.
    private func removeCleanMark(_ files: CacheFiles, index: IndexHead?) throws(Failure) {
        let indexMark = index?[IndexHead.cleanMark] ?? 0
        if data.u64(Superblock.cleanMark) == 0, indexMark == 0 { return }
        data.release(Superblock.cleanMark, 0)
        try files.syncData()
        index?.release(IndexHead.cleanMark, 0)
    }

    /// Creates a new file in place of an untrusted one, which is never reformatted: others may have it mapped.
    private func replaceIndex(_ files: inout CacheFiles) throws(Failure) -> Engine {
        try files.retireIndex()
        try files.createNewIndex(mode: block.mode)
        // The old index's space counts until it is removed.
        files.remove(CacheFiles.indexName)
        let index = try files.map(files.index, geometry.indexSize, writable: true, CacheFiles.newIndexName)
        keepPagesSmall(index, geometry.indexSize)
        files.indexBase = index
        do throws(Failure) {
            try files.lengthen(files.index, to: geometry.indexSize)
            try files.allocateIndex(geometry)
        } catch {
            shim_sys_unmap(index, geometry.indexSize)
            files.remove(CacheFiles.newIndexName)
            throw error
        }
        let files = files
        return try finish(files, index: index) { engine throws(Failure) in
            engine.initialiseIndex()
            try engine.initialiseLocks()
            // Before others may use it, mark each shard for a rebuild.
            if !isNew { try engine.announceRebuild() }
            try PageCacheGuard(engine: engine.ref).separateAll()
            let names = (new: CacheFiles.newIndexName, final: CacheFiles.indexName)
            let renamed = shim_sys_renameat(files.directory, names.new.cString, names.final.cString)
            if renamed < 0 { throw Failure.system("rename", files.path, names.new, renamed) }
        }
    }

    /// Builds an index in memory for a read-only handle, if no writer has left a trusted one.
    private func makePrivateIndex(_ files: inout CacheFiles) throws(Failure) -> Engine {
        files.closeIndex()
        let index = try files.map(-1, geometry.indexSize, writable: true, "memory")
        files.indexBase = index
        let generation = data.acquire(Superblock.generation)
        return try finish(files, index: index) { engine throws(Failure) in
            engine.ref.pointee.privateGeneration = generation &+ 1
            engine.initialiseIndex()
            try engine.initialiseLocks()
            try engine.announceRebuild()
            try engine.rebuildShards()
        }
    }
}

extension CacheFiles {
    mutating func closeIndex() {
        if index >= 0 { _ = shim_sys_close(index) }
        index = -1
        indexIdentity = Identity()
    }

    fileprivate func remove(_ file: StaticString) { _ = shim_sys_unlinkat(directory, file.cString) }

    /// Tells handles which have it mapped that it is no longer the cache's index.
    fileprivate mutating func retireIndex() throws(Failure) {
        if index < 0 { return }
        var one: UInt64 = 1
        let retired = shim_sys_pwrite(index, &one, 8, Int64(IndexHead.retired.offset))
        // A file too short for the mark cannot be mapped.
        if retired < 0, try indexSize() > IndexHead.retired.offset {
            throw Failure.system(
                "write to", path, CacheFiles.indexName, retired, advice: "remove this file; the cache creates it again")
        }
        closeIndex()
    }

    fileprivate mutating func createNewIndex(mode: UInt32) throws(Failure) {
        remove(CacheFiles.newIndexName)
        let fd = open(CacheFiles.newIndexName, SHIM_O_RDWR | SHIM_O_CREAT | SHIM_O_EXCL, mode: 0o600)
        if fd < 0 { throw Failure.system("create", path, CacheFiles.newIndexName, fd) }
        index = Int32(fd)
        indexIdentity = try checkOwner(index, CacheFiles.newIndexName)
        indexBirth = shim_sys_birth(index)
        _ = shim_sys_fchmod(index, mode)
        shim_sys_no_copy_on_write(index)
    }

    func allocateIndex(_ geometry: Geometry) throws(Failure) {
        try allocateIndex(0, geometry.chunks)
        let table = Table.bytes(of: Table.leastBuckets)
        for i in 0..<geometry.shards {
            try geometry.forEachPiece(i, from: 0, to: table) { offset, count throws(Failure) in
                try allocateIndex(offset, count)
            }
        }
    }
}

extension Engine {
    /// Initialises an empty index. Needs zeroed memory.
    func initialiseIndex() {
        let head = ref.pointee.head
        let geometry = ref.pointee.geometry
        let least = TableShape(buckets: Table.leastBuckets, frontier: 0, mode: TableShape.Mode.steady)
        for i in 0..<geometry.shards {
            let shard = Shard(ref, i), header = shard.header
            header[ShardHeader.Field.shape] = least.word
            header[ShardHeader.Field.tablePages] = geometry.shardIndexBytes(buckets: Table.leastBuckets)
            shard.log.headOffset = geometry.segmentSize
            shard.log.tailOffset = SegmentHeader.size
        }
        head[IndexHead.version] = IndexHead.versionValue
        head[IndexHead.secretCheck] = Trust.check(ofSecret: ref.pointee.secret)
        head[IndexHead.geometryCheck] = Trust.check(of: geometry)
        head.name(ref.pointee.files)
        head[IndexHead.generation] = ref.pointee.data.u64(Superblock.generation)
        head.release(IndexHead.magic, IndexHead.magicValue)
    }

    /// Only the sole writer may call it.
    func initialiseLocks() throws(Failure) {
        let head = ref.pointee.head
        let files = ref.pointee.files
        shim_lock_init(head.address(IndexHead.dictionaryLock))
        for i in 0..<ref.pointee.geometry.shards {
            let shard = Shard(ref, i)
            shim_lock_init(shard.header.at + ShardHeader.Field.lock)
            if shard.header[ShardHeader.Field.unsure] == ShardHeader.Unsure.damaged {
                try shard.unshared { $0.doubtSums() }
            } else {
                shard.header[ShardHeader.Field.auditAt] = 0
                shard.header[ShardHeader.Field.unsure] = ShardHeader.Unsure.attached
            }
            // They belong to processes that ended.
            shard.leases.removeAll()
        }
        head[IndexHead.boot[0]] = files.boot.0
        head[IndexHead.boot[1]] = files.boot.1
    }

    /// Prepares a new index before a shard is used. Numbers continue above those found.
    fileprivate func announceRebuild() throws(Failure) {
        try provideSegments()
        try ref.pointee.dictionaries.frames.restore(ref.pointee.files, from: ref.pointee.geometry.dictionaries)
        let lead = try Numbers.lead(ref.pointee.files)
        let fileSize = try ref.pointee.files.dataSize()
        var highest: UInt64 = 0
        for i in 0..<ref.pointee.geometry.shards {
            let found = try Shard(ref, i).unshared { shard throws(Failure) in
                try Rebuild.announce(shard, fileSize: fileSize, lead: lead)
            }
            highest = max(highest, found)
        }
        ref.pointee.head.release(IndexHead.lsn, highest &+ lead)
    }

    /// Allocates the holes that a copy of the data file has where there were zeros. Block counts do not tell: some
    /// blocks belong to other parts of the file. Allocating existing blocks is fast (1 GiB in 512 segments: 1 ms on
    /// ext4, 45 ms in a tmpfs).
    private func provideSegments() throws(Failure) {
        let files = ref.pointee.files
        let geometry = ref.pointee.geometry
        let size = try files.dataSize()
        guard let memory = shim_malloc(SegmentHeader.size) else { throw Failure.outOfMemory }
        defer { shim_free(memory) }
        // (A dictionary's frame is allocated again when it is written.)
        try provideData(0, geometry.dictionaries)
        for frame in 0..<geometry.framesPerShard {
            for i in 0..<geometry.shards {
                let shard = Shard(ref, i)
                let offset = shard.log.offset(ofFrame: frame)
                if offset + geometry.segmentSize > size { return }
                if try files.readData(offset, into: memory, SegmentHeader.size),
                    SegmentHeader(at: memory, shard: i, frame: frame, secret: shard.secret) != nil
                {
                    try provideData(offset, geometry.segmentSize)
                }
            }
        }
    }
}
