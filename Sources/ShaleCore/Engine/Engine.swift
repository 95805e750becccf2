import CShalePlatform

/// An open cache, on which every interface is built.
///
/// A copyable reference to raw memory; any thread may call every function until `close`. Errors leave their message in
/// the thread's error slot.
public struct Engine: @unchecked Sendable {
    let ref: EngineRef

    init(_ ref: EngineRef) { self.ref = ref }
    public init(opaque: OpaquePointer) { ref = EngineRef(opaque) }
    public var opaque: OpaquePointer { OpaquePointer(ref) }

    // MARK: Keys and ages

    @inline(__always)
    func key(_ bytes: Bytes) throws(Failure) -> Key {
        if UInt(bitPattern: bytes.count &- 1) >= UInt(Limits.keyLength) { throw Engine.badKey(bytes.count) }
        return Key(bytes, secret: ref.pointee.secret)
    }
    @inline(never)
    private static func badKey(_ count: Int) -> Failure {
        if count == 0 { return Failure.because(.invalid, "the key is empty; a key has 1 to 65,535 bytes") }
        return Message().adding("the key has ").adding(count).adding(" bytes; a key has at most 65,535").failure(
            .tooLarge)
    }

    func tag(_ bytes: Bytes) throws(Failure) -> UInt64 {
        if bytes.count == 0 { throw Failure.because(.invalid, "the tag is empty; a tag has 1 to 65,535 bytes") }
        if bytes.count > Limits.keyLength {
            throw Message().adding("the tag has ").adding(bytes.count).adding(" bytes; a tag has at most 65,535")
                .failure(.invalid)
        }
        // 0 is a free cell of the tag table.
        return max(1, shim_hash(bytes.start, bytes.count, ~ref.pointee.secret))
    }

    func ages(_ maxAge: Int64, _ stale: Int64) throws(Failure) -> (maxAge: Int64, stale: Int64) {
        guard Configuration.isAge(maxAge), Configuration.isAge(stale) else {
            throw Failure.because(.invalid, "an age is negative; use 0 for the default, SHALE_NEVER or SHALE_NONE")
        }
        return (maxAge == 0 ? ref.pointee.maxAge : maxAge, stale == 0 ? ref.pointee.stale : stale)
    }

    // MARK: Counters

    @inline(__always)
    func count(_ field: Int) {
        if !ref.pointee.isReadOnly { countAsWriter(field) }
    }
    /// Needs a handle that may write. Returns the count of this thread's stripe before.
    @inline(__always) @discardableResult
    func countAsWriter(_ field: Int) -> UInt64 {
        let stripe = Int(truncatingIfNeeded: (shim_thread_number() &* 0x9E37_79B1) >> 12) & (IndexHead.stripes - 1)
        return shim_add64(ref.pointee.index + (IndexHead.counters &+ stripe &* 64 &+ field), 1)
    }
}
