import ShaleCore

extension Cache {
    /// What a loader has found out.
    public enum Loaded: Sendable {
        /// A value, and how to insert it, see ``Cache/insert(_:for:maxAge:tags:etag:pinned:)``. Its age may be one that the
        /// value itself tells, such as that of the answer it came with.
        case value(Value, maxAge: Age? = nil, tags: [String] = [], etag: String? = nil, pinned: Bool = false)
        /// The stored value is still right: it gets a new age, unless it was replaced or removed meanwhile. Nil: the cache's.
        case notModified(maxAge: Age? = nil)
        /// There is no value. For the age, nil: the cache's, whoever would load gets ``LoadError/missing(key:)`` at once, in
        /// all processes; only ``LoadPolicy/reload`` asks again.
        ///
        /// It takes the place of what was stored: reads give nil, also for stale data. It counts as an entry, and
        /// leaves as others do: by an insertion, a removal, a tag, or to make room.
        case missing(maxAge: Age? = nil, tags: [String] = [])
    }

    /// The fresh value, loaded and stored where there is none.
    ///
    /// However many tasks ask this cache object for one key, one load at a time runs for it, in a task of its own
    /// that begins with the first one's priority and task-local values. A task that is cancelled stops waiting at
    /// once, with a `CancellationError`; the load goes on for the others, and is cancelled with the last of them.
    /// What a load throws, all who wait for it get, in the order in which they came, and nothing is stored. A loaded value
    /// that cannot be stored is returned all the same.
    ///
    /// What is removed, replaced, expired or invalidated while it is loaded, by whomever, is not stored; those who asked before get it,
    /// and those who ask afterwards load again, when that load has ended.
    ///
    /// A loader may ask for other keys, of any cache. One that asks for a key whose load waits for it gets
    /// ``LoadError/cycle(keys:)``.
    ///
    /// With the cache's `refreshAhead` above 0, a fresh hit may begin a load in the background, the likelier the
    /// nearer its end and the longer the last load took, so that the readers of a popular key hardly ever miss together.
    ///
    /// - Parameters:
    ///   - key: What the value is stored under.
    ///   - options: When to load, and for how long.
    ///   - maxAge: Of what is loaded; nil: the cache's.
    ///   - tags: Of what is loaded.
    ///   - load: Gets the value from its origin.
    /// - Throws: What the loader throws, ``LoadError``, `CancellationError`, and `ShaleError` where the store cannot be
    ///   read or the options are out of range.
    public func value(
        for key: Key, policy options: LoadOptions = .default, maxAge: Age? = nil, tags: [String] = [],
        load: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        try await entry(for: key, policy: options) { _ in .value(try await load(), maxAge: maxAge, tags: tags) }.value
    }

    /// As ``value(for:policy:maxAge:tags:load:)``, for a loader that validates: it is given what is stored, fresh or stale, with its
    /// etag, and says what came of it.
    ///
    /// The entry tells what happened: ``Entry/source`` where the value is from, ``Entry/isStale`` whether it is past its age,
    /// ``Entry/error`` why it is served although it was to be loaded.
    public func entry(
        for key: Key, policy options: LoadOptions = .default,
        load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) async throws -> Entry {
        if let fault = options.fault { throw failure(fault) }
        if options.policy != .reload,
            let entry = try entry(for: key, includingStale: options.policy == .staleWhileRevalidate)
        {
            guard entry.isStale || isDueEarly(entry) else { return entry }
            if let paused = pause(of: key, options) { return entry.isStale ? entry.served(for: paused) : entry }
            try loadBehind(key, insteadOf: entry, options, load)
            return entry
        }
        if let paused = pause(of: key, options), let stale = try entry(for: key, includingStale: true) {
            return stale.served(for: paused)
        }
        let outcome: Answer = try await WaitGraph.shared.waiting {
            (try identity(of: key), description(of: key))
        } _: {
            try await answer(for: key, options, load)
        }
        switch outcome {
        case .entry(let entry): return entry
        case .missing: throw LoadError.missing(key: description(of: key))
        }
    }
}
