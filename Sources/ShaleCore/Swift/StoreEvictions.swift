#if !hasFeature(Embedded)
import CShalePlatform
import Synchronization

/// Those who want to know what a store evicts.
final class EvictionObservers: Sendable {
    typealias Observer = @Sendable (_ key: UnsafeRawBufferPointer) -> Void

    private let observers = Mutex<[Int: Observer]>([:])
    private let next = Atomic(0)
    /// So that a store that nobody observes takes no lock.
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
    func tell(_ key: UnsafeRawBufferPointer) {
        for observer in observers.withLock({ Array($0.values) }) { observer(key) }
    }
}

extension Store {
    /// Calls `observer` with the key of each entry that this object evicts to make room, until `stopObserving`. It is called
    /// under a shard's lock: it must be quick, and must not use the store.
    package func observeEvictions(_ observer: @escaping @Sendable (_ key: UnsafeRawBufferPointer) -> Void) -> Int {
        evictionObservers.add(observer)
    }
    package func stopObserving(_ id: Int) { evictionObservers.remove(id) }
}

extension Shard {
    func announceEviction(of location: UInt32) {
        guard let observers = engine.pointee.evictionObservers?.takeUnretainedValue(), !observers.isEmpty, isSound(location) else { return }
        let p = address(location), record = RecordHeader(at: p)
        guard record.isPlausible(room: segmentSize - offsetInSegment(location)) else { return }
        observers.tell(UnsafeRawBufferPointer(start: p + record.keyOffset, count: record.keyLength))
    }
}
#endif
