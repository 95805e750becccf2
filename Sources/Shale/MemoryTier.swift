import Synchronization

/// Decoded values in front of the store, the least recently used leaving first, exactly.
///
/// It knows nothing of ages, nor of other processes: whoever is given an item compares its version with the store's.
final class MemoryTier<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    struct Item: Sendable {
        let value: Value
        let version: UInt64
        /// The key as the store has it, so that a hit encodes nothing.
        let storedKey: [UInt8]
        let cost: Int
    }

    private let maxEntries: Int
    private let maxCost: Int
    private let list = Mutex(RecencyList<Key, Item>())

    init(maxEntries: Int, maxCost: Int) {
        self.maxEntries = maxEntries
        self.maxCost = maxCost
    }

    /// Makes it the most recently used.
    func item(for key: Key) -> Item? {
        if maxEntries <= 0 { return nil }
        return list.withLock { $0.use(key) }
    }

    /// Keeps the item, unless a newer version is there, or it alone costs too much. Returns what left to make room.
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

    func remove(_ key: Key) { list.withLock { $0.remove(key) } }
    func removeAll() { list.withLock { $0 = RecencyList() } }
}

/// Items in the order of their use: a dictionary into a list that is linked by positions in an array. Every operation takes constant time.
private struct RecencyList<Key: Hashable & Sendable, Item: Sendable>: Sendable {
    private struct Node {
        let key: Key
        let item: Item
        let cost: Int
        var newer: Int?
        var older: Int?
    }

    private var positions: [Key: Int] = [:]
    /// Nil: a free place.
    private var nodes: [Node?] = []
    private var free: [Int] = []
    private var newest: Int?
    private var oldest: Int?
    private(set) var cost = 0
    var count: Int { positions.count }

    mutating func use(_ key: Key) -> Item? {
        guard let position = positions[key], let node = nodes[position] else { return nil }
        if newest != position {
            unlink(node)
            link(node, at: position)
        }
        return node.item
    }

    /// The key must not be there.
    mutating func add(_ item: Item, for key: Key, cost: Int) {
        let position = free.popLast() ?? nodes.count
        if position == nodes.count { nodes.append(nil) }
        positions[key] = position
        self.cost += cost
        link(Node(key: key, item: item, cost: cost), at: position)
    }

    mutating func remove(_ key: Key) {
        guard let position = positions.removeValue(forKey: key), let node = nodes[position] else { return }
        unlink(node)
        nodes[position] = nil
        free.append(position)
        cost -= node.cost
    }

    /// Removes the least recently used.
    mutating func removeLast() -> Key? {
        guard let oldest, let key = nodes[oldest]?.key else { return nil }
        remove(key)
        return key
    }

    private mutating func link(_ node: Node, at position: Int) {
        var node = node
        node.newer = nil
        node.older = newest
        nodes[position] = node
        if let newest { nodes[newest]?.newer = position } else { oldest = position }
        newest = position
    }

    private mutating func unlink(_ node: Node) {
        if let newer = node.newer { nodes[newer]?.older = node.older } else { newest = node.older }
        if let older = node.older { nodes[older]?.newer = node.newer } else { oldest = node.newer }
    }
}
