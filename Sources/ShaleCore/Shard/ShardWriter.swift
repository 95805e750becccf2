import CShalePlatform

/// A shard whose lock is held. What the lock guards is changed through it alone, and only `Shard.write` makes one, for as
/// long as it holds the lock.
///
/// Three words, and passed as they are: what a change knows of itself is behind a pointer, so that a call that is not
/// inlined reloads nothing else.
struct ShardWriter: ~Copyable, ShardParts {
    let log: Log
    private let state: UnsafeMutablePointer<Change>

    /// Under the lock, or where nobody else can see the shard.
    @inline(__always) init(locked log: Log, _ state: UnsafeMutablePointer<Change>) {
        self.log = log
        self.state = state
    }

    @inline(__always) var reader: ShardReader { ShardReader(log: log) }
    @inline(__always) var change: Change {
        unsafeAddress { UnsafePointer(state) }
        nonmutating unsafeMutableAddress { state }
    }

    /// The same lock, and another change.
    func with<R>(_ other: Change, _ body: (borrowing ShardWriter) -> R) -> R {
        var other = other
        return withUnsafeMutablePointer(to: &other) { body(ShardWriter(locked: log, $0)) }
    }

    func raiseEpoch(by step: UInt64) {
        header.release(Field.epoch, header[Field.epoch] &+ step)
        shim_fence()
    }
}
