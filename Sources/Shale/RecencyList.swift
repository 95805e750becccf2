/// Items by key, in LRU order. Every operation takes constant time.
@usableFromInline
package struct RecencyList<Key: Hashable, Item> {
    /// Apart from the items, so that a use copies only an item.
    @usableFromInline
    struct Node {
        @usableFromInline let key: Key
        @usableFromInline let cost: Int

        @inlinable
        init(key: Key, cost: Int) {
            self.key = key
            self.cost = cost
        }
    }

    @usableFromInline var positions: [Key: Int] = [:]
    /// Nil: free.
    @usableFromInline var nodes: [Node?] = []
    @usableFromInline var heldItems: [Item?] = []
    @usableFromInline var order = Order()
    @usableFromInline package internal(set) var cost = 0
    @inlinable package var count: Int { positions.count }

    @inlinable
    package init() {}

    /// Returns the item and makes it the most recently used.
    @inlinable
    package mutating func use(_ key: Key) -> Item? {
        guard let position = positions[key] else { return nil }
        order.use(position)
        return heldItems[position]
    }

    /// The item, without making it the most recently used.
    @inlinable subscript(key: Key) -> Item? { positions[key].flatMap { heldItems[$0] } }

    /// Replaces the item at the same cost, without making it the most recently used.
    @inlinable
    mutating func replace(_ key: Key, with item: Item) {
        if let position = positions[key] { heldItems[position] = item }
    }

    /// Replaces the most recently used item. The list must not be empty.
    @inlinable
    package mutating func replaceNewest(with item: Item, cost: Int = 0) {
        guard let position = order.newest, let node = nodes[position] else { return }
        self.cost += cost - node.cost
        nodes[position] = Node(key: node.key, cost: cost)
        heldItems[position] = item
    }

    /// Adds the item as the most recently used. The list must not have the key.
    @inlinable
    package mutating func add(_ item: Item, for key: Key, cost: Int = 0) {
        let position = order.free ?? nodes.count
        if position == nodes.count {
            nodes.append(nil)
            heldItems.append(nil)
        }
        nodes[position] = Node(key: key, cost: cost)
        heldItems[position] = item
        positions[key] = position
        order.add(position)
        self.cost += cost
    }

    /// Removes the item and returns it.
    @discardableResult
    @inlinable
    package mutating func remove(_ key: Key) -> Item? {
        guard let position = positions.removeValue(forKey: key), let node = nodes[position] else { return nil }
        nodes[position] = nil
        order.release(position)
        cost -= node.cost
        return heldItems[position].take()
    }

    /// All items, the least recently used first.
    var items: [Item] {
        var items: [Item] = []
        var next = order.oldest
        while let position = next, let item = heldItems[position] {
            items.append(item)
            next = order.next(after: position)
        }
        return items
    }

    /// Removes the least recently used item and returns it.
    @discardableResult
    @inlinable
    package mutating func removeLast() -> Item? {
        order.oldest.flatMap { nodes[$0]?.key }.flatMap { remove($0) }
    }
}

extension RecencyList: Sendable where Key: Sendable, Item: Sendable {}
extension RecencyList.Node: Sendable where Key: Sendable, Item: Sendable {}

/// A doubly linked list of positions in the order of use, and the free positions. It is separate from the items because
/// non-generic code is several times as fast as unspecialised generic code.
@usableFromInline
struct Order: Sendable {
    /// In one struct, as they change together.
    private struct Links {
        var newer: Int
        var older: Int
    }
    private static let none = -1

    private var links: [Links] = []
    private var first = none
    private var last = none
    private var released: [Int] = []

    @usableFromInline
    init() {}

    @usableFromInline var newest: Int? { first == Order.none ? nil : first }
    @usableFromInline var oldest: Int? { last == Order.none ? nil : last }

    /// The next more recently used position, or nil.
    func next(after position: Int) -> Int? {
        let next = links[position].newer
        return next == Order.none ? nil : next
    }

    /// The position that was released last, or nil.
    @usableFromInline
    var free: Int? { released.last }

    /// Adds a position as the newest: the one in `free`, or the first one beyond the end.
    @usableFromInline
    mutating func add(_ position: Int) {
        if released.last == position { released.removeLast() }
        if position == links.count { links.append(Links(newer: Order.none, older: Order.none)) }
        link(position)
    }

    /// Makes a linked position the newest.
    @usableFromInline
    mutating func use(_ position: Int) {
        if position == first { return }
        unlink(position)
        link(position)
    }

    @usableFromInline
    mutating func release(_ position: Int) {
        unlink(position)
        released.append(position)
    }

    private mutating func link(_ position: Int) {
        links[position] = Links(newer: Order.none, older: first)
        if first == Order.none { last = position } else { links[first].newer = position }
        first = position
    }

    private mutating func unlink(_ position: Int) {
        let (newer, older) = (links[position].newer, links[position].older)
        if newer == Order.none { first = older } else { links[newer].older = older }
        if older == Order.none { last = newer } else { links[older].newer = newer }
    }
}
