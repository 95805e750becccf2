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

    // Each answers 0 or -errno.
    func take(_ fd: Int32, waits: Bool = false) -> Int { shim_sys_lock(fd, rawValue, Int32(SHIM_WRITE_LOCK), waits) }
    func share(_ fd: Int32, waits: Bool = false) -> Int { shim_sys_lock(fd, rawValue, Int32(SHIM_READ_LOCK), waits) }
    @discardableResult
    func release(_ fd: Int32) -> Int { shim_sys_lock(fd, rawValue, Int32(SHIM_UNLOCK), false) }

    /// The setup lock, or a share of it, once others let it. 0 or -errno; an error at the end of the handle's patience.
    static func beginSetup(_ files: CacheFiles, _ fd: Int32, sharing: Bool, _ options: WaitOptions) throws(Failure) -> Int {
        func take(waits: Bool = false) -> Int {
            let result = sharing ? setup.share(fd, waits: waits) : setup.take(fd, waits: waits)
            // (Only for others to name: where this fails, they can't.)
            if result == 0 { _ = shim_sys_lock(fd, mark(of: files), Int32(SHIM_READ_LOCK), false) }
            return result
        }
        var result = take()
        if result != -SHIM_EAGAIN { return result }
        var wait = LockWait(.ofSetup, files.path, options), pause: Int64 = 1
        while !wait.isEndless {
            shim_sleep_us(Int(min(pause, wait.left)) * 1000)
            pause = min(pause * 2, 4)
            result = take()
            if result != -SHIM_EAGAIN { return result }
            try wait.goOn(heldBy: holder(fd, files))
        }
        return take(waits: true)
    }

    @discardableResult
    static func endSetup(_ files: CacheFiles) -> Int {
        _ = shim_sys_lock(files.data, mark(of: files), Int32(SHIM_UNLOCK), false)
        return setup.release(files.data)
    }

    // MARK: Who has the setup lock

    /// The kernel does not say which process has a lock of an open file description. So who has the setup lock shares a
    /// lock on one byte more, whose number is that of its PID namespace and its own.
    private static let marks: Int64 = 0x4000_0000_0000_0000, processBits: Int64 = 22

    private static func mark(of files: CacheFiles) -> Int64 {
        marks | Int64(files.pidNamespace & 0xFFFF_FFFF) << processBits | Int64(shim_sys_process())
    }

    /// The process; 0 where it cannot be known, or is of another namespace.
    private static func holder(_ fd: Int32, _ files: CacheFiles) -> UInt32 {
        let found = shim_sys_next_locked(fd, marks)
        return found >= 0 && found >> processBits == mark(of: files) >> processBits
            ? UInt32(truncatingIfNeeded: found & (1 << processBits - 1)) : 0
    }

    /// Whether another description holds it; also where that cannot be told.
    func isHeld(_ fd: Int32) -> Bool { shim_sys_is_locked(fd, rawValue) }

    /// Before a description that no handle uses is closed: a child that another thread has forked meanwhile holds it
    /// as well, and would hold its locks for as long as it lives.
    static func releaseAll(_ files: CacheFiles) {
        if files.data < 0 { return }
        writers.release(files.data)
        readers.release(files.data)
        endSetup(files)
    }
}
