import Synchronization

/// Sends each element to all open streams.
@usableFromInline
final class Broadcast<Element: Sendable>: Sendable {
    private struct State {
        var open: [Int: Listener<Element>] = [:]
        var next = 0
    }
    private let state = Mutex(State())
    /// Lets a cache without listeners skip the lock.
    private let anyListener = Atomic(false)

    @usableFromInline var hasListeners: Bool { anyListener.load(ordering: .relaxed) }

    func stream() -> AsyncStream<Element> {
        let listener = Listener<Element>()
        let id = state.withLock { state in
            state.next += 1
            state.open[state.next] = listener
            anyListener.store(true, ordering: .relaxed)
            return state.next
        }
        let subscription = Subscription { [weak self] in
            listener.finish()
            self?.close(id)
        }
        return AsyncStream {
            await listener.next()
        } onCancel: {
            subscription.end()
        }
    }

    private func close(_ id: Int) {
        _ = state.withLock { state in
            let listener = state.open.removeValue(forKey: id)
            anyListener.store(!state.open.isEmpty, ordering: .relaxed)
            return listener
        }
    }

    @usableFromInline
    func send(_ element: Element) {
        guard hasListeners else { return }
        // Under the lock, so that all streams see one order. Readers resume, and dropped elements are freed, after it.
        let effects = state.withLock { state in state.open.values.map { $0.take(element) } }
        for effect in effects { effect.waiter?.resume(returning: element) }
    }

    func finish() {
        for listener in state.withLock({ $0.open.values.map(\.self) }) { listener.finish() }
    }
}

/// One stream's unread elements. Beyond 1,024 the oldest is dropped.
private final class Listener<Element: Sendable>: Sendable {
    typealias Waiter = CheckedContinuation<Element?, Never>
    /// The result of `take`: the reader to resume with the element, or the old element that it displaced.
    struct Effect: Sendable {
        var waiter: Waiter?
        var dropped: Element?
    }

    private struct State {
        var unread = Deque<Element>()
        var waiters = Deque<Waiter>()
        var isOver = false
    }
    private let state = Mutex(State())

    func take(_ element: Element) -> Effect {
        state.withLock { state in
            if state.isOver { return Effect() }
            if let waiter = state.waiters.popFirst() { return Effect(waiter: waiter) }
            let dropped = state.unread.count == 1024 ? state.unread.popFirst() : nil
            state.unread.append(element)
            return Effect(dropped: dropped)
        }
    }

    /// Returns the unread elements even after the end.
    func next() async -> Element? {
        await withCheckedContinuation { waiter in
            let ready: Element?? = state.withLock { state in
                if let first = state.unread.popFirst() { return first }
                if state.isOver { return .some(nil) }
                state.waiters.append(waiter)
                return nil
            }
            if let ready { waiter.resume(returning: ready) }
        }
    }

    func finish() {
        let waiters = state.withLock { state in
            state.isOver = true
            defer { state.waiters = Deque() }
            return state.waiters
        }
        for waiter in waiters.all { waiter.resume(returning: nil) }
    }
}

/// Ends when its stream is freed or the stream's reader is cancelled.
private final class Subscription: Sendable {
    let end: @Sendable () -> Void
    init(_ end: @escaping @Sendable () -> Void) { self.end = end }
    deinit { end() }
}
