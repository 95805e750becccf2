import CShalePlatform

extension Engine {
    /// Closes the handle, even if it throws.
    public func close() throws(Failure) {
        var failure: Failure?
        if !ref.pointee.files.isMemory, !ref.pointee.isReadOnly {
            do throws(Failure) { try leave() } catch { failure = error }
        }
        unmap()
        ref.pointee.files.closeAll()
        freeState()
        if let failure { throw failure }
    }

    /// Leaves the cache. The last writer makes everything durable and marks both files clean.
    private func leave() throws(Failure) {
        let files = ref.pointee.files
        guard CacheFiles.isOurs(files.data, files.dataIdentity) else {
            // The program closed or reused the descriptor.
            ref.pointee.files.data = -1
            if !CacheFiles.isOurs(files.index, files.indexIdentity) { ref.pointee.files.index = -1 }
            return
        }
        var fresh: Int32 = -1
        defer { FileLock.releaseAll(fresh) }
        // 0: the sole writer; -EAGAIN: there are others; another error: unknown.
        guard let exclusive = lockAsSoleWriter(&fresh) else { return }
        if !ref.pointee.syncsAtClose || exclusive == -SHIM_EAGAIN { return }
        // If unknown, make all writes durable, but do not mark the files.
        try makeDurable()
        if exclusive != 0 { return }
        try markClean()
    }

    /// Takes the setup lock through a new lock description, which becomes the handle's and tells whether this is the
    /// sole writer: a forked child shares its parent's. Returns nil if the path leads to another file.
    private func lockAsSoleWriter(_ fresh: inout Int32) -> Int? {
        let files = ref.pointee.files
        let opened = files.open(CacheFiles.dataName, SHIM_O_RDWR)
        if opened == -SHIM_ENOENT { return nil }
        if opened < 0 { return opened }
        let fd = Int32(opened)
        guard CacheFiles.isOurs(fd, files.dataIdentity) else {
            _ = shim_sys_close(fd)
            return nil
        }
        let lock = SetupLock(fd, pidNamespace: UInt64(ref.pointee.owner.pointee.pid_namespace))
        let locked = (try? lock.take(sharing: false, files.path, ref.pointee.waits)) ?? -Int(SHIM_ETIMEDOUT)
        _ = shim_sys_close(locked == 0 ? files.data : fd)
        if locked != 0 { return locked }
        fresh = fd
        ref.pointee.files.data = fd
        return FileLock.writers.take(fd)
    }

    /// Writes the same nonce to both files, by which the index is trusted after a reboot.
    private func markClean() throws(Failure) {
        let files = ref.pointee.files
        for i in 0..<ref.pointee.geometry.shards {
            if Shard(ref, i).header[ShardHeader.Field.state] != ShardHeader.State.quiet { return }
        }
        // Without its descriptor the index cannot be synced, so it must not be trusted after a power failure.
        guard CacheFiles.isOurs(files.index, files.indexIdentity) else { return }
        guard let parts = try IndexParts(files, ref.pointee.geometry) else { return }
        let nonce = max(1, try randomWord(files.path))
        ref.pointee.head.release(IndexHead.sum, try parts.sum())
        ref.pointee.head.release(IndexHead.cleanMark, nonce)
        try files.sync(files.index, CacheFiles.indexName)
        ref.pointee.data.release(Superblock.cleanMark, nonce)
        try files.syncData()
        // (If this does not reach the disk, the files count as a copy of themselves.)
        ref.pointee.head.release(IndexHead.dataChanged, try files.look(files.data, CacheFiles.dataName).changed)
    }
}
