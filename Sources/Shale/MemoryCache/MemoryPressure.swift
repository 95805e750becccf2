#if canImport(Darwin)
import Dispatch

/// Calls a function when the system runs short of memory, until it is freed.
final class MemoryPressure: Sendable {
    private let source = DispatchSource.makeMemoryPressureSource(eventMask: [.warning, .critical])

    func begin(_ relieve: sending @escaping () -> Void) {
        source.setEventHandler(handler: relieve)
        source.activate()
    }

    deinit { source.cancel() }
}
#else
/// This system tells no process when it runs short of memory.
struct MemoryPressure: Sendable {
    func begin(_ relieve: () -> Void) {}
}
#endif
