import CShalePlatform

/// The next holder of the lock after a killed writer first completes or undoes its change.
extension Shard {
    /// Locks without a change of entries: `state` stays quiet.
    @inline(__always)
    func locked<R>(waiting patience: Patience = .ofCall, _ body: (borrowing ShardWriter) throws(Failure) -> R)
        throws(Failure) -> R
    {
        var change = Change.withoutTime
        return try withLock(&change, waiting: patience, body)
    }

    @inline(__always)
    func withLock<R>(
        _ change: inout Change, waiting patience: Patience, _ body: (borrowing ShardWriter) throws(Failure) -> R
    ) throws(Failure) -> R {
        while true {
            if header[Field.state] >= ShardHeader.State.rebuilding { try rebuild(waiting: patience) }
            do throws(Failure) { return try hold(&change, waiting: patience, settle: Shard.recover, body) } catch {
                if !error.isRebuildFirst { throw error }
            }
        }
    }

    /// Throws `rebuildFirst`, and marks the shard, if it has to be rebuilt: that needs the time, and the caller's clock
    /// is called under no lock.
    @inline(never)
    private static func recover(_ shard: borrowing ShardWriter) throws(Failure) {
        if shard.header[Field.state] == ShardHeader.State.writing {
            do throws(Failure) { return try Recovery(shard).run(shard) } catch {
                if !error.isRebuildFirst { throw error }
            }
            shard.header.release(Field.state, ShardHeader.State.rebuilding)
        }
        throw .rebuildFirst
    }

    func settle() throws(Failure) { try locked { _ in } }

    // MARK: Rebuilding

    /// Rebuilds the index, or waits while another caller does. If the shard has parts of values with manifests in other
    /// shards, these manifests come first, one lock at a time.
    @inline(never)
    private func rebuild(waiting patience: Patience) throws(Failure) {
        let now = engine.pointee.clock.now48
        try rebuild(at: now, waits: true, waiting: patience)
        guard header.lacksParts else { return }
        for i in 0..<geometry.shards where i != number {
            let other = Shard(engine, i)
            if other.header.hasManifests(other.header.moment) { continue }
            do throws(Failure) { try other.rebuild(at: now, waits: true, waiting: patience) } catch {
                // (If that shard cannot be rebuilt, its parts stay in doubt.)
                if error.status == .busy { throw error }
            }
        }
        try rebuild(at: now, waits: false, waiting: patience)
    }

    /// One step, as `Rebuild.run` describes it. Does nothing if the shard is in order once locked.
    @inline(never)
    func rebuild(at now: UInt64, waits: Bool, waiting patience: Patience) throws(Failure) {
        var change = Change.withoutTime
        func settle(_ shard: borrowing ShardWriter) throws(Failure) {
            if shard.header[Field.state] < ShardHeader.State.rebuilding {
                do throws(Failure) { return try Shard.recover(shard) } catch {
                    if !error.isRebuildFirst { throw error }
                }
            }
            try Rebuild(shard, at: now).run(waits: waits, shard)
        }
        try hold(&change, waiting: patience, settle: settle) { _ in }
    }

    @inline(never)
    static func areSomeBeingRebuilt(_ engine: EngineRef) -> Bool {
        for i in 0..<engine.pointee.geometry.shards where Shard(engine, i).header.isBeingRebuilt { return true }
        return false
    }

    @inline(never)
    func waitForRebuild() throws(Failure) {
        if !engine.pointee.isReadOnly { return try settle() }
        // A read-only mapping cannot take the lock. The rebuild takes a tenth of a second, once its turn has come.
        let limit = engine.pointee.waits.limit, most = limit == 0 ? 10_000 : limit
        var end = shim_uptime_ms() &+ most
        while header.isBeingRebuilt {
            if shim_uptime_ms() >= end {
                guard limit == 0, FileLock.rebuilding.isHeld(engine.pointee.files.data) else {
                    throw Failure.because(
                        .busy,
                        "the cache is being rebuilt and its writer has stopped; open it for writing to recover it")
                }
                end = shim_uptime_ms() &+ most
            }
            shim_sleep_us(500)
        }
    }
}
