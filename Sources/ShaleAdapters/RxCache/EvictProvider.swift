// Constants all three, and nobody outside this module can add to them: that is what makes them Sendable.

/// Removes every record of the provider.
public class EvictProvider: @unchecked Sendable {
    /// False: nothing is removed, and the loader is asked only where there is no record.
    public let evict: Bool

    public init(evict: Bool) { self.evict = evict }
}

/// Removes the records of the provider's dynamic key, in all its groups. The provider must have a key, or a group.
public class EvictDynamicKey: EvictProvider, @unchecked Sendable {}

/// Removes the one record of the provider's group. The provider must have a group.
public final class EvictDynamicKeyGroup: EvictDynamicKey, @unchecked Sendable {}
