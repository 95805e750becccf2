#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

/// Maps a cache's keys and tags to keys and tags of the store, separate from those of other caches in it:
///
///     key = name length (1), name, kind (1), bytes; with a schema: …, kind + 128, schema (LEB128), bytes
///     tag = "length:name" and the tag; the tag of the whole cache ends after the name; with a schema: "length.schema:…"
///
/// The length is that of the normalized name in UTF-8; with it no name is a prefix of another. Keys are the same if
/// their bytes are equal.
@usableFromInline
struct KeySpace<Key: Hashable & Codable & Sendable>: Sendable {
    /// The tag that every entry of the cache carries.
    let tag: String
    @usableFromInline let prefix: [UInt8]
    @usableFromInline let encoding = KeyEncoding<Key>.standard

    init(name: String, schema: Int = 0) throws(ShaleError) {
        let name = name.canonical
        guard let length = UInt8(exactly: name.utf8.count) else {
            throw ShaleError(
                code: .invalid, message: "the cache's name has \(name.utf8.count) bytes; it must have at most 255")
        }
        var prefix = [length] + name.utf8
        if schema == 0 {
            tag = "\(length):\(name)"
            prefix.append(encoding.kind)
        } else {
            tag = "\(length).\(schema):\(name)"
            prefix.append(encoding.kind | 128)
            prefix.append(leb128: UInt64(schema))
        }
        self.prefix = prefix
    }

    @inlinable
    func encode(_ key: Key) throws -> [UInt8] {
        var bytes = prefix
        try encoding.append(key, &bytes)
        return bytes
    }

    /// The key in memory for the entry that the store has under `bytes`.
    @inlinable
    func memoryKey(for key: Key, storedAs bytes: [UInt8]) -> MemoryKey<Key> {
        encoding.isCompared ? .compared(key) : .stored(bytes)
    }

    /// Nil for another cache's keys, and for bytes that no key encodes to.
    func decode(_ bytes: UnsafeRawBufferPointer) -> Key? {
        guard bytes.starts(with: prefix), let key = encoding.decode(Array(bytes.dropFirst(prefix.count))),
            let again = try? encode(key), again.elementsEqual(bytes)
        else { return nil }
        return key
    }
}

/// The key of a value in memory: the key itself if `==` agrees with comparing encoded bytes, else the encoded bytes.
@usableFromInline
enum MemoryKey<Key: Hashable & Sendable>: Hashable, Sendable {
    case compared(Key)
    case stored([UInt8])

    @inlinable
    static func == (a: MemoryKey, b: MemoryKey) -> Bool {
        switch (a, b) {
        case (.compared(let a), .compared(let b)): a == b
        case (.stored(let a), .stored(let b)): a == b
        default: false
        }
    }

    @inlinable
    func hash(into hasher: inout Hasher) {
        switch self {
        case .compared(let key): key.hash(into: &hasher)
        case .stored(let bytes): bytes.hash(into: &hasher)
        }
    }
}

/// Encodes a key type: equal keys have equal bytes, and the bytes do not change between versions of a program.
@usableFromInline
struct KeyEncoding<Key: Sendable>: Sendable {
    /// Separates the key types, should one name be used with several.
    let kind: UInt8
    /// Whether `==` agrees with comparing encoded bytes, and a key does not keep a larger buffer alive.
    @usableFromInline let isCompared: Bool
    @usableFromInline let append: @Sendable (Key, inout [UInt8]) throws -> Void
    let decode: @Sendable ([UInt8]) -> Key?

    fileprivate init(
        _ kind: Unicode.Scalar, isCompared: Bool = false,
        append: @escaping @Sendable (Key, inout [UInt8]) throws -> Void,
        decode: @escaping @Sendable ([UInt8]) -> Key?
    ) {
        self.kind = UInt8(ascii: kind)
        self.isCompared = isCompared
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

    private static var json: KeyEncoding {
        KeyEncoding("j") { key, bytes in
            try CanonicalEncoder.append(key, to: &bytes)
        } decode: {
            try? JSONDecoder.ofCaches.decode(Key.self, from: Data($0))
        }
    }
}

private let text = KeyEncoding<String>("s", isCompared: true) {
    $1.append(canonical: $0)
} decode: {
    String(validating: $0, as: UTF8.self)
}
/// The absolute string: a relative URL encodes as its resolved form.
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
private let identifier = KeyEncoding<UUID>("u", isCompared: true) { id, bytes in
    withUnsafeBytes(of: id.uuid) { bytes += $0 }
} decode: { bytes in
    if bytes.count != MemoryLayout<uuid_t>.size { return nil }
    return UUID(uuid: bytes.withUnsafeBytes { $0.loadUnaligned(as: uuid_t.self) })
}

/// Zigzag: numbers near zero are short, and a key keeps its bytes when its type gets wider.
private func signed<I: FixedWidthInteger & SignedInteger & Sendable>(_: I.Type) -> KeyEncoding<I> {
    KeyEncoding("i", isCompared: true) { number, bytes in
        let wide = Int64(number)
        bytes.append(leb128: UInt64(bitPattern: wide << 1 ^ wide >> 63))
    } decode: { bytes in
        var rest = bytes[...]
        guard let folded = rest.popLEB128(), rest.isEmpty else { return nil }
        return I(exactly: Int64(bitPattern: folded >> 1) ^ -Int64(folded & 1))
    }
}

private func unsigned<I: FixedWidthInteger & UnsignedInteger & Sendable>(_: I.Type) -> KeyEncoding<I> {
    KeyEncoding("n", isCompared: true) {
        $1.append(leb128: UInt64($0))
    } decode: { bytes in
        var rest = bytes[...]
        guard let number = rest.popLEB128(), rest.isEmpty else { return nil }
        return I(exactly: number)
    }
}
