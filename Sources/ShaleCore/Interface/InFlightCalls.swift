#if !hasFeature(Embedded)
import CShalePlatform
import Synchronization

/// Counts the calls under way in a store, so that its close waits for them and admits none afterwards.
///
/// Each thread counts in one of several cache lines, so that threads rarely share one.
struct InFlightCalls: ~Copyable, @unchecked Sendable {
    private static let stripes = 32, line = 64
    private let counts: UnsafeMutableRawPointer
    private let isClosed = Atomic(false)
    /// A forked child has its parent's counts, and no threads that would decrement them.
    private let process = shim_sys_process()

    init() {
        counts = .allocate(byteCount: InFlightCalls.stripes * InFlightCalls.line, alignment: InFlightCalls.line)
        for i in 0..<InFlightCalls.stripes {
            (counts + i * InFlightCalls.line).bindMemory(to: Atomic<Int>.self, capacity: 1).initialize(to: Atomic(0))
        }
    }

    deinit { counts.deallocate() }

    @inline(__always)
    private func count(at stripe: Int) -> UnsafeMutablePointer<Atomic<Int>> {
        (counts + stripe &* InFlightCalls.line).assumingMemoryBound(to: Atomic<Int>.self)
    }

    @inline(__always)
    private var own: UnsafeMutablePointer<Atomic<Int>> {
        count(at: Int(truncatingIfNeeded: (shim_thread_number() &* 0x9E37_79B1) >> 12) & (InFlightCalls.stripes - 1))
    }

    /// Returns false once the store is closed. An admitted call leaves on the same thread.
    @inline(__always)
    func enter() -> Bool {
        // Counted before the check: a closing thread sees the count, or this one sees the flag.
        own.pointee.add(1, ordering: .sequentiallyConsistent)
        if !isClosed.load(ordering: .sequentiallyConsistent) { return true }
        leave()
        return false
    }

    @inline(__always)
    func leave() { own.pointee.subtract(1, ordering: .releasing) }

    /// Returns when no call is under way, and none will be; false if it was closed before.
    func close() -> Bool {
        if isClosed.exchange(true, ordering: .sequentiallyConsistent) { return false }
        guard shim_sys_process() == process else { return true }
        for stripe in 0..<InFlightCalls.stripes {
            while count(at: stripe).pointee.load(ordering: .sequentiallyConsistent) != 0 { shim_sleep_us(1000) }
        }
        return true
    }
}
#endif
