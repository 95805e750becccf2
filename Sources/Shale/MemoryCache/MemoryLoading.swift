#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

extension MemoryCache {
    /// A loaded value, which only loads of a cache of `Sendable` values have.
    struct Loaded: @unchecked Sendable {
        let value: Value
    }
}

extension MemoryCache where Key: Sendable, Value: Sendable {
    /// The fresh value; if there is none, loads and stores it.
    ///
    /// Callers of one key share a load, as in ``Cache/value(for:options:maxAge:tags:load:)``: one that is cancelled stops
    /// waiting, the last one cancels the load, and a failure goes to all. If the key is inserted, updated or removed
    /// during its load, the loaded value is not stored, and later callers load again.
    ///
    /// - Parameters:
    ///   - key: The key of the value.
    ///   - options: There are no stale entries: all policies but ``LoadPolicy/reload`` are the same, and
    ///     ``LoadOptions/softLimit`` and ``LoadOptions/pauseAfterFailure`` have no effect.
    ///   - load: Gets the value from its origin. May use the cache.
    /// - Throws: What the loader throws, ``LoadError``, `CancellationError`, and `ShaleError` if an option is out of
    ///   range.
    public nonisolated(nonsending) func value(
        for key: Key, options: LoadOptions = .default, load: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        if let fault = options.fault { throw ShaleError(fault, in: nil) }
        if options.policy != .reload, let value = value(for: key) { return value }
        let loadKey = loadKeys.object(for: key), name = String(describing: key)
        let identity = LoadIdentity(store: .memory(ObjectIdentifier(loadKey)), key: [])
        return try await WaitGraph.shared.waiting {
            (identity, name)
        } _: {
            let joined = try loader.join(loadKey) { fence in
                if case .ifVersion(let changes) = fence { changes == loadKey.changes } else { false }
            } unless: {
                options.policy == .reload ? nil : value(for: key).map(Loaded.init)
            } load: { fence in
                let changes = loadKey.changes
                fence.set(.since(.ifVersion(UInt64(changes))))
                return try await RunningLoad(identity, name: name).during {
                    let value = try await load()
                    // A load without callers must not undo a removal that follows its cancellation.
                    try Task.checkCancellation()
                    let now = self.dateProvider()
                    let lifetime = self.entryLifetime * (1 - options.jitter * .random(in: 0..<1))
                    self.insert(
                        self.entry(value, for: key, expirationDate: now.addingTimeInterval(lifetime)), at: now
                    ) { loadKey.changes == changes }
                    return Loaded(value: value)
                }
            }
            switch joined {
            case .stored(let loaded): return loaded.value
            case .load(let hold):
                let limit = options.hardLimit.map { TimeLimit(time: $0, clock: ContinuousClock()) }
                if let loaded = try await hold.output(within: limit) { return loaded.value }
                hold.release()
                throw LoadError.hardLimit(key: name, limit: options.hardLimit ?? .zero)
            }
        }
    }
}

extension MemoryCache where Key: Sendable, Value: Sendable {
    /// This cache behind the protocol. (A conformance of the class itself would hold for values that are not `Sendable`
    /// as well.)
    public var caching: any Caching<Key, Value> { CachingMemory(cache: self) }
}

private final class CachingMemory<Key: Hashable & Sendable, Value: Sendable>: Caching {
    private let cache: MemoryCache<Key, Value>
    init(cache: MemoryCache<Key, Value>) { self.cache = cache }

    subscript(key: Key) -> Value? {
        get { cache[key] }
        set { cache[key] = newValue }
    }
    nonisolated(nonsending) func value(
        for key: Key, options: LoadOptions, load: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        try await cache.value(for: key, options: options, load: load)
    }
    func removeAll() { cache.removeAll() }
}
