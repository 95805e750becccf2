/// What a record is stored under.
struct RecordKey: Hashable, Codable, Sendable {
    let provider: String
    let dynamicKey: String?
    let group: String?

    init(_ provider: some CacheProvider) {
        self.provider = provider.providerKey
        dynamicKey = provider.dynamicKeyGroup?.dynamicKey ?? provider.dynamicKey?.dynamicKey
        group = provider.dynamicKeyGroup?.group
    }

    /// What all records of the provider carry. With its length in front, no provider's name is another's beginning.
    var providerTag: String { "\(provider.utf8.count):\(provider)" }
    /// What all records of the dynamic key carry.
    var dynamicKeyTag: String? { dynamicKey.map { "\(providerTag)=\($0)" } }
    var tags: [String] { [providerTag] + (dynamicKeyTag.map { [$0] } ?? []) }
}
