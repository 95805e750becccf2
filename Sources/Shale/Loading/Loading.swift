import ShaleCore

extension Cache {
    /// The result of a loader.
    public enum Loaded: Sendable {
        /// A value with the arguments of ``Cache/insert(_:for:maxAge:tags:etag:pinned:)``.
        case value(Value, maxAge: Age? = nil, tags: [String] = [], etag: String? = nil, pinned: Bool = false)
        /// The stored value is still valid. It gets a new max age (nil: the cache's default), unless it was replaced or
        /// removed during the load.
        case notModified(maxAge: Age? = nil)
        /// There is no value. For the max age (nil: the cache's default), callers in all processes that would load get
        /// ``LoadError/missing(key:)`` at once; only ``LoadPolicy/reload`` loads.
        ///
        /// It replaces a stored value: reads return nil, also reads of stale data. It counts as an entry, and can be
        /// replaced, removed, invalidated by a tag, and evicted.
        case missing(maxAge: Age? = nil, tags: [String] = [])
    }

    /// The fresh value; if there is none, loads and stores it.
    ///
    /// For each key, a cache object runs at most one load at a time, in a task that inherits the priority and the
    /// task-local values of the first caller. A caller that is cancelled stops waiting at once, with a
    /// `CancellationError`; the load continues for the others, and is cancelled after the last of them. If a load
    /// throws, nothing is stored, and all its callers get the error, in the order of their calls. A loaded value that
    /// cannot be stored is still returned.
    ///
    /// If any process removes, replaces, expires or invalidates the key during its load, the loaded value is not
    /// stored. Callers from before the change get it; later callers load again, when that load has ended.
    ///
    /// A loader may load other keys, of any cache. A loader that asks for a key whose load waits for it gets
    /// ``LoadError/cycle(keys:)``.
    ///
    /// With `refreshAhead` above 0, a fresh hit may begin a load in the background. Its probability grows as the entry
    /// nears its expiry, and with the duration of the last load, so that the callers of a popular key rarely have to
    /// wait.
    ///
    /// - Parameters:
    ///   - key: The key of the value.
    ///   - options: When to load, and how long to wait.
    ///   - maxAge: The max age of a loaded value; nil: the cache's default.
    ///   - tags: The tags of a loaded value.
    ///   - load: Gets the value from its origin.
    /// - Throws: What the loader throws, ``LoadError``, `CancellationError`, and `ShaleError` if the store cannot be
    ///   read or an option is out of range.
    @inlinable
    public nonisolated(nonsending) func value(
        for key: Key, options: LoadOptions = .default, maxAge: Age? = nil, tags: [String] = [],
        load: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        // Code that is specialised for the client's types takes a fifth of the time.
        let held = try heldValue(for: key, options)
        if let value = held.value { return value }
        return try await entry(for: key, options: options, isCounted: held.isCounted) { _ in
            .value(try await load(), maxAge: maxAge, tags: tags)
        }.value
    }

    /// The value in memory if it is stored and fresh, and nothing else has to be done for a load with the options; and
    /// whether the store has counted this read.
    @inlinable
    func heldValue(for key: Key, _ options: LoadOptions) throws(ShaleError) -> (value: Value?, isCounted: Bool) {
        if eventBroadcast.hasListeners || refreshesAhead || options.policy == .reload || options.fault != nil {
            return (nil, false)
        }
        let memoryKey = try memoryKey(for: key)
        guard let held = memory.item(for: memoryKey) else { return (nil, false) }
        if try isCurrent(held) { return (held.value, true) }
        let known = try store.readVersion(
            of: held.storedKey, includingStale: options.policy == .staleWhileRevalidate)
        guard let known, known.version == held.version, !known.isStale else { return (nil, true) }
        memory.mark(held, for: memoryKey, known.bookmark)
        counters.count(.memory)
        return (held.value, true)
    }

    /// Like ``value(for:options:maxAge:tags:load:)``, for a loader that validates: it gets the stored entry, fresh or
    /// stale, and returns a ``Loaded``.
    ///
    /// The entry's ``Entry/source`` is where the value is from, ``Entry/isStale`` whether it is past its max age, and
    /// ``Entry/error`` why a stale value was served although the policy asked for a load.
    public nonisolated(nonsending) func entry(
        for key: Key, options: LoadOptions = .default,
        load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) async throws -> Entry {
        try await entry(for: key, options: options, isCounted: false, load: load)
    }

    @usableFromInline
    nonisolated(nonsending) func entry(
        for key: Key, options: LoadOptions, isCounted: Bool, load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) async throws -> Entry {
        if let fault = options.fault { throw failure(fault) }
        if options.policy != .reload,
            let entry = try await stored(
                for: key, includingStale: options.policy == .staleWhileRevalidate, isCounted: isCounted)
        {
            guard entry.isStale || isRefreshDue(entry) else { return entry }
            if let cause = pause(of: key, options) { return entry.isStale ? paused(entry, key, cause) : entry }
            if case .load(let hold) = try loadInBackground(key, insteadOf: entry, options, load),
                options.hardLimit == nil
            {
                hold.keep()
            }
            return entry
        }
        if let cause = pause(of: key, options) {
            guard options.servesStaleAfterFailure, let stale = try await stored(for: key, includingStale: true) else {
                throw cause
            }
            return paused(stale, key, cause)
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

    /// The stored entry, by a read that the store counts unless it already has. Leaves the caller's executor only for a
    /// large value.
    nonisolated(nonsending) func stored(
        for key: Key, includingStale: Bool, isCounted: Bool = false
    ) async throws -> Entry? {
        try await reading(key) { try $0.entry(for: key, includingStale: includingStale, isCounted: isCounted) }
    }

    private func paused(_ stale: Entry, _ key: Key, _ cause: any Error) -> Entry {
        stale.served(for: LoadError.paused(key: description(of: key), cause: cause))
    }
}
