/// Positions by deadline, in seconds: a binary heap in which each position knows its place.
struct Deadlines: Sendable {
    private var heap: [(deadline: Double, position: Int)] = []
    /// By position.
    private var places: [Int] = []

    /// The position with the earliest deadline.
    var earliest: (deadline: Double, position: Int)? { heap.first }

    /// Adds a position, at most one beyond the greatest that there has been.
    mutating func add(_ position: Int, _ deadline: Double) {
        if position == places.count { places.append(0) }
        // NaN has no order: it is over at once.
        heap.append((deadline.isNaN ? -.infinity : deadline, position))
        places[position] = heap.count - 1
        rise(heap.count - 1)
    }

    mutating func remove(_ position: Int) {
        let place = places[position]
        swap(place, heap.count - 1)
        heap.removeLast()
        if place == heap.count { return }
        rise(place)
        sink(place)
    }

    private mutating func rise(_ start: Int) {
        var place = start
        while place > 0, heap[place].deadline < heap[(place - 1) / 2].deadline {
            swap(place, (place - 1) / 2)
            place = (place - 1) / 2
        }
    }

    private mutating func sink(_ start: Int) {
        var place = start
        while true {
            var first = place
            for child in 2 * place + 1...2 * place + 2 where child < heap.count {
                if heap[child].deadline < heap[first].deadline { first = child }
            }
            if first == place { return }
            swap(place, first)
            place = first
        }
    }

    private mutating func swap(_ a: Int, _ b: Int) {
        heap.swapAt(a, b)
        places[heap[a].position] = a
        places[heap[b].position] = b
    }
}
