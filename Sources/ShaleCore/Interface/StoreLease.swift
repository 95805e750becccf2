#if !hasFeature(Embedded)
/// The right to load a key's value, of one at a time of all who ask, in all processes.
public struct Lease: Sendable, Equatable {
    let token: UInt64

    /// For the set that stores what was loaded: it happens only if, since the lease was given, the key was not set,
    /// removed or expired, the store not cleared, and none of the value's tags invalidated or expired.
    public var fence: Condition { .ifUntouched(since: token) }
}

extension Store {
    /// The right to load a key, or nil where another has it, in this process or in another.
    ///
    /// A lease is a hint: it keeps nobody from setting the key. It ends with its release, with its time, or with the
    /// process that has it. Whoever gets one after a miss looks again before loading: the one who had it may have stored
    /// the value. A store of 16 MiB or more records at least 4,096 leases at once, and grants further ones unrecorded:
    /// two may have those. Costs as much as a lock.
    ///
    /// - Parameters:
    ///   - key: What is to be loaded.
    ///   - time: From a millisecond to an hour, of the system's uptime.
    public func lease(_ key: some StoreBytes, for time: Duration) throws(ShaleError) -> Lease? {
        try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.lease(bytes, milliseconds: Lifetime.of(time).milliseconds)
            }
        }.map(Lease.init)
    }

    /// Begins a lease's time again; whoever renews it holds it. False where it was over, or the lease is one that was
    /// granted unrecorded.
    public func renew(_ lease: Lease, of key: some StoreBytes, for time: Duration) throws(ShaleError) -> Bool {
        try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.renew(bytes, lease: lease.token, milliseconds: Lifetime.of(time).milliseconds)
            }
        }
    }

    /// A fence as a lease's, from now on, for whoever loads whether or not others do. Costs a lock.
    public func fence(for key: some StoreBytes) throws(ShaleError) -> Condition {
        .ifUntouched(since: try withShard(of: key) { shard, _ in shard.drawToken() })
    }

    /// Whether a set of the key with this fence would happen, whatever the value's tags. Costs a lock.
    package func isUntouched(_ key: some StoreBytes, since fence: Condition) throws(ShaleError) -> Bool {
        guard case .ifUntouched(let token) = fence else { return true }
        return try withShard(of: key) { shard, key in shard.isUntouched(key, since: token) }
    }

    private func withShard<R>(of key: some StoreBytes, _ body: (borrowing ShardWriter, Key) -> R) throws(ShaleError)
        -> R
    {
        try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.ref.checkWritable()
                let key = try engine.key(bytes)
                return try engine.withShard(of: key) { body($0, key) }
            }
        }
    }

    /// Gives a lease back. False where its time was over.
    @discardableResult
    public func release(_ lease: Lease, of key: some StoreBytes) throws(ShaleError) -> Bool {
        try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.release(bytes, lease: lease.token) }
        }
    }
}
#endif
