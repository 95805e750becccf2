import CShalePlatform

extension CacheFiles {
    /// Returns the descriptor, or -errno.
    func open(_ file: StaticString, _ flags: Int, mode: UInt32 = 0) -> Int {
        shim_sys_openat(directory, file.cString, Int32(flags), mode)
    }

    func cannotOpen(_ file: StaticString, _ result: Int) -> Failure {
        if result != -SHIM_ELOOP { return Failure.system("open", path, file, result) }
        return Failure.system(
            "open", path, file, result, status: .permission,
            advice: "it is a symbolic link, which a cache does not follow")
    }

    /// Throws unless the file is the user's own: a cache that another user prepared in a shared place is never used.
    func checkOwner(_ fd: Int32, _ file: StaticString) throws(Failure) -> Identity {
        let s = try look(fd, file)
        var message: Message { Message().adding(path).adding("/").adding(file) }
        if s.mode & 0o170000 != 0o100000 {
            throw message.adding(" is not a regular file; remove it, or use another directory").failure(.permission)
        }
        if s.owner != shim_sys_euid(), s.owner != 0 {
            throw message.adding(" belongs to another user; use a directory of your own").failure(.permission)
        }
        if s.links > 1 {
            throw message.adding(" has more than one link; use a directory of your own").failure(.permission)
        }
        return Identity(s)
    }

    /// Opens or creates the file, and takes the setup lock on the file that the path leads to.
    mutating func openData(_ configuration: Configuration) throws(Failure) {
        for _ in 0..<100 {
            guard let fd = try openOrCreateData(configuration) else { continue }
            data = fd
            dataIdentity = try checkOwner(data, CacheFiles.dataName)
            dataBirth = shim_sys_birth(data)
            let lock = SetupLock(data, pidNamespace: pidNamespace)
            let locked = try lock.take(sharing: isReadOnly, path, configuration.waits)
            if locked < 0 { throw Failure.system("lock", path, CacheFiles.dataName, locked) }
            var s = shim_stat()
            let found = shim_sys_fstatat(directory, CacheFiles.dataName.cString, &s)
            if found == 0, Identity(s) == dataIdentity {
                roundsUp = isTmpfs && s.unit > UInt64(pageSize)
                return
            }
            if found < 0, found != -SHIM_ENOENT { throw Failure.system("look at", path, CacheFiles.dataName, found) }
            // Another process replaced it between the two calls.
            _ = shim_sys_close(data)
            data = -1
        }
        throw Message().adding(path).adding("/shale.data keeps being replaced by another process; stop it and retry")
            .failure(.busy)
    }

    /// Returns nil if another process has created the file meanwhile.
    private func openOrCreateData(_ configuration: Configuration) throws(Failure) -> Int32? {
        var fd = open(CacheFiles.dataName, isReadOnly ? SHIM_O_RDONLY : SHIM_O_RDWR)
        if fd == -SHIM_ENOENT {
            guard configuration.mayCreate else {
                throw Failure.system("open", path, CacheFiles.dataName, fd, advice: "no cache exists here")
            }
            try refuseForeignFiles()
            _ = try configuration.newSuperblock(secret: 0, now: 0)
            fd = open(CacheFiles.dataName, SHIM_O_RDWR | SHIM_O_CREAT | SHIM_O_EXCL, mode: 0o600)
            if fd == -SHIM_EEXIST { return nil }
            if fd >= 0 {
                _ = shim_sys_fchmod(Int32(fd), configuration.mode == 0 ? 0o600 : configuration.mode)
                shim_sys_no_copy_on_write(Int32(fd))
            }
        }
        if fd < 0 { throw cannotOpen(CacheFiles.dataName, fd) }
        return Int32(fd)
    }

    /// Maps the file through a descriptor of its own: a mapping keeps its descriptor's locks even after that is closed,
    /// and `close` has to find out whether it was the last.
    func mapData(_ geometry: Geometry, writable: Bool) throws(Failure) -> Memory {
        let opened = open(CacheFiles.dataName, writable ? SHIM_O_RDWR : SHIM_O_RDONLY)
        if opened < 0 { throw Failure.system("open", path, CacheFiles.dataName, opened) }
        let fd = Int32(opened)
        defer { _ = shim_sys_close(fd) }
        guard try checkOwner(fd, CacheFiles.dataName) == dataIdentity else {
            throw Message().adding(path).adding("/shale.data was replaced while it was being opened; try again")
                .failure(.busy)
        }
        let data = try map(fd, geometry.dataSize, writable: writable, CacheFiles.dataName)
        keepPagesSmall(data, geometry.hasSmallPages ? geometry.dataSize : geometry.segments)
        // Read-ahead would drive records that are used out of memory, for others that are not.
        shim_sys_random_access(data, geometry.dataSize)
        return data
    }

    func readSuperblock(_ configuration: Configuration, isSoleWriter: Bool) throws(Failure) -> (Superblock, isNew: Bool)
    {
        guard let page = shim_calloc(Sizes.superblockPage) else { throw Failure.outOfMemory }
        defer { shim_free(page) }
        let result = shim_sys_pread(data, page, Sizes.superblockPage, 0)
        if result < 0 { throw Failure.system("read", path, CacheFiles.dataName, result) }
        var message: Message { Message().adding(path).adding("/shale.data") }
        var isDamaged: Failure {
            message.adding(": its superblock is damaged; remove the directory to start empty").failure(.format)
        }
        switch Superblock.read(page) {
        case .sound(let block):
            guard block.isPossible else { throw isDamaged }
            guard Int(try look(data, CacheFiles.dataName).size) >= Geometry(block).dictionaries else {
                throw message.adding(" was truncated; remove the directory to start empty").failure(.format)
            }
            return (block, false)
        case .otherVersion:
            throw message.adding(" has the format of another version; use that library, or another directory")
                .failure(.version)
        case .foreign: throw message.adding(" is not a cache; choose another directory").failure(.format)
        case .damaged: throw isDamaged
        case .empty:
            guard isSoleWriter else {
                throw message.adding(" is not complete yet; open it for writing first").failure(.busy)
            }
            // An interrupted creation may have left blocks.
            let size = Int(try look(data, CacheFiles.dataName).size)
            if size > 0 { _ = releaseData(0, size) }
            let secret = try randomWord(path)
            return (try configuration.newSuperblock(secret: secret, now: Clock(configuration).now), true)
        }
    }

    /// Makes the file read as zeros from an offset on, and allocates it up to `end`.
    func emptyData(from offset: Int, allocated end: Int) throws(Failure) {
        _ = releaseData(offset, max(0, try dataSize() - offset))
        try allocateData(offset, end - offset)
        // (Some file systems give nothing back.)
        guard let zeros = shim_calloc(end - offset) else { throw Failure.outOfMemory }
        defer { shim_free(zeros) }
        try writeData(zeros, end - offset, at: offset)
    }

    func createData(_ block: Superblock, _ geometry: Geometry, _ data: Memory) throws(Failure) {
        try allocateData(0, geometry.dictionaries)
        data.zero(geometry.dictionaries)
        // The name is durable only once the directory is synced; some file systems cannot sync one. Before the
        // superblock: if it fails, the file stays empty, and the next open tries again.
        let synced = shim_sys_fsync(directory)
        if synced < 0, synced != -SHIM_EINVAL { throw Failure.system("sync the directory", path, "", synced) }
        var block = block
        try block.write(self)
        // Before anything else in its page: half a page would pass for another program's file.
        try syncData()
    }
}

extension Superblock {
    /// Whether checked values are possible: lengths are verified before use all the same.
    fileprivate var isPossible: Bool {
        capacity >= Limits.capacity && capacity <= Limits.mostCapacity
            && shards >= 1 && shards <= Limits.shards
            && segmentSize >= Limits.segmentSizes.least && segmentSize <= Limits.segmentSizes.most
            && segmentSize & (segmentSize - 1) == 0
            && framesPerShard >= Superblock.leastFrames && framesPerShard <= Limits.framesPerShard
            && Int(framesPerShard) * Int(segmentSize) <= Limits.shardLogBytes && firstFrames <= framesPerShard
            && dictionaryFrames <= 16 && dictionarySize <= 64 << 10 && Int(dictionarySize) % pageSize == 0
            && (dictionarySize == 0) == (dictionaryFrames == 0)
            && expiryBase < 1 << 40 && mode & ~0o777 == 0
            && Int(shards) * Superblock.leastFrames * Int(segmentSize) <= Int(capacity)
    }
}
