#if !hasFeature(Embedded)
extension Store {
    /// Evicts up to `count` entries, of each shard those first that ``Options/eviction`` says. Returns how many.
    @discardableResult
    public func evict(_ count: Int) throws(ShaleError) -> Int {
        defer { evictionObservers.tell() }
        return try call { () throws(Failure) in Int(try engine.evict(UInt64(max(0, count)))) }
    }

    /// Removes what is past its age and its stale period. Returns how many.
    @discardableResult
    public func purge() throws(ShaleError) -> Int { try call { () throws(Failure) in Int(try engine.purge()) } }

    /// Returns when all that was completed before the call is on the disk. After a power cut each entry is as it was
    /// then, or as later. What may be missing: an entry whose place a full cache has reused since, a key that was
    /// changed since, what was evicted, and in a full cache what evicted entries displace that come back.
    public func sync() throws(ShaleError) { try call { () throws(Failure) in try engine.sync() } }

    /// Reads every current record, checks it, and drops what is damaged.
    public func verify() throws(ShaleError) -> Report { try call { () throws(Failure) in try engine.verify() } }

    public func statistics() throws(ShaleError) -> Statistics {
        try call { () throws(Failure) in try engine.statistics() }
    }

    /// Calls `observer` with the key of each entry that this object evicts to make room, until `stopObserving`: in the
    /// order in which they left a shard, without a lock, by the call that evicted them or by another one at the same
    /// moment.
    package func observeEvictions(_ observer: @escaping @Sendable (_ key: [UInt8]) -> Void) -> Int {
        evictionObservers.add(observer)
    }

    package func stopObserving(_ id: Int) { evictionObservers.remove(id) }

    /// Calls `observer`, which says whether somebody listens, as ``Options/onWait`` is called, until `stopObservingWaits`.
    package func observeWaits(_ observer: @escaping @Sendable (_ sentence: String) -> Bool) -> Int {
        waitObservers.add(observer)
    }

    package func stopObservingWaits(_ id: Int) { waitObservers.remove(id) }
}
#endif
