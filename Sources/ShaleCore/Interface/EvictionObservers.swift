#if !hasFeature(Embedded)
import CShalePlatform
import Synchronization

/// The observers of a store's evictions.
final class EvictionObservers: Sendable {
    typealias Observer = @Sendable (_ key: [UInt8]) -> Void

    private let observers = Mutex<[Int: Observer]>([:])
    private let next = Atomic(0)
    private let pending = Mutex<[[UInt8]]>([])
    private let hasPending = Atomic(false)
    /// So that a store without observers takes no lock.
    private let count = Atomic(0)

    func add(_ observer: @escaping Observer) -> Int {
        let id = next.add(1, ordering: .relaxed).newValue
        observers.withLock { $0[id] = observer }
        count.add(1, ordering: .relaxed)
        return id
    }

    func remove(_ id: Int) {
        guard observers.withLock({ $0.removeValue(forKey: id) }) != nil else { return }
        count.subtract(1, ordering: .relaxed)
    }

    var isEmpty: Bool { count.load(ordering: .relaxed) == 0 }

    /// Records an evicted key, under a shard's lock.
    func note(_ key: UnsafeRawBufferPointer) {
        pending.withLock { $0.append(Array(key)) }
        hasPending.store(true, ordering: .relaxed)
    }

    /// Calls the observers, after the lock.
    func tell() {
        guard hasPending.load(ordering: .relaxed) else { return }
        let keys = pending.withLock { pending in
            defer { pending = [] }
            hasPending.store(false, ordering: .relaxed)
            return pending
        }
        for observer in observers.withLock({ Array($0.values) }) {
            for key in keys { observer(key) }
        }
    }
}

extension EvictionObservers {
    /// The engine's listener, valid while this object lives.
    var listener: EvictionListener {
        EvictionListener(
            isListening: { !Unmanaged<EvictionObservers>.fromOpaque($0).takeUnretainedValue().isEmpty },
            note: {
                Unmanaged<EvictionObservers>.fromOpaque($0).takeUnretainedValue().note(
                    UnsafeRawBufferPointer(start: $1, count: $2))
            },
            context: UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque()))
    }
}
#endif
