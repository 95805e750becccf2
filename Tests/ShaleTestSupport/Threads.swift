import Foundation
import Synchronization

/// Runs the body on `count` threads, at the same time, and returns when all have returned. (A pool could run them one
/// after the other, and a reader that waits for a writer would wait for ever.)
public func concurrently(_ count: Int, _ body: @escaping @Sendable (Int) -> Void) {
    let group = DispatchGroup()
    for number in 0..<count {
        group.enter()
        let thread = Thread {
            body(number)
            group.leave()
        }
        thread.stackSize = 1 << 20
        thread.start()
    }
    group.wait()
}

/// Findings of threads: expectations belong to the test's own thread, so the others record what they saw and the test
/// checks it at the end.
public final class Findings: Sendable {
    private let list = Mutex<[String]>([])

    public init() {}

    public func add(_ text: @autoclosure () -> String) {
        let text = text()
        list.withLock { if $0.count < 20 { $0.append(text) } }
    }

    public var all: [String] { list.withLock { $0 } }
    public var isEmpty: Bool { all.isEmpty }
}

/// A counter that several threads advance.
public final class Counter: Sendable {
    private let value = Atomic<Int>(0)

    public init() {}

    public func increment() { value.wrappingAdd(1, ordering: .relaxed) }
    public func add(_ amount: Int) { value.wrappingAdd(amount, ordering: .relaxed) }
    public var count: Int { value.load(ordering: .acquiring) }
}

/// Set once, seen by all.
public final class Flag: Sendable {
    private let value = Atomic<Bool>(false)

    public init() {}

    public func raise() { value.store(true, ordering: .sequentiallyConsistent) }
    public var isRaised: Bool { value.load(ordering: .sequentiallyConsistent) }
}
