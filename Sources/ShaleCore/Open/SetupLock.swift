import CShalePlatform

/// The kernel does not tell which process holds a lock of an open file description. So its holder also shares a lock on
/// a byte whose offset encodes its PID namespace and PID.
struct SetupLock {
    private static let marks: Int64 = 0x4000_0000_0000_0000, processBits: Int64 = 22

    let fd: Int32
    private let mark: Int64

    init(_ fd: Int32, pidNamespace: UInt64) {
        self.fd = fd
        mark =
            SetupLock.marks | Int64(pidNamespace & 0xFFFF_FFFF) << SetupLock.processBits | Int64(shim_sys_process())
    }

    /// Returns 0 or -errno; throws at the end of the handle's patience.
    func take(sharing: Bool, _ path: UnsafePointer<CChar>?, _ options: WaitOptions) throws(Failure) -> Int {
        var result = tryToTake(sharing)
        if result == -SHIM_EAGAIN { result = try wait(sharing, LockWait(.ofSetup, path, options)) }
        // (So that others can name this process; if it fails, they cannot.)
        if result == 0 { _ = shim_sys_lock(fd, mark, 1, Int32(SHIM_READ_LOCK), false) }
        return result
    }

    func release() -> Int {
        _ = shim_sys_lock(fd, SetupLock.marks, 0, Int32(SHIM_UNLOCK), false)
        return FileLock.setup.release(fd)
    }

    @inline(never)
    private func tryToTake(_ sharing: Bool, waiting: Bool = false) -> Int {
        shim_sys_lock(
            fd, FileLock.setup.rawValue, 1, Int32(sharing ? SHIM_READ_LOCK : SHIM_WRITE_LOCK), waiting)
    }

    /// Polls, because the kernel cannot wait for a limited time.
    private func wait(_ sharing: Bool, _ wait: LockWait) throws(Failure) -> Int {
        var wait = wait, pause: Int64 = 1
        while !wait.isEndless {
            shim_sleep_us(Int(min(pause, wait.left)) * 1000)
            pause = min(pause * 2, 4)
            let result = tryToTake(sharing)
            if result != -SHIM_EAGAIN { return result }
            try wait.goOn(heldBy: LockHolder(process: holder))
        }
        return tryToTake(sharing, waiting: true)
    }

    /// The holder's PID; -1 if it is in another namespace, 0 if it is unknown.
    private var holder: Int64 {
        let found = shim_sys_next_locked(fd, SetupLock.marks), bits = SetupLock.processBits
        func namespace(_ mark: Int64) -> Int64 { (mark - SetupLock.marks) >> bits }
        if found < 0 || namespace(found) == 0 || namespace(mark) == 0 { return 0 }
        return namespace(found) == namespace(mark) ? found & (1 << bits - 1) : -1
    }
}
