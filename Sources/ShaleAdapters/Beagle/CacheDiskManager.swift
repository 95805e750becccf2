#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// The references that a ``CacheManager`` keeps in a directory, of which the least recently used leave first.
///
/// Every method may be called from any thread, and from several processes at once. What an update has written survives
/// the process, even one that is killed; after a power cut everything up to the last `saveChanges` is there.
public final class CacheDiskManager: Sendable {
    /// Nil: the capacity is 0.
    private let store: Store?
    /// Of the manager that this belongs to.
    private let memory: ReferenceMemory
    private let now: @Sendable () -> Date
    private let onError: @Sendable (ShaleError) -> Void

    /// Opens the directory, creating it and missing parents.
    ///
    /// - Parameters:
    ///   - directory: A file URL on a local file system, for these references alone.
    ///   - maximumCapacity: How many references are kept, of 1 GiB together at most. 0: none, and the directory is left alone.
    ///     Other than last time: no other process may have it open. Nil: 150 in a new directory, unchanged in an existing one.
    ///   - now: The clock that stamps what is stored.
    ///   - onError: Gets what fails later on, under no lock: Beagle's methods throw nothing. What fails reads as nothing there.
    public convenience init(
        at directory: URL, maximumCapacity: Int? = nil, now: @escaping @Sendable () -> Date = { Date() },
        onError: @escaping @Sendable (ShaleError) -> Void = { _ in }
    ) throws(ShaleError) {
        try self.init(
            at: directory, maximumCapacity: maximumCapacity, memory: ReferenceMemory(capacity: 0), now: now,
            onError: onError)
    }

    /// Without a directory, nothing is kept on disk.
    init(
        at directory: URL?, maximumCapacity: Int?, memory: ReferenceMemory, now: @escaping @Sendable () -> Date,
        onError: @escaping @Sendable (ShaleError) -> Void
    ) throws(ShaleError) {
        if let directory, !directory.isFileURL {
            throw ShaleError(
                code: .invalid, message: "\(directory) is no file URL; a cache is a directory on a local file system")
        }
        if let maximumCapacity, maximumCapacity < 0 {
            throw ShaleError(
                code: .invalid,
                message:
                    "\(directory?.path ?? "memory"): the capacity on disk is \(maximumCapacity); it is not negative")
        }
        var options = Store.Options(maxEntries: maximumCapacity ?? CacheManager.Config.diskDefault)
        // Several would share the limit out among them, and keep an order each.
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

    /// Stores the reference, created now, in place of another with its identifier.
    public func update(_ reference: CacheReference) { store(stamped(reference)) }

    /// The reference, which becomes the most recently used.
    public func getReference(for key: String) -> CacheReference? { read(key)?.reference }

    /// The same reference, created now.
    func stamped(_ reference: CacheReference) -> CacheReference {
        CacheReference(
            // A slice would keep all of its data in memory.
            identifier: reference.identifier, data: Data(reference.data), hash: reference.hash,
            maxAge: reference.maxAge,
            timeOfCreation: now())
    }

    /// Gives its version; nil: it is not on disk.
    @discardableResult
    func store(_ reference: CacheReference) -> UInt64? {
        attempt { store throws(ShaleError) in
            try store.set(
                reference.data, for: stored(reference.identifier), maxAge: .forever, meta: try reference.meta())
        } ?? nil
    }

    /// With its version.
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

    /// How many references are on disk now.
    public func numberOfReferences() -> Int {
        attempt { store throws(ShaleError) in Int(try store.statistics().entries) } ?? 0
    }

    /// Removes the least recently used reference, from the memory of the manager that this belongs to as well.
    public func removeLastUsed() {
        attempt { store throws(ShaleError) in
            let memory = memory
            let observed = store.observeEvictions { memory.remove(identifier(storedAs: $0)) }
            defer { store.stopObserving(observed) }
            try store.evict(1)
        }
    }

    /// Removes all references, from the memory of the manager that this belongs to as well.
    public func clear() {
        attempt { store throws(ShaleError) in try store.removeAll() }
        memory.removeAll()
    }

    /// Returns when all that was written before is safe from a power cut.
    public func saveChanges() {
        attempt { store throws(ShaleError) in try store.sync() }
    }

    /// Identifiers that are equal are one.
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

/// A store's keys are not empty, and no other identifier has these bytes: they are no UTF-8.
private let emptyIdentifier: [UInt8] = [0xFF]

private func identifier(storedAs key: [UInt8]) -> String {
    key == emptyIdentifier ? "" : String(decoding: key, as: UTF8.self)
}

/// What the store keeps beside a reference's data, as JSON.
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
                    "the reference \(identifier) cannot be encoded, its timeOfCreation is no point in time: \(error)")
        }
    }

    /// Nil for what somebody else wrote.
    fileprivate init?(identifier: String, data: UnsafeRawBufferPointer, meta: [UInt8]) {
        guard let meta = try? JSONDecoder().decode(Meta.self, from: Data(meta)) else { return nil }
        self.init(
            identifier: identifier, data: Data(data), hash: meta.hash, maxAge: meta.maxAge,
            timeOfCreation: meta.timeOfCreation)
    }
}
