/// What a provider is wrong about, or could not get. The store's own errors are `ShaleError`.
public enum ProviderCacheError: Error, CustomStringConvertible {
    /// It evicts by key, and has neither a `dynamicKey` nor a `dynamicKeyGroup`.
    case dynamicKeyMissing(provider: String)
    /// It evicts by group, and has no `dynamicKeyGroup`.
    case groupMissing(provider: String)
    /// The loader failed, with its error or ``LoaderGaveNil``, and nothing stored may be served in its place.
    case loaderFailed(provider: String, any Error)
    /// What was loaded or edited does not become JSON, or does not come back from it; nothing was stored.
    case notCodable(provider: String, any Error)

    /// Why a loader that threw nothing has failed.
    public struct LoaderGaveNil: Error, CustomStringConvertible {
        public var description: String { "the loader gave nil" }
    }

    public var description: String {
        switch self {
        case .dynamicKeyMissing(let provider):
            "\(provider): EvictDynamicKey was provided but not was provided any DynamicKey; give it a dynamicKey, or evict with EvictProvider"
        case .groupMissing(let provider):
            "\(provider): EvictDynamicKeyGroup was provided but not was provided any Group; give it a dynamicKeyGroup, or evict a wider scope"
        case .loaderFailed(let provider, let error):
            "\(provider): The Loader provided did not return any data and there is not data to load from the Cache: \(error)"
        case .notCodable(let provider, let error):
            "\(provider): the data does not go through JSON and back, and was not stored: \(error)"
        }
    }
}
