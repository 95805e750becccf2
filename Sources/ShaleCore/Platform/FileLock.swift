import CShalePlatform

/// Locks on bytes of `shale.data` far beyond its end, of its open file description: the kernel releases them when a
/// process dies.
enum FileLock: Int64 {
    /// Held while setting up or closing.
    case setup = 0x1000_0000_0000_0000
    /// Shared by attached writers; a handle that gets it exclusively is the sole writer.
    case writers
    /// Shared by read-only handles, so that the files are not made shorter meanwhile.
    case readers
    /// Shared while the shards of a new index are rebuilt.
    case rebuilding

    // Each returns 0 or -errno.
    func take(_ fd: Int32) -> Int { shim_sys_lock(fd, rawValue, 1, Int32(SHIM_WRITE_LOCK), false) }
    func share(_ fd: Int32) -> Int { shim_sys_lock(fd, rawValue, 1, Int32(SHIM_READ_LOCK), false) }
    @discardableResult
    func release(_ fd: Int32) -> Int { shim_sys_lock(fd, rawValue, 1, Int32(SHIM_UNLOCK), false) }

    /// Whether another description holds it; true if that cannot be determined.
    func isHeld(_ fd: Int32) -> Bool { shim_sys_is_locked(fd, rawValue) }

    /// Releases all locks before an unused description is closed: a child that another thread forks meanwhile holds it
    /// as well, and would keep its locks as long as it lives.
    static func releaseAll(_ fd: Int32) {
        if fd >= 0 { _ = shim_sys_lock(fd, setup.rawValue, 0, Int32(SHIM_UNLOCK), false) }
    }
}
