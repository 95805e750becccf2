import CShalePlatform

/// The lock of a shard's writers. It survives its holder: whoever gets it next puts in order what that one was
/// changing.
extension Shard {
    /// Whoever finds that a writer died settles what it was changing.
    func lock() throws(Failure) {
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
            do throws(Failure) {
                if state == ShardHeader.State.writing { try Recovery(self).run() } else { try Rebuild(self).run() }
            } catch {
                unlock()
                throw error
            }
        }
    }
    func unlock() {
        #if SHALE_FAULTS
        shim_hold_ends(header.at)
        #endif
        shim_mutex_unlock(header.at + Field.mutex)
    }

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
        try lock()
        unlock()
    }

    /// Allocates the next frame before anyone holds the lock for it, and populates it where the head fills fast.
    func prepareNextFrame() {
        guard (try? lock()) != nil else { return }
        let chosen = log.beginPreparing()
        unlock()
        guard let chosen else { return }
        let result = log.prepare(chosen.frame)
        guard (try? lock()) != nil else { return }
        log.endPreparing(chosen, result)
        unlock()
    }
}
