import CShalePlatform

/// The lock of a shard's writers. It survives its holder: whoever gets it next puts in order what that one was
/// changing.
extension Shard {
    /// What is asked under the lock without a change of entries: `state` stays quiet.
    @inline(__always)
    func locked<R>(_ body: (borrowing ShardWriter) throws(Failure) -> R) throws(Failure) -> R {
        var change = Change.withoutTime
        return try withLock(&change, body)
    }

    @inline(__always)
    func withLock<R>(_ change: inout Change, _ body: (borrowing ShardWriter) throws(Failure) -> R) throws(Failure) -> R
    {
        try lock()
        defer { unlock() }
        return try withUnsafeMutablePointer(to: &change) { state throws(Failure) in
            try body(ShardWriter(locked: log, state))
        }
    }

    /// Of a shard that nobody else can see: one whose index is being made.
    func unshared<R>(_ body: (borrowing ShardWriter) throws(Failure) -> R) throws(Failure) -> R {
        var change = Change.withoutTime
        return try withUnsafeMutablePointer(to: &change) { state throws(Failure) in
            try body(ShardWriter(locked: log, state))
        }
    }

    /// Whoever finds that a writer died settles what it was changing.
    private func lock() throws(Failure) {
        let result = shim_mutex_lock(header.at + Field.mutex)
        guard result == 0 || result == shim_owner_dead() else {
            throw Message().adding("cannot lock a shard of ").adding(engine.pointee.files.path).adding(": ").adding(
                errno: result
            )
            .adding("; close every user of the cache and open it again").failure(.io, errno: result)
        }
        #if SHALE_FAULTS
        let engine = engine.pointee
        shim_hold_begins(
            header.at, engine.buckets - Table.chunkHead, engine.geometry.indexSize - engine.geometry.chunks,
            engine.data + engine.geometry.segments, engine.geometry.dataSize - engine.geometry.segments)
        #endif
        let state = header[Field.state]
        if state != ShardHeader.State.quiet {
            var change = Change.withoutTime
            do throws(Failure) {
                try withUnsafeMutablePointer(to: &change) { change throws(Failure) in
                    let shard = ShardWriter(locked: log, change)
                    if state == ShardHeader.State.writing {
                        try Recovery(shard).run(shard)
                    } else {
                        try Rebuild(shard).run(shard)
                    }
                }
            } catch {
                unlock()
                throw error
            }
        }
    }
    private func unlock() {
        #if SHALE_FAULTS
        shim_hold_ends(header.at)
        #endif
        shim_mutex_unlock(header.at + Field.mutex)
    }

    /// Locks once, and so settles what a killed writer left.
    func settle() throws(Failure) { try locked { _ in } }

    /// A reader that meets a rebuild waits for it.
    func waitForRebuild() throws(Failure) {
        if engine.pointee.isReadOnly {
            // Its mapping cannot take the lock; the rebuild takes a tenth of a second.
            for _ in 0..<20_000 {
                if !header.isBeingRebuilt { return }
                shim_sleep_us(500)
            }
            throw Failure.because(
                .busy, "the cache is being rebuilt and its writer does not go on; open it for writing to recover it")
        }
        try settle()
    }

    /// Allocates the next frame before anyone holds the lock for it, and populates it where the head fills fast.
    func prepareNextFrame() {
        guard let chosen = try? locked({ $0.log.beginPreparing() }) else { return }
        let result = log.prepare(chosen.frame)
        try? locked { $0.log.endPreparing(chosen, result) }
    }
}
