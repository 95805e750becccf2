import Shale
import Synchronization

/// The references that a ``CacheManager`` has in memory, in exact LRU order. The disk manager shares it, so that its
/// removals also apply to memory.
final class ReferenceMemory: Sendable {
    private struct Item {
        let reference: CacheReference
        let version: UInt64
    }

    private struct State {
        var items = RecencyList<String, Item>()
        var removals = 0
    }

    private let capacity: Int
    private let state = Mutex(State())

    init(capacity: Int) { self.capacity = capacity }

    /// The number of removals.
    var removals: Int { state.withLock { $0.removals } }

    /// Returns the reference and makes it the most recently used.
    func use(_ identifier: String) -> CacheReference? { state.withLock { $0.items.use(identifier)?.reference } }

    /// Keeps the reference, unless a later one is present, or there was a removal since, which may have been of this
    /// reference. Without a version, which means that it is not on disk, it replaces any other.
    func insert(_ reference: CacheReference, version: UInt64?, since removals: Int) {
        guard capacity > 0 else { return }
        // Returned items are freed after the lock is released.
        _ = state.withLock { state -> [Item] in
            let present = state.items.use(reference.identifier)
            let version = version ?? present?.version ?? 0
            guard state.removals == removals, present.map({ $0.version <= version }) ?? true else { return [] }
            var left = [state.items.remove(reference.identifier)]
            while state.items.count >= capacity { left.append(state.items.removeLast()) }
            state.items.add(Item(reference: reference, version: version), for: reference.identifier)
            return left.compactMap(\.self)
        }
    }

    func remove(_ identifier: String) {
        _ = state.withLock { state in
            state.removals += 1
            return state.items.remove(identifier)
        }
    }

    func removeAll() {
        _ = state.withLock { state in
            let all = state.items
            state.removals += 1
            state.items = RecencyList()
            return all
        }
    }
}
