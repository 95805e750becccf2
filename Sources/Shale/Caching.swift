/// The part of a cache that most code needs, so that tests can substitute a dictionary or a failing cache.
///
/// ```swift
/// struct Articles {
///     let cache: any Caching<URL, Article>
/// }
/// ```
public protocol Caching<Key, Value>: AnyObject, Sendable {
    associatedtype Key: Hashable & Sendable
    associatedtype Value: Sendable

    /// The fresh value, or nil. Setting inserts; setting nil removes.
    subscript(key: Key) -> Value? { get set }
    /// The fresh value; if there is none, loads and stores it.
    nonisolated(nonsending) func value(
        for key: Key, options: LoadOptions, load: @escaping @Sendable () async throws -> Value
    ) async throws -> Value
    /// Removes every entry.
    func removeAll() throws
}

extension Caching {
    /// With the default policy.
    public nonisolated(nonsending) func value(
        for key: Key, load: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        try await value(for: key, options: .default, load: load)
    }
}

extension Cache: Caching {
    /// See ``value(for:options:maxAge:tags:load:)``.
    public nonisolated(nonsending) func value(
        for key: Key, options: LoadOptions, load: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        try await value(for: key, options: options, maxAge: nil, tags: [], load: load)
    }
}
