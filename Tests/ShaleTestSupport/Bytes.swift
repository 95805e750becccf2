/// What tests use as key, value, meta or tag: bytes, or a string's UTF-8.
public protocol Bytes: Sendable {
    var bytes: [UInt8] { get }
}

extension String: Bytes {
    public var bytes: [UInt8] { Array(utf8) }
}

extension Array: Bytes where Element == UInt8 {
    public var bytes: [UInt8] { self }
}

extension FixedWidthInteger {
    /// The bytes of an integer, least significant first: what shale_increment reads and writes.
    public var littleEndianBytes: [UInt8] {
        withUnsafeBytes(of: littleEndian) { Array($0) }
    }
}

/// The integer that eight little-endian bytes stand for, or nil for another length.
public func integer(_ bytes: [UInt8]) -> Int64? {
    guard bytes.count == 8 else { return nil }
    var result: UInt64 = 0
    for (position, byte) in bytes.enumerated() { result |= UInt64(byte) << (8 * position) }
    return Int64(bitPattern: result)
}
