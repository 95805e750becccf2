#if !hasFeature(Embedded)
/// The right to load a key's value. One caller at a time holds it, of all processes.
public struct Lease: Sendable, Equatable {
    let token: UInt64

    /// For the insertion that stores the loaded value: it happens only if, since the lease was granted, the key was not set,
    /// removed or expired, the store not cleared, and none of the value's tags invalidated or expired.
    public var fence: Condition { .ifUnchanged(since: token) }
}

extension Store {
    /// Returns a lease on a key, or nil if another caller holds it, in this process or in another.
    ///
    /// A lease is a hint: it does not keep other callers from setting the key. It ends when it is released, when its
    /// time is over, or with its process. After a miss, read again before loading: the previous holder may have stored
    /// the value. A store of 16 MiB or more records at least 4,096 leases at once. Further ones are granted unrecorded,
    /// and two callers may hold the same. Costs as much as a lock.
    ///
    /// - Parameters:
    ///   - key: The key to load.
    ///   - time: From a millisecond to an hour, of the system's uptime.
    public func lease(_ key: some StoreBytes, for time: Duration) throws(ShaleError) -> Lease? {
        try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.lease(bytes, milliseconds: time.wholeMilliseconds)
            }
        }.map(Lease.init)
    }

    /// Restarts a lease's time and makes the caller its holder. Returns false if it was over, or the lease was granted
    /// unrecorded.
    public func renew(_ lease: Lease, of key: some StoreBytes, for time: Duration) throws(ShaleError) -> Bool {
        try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.renew(bytes, lease: lease.token, milliseconds: time.wholeMilliseconds)
            }
        }
    }

    /// Returns a fence like a lease's, from now on, for callers that load without a lease. Costs a lock.
    public func fence(for key: some StoreBytes) throws(ShaleError) -> Condition {
        .ifUnchanged(since: try withShard(of: key) { shard, _ in shard.drawToken() })
    }

    /// Whether an insertion of the key with this fence would happen, regardless of the value's tags. Costs a lock.
    package func isUnchanged(_ key: some StoreBytes, since fence: Condition) throws(ShaleError) -> Bool {
        guard case .ifUnchanged(let token) = fence else { return true }
        return try withShard(of: key) { shard, key in shard.isUnchanged(key, since: token) }
    }

    /// Whether a thread of any process holds the lock of the key's shard at this moment. Takes no lock. False if this
    /// store is read-only or closed.
    package func isLocked(_ key: some StoreBytes) -> Bool {
        let isLocked = try? key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.ref.checkWritable()
                return Shard(engine.ref, keyHash: try engine.key(bytes).hash).isLocked
            }
        }
        return isLocked ?? false
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

    /// Releases a lease. Returns false if its time was over.
    @discardableResult
    public func release(_ lease: Lease, of key: some StoreBytes) throws(ShaleError) -> Bool {
        try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.release(bytes, lease: lease.token) }
        }
    }
}
#endif
