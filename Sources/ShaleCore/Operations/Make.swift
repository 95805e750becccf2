import CShalePlatform

/// Makes a change under the shard's lock, then its consequences in other shards, one lock at a time. If killed in
/// between, a rebuild or the cleaner completes them.
extension Shard {
    @inline(__always)
    func write<R>(_ change: inout Change, _ body: (borrowing ShardWriter) throws(Failure) -> R) throws(Failure) -> R {
        var crowded = 0
        change.begin()
        while true {
            do throws(Failure) {
                let result = try writeInHolds(&change, body)
                if change.blobCount > 0 || change.wantsFrame { follow(&change) }
                return result
            } catch {
                let settled = change.blobCount > 0
                // (Preparing a frame could fail too, and replace this error's message.)
                change.wantsFrame = false
                if settled { follow(&change) }
                // Parts of other shards' values fill this shard: evict their owners and try again.
                let part = change.crowdedBy
                change.crowdedBy = nil
                guard error.status == .full, part != nil || settled, crowded < 4096 else { throw error }
                crowded += 1
                if let part { try Shard.evictOwner(part, engine, &change) }
                change.begin()
            }
        }
    }

    /// Repeats `body` in further holds until one suffices.
    @inline(__always)
    private func writeInHolds<R>(
        _ change: inout Change, waiting patience: Patience = .ofCall,
        _ body: (borrowing ShardWriter) throws(Failure) -> R
    ) throws(Failure) -> R {
        while true {
            (change.left, change.hasEvicted, change.hasWalked) = (change.share, false, false)
            do throws(Failure) { return try writeOnce(&change, waiting: patience, body) } catch {
                guard error.isPause else { throw error }
                #if SHALE_FAULTS
                shim_tell(SHIM_PAUSED, nil)
                #endif
                // Let a waiter have the lock now and then: a thread that wakes up is slower than this one.
                if change.isLockWanted, change.pauses & 3 == 0 { shim_sleep_us(1) }
            }
        }
    }

    @inline(__always)
    private func writeOnce<R>(
        _ change: inout Change, waiting patience: Patience = .ofCall,
        _ body: (borrowing ShardWriter) throws(Failure) -> R
    ) throws(Failure) -> R {
        try withLock(&change, waiting: patience) { shard throws(Failure) in
            shard.header.beginChange()
            Renumber(shard).runIfNeeded()
            if shard.accessClock.isDue, shard.change.now != 0 {
                shard.accessClock.note(shard.change.now, lowest: shard.victims.lowest)
            }
            defer { shard.header.endChange() }
            if shard.isAuditing { shard.continueAudit() }
            return try body(shard)
        }
    }

    /// Called by readers now and then, if the lock is free: a shard that is only read runs out of stamps too.
    @inline(never)
    func requestRenumber() {
        var change = Change.withoutTime
        try? writeOnce(&change, waiting: .none) { _ throws(Failure) in }
    }

    /// Makes a change's consequences, except under locks held for long: the next roll then allocates its frame itself,
    /// the cleaner unlinks ownerless parts, and readers incomplete values.
    @inline(never)
    private func follow(_ change: inout Change) {
        if change.wantsFrame {
            change.wantsFrame = false
            prepareNextFrame()
        }
        let blobs = change.blobs, count = change.blobCount
        change.blobCount = 0
        for i in 0..<count {
            let blob = i == 0 ? blobs.0 : i == 1 ? blobs.1 : i == 2 ? blobs.2 : blobs.3
            if blob.parts > 0 {
                Shard.clearParts(blob, engine)
            } else {
                try? Shard.evictOwner(
                    PartKey(blob: blob.blob, owner: blob.owner, part: 0), engine, &change, waiting: .short)
            }
        }
    }

    /// Allocates the next frame before an append needs it under the lock, and populates it if the head fills fast; or
    /// maps the one that will be reused.
    private func prepareNextFrame() {
        guard log.wantsFrame else {
            if let frame = log.mapNextFrame() { try? locked(waiting: .short) { $0.log.freeHole(frame) } }
            return
        }
        guard let chosen = try? locked(waiting: .short, { $0.log.beginPreparing() }) else { return }
        let result = log.prepare(chosen.frame)
        try? locked(waiting: .short) { $0.log.endPreparing(chosen, result) }
    }

    /// Evicts a part's manifest, in its own shard; if it is dead, unlinks all dead entries there.
    @inline(never)
    private static func evictOwner(
        _ part: PartKey, _ engine: EngineRef, _ change: inout Change, waiting patience: Patience = .ofCall
    ) throws(Failure) {
        let owner = Shard(engine, keyHash: part.owner)
        change.begin()
        try owner.writeInHolds(&change, waiting: patience) { shard throws(Failure) in
            if shard.reader.isOwnerDead(part, shard.change.now) {
                try shard.unlinkDead()
            } else {
                shard.evictOwner(part)
            }
        }
        owner.follow(&change)
    }

    static func clearParts(_ blob: Change.Blob, _ engine: EngineRef) {
        var patience = Patience.short
        for i in 0..<blob.parts {
            PartKey(blob: blob.blob, owner: blob.owner, part: i).withKey(engine) { shard, key in
                if shard.reader.lookup(key, isPart: true) == nil { return }
                var change = Change.withoutTime
                do throws(Failure) {
                    try shard.writeOnce(&change, waiting: patience) { shard throws(Failure) in shard.clearPart(key) }
                } catch { if error.status == .busy { patience = .none } }
            }
        }
    }
}
