#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

/// Encodes values to bytes and decodes them. Both closures are called from any thread, concurrently.
///
/// If `decode` throws, the read is a miss, see ``Cache/Options/removesUndecodable``.
public struct Coder<Value: Sendable>: Sendable {
    public let encode: @Sendable (Value) throws -> Data
    public let decode: @Sendable (Data) throws -> Value

    public init(encode: @escaping @Sendable (Value) throws -> Data, decode: @escaping @Sendable (Data) throws -> Value)
    {
        self.encode = encode
        self.decode = decode
    }
}

extension Coder where Value: Codable {
    /// `Data`, `[UInt8]` and `String` as their own bytes, all other types as JSON.
    public static var standard: Coder {
        let raw: [Any] = [
            Coder<Data>(encode: { $0 }, decode: { $0 }),
            Coder<[UInt8]>(encode: { Data($0) }, decode: { Array($0) }),
            Coder<String>(
                encode: { Data($0.utf8) },
                decode: { data in
                    guard let text = String(validating: data, as: UTF8.self) else {
                        throw DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: "not UTF-8"))
                    }
                    return text
                }),
        ]
        return raw.lazy.compactMap { $0 as? Coder }.first ?? .json
    }

    /// JSON, also for `Data`, `[UInt8]` and `String`. NaN and infinities are "nan", "inf" and "-inf".
    public static var json: Coder {
        Coder(
            encode: { try jsonEncoder.encode($0) },
            decode: { try jsonDecoder.decode(Value.self, from: $0) })
    }
}

// Creating a coder takes as long as coding a small value. They are immutable, so all threads share them.
private let jsonEncoder = JSONEncoder.ofCaches, jsonDecoder = JSONDecoder.ofCaches

extension JSONEncoder {
    static var ofCaches: JSONEncoder {
        let encoder = JSONEncoder()
        encoder.nonConformingFloatEncodingStrategy = .convertToString(
            positiveInfinity: "inf", negativeInfinity: "-inf", nan: "nan")
        return encoder
    }
}

extension JSONDecoder {
    static var ofCaches: JSONDecoder {
        let decoder = JSONDecoder()
        decoder.nonConformingFloatDecodingStrategy = .convertFromString(
            positiveInfinity: "inf", negativeInfinity: "-inf", nan: "nan")
        return decoder
    }
}

extension Data: StoreBytes {}
