#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

/// Methods that visit many entries or wait for the disk. Tasks call them by way of ``Cache/onThread(_:)``.
extension Cache {
    /// Whether there is a fresh value. Does not read, decode or count it, nor count as a use.
    public func contains(_ key: Key) throws(ShaleError) -> Bool {
        guard let known = try store.entry(for: try stored(key)) else { return false }
        return !Meta.isMissing(known.meta)
    }

    /// The keys of all fresh entries, in no particular order. Reads the whole store.
    public func allKeys() throws(ShaleError) -> [Key] {
        var found = Set<Key>()
        try forEachFresh { key, _, _ in
            found.insert(key)
            return true
        }
        return Array(found)
    }

    /// The number of fresh entries. Reads the whole store.
    public func count() throws(ShaleError) -> Int { try allKeys().count }

    /// Removes the fresh entries that satisfy the predicate and returns their number. An entry that is replaced after
    /// the predicate has seen it stays. Reads the whole store.
    @discardableResult
    public func removeAll(where shouldBeRemoved: (Key, Value) throws -> Bool) throws -> Int {
        var removed = 0
        var failure: (any Error)?
        try forEachFresh { key, known, bytes in
            do {
                guard let value = try? coder.decode(Data(bytes)), try shouldBeRemoved(key, value) else { return true }
                if try removeValue(for: key, ifVersion: known.version) { removed += 1 }
            } catch { failure = error }
            return failure == nil
        }
        if let failure { throw failure }
        return removed
    }

    /// Stores values one after the other; of several values for one key, the last one stays. After an error, the values
    /// before the failed one are stored.
    public func insert(
        contentsOf values: some Sequence<(key: Key, value: Value)>, maxAge: Age? = nil, tags: [String] = []
    ) throws(ShaleError) {
        for (key, value) in values { try insert(value, for: key, maxAge: maxAge, tags: tags) }
    }

    /// Returns when all earlier writes are safe from a power failure, see `Store.sync()`.
    public func sync() throws(ShaleError) { try store.sync() }

    /// Stops when the body returns false. (Distinct stored keys may decode to equal keys.)
    private func forEachFresh(_ body: (Key, Store.Entry, UnsafeRawBufferPointer) -> Bool) throws(ShaleError) {
        try store.forEach { bytes, known, value in
            guard !Meta.isMissing(known.meta), let key = keys.decode(bytes) else { return true }
            return body(key, known, value)
        }
    }
}
