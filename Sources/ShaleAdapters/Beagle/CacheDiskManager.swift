#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// The references that a ``CacheManager`` keeps in a directory, in LRU order.
///
/// All methods are safe to call from any thread and from several processes at once. Updates survive the process, even
/// one that is killed; after a power failure, updates up to the last `saveChanges` are present, except references
/// modified, evicted or moved since.
public final class CacheDiskManager: Sendable {
    /// Nil: the capacity is 0.
    private let store: Store?
    /// The memory of the manager that this belongs to.
    private let memory: ReferenceMemory
    private let now: @Sendable () -> Date
    private let onError: @Sendable (ShaleError) -> Void

    /// Opens the directory, creating it and missing parents.
    ///
    /// - Parameters:
    ///   - directory: A file URL on a local file system, for these references only.
    ///   - maximumCapacity: The maximum number of references; together they have at most 1 GiB. 0: none, and the
    ///     directory is not used. Changing it requires that no other process has the directory open. Nil: 150 in a new
    ///     directory, unchanged in an existing one.
    ///   - now: The clock for the creation time of references.
    ///   - onError: Called with the errors of later calls, without a lock held. Beagle's methods do not throw: a call
    ///     that fails finds nothing.
    public convenience init(
        at directory: URL, maximumCapacity: Int? = nil, now: @escaping @Sendable () -> Date = { Date() },
        onError: @escaping @Sendable (ShaleError) -> Void = { _ in }
    ) throws(ShaleError) {
        try self.init(
            at: directory, maximumCapacity: maximumCapacity, memory: ReferenceMemory(capacity: 0), now: now,
            onError: onError)
    }

    /// Without a directory, keeps nothing on disk.
    init(
        at directory: URL?, maximumCapacity: Int?, memory: ReferenceMemory, now: @escaping @Sendable () -> Date,
        onError: @escaping @Sendable (ShaleError) -> Void
    ) throws(ShaleError) {
        if let directory, !directory.isFileURL {
            throw ShaleError(
                code: .invalid,
                message: "\(directory) is not a file URL; give the URL of a directory on a local file system")
        }
        if let maximumCapacity, maximumCapacity < 0 {
            throw ShaleError(
                code: .invalid,
                message:
                    "\(directory?.path ?? "memory"): maximumCapacity is \(maximumCapacity); it must not be negative")
        }
        var options = Store.Options(maxEntries: maximumCapacity ?? CacheManager.Config.diskDefault)
        // Several shards would each have a part of the limit and an order of their own.
        options.shards = 1
        store =
            if let directory, maximumCapacity != 0 {
                try maximumCapacity == nil
                    ? Store.withOwnLimits(at: directory.path, options: options)
                    : Store(at: directory.path, options: options)
            } else { nil }
        self.memory = memory
        self.now = now
        self.onError = onError
    }

    /// Stores the reference with the current time as its creation time, replacing one with the same identifier.
    public func update(_ reference: CacheReference) { store(stamped(reference)) }

    /// Returns the reference and makes it the most recently used.
    public func getReference(for key: String) -> CacheReference? { read(key)?.reference }

    /// The same reference with the current time as its creation time.
    func stamped(_ reference: CacheReference) -> CacheReference {
        CacheReference(
            // Copies a slice, which would keep its whole buffer alive.
            identifier: reference.identifier, data: Data(reference.data), hash: reference.hash,
            maxAge: reference.maxAge,
            timeOfCreation: now())
    }

    /// Returns the version; nil: the reference is not on disk.
    @discardableResult
    func store(_ reference: CacheReference) -> UInt64? {
        attempt { store throws(ShaleError) in
            try store.insert(
                reference.data, for: stored(reference.identifier), maxAge: .forever, meta: try reference.meta())
        } ?? nil
    }

    /// The reference with its version.
    func read(_ key: String) -> (reference: CacheReference, version: UInt64)? {
        let read = attempt { store throws(ShaleError) in
            try store.withValue(for: stored(key)) { known, bytes in
                CacheReference(identifier: key, data: bytes, meta: known.meta).map { ($0, known.version) }
            } ?? nil
        }
        return read ?? nil
    }

    /// Makes a reference the most recently used.
    func use(_ key: String) {
        attempt { store throws(ShaleError) in try store.entry(for: stored(key), peeking: false) }
    }

    /// The number of references on disk.
    public func numberOfReferences() -> Int {
        attempt { store throws(ShaleError) in Int(try store.statistics().entries) } ?? 0
    }

    /// Removes the least recently used reference, also from the memory of the manager that this belongs to.
    public func removeLastUsed() {
        attempt { store throws(ShaleError) in
            let memory = memory
            let observed = store.observeEvictions { memory.remove(identifier(storedAs: $0)) }
            defer { store.stopObserving(observed) }
            try store.evict(1)
        }
    }

    /// Removes all references, also from the memory of the manager that this belongs to.
    public func clear() {
        attempt { store throws(ShaleError) in try store.removeAll() }
        memory.removeAll()
    }

    /// Returns when all earlier updates are safe from a power failure.
    public func saveChanges() {
        attempt { store throws(ShaleError) in try store.sync() }
    }

    /// Equal identifiers have the same key.
    private func stored(_ identifier: String) -> [UInt8] {
        identifier.isEmpty ? emptyIdentifier : [UInt8](canonical: identifier)
    }

    @discardableResult
    private func attempt<R>(_ body: (Store) throws(ShaleError) -> R) -> R? {
        guard let store else { return nil }
        do throws(ShaleError) { return try body(store) } catch {
            onError(error)
            return nil
        }
    }
}

/// The key of the empty identifier, as keys must not be empty. Not UTF-8, so no other identifier has it.
private let emptyIdentifier: [UInt8] = [0xFF]

private func identifier(storedAs key: [UInt8]) -> String {
    key == emptyIdentifier ? "" : String(decoding: key, as: UTF8.self)
}

/// The metadata of a reference, in the store's meta bytes as JSON.
private struct Meta: Codable {
    let hash: String
    let maxAge: Int?
    let timeOfCreation: Date
}

extension CacheReference {
    fileprivate func meta() throws(ShaleError) -> [UInt8] {
        do {
            return Array(try JSONEncoder().encode(Meta(hash: hash, maxAge: maxAge, timeOfCreation: timeOfCreation)))
        } catch {
            throw ShaleError(
                code: .invalid,
                message:
                    "the reference \(identifier) cannot be encoded: its timeOfCreation is not a finite number: \(error)"
            )
        }
    }

    /// Nil for entries of other writers.
    fileprivate init?(identifier: String, data: UnsafeRawBufferPointer, meta: [UInt8]) {
        guard let meta = try? JSONDecoder().decode(Meta.self, from: Data(meta)) else { return nil }
        self.init(
            identifier: identifier, data: Data(data), hash: meta.hash, maxAge: meta.maxAge,
            timeOfCreation: meta.timeOfCreation)
    }
}
