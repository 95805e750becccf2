import Foundation
import GRDB
import Shale
import Synchronization

/// A measured key-value store.
protocol Subject {
    associatedtype Value: Sample
    func value(for key: String) throws -> Value?
    func set(_ value: Value, for key: String) throws
    /// Sets each key to the value with the key's position as number.
    func fill(_ keys: [String]) throws
}

extension Subject {
    func fill(_ keys: [String]) throws {
        for (number, key) in keys.enumerated() { try set(Value(number), for: key) }
    }
}

struct ShaleSubject<Value: Sample>: Subject {
    private let cache: Cache<String, Value>

    /// - Parameter memoryEntries: 0: every get decodes the stored value.
    init(memoryEntries: Int = 0, in directory: TemporaryDirectory) throws {
        cache = try Cache(at: directory.path, maxEntries: nil, memoryEntries: memoryEntries, memoryBytes: 1 << 30)
    }

    func value(for key: String) throws -> Value? { try cache.value(for: key) }
    func set(_ value: Value, for key: String) throws { try cache.insert(value, for: key) }
}

struct MemoryCacheSubject<Value: Sample>: Subject {
    private let cache = MemoryCache<String, Value>(maximumEntryCount: .max)

    func value(for key: String) -> Value? { cache.value(for: key) }
    func set(_ value: Value, for key: String) { cache.insert(value, for: key) }
}

struct NSCacheSubject<Value: Sample>: Subject {
    private final class Box {
        let value: Value
        init(_ value: Value) { self.value = value }
    }
    private let cache = NSCache<NSString, Box>()

    func value(for key: String) -> Value? { cache.object(forKey: NSString(string: key))?.value }
    func set(_ value: Value, for key: String) { cache.setObject(Box(value), forKey: NSString(string: key)) }
}

final class DictionarySubject<Value: Sample>: Subject {
    private let values = Mutex<[String: Value]>([:])

    func value(for key: String) -> Value? { values.withLock { $0[key] } }
    func set(_ value: Value, for key: String) { values.withLock { $0[key] = value } }
}

/// SQLite with a table of keys and values: WAL, no syncs, prepared statements, and a cache that holds all data. A get
/// runs without a transaction, a set in one of its own.
struct GRDBSubject<Value: Sample>: Subject {
    private let database: DatabaseQueue
    private static var insertion: String {
        "INSERT INTO entries VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    }

    init(in directory: TemporaryDirectory) throws {
        var configuration = GRDB.Configuration()
        configuration.journalMode = .wal
        database = try DatabaseQueue(path: directory.path + "/values.sqlite", configuration: configuration)
        // After opening, as a queue in WAL mode sets `synchronous` itself.
        try database.writeWithoutTransaction { database in
            try database.execute(
                sql: "PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000; PRAGMA mmap_size = 1000000000")
        }
        try database.write {
            try $0.execute(sql: "CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
        }
    }

    func value(for key: String) throws -> Value? {
        let data = try database.unsafeRead { database in
            try Data.fetchOne(
                database.cachedStatement(sql: "SELECT value FROM entries WHERE key = ?"), arguments: [key])
        }
        return try data.map(Value.decoded)
    }

    func set(_ value: Value, for key: String) throws {
        let data = try value.encoded()
        try database.writeWithoutTransaction { database in
            try database.cachedStatement(sql: Self.insertion).execute(arguments: [key, data])
        }
    }

    func fill(_ keys: [String]) throws {
        try database.write { database in
            let statement = try database.cachedStatement(sql: Self.insertion)
            for (number, key) in keys.enumerated() { try statement.execute(arguments: [key, Value(number).encoded()]) }
        }
    }
}

/// One file per entry, replaced atomically. Foundation syncs each file that it writes, atomically or not.
struct FileSubject<Value: Sample>: Subject {
    private let directory: URL

    init(in directory: TemporaryDirectory) { self.directory = URL(fileURLWithPath: directory.path, isDirectory: true) }

    func value(for key: String) throws -> Value? { try Value.decoded(Data(contentsOf: file(key))) }
    func set(_ value: Value, for key: String) throws { try value.encoded().write(to: file(key), options: .atomic) }
    private func file(_ key: String) -> URL { directory.appendingPathComponent(key, isDirectory: false) }
}
