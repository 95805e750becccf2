import ShaleCore
import Synchronization

/// Decoded values in memory, in exact LRU order.
///
/// It does not track ages or other processes: callers check an item's bookmark or version in the store. Removed items
/// are freed after the lock is released, as a value's `deinit` may use the cache.
@usableFromInline
final class MemoryTier<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    /// A class, so that a hit copies a reference under the lock, and of a large value nothing else.
    @usableFromInline
    final class Item: Sendable {
        // First, in the line that a hit reads anyway.
        @usableFromInline let bookmark: Bookmark
        @usableFromInline let value: Value
        @usableFromInline let version: UInt64
        /// The encoded key, so that a hit encodes nothing.
        @usableFromInline let storedKey: [UInt8]
        @usableFromInline let cost: Int

        @inlinable
        init(value: Value, version: UInt64, storedKey: [UInt8], cost: Int, bookmark: Bookmark = .none) {
            self.bookmark = bookmark
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

    @inlinable var keepsAny: Bool { maxEntries > 0 }
    func mayKeep(cost: Int) -> Bool { keepsAny && cost <= maxCost }

    /// Returns the item and makes it the most recently used.
    @inlinable
    func item(for key: MemoryKey<Key>) -> Item? {
        if maxEntries <= 0 { return nil }
        return list.withLock { $0.use(key) }
    }

    /// Gives an item another bookmark, unless it was replaced.
    @inlinable
    func mark(_ item: Item, for key: MemoryKey<Key>, _ bookmark: Bookmark) {
        let marked = Item(
            value: item.value, version: item.version, storedKey: item.storedKey, cost: item.cost, bookmark: bookmark)
        list.withLock { if $0[key] === item { $0.replace(key, with: marked) } }
    }

    /// Keeps the item, unless a newer version is present or its cost alone exceeds the limit. Returns the evicted
    /// items.
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
                // Never evicts the item itself: it is the newest, and fits alone.
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
