import ShaleCore

/// The steps of a load: acquiring the lease, calling the loader, storing the result.
extension Cache {
    /// Runs a load for all its holders.
    func load(
        _ key: Key, insteadOf known: Stamp?, _ fence: LoadFence, _ options: LoadOptions,
        _ load: @Sendable (Entry?) async throws -> Loaded
    ) async throws -> Answer {
        do {
            let answer: Answer
            let replaced = options.policy == .reload ? try freshStamp(key) : known
            switch try await attempt(key, insteadOf: replaced, fence) {
            case .stored(let stored): answer = stored
            case .load(nil): answer = try await fetch(key, since: nil, options, load)
            case .load(let lease?):
                fence.set(.since(lease.fence))
                answer = try await HeldLease(lease, of: try stored(key), in: store, for: self.options.leaseTime).during
                {
                    try await fetch(key, since: lease.fence, options, load)
                }
            }
            pauses.end(try stored(key))
            return answer
        } catch {
            if !Task.isCancelled { beginPause(of: key, after: error, options) }
            throw error
        }
    }

    private enum Attempt {
        case load(Lease?)
        case stored(Answer)
    }

    /// Waits until no other cache object or process loads the key, or one of them has stored a fresh entry other than
    /// the known one.
    private func attempt(_ key: Key, insteadOf known: Stamp?, _ fence: LoadFence) async throws -> Attempt {
        let storedKey = try stored(key)
        // A read may remove a value that does not decode. Done before acquiring the lease: afterwards it would be a
        // change.
        if options.removesUndecodable { _ = try? await peek(key) }
        var pause = Duration.milliseconds(1)
        var waitsSince: ContinuousClock.Instant?
        defer { if let waitsSince { counters.count(waitSince: waitsSince) } }
        while true {
            // Without a lease, as in a read-only store, the load runs but is not stored.
            guard await store.awaitLock(of: storedKey) else { return .load(nil) }
            let lease: Lease?
            do { lease = try store.lease(storedKey, for: options.leaseTime) } catch { return .load(nil) }
            // After acquiring the lease: its previous holder may have stored the value.
            let current: Answer?
            do { current = try await freshAnswer(key, insteadOf: known) } catch {
                if let lease { _ = try? store.release(lease, of: storedKey) }
                throw error
            }
            if let current {
                if let lease { _ = try? store.release(lease, of: storedKey) }
                // Looked up again after closing the fence: a caller that joined after a change must not get an older
                // entry.
                fence.set(.closed)
                if try freshStamp(key) == current.stamp { return .stored(current) }
                fence.set(.open)
                continue
            }
            if let lease { return .load(lease) }
            waitsSince = waitsSince ?? .now
            try await Task.sleep(for: pause)
            pause = min(pause * 2, .milliseconds(25))
        }
    }

    /// Calls the loader and stores its result.
    private func fetch(
        _ key: Key, since fence: Condition?, _ options: LoadOptions,
        _ load: @Sendable (Entry?) async throws -> Loaded
    ) async throws -> Answer {
        let present = try await peek(key)
        let begun = store.now
        counters.loads.add(1, ordering: .relaxed)
        eventBroadcast.send(.loadBegan(key))
        let start = ContinuousClock.now
        do {
            let loaded = try await load(present)
            // A load without callers must not undo a removal that follows its cancellation.
            try Task.checkCancellation()
            let answer = try await keep(
                loaded, for: key, since: fence, insteadOf: present, loadTime: max(0, store.now - begun), options)
            eventBroadcast.send(.loadEnded(key, after: .now - start, error: nil))
            return answer
        } catch {
            counters.failedLoads.add(1, ordering: .relaxed)
            eventBroadcast.send(.loadEnded(key, after: .now - start, error: error))
            throw error
        }
    }

    private func keep(
        _ loaded: Loaded, for key: Key, since fence: Condition?, insteadOf present: Entry?, loadTime: Int64,
        _ options: LoadOptions
    ) async throws -> Answer {
        func age(_ maxAge: Age?) -> Age {
            (maxAge ?? self.options.maxAge).jittered(by: options.jitter, from: store.now)
        }
        switch loaded {
        case .value(let value, let maxAge, let tags, let etag, let pinned):
            return .entry(
                try await insertLoaded(
                    value, for: key, since: fence, maxAge: age(maxAge), pinned: pinned,
                    Meta(etag: etag, tags: tags, loadTime: loadTime)))
        case .notModified(let maxAge):
            guard let present else {
                throw failure("the loader of \(key) returned notModified, but nothing is stored; return a value")
            }
            return .entry(try await renew(present, for: key, since: fence, maxAge: age(maxAge)))
        case .missing(let maxAge, let tags):
            let version = try await storeLoaded(
                nil, for: key, since: fence, maxAge: age(maxAge), pinned: false,
                Meta(tags: tags, loadTime: loadTime, isMissing: true))
            if version != nil, present != nil { changeBroadcast.send(.removed(key)) }
            return .missing(Stamp(version: version ?? 0, expires: nil))
        }
    }

    private func renew(
        _ present: Entry, for key: Key, since fence: Condition?, maxAge: Age
    ) async throws(ShaleError) -> Entry {
        do throws(ShaleError) {
            let storedKey = try stored(key), maxAge = try valid(maxAge)
            guard await store.awaitLock(of: storedKey) else {
                throw ShaleError(code: .busy, message: "a lock is taken")
            }
            let isRenewed =
                if let fence { try store.touch(storedKey, if: fence, maxAge: maxAge) } else {
                    try store.touch(storedKey, ifVersion: present.version, maxAge: maxAge)
                }
            if isRenewed, let renewed = try await peek(key) {
                return renewed
            }
        } catch {
            if error.isInvalidArgument { throw error }
            // In a read-only store or on a full disk: the stored value is valid, and keeps its old age.
            counters.unstored.add(1, ordering: .relaxed)
            return Entry(
                loaded: present.value, version: present.version, isPinned: present.isPinned, present.meta,
                now: store.now)
        }
        // The entry was evicted, which the fence permits, or changed, which it does not.
        return try await insertLoaded(
            present.value, for: key, since: fence, maxAge: maxAge, pinned: present.isPinned, present.meta)
    }

    /// The stored entry, fresh or stale, without counting as a use.
    private func peek(_ key: Key) async throws(ShaleError) -> Entry? {
        try await reading(key) { cache throws(ShaleError) in
            try cache.read(key, includingStale: true, peeking: true, reporting: false)
        }
    }

    /// Returns the loaded value even if it could not be stored or was replaced at once.
    private func insertLoaded(
        _ value: Value, for key: Key, since fence: Condition?, maxAge: Age, pinned: Bool, _ meta: Meta
    ) async throws(ShaleError) -> Entry {
        let version = try await storeLoaded(value, for: key, since: fence, maxAge: maxAge, pinned: pinned, meta)
        if let version, let known = try? store.entry(for: try stored(key), includingStale: true),
            known.version == version
        {
            return Entry(value, known, source: .loader)
        }
        return Entry(loaded: value, version: version ?? 0, isPinned: pinned, meta, now: store.now)
    }

    /// Stores a loaded value; a nil value is known to be missing. Returns the version, or nil if nothing is stored: the
    /// key changed since the load began, there is no fence, or storing failed. Throws if the value itself is invalid:
    /// otherwise every call would load it again without a visible reason.
    private func storeLoaded(
        _ value: Value?, for key: Key, since fence: Condition?, maxAge: Age, pinned: Bool, _ meta: Meta
    ) async throws(ShaleError) -> UInt64? {
        if let fence, let storedKey = try? stored(key), await store.awaitLock(of: storedKey) {
            do throws(ShaleError) {
                let bytes = try encode(value, for: key)
                let store: @Sendable (Cache) throws(ShaleError) -> UInt64? = { cache throws(ShaleError) in
                    try cache.set(
                        value, bytes, for: key, try cache.stored(key), maxAge: maxAge, pinned: pinned, meta, fence)
                }
                let version = bytes.count < Cache.largeSize ? try store(self) : try await blocking(store)
                if let version {
                    return version
                }
                counters.conflicts.add(1, ordering: .relaxed)
                eventBroadcast.send(.conflict(key))
            } catch {
                if error.isInvalidArgument { throw error }
            }
        }
        counters.unstored.add(1, ordering: .relaxed)
        return nil
    }
}
