import CShalePlatform

/// How calls take a shard's lock. The next holder after a killed writer first settles what that one was changing.
extension Shard {
    /// What is asked under the lock without a change of entries: `state` stays quiet.
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
        try hold(&change, waiting: patience, settle: Shard.recover, body)
    }

    @inline(never)
    private static func recover(_ shard: borrowing ShardWriter) throws(Failure) {
        if shard.header[Field.state] == ShardHeader.State.writing {
            try Recovery(shard).run(shard)
        } else {
            try Rebuild(shard).run(shard)
        }
    }

    /// Locks once, and so settles what a killed writer left.
    func settle() throws(Failure) { try locked { _ in } }

    /// A reader that meets a rebuild waits for it.
    func waitForRebuild() throws(Failure) {
        if engine.pointee.isReadOnly {
            // Its mapping cannot take the lock; the rebuild takes a tenth of a second.
            let limit = engine.pointee.waits.limit, end = shim_uptime_ms() &+ (limit == 0 ? 10_000 : limit)
            repeat {
                if !header.isBeingRebuilt { return }
                shim_sleep_us(500)
            } while shim_uptime_ms() < end
            throw Failure.because(
                .busy, "the cache is being rebuilt and its writer does not go on; open it for writing to recover it")
        }
        try settle()
    }
}
