import ShaleCore

/// The steps of a load: its turn among all processes, what it asks its loader, and what is stored of that.
extension Cache {
    /// A load in its turn. Whoever holds the load gets the result.
    func load(
        _ key: Key, insteadOf known: Stamp?, _ fence: LoadFence, _ options: LoadOptions,
        _ load: @Sendable (Entry?) async throws -> Loaded
    ) async throws -> Answer {
        do {
            let answer: Answer
            let replaced = options.policy == .reload ? try freshAnswer(key)?.stamp : known
            switch try await turn(key, insteadOf: replaced, fence) {
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

    private enum Turn {
        case load(Lease?)
        case stored(Answer)
    }

    /// Waits until no other cache object and no other process loads the key, or one of them has stored a fresh entry
    /// other than the known one.
    private func turn(_ key: Key, insteadOf known: Stamp?, _ fence: LoadFence) async throws -> Turn {
        let storedKey = try stored(key)
        // What does not decode is removed by its reader: rather now than after the lease was given, which would be a change.
        _ = try? read(key, includingStale: true, peeking: true)
        var pause = Duration.milliseconds(1)
        var waitsSince: ContinuousClock.Instant?
        defer { if let waitsSince { counters.count(waitSince: waitsSince) } }
        while true {
            // Where it cannot be had, in a read-only store for one, nobody is told, and the load goes on.
            let lease: Lease?
            do { lease = try store.lease(storedKey, for: options.leaseTime) } catch { return .load(nil) }
            // With the lease in hand: whoever had it before may have stored the value.
            let current = Result { try freshAnswer(key) }
            if case .success(let answer) = current, answer == nil || answer?.stamp == known {
                if let lease { return .load(lease) }
            } else {
                if let lease { _ = try? store.release(lease, of: storedKey) }
                if let answer = try current.get() {
                    // Looked at once more: whoever has joined by now, after a change, gets nothing older.
                    fence.set(.closed)
                    if let again = try freshAnswer(key), again.stamp == answer.stamp { return .stored(again) }
                    fence.set(.open)
                    continue
                }
            }
            waitsSince = waitsSince ?? .now
            try await Task.sleep(for: pause)
            pause = min(pause * 2, .milliseconds(25))
        }
    }

    /// All that one load does, in its order.
    private func fetch(
        _ key: Key, since fence: Condition?, _ options: LoadOptions,
        _ load: @Sendable (Entry?) async throws -> Loaded
    ) async throws -> Answer {
        let present = try read(key, includingStale: true, peeking: true)
        let begun = store.now
        counters.loads.add(1, ordering: .relaxed)
        told.send(.loadBegan(key))
        let start = ContinuousClock.now
        do {
            let loaded = try await load(present)
            // What nobody waits for any more, a later removal may have been meant for.
            try Task.checkCancellation()
            let answer = try keep(
                loaded, for: key, since: fence, insteadOf: present, loadTime: max(0, store.now - begun), options)
            told.send(.loadEnded(key, after: .now - start, error: nil))
            return answer
        } catch {
            counters.failedLoads.add(1, ordering: .relaxed)
            told.send(.loadEnded(key, after: .now - start, error: error))
            throw error
        }
    }

    private func keep(
        _ loaded: Loaded, for key: Key, since fence: Condition?, insteadOf present: Entry?, loadTime: Int64,
        _ options: LoadOptions
    ) throws -> Answer {
        func age(_ maxAge: Age?) -> Age {
            (maxAge ?? self.options.maxAge).jittered(by: options.jitter, from: store.now)
        }
        switch loaded {
        case .value(let value, let maxAge, let tags, let etag, let pinned):
            return .entry(
                try insertLoaded(
                    value, for: key, since: fence, maxAge: age(maxAge), pinned: pinned,
                    Meta(etag: etag, tags: tags, loadTime: loadTime)))
        case .notModified(let maxAge):
            guard let present else {
                throw failure("the loader of \(key) says \"not modified\", but nothing is stored")
            }
            return .entry(try renew(present, for: key, since: fence, maxAge: age(maxAge)))
        case .missing(let maxAge, let tags):
            let version = try storeLoaded(
                nil, for: key, since: fence, maxAge: age(maxAge), pinned: false,
                Meta(tags: tags, loadTime: loadTime, isMissing: true))
            if version != nil, present != nil { broadcast.send(.removed(key)) }
            return .missing(Stamp(version: version ?? 0, expires: nil))
        }
    }

    private func renew(
        _ present: Entry, for key: Key, since fence: Condition?, maxAge: Age
    ) throws(ShaleError) -> Entry {
        do throws(ShaleError) {
            let storedKey = try stored(key), maxAge = try lifetime(maxAge)
            let isRenewed =
                if let fence { try store.touch(storedKey, if: fence, maxAge: maxAge) } else {
                    try store.touch(storedKey, version: present.version, maxAge: maxAge)
                }
            if isRenewed, let renewed = try read(key, includingStale: true, peeking: true) {
                return renewed
            }
        } catch {
            if error.isCallers { throw error }
            // In a read-only store, or on a full disk: what is there is right, and keeps its age.
            counters.unstored.add(1, ordering: .relaxed)
            return Entry(
                loaded: present.value, version: present.version, isPinned: present.isPinned, present.meta,
                now: store.now)
        }
        // It left meanwhile, which its fence allows, or somebody has changed it, which that does not.
        return try insertLoaded(
            present.value, for: key, since: fence, maxAge: maxAge, pinned: present.isPinned, present.meta)
    }

    /// Whoever waits gets the value that was loaded, whether or not it could be stored, or was replaced at once.
    private func insertLoaded(
        _ value: Value, for key: Key, since fence: Condition?, maxAge: Age, pinned: Bool, _ meta: Meta
    ) throws(ShaleError) -> Entry {
        let version = try storeLoaded(value, for: key, since: fence, maxAge: maxAge, pinned: pinned, meta)
        if let version, let known = try? store.entry(for: try stored(key), includingStale: true),
            known.version == version
        {
            return Entry(value, known, source: .loader)
        }
        return Entry(loaded: value, version: version ?? 0, isPinned: pinned, meta, now: store.now)
    }

    /// The one place where what was loaded is stored; nil: known to be missing. Gives the version, or nil where it is not
    /// stored: that failed, or something has happened to the key since the load was begun, or there is no telling. What is wrong
    /// with it is an error: without one, its loader would be asked again and again, and nobody know why.
    private func storeLoaded(
        _ value: Value?, for key: Key, since fence: Condition?, maxAge: Age, pinned: Bool, _ meta: Meta
    ) throws(ShaleError) -> UInt64? {
        if let fence {
            do throws(ShaleError) {
                if let version = try set(value, for: key, maxAge: maxAge, pinned: pinned, meta, fence) {
                    return version
                }
                counters.conflicts.add(1, ordering: .relaxed)
                told.send(.conflict(key))
            } catch {
                if error.isCallers { throw error }
            }
        }
        counters.unstored.add(1, ordering: .relaxed)
        return nil
    }
}
