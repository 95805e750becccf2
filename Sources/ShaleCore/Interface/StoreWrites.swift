#if !hasFeature(Embedded)
extension Store {
    /// Stores a value and returns its version, or nil if the condition did not hold.
    @inlinable
    @discardableResult
    public func insert(
        _ value: some StoreBytes, for key: some StoreBytes, maxAge: Age? = nil, staleFor: Age? = nil,
        tags: [String] = [],
        meta: [UInt8] = [], condition: Condition = .always, pinned: Bool = false, uncompressed: Bool = false
    ) throws(ShaleError) -> UInt64? {
        try key.withStoreBytes { keyBytes throws(ShaleError) in
            try value.withStoreBytes { valueBytes throws(ShaleError) in
                try write(
                    valueBytes, for: keyBytes, maxAge: maxAge, staleFor: staleFor, tags: tags, meta: meta,
                    condition: condition, pinned: pinned,
                    uncompressed: uncompressed)
            }
        }
    }

    @usableFromInline
    func write(
        _ value: UnsafeRawBufferPointer, for key: UnsafeRawBufferPointer, maxAge: Age?, staleFor: Age?,
        tags: [String], meta: [UInt8],
        condition: Condition, pinned: Bool, uncompressed: Bool
    ) throws(ShaleError) -> UInt64? {
        var options = SetOptions()
        options.maxAge = maxAge?.milliseconds(from: now) ?? 0
        options.stale = staleFor?.milliseconds(from: now) ?? 0
        options.condition = condition
        options.isPinned = pinned
        options.isUncompressed = uncompressed
        for tag in tags {
            try tag.withStoreBytes { bytes throws(ShaleError) in
                try call { () throws(Failure) in try options.add(tag: bytes, engine) }
            }
        }
        var version: UInt64 = 0
        defer { evictionObservers.tell() }
        let status = try meta.withStoreBytes { metaBytes throws(ShaleError) in
            options.meta = metaBytes
            return try call { () throws(Failure) in try engine.set(key, value, options, version: &version) }
        }
        return status == .ok ? version : nil
    }

    /// Removes an entry. Returns whether there was one. With a version, an entry that has another one stays.
    @discardableResult
    public func removeValue(for key: some StoreBytes, ifVersion version: UInt64? = nil) throws(ShaleError) -> Bool {
        // The engine takes 0 for any version; no entry has it.
        if version == 0 { return false }
        defer { evictionObservers.tell() }
        return try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.remove(bytes, version: version ?? 0) }
        } == .ok
    }

    /// Gives an entry, fresh or stale, a new age from now. Returns false if there is none. With a version, an entry
    /// that has another one keeps its age.
    @discardableResult
    public func touch(_ key: some StoreBytes, ifVersion version: UInt64? = nil, maxAge: Age? = nil) throws(ShaleError)
        -> Bool
    {
        if version == 0 { return false }
        defer { evictionObservers.tell() }
        return try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.touch(bytes, version: version ?? 0, maxAge: maxAge?.milliseconds(from: now) ?? 0)
            }
        } == .ok
    }

    /// The same, if neither the key nor the entry's tags have changed since the fence.
    package func touch(_ key: some StoreBytes, if fence: Condition, maxAge: Age) throws(ShaleError) -> Bool {
        guard case .ifUnchanged(let token) = fence else { return try touch(key, maxAge: maxAge) }
        defer { evictionObservers.tell() }
        return try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.touch(bytes, since: token, maxAge: maxAge.milliseconds(from: now))
            }
        } == .ok
    }

    /// Makes an entry stale, as if its age were over: it is kept for its stale period from now, but no longer than it
    /// would have been; without one, it is removed. Returns whether there was an entry.
    @discardableResult
    public func expire(_ key: some StoreBytes) throws(ShaleError) -> Bool {
        defer { evictionObservers.tell() }
        return try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.expire(bytes) }
        } == .ok
    }

    /// Adds to an 8-byte little-endian integer, from `initial` if there is none. Returns the sum.
    @discardableResult
    public func increment(_ key: some StoreBytes, by delta: Int64 = 1, initial: Int64 = 0) throws(ShaleError) -> Int64 {
        defer { evictionObservers.tell() }
        return try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.increment(bytes, delta: delta, initial: initial) }
        }
    }

    /// Removes every entry that carries the tag and was inserted before the call. The cost grows with the number of shards.
    public func removeAll(tagged tag: String) throws(ShaleError) { try invalidate(tag, expires: false) }

    /// Makes every entry stale that carries the tag and was inserted before the call, as ``expire(_:)`` does. The cost grows
    /// with the number of shards.
    public func expireAll(tagged tag: String) throws(ShaleError) { try invalidate(tag, expires: true) }

    private func invalidate(_ tag: String, expires: Bool) throws(ShaleError) {
        defer { evictionObservers.tell() }
        try tag.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.invalidate(bytes, expires: expires) }
        }
    }

    public func removeAll() throws(ShaleError) { try call { () throws(Failure) in try engine.clear() } }
}
#endif
