#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// Encodes records as JSON arrays, so that a single value can be read and edited as a list, and the first element of a
/// list can be read as a single value.
struct RecordCoder<Value: Sendable>: Sendable {
    private let coder: Coder<Value>

    func encode(_ value: Value, of provider: String) throws(ProviderCacheError) -> Data {
        do { return try coder.encode(value) } catch { throw .notCodable(provider: provider, error) }
    }

    func decode(_ data: Data, of provider: String) throws(ProviderCacheError) -> Value {
        do { return try coder.decode(data) } catch { throw .notCodable(provider: provider, error) }
    }
}

extension RecordCoder {
    static func list<Element: Codable & Sendable>(of: Element.Type) -> RecordCoder where Value == [Element] {
        RecordCoder(coder: .json)
    }
}

extension RecordCoder where Value: Codable {
    static var single: RecordCoder {
        let list = Coder<[Value]>.json
        return RecordCoder(
            coder: Coder(
                encode: { try list.encode([$0]) },
                decode: { data in
                    guard let first = try list.decode(data).first, !isNil(first) else {
                        throw DecodingError.dataCorrupted(
                            .init(codingPath: [], debugDescription: "the record has no value"))
                    }
                    return first
                }))
    }
}

/// Whether the value is an optional that is nil.
func isNil(_ value: some Sendable) -> Bool { (value as? any OptionalValue)?.isNil ?? false }

private protocol OptionalValue {
    var isNil: Bool { get }
}
extension Optional: OptionalValue {
    var isNil: Bool { if case .none = self { true } else { false } }
}
