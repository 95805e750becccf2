import ShaleCore

/// The steps of those who ask: who joins a load, waits for it, or does without.
extension Cache {
    /// What a load comes to, or what is stored by the time that one would begin.
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

        /// The name is that of the key.
        func value(of name: String) throws(LoadError) -> Value {
            switch self {
            case .entry(let entry): return entry.value
            case .missing: throw .missing(key: name)
            }
        }
    }

    /// What is stored and fresh, without counting as a use.
    func freshAnswer(_ key: Key) throws(ShaleError) -> Answer? {
        if let entry = try read(key, includingStale: false, peeking: true) { return .entry(entry) }
        guard let known = try store.entry(for: try stored(key)), Meta.isMissing(known.meta) else { return nil }
        return .missing(Stamp(version: known.version, expires: known.expiresAt))
    }

    /// The result of a load that is joined or begun. Where it fails, or takes too long, what is stale, if the options say so.
    func answer(
        for key: Key, _ options: LoadOptions, _ load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) async throws -> Answer {
        switch try join(key, insteadOf: nil, options, load) {
        case .stored(let answer): return answer
        case .load(let hold):
            do { return try await wait(for: hold, of: key, options) } catch {
                guard options.policy == .staleIfError, !Task.isCancelled,
                    let stale = try entry(for: key, includingStale: true)
                else { throw error }
                return .entry(stale.served(for: error))
            }
        }
    }

    private func wait(for hold: Hold<Answer>, of key: Key, _ options: LoadOptions) async throws -> Answer {
        var left = options.hardLimit
        if let soft = options.usableSoftLimit {
            if let answer = try await hold.output(within: limit(soft)) { return answer }
            left = left.map { $0 - soft }
            if let stored = try? entry(for: key, includingStale: true) {
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

    /// Loads without waiting, up to the hard limit, unless there is by now a fresh entry other than the known one.
    @discardableResult
    func loadBehind(
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

    /// Joins or begins the load of a key, unless there is by now a fresh entry other than the known one. A reload does not look.
    private func join(
        _ key: Key, insteadOf known: Stamp?, _ options: LoadOptions,
        _ load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) throws -> Joined<Answer> {
        try loader.join(try stored(key)) { fence in
            // Where the store cannot tell, another load does no harm.
            (try? isUntouched(key, since: fence)) ?? false
        } unless: {
            guard options.policy != .reload, let current = try freshAnswer(key) else { return nil }
            return current.stamp == known ? nil : current
        } load: { fence in
            try await RunningLoad(try self.identity(of: key), name: self.description(of: key)).during {
                try await self.load(key, insteadOf: known, fence, options, load)
            }
        }
    }

    // MARK: What decides

    /// What a load that begins now may not know of counts from here.
    package func fence(for key: Key) throws(ShaleError) -> Condition { try store.fence(for: try stored(key)) }

    /// Whether nothing has happened to the key since then, and to no tag of any entry.
    package func isUntouched(_ key: Key, since fence: Condition) throws(ShaleError) -> Bool {
        try store.isUntouched(try stored(key), since: fence)
    }

    func isDueEarly(_ entry: Entry) -> Bool {
        guard options.refreshAhead > 0, let expires = entry.expires else { return false }
        let loadTime = entry.meta.loadTime
        return loadTime > 0
            && RefreshAhead.isDue(
                left: expires - store.now, mean: Double(loadTime) * options.refreshAhead,
                chance: .random(in: 0 ... .max))
    }

    /// Why what is stale is served without a load; nil: no reason.
    func pause(of key: Key, _ options: LoadOptions) -> LoadError? {
        guard options.pauseAfterFailure != nil, options.servesStaleAfterFailure,
            let storedKey = try? stored(key), let cause = pauses.cause(for: storedKey, at: store.now)
        else { return nil }
        return .paused(key: description(of: key), cause: cause)
    }

    func beginPause(of key: Key, after error: any Error, _ options: LoadOptions) {
        guard let time = options.pauseAfterFailure, options.servesStaleAfterFailure, let storedKey = try? stored(key)
        else { return }
        pauses.begin(storedKey, after: error, at: store.now, for: time)
    }

    func identity(of key: Key) throws(ShaleError) -> LoadIdentity {
        LoadIdentity(place: place, key: try stored(key))
    }

    /// For people.
    func description(of key: Key) -> String { name.isEmpty ? "\(key)" : "\(key) of \"\(name)\"" }
}
