import Synchronization

/// Decoded values in front of the store, the least recently used leaving first, exactly.
///
/// It knows nothing of ages, nor of other processes: whoever is given an item compares its version with the store's.
/// What leaves it is released when its lock is free again, as a value's `deinit` may use the cache.
@usableFromInline
final class MemoryTier<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    @usableFromInline
    struct Item: Sendable {
        @usableFromInline let value: Value
        @usableFromInline let version: UInt64
        /// The key as the store has it, so that a hit encodes nothing.
        @usableFromInline let storedKey: [UInt8]
        @usableFromInline let cost: Int

        @inlinable
        init(value: Value, version: UInt64, storedKey: [UInt8], cost: Int) {
            self.value = value
            self.version = version
            self.storedKey = storedKey
            self.cost = cost
        }
    }

    @usableFromInline let maxEntries: Int
    @usableFromInline let maxCost: Int
    @usableFromInline let list = Mutex(RecencyList<MemoryKey<Key>, Item>())

    init(maxEntries: Int, maxCost: Int) {
        self.maxEntries = maxEntries
        self.maxCost = maxCost
    }

    func mayKeep(cost: Int) -> Bool { maxEntries > 0 && cost <= maxCost }

    /// Makes it the most recently used.
    @inlinable
    func item(for key: MemoryKey<Key>) -> Item? {
        if maxEntries <= 0 { return nil }
        return list.withLock { $0.use(key) }
    }

    /// Keeps the item, unless a newer version is there, or it alone costs too much. Returns what left to make room.
    @inlinable
    func insert(_ item: Item, for key: MemoryKey<Key>) -> [Item] {
        if maxEntries <= 0 { return [] }
        let left: (replaced: Item?, evicted: [Item]) = list.withLock { list in
            let present = list.use(key)
            if let present, present.version > item.version { return (nil, []) }
            guard item.cost <= maxCost else { return (list.remove(key), []) }
            var evicted: [Item] = []
            if present != nil {
                list.replaceNewest(with: item, cost: item.cost)
                // Not itself, which is the newest, and has room alone.
                while list.cost > maxCost, let victim = list.removeLast() { evicted.append(victim) }
            } else {
                while list.count >= maxEntries || list.cost > maxCost - item.cost, let victim = list.removeLast() {
                    evicted.append(victim)
                }
                list.add(item, for: key, cost: item.cost)
            }
            return (present, evicted)
        }
        return left.evicted
    }

    @inlinable
    func remove(_ key: MemoryKey<Key>) { _ = list.withLock { $0.remove(key) } }

    func removeAll() {
        _ = list.withLock { list in
            let all = list
            list = RecencyList()
            return all
        }
    }
}
