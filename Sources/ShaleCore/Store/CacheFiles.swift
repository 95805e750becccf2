import CShalePlatform

/// The files of a cache: where they are, and that they are still the ones that
/// were opened. A cache in memory has none, and its allocations always succeed.
struct CacheFiles {
    var path: UnsafeMutablePointer<CChar>?
    var directory: Int32 = -1
    var data: Int32 = -1
    var index: Int32 = -1
    var directoryIdentity = Identity()
    var dataIdentity = Identity()
    var indexIdentity = Identity()
    var isReadOnly = false
    var dataBase: Memory?
    var indexBase: Memory?

    struct Identity: Equatable {
        var device: UInt64 = 0
        var inode: UInt64 = 0
    }

    static let dataName: StaticString = "shale.data"
    static let indexName: StaticString = "shale.index"
    static let newIndexName: StaticString = "shale.index.new"

    var isMemory: Bool { data < 0 }

    static func identity(_ fd: Int32) -> Identity {
        var s = shim_stat()
        guard shim_sys_fstat(fd, &s) == 0 else { return Identity() }
        return Identity(device: s.device, inode: s.inode)
    }

    /// A daemonizing program may have closed our descriptors, and others may have taken their numbers.
    private func verify(_ fd: Int32, _ identity: Identity, _ name: StaticString) throws(Failure) {
        guard CacheFiles.identity(fd) == identity else { throw lost(name) }
    }
    private func lost(_ name: StaticString) -> Failure {
        Message().adding(path).adding("/").adding(name).adding(": the cache's descriptor was closed or replaced by the program; open the cache again")
            .failure(.io, errno: Int32(SHIM_EBADF))
    }

    func allocateData(_ offset: Int, _ count: Int) throws(Failure) {
        if isMemory { return }
        try verify(data, dataIdentity, CacheFiles.dataName)
        let result = shim_sys_fallocate(data, Int64(offset), Int64(count))
        if result < 0 { throw Failure.system("allocate space in", path, CacheFiles.dataName, result, advice: "free space on the disk, or give the cache a smaller capacity") }
    }
    func allocateIndex(_ offset: Int, _ count: Int) throws(Failure) {
        if index < 0 { return }
        try verify(index, indexIdentity, CacheFiles.indexName)
        let result = shim_sys_fallocate(index, Int64(offset), Int64(count))
        if result < 0 { throw Failure.system("allocate space in", path, CacheFiles.indexName, result, advice: "free space on the disk, or give the cache a smaller capacity") }
    }

    func releaseData(_ offset: Int, _ count: Int) -> Bool {
        if isMemory { return dataBase.map { shim_sys_release($0 + offset, count) == 0 } ?? false }
        guard !isReadOnly, CacheFiles.identity(data) == dataIdentity else { return false }
        return shim_sys_punch(data, Int64(offset), Int64(count)) == 0
    }
    func releaseIndex(_ offset: Int, _ count: Int) -> Bool {
        if index < 0 { return indexBase.map { shim_sys_release($0 + offset, count) == 0 } ?? false }
        guard CacheFiles.identity(index) == indexIdentity else { return false }
        return shim_sys_punch(index, Int64(offset), Int64(count)) == 0
    }

    /// Reads by a system call: touching a hole of a mapping would allocate it on some file systems,
    /// and touching what is beyond the end raises a signal. False where there is less.
    func readData(_ engine: EngineRef, _ offset: Int, into p: Memory, _ count: Int) throws(Failure) -> Bool {
        if isMemory {
            memcpy(p, engine.pointee.data + offset, count)
            return true
        }
        // The whole segment must be inside the file before the mapping is used.
        if try dataSize(engine) < min(offset + engine.pointee.geometry.segmentSize, engine.pointee.geometry.dataSize) { return false }
        let result = shim_sys_pread(data, p, count, Int64(offset))
        if result < 0 { throw Failure.system("read", path, CacheFiles.dataName, result) }
        return result == count
    }

    /// Bytes up to the end of the data file. What is not the data file says nothing of what is in it.
    func dataSize(_ engine: EngineRef) throws(Failure) -> Int {
        if isMemory { return engine.pointee.geometry.dataSize }
        var s = shim_stat()
        let result = shim_sys_fstat(data, &s)
        guard result == 0 || result == -SHIM_EBADF else { throw Failure.system("look at", path, CacheFiles.dataName, result) }
        guard result == 0, Identity(device: s.device, inode: s.inode) == dataIdentity else { throw lost(CacheFiles.dataName) }
        return Int(s.size)
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
    func diskBytes(_ fd: Int32) -> UInt64 {
        var s = shim_stat()
        return fd >= 0 && shim_sys_fstat(fd, &s) == 0 ? s.blocks * 512 : 0
    }

    mutating func closeAll() {
        // A number that the program closed may be somebody else's by now.
        for (fd, identity) in [(directory, directoryIdentity), (data, dataIdentity), (index, indexIdentity)] where fd >= 0 {
            if identity == Identity() || CacheFiles.identity(fd) == identity { _ = shim_sys_close(fd) }
        }
        directory = -1
        data = -1
        index = -1
        shim_free(path)
        path = nil
    }
}
