/// What most code needs of a cache, so that a test can give it another one: a dictionary, or one that fails.
///
/// ```swift
/// struct Articles {
///     let cache: any Caching<URL, Article>
/// }
/// ```
public protocol Caching<Key, Value>: AnyObject, Sendable {
    associatedtype Key: Hashable & Sendable
    associatedtype Value: Sendable

    /// The fresh value, or nil; set: inserts, or removes with nil.
    subscript(key: Key) -> Value? { get set }
    /// The fresh value, loaded and stored where there is none.
    func value(for key: Key, policy: LoadOptions, load: @escaping @Sendable () async throws -> Value) async throws
        -> Value
    /// Removes every entry.
    func removeAll() throws
}

extension Caching {
    /// By the default policy.
    public func value(for key: Key, load: @escaping @Sendable () async throws -> Value) async throws -> Value {
        try await value(for: key, policy: .default, load: load)
    }
}

extension Cache: Caching {
    /// See ``value(for:policy:maxAge:tags:load:)``.
    public func value(
        for key: Key, policy: LoadOptions, load: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        try await value(for: key, policy: policy, maxAge: nil, tags: [], load: load)
    }
}
