/// The numbers that never repeat: those of a shard's segments, and the lsns of the cache. They only grow: by one with
/// each draw, and by a random lead after numbers may have been used that are no longer known.
enum Numbers {
    /// No sound header, record or index has a number this high.
    static let end: UInt64 = 1 << 62
    /// From here on, a sole writer restarts the cache empty (`Renewal`). The numbers above suffice for a process that
    /// draws ten million a second for 3,600 years; those below, for two million leads.
    static let renewal: UInt64 = 3 << 60
}
