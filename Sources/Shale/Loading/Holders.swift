/// Those who hold a load. It is apart from the load's result because code that knows its types is several times as fast as
/// code that is generic over them.
struct Holders {
    /// Why one who waits goes on.
    enum Call: Sendable { case ended, timeOver }

    struct Holder {
        /// Of one who waits.
        var waiter: CheckedContinuation<Call, any Error>?
        var timer: Task<Void, Never>?
    }

    /// By their numbers, which count up in the order in which they came.
    private var holders: [Int: Holder] = [:]
    private var last = 0

    var isEmpty: Bool { holders.isEmpty }

    mutating func add() -> Int {
        last += 1
        holders[last] = Holder()
        return last
    }

    subscript(number: Int) -> Holder? {
        get { holders[number] }
        set { holders[number] = newValue }
    }

    /// All of them, in the order in which they came; none is left.
    mutating func takeAll() -> [Holder] {
        defer { holders = [:] }
        return holders.keys.sorted().compactMap { holders[$0] }
    }
}
