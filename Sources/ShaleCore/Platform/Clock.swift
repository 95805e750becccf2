import CShalePlatform

/// Wall-clock milliseconds since 1970, the caller's or the system's.
struct Clock: Sendable {
    typealias Function = @convention(c) (UnsafeMutableRawPointer?) -> Int64
    var function: Function?
    nonisolated(unsafe) var context: UnsafeMutableRawPointer?

    @inline(__always) var now: Int64 { function.map { shim_call_clock($0, context) } ?? shim_now_ms() }
    /// As kept in records: 48 bits.
    @inline(__always) var now48: UInt64 { Time48.point(now) }

    /// Whether the point is certainly ahead, by a cheap clock whose ticks are never a second late.
    @inline(__always) func isWellBefore(_ point: UInt64) -> Bool {
        function == nil && Time48.point(shim_recent_ms()) &+ 1000 < point
    }
}

/// Points in time as records store them, 48-bit milliseconds since 1970, and the codes of ages that are no duration.
enum Time48 {
    static let never = Int64.max
    static let none: Int64 = -1
    static let neverPoint: UInt64 = (1 << 48) - 1

    @inline(__always) static func point(_ ms: Int64) -> UInt64 {
        ms <= 0 ? 0 : ms >= Int64(Time48.neverPoint) ? Time48.neverPoint - 1 : UInt64(ms)
    }
    /// Returns the point `age` after `start`; `never` for points beyond 48 bits.
    @inline(__always) static func after(_ start: UInt64, age: Int64) -> UInt64 {
        if age == never { return Time48.neverPoint }
        if age <= 0 { return start }
        let sum = start &+ UInt64(age)
        return sum >= Time48.neverPoint || sum < start ? Time48.neverPoint : sum
    }
    @inline(__always) static func publicPoint(_ ms: UInt64) -> Int64 { ms == Time48.neverPoint ? never : Int64(ms) }
}
