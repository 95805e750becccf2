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
    @inline(__always) var fraction: UInt32 { UInt32(truncatingIfNeeded: hash) }
}
