#if !hasFeature(Embedded)
import CShalePlatform
import Synchronization

/// Counts the calls that are under way in a store, so that its close waits for them, and lets none in after it.
///
/// Each thread counts in one of several cache lines, so that threads rarely share one.
struct CallGate: ~Copyable, @unchecked Sendable {
    private static let stripes = 32, line = 64
    private let counts: UnsafeMutableRawPointer
    private let isClosed = Atomic(false)
    /// A forked child has its parent's counts, and nobody who would count down again.
    private let process = shim_sys_process()

    init() {
        counts = .allocate(byteCount: CallGate.stripes * CallGate.line, alignment: CallGate.line)
        for i in 0..<CallGate.stripes {
            (counts + i * CallGate.line).bindMemory(to: Atomic<Int>.self, capacity: 1).initialize(to: Atomic(0))
        }
    }

    deinit { counts.deallocate() }

    @inline(__always)
    private func count(at stripe: Int) -> UnsafeMutablePointer<Atomic<Int>> {
        (counts + stripe &* CallGate.line).assumingMemoryBound(to: Atomic<Int>.self)
    }

    @inline(__always)
    private var own: UnsafeMutablePointer<Atomic<Int>> {
        count(at: Int(truncatingIfNeeded: (shim_thread_number() &* 0x9E37_79B1) >> 12) & (CallGate.stripes - 1))
    }

    /// False once the gate is closed. A call that was let in leaves, on the same thread.
    @inline(__always)
    func enter() -> Bool {
        // Before the look: whoever closes either sees the count, or is seen.
        own.pointee.add(1, ordering: .sequentiallyConsistent)
        if !isClosed.load(ordering: .sequentiallyConsistent) { return true }
        leave()
        return false
    }

    @inline(__always)
    func leave() { own.pointee.subtract(1, ordering: .releasing) }

    /// Returns when no call is under way, and none will be; false where somebody else has closed it before.
    func close() -> Bool {
        if isClosed.exchange(true, ordering: .sequentiallyConsistent) { return false }
        guard shim_sys_process() == process else { return true }
        for stripe in 0..<CallGate.stripes {
            while count(at: stripe).pointee.load(ordering: .sequentiallyConsistent) != 0 { shim_sleep_us(1000) }
        }
        return true
    }
}
#endif
