/// The key of a record.
struct RecordKey: Hashable, Codable, Sendable {
    let provider: String
    let dynamicKey: String?
    let group: String?

    init(_ provider: some CacheProvider) {
        self.provider = provider.providerKey
        dynamicKey = provider.dynamicKeyGroup?.dynamicKey ?? provider.dynamicKey?.dynamicKey
        group = provider.dynamicKeyGroup?.group
    }

    /// The tag of all records of the provider. With the length in front, no provider's tag is a prefix of another's.
    var providerTag: String { "\(provider.utf8.count):\(provider)" }
    /// The tag of all records of the dynamic key.
    var dynamicKeyTag: String? { dynamicKey.map { "\(providerTag)=\($0)" } }
    var tags: [String] { [providerTag] + (dynamicKeyTag.map { [$0] } ?? []) }
}
