import CShalePlatform

/// The key of a call, hashed once.
struct Key {
    let bytes: UnsafeRawPointer
    let length: Int
    let hash: UInt64

    @inline(__always) init(_ key: Bytes, secret: UInt64) {
        bytes = key.start
        length = key.count
        hash = shim_hash_short(bytes, length, secret)
    }
    init(bytes: UnsafeRawPointer, length: Int, hash: UInt64) {
        self.bytes = bytes
        self.length = length
        self.hash = hash
    }
    @inline(__always) var hashBits: UInt32 { UInt32(truncatingIfNeeded: hash) }
}

extension PartKey {
    /// As the key of a call.
    @inline(__always)
    func withKey<R, E: Error>(_ secret: UInt64, _ body: (Key) throws(E) -> R) throws(E) -> R {
        var words = self.words
        return try withUnsafeBytes(of: &words) { bytes throws(E) in try body(Key(bytes, secret: secret)) }
    }
}
