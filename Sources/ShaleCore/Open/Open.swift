import CShalePlatform

extension Engine {
    /// Opens the cache in a directory, or creates one in memory (nil).
    public static func open(_ path: UnsafePointer<CChar>?, _ configuration: Configuration) throws(Failure) -> Engine {
        try configuration.validate()
        guard let path else { return try Attachment.createInMemory(configuration) }
        guard path.pointee != 0 else {
            throw Failure.because(.invalid, "the directory's path is empty; use NULL for a cache in memory")
        }
        return try Attachment.open(path, configuration)
    }
}

extension Attachment {
    fileprivate static func createInMemory(_ configuration: Configuration) throws(Failure) -> Engine {
        guard configuration.mayCreate else {
            throw Failure.because(
                .invalid, "a cache in memory is new: it cannot be read-only, and cannot exist before")
        }
        var configuration = configuration
        // No other process can open it with another capacity.
        configuration.reserveCapacity = 1
        let block = try configuration.newSuperblock(secret: try randomWord(nil), now: Clock(configuration).now)
        let geometry = Geometry(block)
        var files = CacheFiles()
        try files.createOwners()
        do throws(Failure) { return try createInMemory(configuration, block, geometry, files) } catch {
            files.closeAll()
            throw error
        }
    }

    private static func createInMemory(
        _ configuration: Configuration, _ block: Superblock, _ geometry: Geometry, _ files: CacheFiles
    ) throws(Failure) -> Engine {
        var files = files
        let data = try files.map(-1, geometry.dataSize, writable: true, "memory")
        files.dataBase = data
        shim_sys_huge_pages(data, geometry.dataSize)
        do throws(Failure) {
            let attachment = Attachment(
                configuration: configuration, block: block, geometry: geometry, data: data, isSoleWriter: true,
                isNew: true)
            let index = try files.map(-1, geometry.indexSize, writable: true, "memory")
            files.indexBase = index
            return try attachment.finish(files, index: index) { engine throws(Failure) in
                engine.initialiseIndex()
                try engine.initialiseLocks()
            }
        } catch {
            shim_sys_unmap(data, geometry.dataSize)
            throw error
        }
    }

    static func open(_ path: UnsafePointer<CChar>, _ configuration: Configuration) throws(Failure) -> Engine {
        var files = CacheFiles()
        files.isReadOnly = configuration.isReadOnly
        guard let copy = shim_duplicate(path) else { throw Failure.outOfMemory }
        files.path = copy
        do throws(Failure) {
            try files.openDirectory(configuration)
            try files.identifySystem()
            try files.openData(configuration)
            let (engine, isSoleWriter) = try attach(&files, configuration)
            do throws(Failure) {
                let released = SetupLock(files.data, pidNamespace: files.pidNamespace).release()
                // While it is held, no other process can open the cache.
                if released < 0 { throw Failure.system("unlock", files.path, CacheFiles.dataName, released) }
                if isSoleWriter { try engine.rebuildShards() }
                return engine
            } catch {
                engine.unmap()
                engine.freeState()
                throw error
            }
        } catch {
            FileLock.releaseAll(files.data)
            files.closeAll()
            throw error
        }
    }

    private static func attach(_ files: inout CacheFiles, _ configuration: Configuration) throws(Failure) -> (
        Engine, isSoleWriter: Bool
    ) {
        let isSoleWriter = try join(&files)
        var (block, isNew) = try files.readSuperblock(configuration, isSoleWriter: isSoleWriter)
        if isSoleWriter, !block.isRenewed {
            try block.finishRenewal(files, Geometry(block))
        } else if isSoleWriter, !block.isSettled {
            // The options in force from now on must not be lost in a power failure.
            try files.syncData()
            try block.write(files)
        }
        let recorded = block
        let change = try block.change(to: configuration, files, isSoleWriter: isSoleWriter)
        // In force once the pinned entries fit: a rebuilt index evicts down to it.
        let maxEntries = block.maxEntries
        block.maxEntries = recorded.maxEntries
        if change == .grow { try recoverReplacedIndex(of: recorded, &files, configuration) }
        let geometry = Geometry(block)
        let data = try files.mapData(geometry, writable: !configuration.isReadOnly)
        files.dataBase = data
        do throws(Failure) {
            if isSoleWriter { try files.lengthen(files.data, to: geometry.dataSize) }
            if isNew { try files.createData(block, geometry, data) }
            // Before allocating beyond the smaller capacity: a kill in between leaves no more on disk than the recorded
            // one.
            if !isNew, block.capacity > recorded.capacity { try block.write(files, isSyncedBetween: true) }
            let attachment = Attachment(
                configuration: configuration, block: block, geometry: geometry, data: data, isSoleWriter: isSoleWriter,
                isNew: isNew)
            var engine = try attachment.attachIndex(&files, mustReplace: change == .grow)
            if isSoleWriter {
                if engine.isNearLastNumber {
                    engine.detachIndex()
                    engine = try attachment.renew(&files)
                }
                do throws(Failure) {
                    try engine.settleAsSoleWriter(change, maxEntries: maxEntries, from: recorded)
                } catch {
                    engine.detachIndex()
                    throw error
                }
            }
            return (engine, isSoleWriter)
        } catch {
            shim_sys_unmap(data, geometry.dataSize)
            throw error
        }
    }

    /// Starts the cache over, empty.
    private func renew(_ files: inout CacheFiles) throws(Failure) -> Engine {
        files.closeIndex()
        var block = block
        try block.renew(files, geometry)
        return try Attachment(
            configuration: configuration, block: block, geometry: geometry, data: data, isSoleWriter: true, isNew: false
        )
        .attachIndex(&files, mustReplace: true)
    }

    /// Locks as a writer or a reader. Returns whether it is the sole writer.
    private static func join(_ files: inout CacheFiles) throws(Failure) -> Bool {
        if files.isReadOnly {
            let shared = FileLock.readers.share(files.data)
            if shared < 0 { throw Failure.system("lock", files.path, CacheFiles.dataName, shared) }
            // If there is a writer now, the copy has been made.
            files.mayBeLower = files.isOverlay && !FileLock.writers.isHeld(files.data)
            return false
        }
        let exclusive = FileLock.writers.take(files.data)
        let isSoleWriter = exclusive == 0
        // Shared at once: the setup lock keeps others out until everything is set up.
        let shared = isSoleWriter || exclusive == -SHIM_EAGAIN ? FileLock.writers.share(files.data) : exclusive
        if shared < 0 { throw Failure.system("lock", files.path, CacheFiles.dataName, shared) }
        return isSoleWriter
    }

    /// Recovers an index before it is replaced: a rebuild from the log alone would bring up records of killed writers
    /// that no reader has seen.
    private static func recoverReplacedIndex(
        of block: Superblock, _ files: inout CacheFiles, _ configuration: Configuration
    ) throws(Failure) {
        let geometry = Geometry(block)
        let fd = files.open(CacheFiles.indexName, SHIM_O_RDONLY)
        if fd < 0 { return }
        var isQuiet = true
        var state: UInt64 = 0
        for i in 0..<geometry.shards {
            let at = geometry.region(i) + ShardHeader.Field.state.offset
            let count = shim_sys_pread(Int32(fd), &state, 8, Int64(at))
            if count == 8, state != ShardHeader.State.quiet { isQuiet = false }
        }
        _ = shim_sys_close(Int32(fd))
        if isQuiet { return }
        let data = try files.mapData(geometry, writable: true)
        defer { shim_sys_unmap(data, geometry.dataSize) }
        files.dataBase = data
        let attachment = Attachment(
            configuration: configuration, block: block, geometry: geometry, data: data, isSoleWriter: true, isNew: false
        )
        try attachment.attachIndex(&files, mustReplace: false).detachIndex()
        // (`attachIndex` opens it again.)
        files.closeIndex()
    }
}
