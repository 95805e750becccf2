extension Cache {
    /// First what is stored, even stale; then, unless that was fresh, what is loaded. Throws what the load throws.
    ///
    /// The load begins when the second element is asked for, and ends with the task that asks.
    public func entries(
        for key: Key, policy options: LoadOptions = .default, load: @escaping @Sendable () async throws -> Value
    ) -> Entries {
        entries(for: key, policy: options) { _ in .value(try await load()) }
    }

    /// The same for a loader that validates. Where it says that nothing was modified, the second element is
    /// the first with its new age.
    ///
    /// With `staleIfError`, a load that fails ends the sequence, where something was stored, and so does one that reaches
    /// a soft limit; with `reload`, what is fresh is loaded as well.
    public func entries(
        for key: Key, policy options: LoadOptions = .default, load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) -> Entries {
        var options = options
        if options.policy == .staleWhileRevalidate { options.policy = .default }
        return Entries(cache: self, key: key, options: options, load: load)
    }

    /// What `entries(for:policy:load:)` gives.
    public struct Entries: AsyncSequence, Sendable {
        fileprivate let cache: Cache
        fileprivate let key: Key
        fileprivate let options: LoadOptions
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
                        if !first.isStale, entries.options.policy != .reload { step = .over }
                        return first
                    }
                }
                if step == .over { return nil }
                step = .over
                let entry = try await cache.entry(for: key, policy: entries.options, load: entries.load)
                return entry.isStale && entry.stamp == first?.stamp ? nil : entry
            }
        }
    }
}
