// `Victims` and `SecondChance` choose the entries.

/// Which entries a full cache evicts first. Chosen when a cache is created, and stored in it: opening it with another
/// one is an error.
public enum Eviction: UInt32, Sendable {
    /// The least recently used entry, exactly so within a shard. For an exact order, or popularity that changes all at
    /// once.
    case lru = 0
    /// Entries that were not used since they were written or last kept, the oldest first. For a cache that is full most
    /// of the time: one pass over many keys displaces fewer used entries, more of the capacity is filled, and less is
    /// written.
    case clock = 1
}
