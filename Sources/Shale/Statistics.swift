import Synchronization

/// The counters of one `Cache` object. The store has its own counters, for all processes together.
public struct CacheStatistics: Sendable, Equatable {
    /// Reads answered from memory.
    public var memoryHits = 0
    /// Reads answered from the store.
    public var storeHits = 0
    /// Reads that returned nil.
    public var misses = 0
    /// Reads that found a stored value that did not decode; each also counts as a miss.
    public var undecodable = 0
    /// Writes through the subscript that failed and changed nothing.
    public var failedWrites = 0
    /// Loads that began.
    public var loads = 0
    /// Loaded values that were returned but not stored: storing failed, or the key changed during the load.
    public var unstored = 0
    /// Those of `unstored` whose key, or one of whose tags, changed during the load.
    public var conflicts = 0
    /// Loads that threw or were cancelled.
    public var failedLoads = 0
    /// Loads that waited while another cache object or process loaded the key, and the total time they waited.
    public var waits = 0
    public var waited = Duration.zero
}

@usableFromInline
struct Counters: ~Copyable, Sendable {
    let memoryHits = Atomic(0)
    let storeHits = Atomic(0)
    let misses = Atomic(0)
    let undecodable = Atomic(0)
    let failedWrites = Atomic(0)
    let loads = Atomic(0)
    let unstored = Atomic(0)
    let conflicts = Atomic(0)
    let failedLoads = Atomic(0)
    let waits = Atomic(0)
    let waitedMicroseconds = Atomic<Int64>(0)

    /// Counts a wait that has ended.
    func count(waitSince begin: ContinuousClock.Instant) {
        waits.add(1, ordering: .relaxed)
        waitedMicroseconds.add(Int64((ContinuousClock.now - begin) / .microseconds(1)), ordering: .relaxed)
    }

    /// Counts a read by its result.
    @usableFromInline
    func count(_ source: EntrySource?) {
        switch source {
        case .memory: memoryHits.add(1, ordering: .relaxed)
        case .store: storeHits.add(1, ordering: .relaxed)
        case .loader: break
        case nil: misses.add(1, ordering: .relaxed)
        }
    }

    var statistics: CacheStatistics {
        CacheStatistics(
            memoryHits: memoryHits.load(ordering: .relaxed), storeHits: storeHits.load(ordering: .relaxed),
            misses: misses.load(ordering: .relaxed),
            undecodable: undecodable.load(ordering: .relaxed),
            failedWrites: failedWrites.load(ordering: .relaxed), loads: loads.load(ordering: .relaxed),
            unstored: unstored.load(ordering: .relaxed), conflicts: conflicts.load(ordering: .relaxed),
            failedLoads: failedLoads.load(ordering: .relaxed), waits: waits.load(ordering: .relaxed),
            waited: .microseconds(waitedMicroseconds.load(ordering: .relaxed)))
    }
}
