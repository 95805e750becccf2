#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Encodes equal values to the same JSON: sorted names, normalized strings, one zero and one NaN, sorted sets and
/// dictionaries, and the `canonical` of each ``CacheKey``. `JSONDecoder.ofCaches` reads it.
struct CanonicalEncoder: Encoder {
    fileprivate let node: Node
    let codingPath: [any CodingKey]
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    static func append(_ value: some Encodable, to bytes: inout [UInt8]) throws {
        let node = Node()
        try node.set(value, at: [])
        node.append(to: &bytes)
    }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
        if case .object = node.content {} else { node.content = .object([:]) }
        return KeyedEncodingContainer(Fields(node: node, codingPath: codingPath))
    }
    func unkeyedContainer() -> any UnkeyedEncodingContainer {
        if case .array = node.content {} else { node.content = .array([]) }
        return Elements(node: node, codingPath: codingPath)
    }
    func singleValueContainer() -> any SingleValueEncodingContainer { Single(node: node, codingPath: codingPath) }
}

/// Collections without a defined order. They encode as groups of `stride` values.
private protocol Unordered {
    static var stride: Int { get }
}
extension Set: Unordered { static var stride: Int { 1 } }
/// Only with keys that are not names; with names it encodes as an object.
extension Dictionary: Unordered { static var stride: Int { 2 } }

/// The JSON at one coding path. A class, as containers are handed out before they are filled.
private final class Node {
    enum Content {
        /// Already JSON.
        case single([UInt8])
        case array([Node])
        case object([[UInt8]: Node])
    }
    var content = Content.object([:])

    func set(_ value: some Encodable, at path: [any CodingKey]) throws {
        switch value {
        case let key as any CacheKey: try setPlain(key.canonical, at: path)
        case let data as Data: set(text: data.base64EncodedString())
        case let url as URL: set(text: url.absoluteString)
        case let number as Decimal: set(number: number.description)
        default: try setPlain(value, at: path)
        }
    }

    private func setPlain(_ value: some Encodable, at path: [any CodingKey]) throws {
        try value.encode(to: CanonicalEncoder(node: self, codingPath: path))
        guard let unordered = type(of: value) as? any Unordered.Type, case .array(let nodes) = content else { return }
        let groups = Swift.stride(from: 0, to: nodes.count, by: unordered.stride).map { start in
            let group = nodes[start..<min(start + unordered.stride, nodes.count)]
            return (group, bytes: group.flatMap(\.bytes))
        }
        content = .array(groups.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }.flatMap(\.0))
    }

    func set(literal: String) { content = .single(Array(literal.utf8)) }

    /// A JSON number, without a trailing ".0".
    func set(number: String) { set(literal: number.hasSuffix(".0") ? String(number.dropLast(2)) : number) }

    func set(number: some BinaryFloatingPoint & LosslessStringConvertible) {
        if number.isNaN {
            set(text: "nan")
        } else if number.isInfinite {
            set(text: number > 0 ? "inf" : "-inf")
        } else {
            set(number: number == 0 ? "0" : number.description)
        }
    }

    func set(text: String) { content = .single(Node.quoted([UInt8](canonical: text))) }

    func append() -> Node {
        let node = Node()
        guard case .array(var nodes) = content else { return node }
        // Keeps the array uniquely referenced, so that appending does not copy it.
        content = .array([])
        nodes.append(node)
        content = .array(nodes)
        return node
    }

    func node(named name: any CodingKey) -> Node {
        let node = Node()
        guard case .object(var fields) = content else { return node }
        content = .object([:])
        fields[[UInt8](canonical: name.stringValue)] = node
        content = .object(fields)
        return node
    }

    var bytes: [UInt8] {
        var bytes: [UInt8] = []
        append(to: &bytes)
        return bytes
    }

    func append(to bytes: inout [UInt8]) {
        switch content {
        case .single(let json): bytes += json
        case .array(let nodes):
            bytes.append(UInt8(ascii: "["))
            for (index, node) in nodes.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                node.append(to: &bytes)
            }
            bytes.append(UInt8(ascii: "]"))
        case .object(let fields):
            bytes.append(UInt8(ascii: "{"))
            let sorted = fields.sorted { $0.key.lexicographicallyPrecedes($1.key) }
            for (index, (name, node)) in sorted.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                bytes += Node.quoted(name)
                bytes.append(UInt8(ascii: ":"))
                node.append(to: &bytes)
            }
            bytes.append(UInt8(ascii: "}"))
        }
    }

    private static func quoted(_ text: [UInt8]) -> [UInt8] {
        var bytes = [UInt8(ascii: "\"")]
        for byte in text {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): bytes += [UInt8(ascii: "\\"), byte]
            case 0..<0x20: bytes += "\\u00\(byte < 0x10 ? "0" : "")\(String(byte, radix: 16))".utf8
            default: bytes.append(byte)
            }
        }
        bytes.append(UInt8(ascii: "\""))
        return bytes
    }
}

private struct Single: SingleValueEncodingContainer {
    let node: Node
    let codingPath: [any CodingKey]

    func encodeNil() { node.set(literal: "null") }
    func encode(_ value: Bool) { node.set(literal: value ? "true" : "false") }
    func encode(_ value: String) { node.set(text: value) }
    func encode(_ value: Double) { node.set(number: value) }
    func encode(_ value: Float) { node.set(number: value) }
    func encode(_ value: Int) { node.set(literal: value.description) }
    func encode(_ value: Int8) { node.set(literal: value.description) }
    func encode(_ value: Int16) { node.set(literal: value.description) }
    func encode(_ value: Int32) { node.set(literal: value.description) }
    func encode(_ value: Int64) { node.set(literal: value.description) }
    func encode(_ value: UInt) { node.set(literal: value.description) }
    func encode(_ value: UInt8) { node.set(literal: value.description) }
    func encode(_ value: UInt16) { node.set(literal: value.description) }
    func encode(_ value: UInt32) { node.set(literal: value.description) }
    func encode(_ value: UInt64) { node.set(literal: value.description) }
    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, *)
    func encode(_ value: Int128) { node.set(literal: value.description) }
    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, *)
    func encode(_ value: UInt128) { node.set(literal: value.description) }
    func encode(_ value: some Encodable) throws { try node.set(value, at: codingPath) }
}

/// The overloads for number types are not needed: the generic function reaches them through the values' `encode(to:)`.
private struct Elements: UnkeyedEncodingContainer {
    let node: Node
    let codingPath: [any CodingKey]
    var count: Int { if case .array(let nodes) = node.content { nodes.count } else { 0 } }

    func encodeNil() { node.append().set(literal: "null") }
    func encode(_ value: some Encodable) throws { try node.append().set(value, at: codingPath) }
    func nestedContainer<Name: CodingKey>(keyedBy name: Name.Type) -> KeyedEncodingContainer<Name> {
        next.container(keyedBy: name)
    }
    func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer { next.unkeyedContainer() }
    func superEncoder() -> any Encoder { next }
    private var next: CanonicalEncoder { CanonicalEncoder(node: node.append(), codingPath: codingPath) }
}

private struct Fields<Name: CodingKey>: KeyedEncodingContainerProtocol {
    let node: Node
    let codingPath: [any CodingKey]

    func encodeNil(forKey name: Name) { node.node(named: name).set(literal: "null") }
    func encode(_ value: some Encodable, forKey name: Name) throws {
        try node.node(named: name).set(value, at: codingPath + [name])
    }
    func nestedContainer<Nested: CodingKey>(keyedBy nested: Nested.Type, forKey name: Name)
        -> KeyedEncodingContainer<Nested>
    {
        encoder(name).container(keyedBy: nested)
    }
    func nestedUnkeyedContainer(forKey name: Name) -> any UnkeyedEncodingContainer { encoder(name).unkeyedContainer() }
    func superEncoder() -> any Encoder { encoder(Super.super) }
    func superEncoder(forKey name: Name) -> any Encoder { encoder(name) }
    private func encoder(_ name: some CodingKey) -> CanonicalEncoder {
        CanonicalEncoder(node: node.node(named: name), codingPath: codingPath + [name])
    }
    private enum Super: CodingKey { case `super` }
}
