#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

/// How a cache's keys and tags become the store's, apart from those of other caches in it:
///
///     key = name length (1), name, kind (1), bytes
///     tag = "length:name" and the tag; of the whole cache: nothing behind the name
///
/// Both lengths are of the name in UTF-8, so that no name is another's beginning.
@usableFromInline
struct KeySpace<Key: Hashable & Codable & Sendable>: Sendable {
    /// What every entry of the cache carries.
    let tag: String
    @usableFromInline let prefix: [UInt8]
    @usableFromInline let encoding = KeyEncoding<Key>.standard

    init(name: String) throws(ShaleError) {
        guard let length = UInt8(exactly: name.utf8.count) else {
            throw ShaleError(
                code: .invalid, message: "the cache's name has \(name.utf8.count) bytes; it has at most 255")
        }
        tag = "\(length):\(name)"
        prefix = [length] + name.utf8 + [encoding.kind]
    }

    @inlinable
    func encode(_ key: Key) throws -> [UInt8] {
        var bytes = prefix
        try encoding.append(key, &bytes)
        return bytes
    }

    /// Nil for what is another cache's.
    func decode(_ bytes: UnsafeRawBufferPointer) -> Key? {
        bytes.starts(with: prefix) ? encoding.decode(Array(bytes.dropFirst(prefix.count))) : nil
    }
}

/// The bytes of a type of key. They stay the same from one version of a program to the next.
@usableFromInline
struct KeyEncoding<Key: Sendable>: Sendable {
    /// Tells types of key apart, should a name be used for several.
    let kind: UInt8
    @usableFromInline let append: @Sendable (Key, inout [UInt8]) throws -> Void
    let decode: @Sendable ([UInt8]) -> Key?

    fileprivate init(
        _ kind: Unicode.Scalar, append: @escaping @Sendable (Key, inout [UInt8]) throws -> Void,
        decode: @escaping @Sendable ([UInt8]) -> Key?
    ) {
        self.kind = UInt8(ascii: kind)
        self.append = append
        self.decode = decode
    }
}

extension KeyEncoding where Key: Codable {
    static var standard: KeyEncoding {
        let compact: [Any] = [
            text, address, identifier, data, bytes,
            signed(Int.self), signed(Int64.self), signed(Int32.self), signed(Int16.self), signed(Int8.self),
            unsigned(UInt.self), unsigned(UInt64.self), unsigned(UInt32.self), unsigned(UInt16.self),
            unsigned(UInt8.self),
        ]
        return compact.lazy.compactMap { $0 as? KeyEncoding }.first ?? json
    }

    /// JSON with sorted keys: the same bytes for equal keys, unless they hold a `Set`, or a `Dictionary`
    /// whose keys are neither strings nor integers. Those have no order of their own.
    private static var json: KeyEncoding {
        KeyEncoding("j") { key, bytes in
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
            bytes += try encoder.encode(key)
        } decode: {
            try? JSONDecoder().decode(Key.self, from: Data($0))
        }
    }
}

private let text = KeyEncoding<String>("s") {
    $1 += $0.utf8
} decode: {
    String(validating: $0, as: UTF8.self)
}
/// The absolute string: a relative URL is what it leads to.
private let address = KeyEncoding<URL>("a") {
    $1 += $0.absoluteString.utf8
} decode: {
    String(validating: $0, as: UTF8.self).flatMap(URL.init(string:))
}
private let data = KeyEncoding<Data>("d") {
    $1 += $0
} decode: {
    Data($0)
}
private let bytes = KeyEncoding<[UInt8]>("b") {
    $1 += $0
} decode: {
    $0
}
private let identifier = KeyEncoding<UUID>("u") { id, bytes in
    withUnsafeBytes(of: id.uuid) { bytes += $0 }
} decode: { bytes in
    if bytes.count != MemoryLayout<uuid_t>.size { return nil }
    return UUID(uuid: bytes.withUnsafeBytes { $0.loadUnaligned(as: uuid_t.self) })
}

/// Zigzag: numbers near zero are short, and a key stays the same when its type grows.
private func signed<I: FixedWidthInteger & SignedInteger & Sendable>(_: I.Type) -> KeyEncoding<I> {
    KeyEncoding("i") { number, bytes in
        let wide = Int64(number)
        bytes.append(leb128: UInt64(bitPattern: wide << 1 ^ wide >> 63))
    } decode: { bytes in
        var rest = bytes[...]
        guard let folded = rest.popLEB128(), rest.isEmpty else { return nil }
        return I(exactly: Int64(bitPattern: folded >> 1) ^ -Int64(folded & 1))
    }
}

private func unsigned<I: FixedWidthInteger & UnsignedInteger & Sendable>(_: I.Type) -> KeyEncoding<I> {
    KeyEncoding("n") {
        $1.append(leb128: UInt64($0))
    } decode: { bytes in
        var rest = bytes[...]
        guard let number = rest.popLEB128(), rest.isEmpty else { return nil }
        return I(exactly: number)
    }
}
