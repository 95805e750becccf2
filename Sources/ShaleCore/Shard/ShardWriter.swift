import CShalePlatform

/// A shard whose lock is held. Only this file creates one: `hold`, for as long as it holds the lock, and `unshared`,
/// for a shard that nothing else can see. Code that changes a shard takes a `ShardWriter`, or belongs to one (its log,
/// table or header).
///
/// It is three words, passed by value: the change's own state is behind a pointer, so that a call that is not inlined
/// reloads nothing else.
struct ShardWriter: ~Copyable, ShardParts {
    /// The first word: ThreadSanitizer takes the first word of a borrowed value for the address of changes made through
    /// it, and this one belongs to the call alone.
    private let state: UnsafeMutablePointer<Change>
    let log: Log

    @inline(__always) fileprivate init(locked log: Log, _ state: UnsafeMutablePointer<Change>) {
        self.log = log
        self.state = state
    }

    @inline(__always) var change: Change {
        unsafeAddress { UnsafePointer(state) }
        nonmutating unsafeMutableAddress { state }
    }

    func with<R>(_ other: Change, _ body: (borrowing ShardWriter) throws(Failure) -> R) throws(Failure) -> R {
        var other = other
        return try withUnsafeMutablePointer(to: &other) { state throws(Failure) in
            try body(ShardWriter(locked: log, state))
        }
    }

    @inline(__always) func spend(_ looks: Int, bytes: Int = 0) {
        change.left &-= looks &+ bytes / Share.bytes
    }

    /// A point where a call can pause: nothing is half done, and it has made progress. Throws `pause` once the hold's
    /// share is used up.
    @inline(__always) func rest() throws(Failure) {
        if change.left <= 0 { try pause() }
    }
    @inline(never) private func pause() throws(Failure) {
        change.pauses += 1
        change.isLockWanted = shim_lock_is_wanted(header.at + Field.lock)
        throw .pause
    }

    func raiseEpoch(by step: UInt64) {
        header.release(Field.epoch, header[Field.epoch] &+ step)
        shim_fence()
    }
}

extension Shard {
    var isLocked: Bool { shim_lock_owner(header.at + Field.lock) != 0 }

    /// Holds the lock for `body`. `settle` first completes or undoes the change of a killed writer, before anything
    /// else sees it; if it throws, `body` does not run. Throws if the lock is not free within the time of `patience`.
    @inline(__always)
    func hold<R>(
        _ change: inout Change, waiting patience: Patience, settle: (borrowing ShardWriter) throws(Failure) -> Void,
        _ body: (borrowing ShardWriter) throws(Failure) -> R
    ) throws(Failure) -> R {
        try lock(patience)
        defer { unlock() }
        if header[Field.state] != ShardHeader.State.quiet {
            var change = Change.withoutTime
            try withWriter(&change, settle)
        }
        return try withWriter(&change, body)
    }

    /// For a shard that no other thread or process can see: its index is being created.
    func unshared<R>(_ body: (borrowing ShardWriter) throws(Failure) -> R) throws(Failure) -> R {
        var change = Change.withoutTime
        return try withWriter(&change, body)
    }

    @inline(__always)
    private func withWriter<R>(_ change: inout Change, _ body: (borrowing ShardWriter) throws(Failure) -> R)
        throws(Failure) -> R
    {
        try withUnsafeMutablePointer(to: &change) { state throws(Failure) in
            try body(ShardWriter(locked: log, state))
        }
    }

    @inline(__always)
    private func lock(_ patience: Patience) throws(Failure) {
        let result = shim_lock_try(header.at + Field.lock, engine.pointee.owner, SHIM_SHARD_LOCK)
        if result != 0 { try settleLock(result, patience) }
        #if SHALE_FAULTS
        let engine = engine.pointee
        shim_hold_begins(
            header.at, engine.buckets - Table.chunkHead, engine.geometry.indexSize - engine.geometry.chunks,
            engine.data + engine.geometry.segments, engine.geometry.dataSize - engine.geometry.segments)
        #endif
    }

    /// Waits if the lock is not free; takes it over if its owner has died.
    @inline(never)
    private func settleLock(_ result: Int32, _ patience: Patience) throws(Failure) {
        if result == SHIM_ENOLCK {
            let renewed = shim_owner_renew(engine.pointee.owner)
            if renewed < 0 { throw engine.pointee.files.cannotAttach(renewed) }
            if shim_lock_try(header.at + Field.lock, engine.pointee.owner, SHIM_SHARD_LOCK) == 0 { return }
        }
        if patience == .none { throw Failure.lockIsTaken }
        try wait(patience)
    }

    /// A dead owner wakes no waiter. So each wait is short, the first ones shortest, and the kernel is asked after it.
    private func wait(_ patience: Patience) throws(Failure) {
        let lock = header.at + Field.lock, engine = engine, owner = engine.pointee.owner
        var wait = LockWait(
            .ofShard, engine.pointee.files.path, engine.pointee.waits, patience,
            told: EngineState.toldWaits(engine))
        var pause: Int64 = 2, seen: UInt64 = 0
        while true {
            let result = shim_lock_wait(lock, owner, SHIM_SHARD_LOCK, min(wait.left, pause), &seen)
            if result == 0 { return }
            if result == SHIM_ETIMEDOUT, owner.takesOver(lock, SHIM_SHARD_LOCK, seen) { return }
            try wait.goOn(heldBy: LockHolder(owner, seen))
            pause = min(pause * 2, 20)
        }
    }

    private func unlock() {
        #if SHALE_FAULTS
        shim_hold_ends(header.at)
        #endif
        shim_lock_release(header.at + Field.lock, engine.pointee.owner, SHIM_SHARD_LOCK)
    }
}
