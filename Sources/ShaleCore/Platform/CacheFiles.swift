import CShalePlatform

/// The files of a cache: where they are, and that they are still the ones that
/// were opened. A cache in memory has none, and its allocations always succeed.
struct CacheFiles {
    var path: UnsafeMutablePointer<CChar>?
    var directory: Int32 = -1
    var data: Int32 = -1
    var index: Int32 = -1
    var directoryIdentity = Identity()
    /// Of the directory from which the path leads; nil where it is not known.
    var startIdentity: Identity?
    var dataIdentity = Identity()
    var indexIdentity = Identity()
    /// When they were made, as the index's head has it.
    var dataBirth: UInt64 = 0
    var indexBirth: UInt64 = 0
    var isReadOnly = false
    var isOverlay = false
    /// A read-only handle may have mapped the lower file of an overlay, which nobody writes to: the first writer gets a
    /// copy. Reading by the descriptor finds that one (since Linux 4.19).
    var mayBeLower = false
    /// A tmpfs with huge pages: it gives one, by `fallocate` too, wherever a hole has room for it, and nobody counts the
    /// rest of it. A mapping without huge pages (`keepPagesSmall`) is given the page that is asked for.
    var isTmpfs = false
    var roundsUp = false
    var dataBase: Memory?
    var indexBase: Memory?
    /// Two hashes of the boot's id; 0 and 0 where it cannot be known, which equals no other.
    var boot: (UInt64, UInt64) = (0, 0)
    /// 0 where it cannot be known.
    var pidNamespace: UInt64 = 0

    /// Of the file that a descriptor leads to, among those that there are.
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

    /// Whether a descriptor still leads to the file that was opened. A daemonizing program may have closed
    /// it, and another file may have taken its number; that it cannot be looked at proves neither.
    @inline(never)
    static func isOurs(_ fd: Int32, _ identity: Identity) -> Bool {
        var s = shim_stat()
        let result = shim_sys_fstat(fd, &s)
        return result == 0 ? Identity(s) == identity : result != -SHIM_EBADF
    }

    /// Where the path begins: the root that this process has, or the directory that it is in.
    var start: UnsafePointer<CChar> {
        let start: StaticString = path.unsafelyUnwrapped.pointee == UInt8(ascii: "/") ? "/" : "."
        return start.cString
    }

    /// Whether the data file was removed, or its directory is not at the path any more. What cannot be told is no: nobody
    /// may look there, or the program has another root or working directory by now, from which the path leads elsewhere.
    @inline(never)
    func areAway() -> Bool {
        var s = shim_stat()
        guard shim_sys_fstat(data, &s) == 0, Identity(s) == dataIdentity else { return false }
        if s.links == 0 { return true }
        // (An overlay may call a file by another number once it was copied.)
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
        // What is there already it leaves alone. What was not given is an error of its own.
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
    /// Whether this process's limit on the size of files lets the index reach so far.
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

    /// Where space is rounded up, a file is as long as its mapping: behind a file's end, a mapping is given nothing.
    func lengthen(_ fd: Int32, to end: Int) throws(Failure) {
        if roundsUp, Int(try look(fd, "").size) < end { _ = shim_sys_truncate(fd, Int64(end)) }
    }

    /// Nothing is lost where it fails.
    func shorten(data end: Int, index indexEnd: Int) {
        if roundsUp { return }
        if let size = try? dataSize(), size > end, !isMemory { _ = shim_sys_truncate(data, Int64(end)) }
        if let size = try? indexSize(), size > indexEnd { _ = shim_sys_truncate(index, Int64(indexEnd)) }
    }

    /// Reads by a system call: touching a hole of a mapping would allocate it on some file systems,
    /// and touching what is beyond the end raises a signal. False where there is less.
    func readData(_ offset: Int, into p: Memory, _ count: Int) throws(Failure) -> Bool {
        if isMemory {
            if let dataBase { memcpy(p, dataBase + offset, count) }
            return true
        }
        let result = shim_sys_pread(data, p, count, Int64(offset))
        if result < 0 { throw Failure.system("read", path, CacheFiles.dataName, result) }
        return result == count
    }

    /// Up to a sector, by a system call: what a kill or the kernel's writing back finds is all of it or nothing.
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

    /// Bytes up to the end of the data file; `Int.max` in memory. What is not the data file says nothing of what is in
    /// it.
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

    /// Bytes on disk.
    func diskBytes(_ fd: Int32, _ identity: Identity) -> UInt64 {
        var s = shim_stat()
        guard fd >= 0, shim_sys_fstat(fd, &s) == 0, Identity(s) == identity else { return 0 }
        return s.blocks * 512
    }

    mutating func closeAll() {
        // A number that the program closed may be somebody else's by now.
        for (fd, identity) in [(directory, directoryIdentity), (data, dataIdentity), (index, indexIdentity)]
        where fd >= 0 {
            if identity == Identity() || CacheFiles.isOurs(fd, identity) { _ = shim_sys_close(fd) }
        }
        directory = -1
        data = -1
        index = -1
        shim_free(path)
        path = nil
    }
}
