import Synchronization

/// Sends each element to all streams that are open.
@usableFromInline
final class Broadcast<Element: Sendable>: Sendable {
    private struct State {
        var open: [Int: Listener<Element>] = [:]
        var next = 0
    }
    private let state = Mutex(State())
    /// So that a cache to which nobody listens takes no lock.
    private let hasListeners = Atomic(false)

    @usableFromInline var isHeard: Bool { hasListeners.load(ordering: .relaxed) }

    func stream() -> AsyncStream<Element> {
        let listener = Listener<Element>()
        let id = state.withLock { state in
            state.next += 1
            state.open[state.next] = listener
            hasListeners.store(true, ordering: .relaxed)
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
            hasListeners.store(!state.open.isEmpty, ordering: .relaxed)
            return listener
        }
    }

    @usableFromInline
    func send(_ element: Element) {
        guard isHeard else { return }
        // Under the lock, so that all streams see one order; what that sets going, or releases, waits until it is free.
        let effects = state.withLock { state in state.open.values.map { $0.take(element) } }
        for effect in effects { effect.waiter?.resume(returning: element) }
    }

    func finish() {
        for listener in state.withLock({ $0.open.values.map(\.self) }) { listener.finish() }
    }
}

/// One stream's elements that were not read yet, of which the newest stay.
private final class Listener<Element: Sendable>: Sendable {
    typealias Waiter = CheckedContinuation<Element?, Never>
    /// What becomes of an element that was taken: somebody waited for it, or one is dropped for it.
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

    /// What is unread comes even after the end.
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

/// Ends with its stream: when that is dropped, or its reader cancelled.
private final class Subscription: Sendable {
    let end: @Sendable () -> Void
    init(_ end: @escaping @Sendable () -> Void) { self.end = end }
    deinit { end() }
}

/// First in, first out.
private struct Deque<Element> {
    private var elements: [Element?] = []
    private var start = 0

    var count: Int { elements.count - start }
    var all: [Element] { elements[start...].compactMap(\.self) }

    mutating func append(_ element: Element) { elements.append(element) }

    mutating func popFirst() -> Element? {
        guard start < elements.count else { return nil }
        let first = elements[start].take()
        start += 1
        // As much as is left: each element is moved once, on average.
        if start * 2 >= elements.count {
            elements.removeFirst(start)
            start = 0
        }
        return first
    }
}

extension Deque: Sendable where Element: Sendable {}
