import CShalePlatform

/// Attaching to a cache and leaving it: locks, identity, trust.
///
/// Byte-range locks of `shale.data`'s open file description: one byte is held
/// while setting up or closing, attached writers share a second, read-only
/// users a third. Who is alone among writers re-initialises the locks in the
/// index (a lock's bytes in a file are never believed), decides whether the
/// index can be trusted, and may change the capacity.
enum Attachment {
    private enum Lock { static let setup: Int64 = 1 << 60, writers: Int64 = setup + 1, readers: Int64 = setup + 2 }

    // MARK: Memory

    static func openInMemory(_ configuration: Configuration) throws(Failure) -> Engine {
        if configuration.isReadOnly || configuration.mustExist { throw Failure.because(.invalid, "a cache in memory is new: it cannot be read-only, and cannot exist before") }
        let block = try configuration.newSuperblock(secret: try randomWord(nil), now: clock(configuration).now)
        let geometry = Geometry(block)
        var files = CacheFiles()
        let data = try map(-1, geometry.dataSize, writable: true, &files, "memory")
        files.dataBase = data
        shim_sys_huge_pages(data, geometry.dataSize)
        let index: Memory
        do throws(Failure) { index = try map(-1, geometry.indexSize, writable: true, &files, "memory") } catch {
            shim_sys_unmap(data, geometry.dataSize)
            throw error
        }
        files.indexBase = index
        do throws(Failure) {
            return try finish(block, configuration, files, data, index, geometry) { ref throws(Failure) in
                initialiseIndex(ref)
                try initialiseLocks(ref)
            }
        } catch {
            shim_sys_unmap(data, geometry.dataSize)
            throw error
        }
    }

    // MARK: Open

    static func open(_ path: UnsafePointer<CChar>, _ configuration: Configuration) throws(Failure) -> Engine {
        var files = CacheFiles()
        files.isReadOnly = configuration.isReadOnly
        guard let copy = shim_duplicate(path) else { throw Failure.outOfMemory }
        files.path = copy
        do throws(Failure) {
            try openDirectory(&files, configuration)
            try openData(&files, configuration)
            try identifySystem(&files)
            let engine = try attach(&files, configuration)
            let released = shim_sys_lock(files.data, Lock.setup, Int32(SHIM_UNLOCK), false)
            if released == 0 { return engine }
            // Kept, it would let nobody else in.
            unmap(engine.ref)
            freeState(engine.ref)
            throw Failure.system("unlock", files.path, CacheFiles.dataName, released)
        } catch {
            unlock(files.data)
            files.closeAll()
            throw error
        }
    }

    /// Before a description that no handle uses is closed: a child that another thread has forked meanwhile
    /// holds it as well, and would hold its locks for as long as it lives.
    private static func unlock(_ fd: Int32) {
        if fd < 0 { return }
        _ = shim_sys_lock(fd, Lock.writers, Int32(SHIM_UNLOCK), false)
        _ = shim_sys_lock(fd, Lock.setup, Int32(SHIM_UNLOCK), false)
    }

    private static func openDirectory(_ files: inout CacheFiles, _ configuration: Configuration) throws(Failure) {
        var directory = shim_sys_open_directory(files.path)
        if directory == -SHIM_ENOENT, !configuration.isReadOnly, !configuration.mustExist {
            // Nothing is created for options that no cache can have.
            _ = try configuration.newSuperblock(secret: 0, now: 0)
            let made = makeDirectories(files.path.unsafelyUnwrapped)
            directory = shim_sys_open_directory(files.path)
            if directory == -SHIM_ENOENT, made < 0 {
                throw Failure.system("create the directory", files.path, "", made, advice: "choose a path that is, or can become, a directory of yours")
            }
        }
        if directory < 0 {
            throw Failure.system("open the directory", files.path, "", directory, advice: configuration.mustExist || configuration.isReadOnly
                ? "open it without SHALE_OPEN_MUST_EXIST and SHALE_OPEN_READ_ONLY to create it" : "choose a path that is, or can become, a directory of yours")
        }
        files.directory = Int32(directory)
        files.directoryIdentity = CacheFiles.Identity(try files.look(files.directory, ""))
        var type: UInt64 = 0
        _ = shim_sys_filesystem(files.directory, &type)
        // NFS, SMB, SMB2, CIFS, AFS, Coda, NCP, 9P, Ceph, Lustre, GFS2, OCFS2.
        let remote: [UInt64] = [0x6969, 0x517B, 0xFE53_4D42, 0xFF53_4D42, 0x5346_414F, 0x7375_7245, 0x564C, 0x0102_1997, 0x00C3_6400, 0x0BD0_0BD0, 0x0116_1970, 0x7461_636F]
        files.isOverlay = type == 0x794C_7630
        if remote.contains(type) {
            throw Message().adding(files.path).adding(" is on a file system that cannot share mappings between machines; keep the cache on a local one").failure(.filesystem)
        }
    }

    /// Missing parents too. Returns what went wrong first; whether it matters shows when the directory is opened.
    private static func makeDirectories(_ path: UnsafeMutablePointer<CChar>) -> Int {
        var i = 1, failed = 0
        while path[i - 1] != 0 {
            if path[i] == 47 || path[i] == 0 {
                let end = path[i]
                path[i] = 0
                let made = shim_sys_mkdir(path, end == 0 ? 0o700 : 0o777)
                if failed == 0, made != -SHIM_EEXIST { failed = made }
                path[i] = end
            }
            i += 1
        }
        return failed
    }

    /// Opens or creates `shale.data` and takes the set-up byte on the file that the path leads to.
    private static func openData(_ files: inout CacheFiles, _ configuration: Configuration) throws(Failure) {
        let access = configuration.isReadOnly ? SHIM_O_RDONLY : SHIM_O_RDWR
        for _ in 0..<100 {
            var fd = shim_sys_openat(files.directory, name(CacheFiles.dataName), Int32(access), 0)
            if fd == -SHIM_ENOENT {
                if configuration.isReadOnly || configuration.mustExist {
                    throw Failure.system("open", files.path, CacheFiles.dataName, fd, advice: "there is no cache here yet")
                }
                try refuseForeignFiles(files)
                _ = try configuration.newSuperblock(secret: 0, now: 0)
                fd = shim_sys_openat(files.directory, name(CacheFiles.dataName), Int32(SHIM_O_RDWR | SHIM_O_CREAT | SHIM_O_EXCL), 0o600)
                if fd == -SHIM_EEXIST { continue }
                if fd >= 0 {
                    _ = shim_sys_fchmod(Int32(fd), configuration.mode == 0 ? 0o600 : configuration.mode)
                    shim_sys_no_copy_on_write(Int32(fd))
                }
            }
            if fd == -SHIM_ELOOP {
                throw Failure.system("open", files.path, CacheFiles.dataName, fd, status: .permission, advice: "it is a symbolic link, which is never followed")
            }
            if fd < 0 { throw Failure.system("open", files.path, CacheFiles.dataName, fd) }
            files.data = Int32(fd)
            files.dataIdentity = try checkOwner(files, files.data, CacheFiles.dataName)
            let locked = shim_sys_lock(files.data, Lock.setup, Int32(configuration.isReadOnly ? SHIM_READ_LOCK : SHIM_WRITE_LOCK), true)
            if locked < 0 { throw Failure.system("lock", files.path, CacheFiles.dataName, locked) }
            var s = shim_stat()
            let found = shim_sys_fstatat(files.directory, name(CacheFiles.dataName), &s)
            if found == 0, CacheFiles.Identity(s) == files.dataIdentity { return }
            if found < 0, found != -SHIM_ENOENT { throw Failure.system("look at", files.path, CacheFiles.dataName, found) }
            // Somebody replaced it between the two calls.
            _ = shim_sys_close(files.data)
            files.data = -1
        }
        throw Message().adding(files.path).adding("/shale.data is being replaced again and again; find out by whom").failure(.busy)
    }

    private static func refuseForeignFiles(_ files: CacheFiles) throws(Failure) {
        var buffer: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0, 0, 0)
        try withUnsafeMutableBytes(of: &buffer) { raw throws(Failure) in
            let text = raw.baseAddress.unsafelyUnwrapped.assumingMemoryBound(to: CChar.self)
            let found = shim_sys_has_foreign_files(files.directory, text, raw.count)
            if found < 0 { throw Failure.system("list", files.path, "", found) }
            if found > 0 {
                throw Message().adding(files.path).adding(" holds other files (").adding(UnsafePointer(text)).adding(") and no cache; choose an empty directory").failure(.format)
            }
        }
    }

    /// A cache that somebody else prepared in a shared place is never used.
    private static func checkOwner(_ files: CacheFiles, _ fd: Int32, _ file: StaticString) throws(Failure) -> CacheFiles.Identity {
        let s = try files.look(fd, file)
        var message: Message { Message().adding(files.path).adding("/").adding(file) }
        if s.mode & 0o170000 != 0o100000 { throw message.adding(" is not a regular file; a cache is never kept there").failure(.permission) }
        if s.owner != shim_sys_euid(), s.owner != 0 { throw message.adding(" belongs to another user; use a directory of your own").failure(.permission) }
        if s.links > 1 { throw message.adding(" has more than one link; use a directory of your own").failure(.permission) }
        return CacheFiles.Identity(s)
    }

    // MARK: Attach

    private static func attach(_ files: inout CacheFiles, _ configuration: Configuration) throws(Failure) -> Engine {
        let alone: Bool
        if configuration.isReadOnly {
            _ = shim_sys_lock(files.data, Lock.readers, Int32(SHIM_READ_LOCK), false)
            // Who writes now has had the copy made.
            files.mayBeLower = files.isOverlay && !shim_sys_is_locked(files.data, Lock.writers)
            alone = false
        } else {
            let exclusive = shim_sys_lock(files.data, Lock.writers, Int32(SHIM_WRITE_LOCK), false)
            alone = exclusive == 0
            // Shared at once: the set-up byte keeps others out until all is settled.
            let shared = alone || exclusive == -SHIM_EAGAIN ? shim_sys_lock(files.data, Lock.writers, Int32(SHIM_READ_LOCK), false) : exclusive
            if shared < 0 { throw Failure.system("lock", files.path, CacheFiles.dataName, shared) }
        }
        var (block, isNew) = try readSuperblock(files, configuration, alone: alone)
        if alone, block.version < Superblock.formatVersion {
            // On the disk before anything else changes: a library that does not know the format must not take the cache.
            try block.upgrade(files)
            try files.syncData()
        }
        let recorded = block
        let change = try compare(&block, configuration, files, alone: alone)
        if change == .grow { try recoverShards(of: recorded, &files, configuration) }
        let geometry = Geometry(block)
        let data = try mapData(&files, geometry, writable: !configuration.isReadOnly)
        files.dataBase = data
        do throws(Failure) {
            if isNew { try writeNewData(files, block, geometry, data) }
            if !isNew, block.capacity > recorded.capacity { try raiseCapacity(&block, files, maxEntries: recorded.maxEntries) }
            let engine = try attachIndex(&files, configuration, block, data, alone: alone, isNew: isNew, mustReplace: change == .grow)
            if alone {
                do throws(Failure) {
                    try settleAlone(engine.ref, change, from: recorded)
                } catch {
                    shim_sys_unmap(engine.ref.pointee.index, geometry.indexSize)
                    freeState(engine.ref)
                    throw error
                }
            }
            return engine
        } catch {
            shim_sys_unmap(data, geometry.dataSize)
            throw error
        }
    }

    /// Maps `shale.data` by a descriptor of its own: a mapping keeps its descriptor's locks, also when the
    /// descriptor is closed, and who closes has to see whether it was the last.
    private static func mapData(_ files: inout CacheFiles, _ geometry: Geometry, writable: Bool) throws(Failure) -> Memory {
        let opened = shim_sys_openat(files.directory, name(CacheFiles.dataName), Int32(writable ? SHIM_O_RDWR : SHIM_O_RDONLY), 0)
        if opened < 0 { throw Failure.system("open", files.path, CacheFiles.dataName, opened) }
        let fd = Int32(opened)
        defer { _ = shim_sys_close(fd) }
        guard try checkOwner(files, fd, CacheFiles.dataName) == files.dataIdentity else {
            throw Message().adding(files.path).adding("/shale.data was replaced while it was being opened; try again").failure(.busy)
        }
        let data = try map(fd, geometry.dataSize, writable: writable, &files, CacheFiles.dataName)
        keepPagesSmall(data, geometry.hasSmallPages ? geometry.dataSize : geometry.segments)
        return data
    }

    private enum Change { case none, limits, grow, shrink }

    private static func readSuperblock(_ files: CacheFiles, _ configuration: Configuration, alone: Bool) throws(Failure) -> (Superblock, isNew: Bool) {
        guard let page = shim_calloc(Sizes.superblockPage) else { throw Failure.outOfMemory }
        defer { shim_free(page) }
        let result = shim_sys_pread(files.data, page, Sizes.superblockPage, 0)
        if result < 0 { throw Failure.system("read", files.path, CacheFiles.dataName, result) }
        var message: Message { Message().adding(files.path).adding("/shale.data") }
        switch Superblock.read(page) {
        case .sound(let block):
            guard isPossible(block) else { throw message.adding(": its superblock is damaged; remove the directory to start anew").failure(.format) }
            guard Int(try files.look(files.data, CacheFiles.dataName).size) >= Geometry(block).dictionaries else {
                throw message.adding(" was cut short; remove the directory to start anew").failure(.format)
            }
            return (block, false)
        case .newer: throw message.adding(" has a newer format; use a newer library, or another directory").failure(.version)
        case .foreign: throw message.adding(" is not a cache; choose another directory").failure(.format)
        case .damaged: throw message.adding(": its superblock is damaged; remove the directory to start anew").failure(.format)
        case .empty:
            guard alone else { throw message.adding(" is not complete yet; open it for writing first").failure(.busy) }
            // A creation that was cut off may have left blocks.
            let size = Int(try files.look(files.data, CacheFiles.dataName).size)
            if size > 0 { _ = files.releaseData(0, size) }
            return (try configuration.newSuperblock(secret: try randomWord(files.path), now: clock(configuration).now), true)
        }
    }

    /// What passed its check and still cannot be: lengths are checked before use all the same.
    private static func isPossible(_ b: Superblock) -> Bool {
        guard b.capacity >= Limits.capacity, b.capacity <= Limits.mostCapacity, b.shards >= 1, b.shards <= Limits.shards, b.segmentSize >= Limits.segmentSizes.least,
              b.segmentSize <= Limits.segmentSizes.most, b.segmentSize & (b.segmentSize - 1) == 0, b.rows >= Superblock.leastPlaces, b.rows <= Limits.placesPerShard,
              Int(b.rows) * Int(b.segmentSize) <= Limits.shardLogBytes, b.dictionaryPlaces <= 16, b.expiryBase < 1 << 40, b.dictionarySize <= 64 << 10,
              (b.dictionarySize == 0) == (b.dictionaryPlaces == 0), Int(b.dictionarySize) % pageSize == 0, b.mode & ~0o777 == 0, b.syncedBytes == 16 || b.syncedBytes == 32,
              Int(b.shards) * Superblock.leastPlaces * Int(b.segmentSize) <= Int(b.capacity) else { return false }
        return true
    }

    /// Options that belong to the cache.
    private static func compare(_ block: inout Superblock, _ configuration: Configuration, _ files: CacheFiles, alone: Bool) throws(Failure) -> Change {
        var message: Message { Message().adding(files.path) }
        if configuration.shards != 0, configuration.shards != block.shards {
            throw message.adding(" has ").adding(Int(block.shards)).adding(" shard(s), which cannot be changed; pass 0, or use another directory").failure(.invalid)
        }
        if configuration.segmentSize != 0, configuration.segmentSize != block.segmentSize {
            throw message.adding(" has segments of ").adding(Int(block.segmentSize)).adding(" bytes, which cannot be changed; pass 0, or use another directory").failure(.invalid)
        }
        let capacity = configuration.capacity == 0 ? block.capacity : configuration.capacity
        let entries = configuration.maxEntries == 0 ? block.maxEntries : configuration.maxEntries
        if capacity == block.capacity, entries == block.maxEntries { return .none }
        guard alone else { throw message.adding(" is in use with another capacity or max_entries; close its other users first, or pass 0").failure(.busy) }
        let rows = block.rows
        let before = block.capacity
        block.capacity = capacity
        block.maxEntries = entries
        if capacity == before { return .limits }
        try block.fit()
        // Places are never renumbered: a smaller budget uses fewer of them.
        return block.rows > rows ? .grow : capacity > before ? .limits : .shrink
    }

    private static func writeNewData(_ files: CacheFiles, _ block: Superblock, _ geometry: Geometry, _ data: Memory) throws(Failure) {
        try files.allocateData(0, geometry.dictionaries)
        data.zero(geometry.dictionaries)
        // The name is durable only once the directory is; some file systems cannot sync one. Before the
        // superblock: where it fails, the file stays empty, and the next to open it tries again.
        let synced = shim_sys_fsync(files.directory)
        if synced < 0, synced != -SHIM_EINVAL { throw Failure.system("sync the directory", files.path, "", synced) }
        var block = block
        try block.write(files)
        // Before anything else is in its page: half a page would be taken for somebody else's file.
        try files.syncData()
    }

    // MARK: The index

    private static func attachIndex(_ files: inout CacheFiles, _ configuration: Configuration, _ block: Superblock, _ data: Memory, alone: Bool, isNew: Bool,
                                    mustReplace: Bool) throws(Failure) -> Engine {
        let geometry = Geometry(block)
        let access = configuration.isReadOnly ? SHIM_O_RDONLY : SHIM_O_RDWR
        let fd = shim_sys_openat(files.directory, name(CacheFiles.indexName), Int32(access), 0)
        var verdict = Trust.absent
        if fd >= 0 {
            files.index = Int32(fd)
            files.indexIdentity = try checkOwner(files, files.index, CacheFiles.indexName)
            verdict = try judge(files, block, geometry, data)
        } else if fd == -SHIM_ELOOP {
            throw Failure.system("open", files.path, CacheFiles.indexName, fd, status: .permission, advice: "it is a symbolic link, which is never followed")
        } else if fd != -SHIM_ENOENT {
            throw Failure.system("open", files.path, CacheFiles.indexName, fd)
        }
        if !alone, !configuration.isReadOnly {
            switch verdict {
            case .live: break
            case .otherKind: throw Message().adding(files.path).adding(" is in use by processes in another PID namespace or with another libc, which cannot share locks; close them first").failure(.busy)
            default: throw Message().adding(files.path).adding("/shale.index was removed or replaced while the cache is in use; close all its users, then open it again").failure(.busy)
            }
        }
        // A read-only handle takes no locks, so it can use what writers of another kind lock.
        let trusted = verdict == .live || verdict == .clean || (alone || configuration.isReadOnly) && verdict == .otherKind
        if configuration.isReadOnly, !trusted, shim_sys_is_locked(files.data, Lock.writers) {
            throw Message().adding(files.path).adding(" is being written to, with an index that is gone or damaged; close its writers, then open it again").failure(.busy)
        }
        if trusted, !mustReplace {
            let index = try map(files.index, geometry.indexSize, writable: !configuration.isReadOnly, &files, CacheFiles.indexName)
            keepPagesSmall(index, geometry.indexSize)
            // Beside writers its words are in motion; the first of them has looked.
            let isAtRest = alone || configuration.isReadOnly && !shim_sys_is_locked(files.data, Lock.writers)
            var isUsable = true
            let engine = try finish(block, configuration, files, data, index, geometry) { ref throws(Failure) in
                if isAtRest { isUsable = try isConsistent(ref) && !(configuration.isReadOnly && isHalfRebuilt(ref)) }
                if alone, isUsable {
                    try Holes(engine: ref).partAll()
                    try removeCleanMark(files, data, index)
                    try initialiseLocks(ref)
                    // What a killed writer left could not be judged before it was settled.
                    if try recoverShards(ref) { isUsable = try isConsistent(ref) }
                }
            }
            if isUsable {
                if isAtRest { fetchTables(engine.ref) }
                return engine
            }
            freeState(engine.ref)
            shim_sys_unmap(index, geometry.indexSize)
        }
        if configuration.isReadOnly { return try privateIndex(&files, configuration, block, data, geometry) }
        try removeCleanMark(files, data, nil)
        return try replaceIndex(&files, configuration, block, data, geometry, isNew: isNew)
    }

    /// Durably, before the first change: after a power cut nobody may believe a changed index, nor one that was
    /// replaced and came back. The index's mark goes last: while it is there, it is not known whether the
    /// other's end was synced.
    private static func removeCleanMark(_ files: CacheFiles, _ data: Memory, _ index: Memory?) throws(Failure) {
        let indexMark = index?.u64(IndexHead.cleanMark) ?? 0
        if data.u64(Superblock.cleanMark) == 0, indexMark == 0 { return }
        data.release(Superblock.cleanMark, 0)
        try files.syncData()
        index?.release(IndexHead.cleanMark, 0)
    }

    private static func finish(_ block: Superblock, _ configuration: Configuration, _ files: CacheFiles, _ data: Memory, _ index: Memory, _ geometry: Geometry,
                               _ prepare: (EngineRef) throws(Failure) -> Void) throws(Failure) -> Engine {
        do throws(Failure) {
            let ref = try makeState(block, configuration, files, data: data, index: index)
            do throws(Failure) { try prepare(ref) } catch {
                freeState(ref)
                throw error
            }
            return Engine(ref)
        } catch {
            shim_sys_unmap(index, geometry.indexSize)
            throw error
        }
    }

    private enum Trust { case absent, unusable, stale, otherKind, clean, live }

    /// Whether the index may be believed: it names this boot and the very files, or a clean close left
    /// the same nonce in both.
    private static func judge(_ files: CacheFiles, _ block: Superblock, _ geometry: Geometry, _ data: Memory) throws(Failure) -> Trust {
        guard let page = shim_calloc(pageSize) else { throw Failure.outOfMemory }
        defer { shim_free(page) }
        guard shim_sys_pread(files.index, page, pageSize, 0) == pageSize else { return .unusable }
        guard Int(try files.look(files.index, CacheFiles.indexName).size) >= leastIndexSize(geometry) else { return .unusable }
        guard page.u64(IndexHead.magicWord) == IndexHead.magic, page.u64(IndexHead.versionWord) == IndexHead.version,
              page.u64(IndexHead.secretCheck) == secretCheck(block), page.u64(IndexHead.geometryCheck) == geometryCheck(geometry),
              page.u64(IndexHead.ownDevice) == files.indexIdentity.device, page.u64(IndexHead.ownInode) == files.indexIdentity.inode,
              page.u64(IndexHead.dataDevice) == files.dataIdentity.device, page.u64(IndexHead.dataInode) == files.dataIdentity.inode,
              page.u64(IndexHead.retired) == 0 else { return .unusable }
        let boot = files.boot
        if boot != (0, 0), page.u64(IndexHead.bootLow) == boot.0, page.u64(IndexHead.bootHigh) == boot.1 {
            return page.u64(IndexHead.pidNamespace) == files.pidNamespace && page.u64(IndexHead.libc) == shim_libc_identity() ? .live : .otherKind
        }
        let mark = data.u64(Superblock.cleanMark)
        return mark != 0 && page.u64(IndexHead.cleanMark) == mark ? .clean : .stale
    }

    /// An index that is to be replaced is asked once more: what killed writers have appended and nobody has seen would
    /// come to light, with the log alone.
    private static func recoverShards(of block: Superblock, _ files: inout CacheFiles, _ configuration: Configuration) throws(Failure) {
        let geometry = Geometry(block)
        let fd = shim_sys_openat(files.directory, name(CacheFiles.indexName), Int32(SHIM_O_RDONLY), 0)
        if fd < 0 { return }
        var isQuiet = true, state: UInt64 = 0
        for i in 0..<geometry.shards {
            let at = Geometry.indexHead + i * geometry.shardStride + ShardHeader.Field.state
            if shim_sys_pread(Int32(fd), &state, 8, Int64(at)) == 8, state != ShardHeader.State.quiet { isQuiet = false }
        }
        _ = shim_sys_close(Int32(fd))
        if isQuiet { return }
        let data = try mapData(&files, geometry, writable: true)
        defer { shim_sys_unmap(data, geometry.dataSize) }
        files.dataBase = data
        let engine = try attachIndex(&files, configuration, block, data, alone: true, isNew: false, mustReplace: false)
        shim_sys_unmap(engine.ref.pointee.index, geometry.indexSize)
        freeState(engine.ref)
        // (It is opened again by whoever attaches.)
        _ = shim_sys_close(files.index)
        files.index = -1
        files.indexIdentity = CacheFiles.Identity()
    }

    /// Settles what killed writers have left; whether there was any.
    private static func recoverShards(_ ref: EngineRef) throws(Failure) -> Bool {
        var found = false
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).header.at.u64(ShardHeader.Field.state) != ShardHeader.State.quiet {
            try Shard(ref, i).lock()
            Shard(ref, i).unlock()
            found = true
        }
        return found
    }

    private static func isConsistent(_ ref: EngineRef) throws(Failure) -> Bool {
        let dataSize = try ref.pointee.files.dataSize()
        let indexSize = Int(try ref.pointee.files.look(ref.pointee.files.index, CacheFiles.indexName).size)
        let mark = ref.pointee.data.u64(Superblock.cleanMark)
        let isClean = mark != 0 && ref.pointee.index.u64(IndexHead.cleanMark) == mark
        guard ref.pointee.index.u64(IndexHead.lsn) < SegmentHeader.beyond, ref.pointee.dictionaries.places.isConsistent(from: ref.pointee.geometry.dictionaries, dataSize: dataSize) else { return false }
        for i in 0..<ref.pointee.geometry.shards where !Shard(ref, i).isConsistent(dataSize: dataSize, indexSize: indexSize, isClean: isClean) { return false }
        return true
    }

    /// A rebuild that nobody goes on with: whoever cannot write would wait for it in vain.
    private static func isHalfRebuilt(_ ref: EngineRef) -> Bool {
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).header.isBeingRebuilt { return true }
        return false
    }

    private static func leastIndexSize(_ g: Geometry) -> Int {
        Geometry.indexHead + (g.shards - 1) * g.shardStride + g.table + Geometry.tableBytes(Table.leastBuckets)
    }
    private static func secretCheck(_ block: Superblock) -> UInt64 {
        var secret = block.secret
        return withUnsafeBytes(of: &secret) { shim_hash($0.start, 8, IndexHead.magic) }
    }
    private static func geometryCheck(_ g: Geometry) -> UInt64 {
        var words = (UInt64(g.shards), UInt64(g.segmentSize), UInt64(g.rows), UInt64(g.shardStride), UInt64(shim_mutex_size()))
        return withUnsafeBytes(of: &words) { shim_hash($0.start, 40, IndexHead.magic) }
    }
    /// Boot and PID namespace, unknown where there is no /proc. That one cannot be read for another reason
    /// is an error: nobody else would believe the index.
    private static func identifySystem(_ files: inout CacheFiles) throws(Failure) {
        func check(_ result: Int, _ file: StaticString) throws(Failure) {
            if result < 0, result != -SHIM_ENOENT, result != -SHIM_EACCES { throw Failure.system("read", nil, file, result) }
        }
        var text: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0)
        let n = withUnsafeMutableBytes(of: &text) { shim_sys_read_file("/proc/sys/kernel/random/boot_id", $0.baseAddress, 48) }
        try check(n, "/proc/sys/kernel/random/boot_id")
        if n >= 36 { files.boot = withUnsafeBytes(of: &text) { (shim_hash($0.start, 36, 1), shim_hash($0.start, 36, 2)) } }
        try check(shim_sys_pid_namespace(&files.pidNamespace), "/proc/self/ns/pid")
    }

    /// A new file in place of one that cannot be trusted; never the old one formatted anew, which
    /// others may have mapped.
    private static func replaceIndex(_ files: inout CacheFiles, _ configuration: Configuration, _ block: Superblock, _ data: Memory, _ geometry: Geometry, isNew: Bool) throws(Failure) -> Engine {
        if files.index >= 0 {
            var one: UInt64 = 1
            let retired = shim_sys_pwrite(files.index, &one, 8, Int64(IndexHead.retired))
            // Nobody can have mapped a file that has no room for the mark.
            if retired < 0, Int(try files.look(files.index, CacheFiles.indexName).size) > IndexHead.retired {
                throw Failure.system("write to", files.path, CacheFiles.indexName, retired, advice: "remove this file; it is made anew")
            }
            _ = shim_sys_close(files.index)
            files.index = -1
            files.indexIdentity = CacheFiles.Identity()
        }
        _ = shim_sys_unlinkat(files.directory, name(CacheFiles.newIndexName))
        let fd = shim_sys_openat(files.directory, name(CacheFiles.newIndexName), Int32(SHIM_O_RDWR | SHIM_O_CREAT | SHIM_O_EXCL), 0o600)
        if fd < 0 { throw Failure.system("create", files.path, CacheFiles.newIndexName, fd) }
        files.index = Int32(fd)
        files.indexIdentity = try checkOwner(files, files.index, CacheFiles.newIndexName)
        _ = shim_sys_fchmod(files.index, block.mode)
        shim_sys_no_copy_on_write(files.index)
        // The old index's space counts until it is gone.
        _ = shim_sys_unlinkat(files.directory, name(CacheFiles.indexName))
        do throws(Failure) { try allocateIndex(files, geometry) } catch {
            _ = shim_sys_unlinkat(files.directory, name(CacheFiles.newIndexName))
            throw error
        }
        let index = try map(files.index, geometry.indexSize, writable: true, &files, CacheFiles.newIndexName)
        keepPagesSmall(index, geometry.indexSize)
        files.indexBase = index
        let directory = files.directory, path = files.path
        return try finish(block, configuration, files, data, index, geometry) { ref throws(Failure) in
            initialiseIndex(ref)
            try initialiseLocks(ref)
            // The index is complete before the path leads to it; the rebuild below is per shard and marked.
            if !isNew { try rebuildAll(ref) }
            try Holes(engine: ref).partAll()
            let renamed = shim_sys_renameat(directory, name(CacheFiles.newIndexName), name(CacheFiles.indexName))
            if renamed < 0 { throw Failure.system("rename", path, CacheFiles.newIndexName, renamed) }
        }
    }

    private static func allocateIndex(_ files: CacheFiles, _ g: Geometry) throws(Failure) {
        try files.allocateIndex(0, Geometry.indexHead)
        for i in 0..<g.shards {
            let base = Geometry.indexHead + i * g.shardStride
            try files.allocateIndex(base, g.fixed)
            try files.allocateIndex(base + g.heaps.0, Geometry.heapBytes(Table.leastBuckets))
            try files.allocateIndex(base + g.heaps.1, Geometry.heapBytes(Table.leastBuckets))
            try files.allocateIndex(base + g.table, Geometry.tableBytes(Table.leastBuckets))
        }
    }

    /// For a read-only user where no writer has left an index that can be trusted.
    private static func privateIndex(_ files: inout CacheFiles, _ configuration: Configuration, _ block: Superblock, _ data: Memory, _ geometry: Geometry) throws(Failure) -> Engine {
        if files.index >= 0 { _ = shim_sys_close(files.index) }
        files.index = -1
        let index = try map(-1, geometry.indexSize, writable: true, &files, "memory")
        files.indexBase = index
        let generation = data.acquire(Superblock.generation)
        return try finish(block, configuration, files, data, index, geometry) { ref throws(Failure) in
            ref.pointee.privateGeneration = generation &+ 1
            initialiseIndex(ref)
            try initialiseLocks(ref)
            try rebuildAll(ref)
        }
    }

    private static func rebuildAll(_ ref: EngineRef) throws(Failure) {
        if !ref.pointee.isReadOnly { try fillHoles(ref) }
        try ref.pointee.dictionaries.places.restore(ref.pointee.files, from: ref.pointee.geometry.dictionaries)
        let lead = 1 << 32 + (try randomWord(ref.pointee.files.path)) >> 32
        try Shard.rebuildAll(ref, lead: lead)
    }

    /// A copy of the data file may have holes where nothing had been written, and a store into one would meet a full
    /// disk. Whether there are any, blocks that are counted do not tell: some belong to other parts of the file. What
    /// is there already is quickly allocated (1 GiB in 512 segments: 1 ms on ext4, 45 ms in a tmpfs).
    private static func fillHoles(_ ref: EngineRef) throws(Failure) {
        let files = ref.pointee.files, geometry = ref.pointee.geometry, size = try files.dataSize()
        guard let memory = shim_malloc(SegmentHeader.size) else { throw Failure.outOfMemory }
        defer { shim_free(memory) }
        // (A dictionary's place is allocated again when it is written.)
        try files.allocateData(0, geometry.dictionaries)
        for place in 0..<geometry.rows {
            for i in 0..<geometry.shards {
                let shard = Shard(ref, i), offset = shard.log.offset(ofPlace: place)
                if offset + geometry.segmentSize > size { return }
                if try files.readData(offset, into: memory, SegmentHeader.size),
                   SegmentHeader(at: memory, shard: i, place: place, secret: shard.secret) != nil {
                    try files.allocateData(offset, geometry.segmentSize)
                }
            }
        }
    }

    /// An empty index in zeroed memory, that names its owner.
    private static func initialiseIndex(_ ref: EngineRef) {
        let index = ref.pointee.index, geometry = ref.pointee.geometry, files = ref.pointee.files
        for i in 0..<geometry.shards {
            let shard = Shard(ref, i)
            shard.header.at.set(ShardHeader.Field.shape, Table.Shape(buckets: Table.leastBuckets, frontier: 0, mode: Table.Shape.Mode.steady).word)
            shard.header[ShardHeader.Field.tablePages] = geometry.shardIndexBytes(buckets: Table.leastBuckets)
            shard.header[ShardHeader.Field.headOffset] = geometry.segmentSize
            shard.header[ShardHeader.Field.tailOffset] = SegmentHeader.size
        }
        index.set(IndexHead.versionWord, IndexHead.version)
        index.set(IndexHead.secretCheck, secretCheck(ref.pointee.block))
        index.set(IndexHead.geometryCheck, geometryCheck(geometry))
        index.set(IndexHead.ownDevice, files.indexIdentity.device)
        index.set(IndexHead.ownInode, files.indexIdentity.inode)
        index.set(IndexHead.dataDevice, files.dataIdentity.device)
        index.set(IndexHead.dataInode, files.dataIdentity.inode)
        index.release(IndexHead.magicWord, IndexHead.magic)
    }

    /// Only where nobody else is attached.
    private static func initialiseLocks(_ ref: EngineRef) throws(Failure) {
        let index = ref.pointee.index
        var result = shim_mutex_init(index + IndexHead.dictionaryLock)
        for i in 0..<ref.pointee.geometry.shards where result == 0 {
            result = shim_mutex_init(Shard(ref, i).header.at + ShardHeader.Field.mutex)
            Shard(ref, i).header[ShardHeader.Field.unsure] = 1
            // Of processes that are gone.
            Shard(ref, i).leases.removeAll()
        }
        if result != 0 { throw Failure.system("make the locks of", ref.pointee.files.path, ref.pointee.files.isMemory ? "the cache in memory" : "", -Int(result)) }
        index.set(IndexHead.bootLow, ref.pointee.files.boot.0)
        index.set(IndexHead.bootHigh, ref.pointee.files.boot.1)
        index.set(IndexHead.pidNamespace, ref.pointee.files.pidNamespace)
        index.set(IndexHead.libc, shim_libc_identity())
    }

    /// Before anything is allocated that the smaller capacity has no room for, so that a kill on the way leaves
    /// no more on the disk than the capacity on record. The entry limit, which evicts, comes last.
    private static func raiseCapacity(_ block: inout Superblock, _ files: CacheFiles, maxEntries: UInt64) throws(Failure) {
        let wanted = block.maxEntries
        block.maxEntries = maxEntries
        try block.write(files)
        block.maxEntries = wanted
        try files.syncData()
    }

    /// What the first writer does before it lets others in.
    private static func settleAlone(_ ref: EngineRef, _ change: Change, from recorded: Superblock) throws(Failure) {
        let data = ref.pointee.data
        data.release(Superblock.generation, data.u64(Superblock.generation) &+ 1)
        var wasPreparing = false
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).log.hasPreparations { wasPreparing = true }
        if wasPreparing {
            try changeEach(ref) { shard, _ throws(Failure) in
                shard.log.abandonPreparations()
                return true
            }
        }
        let writers = ref.pointee.largeWriters
        // (In this order: who is killed on the way leaves it to the next one.)
        if writers.giveUpAll() {
            try dropOrphans(ref)
            writers.removeAll()
        }
        switch change {
        case .none: break
        case .grow: try ref.pointee.block.write(ref.pointee.files)
        case .limits, .shrink:
            if change == .shrink { try checkPins(ref) }
            try applyLimits(ref, budget: max(ref.pointee.geometry.shardBudget, Geometry(recorded).shardBudget))
            if change == .shrink {
                // On the disk first: a power cut could bring back what was given back.
                try Engine(ref).sync()
                try ref.pointee.files.sync(ref.pointee.files.index, CacheFiles.indexName)
            }
            // Last: a kill on the way leaves the larger capacity in force.
            try ref.pointee.block.write(ref.pointee.files)
        }
    }

    /// Before anything changes: whether a smaller capacity can hold what is pinned.
    private static func checkPins(_ ref: EngineRef) throws(Failure) {
        var mayFit = true
        for i in 0..<ref.pointee.geometry.shards where !Shard(ref, i).canHoldPins { mayFit = false }
        if mayFit { return }
        // (What is pinned and belongs to nobody does not count.)
        try dropOrphans(ref)
        for i in 0..<ref.pointee.geometry.shards where !Shard(ref, i).canHoldPins { throw Shard(ref, i).cannotShrink() }
    }

    /// `budget`: what a shard may take on the disk meanwhile.
    private static func applyLimits(_ ref: EngineRef, budget: Int) throws(Failure) {
        let now = ref.pointee.clock.now48
        // In turns: with a large value its parts go in other shards.
        while try !changeEach(ref, { shard, after throws(Failure) in try shard.evictToBudget(now: now, &after) }) {}
        try changeEach(ref) { shard, after throws(Failure) in
            try shard.applyBudget(from: budget, now: now, &after)
            return true
        }
    }

    /// What killed writers of large values had stored.
    private static func dropOrphans(_ ref: EngineRef) throws(Failure) {
        try changeEach(ref) { shard, after throws(Failure) in
            _ = shard.dropOrphans(&after)
            return true
        }
    }

    /// One shard after the other. Whether all said so.
    @inline(never) @discardableResult
    private static func changeEach(_ ref: EngineRef, _ body: (Shard, inout Aftermath) throws(Failure) -> Bool) throws(Failure) -> Bool {
        let engine = Engine(ref)
        var all = true
        for i in 0..<ref.pointee.geometry.shards {
            let shard = Shard(ref, i)
            if try !engine.change(shard, { after throws(Failure) in try body(shard, &after) }) { all = false }
        }
        return all
    }

    // MARK: Close

    static func close(_ ref: EngineRef) throws(Failure) {
        var failure: Failure?
        if !ref.pointee.files.isMemory, !ref.pointee.isReadOnly {
            do throws(Failure) { try leave(ref) } catch { failure = error }
        }
        unmap(ref)
        ref.pointee.files.closeAll()
        freeState(ref)
        if let failure { throw failure }
    }

    /// The last to leave makes everything durable and marks both files clean. A forked child shares its
    /// parent's lock description, so being alone is asked of a new one.
    private static func leave(_ ref: EngineRef) throws(Failure) {
        let files = ref.pointee.files
        guard CacheFiles.isOurs(files.data, files.dataIdentity) else {
            // Closed or reused by the program: not ours any more.
            ref.pointee.files.data = -1
            if !CacheFiles.isOurs(files.index, files.indexIdentity) { ref.pointee.files.index = -1 }
            return
        }
        var fresh: Int32 = -1
        defer { unlock(fresh) }
        // 0: alone; -EAGAIN: not alone; another error: nobody knows.
        var alone = shim_sys_openat(files.directory, name(CacheFiles.dataName), Int32(SHIM_O_RDWR), 0)
        if alone == -SHIM_ENOENT { return }
        if alone >= 0 {
            let fd = Int32(alone)
            guard CacheFiles.isOurs(fd, files.dataIdentity) else {
                _ = shim_sys_close(fd)
                return
            }
            alone = shim_sys_lock(fd, Lock.setup, Int32(SHIM_WRITE_LOCK), true)
            _ = shim_sys_close(alone == 0 ? files.data : fd)
            if alone == 0 {
                fresh = fd
                ref.pointee.files.data = fd
                alone = shim_sys_lock(fd, Lock.writers, Int32(SHIM_WRITE_LOCK), false)
            }
        }
        if !ref.pointee.syncsAtClose || alone == -SHIM_EAGAIN { return }
        // In doubt what was written is made durable, and the files are not marked.
        try Engine(ref).sync()
        if alone != 0 { return }
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).header.at.u64(ShardHeader.Field.state) != ShardHeader.State.quiet { return }
        // Without its descriptor the index cannot be synced, and must not be believed after a power cut.
        guard CacheFiles.isOurs(files.index, files.indexIdentity) else { return }
        let nonce = max(1, try randomWord(files.path))
        ref.pointee.index.release(IndexHead.cleanMark, nonce)
        try ref.pointee.files.sync(files.index, CacheFiles.indexName)
        ref.pointee.data.release(Superblock.cleanMark, nonce)
        try ref.pointee.files.syncData()
    }

    // MARK: State

    private static func makeState(_ block: Superblock, _ configuration: Configuration, _ files: CacheFiles, data: Memory, index: Memory) throws(Failure) -> EngineRef {
        let geometry = Geometry(block)
        // A part, or a record of an eighth of a segment, compressed; or an increment's meta and tags.
        let buffer = max(Int(shim_lz4_bound(Int32(geometry.segmentSize / Sizes.partsPerSegment))), Limits.metaLength + 1 + Limits.tagCount * 8)
        guard let scratch = ScratchPool(bufferSize: buffer) else { throw Failure.outOfMemory }
        let places = DictionaryPlaces(count: geometry.dictionaryPlaces, size: geometry.dictionarySize, secret: block.secret,
                                      region: data + geometry.dictionaries, index: index)
        guard let dictionaries = DictionaryCache(places) else {
            scratch.free()
            throw Failure.outOfMemory
        }
        guard let memory = shim_aligned(64, MemoryLayout<EngineState>.stride) else {
            scratch.free()
            dictionaries.free()
            throw Failure.outOfMemory
        }
        let ref = memory.bindMemory(to: EngineState.self, capacity: 1)
        ref.initialize(to: EngineState(
            block: block, geometry: geometry, secret: block.secret, data: data, index: index, files: files, isReadOnly: configuration.isReadOnly,
            syncsAtClose: configuration.syncsAtClose, compression: configuration.compression, maxAge: configuration.maxAge == 0 ? block.maxAge : configuration.maxAge,
            stale: configuration.stale == 0 ? block.stale : configuration.stale, clock: clock(configuration), privateGeneration: 0, scratch: scratch, dictionaries: dictionaries))
        return ref
    }

    private static func unmap(_ ref: EngineRef) {
        shim_sys_unmap(ref.pointee.data, ref.pointee.geometry.dataSize)
        shim_sys_unmap(ref.pointee.index, ref.pointee.geometry.indexSize)
    }

    /// The handle's memory; mappings and files are the caller's.
    private static func freeState(_ ref: EngineRef) {
        ref.pointee.scratch.free()
        ref.pointee.dictionaries.free()
        ref.deinitialize(count: 1)
        shim_free(ref)
    }

    private static func map(_ fd: Int32, _ count: Int, writable: Bool, _ files: inout CacheFiles, _ file: StaticString) throws(Failure) -> Memory {
        var error = 0
        guard let p = shim_sys_map(fd, count, writable, &error) else {
            throw Failure.system("map", files.path, file, error, status: error == -SHIM_EOVERFLOW ? .invalid : nil, advice: advice(error))
        }
        return p
    }

    private static func advice(_ error: Int) -> StaticString {
        switch error {
        case -SHIM_ENOMEM: "raise the limit on virtual memory, or use a smaller capacity"
        case -SHIM_EOVERFLOW: "files of this file system cannot be that large; use a smaller capacity, or another file system"
        default: ""
        }
    }

    /// File systems allocate all that a large page of the file's cache covers as soon as a byte of it changes, holes that
    /// nobody counted too (ext4 on Linux 6.18: up to 1.9 MB beyond a table). Such pages come from reading ahead.
    private static func keepPagesSmall(_ p: Memory, _ count: Int) { shim_sys_random_access(p, count) }

    /// So tables would come from the disk page by page, each with a wait. What has left the memory is asked for when
    /// the first user comes, as far as it is reasonable to keep it there.
    private static func fetchTables(_ ref: EngineRef) {
        let geometry = ref.pointee.geometry
        var left = 256 << 20
        for i in 0..<geometry.shards where left > 0 {
            let shard = Shard(ref, i)
            let table = shard.header.at + geometry.table, count = Geometry.tableBytes(shard.table.shape.extent)
            // (A few pages may as well come one by one.)
            if count < 128 << 10 { continue }
            left -= count
            let quarter = roundUp(count / 4, to: pageSize)
            if !shim_sys_is_resident(table + quarter) || !shim_sys_is_resident(table + 2 * quarter) { shim_sys_will_need(table, count) }
        }
    }

    private static func clock(_ configuration: Configuration) -> Clock { Clock(function: configuration.clock, context: configuration.clockContext) }

    private static func randomWord(_ path: UnsafePointer<CChar>?) throws(Failure) -> UInt64 {
        var word: UInt64 = 0
        let result = shim_sys_random(&word, 8)
        guard result == 8 else { throw Failure.system("get random numbers for", path, path == nil ? "the cache in memory" : "", result, advice: "try again") }
        return word
    }

    private static func name(_ name: StaticString) -> UnsafePointer<CChar> { UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self) }
}
