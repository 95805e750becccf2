import Synchronization

/// What one `Cache` object has counted. The store has counters of its own, of all processes together.
public struct CacheStatistics: Sendable, Equatable {
    /// Reads that memory answered.
    public var memoryHits = 0
    /// Reads that the store answered.
    public var storeHits = 0
    /// Reads that found nothing that was asked for.
    public var misses = 0
    /// Stored values that did not decode; each is a miss as well.
    public var undecodable = 0
    /// Writes through the subscript that failed, and changed nothing.
    public var failedWrites = 0
    /// Loads that were begun.
    public var loads = 0
    /// Loaded values that were handed out and not stored: that failed, or their key was changed while they were loaded.
    public var unstored = 0
    /// Of those: whose key, or one of whose tags, was changed while they were loaded.
    public var conflicts = 0
    /// Loads that threw, or were cancelled.
    public var failedLoads = 0
    /// Loads that waited for their turn, as another cache object or another process was loading the key; and for how long together.
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

    /// A wait that has ended.
    func count(waitSince begin: ContinuousClock.Instant) {
        waits.add(1, ordering: .relaxed)
        waitedMicroseconds.add(Int64((ContinuousClock.now - begin) / .microseconds(1)), ordering: .relaxed)
    }

    /// A read's result.
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
