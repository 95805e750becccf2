#if HTTP
import Synchronization

/// Requests whose response could not be stored or not be shared, for some seconds: no request waits for the next one.
final class HitForMiss: Sendable {
    /// A full table is emptied. That costs requests that wait, no more.
    private static let limit = 4096

    private let time: Int64
    /// When the response arrived. By hashes, since keys can be long: of two keys with the same hash, one does not wait.
    private let entries = Mutex<[Int: Int64]>([:])

    init(for time: Duration) { self.time = time.milliseconds }

    /// A clock that was set back ends all entries.
    func contains(_ key: String, at now: Int64) -> Bool {
        entries.withLock { entries in
            entries[key.hashValue].map { (0..<max(0, time)).contains(now - $0) } ?? false
        }
    }

    func insert(_ key: String, at now: Int64) {
        entries.withLock { entries in
            if entries.count >= Self.limit { entries.removeAll() }
            entries[key.hashValue] = now
        }
    }

    func remove(_ key: String) { entries.withLock { $0[key.hashValue] = nil } }
}
#endif
