/// Distinguishes the records of one provider, for example by page, filter or order.
public struct DynamicKey: Sendable, Hashable {
    public let dynamicKey: String

    public init(dynamicKey: String) { self.dynamicKey = dynamicKey }
}

/// Distinguishes the records of one provider by two keys, for example by filter and page.
public struct DynamicKeyGroup: Sendable, Hashable {
    public let dynamicKey: String
    public let group: String

    public init(dynamicKey: String, group: String) {
        self.dynamicKey = dynamicKey
        self.group = group
    }
}
