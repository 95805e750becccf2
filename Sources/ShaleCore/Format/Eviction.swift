// Who chooses them: `Victims`, `SecondChance`.

/// Which entries leave first where there is no room. Chosen when a cache is made, and kept in it: opening it with another
/// one is an error.
public enum Eviction: UInt32, Sendable {
    /// The least recently used one, exactly so within a shard. For an order that is exact, or popularity that changes all
    /// at once.
    case lru = 0
    /// What was not used since it was written or last kept, the oldest first. For a cache that is full most of the
    /// time: one pass over many keys displaces less of what is used, more of the capacity is filled, and less is written.
    case adaptive = 1
}
