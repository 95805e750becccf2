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
    func take(_ fd: Int32) -> Int { shim_sys_lock(fd, rawValue, 1, Int32(SHIM_WRITE_LOCK), false) }
    func share(_ fd: Int32) -> Int { shim_sys_lock(fd, rawValue, 1, Int32(SHIM_READ_LOCK), false) }

    /// Whether another description holds it; also where that cannot be told.
    func isHeld(_ fd: Int32) -> Bool { shim_sys_is_locked(fd, rawValue) }

    /// Before a description that no handle uses is closed: a child that another thread has forked meanwhile holds it
    /// as well, and would hold its locks for as long as it lives.
    static func releaseAll(_ fd: Int32) {
        if fd >= 0 { _ = shim_sys_lock(fd, setup.rawValue, 0, Int32(SHIM_UNLOCK), false) }
    }
}

/// The kernel does not say which process has a lock of an open file description. So who has the setup lock shares a lock
/// on one byte more, whose number says so: that of its PID namespace, and its own.
struct SetupLock {
    private static let marks: Int64 = 0x4000_0000_0000_0000, processBits: Int64 = 22

    let fd: Int32
    private let mark: Int64

    init(_ fd: Int32, pidNamespace: UInt64) {
        self.fd = fd
        mark =
            SetupLock.marks | Int64(pidNamespace & 0xFFFF_FFFF) << SetupLock.processBits | Int64(shim_sys_process())
    }

    /// As soon as others let it. 0 or -errno; an error at the end of the handle's patience.
    func take(sharing: Bool, _ path: UnsafePointer<CChar>?, _ options: WaitOptions) throws(Failure) -> Int {
        var result = tryToTake(sharing)
        if result == -SHIM_EAGAIN { result = try wait(sharing, LockWait(.ofSetup, path, options)) }
        // (For others to name: where this fails, they can't.)
        if result == 0 { _ = shim_sys_lock(fd, mark, 1, Int32(SHIM_READ_LOCK), false) }
        return result
    }

    func release() -> Int {
        _ = shim_sys_lock(fd, SetupLock.marks, 0, Int32(SHIM_UNLOCK), false)
        return shim_sys_lock(fd, FileLock.setup.rawValue, 1, Int32(SHIM_UNLOCK), false)
    }

    @inline(never)
    private func tryToTake(_ sharing: Bool, waiting: Bool = false) -> Int {
        shim_sys_lock(
            fd, FileLock.setup.rawValue, 1, Int32(sharing ? SHIM_READ_LOCK : SHIM_WRITE_LOCK), waiting)
    }

    /// The kernel can wait, but not for a limited time.
    private func wait(_ sharing: Bool, _ wait: LockWait) throws(Failure) -> Int {
        var wait = wait, pause: Int64 = 1
        while !wait.isEndless {
            shim_sleep_us(Int(min(pause, wait.left)) * 1000)
            pause = min(pause * 2, 4)
            let result = tryToTake(sharing)
            if result != -SHIM_EAGAIN { return result }
            try wait.goOn(heldBy: holder)
        }
        return tryToTake(sharing, waiting: true)
    }

    /// The process; 0 where it is not known, or of another namespace.
    private var holder: UInt32 {
        let found = shim_sys_next_locked(fd, SetupLock.marks), bits = SetupLock.processBits
        return found >> bits == mark >> bits ? UInt32(truncatingIfNeeded: found & (1 << bits - 1)) : 0
    }
}
