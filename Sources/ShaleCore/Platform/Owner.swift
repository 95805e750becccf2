import CShalePlatform

/// The identity by which a handle owns locks and leases, in this process: see `shim_owner`. Others ask the kernel
/// whether it has ended. Every process of a machine can ask that, whatever its namespaces and its libc.
typealias Owner = UnsafeMutablePointer<shim_owner>

extension UnsafeMutablePointer<shim_owner> {
    /// Its number; 0 if a forked child could not get one.
    var number: UInt32 {
        let number = shim_owner_number(self)
        return number != 0 || shim_owner_renew(self) < 0 ? number : shim_owner_number(self)
    }

    var uptime: Int64 { shim_owner_uptime_ms(self) }

    /// Whether another owner has ended. Asks the kernel: where possible, under no lock.
    func hasEnded(_ other: UInt32) -> Bool { shim_owner_has_ended(self, other) }

    /// Tries to take a lock over whose owner has ended. `seen`: its word.
    func takesOver(_ lock: Memory, _ kind: shim_lock_kind, _ seen: UInt64) -> Bool {
        let number = UInt32(truncatingIfNeeded: seen) & UInt32(SHIM_OWNER_MASK)
        return hasEnded(number) && shim_lock_take_over(lock, self, kind, seen)
    }

}

extension CacheFiles {
    /// Creates the file that stands for the index of a cache in memory.
    mutating func createOwners() throws(Failure) {
        let fd = shim_sys_memory_file()
        if fd < 0 { throw Failure.system("create", nil, "a file in memory for the cache in memory", fd) }
        owners = Int32(fd)
        var s = shim_stat()
        let result = shim_sys_fstat(owners, &s)
        if result < 0 {
            _ = shim_sys_close(owners)
            throw Failure.system("look at", nil, "the file in memory of the cache in memory", result)
        }
        ownersIdentity = Identity(s)
        // (For messages alone.)
        _ = shim_sys_pid_namespace(&pidNamespace)
    }

    func cannotAttach(_ result: Int) -> Failure {
        Failure.system(
            "attach this process to", path, isMemory ? "the cache in memory" : CacheFiles.indexName, result,
            advice: "let this process open the file, or fork before giving up the right to")
    }
}
