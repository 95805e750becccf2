import ShaleCore

/// The steps of a caller: joining a load, waiting for it, and falling back to a stale entry.
extension Cache {
    /// The result of a load, or the entry that was stored before one began.
    enum Answer: Sendable {
        case entry(Entry)
        /// Known to be missing.
        case missing(Stamp)

        var stamp: Stamp {
            switch self {
            case .entry(let entry): entry.stamp
            case .missing(let stamp): stamp
            }
        }

        /// `name` describes the key.
        func value(of name: String) throws(LoadError) -> Value {
            switch self {
            case .entry(let entry): return entry.value
            case .missing: throw .missing(key: name)
            }
        }
    }

    /// The fresh entry other than `known`, which is not decoded. Does not count as a use.
    func freshAnswer(_ key: Key, insteadOf known: Stamp?) throws(ShaleError) -> Answer? {
        guard let info = try store.entry(for: try stored(key)), Stamp(info) != known else { return nil }
        if Meta.isMissing(info.meta) { return .missing(Stamp(info)) }
        guard let entry = try read(key, includingStale: false, peeking: true, reporting: false), entry.stamp != known
        else { return nil }
        return .entry(entry)
    }

    /// The same, on a thread of its own if the value is large.
    nonisolated(nonsending) func freshAnswer(_ key: Key, insteadOf known: Stamp?) async throws(ShaleError) -> Answer? {
        try await reading(key) { cache throws(ShaleError) in try cache.freshAnswer(key, insteadOf: known) }
    }

    /// Joins or begins a load and returns its result. If it fails or reaches a limit, returns the stale entry if the
    /// options permit.
    nonisolated(nonsending) func answer(
        for key: Key, _ options: LoadOptions, _ load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) async throws -> Answer {
        let storedKey = try stored(key)
        // Whether a load under way will be current takes a lock.
        let mayJoin = loader.isLoading(storedKey) ? await store.awaitLock(of: storedKey) : true
        switch try join(key, insteadOf: nil, mayJoin: mayJoin, options, load) {
        case .stored(let answer): return answer
        case .load(let hold):
            do { return try await wait(for: hold, of: key, options) } catch {
                guard options.policy == .staleIfError, !Task.isCancelled,
                    let stale = try await stored(for: key, includingStale: true)
                else { throw error }
                return .entry(stale.served(for: error))
            }
        }
    }

    private nonisolated(nonsending) func wait(
        for hold: Hold<Answer>, of key: Key, _ options: LoadOptions
    ) async throws -> Answer {
        var left = options.hardLimit
        if let soft = options.usableSoftLimit {
            if let answer = try await hold.output(within: limit(soft)) { return answer }
            left = left.map { $0 - soft }
            if let stored = try? await stored(for: key, includingStale: true) {
                if let left { end(hold, of: key, after: left, options) }
                return .entry(stored.served(for: LoadError.softLimit(key: description(of: key), limit: soft)))
            }
        }
        if let answer = try await hold.output(within: left.map(limit)) { return answer }
        hold.release()
        let error = LoadError.hardLimit(key: description(of: key), limit: options.hardLimit ?? .zero)
        beginPause(of: key, after: error, options)
        throw error
    }

    /// Begins or joins a load without waiting, up to the hard limit, unless a fresh entry other than `known` is stored.
    @discardableResult
    func loadInBackground(
        _ key: Key, insteadOf known: Entry?, _ options: LoadOptions,
        _ load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) throws -> Joined<Answer> {
        let joined = try join(key, insteadOf: known?.stamp, options, load)
        if case .load(let hold) = joined, let hardLimit = options.hardLimit {
            end(hold, of: key, after: hardLimit, options)
        }
        return joined
    }

    private func end(_ hold: Hold<Answer>, of key: Key, after left: Duration, _ options: LoadOptions) {
        hold.release(after: limit(left)) { [weak self] in
            guard let self, let hardLimit = options.hardLimit else { return }
            let error = LoadError.hardLimit(key: description(of: key), limit: hardLimit)
            beginPause(of: key, after: error, options)
        }
    }

    private func limit(_ time: Duration) -> TimeLimit { TimeLimit(time: time, clock: options.limitClock) }

    /// Joins or begins the load of a key, unless a fresh entry other than `known` is stored. A reload ignores stored
    /// entries.
    private func join(
        _ key: Key, insteadOf known: Stamp?, mayJoin: Bool = true, _ options: LoadOptions,
        _ load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) throws -> Joined<Answer> {
        try loader.join(try stored(key)) { fence in
            // If the store cannot be read, a second load is harmless.
            mayJoin && (try? isUnchanged(key, since: fence)) ?? false
        } unless: {
            options.policy == .reload ? nil : try freshAnswer(key, insteadOf: known)
        } load: { fence in
            try await RunningLoad(try self.identity(of: key), name: self.description(of: key)).during {
                try await self.load(key, insteadOf: known, fence, options, load)
            }
        }
    }

    /// The stamp of the fresh entry.
    func freshStamp(_ key: Key) throws(ShaleError) -> Stamp? { try store.entry(for: try stored(key)).map(Stamp.init) }

    // MARK: Decisions

    /// The fence of a load that begins now: the load may miss later changes.
    package func fence(for key: Key) throws(ShaleError) -> Condition { try store.fence(for: try stored(key)) }

    /// Whether the key is unchanged since the fence, and no tag of any entry was invalidated or expired.
    package func isUnchanged(_ key: Key, since fence: Condition) throws(ShaleError) -> Bool {
        try store.isUnchanged(try stored(key), since: fence)
    }

    func isRefreshDue(_ entry: Entry) -> Bool {
        guard options.refreshAhead > 0, let expires = entry.expires else { return false }
        let loadTime = entry.meta.loadTime
        return loadTime > 0
            && RefreshAhead.isDue(
                left: expires - store.now, mean: Double(loadTime) * options.refreshAhead,
                chance: .random(in: 0 ... .max))
    }

    /// The error of the failed load if the key's loads are paused, else nil.
    func pause(of key: Key, _ options: LoadOptions) -> (any Error)? {
        guard options.pauseAfterFailure != nil, options.policy != .reload, let storedKey = try? stored(key) else {
            return nil
        }
        return pauses.cause(for: storedKey, at: store.now)
    }

    func beginPause(of key: Key, after error: any Error, _ options: LoadOptions) {
        guard let time = options.pauseAfterFailure, options.policy != .reload, let storedKey = try? stored(key) else {
            return
        }
        let known = try? store.entry(for: storedKey, includingStale: true)
        let hasStale = known.map { !Meta.isMissing($0.meta) } ?? false
        pauses.begin(storedKey, hasStale: hasStale, after: error, at: store.now, for: time) {
            (try? store.entry(for: $0, includingStale: true)) != nil
        }
    }

    func identity(of key: Key) throws(ShaleError) -> LoadIdentity {
        LoadIdentity(store: storeIdentity, key: try stored(key))
    }

    /// The key in error messages.
    func description(of key: Key) -> String { name.isEmpty ? "\(key)" : "\(key) of \"\(name)\"" }
}
