import CShale
import Foundation
import Synchronization

/// A wall clock that stands still until a test moves it. Any thread may read and move it.
public final class TestClock: Sendable {
    private let milliseconds: Atomic<Int64>

    /// The default start is an ordinary day that falls on no round boundary.
    public init(_ start: Int64 = 1_700_000_000_123) { milliseconds = Atomic(start) }

    public var now: Int64 { milliseconds.load(ordering: .sequentiallyConsistent) }

    public func set(_ time: Int64) { milliseconds.store(time, ordering: .sequentiallyConsistent) }

    public func advance(_ by: Int64) { milliseconds.wrappingAdd(by, ordering: .sequentiallyConsistent) }

    /// The callback that shale_options wants; its context is the clock itself.
    static let callback: @convention(c) (UnsafeMutableRawPointer?) -> Int64 = { context in
        Unmanaged<TestClock>.fromOpaque(context!).takeUnretainedValue().now
    }
}

/// The system's wall clock, in the units of shale.h.
public func wallClockMilliseconds() -> Int64 {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    return Int64(now.tv_sec) * 1000 + Int64(now.tv_nsec) / 1_000_000
}
