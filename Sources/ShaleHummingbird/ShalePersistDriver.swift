#if Hummingbird
import Foundation
import Hummingbird
import Shale

/// Hummingbird's persisted values in a Shale store: all processes of a machine share them, and they survive restarts.
///
/// ```swift
/// let store = try Store(at: "/var/lib/site/persist", options: .init(capacity: 256 << 20))
/// let persist = ShalePersistDriver(store: store)
/// ```
///
/// Values are stored as JSON. A full store evicts the least recently used entries: a user whose session was evicted has
/// to log in again. Expiry follows the store's clock. Safe to use from any task; several drivers, in one process or in
/// several, can share a store.
///
/// Throws `PersistError`, and `ShaleError` if the store fails or a value exceeds its size limit.
public struct ShalePersistDriver: PersistDriver {
    private let store: Store
    private let prefix: String

    /// - Parameters:
    ///   - store: Remains the caller's to close.
    ///   - prefix: The prefix of all keys, so that the store can hold other data as well.
    public init(store: Store, prefix: String = "hummingbird/") {
        self.store = store
        self.prefix = prefix
    }

    public func create(key: String, value: some Codable & Sendable, expires: Duration?) async throws {
        let version = try store.insert(
            JSONEncoder().encode(value), for: prefix + key, maxAge: age(expires), staleFor: .zero,
            condition: .ifAbsent)
        if version == nil { throw PersistError.duplicate }
    }

    /// Without `expires`, an existing value keeps its expiry time, and a new value has none.
    public func set(key: String, value: some Codable & Sendable, expires: Duration?) async throws {
        let bytes = try JSONEncoder().encode(value), key = prefix + key
        if let expires {
            try store.insert(bytes, for: key, maxAge: age(expires), staleFor: .zero)
            return
        }
        while true {
            let present = try store.entry(for: key)
            // Nil: another writer came in between.
            if let version = try store.insert(
                bytes, for: key, maxAge: age(until: present?.expiresAt), staleFor: .zero,
                condition: present.map { .ifVersion($0.version) } ?? .ifAbsent)
            {
                try keep(present?.expiresAt, of: key, version)
                return
            }
        }
    }

    public func get<Object: Codable & Sendable>(key: String, as type: Object.Type) async throws -> Object? {
        try read(key, as: type)?.object
    }

    public func getWithTTL<Object: Codable & Sendable>(key: String, as type: Object.Type) async throws -> (
        object: Object, ttl: Duration?
    )? {
        guard let (object, entry) = try read(key, as: type) else { return nil }
        return (object, entry.expiresAt.map { .milliseconds(max(0, $0 - store.now)) })
    }

    public func remove(key: String) async throws { try store.removeValue(for: prefix + key) }

    /// Makes stored values durable: they survive a power failure.
    public func shutdown() async throws { try store.sync() }

    // MARK: Helpers

    private func read<Object: Decodable>(_ key: String, as type: Object.Type) throws -> (
        object: Object, entry: Store.Entry
    )? {
        let read = try store.withValue(for: prefix + key) { entry, bytes in (entry, Data(bytes)) }
        guard let (entry, data) = read else { return nil }
        do { return (try JSONDecoder().decode(type, from: data), entry) } catch { throw PersistError.invalidConversion }
    }

    /// The store counts a lifetime from the time of the call, which is later than the time for which it was computed:
    /// without this correction, each `set` of the same key would extend its lifetime a little.
    private func keep(_ expiresAt: Int64?, of key: String, _ version: UInt64) throws {
        for _ in 0..<100 {
            guard let expiresAt, let entry = try store.entry(for: key), entry.version == version,
                entry.expiresAt != expiresAt
            else { return }
            try store.touch(key, ifVersion: version, maxAge: age(until: expiresAt))
        }
    }

    private func age(_ expires: Duration?) -> Age {
        guard let expires else { return .forever }
        return expires > .zero ? Age(expires) : .zero
    }

    private func age(until expiresAt: Int64?) -> Age {
        expiresAt.map(Age.until(millisecondsSince1970:)) ?? .forever
    }
}
#endif
