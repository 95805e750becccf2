/// Which entries leave first where there is no room. Chosen when a cache is made, and kept in it.
public enum Eviction: UInt32, Sendable {
    /// The least recently used one, exactly: `Victims`.
    case lru = 0
    /// What was not used since it was written or last kept, in the order of the log: `SecondChance`.
    case adaptive = 1
}
