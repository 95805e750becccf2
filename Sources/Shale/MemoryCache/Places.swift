/// The positions of a table's entries: by the hash of their keys, in the order of use, and by deadline.
///
/// It sees hashes, not keys, so that no code of a key runs under the lock that guards it. Entries with one hash are
/// looked at from the newest on: a search that compares keys between its steps continues where it was, whatever is
/// added and removed meanwhile. Separate from the entries because non-generic code is several times as fast as
/// unspecialised generic code.
@usableFromInline
struct Places: Sendable {
    private struct Node {
        var hash = 0
        /// 0: the position is free.
        var number = 0
        /// The next older one of the chain.
        var next = none
    }
    private static let none = -1

    private var nodes: [Node] = []
    /// The newest position of each chain; their number is a power of two. A chain has several hashes.
    private var chains = [none]
    private var order = Order()
    private var deadlines = Deadlines()
    private var last = 0
    @usableFromInline private(set) var count = 0

    @usableFromInline
    init() {}

    /// The least recently used position.
    @usableFromInline var oldest: Int? { order.oldest }

    /// A position whose deadline has come.
    @usableFromInline
    func expired(at now: Double) -> Int? {
        guard let earliest = deadlines.earliest, !(now < earliest.deadline) else { return nil }
        return earliest.position
    }

    /// The next more recently used position, or nil.
    func next(after position: Int) -> Int? { order.next(after: position) }

    // MARK: Searching

    /// The newest place with the hash.
    @usableFromInline
    func first(_ hash: Int) -> Place? { search(chains[chain(of: hash)], hash, below: .max) }

    /// The next older place with the hash, also if this one has been released meanwhile.
    @usableFromInline
    func next(after place: Place, _ hash: Int) -> Place? {
        search(holds(place) ? nodes[place.position].next : chains[chain(of: hash)], hash, below: place.number)
    }

    @usableFromInline
    func holds(_ place: Place) -> Bool {
        place.position < nodes.count && nodes[place.position].number == place.number
    }

    private func search(_ start: Int, _ hash: Int, below number: Int) -> Place? {
        var position = start
        while position != Places.none {
            let node = nodes[position]
            if node.hash == hash, node.number < number { return Place(position: position, number: node.number) }
            position = node.next
        }
        return nil
    }

    // MARK: Changing

    /// Adds a place as the most recently used, and returns its position: one that was released, or the first one beyond
    /// the end.
    @usableFromInline
    mutating func add(_ hash: Int, deadline: Double) -> Int {
        if count == chains.count { split() }
        let position = order.free ?? nodes.count
        if position == nodes.count { nodes.append(Node()) }
        nodes[position].hash = hash
        link(position)
        order.add(position)
        deadlines.add(position, deadline)
        count += 1
        return position
    }

    @usableFromInline
    mutating func use(_ position: Int) { order.use(position) }

    /// Gives a position that has another entry from now on a new number, and makes it the most recently used.
    @usableFromInline
    mutating func renew(_ position: Int, deadline: Double) {
        unlink(position)
        link(position)
        order.use(position)
        deadlines.remove(position)
        deadlines.add(position, deadline)
    }

    @usableFromInline
    mutating func release(_ position: Int) {
        unlink(position)
        nodes[position] = Node()
        order.release(position)
        deadlines.remove(position)
        count -= 1
    }

    /// Numbers go on, so that a place from before is none of those from now on.
    @usableFromInline
    mutating func removeAll() {
        let last = last
        self = Places()
        self.last = last
    }

    // MARK: Chains

    /// Multiplying spreads hashes whose low bits are alike.
    private func chain(of hash: Int) -> Int {
        let spread = UInt(bitPattern: hash) &* 0x9E37_79B9_7F4A_7C15
        return Int(truncatingIfNeeded: spread >> 32) & (chains.count - 1)
    }

    private mutating func link(_ position: Int) {
        last += 1
        nodes[position].number = last
        let chain = chain(of: nodes[position].hash)
        nodes[position].next = chains[chain]
        chains[chain] = position
    }

    private mutating func unlink(_ position: Int) {
        let chain = chain(of: nodes[position].hash), next = nodes[position].next
        if chains[chain] == position {
            chains[chain] = next
            return
        }
        var before = chains[chain]
        while nodes[before].next != position { before = nodes[before].next }
        nodes[before].next = next
    }

    /// Doubles the number of chains, and keeps the order in each.
    private mutating func split() {
        let old = chains
        chains = Array(repeating: Places.none, count: 2 * old.count)
        var ends = chains
        for start in old {
            var position = start
            while position != Places.none {
                let next = nodes[position].next, chain = chain(of: nodes[position].hash)
                nodes[position].next = Places.none
                if ends[chain] == Places.none { chains[chain] = position } else { nodes[ends[chain]].next = position }
                ends[chain] = position
                position = next
            }
        }
    }
}

/// Where an entry is. The number distinguishes the entries that a position has one after the other.
@usableFromInline
struct Place: Sendable {
    @usableFromInline let position: Int
    @usableFromInline let number: Int
}
