#if !hasFeature(Embedded)
import CShalePlatform
import Synchronization

/// The observers of calls of a store that wait for a lock which another process holds.
final class WaitObservers: Sendable {
    /// Returns whether it has taken notice.
    typealias Observer = @Sendable (_ sentence: String) -> Bool

    private let first: (@Sendable (_ sentence: String) -> Void)?
    private let others = Mutex<[Int: Observer]>([:])
    private let next = Atomic(0)

    init(_ first: (@Sendable (_ sentence: String) -> Void)?) { self.first = first }

    func add(_ observer: @escaping Observer) -> Int {
        let id = next.add(1, ordering: .relaxed).newValue
        others.withLock { $0[id] = observer }
        return id
    }

    func remove(_ id: Int) { _ = others.withLock { $0.removeValue(forKey: id) } }

    /// Runs on the waiting thread. A sentence that no observer takes goes to standard error.
    private func tell(_ sentence: String) {
        var isHeard = first != nil
        first?(sentence)
        for observer in others.withLock({ Array($0.values) }) { isHeard = observer(sentence) || isHeard }
        if isHeard { return }
        _ = Array("shale: \(sentence)\n".utf8).withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }

    /// Becomes the engine's listener. The handle must live no longer than this object.
    func listen(to waits: inout WaitOptions) {
        waits.listener = {
            Unmanaged<WaitObservers>.fromOpaque($0.unsafelyUnwrapped).takeUnretainedValue().tell(String(cString: $1))
        }
        waits.context = Unmanaged.passUnretained(self).toOpaque()
    }
}
#endif
