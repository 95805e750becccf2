import CShalePlatform

/// The index that a handle uses: the one that is there if it can be trusted, or a new one.
extension Attachment {
    func attachIndex(_ files: inout CacheFiles, mustReplace: Bool) throws(Failure) -> Engine {
        let trust = try openIndex(&files)
        if !isSoleWriter, !configuration.isReadOnly { try demandLive(trust, files) }
        let hasWriters = configuration.isReadOnly && FileLock.writers.isHeld(files.data)
        let isTrusted =
            switch trust {
            case .live, .clean: true
            // A read-only handle takes no locks, so it can use what writers of another kind lock.
            case .otherKind: isSoleWriter || configuration.isReadOnly
            // (The first writer makes it its own.)
            case .copied: !hasWriters
            case .absent, .unusable, .stale: false
            }
        if hasWriters, !isTrusted {
            throw Message().adding(files.path)
                .adding(" is being written to, with an index that is gone or damaged; ")
                .adding("close its writers, then open it again").failure(.busy)
        }
        if isTrusted, !mustReplace, let engine = try useIndex(files, trust) { return engine }
        if configuration.isReadOnly { return try makePrivateIndex(&files) }
        try removeCleanMark(files, index: nil)
        if !isNew { data.release(Superblock.generation, data.u64(Superblock.generation) &+ 2) }
        return try replaceIndex(&files)
    }

    /// By its first writer, before it changes anything.
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

    /// A writer beside others shares their index and their locks, or goes.
    private func demandLive(_ trust: Trust, _ files: CacheFiles) throws(Failure) {
        switch trust {
        case .live: break
        case .otherKind:
            throw Message().adding(files.path)
                .adding(" is in use by processes in another PID namespace or with another libc, ")
                .adding("which cannot share locks; close them first").failure(.busy)
        default:
            throw Message().adding(files.path)
                .adding("/shale.index was removed or replaced while the cache is in use; ")
                .adding("close all its users, then open it again").failure(.busy)
        }
    }

    /// The index that is there; nil where it turns out that it cannot be used.
    private func useIndex(_ files: CacheFiles, _ trust: Trust) throws(Failure) -> Engine? {
        let isReadOnly = configuration.isReadOnly, isCopy = trust == .copied
        var files = files
        let index = try files.map(files.index, geometry.indexSize, writable: !isReadOnly, CacheFiles.indexName)
        keepPagesSmall(index, geometry.indexSize)
        files.indexBase = index
        // Beside writers its words are in motion; the first of them has looked.
        let isAtRest = isSoleWriter || isReadOnly && !FileLock.writers.isHeld(files.data)
        var isUsable = true
        let engine = try finish(files, index: index) { engine throws(Failure) in
            if isSoleWriter {
                try engine.ref.pointee.files.lengthen(engine.ref.pointee.files.index, to: geometry.indexSize)
            }
            if isCopy { try engine.provideIndex() }
            // (A rebuild that nobody goes on with: whoever cannot write would wait for it in vain.)
            if isAtRest {
                isUsable = try engine.isConsistent() && !(isReadOnly && Shard.areSomeBeingRebuilt(engine.ref))
            }
            if isCopy, isUsable { isUsable = try engine.isWholeCopy() }
            if isSoleWriter, isUsable {
                raiseGeneration(IndexHead(at: index))
                try Holes(engine: engine.ref).partAll()
                try removeCleanMark(files, index: IndexHead(at: index))
                try engine.initialiseLocks()
                if isCopy || trust == .clean { try engine.adopt() }
                // What a killed writer left could not be judged before it was settled.
                if try engine.recoverShards() { isUsable = try engine.isConsistent() }
            } else if !isReadOnly {
                // (The first has; but a lock that fails may say that there is one.)
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

    /// Durably, before the first change: after a power cut nobody may believe a changed index, nor one that was
    /// replaced and came back. The index's mark goes last: while it is there, it is not known whether the other's end
    /// was synced.
    private func removeCleanMark(_ files: CacheFiles, index: IndexHead?) throws(Failure) {
        let indexMark = index?[IndexHead.cleanMark] ?? 0
        if data.u64(Superblock.cleanMark) == 0, indexMark == 0 { return }
        data.release(Superblock.cleanMark, 0)
        try files.syncData()
        index?.release(IndexHead.cleanMark, 0)
    }

    /// A new file in place of one that cannot be trusted; never the old one formatted anew, which others may have
    /// mapped.
    private func replaceIndex(_ files: inout CacheFiles) throws(Failure) -> Engine {
        try files.retireIndex()
        try files.createNewIndex(mode: block.mode)
        // The old index's space counts until it is gone.
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
            // Once the path leads to it, others may use it: each shard says that it is to be rebuilt.
            if !isNew { try engine.announceRebuild() }
            try Holes(engine: engine.ref).partAll()
            let names = (new: CacheFiles.newIndexName, final: CacheFiles.indexName)
            let renamed = shim_sys_renameat(files.directory, names.new.cString, names.final.cString)
            if renamed < 0 { throw Failure.system("rename", files.path, names.new, renamed) }
        }
    }

    /// For a read-only user where no writer has left an index that can be trusted.
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

    /// Tells those who have it mapped that it is not the cache's any more.
    fileprivate mutating func retireIndex() throws(Failure) {
        if index < 0 { return }
        var one: UInt64 = 1
        let retired = shim_sys_pwrite(index, &one, 8, Int64(IndexHead.retired.offset))
        // Nobody can have mapped a file that has no room for the mark.
        if retired < 0, try indexSize() > IndexHead.retired.offset {
            throw Failure.system(
                "write to", path, CacheFiles.indexName, retired, advice: "remove this file; it is made anew")
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
    /// An empty index in zeroed memory, that names its owner.
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

    /// Only where nobody else is attached.
    func initialiseLocks() throws(Failure) {
        let head = ref.pointee.head
        let files = ref.pointee.files
        var result = shim_mutex_init(head.address(IndexHead.dictionaryLock))
        for i in 0..<ref.pointee.geometry.shards where result == 0 {
            let shard = Shard(ref, i)
            result = shim_mutex_init(shard.header.at + ShardHeader.Field.mutex)
            if shard.header[ShardHeader.Field.unsure] == ShardHeader.Unsure.damaged {
                try shard.unshared { $0.doubtSums() }
            } else {
                shard.header[ShardHeader.Field.auditAt] = 0
                shard.header[ShardHeader.Field.unsure] = ShardHeader.Unsure.attached
            }
            // Of processes that are gone.
            shard.leases.removeAll()
        }
        if result != 0 {
            throw Failure.system(
                "make the locks of", files.path, files.isMemory ? "the cache in memory" : "", -Int(result))
        }
        head[IndexHead.boot[0]] = files.boot.0
        head[IndexHead.boot[1]] = files.boot.1
        head[IndexHead.pidNamespace] = files.pidNamespace
        head[IndexHead.libc] = shim_libc_identity()
    }

    /// What a new index has to know of all logs before a shard is used. Numbers go on above those that are found.
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

    /// A copy of the data file may have holes where there were zeros. Whether there are any, blocks that are counted do not
    /// tell: some belong to other parts of the file. What is there already is quickly allocated (1 GiB in 512 segments:
    /// 1 ms on ext4, 45 ms in a tmpfs).
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
