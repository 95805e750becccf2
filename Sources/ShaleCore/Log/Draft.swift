import CShalePlatform

/// A record that is about to be appended.
struct Draft {
    var record: RecordHeader
    var keyHash: UInt64
    var lifetime = Lifetime.forever
    var tags: UnsafePointer<UInt64>?
    var key: UnsafeRawPointer
    var meta: UnsafeRawPointer
    var stored: UnsafeRawPointer
    var bodyHash: UInt64

    init(
        _ record: RecordHeader, keyHash: UInt64, key: UnsafeRawPointer, meta: UnsafeRawPointer? = nil,
        stored: UnsafeRawPointer? = nil, bodyHash: UInt64 = 0
    ) {
        self.record = record
        self.keyHash = keyHash
        self.key = key
        self.meta = meta ?? key
        self.stored = stored ?? key
        self.bodyHash = bodyHash
    }
}
