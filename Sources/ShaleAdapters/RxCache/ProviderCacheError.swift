/// An error of a provider or its loader. Errors of the store are `ShaleError`.
public enum ProviderCacheError: Error, CustomStringConvertible {
    /// The provider evicts by key, but has neither a `dynamicKey` nor a `dynamicKeyGroup`.
    case dynamicKeyMissing(provider: String)
    /// The provider evicts by group, but has no `dynamicKeyGroup`.
    case groupMissing(provider: String)
    /// The loader failed, with its error or ``LoaderGaveNil``, and no stored record may be served instead.
    case loaderFailed(provider: String, any Error)
    /// Loaded or edited data cannot be encoded to or decoded from JSON; nothing was stored.
    case notCodable(provider: String, any Error)

    /// The loader returned nil.
    public struct LoaderGaveNil: Error, CustomStringConvertible {
        public var description: String { "the loader returned nil" }
    }

    public var description: String {
        switch self {
        case .dynamicKeyMissing(let provider):
            """
            \(provider): EvictDynamicKey was provided but not was provided any DynamicKey; give it a dynamicKey, \
            or evict with EvictProvider
            """
        case .groupMissing(let provider):
            """
            \(provider): EvictDynamicKeyGroup was provided but not was provided any Group; give it a dynamicKeyGroup, \
            or evict a wider scope
            """
        case .loaderFailed(let provider, let error):
            """
            \(provider): The Loader provided did not return any data and there is not data to load from the Cache: \
            \(error)
            """
        case .notCodable(let provider, let error):
            "\(provider): the data cannot be encoded to or decoded from JSON, and was not stored: \(error)"
        }
    }
}
