extension ProviderCache {
    /// A sequence of changes to a provider's list. `result()` applies and stores them.
    ///
    /// ```swift
    /// let mocks = try await ProviderCache.Actions<Mock>.with(provider, in: providers)
    ///     .addFirst(mock)
    ///     .evictLast { count in count > 300 }
    ///     .result()
    /// ```
    ///
    /// Each action returns a new value. Positions count from 0; closures with a position also get the count of elements
    /// before the action. A provider without a record starts with an empty list.
    public struct Actions<Element: Codable & Sendable>: Sendable {
        public typealias Func1Count = @Sendable (_ count: Int) -> Bool
        public typealias Func1Element = @Sendable (_ element: Element) -> Bool
        public typealias Func2 = @Sendable (_ position: Int, _ count: Int) -> Bool
        public typealias Func3 = @Sendable (_ position: Int, _ count: Int, _ element: Element) -> Bool
        public typealias Replace = @Sendable (_ element: Element) -> Element

        private let provider: any CacheProvider
        private let cache: ProviderCache
        private var changes: [@Sendable (inout [Element]) -> Void] = []

        private init(provider: any CacheProvider, cache: ProviderCache) {
            self.provider = provider
            self.cache = cache
        }

        /// Actions on the provider's record. The provider's `evict` is ignored.
        public static func with(_ provider: some CacheProvider, in cache: ProviderCache) -> Self {
            Actions(provider: provider, cache: cache)
        }

        /// Reads the record, changes it, stores it with a new age, and returns it.
        ///
        /// If another task or process changes the record in between, applies the actions again to the changed record: no
        /// change is lost, and closures may be called several times. Throws `ShaleError` if the list cannot be stored, and
        /// `ProviderCacheError` if it cannot be encoded to or decoded from JSON.
        @discardableResult
        public func result() async throws -> [Element] {
            try cache.edit(provider) { elements in
                for change in changes { change(&elements) }
            }
        }

        private func then(_ change: @escaping @Sendable (inout [Element]) -> Void) -> Self {
            var actions = self
            actions.changes.append(change)
            return actions
        }
    }
}

// MARK: Add

extension ProviderCache.Actions {
    /// Inserts before the first position that satisfies the predicate, the last of which is `count`, the end. Adds
    /// nothing if no position does.
    public func add(_ predicate: @escaping Func2, candidate: Element) -> Self {
        addAll(predicate, candidates: [candidate])
    }

    public func addFirst(_ candidate: Element) -> Self { addAllFirst([candidate]) }

    public func addLast(_ candidate: Element) -> Self { addAllLast([candidate]) }

    public func addAllFirst(_ candidates: [Element]) -> Self {
        addAll({ position, _ in position == 0 }, candidates: candidates)
    }

    public func addAllLast(_ candidates: [Element]) -> Self {
        addAll({ position, count in position == count }, candidates: candidates)
    }

    /// Like `add`, for several elements, which keep their order.
    public func addAll(_ predicate: @escaping Func2, candidates: [Element]) -> Self {
        then { elements in
            let count = elements.count
            if let position = (0...count).first(where: { predicate($0, count) }) {
                elements.insert(contentsOf: candidates, at: position)
            }
        }
    }
}

// MARK: Evict

extension ProviderCache.Actions {
    public func evictFirst() -> Self { evictFirstN(1) }

    /// If the predicate is true of the elements' count.
    public func evictFirst(_ predicate: @escaping Func1Count) -> Self { evictFirstN(predicate, n: 1) }

    public func evictFirstN(_ n: Int) -> Self { evictFirstN({ _ in true }, n: n) }

    /// If the predicate is true of the elements' count.
    public func evictFirstN(_ predicate: @escaping Func1Count, n: Int) -> Self {
        evictIterable { position, count, _ in position < n && predicate(count) }
    }

    public func evictLast() -> Self { evictLastN(1) }

    /// If the predicate is true of the elements' count.
    public func evictLast(_ predicate: @escaping Func1Count) -> Self { evictLastN(predicate, n: 1) }

    public func evictLastN(_ n: Int) -> Self { evictLastN({ _ in true }, n: n) }

    /// If the predicate is true of the elements' count.
    public func evictLastN(_ predicate: @escaping Func1Count, n: Int) -> Self {
        evictIterable { position, count, _ in count - position <= n && predicate(count) }
    }

    public func evictAll() -> Self { evictIterable { _, _, _ in true } }

    public func evictAllKeepingFirstN(_ n: Int) -> Self { evictIterable { position, _, _ in position >= n } }

    public func evictAllKeepingLastN(_ n: Int) -> Self {
        evictIterable { position, count, _ in count - position > n }
    }

    /// Evicts the first element that satisfies the predicate.
    public func evict(_ predicate: @escaping Func1Element) -> Self { evict { _, _, element in predicate(element) } }

    /// Evicts the first element that satisfies the predicate.
    public func evict(_ predicate: @escaping Func3) -> Self {
        then { elements in
            let count = elements.count
            if let position = elements.indices.first(where: { predicate($0, count, elements[$0]) }) {
                elements.remove(at: position)
            }
        }
    }

    /// Evicts all elements that satisfy the predicate.
    public func evictIterable(_ predicate: @escaping Func3) -> Self {
        then { elements in
            let count = elements.count
            elements = elements.indices.filter { !predicate($0, count, elements[$0]) }.map { elements[$0] }
        }
    }
}

// MARK: Update

extension ProviderCache.Actions {
    /// Replaces the first element that satisfies the predicate.
    public func update(_ predicate: @escaping Func1Element, replace: @escaping Replace) -> Self {
        update({ _, _, element in predicate(element) }, replace: replace)
    }

    /// Replaces the first element that satisfies the predicate.
    public func update(_ predicate: @escaping Func3, replace: @escaping Replace) -> Self {
        then { elements in
            let count = elements.count
            if let position = elements.indices.first(where: { predicate($0, count, elements[$0]) }) {
                elements[position] = replace(elements[position])
            }
        }
    }

    /// Replaces all elements that satisfy the predicate.
    public func updateIterable(_ predicate: @escaping Func1Element, replace: @escaping Replace) -> Self {
        updateIterable({ _, _, element in predicate(element) }, replace: replace)
    }

    /// Replaces all elements that satisfy the predicate.
    public func updateIterable(_ predicate: @escaping Func3, replace: @escaping Replace) -> Self {
        then { elements in
            let count = elements.count
            for position in elements.indices where predicate(position, count, elements[position]) {
                elements[position] = replace(elements[position])
            }
        }
    }
}
