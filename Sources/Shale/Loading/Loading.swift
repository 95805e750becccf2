#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

/// When a value is loaded, and what is served meanwhile.
public enum LoadPolicy: Sendable {
    /// Serves what is fresh; else loads.
    case `default`
    /// As the default; where the load fails, serves what is stale, if there is any.
    case staleIfError
    /// Serves what is there, even stale, and loads in the background where it is stale. Loads first where there is nothing.
    case staleWhileRevalidate
    /// Loads, whatever is there. Joins a load that is under way.
    case reload
}

extension Cache {
    /// What a loader has found out.
    public enum Loaded: Sendable {
        /// A value, and how to insert it, see ``Cache/insert(_:for:maxAge:tags:etag:pinned:)``.
        case value(Value, maxAge: Store.Lifetime? = nil, tags: [String] = [], etag: String? = nil, pinned: Bool = false)
        /// The stored value is still right: it gets a new age. Nil: the cache's.
        case notModified(maxAge: Store.Lifetime? = nil)
    }

    /// The fresh value, loaded and stored where there is none.
    ///
    /// However many tasks ask this cache object for one key, one load at a time runs for it, in a task of its own
    /// that begins with the first one's priority and task-local values. A task that is cancelled stops waiting at
    /// once, with a `CancellationError`; the load goes on for the others, and is cancelled with the last of them.
    /// What a load throws, all who wait for it get, and nothing is stored. A loaded value that cannot be stored is
    /// returned all the same.
    ///
    /// With the cache's `refreshAhead` above 0, a fresh hit may begin a load in the background, the likelier the
    /// nearer its end and the longer the last load took, so that the readers of a popular key hardly ever miss together.
    ///
    /// - Parameters:
    ///   - key: What the value is stored under.
    ///   - policy: When to load.
    ///   - maxAge: Of what is loaded; nil: the cache's.
    ///   - tags: Of what is loaded.
    ///   - load: Gets the value from its origin.
    public func value(
        for key: Key, orLoad policy: LoadPolicy = .default, maxAge: Store.Lifetime? = nil, tags: [String] = [],
        _ load: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        try await entry(for: key, orLoad: policy) { _ in .value(try await load(), maxAge: maxAge, tags: tags) }.value
    }

    /// As ``value(for:orLoad:maxAge:tags:_:)``, for a loader that validates: it is given what is stored, fresh or stale, with its
    /// etag, and says what came of it.
    public func entry(
        for key: Key, orLoad policy: LoadPolicy = .default, _ load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) async throws -> Entry {
        if policy != .reload, let entry = try entry(for: key, includingStale: policy == .staleWhileRevalidate) {
            if entry.isStale || isDueEarly(entry) { _ = try join(key, insteadOf: entry, policy, load) }
            return entry
        }
        return try await WaitGraph.shared.waiting {
            (try identity(of: key), description(of: key))
        } _: {
            switch try join(key, insteadOf: nil, policy, load) {
            case .stored(let entry): return entry
            case .load(let hold):
                do { return try await hold.output } catch {
                    guard policy == .staleIfError, !Task.isCancelled,
                        let stale = try entry(for: key, includingStale: true)
                    else { throw error }
                    return stale
                }
            }
        }
    }

    /// Loads in the background what is not there, or stale. A failure changes nothing.
    ///
    /// - Returns: A token that cancels the load, unless others wait for it. Without it, the load goes to its end.
    @discardableResult
    public func prefetch(_ key: Key, _ load: @escaping @Sendable () async throws -> Value) -> Prefetch {
        prefetch(key, revalidating: { _ in .value(try await load()) })
    }

    /// As ``prefetch(_:_:)``, for a loader that validates.
    @discardableResult
    public func prefetch(_ key: Key, revalidating load: @escaping @Sendable (Entry?) async throws -> Loaded) -> Prefetch
    {
        let joined = try? join(key, insteadOf: nil, .default, load)
        return Prefetch { if case .load(let hold) = joined { hold.release() } }
    }

    /// First what is stored, even stale; then, unless that was fresh, what is loaded. Throws what the load throws.
    ///
    /// The load begins when the second element is asked for, and ends with the task that asks.
    public func entries(for key: Key, load: @escaping @Sendable (Key) async throws -> Value) -> Entries {
        entries(for: key, orLoad: .default) { _ in .value(try await load(key)) }
    }

    /// As ``entries(for:load:)``, for a loader that validates. Where it says that nothing was modified, the second element is
    /// the first with its new age.
    ///
    /// With `staleIfError`, a load that fails ends the sequence, where something was stored; with `reload`, what is fresh is
    /// loaded as well.
    public func entries(
        for key: Key, orLoad policy: LoadPolicy, _ load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) -> Entries {
        Entries(cache: self, key: key, policy: policy == .staleWhileRevalidate ? .default : policy, load: load)
    }

    /// What ``Cache/entries(for:load:)`` gives.
    public struct Entries: AsyncSequence, Sendable {
        fileprivate let cache: Cache
        fileprivate let key: Key
        fileprivate let policy: LoadPolicy
        fileprivate let load: @Sendable (Entry?) async throws -> Loaded

        public func makeAsyncIterator() -> Iterator { Iterator(entries: self) }

        public struct Iterator: AsyncIteratorProtocol {
            private enum Step { case stored, loaded, over }
            private let entries: Entries
            private var step = Step.stored
            private var first: Entry?

            fileprivate init(entries: Entries) { self.entries = entries }

            public mutating func next() async throws -> Entry? {
                let cache = entries.cache, key = entries.key
                if step == .stored {
                    step = .loaded
                    first = try cache.entry(for: key, includingStale: true)
                    if let first {
                        if !first.isStale, entries.policy != .reload { step = .over }
                        return first
                    }
                }
                if step == .over { return nil }
                step = .over
                let entry = try await cache.entry(for: key, orLoad: entries.policy, entries.load)
                return entry.isStale && entry.isSame(as: first) ? nil : entry
            }
        }
    }

    // MARK: Steps

    private func isDueEarly(_ entry: Entry) -> Bool {
        guard refreshAhead > 0, let expires = entry.expires else { return false }
        let loadTime = entry.meta.loadTime
        return loadTime > 0
            && RefreshAhead.isDue(
                left: expires - store.now, mean: Double(loadTime) * refreshAhead, chance: .random(in: 0 ... .max))
    }

    /// Joins or begins the load of a key, unless there is by now a fresh entry other than the known one. A reload does not look.
    private func join(
        _ key: Key, insteadOf known: Entry?, _ policy: LoadPolicy,
        _ load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) throws -> Joined<Entry> {
        let running = RunningLoad(try identity(of: key), name: description(of: key))
        return try loader.join(key) {
            guard policy != .reload, let current = try read(key, includingStale: false, peeking: true) else {
                return nil
            }
            return current.isSame(as: known) ? nil : current
        } load: {
            try await running.during { try await self.fetch(key, insteadOf: known, policy, load) }
        }
    }

    private func identity(of key: Key) throws(ShaleError) -> LoadIdentity {
        LoadIdentity(place: place, key: try stored(key))
    }

    /// For people.
    private func description(of key: Key) -> String { name.isEmpty ? "\(key)" : "\(key) of \"\(name)\"" }

    /// A load in its turn. Whoever holds the load gets the result.
    private func fetch(
        _ key: Key, insteadOf known: Entry?, _ policy: LoadPolicy, _ load: @Sendable (Entry?) async throws -> Loaded
    ) async throws -> Entry {
        switch try await turn(
            key, insteadOf: policy == .reload ? try read(key, includingStale: false, peeking: true) : known)
        {
        case .stored(let entry): return entry
        case .load(nil): return try await fetch(key, load)
        case .load(let lease?):
            return try await HeldLease(lease, of: try stored(key), in: store, for: leaseTime).during {
                try await fetch(key, load)
            }
        }
    }

    private enum Turn {
        case load(Lease?)
        case stored(Entry)
    }

    /// Waits until no other cache object and no other process loads the key, or one of them has stored a fresh entry
    /// other than the known one.
    private func turn(_ key: Key, insteadOf known: Entry?) async throws -> Turn {
        let storedKey = try stored(key)
        var pause = Duration.milliseconds(1)
        while true {
            // Where it cannot be had, in a read-only store for one, nobody is told, and the load goes on.
            let lease: Lease?
            do { lease = try store.lease(storedKey, for: leaseTime) } catch { return .load(nil) }
            // With the lease in hand: whoever had it before may have stored the value.
            let current = Result { try read(key, includingStale: false, peeking: true) }
            if case .success(let entry) = current, entry == nil || entry?.isSame(as: known) == true {
                if let lease { return .load(lease) }
            } else {
                if let lease { _ = try? store.release(lease, of: storedKey) }
                if let entry = try current.get() { return .stored(entry) }
            }
            try await Task.sleep(for: pause)
            pause = min(pause * 2, .milliseconds(25))
        }
    }

    /// All that one load does, in its order.
    private func fetch(_ key: Key, _ load: @Sendable (Entry?) async throws -> Loaded) async throws -> Entry {
        let present = try read(key, includingStale: true, peeking: true)
        let begun = store.now
        counters.loads.add(1, ordering: .relaxed)
        let loaded = try await load(present)
        // What nobody waits for any more, a later removal may have been meant for.
        try Task.checkCancellation()
        switch loaded {
        case .value(let value, let maxAge, let tags, let etag, let pinned):
            return insertLoaded(
                value, for: key, maxAge: maxAge, pinned: pinned,
                Meta(etag: etag, tags: tags, loadTime: max(0, store.now - begun)))
        case .notModified(let maxAge):
            guard let present else {
                throw failure("the loader of \(key) says \"not modified\", but nothing is stored")
            }
            do {
                if try touch(key, maxAge: maxAge), let renewed = try read(key, includingStale: true, peeking: true) {
                    return renewed
                }
            } catch {
                // In a read-only store, or on a full disk: what is there is right, and keeps its age.
                counters.unstored.add(1, ordering: .relaxed)
                return Entry(
                    loaded: present.value, version: present.version, isPinned: present.isPinned, present.meta,
                    now: store.now)
            }
            // It left meanwhile.
            return insertLoaded(present.value, for: key, maxAge: maxAge, pinned: present.isPinned, present.meta)
        }
    }

    /// Whoever waits gets the value that was loaded, whether or not it could be stored, or was replaced at once.
    private func insertLoaded(_ value: Value, for key: Key, maxAge: Store.Lifetime?, pinned: Bool, _ meta: Meta)
        -> Entry
    {
        var version: UInt64 = 0
        do {
            version = try insert(value, for: key, maxAge: maxAge, pinned: pinned, meta)
            if let known = try store.entry(for: try stored(key), includingStale: true), known.version == version {
                return Entry(value, known, source: .loader)
            }
        } catch { counters.unstored.add(1, ordering: .relaxed) }
        return Entry(loaded: value, version: version, isPinned: pinned, meta, now: store.now)
    }
}

/// A load in the background.
public struct Prefetch: Sendable {
    fileprivate let release: @Sendable () -> Void

    /// Cancels the load, unless it has ended or others wait for it. More than once is once.
    public func cancel() { release() }
}
