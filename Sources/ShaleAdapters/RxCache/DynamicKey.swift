/// Tells the records of one provider apart: a page, a filter, an order.
public struct DynamicKey: Sendable, Hashable {
    public let dynamicKey: String

    public init(dynamicKey: String) { self.dynamicKey = dynamicKey }
}

/// Tells the records of one provider apart in two steps: a filter, and a page of what it lets through.
public struct DynamicKeyGroup: Sendable, Hashable {
    public let dynamicKey: String
    public let group: String

    public init(dynamicKey: String, group: String) {
        self.dynamicKey = dynamicKey
        self.group = group
    }
}
