import Synchronization

/// Sends each element to all streams that are open.
@usableFromInline
final class Broadcast<Element: Sendable>: Sendable {
    private struct State {
        var open: [Int: AsyncStream<Element>.Continuation] = [:]
        var next = 0
    }
    private let state = Mutex(State())
    /// So that a cache to which nobody listens takes no lock.
    private let hasListeners = Atomic(false)

    @usableFromInline var isHeard: Bool { hasListeners.load(ordering: .relaxed) }

    func stream() -> AsyncStream<Element> {
        let (stream, continuation) = AsyncStream.makeStream(of: Element.self, bufferingPolicy: .bufferingNewest(1024))
        let id = state.withLock { state in
            state.next += 1
            state.open[state.next] = continuation
            hasListeners.store(true, ordering: .relaxed)
            return state.next
        }
        continuation.onTermination = { [weak self] _ in
            self?.state.withLock { state in
                state.open[id] = nil
                self?.hasListeners.store(!state.open.isEmpty, ordering: .relaxed)
            }
        }
        return stream
    }

    @usableFromInline
    func send(_ element: Element) {
        guard isHeard else { return }
        // Under the lock, so that all streams see one order.
        state.withLock { state in
            for continuation in state.open.values { continuation.yield(element) }
        }
    }

    func finish() {
        // Outside the lock: a stream that ends takes it.
        for continuation in state.withLock({ $0.open.values }) { continuation.finish() }
    }
}
