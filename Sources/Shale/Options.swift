#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

extension Cache {
    /// How to open a cache.
    public struct Options: Sendable {
        /// How long an entry is fresh, unless its insertion sets another age.
        public var maxAge: Age
        /// How long a stale entry is kept for calls that ask for stale data.
        public var staleFor: Age
        /// At least 1; stale entries count. If the store has more entries, the excess is evicted at once, including
        /// entries of other caches in it. Nil: no limit for a new store, unchanged for an existing one.
        public var maxEntries: Int?
        /// Bytes on disk, at least 1 MiB. Nil: 1 GiB for a new store, unchanged for an existing one.
        public var capacity: Int?
        /// For a new store: the capacity up to which it can grow with its index, at least 1 MiB. See
        /// `Store.Options.reserveCapacity`. Nil: four times its capacity.
        public var reserveCapacity: Int?
        /// Which entries a full store evicts first; fixed when the store is created. Nil: the least recently used for a
        /// new store, unchanged for an existing one.
        public var eviction: Eviction?
        /// The number of decoded values to keep in memory; 0: none.
        public var memoryEntries: Int
        /// The maximum total cost of values in memory; a value costs the size of its encoded form. (A `Data` slice is
        /// copied. Other buffers that a value keeps alive do not count.)
        public var memoryBytes: Int
        /// How eagerly reads reload entries before they are stale, see ``Cache/value(for:options:maxAge:tags:load:)``.
        /// 0: never; 1 suits most caches.
        public var refreshAhead: Double
        /// How long other processes wait for a process that was stopped during a load, from a millisecond to an hour.
        /// (They do not wait for a killed process.)
        public var leaseTime: Duration
        /// How long a call waits for a lock of the store, which is held that long only if its holder was stopped in the
        /// middle of a call. Then the call fails with the code `busy` and has changed nothing. At least a millisecond;
        /// nil: ten seconds. See `Store.Options.lockTimeout` and ``Cache/Event/waiting(_:)``.
        public var lockTimeout: Duration?
        /// Encodes and decodes values.
        public var coder: Coder<Value>
        /// The version of the form that keys and values have, not negative. Caches of one name and different schemas
        /// share nothing, so that an app and its update can use one store; entries of a schema that is no longer used
        /// are evicted like all others.
        public var schema: Int
        /// Whether a read that finds a value that does not decode removes it. Otherwise the read is a miss and the
        /// value stays, since another version of the program may be able to decode it; a load or an insertion replaces
        /// it.
        public var removesUndecodable: Bool
        /// The clock that ages are measured by. Nil: the system's.
        public var now: (@Sendable () -> Date)?
        /// The clock for the limits of ``LoadOptions``.
        public var limitClock: any Clock<Duration>

        public init(
            maxAge: Age = .hours(12), staleFor: Age = .forever, maxEntries: Int? = nil, capacity: Int? = nil,
            reserveCapacity: Int? = nil, eviction: Eviction? = nil, memoryEntries: Int = 256,
            memoryBytes: Int = 32 << 20, refreshAhead: Double = 0,
            leaseTime: Duration = .seconds(10), lockTimeout: Duration? = nil, coder: Coder<Value> = .standard,
            schema: Int = 0, removesUndecodable: Bool = false, now: (@Sendable () -> Date)? = nil,
            limitClock: any Clock<Duration> = ContinuousClock()
        ) {
            self.maxAge = maxAge
            self.staleFor = staleFor
            self.maxEntries = maxEntries
            self.capacity = capacity
            self.reserveCapacity = reserveCapacity
            self.eviction = eviction
            self.memoryEntries = memoryEntries
            self.memoryBytes = memoryBytes
            self.refreshAhead = refreshAhead
            self.leaseTime = leaseTime
            self.lockTimeout = lockTimeout
            self.coder = coder
            self.schema = schema
            self.removesUndecodable = removesUndecodable
            self.now = now
            self.limitClock = limitClock
        }
    }
}

extension Cache.Options {
    /// Whether they include settings of the store.
    var includesStoreOptions: Bool {
        maxEntries != nil || capacity != nil || reserveCapacity != nil || eviction != nil || lockTimeout != nil
            || now != nil
    }

    /// Which option is invalid and why; nil: all are valid.
    var fault: String? {
        if let maxEntries, maxEntries < 1 { return "maxEntries is \(maxEntries); it must be at least 1, or nil" }
        if let capacity, capacity < 1 << 20 { return "capacity is \(capacity); it must be at least 1 MiB, or nil" }
        if let reserveCapacity, reserveCapacity < 1 << 20 {
            return "reserveCapacity is \(reserveCapacity); it must be at least 1 MiB, or nil"
        }
        if maxAge.isNegative { return "maxAge is \(maxAge); it must not be negative" }
        if staleFor.isNegative { return "staleFor is \(staleFor); it must not be negative" }
        if memoryEntries < 0 { return "memoryEntries is \(memoryEntries); it must not be negative" }
        if memoryBytes < 0 { return "memoryBytes is \(memoryBytes); it must not be negative" }
        if schema < 0 { return "schema is \(schema); it must not be negative" }
        if !(refreshAhead >= 0 && refreshAhead.isFinite) {
            return "refreshAhead is \(refreshAhead); it must be finite and not negative"
        }
        return leaseTime < .milliseconds(1) || leaseTime > .seconds(60 * 60)
            ? "leaseTime is \(leaseTime); it must be from a millisecond to an hour" : nil
    }
}
