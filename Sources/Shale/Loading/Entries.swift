extension Cache {
    /// The stored entry, fresh or stale; then, unless it was fresh, the loaded one. Throws what the load throws.
    ///
    /// The load begins when the second element is requested. Cancelling the requesting task ends it.
    public func entries(
        for key: Key, options: LoadOptions = .default, load: @escaping @Sendable () async throws -> Value
    ) -> Entries {
        entries(for: key, options: options) { _ in .value(try await load()) }
    }

    /// The same for a loader that validates. If it returns `notModified`, the second element is the first with a new
    /// age.
    ///
    /// If an entry was stored, a soft limit ends the sequence, and with `staleIfError` so does a failed load. With
    /// `reload`, a fresh entry is loaded again.
    public func entries(
        for key: Key, options: LoadOptions = .default, load: @escaping @Sendable (Entry?) async throws -> Loaded
    ) -> Entries {
        var options = options
        if options.policy == .staleWhileRevalidate { options.policy = .default }
        return Entries(cache: self, key: key, options: options, load: load)
    }

    /// The result of `entries(for:options:load:)`.
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

            public nonisolated(nonsending) mutating func next() async throws -> Entry? {
                try await next(isolation: #isolation)
            }

            /// What a loop calls.
            public mutating func next(isolation actor: isolated (any Actor)?) async throws -> Entry? {
                let cache = entries.cache, key = entries.key
                if step == .stored {
                    step = .loaded
                    first = try await cache.stored(for: key, includingStale: true)
                    if let first {
                        if !first.isStale, entries.options.policy != .reload { step = .over }
                        return first
                    }
                }
                if step == .over { return nil }
                step = .over
                let entry = try await cache.entry(for: key, options: entries.options, load: entries.load)
                return entry.isStale && entry.stamp == first?.stamp ? nil : entry
            }
        }
    }
}
