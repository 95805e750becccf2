import Synchronization

/// Decoded values in front of the store, the least recently used leaving first, exactly.
///
/// It knows nothing of ages, nor of other processes: whoever is given an item compares its version with the store's.
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
    @usableFromInline let list = Mutex(RecencyList<Key, Item>())

    init(maxEntries: Int, maxCost: Int) {
        self.maxEntries = maxEntries
        self.maxCost = maxCost
    }

    /// Makes it the most recently used.
    @inlinable
    func item(for key: Key) -> Item? {
        if maxEntries <= 0 { return nil }
        return list.withLock { $0.use(key) }
    }

    /// Keeps the item, unless a newer version is there, or it alone costs too much. Returns what left to make room.
    @inlinable
    func insert(_ item: Item, for key: Key) -> [Key] {
        if maxEntries <= 0 { return [] }
        return list.withLock { list in
            if let present = list.use(key), present.version > item.version { return [] }
            list.remove(key)
            guard item.cost <= maxCost else { return [] }
            var evicted: [Key] = []
            while list.count >= maxEntries || list.cost > maxCost - item.cost, let victim = list.removeLast() { evicted.append(victim) }
            list.add(item, for: key, cost: item.cost)
            return evicted
        }
    }

    @inlinable
    func remove(_ key: Key) { list.withLock { $0.remove(key) } }
    func removeAll() { list.withLock { $0 = RecencyList() } }
}

/// Items by key, in the order of their use. Every operation takes constant time.
@usableFromInline
struct RecencyList<Key: Hashable & Sendable, Item: Sendable>: Sendable {
    @usableFromInline
    struct Place: Sendable {
        @usableFromInline let key: Key
        @usableFromInline let item: Item
        @usableFromInline let cost: Int

        @inlinable
        init(key: Key, item: Item, cost: Int) {
            self.key = key
            self.item = item
            self.cost = cost
        }
    }

    @usableFromInline var positions: [Key: Int] = [:]
    /// Nil: free.
    @usableFromInline var places: [Place?] = []
    @usableFromInline var order = Order()
    @usableFromInline var cost = 0
    @inlinable var count: Int { positions.count }

    init() {}

    @inlinable
    mutating func use(_ key: Key) -> Item? {
        guard let position = positions[key] else { return nil }
        order.remove(position)
        order.add(position)
        return places[position]?.item
    }

    /// The key must not be there.
    @inlinable
    mutating func add(_ item: Item, for key: Key, cost: Int) {
        let position = order.free ?? places.count
        if position == places.count { places.append(nil) }
        places[position] = Place(key: key, item: item, cost: cost)
        positions[key] = position
        order.add(position)
        self.cost += cost
    }

    @inlinable
    mutating func remove(_ key: Key) {
        guard let position = positions.removeValue(forKey: key), let place = places[position] else { return }
        places[position] = nil
        order.release(position)
        cost -= place.cost
    }

    /// Removes the least recently used.
    @inlinable
    mutating func removeLast() -> Key? {
        guard let key = order.oldest.flatMap({ places[$0]?.key }) else { return nil }
        remove(key)
        return key
    }
}

/// Positions in the order of their use, linked both ways, and those that are free.
@usableFromInline
struct Order: Sendable {
    private var newer: [Int?] = []
    private var older: [Int?] = []
    private var newest: Int?
    @usableFromInline private(set) var oldest: Int?
    private var released: [Int] = []

    /// A position that was released.
    @usableFromInline
    var free: Int? { released.last }

    /// Makes it the newest. A free position is so no longer; one more than there are makes room for it.
    @usableFromInline
    mutating func add(_ position: Int) {
        if released.last == position { released.removeLast() }
        if position == newer.count {
            newer.append(nil)
            older.append(nil)
        }
        newer[position] = nil
        older[position] = newest
        if let newest { newer[newest] = position } else { oldest = position }
        newest = position
    }

    @usableFromInline
    mutating func remove(_ position: Int) {
        if let newer = newer[position] { older[newer] = older[position] } else { newest = older[position] }
        if let older = older[position] { newer[older] = newer[position] } else { oldest = newer[position] }
    }

    @usableFromInline
    mutating func release(_ position: Int) {
        remove(position)
        released.append(position)
    }
}
