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
/// Both lengths are of the name in UTF-8, which is normalized like a tag, so that no name is another's beginning. Keys are the same if their bytes are.
@usableFromInline
struct KeySpace<Key: Hashable & Codable & Sendable>: Sendable {
    /// What every entry of the cache carries.
    let tag: String
    @usableFromInline let prefix: [UInt8]
    @usableFromInline let encoding = KeyEncoding<Key>.standard

    init(name: String) throws(ShaleError) {
        let name = name.canonical
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

    /// Where memory keeps what the store has under these bytes.
    @inlinable
    func place(of key: Key, storedAs bytes: [UInt8]) -> MemoryKey<Key> {
        encoding.isCompared ? .compared(key) : .stored(bytes)
    }

    /// Nil for what is another cache's, and for what no key encodes to.
    func decode(_ bytes: UnsafeRawBufferPointer) -> Key? {
        guard bytes.starts(with: prefix), let key = encoding.decode(Array(bytes.dropFirst(prefix.count))),
            let again = try? encode(key), again.elementsEqual(bytes)
        else { return nil }
        return key
    }
}

/// What memory keeps a value under: the key itself where `==` says the same of keys as their bytes do, else those.
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

/// The bytes of a type of key: equal for equal keys, and the same from one version of a program to the next.
@usableFromInline
struct KeyEncoding<Key: Sendable>: Sendable {
    /// Tells types of key apart, should a name be used for several.
    let kind: UInt8
    /// Whether `==` says of any two keys what their bytes say, and a key keeps nothing alive that is larger than itself.
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
private let identifier = KeyEncoding<UUID>("u", isCompared: true) { id, bytes in
    withUnsafeBytes(of: id.uuid) { bytes += $0 }
} decode: { bytes in
    if bytes.count != MemoryLayout<uuid_t>.size { return nil }
    return UUID(uuid: bytes.withUnsafeBytes { $0.loadUnaligned(as: uuid_t.self) })
}

/// Zigzag: numbers near zero are short, and a key stays the same when its type grows.
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
