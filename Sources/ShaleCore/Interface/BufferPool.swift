#if !hasFeature(Embedded)
import CShalePlatform
import Synchronization

/// Value buffers that calls borrow, so that reads do not allocate in the steady state. No call waits for the lock: in a
/// forked child it may belong to a thread that exists only in the parent, and stays locked.
final class BufferPool: Sendable {
    private struct Free: @unchecked Sendable {
        var buffers: [ValueBuffer] = []
        var isOver = false
    }
    private let idle = Mutex(Free())
    private static let most = 16, largest = 1 << 20

    deinit { free() }

    func take() -> ValueBuffer { (idle.withLockIfAvailable { $0.buffers.popLast() } ?? nil) ?? ValueBuffer() }
    func give(_ buffer: ValueBuffer) {
        let kept = idle.withLockIfAvailable { free in
            guard !free.isOver, free.buffers.count < BufferPool.most, buffer.capacity <= BufferPool.largest else {
                return false
            }
            free.buffers.append(buffer)
            return true
        }
        if kept != true { shim_free(buffer.data) }
    }
    func free() {
        _ = idle.withLockIfAvailable { free in
            for buffer in free.buffers { shim_free(buffer.data) }
            free.buffers = []
            free.isOver = true
        }
    }
}
#endif
