// All three are immutable, and cannot be subclassed outside this module: therefore they are Sendable.

/// Removes every record of the provider.
public class EvictProvider: @unchecked Sendable {
    /// False: removes nothing, and calls the loader only if there is no record.
    public let evict: Bool

    public init(evict: Bool) { self.evict = evict }
}

/// Removes the records of the provider's dynamic key, in all its groups. The provider must have a key or a group.
public class EvictDynamicKey: EvictProvider, @unchecked Sendable {}

/// Removes the one record of the provider's group. The provider must have a group.
public final class EvictDynamicKeyGroup: EvictDynamicKey, @unchecked Sendable {}
