#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Dispatch
#endif

/// What looks at many entries, or waits for the disk. The asynchronous forms do the same on a thread of their own, so that no task of the
/// caller's waits for it; in an asynchronous function they are the ones that are called. One whose task is cancelled goes to its end.
extension Cache {
    /// Whether there is a fresh value. It is not read, decoded or counted, and this is no use of it.
    public func contains(_ key: Key) throws(ShaleError) -> Bool {
        guard let known = try store.entry(for: try stored(key)) else { return false }
        return !Meta.isMissing(known.meta)
    }

    /// The keys of all fresh entries, in no promised order. Reads the whole store.
    public func allKeys() throws(ShaleError) -> [Key] {
        var found = Set<Key>()
        try forEachFresh { key, _, _ in
            found.insert(key)
            return true
        }
        return Array(found)
    }

    /// How many fresh entries there are. Reads the whole store.
    public func count() throws(ShaleError) -> Int { try allKeys().count }

    /// Removes the fresh entries that satisfy the predicate, each unless it has been replaced since that saw it. Returns how
    /// many. Reads the whole store.
    @discardableResult
    public func removeAll(where shouldBeRemoved: (Key, Value) throws -> Bool) throws -> Int {
        var removed = 0
        var failure: (any Error)?
        try forEachFresh { key, known, bytes in
            do {
                guard let value = try? coder.decode(Data(bytes)), try shouldBeRemoved(key, value) else { return true }
                if try remove(key, version: known.version) { removed += 1 }
            } catch { failure = error }
            return failure == nil
        }
        if let failure { throw failure }
        return removed
    }

    /// Stores values under their keys, one after the other; of several under one key, the last. Where one cannot be stored,
    /// those before it are.
    public func insert(
        contentsOf values: some Sequence<(key: Key, value: Value)>, maxAge: Age? = nil, tags: [String] = []
    ) throws(ShaleError) {
        for (key, value) in values { try insert(value, for: key, maxAge: maxAge, tags: tags) }
    }

    /// Returns when all that was stored before the call is safe from a power cut, see `Store.sync()`.
    public func sync() throws(ShaleError) { try store.sync() }

    // MARK: Off the caller's thread

    /// See the other form.
    public func allKeys() async throws(ShaleError) -> [Key] {
        try await onThread { () throws(ShaleError) in try self.keysNow() }.get()
    }

    /// See the other form.
    public func count() async throws(ShaleError) -> Int { try await allKeys().count }

    /// See the other form.
    @discardableResult
    public func removeAll(where shouldBeRemoved: @escaping @Sendable (Key, Value) throws -> Bool) async throws -> Int {
        try await onThread { try self.removeNow(shouldBeRemoved) }.get()
    }

    /// See the other form.
    public func sync() async throws(ShaleError) {
        try await onThread { () throws(ShaleError) in try self.store.sync() }.get()
    }

    // By these names there is one form alone.
    private func keysNow() throws(ShaleError) -> [Key] { try allKeys() }
    private func removeNow(_ shouldBeRemoved: (Key, Value) throws -> Bool) throws -> Int {
        try removeAll(where: shouldBeRemoved)
    }

    /// Until the body returns false. (Stored keys differ by their bytes; what they decode to may be equal.)
    private func forEachFresh(_ body: (Key, Store.Entry, UnsafeRawBufferPointer) -> Bool) throws(ShaleError) {
        try store.forEach { bytes, known, value in
            guard !Meta.isMissing(known.meta), let key = keys.decode(bytes) else { return true }
            return body(key, known, value)
        }
    }
}

/// On a thread that may wait: the tasks' own are few, and all wait with one of them.
private func onThread<R: Sendable, E: Error>(_ body: @escaping @Sendable () throws(E) -> R) async -> Result<R, E> {
    await withCheckedContinuation { continuation in
        beginThread { continuation.resume(returning: Result { () throws(E) in try body() }) }
    }
}

#if canImport(Glibc) || canImport(Musl)
private final class Job: Sendable {
    let run: @Sendable () -> Void
    init(_ run: @escaping @Sendable () -> Void) { self.run = run }
}

/// Here, Dispatch's threads are those of tasks. Where there is no thread left, the caller's does it.
private func beginThread(_ run: @escaping @Sendable () -> Void) {
    let job = Unmanaged.passRetained(Job(run))
    var thread = pthread_t()
    let status = pthread_create(
        &thread, nil,
        { argument in
            if let argument { Unmanaged<Job>.fromOpaque(argument).takeRetainedValue().run() }
            return nil
        }, job.toOpaque())
    if status == 0 { pthread_detach(thread) } else { job.takeRetainedValue().run() }
}
#else
private func beginThread(_ run: @escaping @Sendable () -> Void) { DispatchQueue.global().async(execute: run) }
#endif
