import ShaleCore

/// The calls into the cache, in one place.
struct CacheClient {
    enum Answer {
        case missing
        case found(hasAge: Bool)  // and `bytes` has the value
        case failed(String)
    }

    init(directory: String, capacity: UInt64) { fatalError() }
    var bytes: UnsafeRawBufferPointer { fatalError() }
    mutating func get(_ key: UnsafeRawBufferPointer) -> Answer { fatalError() }
    mutating func set(_ key: UnsafeRawBufferPointer, to value: UnsafeRawBufferPointer) -> String? { fatalError() }
    func invalidate(_ tag: String) -> String? { fatalError() }
    mutating func close() -> String? { nil }
}
