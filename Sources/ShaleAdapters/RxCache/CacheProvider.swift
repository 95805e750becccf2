/// What a record is called and how it is kept. Usually an enum, each of whose cases is a provider.
///
/// ```swift
/// enum Providers: CacheProvider {
///     case getMocks
///     case getMocksOfPage(Int, evict: Bool)
///
///     var lifeCache: LifeCache? { LifeCache(duration: 5, timeUnit: .minutes) }
///     var dynamicKey: DynamicKey? {
///         if case .getMocksOfPage(let page, _) = self { DynamicKey(dynamicKey: String(page)) } else { nil }
///     }
///     var evict: EvictProvider? {
///         if case .getMocksOfPage(_, let evict) = self { EvictDynamicKey(evict: evict) } else { nil }
///     }
/// }
/// ```
///
/// Everything has a default: one record, for ever, that may leave to make room.
public protocol CacheProvider: Sendable {
    /// How old a record may be. It applies to records that are stored already. Nil: any age.
    var lifeCache: LifeCache? { get }
    /// Tells the provider's records apart. Nil: there is one.
    var dynamicKey: DynamicKey? { get }
    /// Tells them apart in two steps; its key goes before that of `dynamicKey`.
    var dynamicKeyGroup: DynamicKeyGroup? { get }
    /// Whether the loader is asked even where there is a record, and what is removed once it has answered. Nil: neither.
    var evict: EvictProvider? { get }
    /// False: the record is never removed to make room.
    func expirable() -> Bool
    /// The first part of its records' keys. By itself the enum case's name without its arguments, or what a `description`
    /// of the provider's own says before the first "(".
    var providerKey: String { get }
}

extension CacheProvider {
    public var lifeCache: LifeCache? { nil }
    public var dynamicKey: DynamicKey? { nil }
    public var dynamicKeyGroup: DynamicKeyGroup? { nil }
    public var evict: EvictProvider? { nil }
    public func expirable() -> Bool { true }
    public var providerKey: String { String(String(describing: self).prefix { $0 != "(" }) }
}
