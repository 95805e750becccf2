/// The holders of a load. Separate from the load's result because non-generic code is several times as fast as
/// unspecialised generic code.
struct Holders {
    /// Why a waiting holder resumes.
    enum Call: Sendable { case ended, timeOver }

    struct Holder {
        /// Nil: the holder does not wait.
        var waiter: CheckedContinuation<Call, any Error>?
        var timer: Task<Void, Never>?
    }

    /// By number, in arrival order.
    private var holders: [Int: Holder] = [:]
    private var last = 0

    var isEmpty: Bool { holders.isEmpty }
    var count: Int { holders.count }

    mutating func add() -> Int {
        last += 1
        holders[last] = Holder()
        return last
    }

    subscript(number: Int) -> Holder? {
        get { holders[number] }
        set { holders[number] = newValue }
    }

    /// Removes all holders and returns them in arrival order.
    mutating func takeAll() -> [Holder] {
        defer { holders = [:] }
        return holders.keys.sorted().compactMap { holders[$0] }
    }
}
