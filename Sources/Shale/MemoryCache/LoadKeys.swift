import Synchronization

/// The keys of the loads under way, and of the calls that decide whether to begin one.
///
/// Equal keys share one object while it is referenced, so that loads are found by its identity: no code of a key runs
/// under a lock.
@usableFromInline
final class LoadKeys<Key: Hashable>: @unchecked Sendable {
    /// The identity finds the slot of an object that is being freed.
    private struct Slot {
        let identity: ObjectIdentifier
        weak var object: LoadKey<Key>?
    }
    // `lock` guards it. No reference that is taken under it ends under it: that could be the last one.
    @exclusivity(unchecked) private var slots: [Int: [Slot]] = [:]
    private let lock = Mutex(())
    private let count = Atomic(0)

    var isEmpty: Bool { count.load(ordering: .sequentiallyConsistent) == 0 }

    func object(for key: Key) -> LoadKey<Key> {
        var seen: [LoadKey<Key>] = []
        while true {
            if let same = seen.first(where: { $0.key == key }) { return same }
            let new = LoadKey(key, in: self)
            let present = objects(new.hash) { present in
                if !present.allSatisfy({ object in seen.contains { $0 === object } }) { return }
                self.slots[new.hash, default: []].append(Slot(identity: ObjectIdentifier(new), object: new))
                self.count.add(1, ordering: .sequentiallyConsistent)
                new.isShared = true
            }
            if new.isShared { return new }
            seen = present
        }
    }

    /// A load of the key that has begun stores nothing. Called before the change, so that one that has stored before
    /// is overwritten.
    @usableFromInline
    func change(_ key: Key) {
        // A load that begins from here on has not read its origin yet.
        if isEmpty { return }
        objects(key.hashValue) { _ in }.first { $0.key == key }?.change()
    }

    func changeAll() {
        var all: [LoadKey<Key>] = []
        lock.withLock { _ in all = slots.values.joined().compactMap(\.object) }
        for object in all { object.change() }
    }

    fileprivate func remove(_ object: LoadKey<Key>) {
        let identity = ObjectIdentifier(object)
        lock.withLock { _ in
            slots[object.hash]?.removeAll { $0.identity == identity }
            if slots[object.hash]?.isEmpty == true { slots[object.hash] = nil }
        }
        count.subtract(1, ordering: .sequentiallyConsistent)
    }

    /// The objects with the hash, to which `body` may add one under the lock.
    private func objects(_ hash: Int, _ body: ([LoadKey<Key>]) -> Void) -> [LoadKey<Key>] {
        var found: [LoadKey<Key>] = []
        lock.withLock { _ in
            found = slots[hash, default: []].compactMap(\.object)
            body(found)
        }
        return found
    }
}

/// A key that may be loaded. It is equal only to itself.
@usableFromInline
final class LoadKey<Key: Hashable>: Hashable, @unchecked Sendable {
    let key: Key
    let hash: Int
    private let keys: LoadKeys<Key>
    /// Set before other threads see the object.
    fileprivate(set) var isShared = false
    private let changed = Atomic(0)

    fileprivate init(_ key: Key, in keys: LoadKeys<Key>) {
        self.key = key
        self.keys = keys
        hash = key.hashValue
    }

    deinit { if isShared { keys.remove(self) } }

    /// Grows with each change of the key's entry by a caller.
    var changes: Int { changed.load(ordering: .sequentiallyConsistent) }
    fileprivate func change() { changed.add(1, ordering: .sequentiallyConsistent) }

    @usableFromInline
    static func == (a: LoadKey, b: LoadKey) -> Bool { a === b }
    @usableFromInline
    func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
