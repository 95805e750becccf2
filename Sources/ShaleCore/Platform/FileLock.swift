import CShalePlatform

/// Bytes of `shale.data`, far beyond its end, that are locked for its open file description: by the kernel, which
/// releases them when a process dies.
enum FileLock: Int64 {
    /// Held while setting up or closing.
    case setup = 0x1000_0000_0000_0000
    /// Shared by attached writers; who gets it exclusively is the sole writer.
    case writers
    /// Shared by read-only handles: nobody makes the files shorter meanwhile.
    case readers
    /// Shared while the shards of a new index are rebuilt.
    case rebuilding

    // Each answers 0 or -errno.
    func take(_ fd: Int32) -> Int { shim_sys_lock(fd, rawValue, 1, Int32(SHIM_WRITE_LOCK), false) }
    func share(_ fd: Int32) -> Int { shim_sys_lock(fd, rawValue, 1, Int32(SHIM_READ_LOCK), false) }
    @discardableResult
    func release(_ fd: Int32) -> Int { shim_sys_lock(fd, rawValue, 1, Int32(SHIM_UNLOCK), false) }

    /// Whether another description holds it; also where that cannot be told.
    func isHeld(_ fd: Int32) -> Bool { shim_sys_is_locked(fd, rawValue) }

    /// Before a description that no handle uses is closed: a child that another thread has forked meanwhile holds it
    /// as well, and would hold its locks for as long as it lives.
    static func releaseAll(_ fd: Int32) {
        if fd >= 0 { _ = shim_sys_lock(fd, setup.rawValue, 0, Int32(SHIM_UNLOCK), false) }
    }
}
