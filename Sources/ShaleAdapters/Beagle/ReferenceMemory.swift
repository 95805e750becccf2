import Shale
import Synchronization

/// The references that a ``CacheManager`` has in memory, the least recently used leaving first, exactly. Its disk manager knows it,
/// so that what leaves the disk by that is gone here as well.
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

    /// How often something was removed.
    var removals: Int { state.withLock { $0.removals } }

    /// The reference, which becomes the most recently used.
    func use(_ identifier: String) -> CacheReference? { state.withLock { $0.items.use(identifier)?.reference } }

    /// Keeps the reference, unless one is there that was stored later, or something was removed since: that may have been
    /// meant. Without a version, as it is not on disk, it replaces what is there.
    func insert(_ reference: CacheReference, version: UInt64?, since removals: Int) {
        guard capacity > 0 else { return }
        // What leaves is released behind the lock.
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
