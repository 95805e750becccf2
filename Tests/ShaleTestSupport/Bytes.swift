import Foundation

/// A key, value, meta or tag in a test: bytes, or a string's UTF-8.
public protocol Bytes: Sendable {
    var bytes: [UInt8] { get }
}

extension String: Bytes {
    public var bytes: [UInt8] { Array(utf8) }
}

extension Array: Bytes where Element == UInt8 {
    public var bytes: [UInt8] { self }
}

/// Many bytes: compared as a whole and shown abbreviated. (A failed comparison of arrays is explained element by
/// element, which takes minutes for a value of a megabyte.)
public struct Blob: Bytes, Hashable, CustomStringConvertible {
    public let bytes: [UInt8]

    public init(_ bytes: some Bytes) { self.bytes = bytes.bytes }
    public init(copying bytes: some Sequence<UInt8>) { self.bytes = Array(bytes) }

    public var count: Int { bytes.count }
    public var isEmpty: Bool { bytes.isEmpty }

    public var description: String {
        if bytes.count <= 16 { return "\(bytes)" }
        return "\(bytes.count) bytes \(bytes.prefix(12))… of hash \(UInt(bitPattern: bytes.hashValue) % 10_000)"
    }

    public static func == (left: Blob, right: Blob) -> Bool { left.bytes == right.bytes }
    public static func == (left: Blob, right: [UInt8]) -> Bool { left.bytes == right }
    public static func != (left: Blob, right: [UInt8]) -> Bool { left.bytes != right }
}

extension FixedWidthInteger {
    /// The bytes of an integer, least significant first, as shale_increment reads and writes them.
    public var littleEndianBytes: [UInt8] {
        withUnsafeBytes(of: littleEndian) { Array($0) }
    }
}

/// The integer that eight little-endian bytes stand for, or nil for another length.
public func integer(_ value: some Bytes) -> Int64? {
    let bytes = value.bytes
    guard bytes.count == 8 else { return nil }
    var result: UInt64 = 0
    for (position, byte) in bytes.enumerated() { result |= UInt64(byte) << (8 * position) }
    return Int64(bitPattern: result)
}

/// Whether two buffers hold the same bytes: memcmp, which unlike elementsEqual is quick in a debug build too.
public func same(_ left: UnsafeRawBufferPointer, _ right: UnsafeRawBufferPointer) -> Bool {
    left.count == right.count && (left.isEmpty || memcmp(left.baseAddress!, right.baseAddress!, left.count) == 0)
}
