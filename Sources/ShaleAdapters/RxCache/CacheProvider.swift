/// The name and the retention of a record. Usually an enum with a case for each provider.
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
/// Every requirement has a default: one record, kept forever unless a full cache evicts it.
public protocol CacheProvider: Sendable {
    /// The maximum age of a record, also of records that are already stored. Nil: any age.
    var lifeCache: LifeCache? { get }
    /// Distinguishes the provider's records. Nil: there is one.
    var dynamicKey: DynamicKey? { get }
    /// Distinguishes the provider's records by two keys; its `dynamicKey` has precedence over the one above.
    var dynamicKeyGroup: DynamicKeyGroup? { get }
    /// Whether to call the loader even if there is a record, and which records to remove once it has returned. Nil:
    /// neither.
    var evict: EvictProvider? { get }
    /// False: a full cache never evicts the record.
    func expirable() -> Bool
    /// The first part of the records' keys. By default the enum case's name without its arguments: the part of the
    /// provider's description before the first "(".
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
