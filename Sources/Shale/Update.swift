import ShaleCore

/// Changes of a value that lose no other change: each reads a value, changes a copy and stores it only if the entry
/// still has the version that was read, else begins again. One of the callers that change a key at once always
/// succeeds.
extension Cache {
    /// Changes the fresh value, atomically also beside other processes, and returns the new one. Returns nil, without
    /// calling `change`, if there is no fresh value.
    ///
    /// The entry keeps its expiry time, its tags and its pin, but not its etag, which described the old value. A load
    /// of the key that is under way stores nothing.
    ///
    /// - Parameters:
    ///   - change: Called again, with the value of then, if the entry was changed meanwhile. May use the cache.
    ///   - key: The key of the value.
    /// - Throws: `ShaleError`, and what `change` throws; then nothing has changed.
    @discardableResult
    public func update(_ change: (inout Value) throws -> Void, for key: Key) throws -> Value? {
        while let entry = try entry(for: key) {
            if let value = try changed(entry, key, change) { return value }
        }
        return nil
    }

    /// The same; if there is no fresh value, changes the default value, and inserts it with the cache's default age.
    @discardableResult
    public func update(
        _ change: (inout Value) throws -> Void, for key: Key, default defaultValue: @autoclosure () -> Value
    ) throws -> Value {
        let storedKey = try stored(key)
        while true {
            // Before the read: of what is present without being a value, as what is known to be missing, this version
            // and no later one is replaced.
            let known = try store.entry(for: storedKey)
            if let entry = try entry(for: key) {
                if let value = try changed(entry, key, change) { return value }
            } else {
                var value = defaultValue()
                try change(&value)
                let condition = known.map { Condition.ifVersion($0.version) } ?? .ifAbsent
                if try set(value, for: key, maxAge: nil, pinned: false, Meta(), condition) != nil { return value }
            }
        }
    }

    /// Nil if the entry is no longer the stored one.
    private func changed(_ entry: Entry, _ key: Key, _ change: (inout Value) throws -> Void) throws -> Value? {
        var value = entry.value
        try change(&value)
        let meta = Meta(tags: entry.tags, loadTime: entry.meta.loadTime)
        let maxAge = entry.expiresAt.map(Age.until) ?? .forever
        let version = try set(
            value, for: key, maxAge: maxAge, pinned: entry.isPinned, meta, .ifVersion(entry.version))
        return version == nil ? nil : value
    }
}

extension MemoryCache {
    /// Changes the value, atomically beside other threads, and returns the new one. Returns nil, without calling
    /// `change`, if there is no value. The lifetime does not start again.
    ///
    /// `change` is called again, with the value of then, if the entry was changed meanwhile; it may use the cache. If
    /// it throws, nothing has changed.
    @discardableResult
    public func update(_ change: (inout Value) throws -> Void, for key: Key) rethrows -> Value? {
        let hash = key.hashValue
        while let found = find(key, from: locked({ $0.first(hash) })), isFresh(found.entry) {
            if let value = try changed(found, change) { return value }
        }
        return nil
    }

    /// The same; if there is no value, changes the default value and inserts it.
    @discardableResult
    public func update(
        _ change: (inout Value) throws -> Void, for key: Key, default defaultValue: @autoclosure () -> Value
    ) rethrows -> Value {
        let hash = key.hashValue
        while true {
            let newest = locked { $0.first(hash) }
            let found = find(key, from: newest)
            if let found, isFresh(found.entry) {
                if let value = try changed(found, change) { return value }
            } else {
                var value = defaultValue()
                try change(&value)
                loadKeys.change(key)
                let now = dateProvider()
                let entry = entry(value, for: key, expirationDate: now.addingTimeInterval(entryLifetime))
                let left = locked { $0.insert(entry, replacing: found?.place, upTo: newest?.place, at: now) }
                if left != nil { return value }
            }
        }
    }

    private func changed(_ found: Found, _ change: (inout Value) throws -> Void) rethrows -> Value? {
        var value = found.entry.value
        try change(&value)
        loadKeys.change(found.entry.key)
        let now = dateProvider()
        let entry = entry(value, for: found.entry.key, expirationDate: found.entry.expirationDate)
        return locked { $0.replace(found.place, with: entry, at: now) } == nil ? nil : value
    }
}
