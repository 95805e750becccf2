#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

extension Cache {
    /// How a cache is opened. Every default is stated here.
    public struct Options: Sendable {
        /// How long an entry is fresh, unless its insertion says otherwise.
        public var maxAge: Age
        /// How long an entry is kept past its age, for those who ask for stale data.
        public var staleFor: Age
        /// At least 1; stale ones count too. Fewer than the store has: the others leave at once, those of other caches in it among
        /// them. Nil: as many as fit, or what an existing store has.
        public var maxEntries: Int?
        /// Bytes on disk, at least 1 MiB. Nil: 1 GiB for a new store, unchanged for an existing one.
        public var capacity: Int?
        /// Which entries leave first where there is no room, chosen when the store is made. Nil: the least recently
        /// used in a new store, unchanged for an existing one.
        public var eviction: Eviction?
        /// Decoded values that are kept in memory; 0: none.
        public var memoryEntries: Int
        /// What they may cost together; a value costs the bytes of its encoded form. (A slice of `Data` is copied; what a value of
        /// another type keeps alive beside its own bytes is not counted.)
        public var memoryBytes: Int
        /// How eagerly entries that were loaded are loaded anew before their age is over, see
        /// ``Cache/value(for:policy:maxAge:tags:load:)``. 0: never; 1 suits most.
        public var refreshAhead: Double
        /// How long others wait for a process that was stopped while it loaded; from a millisecond to an hour. (For one that
        /// was killed they do not wait.)
        public var leaseTime: Duration
        /// How long a call waits for a lock of the store that another process or thread holds, which is one that was stopped
        /// in the middle of a call; then it is an error of the code `busy`, and has changed nothing. At least a
        /// millisecond; nil: without end. See `Store.Options.lockTimeout`, and ``Cache/Event/waiting(_:)``.
        public var lockTimeout: Duration?
        /// How values become bytes.
        public var coder: Coder<Value>
        /// The clock that ages go by. Nil: the system's.
        public var now: (@Sendable () -> Date)?
        /// What measures the limits of loads, see ``LoadOptions``.
        public var limitClock: any Clock<Duration>

        public init(
            maxAge: Age = .hours(12), staleFor: Age = .forever, maxEntries: Int? = nil, capacity: Int? = nil,
            eviction: Eviction? = nil, memoryEntries: Int = 256, memoryBytes: Int = 32 << 20, refreshAhead: Double = 0,
            leaseTime: Duration = .seconds(10), lockTimeout: Duration? = nil, coder: Coder<Value> = .standard,
            now: (@Sendable () -> Date)? = nil, limitClock: any Clock<Duration> = ContinuousClock()
        ) {
            self.maxAge = maxAge
            self.staleFor = staleFor
            self.maxEntries = maxEntries
            self.capacity = capacity
            self.eviction = eviction
            self.memoryEntries = memoryEntries
            self.memoryBytes = memoryBytes
            self.refreshAhead = refreshAhead
            self.leaseTime = leaseTime
            self.lockTimeout = lockTimeout
            self.coder = coder
            self.now = now
            self.limitClock = limitClock
        }
    }
}

extension Cache.Options {
    /// Whether some of them are of the store that the cache is in.
    var isOfStore: Bool {
        maxEntries != nil || capacity != nil || eviction != nil || lockTimeout != nil || now != nil
    }

    /// What is wrong with them, if anything.
    var fault: String? {
        if let maxEntries, maxEntries < 1 { return "maxEntries is \(maxEntries); it is at least 1, or nil" }
        if let capacity, capacity < 1 << 20 { return "capacity is \(capacity); it is at least 1 MiB, or nil" }
        if maxAge.isNegative { return "maxAge is \(maxAge); it is not negative" }
        if staleFor.isNegative { return "staleFor is \(staleFor); it is not negative" }
        if memoryEntries < 0 { return "memoryEntries is \(memoryEntries); it is not negative" }
        if memoryBytes < 0 { return "memoryBytes is \(memoryBytes); it is not negative" }
        if !(refreshAhead >= 0 && refreshAhead.isFinite) {
            return "refreshAhead is \(refreshAhead); it is a number from 0 on"
        }
        return leaseTime < .milliseconds(1) || leaseTime > .seconds(60 * 60)
            ? "leaseTime is \(leaseTime); it lasts from a millisecond to an hour" : nil
    }
}
