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
        order.use(position)
        return places[position]?.item
    }

    /// In the place of the most recently used, which must be there.
    @inlinable
    package mutating func replaceNewest(with item: Item, cost: Int = 0) {
        guard let position = order.newest, let place = places[position] else { return }
        self.cost += cost - place.cost
        places[position] = Place(key: place.key, item: item, cost: cost)
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
    /// Beside each other, as they change together.
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

    /// The one that was used next; nil: none since.
    func next(after position: Int) -> Int? {
        let next = links[position].newer
        return next == Order.none ? nil : next
    }

    /// A position that was released.
    @usableFromInline
    var free: Int? { released.last }

    /// Makes it the newest. A free position is so no longer; one more than there are makes room for it.
    @usableFromInline
    mutating func add(_ position: Int) {
        if released.last == position { released.removeLast() }
        if position == links.count { links.append(Links(newer: Order.none, older: Order.none)) }
        link(position)
    }

    /// Makes one that is there the newest.
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
