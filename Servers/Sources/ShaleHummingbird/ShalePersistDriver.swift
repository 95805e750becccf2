import Foundation
import Hummingbird
import Shale

/// Hummingbird's persisted values in a Shale store: shared by all processes of a machine, and there after a restart.
///
/// ```swift
/// let store = try Store(at: "/var/lib/site/persist", options: .init(capacity: 256 << 20))
/// let persist = ShalePersistDriver(store: store)
/// ```
///
/// Values are stored as JSON. A store may drop any entry to make room, the least recently used first: a session that is lost means to
/// log in again. The store's clock decides what has expired. Any task may use a driver, and several drivers, in one process or in many,
/// a store.
///
/// Throws `PersistError`, and `ShaleError` where the store fails, or a value is larger than it takes.
public struct ShalePersistDriver: PersistDriver {
    private let store: Store
    private let prefix: String

    /// - Parameters:
    ///   - store: Whose it is, closes it.
    ///   - prefix: What its keys begin with, so that other things can be in the store.
    public init(store: Store, prefix: String = "hummingbird/") {
        self.store = store
        self.prefix = prefix
    }

    public func create(key: String, value: some Codable & Sendable, expires: Duration?) async throws {
        let version = try store.set(
            JSONEncoder().encode(value), for: prefix + key, maxAge: lifetime(expires), stale: .zero,
            condition: .ifAbsent)
        if version == nil { throw PersistError.duplicate }
    }

    /// Without `expires`, what was there keeps its time, and what was not has none.
    public func set(key: String, value: some Codable & Sendable, expires: Duration?) async throws {
        let bytes = try JSONEncoder().encode(value), key = prefix + key
        if let expires {
            try store.set(bytes, for: key, maxAge: lifetime(expires), stale: .zero)
            return
        }
        while true {
            let present = try store.entry(for: key)
            // Nil: somebody else was there in between.
            if let version = try store.set(
                bytes, for: key, maxAge: lifetime(until: present?.expiresAt), stale: .zero,
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

    public func remove(key: String) async throws { try store.remove(prefix + key) }

    /// Makes what was stored safe from a power cut.
    public func shutdown() async throws { try store.sync() }

    // MARK: Steps

    private func read<Object: Decodable>(_ key: String, as type: Object.Type) throws -> (
        object: Object, entry: Store.Entry
    )? {
        let read = try store.withValue(for: prefix + key) { entry, bytes in (entry, Data(bytes)) }
        guard let (entry, data) = read else { return nil }
        do { return (try JSONDecoder().decode(type, from: data), entry) } catch { throw PersistError.invalidConversion }
    }

    /// Ages count from now, and the clock may have moved on between asking for one and giving it: without this, a value that is set
    /// again and again would live a little longer each time.
    private func keep(_ expiresAt: Int64?, of key: String, _ version: UInt64) throws {
        for _ in 0..<100 {
            guard let expiresAt, let entry = try store.entry(for: key), entry.version == version,
                entry.expiresAt != expiresAt
            else { return }
            try store.touch(key, version: version, maxAge: lifetime(until: expiresAt))
        }
    }

    private func lifetime(_ expires: Duration?) -> Store.Lifetime {
        guard let expires else { return .forever }
        return expires > .zero ? .of(expires) : .zero
    }

    private func lifetime(until expiresAt: Int64?) -> Store.Lifetime {
        guard let expiresAt else { return .forever }
        return expiresAt > store.now ? .of(.milliseconds(expiresAt - store.now)) : .zero
    }
}
