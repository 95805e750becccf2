import CShalePlatform

/// The files of a cache, and checks that they are still the ones that were opened. A cache in memory has none, and its
/// allocations always succeed.
struct CacheFiles {
    var path: UnsafeMutablePointer<CChar>?
    var directory: Int32 = -1
    var data: Int32 = -1
    var index: Int32 = -1
    var directoryIdentity = Identity()
    /// Identity of the directory where the path starts; nil if unknown.
    var startIdentity: Identity?
    var dataIdentity = Identity()
    var indexIdentity = Identity()
    /// Birth times, as in the index's head.
    var dataBirth: UInt64 = 0
    var indexBirth: UInt64 = 0
    var isReadOnly = false
    var isOverlay = false
    /// A read-only handle may have mapped the lower file of an overlay, which is never written: the first writer gets a
    /// copy. Reading through the descriptor finds the copy (since Linux 4.19).
    var mayBeLower = false
    /// A tmpfs with huge pages allocates one, with `fallocate` too, wherever a hole has room for it, and the rest of it
    /// is not counted. A mapping without huge pages (`keepPagesSmall`) gets only the page that it asks for.
    var isTmpfs = false
    var roundsUp = false
    /// For a cache in memory: a file by which forked children know each other's ends (`Owner`).
    var owners: Int32 = -1
    var ownersIdentity = Identity()
    var dataBase: Memory?
    var indexBase: Memory?
    /// Two hashes of the boot ID; 0 and 0 if unknown, which equals no other.
    var boot: (UInt64, UInt64) = (0, 0)
    /// 0 if unknown.
    var pidNamespace: UInt64 = 0

    struct Identity: Equatable {
        var device: UInt64 = 0
        var inode: UInt64 = 0

        init() {}
        init(_ s: shim_stat) {
            device = s.device
            inode = s.inode
        }
    }

    static let dataName: StaticString = "shale.data"
    static let indexName: StaticString = "shale.index"
    static let newIndexName: StaticString = "shale.index.new"

    var isMemory: Bool { data < 0 }

    /// Whether a descriptor still leads to the opened file. A daemonizing program may have closed it, and another file
    /// may have its number; an fstat that fails otherwise proves neither.
    @inline(never)
    static func isOurs(_ fd: Int32, _ identity: Identity) -> Bool {
        var s = shim_stat()
        let result = shim_sys_fstat(fd, &s)
        return result == 0 ? Identity(s) == identity : result != -SHIM_EBADF
    }

    /// Where the path starts: the process's root or its working directory.
    var start: UnsafePointer<CChar> {
        let start: StaticString = path.unsafelyUnwrapped.pointee == UInt8(ascii: "/") ? "/" : "."
        return start.cString
    }

    /// Whether the data file was removed, or its directory is no longer at the path. In doubt false: the process may
    /// lack the permission to look, or may have another root or working directory by now.
    @inline(never)
    func areAway() -> Bool {
        var s = shim_stat()
        guard shim_sys_fstat(data, &s) == 0, Identity(s) == dataIdentity else { return false }
        if s.links == 0 { return true }
        // (An overlay may report another inode number for a file after it was copied.)
        if !isOverlay, CacheFiles.isOurs(directory, directoryIdentity),
            isElsewhere(shim_sys_fstatat(directory, CacheFiles.dataName.cString, &s), s, dataIdentity)
        {
            return true
        }
        guard isElsewhere(shim_sys_stat(path.unsafelyUnwrapped, &s), s, directoryIdentity) else { return false }
        guard let startIdentity else { return false }
        return identity(at: start) == startIdentity
    }

    private func isElsewhere(_ result: Int, _ s: shim_stat, _ identity: Identity) -> Bool {
        result == 0 ? Identity(s) != identity : result == -SHIM_ENOENT || result == -SHIM_ENOTDIR
    }

    func identity(at path: UnsafePointer<CChar>) -> Identity? {
        var s = shim_stat()
        return shim_sys_stat(path, &s) == 0 ? Identity(s) : nil
    }

    private func verify(_ fd: Int32, _ identity: Identity, _ name: StaticString) throws(Failure) {
        guard CacheFiles.isOurs(fd, identity) else {
            throw Message().adding(path).adding("/").adding(name).adding(
                ": the cache's descriptor was closed or replaced by the program; open the cache again"
            )
            .failure(.io, errno: Int32(SHIM_EBADF))
        }
    }

    func allocateData(_ offset: Int, _ count: Int) throws(Failure) {
        if isMemory { return }
        try verify(data, dataIdentity, CacheFiles.dataName)
        let result = allocate(data, dataBase, offset, count)
        if result < 0 { throw noRoom(CacheFiles.dataName, result) }
    }
    func allocateIndex(_ offset: Int, _ count: Int) throws(Failure) {
        if index < 0 { return }
        try verify(index, indexIdentity, CacheFiles.indexName)
        let result = allocate(index, indexBase, offset, count)
        if result < 0 { throw noRoom(CacheFiles.indexName, result) }
    }
    private func allocate(_ fd: Int32, _ base: Memory?, _ offset: Int, _ count: Int) -> Int {
        if roundsUp, let base, (offset | count) % hugePageSize != 0 { shim_sys_populate(base + offset, count) }
        // Leaves existing pages alone. If populating found no space, this returns the error.
        return shim_sys_fallocate(fd, Int64(offset), Int64(count))
    }
    @inline(never)
    private func noRoom(_ file: StaticString, _ result: Int) -> Failure {
        Failure.system(
            "allocate space in", path, file, result,
            advice: result == -Int(SHIM_EFBIG)
                ? "raise this process's limit on the size of files (ulimit -f), or give the cache a smaller capacity"
                : "free space on the disk, or give the cache a smaller capacity")
    }
    /// Whether this process's limit on file sizes lets the index reach `end`.
    func mayIndexReach(_ end: Int) -> Bool { index < 0 || shim_may_reach(index, Int64(end)) }

    func releaseData(_ offset: Int, _ count: Int) -> Bool {
        if isMemory { return dataBase.map { shim_sys_release($0 + offset, count) == 0 } ?? false }
        guard !isReadOnly, CacheFiles.isOurs(data, dataIdentity) else { return false }
        return shim_sys_punch(data, Int64(offset), Int64(count)) == 0
    }
    func releaseIndex(_ offset: Int, _ count: Int) -> Bool {
        if index < 0 { return indexBase.map { shim_sys_release($0 + offset, count) == 0 } ?? false }
        guard CacheFiles.isOurs(index, indexIdentity) else { return false }
        return shim_sys_punch(index, Int64(offset), Int64(count)) == 0
    }

    /// On a tmpfs with huge pages, a file is as long as its mapping, which cannot be populated beyond the file's end.
    func lengthen(_ fd: Int32, to end: Int) throws(Failure) {
        if roundsUp, Int(try look(fd, "").size) < end { _ = shim_sys_truncate(fd, Int64(end)) }
    }

    /// A failure does no harm.
    func shorten(data end: Int, index indexEnd: Int) {
        if roundsUp { return }
        if let size = try? dataSize(), size > end, !isMemory { _ = shim_sys_truncate(data, Int64(end)) }
        if let size = try? indexSize(), size > indexEnd { _ = shim_sys_truncate(index, Int64(indexEnd)) }
    }

    /// Reads by a system call: touching a hole of a mapping allocates it on some file systems, and an address beyond
    /// the file's end raises a signal. Returns false if the file is shorter.
    func readData(_ offset: Int, into p: Memory, _ count: Int) throws(Failure) -> Bool {
        if isMemory {
            if let dataBase { memcpy(p, dataBase + offset, count) }
            return true
        }
        let result = shim_sys_pread(data, p, count, Int64(offset))
        if result < 0 { throw Failure.system("read", path, CacheFiles.dataName, result) }
        return result == count
    }

    /// Writes up to a sector by a system call: a kill or the kernel's writeback finds all or nothing.
    func writeData(_ p: Memory, _ count: Int, at offset: Int) throws(Failure) {
        if isMemory {
            if let dataBase { shim_copy(dataBase + offset, p, count) }
            return
        }
        try verify(data, dataIdentity, CacheFiles.dataName)
        let result = shim_sys_pwrite(data, p, count, Int64(offset))
        if result != count {
            throw Failure.system("write", path, CacheFiles.dataName, result < 0 ? result : Int(-SHIM_ENOSPC))
        }
    }

    /// Returns bytes, `Int.max` in memory. Throws if the descriptor leads to another file.
    func dataSize() throws(Failure) -> Int {
        if isMemory { return Int.max }
        try verify(data, dataIdentity, CacheFiles.dataName)
        return Int(try look(data, CacheFiles.dataName).size)
    }

    func indexSize() throws(Failure) -> Int { Int(try look(index, CacheFiles.indexName).size) }

    @inline(never)
    func look(_ fd: Int32, _ name: StaticString) throws(Failure) -> shim_stat {
        var s = shim_stat()
        let result = shim_sys_fstat(fd, &s)
        if result < 0 { throw Failure.system("look at", path, name, result) }
        return s
    }

    func sync(_ fd: Int32, _ name: StaticString) throws(Failure) {
        let result = shim_sys_fdatasync(fd)
        if result < 0 { throw Failure.system("sync", path, name, result) }
    }
    func syncData() throws(Failure) {
        if isMemory { return }
        try verify(data, dataIdentity, CacheFiles.dataName)
        try sync(data, CacheFiles.dataName)
    }

    func diskBytes(_ fd: Int32, _ identity: Identity) -> UInt64 {
        var s = shim_stat()
        guard fd >= 0, shim_sys_fstat(fd, &s) == 0, Identity(s) == identity else { return 0 }
        return s.blocks * 512
    }

    mutating func closeAll() {
        // A descriptor that the program closed may belong to another file by now.
        for (fd, identity) in [
            (directory, directoryIdentity), (data, dataIdentity), (index, indexIdentity), (owners, ownersIdentity),
        ] where fd >= 0 {
            if identity == Identity() || CacheFiles.isOurs(fd, identity) { _ = shim_sys_close(fd) }
        }
        directory = -1
        data = -1
        index = -1
        owners = -1
        shim_free(path)
        path = nil
    }
}
