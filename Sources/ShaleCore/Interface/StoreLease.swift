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
    /// A lease is a hint: it keeps nobody from setting the key. It ends with its release, or with its time, which is
    /// how that of a killed process ends. Whoever gets one after a miss looks again before loading: the one who had it
    /// may have stored the value. A shard notes 64 leases at once, and grants further ones unnoted. Costs as much as a
    /// lock.
    ///
    /// - Parameters:
    ///   - key: What is to be loaded.
    ///   - time: From a millisecond to an hour, of the system's uptime.
    public func lease(_ key: some StoreBytes, for time: Duration) throws(ShaleError) -> Lease? {
        try lease(key, renewing: 0, for: time)
    }

    /// Begins a lease's time again. False where it was over, or the lease is one that was granted unnoted.
    public func renew(_ lease: Lease, of key: some StoreBytes, for time: Duration) throws(ShaleError) -> Bool {
        try self.lease(key, renewing: lease.token, for: time) != nil
    }

    private func lease(_ key: some StoreBytes, renewing token: UInt64, for time: Duration) throws(ShaleError) -> Lease?
    {
        try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.lease(bytes, renewing: token, milliseconds: Lifetime.of(time).milliseconds)
            }
        }.map(Lease.init)
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

    private func withShard<R>(of key: some StoreBytes, _ body: (Shard, Key) -> R) throws(ShaleError) -> R {
        try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.ref.pointee.checkWritable()
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
