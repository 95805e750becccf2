#if !hasFeature(Embedded)
extension Store {
    /// Evicts up to `count` entries, in each shard in the order of ``Options/eviction``. Returns how many.
    @discardableResult
    public func evict(_ count: Int) throws(ShaleError) -> Int {
        defer { evictionObservers.tell() }
        return try call { () throws(Failure) in Int(try engine.evict(UInt64(max(0, count)))) }
    }

    /// Removes entries past their age and stale period. Returns how many.
    @discardableResult
    public func purge() throws(ShaleError) -> Int { try call { () throws(Failure) in Int(try engine.purge()) } }

    /// Returns when everything completed before the call is on the disk. After a power failure each entry is as of
    /// then, or later, except that keys modified since and entries that a full store has moved or evicted since may be
    /// missing. No key reverts to an older value; evicted entries may reappear, and displace others in a full store.
    public func sync() throws(ShaleError) { try call { () throws(Failure) in try engine.sync() } }

    /// Reads every current record, checks it, and unlinks damaged entries.
    public func verify() throws(ShaleError) -> Report { try call { () throws(Failure) in try engine.verify() } }

    public func statistics() throws(ShaleError) -> Statistics {
        try call { () throws(Failure) in try engine.statistics() }
    }

    /// Calls `observer` with the key of each entry that this object evicts to make room, until `stopObserving`. Keys of
    /// a shard come in the order of eviction, without a lock, from the call that evicted them or from a concurrent one.
    package func observeEvictions(_ observer: @escaping @Sendable (_ key: [UInt8]) -> Void) -> Int {
        evictionObservers.add(observer)
    }

    package func stopObserving(_ id: Int) { evictionObservers.remove(id) }

    /// Calls `observer` as ``Options/onWait`` is called, until `stopObservingWaits`. It returns whether anything
    /// listens.
    package func observeWaits(_ observer: @escaping @Sendable (_ sentence: String) -> Bool) -> Int {
        waitObservers.add(observer)
    }

    package func stopObservingWaits(_ id: Int) { waitObservers.remove(id) }
}
#endif
