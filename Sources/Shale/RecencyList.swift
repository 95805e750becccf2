/// Items by key, in the order of their use. Every operation takes constant time.
@usableFromInline
package struct RecencyList<Key: Hashable, Item> {
    @usableFromInline
    struct Place {
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
    @usableFromInline package internal(set) var cost = 0
    @inlinable package var count: Int { positions.count }

    @inlinable
    package init() {}

    /// Makes it the most recently used.
    @inlinable
    package mutating func use(_ key: Key) -> Item? {
        guard let position = positions[key] else { return nil }
        order.remove(position)
        order.add(position)
        return places[position]?.item
    }

    /// Makes it the most recently used. The key must not be there.
    @inlinable
    package mutating func add(_ item: Item, for key: Key, cost: Int = 0) {
        let position = order.free ?? places.count
        if position == places.count { places.append(nil) }
        places[position] = Place(key: key, item: item, cost: cost)
        positions[key] = position
        order.add(position)
        self.cost += cost
    }

    /// Returns what it was.
    @discardableResult
    @inlinable
    package mutating func remove(_ key: Key) -> Item? {
        guard let position = positions.removeValue(forKey: key), let place = places[position] else { return nil }
        places[position] = nil
        order.release(position)
        cost -= place.cost
        return place.item
    }

    /// All items, from the least recently used on.
    var items: [Item] {
        var items: [Item] = []
        var next = order.oldest
        while let position = next, let place = places[position] {
            items.append(place.item)
            next = order.next(after: position)
        }
        return items
    }

    /// Removes the least recently used, and returns it.
    @discardableResult
    @inlinable
    package mutating func removeLast() -> Item? {
        order.oldest.flatMap { places[$0]?.key }.flatMap { remove($0) }
    }
}

extension RecencyList: Sendable where Key: Sendable, Item: Sendable {}
extension RecencyList.Place: Sendable where Key: Sendable, Item: Sendable {}

/// Positions in the order of their use, linked both ways, and those that are free. It is apart from the
/// items because code that knows its types is several times as fast as code that is generic over them.
@usableFromInline
struct Order: Sendable {
    private var newer: [Int?] = []
    private var older: [Int?] = []
    private var newest: Int?
    @usableFromInline private(set) var oldest: Int?
    private var released: [Int] = []

    @usableFromInline
    init() {}

    /// The one that was used next; nil: none since.
    func next(after position: Int) -> Int? { newer[position] }

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
